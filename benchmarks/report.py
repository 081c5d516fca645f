"""Results for people: tables for a terminal of 100 columns, and the same as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from rich.table import Table

from benchmarks.measure import BUSY
from benchmarks.results import Comparison, Outcome, Results, Row, compare, geometric_mean

FAST_ENOUGH = 0.85
# An error may be twice eager's; below the rounding of one f32 it is nobody's concern.
ACCURATE_ENOUGH, ROUNDING = 2.0, 1.2e-7
LIBRARIES = ("eager", "prepacked", "inductor", "max-autotune")
"""The contenders whose products are those of MKL and oneDNN."""


def milliseconds(seconds: float | None) -> str:
    """Three digits that matter."""
    if seconds is None:
        return "–"
    value = seconds * 1e3
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:.{digits}f}" if value >= 0.1 else f"{value:.4f}"


def times(ratio: float | None) -> str:
    """A ratio with two digits after its point."""
    return "–" if ratio is None else f"{ratio:.2f}"


def _percent(share: float | None) -> str:
    return "in cache" if share is None else f"{share:.0%}"


def _seconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds:.2f}" if seconds < 10 else f"{seconds:.0f}"


def cells(results: Results, row: Row, name: str) -> list[str]:
    """A line of the summary."""
    comparison = compare(row, name)
    ours = row.outcomes.get(name, Outcome())
    if comparison is None:
        rival = row.quickest([each for each in row.outcomes if each != name])
        other = row.outcomes[rival].median if rival else None
        failed = "failed" if ours.reason else "–"
        return [row.name, failed, milliseconds(other), rival or "–", *["–"] * 5]
    return [
        row.name,
        milliseconds(ours.median),
        milliseconds(row.outcomes[comparison.rival].median),
        comparison.rival,
        times(comparison.ratio),
        times(comparison.ratio_of_best),
        _percent(comparison.share(results.machine.ceiling)),
        f"{ours.error or 0.0:.1e}",
        times(comparison.error_beside_eager),
    ]


def headings(name: str) -> list[str]:
    """Those of the summary."""
    return [
        *("workload", f"{name} ms", "best peer ms", "which", "×", "× best", "floor"),
        *("error", "× eager's"),
    ]


def tables(results: Results, name: str) -> list[Table]:
    """A summary of each family, everybody's times, the seconds to compile, and bytes a second."""
    summaries = [summary(results.family(group), name) for group in results.families()]
    rows = bandwidths(results, name)
    return [*summaries, detail(results), compiling(results), *([bandwidth(rows)] if rows else [])]


