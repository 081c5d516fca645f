"""A stream of requests of changing sizes: ``python -m benchmarks.shipped.stream``.

A service gets texts, lines and sentences of every length. Each contender answers the same 200
requests, in turns in one process: what counts is not the quickest call, but what requests have to
wait for, programs that are compiled meanwhile included. Then each answers them once more in a
process of its own, of which the memory is read.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks import peers
from benchmarks.report import milliseconds
from benchmarks.shipped import Feed, Shipped, Sizes, select
from benchmarks.shipped.__main__ import prepare_process
from benchmarks.shipped.contenders import CONTENDERS
from benchmarks.shipped.model import SEED

REQUESTS = 200
STREAMED = ("shipped", "onnxruntime", "openvino")


def _lengths(generator: np.random.Generator) -> Sizes:
    """Tokens of texts: most are short, a few are long."""
    drawn = generator.lognormal(np.log(24), 0.7)
    return {"sequence_length": int(np.clip(drawn, 4, 256))}


def _widths(generator: np.random.Generator) -> Sizes:
    """Pixels of lines of text, cut out in steps of eight."""
    return {"width": 8 * int(np.clip(generator.normal(20, 8), 4, 60))}


def _steps() -> Iterator[Sizes]:
    """The steps of generating texts: a past that grows by one token a call, and begins again."""
    while True:
        for past in range(16, 80):
            yield {"sequence_length": 1, "past": past}


def _drawn(draw: Callable[[np.random.Generator], Sizes]) -> Iterator[Sizes]:
    generator = np.random.default_rng(SEED)
    while True:
        yield draw(generator)


STREAMS: Mapping[str, Callable[[], Iterator[Sizes]]] = {
    "bert": lambda: _drawn(_lengths),
    "crnn": lambda: _drawn(_widths),
    "decoder": _steps,
}


@dataclass(frozen=True)
class Latency:
    """Seconds that requests of one contender took, and what else was spent on them.

    ``background`` are the processor seconds beside the calls: programs compiled meanwhile.
    ``memory`` is what the process held at the end, in bytes, over what it held before the model.
    """

    opened: float
    median: float
    p99: float
    worst: float
    background: float
    memory: int | None = None


@dataclass(frozen=True)
class Stream:
    """All contenders on one model's requests."""

    name: str
    requests: int
    sizes: int
    """How many different sizes there were."""
    latencies: dict[str, Latency]
    failed: dict[str, str]


def requests_of(model: Shipped, count: int, small: bool) -> list[Feed]:
    """The inputs of so many requests; those of equal sizes are different, too."""
    sizes = STREAMS[model.name]()
    return [model.inputs(next(sizes), small, seed=number) for number in range(count)]


def run_stream(model: Shipped, names: Sequence[str], count: int, small: bool) -> Stream:
    """Answer all requests by turns."""
    feeds = requests_of(model, count, small)
    shapes = {tuple(each.shape for each in feed.values()) for feed in feeds}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{model.name}.onnx"
        path.write_bytes(model.build(small))
        opened: dict[str, Any] = {}
        failed: dict[str, str] = {}
        for name in names:
            try:
                opened[name] = CONTENDERS[name](path, feeds[0], peers.THREADS)
            except Exception as problem:  # peers fail in their own ways; the table tells which
                failed[name] = f"{type(problem).__name__}: {problem}".splitlines()[0]
        seconds, background = _answer({n: each.call for n, each in opened.items()}, feeds)
    latencies = {
        name: _latency(opened[name].seconds, seconds[name], background[name]) for name in opened
    }
    return Stream(model.name, count, len(shapes), latencies, failed)


