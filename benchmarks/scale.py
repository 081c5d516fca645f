"""How the compiler's own stages grow with the size of the graph: ``python -m benchmarks.scale``.

Every stage must be linear, or nearly so. A graph of each size is built from a mix of ops with
shared subexpressions and dead code; the slope of seconds over nodes on logarithmic axes, the
*growth*, is 1 for a linear stage and 2 for a quadratic one. The exit code is 1 if a stage grows
faster than ``MAX_GROWTH`` or CSE and DCE of the largest graph take longer than ``MAX_SECONDS``.
"""

from __future__ import annotations

import argparse
import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from rich.console import Console
from rich.table import Table

from monograph import functional as F
from monograph.autodiff.vjp import grad
from monograph.ir.graph import Graph, Value
from monograph.ir.text.parser import parse
from monograph.ir.text.printer import print_graph
from monograph.ir.verify import verify
from monograph.passes.base import make_pass

SIZES = (1_000, 10_000, 100_000)
MAX_GROWTH = 1.25
MAX_SECONDS = 5.0
PASSES = (
    *("cse", "dce", "fold_constants", "canonicalize", "simplify"),
    *("recognize", "fold_conv_bn", "lower_composites"),
)


@dataclass
class Row:
    """One stage: its seconds at each size."""

    stage: str
    seconds: list[float] = field(default_factory=list)

    def growth(self, sizes: Sequence[int]) -> float:
        """The slope of log seconds over log nodes, by least squares."""
        if len(sizes) < 2:
            return math.nan
        return statistics.linear_regression(
            [math.log(size) for size in sizes], [math.log(seconds) for seconds in self.seconds]
        ).slope


def build(size: int) -> Graph:
    """About ``size`` nodes: a quarter computed twice, a tenth unused, some of them composites."""
    graph = Graph("scale")
    x, y = graph.add_input("x", "f32[8, 16]"), graph.add_input("y", "f32[16]")
    live: list[Value] = [x, y]
    with graph.as_current():
        turn = 0
        while len(graph) < size:
            a, b = live[-1], live[-1 - turn * 7 % min(len(live), 50)]
            live.append(_combine(turn, a, b))
            turn += 1
    graph.set_outputs([live[-1]])
    return graph


def _combine(turn: int, a: Value, b: Value) -> Value:
    """One step: a few nodes that read two earlier values."""
    kind = turn % 10
    if kind < 4:
        return F.tanh(a * b) + F.tanh(a * b)
    if kind == 4:
        F.exp(a - b)  # nobody reads it
        return a + 0.5
    if kind == 5:
        return F.transpose(F.transpose(F.maximum(a, b)))
    if kind == 6:
        return F.silu(a) * 1.0
    if kind == 7:
        return F.where(a > b, a, F.sin(b))
    return F.relu(a - b) + b


def chain(size: int) -> Graph:
    """A chain of ``size`` differentiable nodes that ends in one number."""
    graph = Graph("chain")
    x = graph.add_input("x", "f32[8]")
    value = x
    while len(graph) < size:
        value = F.tanh(value * x)
    graph.set_outputs([F.sum(value)])
    return graph


def stages(size: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """What is measured at one size, by name; each is prepared when its turn comes."""
    graph = build(size)
    text = print_graph(graph)
    yield "build", lambda: build(size)
    yield "verify", lambda: verify(graph)
    yield "print", lambda: print_graph(graph)
    yield "parse", lambda: parse(text)
    yield "clone", graph.clone
    yield "grad", partial(grad, chain(size // 4))
    for name in PASSES:
        yield name, partial(make_pass(name).run, graph.clone())


def measure(sizes: Sequence[int]) -> list[Row]:
    """Seconds of every stage at every size."""
    rows: dict[str, Row] = {}
    for size in sizes:
        for name, call in stages(size):
            rows.setdefault(name, Row(name)).seconds.append(seconds_of(call))
    return list(rows.values())


def seconds_of(call: Callable[[], object]) -> float:
    """The processor time of one call, without the garbage collector's.

    All stages run in one thread, and what else the machine does should not count.
    """
    gc.collect()
    gc.disable()
    try:
        start = time.process_time()
        call()
        return time.process_time() - start
    finally:
        gc.enable()


def failures(rows: Sequence[Row], sizes: Sequence[int]) -> list[str]:
    """What is too slow, in words."""
    found = [
        f"{row.stage} grows as nodes^{row.growth(sizes):.2f}, more than {MAX_GROWTH}"
        for row in rows
        if row.growth(sizes) > MAX_GROWTH
    ]
    both = sum(row.seconds[-1] for row in rows if row.stage in ("cse", "dce"))
    if sizes[-1] >= SIZES[-1] and both > MAX_SECONDS:
        found.append(f"cse and dce take {both:.1f} s, more than {MAX_SECONDS}")
    return found


def table(rows: Sequence[Row], sizes: Sequence[int]) -> Table:
    """The figures as a table."""
    result = Table(title="Seconds by number of nodes", title_justify="left")
    result.add_column("stage")
    for size in sizes:
        result.add_column(f"{size:,}", justify="right")
    result.add_column("µs a node", justify="right")
    result.add_column("growth", justify="right")
    for row in rows:
        cells = [f"{seconds:.4f}" for seconds in row.seconds]
        each = f"{row.seconds[-1] / sizes[-1] * 1e6:.1f}"
        result.add_row(row.stage, *cells, each, f"{row.growth(sizes):.2f}")
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say by the exit code whether all is well."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="numbers of nodes")
    sizes = sorted(int(text) for text in parser.parse_args(arguments).sizes.split(","))
    rows = measure(sizes)
    console = Console()
    console.print(table(rows, sizes))
    problems = failures(rows, sizes)
    for problem in problems:
        console.print(f"[red]{problem}[/red]")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
