"""The README's table, from the results of runs: ``python -m benchmarks.readme RESULTS.json``.

What stands between two marks in the README is replaced by what the files say: how each family
fares, every whole model with every contender, all losses by name, and the seconds to compile and
the memory (``--compile-time``). Nothing is written by hand, and nothing is left out: results with a
gap in them (a peer, a row, another commit: ``benchmarks.gate``) are refused.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks import compile_time, peers, report
from benchmarks.compile_time import Compiled, mebibytes
from benchmarks.gate import find_gaps
from benchmarks.results import Comparison, Machine, Outcome, Results, compare, geometric_mean

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
        f"Measured on {_name_machine(machine)}, in f32 unless a name says",
        "otherwise, each contender with as many threads, by turns in one process. × is the time of",
        "the *best* peer over ours, by medians, and by the best turns of both: more than 1 is a",
        "win. Weights are constants for everybody, and freed memory is used again by everybody.",
        "",
        *_families(results),
    ]
    models = results.family("models")
    if models.rows:
        title = "Milliseconds a call of whole models with random weights, median (best turn):"
        lines += ["", title, ""]
        lines += _models(models)
    if compiled:
        lines += ["", *_compiling(compiled)]
    return "\n".join([*lines, "", *_beside(results), *_losses(results)])


def _name_machine(machine: Machine) -> str:
    """The processor, and what a program can see of it."""
    return ", ".join(dict.fromkeys(filter(None, (machine.processor, machine.description))))


def _comparisons(results: Results) -> list[Comparison]:
    return [each for row in results.rows if (each := compare(row, peers.OURS)) is not None]


def _families(results: Results) -> list[str]:
    """A line a family: its mean, its worst, and how many it lost."""
    body = []
    for group in results.families():
        family = results.family(group)
        found = _comparisons(family)
        if not found:
            body.append([TITLES.get(group, group), str(len(family.rows)), *["–"] * 6])
            continue
        ratios = [each.ratio for each in found]
        best_turns = [each.ratio_of_best for each in found]
        errors = [each.error_beside_eager for each in found if each.error_beside_eager is not None]
        body.append(
            [
                TITLES.get(group, group),
                str(len(family.rows)),
                report.times(geometric_mean(ratios)),
                report.times(min(ratios)),
                report.times(geometric_mean(best_turns)),
                report.times(min(best_turns)),
                str(len(family.rows) - sum(ratio >= 1 for ratio in ratios)),
                report.times(max(errors, default=None)),
            ]
        )
    headings = [
        *("", "workloads", "× mean", "× least", "× mean, best turns", "× least, best turns"),
        *("not faster on", "error, at most × eager's"),
    ]
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
    """A median and the best turn, in bold if that median is the quickest of its row."""
    cell = report.time_cell(outcome)
    if outcome is not None and outcome.counts:
        cell = f"{cell} ({report.milliseconds(outcome.best)})"
    won = outcome is not None and outcome.median is not None and outcome.median == quickest
    return f"**{cell}**" if won else cell


def _compiling(compiled: Sequence[Compiled]) -> list[str]:
    """Seconds to the first result, and memory, of everybody who compiles."""
    names = list(dict.fromkeys(each.peer for each in compiled))
    tables: list[str] = []
    for title, cell in (
        ("Seconds from a module to its first result, with empty caches / with warm ones", _times),
        ("MiB held at most beyond the imports, while it is compiled / while it runs", _memory),
    ):
        body = []
        for workload in dict.fromkeys(each.workload for each in compiled):
            by_peer = {each.peer: each for each in compiled if each.workload == workload}
            body.append([workload, *(cell(by_peer.get(name)) for name in names)])
        tables += [f"{title}:", "", *report.markdown_table(["", *names], body), ""]
    return tables[:-1]


def _times(compiled: Compiled | None) -> str:
    """Cold and warm seconds, or that there are none."""
    if compiled is None or compiled.cold is None:
        return _without_figure(compiled)
    return f"{_seconds(compiled.cold)} / {_seconds(compiled.warm)}"


def _memory(compiled: Compiled | None) -> str:
    """The peaks of memory, or that there are none."""
    if compiled is None or compiled.compiling is None:
        return _without_figure(compiled)
    return f"{mebibytes(compiled.compiling)} / {mebibytes(compiled.running)}"


def _without_figure(compiled: Compiled | None) -> str:
    """What stands for a contender that failed, and for one that was not asked."""
    return "–" if compiled is None or compiled.absent else "failed"


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
    parser.add_argument(
        "--print", action="store_true", help="print the table, gaps or not, and change nothing"
    )
    options = parser.parse_args(arguments)
    first, *others = (Results.load(path) for path in options.results)
    for each in others:
        first = first.updated(each)
    present = options.compile_time is not None and options.compile_time.exists()
    compiled = compile_time.load(options.compile_time) if present else []
    text = section(first, compiled)
    if options.print:
        print(text)
        return 0
    gaps = find_gaps(first, compiled)
    if gaps:
        print("The README stays as it is; these results have gaps:")
        print("\n".join(f"- {gap}" for gap in gaps))
        return 1
    options.page.write_text(replaced(options.page.read_text(), text))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
