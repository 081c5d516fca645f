"""The README's table, from the results of runs: ``python -m benchmarks.readme RESULTS.json``.

What stands between two marks in the README is replaced by what the files say: how each family
fares, every whole model with every contender, all losses by name, and, with ``--compile-time``, the
seconds to compile and the memory. Nothing is written by hand, and nothing is left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import compile_time, peers, report
from benchmarks.compile_time import Compiled, mebibytes
from benchmarks.results import Comparison, Outcome, Results, compare, geometric_mean

BEGIN = "<!-- benchmarks: begin (written by make bench-readme) -->"
END = "<!-- benchmarks: end -->"
FEW_NAMES = 6
"""How many workloads are named where only some were measured."""
ROOT = Path(__file__).parents[1]
TITLES = {
    "matmul": "matrix products",
    "convolution": "convolutions",
    "attention": "attention",
    "models": "whole models",
    "others": "models of other kinds",
    "pointwise": "element by element",
    "layout": "transposes and strides",
    "rows": "softmax, norms and losses",
    "sums": "sums",
}


def section(results: Results, compiled: Sequence[Compiled] = ()) -> str:
    """All that stands between the marks."""
    machine = results.machine
    lines = [
        f"Measured on {machine.description or machine.processor}, in f32 unless a name says",
        "otherwise, each contender with as many threads, by turns in one process. × is the time of",
        "the *best* peer over ours, by medians: more than 1 is a win.",
        "",
        *_families(results),
    ]
    models = results.family("models")
    if models.rows:
        lines += ["", "Milliseconds a call of whole models with random weights:", ""]
        lines += _models(models)
    if compiled:
        lines += ["", *_compiling(compiled)]
    return "\n".join([*lines, "", *_beside(results), *_losses(results)])


def _comparisons(results: Results) -> list[Comparison]:
    return [each for row in results.rows if (each := compare(row, peers.OURS)) is not None]


def _families(results: Results) -> list[str]:
    """A line a family: its mean, its worst, and how many it lost."""
    body = []
    for group in results.families():
        family = results.family(group)
        found = _comparisons(family)
        if not found:
            body.append([TITLES.get(group, group), str(len(family.rows)), *["–"] * 4])
            continue
        ratios = [each.ratio for each in found]
        errors = [each.error_beside_eager for each in found if each.error_beside_eager is not None]
        body.append(
            [
                TITLES.get(group, group),
                str(len(family.rows)),
                report.times(geometric_mean(ratios)),
                report.times(min(ratios)),
                str(len(family.rows) - sum(ratio >= 1 for ratio in ratios)),
                report.times(max(errors, default=None)),
            ]
        )
    headings = ["", "workloads", "× mean", "× least", "not faster on", "error, at most × eager's"]
    return report.markdown_table(headings, body)


def _beside(results: Results) -> list[str]:
    """Which peers each family was measured beside, and on how many workloads if not on all."""
    lines = []
    for group in results.families():
        rows = results.family(group).rows
        names = []
        for name in report.contenders(results.family(group)):
            outcomes = [row.outcomes.get(name) for row in rows]
            timed = sum(each is not None and each.median is not None for each in outcomes)
            if name != peers.OURS and timed:
                names.append(name if timed == len(rows) else f"{name} (on {timed} of them)")
        lines.append(f"- {TITLES.get(group, group).capitalize()} beside {', '.join(names)}.")
    return lines


def _models(results: Results) -> list[str]:
    names = [name for name in report.contenders(results) if name != peers.OURS]
    body = []
    for row in results.rows:
        comparison = compare(row, peers.OURS)
        ratio = comparison.ratio if comparison else None
        error = comparison.error_beside_eager if comparison else None
        outcomes = [row.outcomes.get(name) for name in (peers.OURS, *names)]
        quickest = min((each.median for each in outcomes if each and each.median), default=None)
        body.append(
            [
                row.name,
                *(_marked(each, quickest) for each in outcomes),
                report.times(ratio),
                report.times(error),
            ]
        )
    return report.markdown_table(["", peers.OURS, *names, "×", "error × eager's"], body)


def _marked(outcome: Outcome | None, quickest: float | None) -> str:
    """A time, in bold if it is the quickest of its row."""
    cell = report.time_cell(outcome)
    won = outcome is not None and outcome.median is not None and outcome.median == quickest
    return f"**{cell}**" if won else cell


def _compiling(compiled: Sequence[Compiled]) -> list[str]:
    """Seconds and memory beside Inductor's and the thriftiest peer's."""
    body = []
    for workload in dict.fromkeys(each.workload for each in compiled):
        by_peer = {each.peer: each for each in compiled if each.workload == workload}
        none = Compiled(workload, "")
        ours, inductor = by_peer.get(peers.OURS, none), by_peer.get("inductor", none)
        others = [each for peer, each in by_peer.items() if peer != peers.OURS]
        body.append(
            [
                workload,
                *(_seconds(value) for value in (ours.cold, ours.warm)),
                *(_seconds(value) for value in (inductor.cold, inductor.warm)),
                mebibytes(ours.compiling),
                _least({each.peer: each.compiling for each in others}),
                mebibytes(ours.running),
                _least({each.peer: each.running for each in others}),
            ]
        )
    title = (
        "Seconds from a module to its first result, with empty caches and with warm ones, and MiB "
        "held at most while it is compiled, and while it runs:"
    )
    headings = [
        *("", "cold", "warm", "Inductor, cold", "Inductor, warm"),
        *("compiling", "least of any peer", "running", "least of any peer"),
    ]
    return [title, "", *report.markdown_table(headings, body)]


def _least(held: Mapping[str, int | None]) -> str:
    """The least memory that any peer takes, and which one that is."""
    known = {peer: taken for peer, taken in held.items() if taken is not None}
    if not known:
        return "–"
    least = min(known, key=lambda peer: known[peer])
    return f"{mebibytes(known[least])} ({least})"


def _seconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds:.1f}"


def _losses(results: Results) -> list[str]:
    """Every workload that is not faster than the best peer, by name, and those without figures."""
    lines = []
    for group in results.families():
        lost = [
            f"{each.row.name} {each.ratio:.2f}"
            for each in _comparisons(results.family(group))
            if each.ratio < 1
        ]
        if lost:
            lines.append(
                f"- Slower than the best peer, {TITLES.get(group, group)}: {', '.join(lost)}."
            )
    known = {each.row.name for each in _comparisons(results)}
    failed = [row.name for row in results.rows if row.name not in known]
    if failed:
        lines.append(f"- No comparison: {', '.join(failed)}.")
    if results.unmeasured:
        lines.append(f"- Not measured: {_listed(results.unmeasured)}.")
    versions = ", ".join(f"{what} {which}" for what, which in results.machine.versions.items())
    return [*lines, f"- Versions: {versions}."]


def _listed(names: Sequence[str]) -> str:
    """Names, or their number if there are many."""
    if len(names) <= FEW_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[:FEW_NAMES])} and {len(names) - FEW_NAMES} others"


def replaced(page: str, text: str) -> str:
    """A page with other text between its marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"the page has no place for the table: {BEGIN} … {END}")
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the table into the README, or print it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.readme",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("results", type=Path, nargs="+", help="what benchmarks.native wrote")
    parser.add_argument("--compile-time", type=Path, help="what benchmarks.compile_time wrote")
    parser.add_argument("--page", type=Path, default=ROOT / "README.md")
    parser.add_argument("--print", action="store_true", help="print the table, and change nothing")
    options = parser.parse_args(arguments)
    first, *others = (Results.load(path) for path in options.results)
    for each in others:
        first = first.updated(each)
    present = options.compile_time is not None and options.compile_time.exists()
    text = section(first, compile_time.load(options.compile_time) if present else ())
    if options.print:
        print(text)
        return 0
    options.page.write_text(replaced(options.page.read_text(), text))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