def _answer(
    calls: Mapping[str, Callable[[Feed], Any]], feeds: Sequence[Feed]
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """The seconds of each request, and the processor seconds that other threads took meanwhile.

    Only Monograph works beside its calls, so that all of it is put down to that.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    used = time.process_time() - time.thread_time()
    names = list(calls)
    for number, feed in enumerate(feeds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            start = time.perf_counter()
            calls[name](feed)
            seconds[name].append(time.perf_counter() - start)
    beside = time.process_time() - time.thread_time() - used
    return seconds, {name: beside if name == "shipped" else 0.0 for name in names}


def _latency(opened: float, seconds: Sequence[float], background: float) -> Latency:
    median, p99 = (float(np.quantile(seconds, q)) for q in (0.5, 0.99))
    return Latency(opened, median, p99, max(seconds), background)


# Memory -------------------------------------------------------------------------------------------


def resident_bytes() -> int:
    """What this process holds in memory now."""
    status = Path("/proc/self/status")
    if not status.exists():
        raise OSError("the memory of a process is read from /proc, which is not there")
    line = next(each for each in status.read_text().splitlines() if each.startswith("VmRSS:"))
    return 1024 * int(line.split()[1])


def memory_of(model: Shipped, name: str, count: int, small: bool) -> int:
    """The bytes that answering all requests leaves in a process of its own."""
    command = [sys.executable, "-W", "ignore", "-m", __spec__.name, "--only", model.name]
    command += ["--memory-of", name, "--requests", str(count), *(["--small"] if small else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout.splitlines()[-1])


def _held(model: Shipped, name: str, count: int, small: bool) -> int:
    feeds = requests_of(model, count, small)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{model.name}.onnx"
        path.write_bytes(model.build(small))
        before = resident_bytes()
        opened = CONTENDERS[name](path, feeds[0], peers.THREADS)
        for feed in feeds:
            opened.call(feed)
    return resident_bytes() - before


# Reporting ----------------------------------------------------------------------------------------

HEADINGS = (
    "requests", "contender", "p50 ms", "p99 ms", "worst ms", "opened s", "background s", "MiB held",
)  # fmt: skip


def markdown(streams: Sequence[Stream]) -> str:
    """A table, a line for each contender of each stream."""
    lines = [f"| {' | '.join(HEADINGS)} |", "| --- | --- |" + " ---: |" * (len(HEADINGS) - 2)]
    for stream in streams:
        subject = f"{stream.name}: {stream.requests}, {stream.sizes} sizes"
        for name, each in stream.latencies.items():
            held = "–" if each.memory is None else f"{each.memory / 2**20:.0f}"
            times = [milliseconds(x) for x in (each.median, each.p99, each.worst)]
            cells = [subject, name, *times, f"{each.opened:.1f}", f"{each.background:.1f}", held]
            lines.append(f"| {' | '.join(cells)} |")
        lines += [f"| {subject} | {name} | {why} |||||||" for name, why in stream.failed.items()]
    return "\n".join(lines) + "\n"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shipped.stream")
    parser.add_argument("--only", nargs="+", default=[], choices=STREAMS, metavar="NAME")
    parser.add_argument("--contenders", nargs="+", default=list(STREAMED), choices=CONTENDERS)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--threads", type=int, default=peers.THREADS, help="of each contender")
    parser.add_argument("--small", action="store_true", help="the small forms, as tests use them")
    parser.add_argument("--memory-of", choices=CONTENDERS, help="print the bytes that it holds")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--markdown", type=Path, help="write the table here")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Stream, print and write."""
    options = _parser().parse_args(arguments)
    prepare_process(options.threads)
    names = options.only or list(STREAMS)
    models = [each for each in select() if each.name in names]
    if options.memory_of:
        print(_held(models[0], options.memory_of, options.requests, options.small))
        return 0
    streams = [_with_memory(each, options) for each in models]
    text = markdown(streams)
    Console(soft_wrap=True).print(text, highlight=False, markup=False)
    for path, content in (
        (options.markdown, text),
        (options.json, json.dumps([asdict(each) for each in streams], indent=1)),
    ):
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
    return 0


def _with_memory(model: Shipped, options: argparse.Namespace) -> Stream:
    found = run_stream(model, options.contenders, options.requests, options.small)
    for name, each in found.latencies.items():
        memory = memory_of(model, name, options.requests, options.small)
        found.latencies[name] = Latency(**{**asdict(each), "memory": memory})
    return found


if __name__ == "__main__":
    raise SystemExit(main())
