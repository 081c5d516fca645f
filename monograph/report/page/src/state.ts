// What is being looked at. It lives in the address, so that the browser's own Back goes back.

export type View = "overview" | "graph" | "kernels" | "memory" | "findings" | "edit";

export interface State {
  view: View;
  stage: number;
  node: number | null;
  kernel: string | null;
  step: number | null;
  file: number | null;
  line: number | null;
  listing: string;
}

export const START: State = {
  view: "overview",
  stage: 0,
  node: null,
  kernel: null,
  step: null,
  file: null,
  line: null,
  listing: "nests",
};

const VIEWS: View[] = ["overview", "graph", "kernels", "memory", "findings", "edit"];

export function write(state: State): string {
  const parts = new URLSearchParams();
  for (const [key, value] of Object.entries(state)) {
    if (key !== "view" && value !== null && value !== START[key as keyof State]) parts.set(key, String(value));
  }
  const rest = parts.toString();
  return `#${state.view}${rest ? `?${rest}` : ""}`;
}

export function read(hash: string): State {
  const [view, rest] = hash.replace(/^#/, "").split("?", 2);
  const given = new URLSearchParams(rest ?? "");
  const number = (key: string): number | null => {
    const text = given.get(key);
    return text !== null && /^-?\d+$/.test(text) ? Number(text) : null;
  };
  return {
    view: VIEWS.includes(view as View) ? (view as View) : START.view,
    stage: number("stage") ?? START.stage,
    node: number("node"),
    kernel: given.get("kernel"),
    step: number("step"),
    file: number("file"),
    line: number("line"),
    listing: given.get("listing") ?? START.listing,
  };
}