def summary(results: Results, name: str) -> Table:
    """One contender beside the best other one, a line a workload."""
    groups = ", ".join(results.families())
    table = Table(
        title=f"{groups}: {name} beside the best peer",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    for column, heading in enumerate(headings(name)):
        table.add_column(
            heading.replace(" ms", "\nms").replace(" best", "\nbest").replace("best peer", "best"),
            justify="left" if column in (0, 3) else "right",
            no_wrap=True,
        )
    for row in results.rows:
        comparison = compare(row, name)
        lost = comparison is None or comparison.ratio < 1
        table.add_row(*cells(results, row, name), style="red" if lost else None)
    return table


def detail(results: Results) -> Table:
    """The median of every contender, a line a workload."""
    names = contenders(results)
    table = Table(title="Median ms a call", title_justify="left", box=None, pad_edge=False)
    table.add_column("workload", no_wrap=True)
    for name in names:
        table.add_column(_short(name), justify="right", no_wrap=True)
    for row in results.rows:
        quickest = row.quickest(names)
        shown = [time_cell(row.outcomes.get(name)) for name in names]
        marked = [
            f"[bold]{cell}[/bold]" if name == quickest else cell
            for name, cell in zip(names, shown, strict=True)
        ]
        table.add_row(row.name, *marked)
    return table


def compiling(results: Results) -> Table:
    """The seconds until every contender's first result, a line a workload."""
    names = [name for name in contenders(results) if name not in ("eager", "prepacked")]
    title = "Seconds to compile and run once"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("workload", no_wrap=True)
    for name in names:
        table.add_column(_short(name), justify="right", no_wrap=True)
    for row in results.rows:
        outcomes = (row.outcomes.get(name, Outcome()) for name in names)
        table.add_row(row.name, *(_seconds(each.prepared) for each in outcomes))
    return table


BANDWIDTH_HEADINGS = ("workload", "MiB", "ours", "best peer", "ceiling", "reached")
BANDWIDTH_TITLE = "GB/s where memory is the limit, by best turns"


def bandwidths(results: Results, name: str) -> list[list[str]]:
    """Bytes a second of each workload that memory limits, beside what this machine can stream.

    The ceiling is that of a stream with the same share of writes, measured in the same run, by the
    wall's clock: beside processor time it would say nothing.
    """
    if results.machine.clock != "wall":
        return []
    ceiling = results.machine.ceiling
    lines = []
    for row in results.rows:
        seconds = ceiling.seconds(row.read, row.written) if row.streams else 0.0
        found = compare(row, name)
        if found is None or not seconds or seconds < ceiling.floor(0, 0, row.flops):
            continue
        total, ours = row.read + row.written, found.ours.best or seconds
        rates = (total / ours, total / (ours * found.ratio_of_best), total / seconds)
        shown = (f"{rate / 1e9:.1f}" for rate in rates)
        lines.append([row.name, f"{total / 2**20:.0f}", *shown, f"{seconds / ours:.0%}"])
    return lines


def bandwidth(rows: Sequence[Sequence[str]]) -> Table:
    """The table of those."""
    table = Table(title=BANDWIDTH_TITLE, title_justify="left", box=None, pad_edge=False)
    for column, heading in enumerate(BANDWIDTH_HEADINGS):
        table.add_column(heading, justify="right" if column else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _short(name: str) -> str:
    return {"max-autotune": "tuned", "prepacked": "packed", "monograph": "ours"}.get(name, name)


def time_cell(outcome: Outcome | None) -> str:
    """The median; with a mark if the answer is wrong."""
    if outcome is None or outcome.median is None:
        return "failed" if outcome is not None and outcome.reason else "–"
    return milliseconds(outcome.median) + ("" if outcome.counts else "!")


def contenders(results: Results) -> list[str]:
    """Every contender that a row names, in order."""
    known = {name for row in results.rows for name in row.outcomes}
    names = dict.fromkeys(name for name in results.machine.forms if name in known)
    for row in results.rows:
        names.update(dict.fromkeys(row.outcomes))
    return list(names)


def notes(results: Results, name: str) -> list[str]:
    """What the tables leave out: means, reasons, load and the ceiling."""
    lines = []
    for group in results.families():
        lines += [f"{group}: {line}" for line in verdict(results.family(group), name)]
    if len(results.families()) > 1:
        lines += [f"All: {line}" for line in verdict(results, name)[:1]]
    if results.machine.clock != "wall":
        lines.append("Measured in processor time, one thread each: a rough guide, no benchmark.")
    lines.append(_rates(results))
    if results.unmeasured:
        lines.append(f"No time was left for {', '.join(results.unmeasured)}.")
    lines += [f"No figure for {who}: {why}" for who, why in reasons(results).items()]
    for row in results.rows:
        remarks = {who: each.remark for who, each in row.outcomes.items() if each.remark}
        lines += [f"{who} on {row.name}: {remark}." for who, remark in remarks.items()]
    busy = [row.name for row in results.rows if row.load.foreign > BUSY]
    worst = max((row.load.foreign for row in results.rows), default=0.0)
    lines.append(f"Other processes took up to {worst:.0%} of the processors.")
    if busy:
        lines.append(f"Measured on a busy machine (over {BUSY:.0%}): {', '.join(busy)}.")
    return lines


def _rates(results: Results) -> str:
    rates = asdict(results.machine.ceiling)
    flops = rates.pop("flops")
    listed = ", ".join(f"{kind} {rate / 1e9:.1f}" for kind, rate in rates.items())
    return (
        f"What {results.machine.threads} threads reach here: {listed} GB/s, "
        f"{flops / 1e9:.0f} GFLOP/s."
    )


def verdict(results: Results, name: str) -> list[str]:
    """How a contender fares: its mean and its worst, and what it should be ashamed of."""
    found = [each for row in results.rows if (each := compare(row, name)) is not None]
    if not found:
        return []
    lines = [f"{_mean(found)} the best peer."]
    if results.families() == ["matmul"]:
        beside = [each for row in results.rows if (each := compare(row, name, LIBRARIES))]
        lines += [f"{_mean(beside)} the best of MKL and oneDNN."] if beside else []
    lost = [f"{each.row.name} {each.ratio:.2f}" for each in found if each.ratio < 1]
    shares = {each.row.name: each.share(results.machine.ceiling) for each in found}
    slow = [f"{row} {share:.0%}" for row, share in shares.items() if share and share < FAST_ENOUGH]
    rough = [
        f"{each.row.name} {each.error_beside_eager:.1f}"
        for each in found
        if (each.error_beside_eager or 0) > ACCURATE_ENOUGH and (each.ours.error or 0) > ROUNDING
    ]
    lists = {
        f"Slower than the best peer on {len(lost)}": lost,
        f"Under {FAST_ENOUGH:.0%} of the floor's speed on {len(slow)}": slow,
        f"More than {ACCURATE_ENOUGH:.0f} times eager's error on {len(rough)}": rough,
    }
    return lines + [f"{what}: {', '.join(which)}." for what, which in lists.items() if which]


def _mean(found: Sequence[Comparison]) -> str:
    mean = geometric_mean([each.ratio for each in found])
    mean_of_best = geometric_mean([each.ratio_of_best for each in found])
    least = min(found, key=lambda each: each.ratio)
    return (
        f"Geometric mean over {len(found)} workloads {mean:.2f} by medians and {mean_of_best:.2f} "
        f"by best turns, least {least.ratio:.2f} ({least.row.name}), times"
    )


def reasons(results: Results) -> dict[str, str]:
    """Who could not do what and why, the workloads with the same reason together."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for row in results.rows:
        for name, outcome in row.outcomes.items():
            if outcome.reason:
                grouped.setdefault((name, outcome.reason), []).append(row.name)
    found: dict[str, str] = {}
    for (name, reason), rows in grouped.items():
        where = "any workload" if len(rows) == len(results.rows) else ", ".join(rows)
        found[f"{name} on {where}"] = reason
    return found


def markdown(results: Results, name: str) -> str:
    """All tables and the notes as Markdown, losses included."""
    machine = results.machine
    lines = [f"Processor: {machine.processor}, {machine.threads} threads."]
    lines += [", ".join(f"{what} {which}" for what, which in machine.versions.items()), ""]
    for group in results.families():
        family = results.family(group)
        rows = [cells(family, row, name) for row in family.rows]
        lines += [f"### {group}", "", *markdown_table(headings(name), rows), ""]
    names = contenders(results)
    body = [
        [row.name, *(time_cell(row.outcomes.get(each)) for each in names)] for row in results.rows
    ]
    lines += ["Median ms a call:", "", *markdown_table(["workload", *names], body), ""]
    body = [
        [row.name, *(_seconds(row.outcomes.get(each, Outcome()).prepared) for each in names)]
        for row in results.rows
    ]
    title = "Seconds to compile and run once:"
    lines += [title, "", *markdown_table(["workload", *names], body), ""]
    body = bandwidths(results, name)
    if body:
        lines += [f"{BANDWIDTH_TITLE}:", "", *markdown_table(BANDWIDTH_HEADINGS, body), ""]
    lines += [f"- {line}" for line in notes(results, name)]
    forms = [f"- {who} is called as `{form}`." for who, form in machine.forms.items()]
    return "\n".join([*lines, *forms]) + "\n"


def markdown_table(table_headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table whose first column is text and whose others are numbers."""
    rule = ["---"] + ["---:"] * (len(table_headings) - 1)
    return ["| " + " | ".join(line) + " |" for line in (table_headings, rule, *rows)]
