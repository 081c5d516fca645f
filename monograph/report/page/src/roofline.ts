// Kernels on the roofline: what each reached, under the roofs of arithmetic and of each memory.

import { h, percent, plural, replace, svg } from "./dom";
import { KernelFacts, Model } from "./data";
import { familyOfKind } from "./families";
import { Go } from "./inspector";

const [WIDTH, HEIGHT, LEFT, BOTTOM] = [460, 210, 48, 28];

export class Roofline {
  readonly element = h("div", { class: "roofline" });

  constructor(
    private model: Model,
    private go: Go,
  ) {}

  show(chosen: string | null): void {
    const { measured, kernels } = this.model.facts;
    const peak = measured.peak_gflops;
    const levels = measured.levels ?? [];
    const points = kernels.filter((each) => each.ms && each.flops && moved(each) > 0);
    if (!peak || !levels.length || !points.length) {
      const why = peak && levels.length ? "No kernel with arithmetic was timed by itself" : `The machine and its kernels were not measured (${measured.note ?? "it was not asked for"})`;
      replace(this.element, h("h3", {}, "Roofline"), h("p", { class: "hint" }, `${why}, so that no kernel has a place on a roofline. The bytes that each moves are in the table below.`));
      return;
    }
    const slowest = levels[levels.length - 1]!.gbs;
    const xs = points.map(intensity);
    const lowX = Math.min(0.05, ...xs) / 1.5;
    const highX = Math.max((peak / slowest) * 4, ...xs) * 1.5;
    const highY = Math.max(peak, ...points.map(speed)) * 1.6;
    const lowY = Math.min(peak / 1000, ...points.map(speed)) / 1.5;
    const x = (value: number) => LEFT + (Math.log(value / lowX) / Math.log(highX / lowX)) * (WIDTH - LEFT - 8);
    const y = (value: number) => HEIGHT - BOTTOM - (Math.log(value / lowY) / Math.log(highY / lowY)) * (HEIGHT - BOTTOM - 8);
    const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `Roofline with ${plural(points.length, "kernel")}; the table below has the same figures` });
    for (let power = Math.ceil(Math.log10(lowY)); power <= Math.log10(highY); power += 1) {
      drawing.append(svg("line", { x1: LEFT, x2: WIDTH - 8, y1: y(10 ** power), y2: y(10 ** power), class: "grid" }), svg("text", { x: LEFT - 6, y: y(10 ** power) + 3, class: "axis end" }, `${10 ** power}`));
    }
    for (let power = Math.ceil(Math.log10(lowX)); power <= Math.log10(highX); power += 1) {
      drawing.append(svg("line", { x1: x(10 ** power), x2: x(10 ** power), y1: 8, y2: HEIGHT - BOTTOM, class: "grid" }), svg("text", { x: x(10 ** power), y: HEIGHT - BOTTOM + 13, class: "axis middle" }, `${10 ** power}`));
    }
    drawing.append(
      svg("path", { d: `M${x(lowX)},${y(peak)} L${x(highX)},${y(peak)}`, class: "roof" }),
      svg("text", { x: WIDTH - 10, y: y(peak) - 5, class: "axis end" }, `${peak.toFixed(0)} GFLOP/s`),
      svg("text", { x: (LEFT + WIDTH) / 2, y: HEIGHT - 3, class: "axis middle" }, "FLOP per byte moved"),
      svg("text", { x: LEFT + 4, y: 16, class: "axis" }, "GFLOP/s"),
    );
    levels.forEach(({ name, gbs }, k) => {
      const ridge = peak / gbs;
      const start = Math.max(lowX, lowY / gbs);
      const at = start * (ridge / start) ** (0.75 - 0.25 * k); // labels beside each other
      const turn = (Math.atan2(y(ridge * gbs) - y(start * gbs), x(ridge) - x(start)) * 180) / Math.PI;
      drawing.append(
        svg("path", { d: `M${x(start)},${y(start * gbs)} L${x(ridge)},${y(peak)}`, class: "roof" }),
        svg("text", { x: x(at), y: y(at * gbs) - 4, class: "axis middle", transform: `rotate(${turn} ${x(at)} ${y(at * gbs) - 4})` }, `${name} ${gbs.toFixed(0)} GB/s`),
      );
    });
    for (const each of points) {
      const reached = each.reached ? `, ${percent(each.reached)} of the roof (${each.bound})` : "";
      const point = svg("circle", { cx: x(intensity(each)), cy: y(speed(each)), r: each.name === chosen ? 6.5 : 4.5, class: `point ${familyOfKind(each.kind)}${each.name === chosen ? " chosen" : ""}` }, svg("title", {}, `${each.name}: ${speed(each).toFixed(1)} GFLOP/s${reached}`));
      point.addEventListener("click", () => this.go({ kernel: each.name, step: null }));
      drawing.append(point);
    }
    const apart = kernels.length - points.length;
    replace(this.element, h("h3", {}, "Roofline"), drawing, apart > 0 && h("p", { class: "meta" }, `${plural(apart, "kernel")} without arithmetic or without a time of ${apart === 1 ? "its" : "their"} own ${apart === 1 ? "is" : "are"} not on it.`));
  }
}

function moved(each: KernelFacts): number {
  return each.read + each.written;
}

function intensity(each: KernelFacts): number {
  return each.flops! / moved(each);
}

function speed(each: KernelFacts): number {
  return (each.flops! * Math.max(1, each.launches)) / (each.ms! * 1e6);
}
