// What may be turned of each kernel's schedule, where a server stands behind the page: a menu a knob,
// which says how the program is compiled the next time.

import { h, plural, replace } from "./dom";
import { Site } from "./data";

export class SchedulesView {
  readonly element = h("details", { class: "schedules", open: true });
  private edits = new Map<string, Record<string, number>>();

  constructor(private changed: () => void) {}

  /** The sites of what was compiled last; edits of sites that are gone are forgotten. */
  show(sites: Site[]): void {
    const turned = sites.filter((site) => Object.keys(site.knobs).length);
    this.edits = new Map(sites.filter((site) => Object.keys(site.edits).length).map((site) => [site.digest, { ...site.edits }]));
    replace(
      this.element,
      h("summary", {}, `Schedules of ${plural(turned.length, "kernel")}${this.edits.size ? `, ${this.edits.size} of them changed` : ""}`),
      turned.length
        ? h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Kernel"), h("th", { scope: "col" }, "Chosen by the cost model"), h("th", { scope: "col" }, "Turn"))), h("tbody", {}, ...turned.map((site) => this.row(site))))
        : h("p", { class: "hint" }, "No kernel of this program has a schedule that may be changed."),
    );
  }

  /** What is to be sent: numbers by knob by site. */
  get tuning(): Record<string, Record<string, number>> {
    return Object.fromEntries([...this.edits].filter(([, knobs]) => Object.keys(knobs).length));
  }

  private row(site: Site): HTMLElement {
    const turns = Object.entries(site.knobs).map(([knob, values]) => {
      const menu = h(
        "select",
        { "aria-label": `${knob} of ${site.name}` },
        h("option", { value: "" }, "as chosen"),
        ...values.map((value) => h("option", { value, selected: site.edits[knob] === value }, value)),
      );
      menu.addEventListener("change", () => {
        const own = this.edits.get(site.digest) ?? {};
        if (menu.value === "") delete own[knob];
        else own[knob] = Number(menu.value);
        this.edits.set(site.digest, own);
        this.changed();
      });
      return h("label", {}, `${knob} `, menu);
    });
    return h("tr", { class: Object.keys(site.edits).length ? "chosen" : "" }, h("td", { class: "code" }, site.launches > 1 ? `${site.name} (×${site.launches})` : site.name), h("td", { class: "code" }, site.choice), h("td", { class: "knobs" }, ...turns));
  }
}
