// Layouts of large graphs, made off the page's thread so that nothing freezes: the page's own script
// runs once more as a worker, which has no document and only answers layouts.

import { Box, place, Placed } from "./layout";

/** Nodes up to which a layout is made at once: it takes a few milliseconds. */
const AT_ONCE = 300;

interface Job {
  boxes: Box[];
  pairs: [number, number][];
  done(placed: Placed): void;
}

interface Message {
  number: number;
  share: number;
  placed?: Placed;
}

/** What the script does where there is no document. */
export function serveLayouts(): void {
  const scope = self as unknown as { onmessage: (event: MessageEvent) => void; postMessage(message: Message): void };
  scope.onmessage = (event) => {
    const { number, boxes, pairs } = event.data as { number: number; boxes: Box[]; pairs: [number, number][] };
    let told = 0;
    const placed = place(boxes, pairs, (share) => {
      if (performance.now() - told < 100) return;
      told = performance.now();
      scope.postMessage({ number, share });
    });
    scope.postMessage({ number, share: 1, placed });
  };
}

export class Layouts {
  private worker: Worker | null = null;
  private running: Job | null = null;
  private waiting: Job | null = null;
  private number = 0;

  constructor(private progress: (share: number) => void) {}

  /** Whether a graph of so many nodes is laid out while one waits. */
  static atOnce(count: number): boolean {
    return count <= AT_ONCE || typeof Worker === "undefined";
  }

  /** Lays out; of several that are asked for meanwhile, only the last is made. */
  place(boxes: Box[], pairs: [number, number][], done: (placed: Placed) => void): void {
    const job = { boxes, pairs, done };
    if (this.running) {
      this.waiting = job;
      return;
    }
    this.start(job);
  }

  private start(job: Job): void {
    this.running = job;
    this.number += 1;
    this.progress(0);
    this.worker ??= this.make();
    if (!this.worker) {
      this.finish(place(job.boxes, job.pairs));
      return;
    }
    this.worker.postMessage({ number: this.number, boxes: job.boxes, pairs: job.pairs });
  }

  private make(): Worker | null {
    const script = document.querySelector<HTMLScriptElement>('script[type="module"]')?.textContent;
    if (!script) return null;
    const address = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
    const worker = new Worker(address);
    URL.revokeObjectURL(address);
    worker.onmessage = (event) => {
      const { number, share, placed } = event.data as Message;
      if (number !== this.number) return;
      if (placed) this.finish(placed);
      else this.progress(share);
    };
    // Where a browser forbids workers, the page waits instead.
    worker.onerror = () => {
      this.worker = null;
      const job = this.running;
      if (job) this.finish(place(job.boxes, job.pairs));
    };
    return worker;
  }

  private finish(placed: Placed): void {
    const done = this.running;
    this.running = null;
    done?.done(placed);
    const next = this.waiting;
    this.waiting = null;
    if (next) this.start(next);
  }
}
