"""Results for people: tables for a terminal of 100 columns, and the same as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from rich.table import Table

from benchmarks.measure import BUSY
from benchmarks.results import Outcome, Results, Row, compare, geometric_mean

FAST_ENOUGH = 0.85
# An error may be twice eager's; below the rounding of one f32 it is nobody's concern.
ACCURATE_ENOUGH, ROUNDING = 2.0, 1.2e-7


def milliseconds(seconds: float | None) -> str:
    """Three digits that matter."""
    if seconds is None:
        return "–"
    value = seconds * 1e3
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:.{digits}f}" if value >= 0.1 else f"{value:.4f}"


def _percent(share: float | None) -> str:
    return "in cache" if share is None else f"{share:.0%}"


def _times(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f}"


def _cells(results: Results, row: Row, name: str) -> list[str]:
    """A line of the summary."""
    comparison = compare(row, name)
    if comparison is None:
        rival = row.quickest([each for each in row.outcomes if each != name])
        other = row.outcomes[rival].median if rival else None
        return [row.name, "–", milliseconds(other), rival or "–", "–", "–", "–", "–"]
    return [
        row.name,
        milliseconds(comparison.ours.median),
        milliseconds(row.outcomes[comparison.rival].median),
        comparison.rival,
        _times(comparison.ratio),
        _times(comparison.ratio_of_best),
        _percent(comparison.share(results.machine.ceiling)),
        _times(comparison.error_beside_eager),
    ]


def _headings(name: str) -> list[str]:
    return ["workload", f"{name} ms", "best peer ms", "which", "×", "× best", "ceiling", "error"]


def summary(results: Results, name: str) -> Table:
    """One contender beside the best other one, a line a workload."""
    table = Table(
        title=f"{name} beside the best peer", title_justify="left", box=None, pad_edge=False
    )
    for column, heading in enumerate(_headings(name)):
        table.add_column(
            heading.replace(" ms", "\nms"),
            justify="left" if column in (0, 3) else "right",
            no_wrap=True,
        )
    for row in results.rows:
        comparison = compare(row, name)
        lost = comparison is not None and comparison.ratio < 1
        table.add_row(*_cells(results, row, name), style="red" if lost else None)
    return table


def detail(results: Results) -> Table:
    """The median of every contender, a line a workload."""
    names = contenders(results)
    table = Table(title="Median ms a call", title_justify="left", box=None, pad_edge=False)
    table.add_column("workload", no_wrap=True)
    for name in names:
        table.add_column(name.replace("max-autotune", "tuned"), justify="right", no_wrap=True)
    for row in results.rows:
        quickest = row.quickest(names)
        cells = [_time_cell(row.outcomes.get(name)) for name in names]
        marked = [
            f"[bold]{cell}[/bold]" if name == quickest else cell
            for name, cell in zip(names, cells, strict=True)
        ]
        table.add_row(row.name, *marked)
    return table


def _time_cell(outcome: Outcome | None) -> str:
    if outcome is None or outcome.median is None:
        return "–"
    return milliseconds(outcome.median) + ("" if outcome.counts else "!")


def contenders(results: Results) -> list[str]:
    """Every contender that a row names, in order."""
    names: dict[str, None] = {}
    for row in results.rows:
        names.update(dict.fromkeys(row.outcomes))
    return list(names)


def notes(results: Results, name: str) -> list[str]:
    """What the tables leave out: means, reasons, load and the ceiling."""
    lines = list(_verdict(results, name))
    if results.machine.clock != "wall":
        lines.append("Measured in processor time, one thread each: a rough guide, no benchmark.")
    rates = asdict(results.machine.ceiling).items()
    listed = ", ".join(f"{kind} {rate / 1e9:.1f}" for kind, rate in rates)
    lines.append(f"Streaming ceiling, GB/s with {results.machine.threads} threads: {listed}.")
    lines += [f"No time for {who}: {why}" for who, why in _reasons(results).items()]
    for row in results.rows:
        remarks = {who: each.remark for who, each in row.outcomes.items() if each.remark}
        lines += [f"{who} on {row.name}: {remark}." for who, remark in remarks.items()]
    busy = [row.name for row in results.rows if row.load.foreign > BUSY]
    worst = max((row.load.foreign for row in results.rows), default=0.0)
    lines.append(f"Other processes took up to {worst:.0%} of the processors.")
    if busy:
        lines.append(f"Measured on a busy machine (over {BUSY:.0%}): {', '.join(busy)}.")
    return lines


def _verdict(results: Results, name: str) -> list[str]:
    """How a contender fares: its mean, and what it should be ashamed of."""
    found = [each for row in results.rows if (each := compare(row, name)) is not None]
    if not found:
        return []
    mean = geometric_mean([each.ratio for each in found])
    mean_of_best = geometric_mean([each.ratio_of_best for each in found])
    lost = [f"{each.row.name} {each.ratio:.2f}" for each in found if each.ratio < 1]
    shares = {each.row.name: each.share(results.machine.ceiling) for each in found}
    slow = [f"{row} {share:.0%}" for row, share in shares.items() if share and share < FAST_ENOUGH]
    rough = [
        f"{each.row.name} {each.error_beside_eager:.1f}"
        for each in found
        if (each.error_beside_eager or 0) > ACCURATE_ENOUGH and (each.ours.error or 0) > ROUNDING
    ]
    lines = [
        f"Geometric mean over {len(found)} workloads: {mean:.2f} times the best peer by medians, "
        f"{mean_of_best:.2f} by best turns."
    ]
    lists = {
        f"Slower than the best peer on {len(lost)}": lost,
        f"Under {FAST_ENOUGH:.0%} of the ceiling on {len(slow)}": slow,
        f"More than {ACCURATE_ENOUGH:.0f} times eager's error on {len(rough)}": rough,
    }
    return lines + [f"{what}: {', '.join(which)}." for what, which in lists.items() if which]


def _reasons(results: Results) -> dict[str, str]:
    """Who could not do what and why, the workloads with the same reason together."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for row in results.rows:
        for name, outcome in row.outcomes.items():
            if outcome.reason:
                grouped.setdefault((name, outcome.reason), []).append(row.name)
    reasons: dict[str, str] = {}
    for (name, reason), rows in grouped.items():
        where = "any workload" if len(rows) == len(results.rows) else ", ".join(rows)
        reasons[f"{name} on {where}"] = reason
    return reasons


def markdown(results: Results, name: str) -> str:
    """Both tables and the notes as Markdown, losses included."""
    lines = [f"Processor: {results.machine.processor}, {results.machine.threads} threads."]
    lines += [", ".join(f"{what} {which}" for what, which in results.machine.versions.items()), ""]
    rows = [_cells(results, row, name) for row in results.rows]
    lines += _markdown_table(_headings(name), rows)
    names = contenders(results)
    body = [
        [row.name, *(_time_cell(row.outcomes.get(each)) for each in names)] for row in results.rows
    ]
    lines += ["", "Median ms a call:", "", *_markdown_table(["workload", *names], body), ""]
    lines += [f"- {line}" for line in notes(results, name)]
    forms = [f"- {who} is called as `{form}`." for who, form in results.machine.forms.items()]
    return "\n".join([*lines, *forms]) + "\n"


def _markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    rule = ["---"] + ["---:"] * (len(headings) - 1)
    return ["| " + " | ".join(cells) + " |" for cells in (headings, rule, *rows)]
