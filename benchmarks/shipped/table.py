"""The figures of shipped models as a table in Markdown, with what became of the targets."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.report import milliseconds, times
from benchmarks.shipped.trial import Outcome, Row

HEADINGS = (
    "model", "written by", "as shipped ms", "fixed ms", "onnxruntime ms", "openvino ms",
    "× best peer", "shipped / fixed", "error", "ONNX Runtime's", "compile s", "first call ms",
)  # fmt: skip
BEYOND_FIXED = 1.10
"""How much slower than with fixed sizes a call may be."""


def markdown(rows: Sequence[Row], clock: str, threads: int) -> str:
    """All of it."""
    lines = [
        f"Shipped ONNX models, best of several rounds by turns, {threads} thread(s), {clock} time. "
        "× is the best peer's time over ours as shipped: more than 1 is a win.",
        "",
        _line(HEADINGS),
        _line(["---", "---", *["---:"] * (len(HEADINGS) - 2)]),
        *(_line(cells(row)) for row in rows),
        "",
        *notes(rows),
    ]
    return "\n".join(lines) + "\n"


def cells(row: Row) -> list[str]:
    """A line of the table."""
    shipped = row.outcomes.get("shipped", Outcome())
    ort = row.outcomes.get("onnxruntime", Outcome())
    return [
        row.name,
        row.exporter,
        *(_time(row.outcomes.get(n)) for n in ("shipped", "fixed", "onnxruntime", "openvino")),
        times(row.ratio(row.best_peer(), "shipped")),
        times(row.ratio("shipped", "fixed")),
        _error(shipped.error),
        _error(ort.error) if row.against == "double precision" else "taken as right",
        "–" if shipped.opened is None else f"{shipped.opened:.1f}",
        milliseconds(shipped.first),
    ]


def notes(rows: Sequence[Row]) -> list[str]:
    """Which targets were missed, and what else there is to say of a contender."""
    lines = []
    slower = [row.name for row in rows if (row.ratio(row.best_peer(), "shipped") or 1) < 1]
    lines.append(f"- Slower than the better peer: {', '.join(slower) or 'none'}.")
    far = [row.name for row in rows if (row.ratio("shipped", "fixed") or 0) > BEYOND_FIXED]
    lines.append(f"- More than 10 % slower than with fixed sizes: {', '.join(far) or 'none'}.")
    for row in rows:
        for name, outcome in row.outcomes.items():
            lines += [f"- {row.name}, {name}: {text}" for text in _texts(outcome)]
    return lines


def _texts(outcome: Outcome) -> list[str]:
    return [text for text in (outcome.reason, outcome.remark) if text]


def _time(outcome: Outcome | None) -> str:
    if outcome is None:
        return "–"
    if outcome.best is None:
        return "failed"
    return milliseconds(outcome.best) + ("" if outcome.counts else " (wrong)")


def _error(error: float | None) -> str:
    return "–" if error is None else f"{error:.1e}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
