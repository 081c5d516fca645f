"""A comparison as a table of 80 columns."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from monograph.inspect.profile_text import duration
from monograph.program.arena import readable

if TYPE_CHECKING:
    from monograph.inspect.compare import Comparison, Contender

WIDTH = 80


def comparison_text(comparison: Comparison) -> str:
    """A row for everybody that ran, then those that did not, with the reason."""
    head = f"{'median':>9} {'× ours':>17} {'error':>8}  {'answer':<15} {'compile':>8} {'memory':>6}"
    lines = [comparison.model, f"{'':<11}{head}"]
    ran = [each for each in comparison.contenders if each.ran]
    lines += [_row(each) for each in ran]
    for each in ran:
        if each.remark:
            lines += _wrap(f"{each.name}: ", each.remark)
    for each in comparison.contenders:
        if not each.ran:
            lines += _wrap(f"{each.name:<11} ", f"did not run: {each.reason}")
    lines.append(
        f"{comparison.rounds} rounds by turns; × ours: median (95 %); errors against float64"
    )
    return "\n".join(lines)


def _row(each: Contender) -> str:
    assert each.median is not None and each.compile_seconds is not None
    error = "-" if each.error is None else f"{each.error:.1e}"
    memory = "-" if each.memory is None else readable(each.memory).split(".")[0]
    unit = "" if each.memory is None else readable(each.memory)[-3]
    return (
        f"{each.name:<11}{duration(each.median):>9} {each.times_ours!s:>17} {error:>8}  "
        f"{each.verdict:<15} {each.compile_seconds:>7.1f}s {memory:>5}{unit}"
    )


def _wrap(label: str, text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=label, subsequent_indent=" " * 12)
