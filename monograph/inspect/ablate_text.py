"""An ablation as a table of 80 columns, and as a chart (SVG)."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from monograph.inspect.profile_text import duration
from monograph.program.arena import readable

if TYPE_CHECKING:
    from monograph.inspect.ablate import Ablation, Costs, Effect

NO_EFFECT = "no measurable effect"
HEAD = (
    f"{'':<24}{'× slower (95 %)':>21}{'kernels':>8}{'moved':>6}{'alive':>6}"
    f"{'compile':>8}{'error':>7}"
)


def ablation_text(ablation: Ablation) -> str:
    """The page: what each part buys, the most first, and what does nothing."""
    lines = [
        ablation.model,
        f"  {duration(ablation.seconds)} a call, {_launches(ablation.costs)}, "
        f"{readable(ablation.costs.bytes_moved)} moved,",
        f"  {readable(ablation.costs.peak)} alive, compiled in "
        f"{duration(ablation.costs.compile_seconds)}",
    ]
    if ablation.whole is not None:
        lines.append(f"  {ablation.whole} times as fast as with every part left out")
    lines += ["", "left out", HEAD.rstrip(), _row("nothing", "1", ablation.costs)]
    lines += _rows(ablation.without)
    if ablation.alone:
        lines += ["", "alone", HEAD.replace("slower", "faster").rstrip()]
        lines += _rows(ablation.alone)
    elif ablation.remark:
        lines += ["", f"each part alone: {ablation.remark}"]
    lines += ["", *_whole(ablation)]
    if ablation.needed is not None:
        lines.append(f"all of it takes about --budget {math.ceil(ablation.needed / 10) * 10}")
    return "\n".join(lines)


def _launches(costs: Costs) -> str:
    return "1 launch" if costs.kernels == 1 else f"{costs.kernels:,} launches"


def _whole(ablation: Ablation) -> list[str]:
    """How much of the whole the single parts explain."""
    without, alone = ablation.explained(ablation.without), ablation.explained(ablation.alone)
    if without is None and alone is None:
        return ["how much single parts explain was not measured"]
    lines = ["of the whole, as logarithms of ratios add up, single parts explain"]
    if without is not None:
        lines.append(f"  {without:.0%} by what is lost without each")
    if alone is not None:
        lines.append(f"  {alone:.0%} by what each gains alone")
    return lines


def _rows(effects: Sequence[Effect]) -> list[str]:
    """Those that count, the largest first; then those that do not, by their reason."""
    counted = [each for each in effects if each.counts]
    ranked = sorted(counted, key=lambda each: -abs(math.log(each.median)))
    lines = [_row(each.part.name, str(each.speedup), each.costs) for each in ranked]
    quiet = [each for each in effects if each.speedup is not None and not each.counts]
    lines += [_row(each.part.name, NO_EFFECT, each.costs) for each in quiet]
    reasons: dict[str, list[str]] = {}
    for each in effects:
        if each.speedup is None:
            reasons.setdefault(each.reason or each.state.value, []).append(each.part.name)
    for reason, names in reasons.items():
        lines += _list_names(f"  {reason}: ", names)
    return lines


def _row(name: str, text: str, costs: Costs | None) -> str:
    line = f"  {name:<22}{text:>21}"
    if costs is None:
        return line
    error = "-" if costs.error is None else f"{costs.error:.0e}"
    moved, alive = _short(costs.bytes_moved), _short(costs.peak)
    compiled = f"{costs.compile_seconds:.3g}s"
    return f"{line}{costs.kernels:>8,}{moved:>6}{alive:>6}{compiled:>8}{error:>7}"


def _short(nbytes: int) -> str:
    """``6.9M``: bytes in five characters."""
    value, unit = float(nbytes), ""
    for larger in "KMGT":
        if value < 999.5:
            break
        value, unit = value / 1024, larger
    return f"{value:.3g}{unit}" if value >= 1 else f"{value:.2g}{unit}"


def _list_names(label: str, names: Sequence[str]) -> list[str]:
    lines, line = [], label
    for number, name in enumerate(names):
        word = name + ("," if number + 1 < len(names) else "")
        if len(line) + len(word) > 79:
            lines.append(line.rstrip())
            line = "    "
        line += word + " "
    return [*lines, line.rstrip()]


# The chart ----------------------------------------------------------------------------------------

ROW_HEIGHT, LEFT_WIDTH, CHART_WIDTH, RIGHT_WIDTH = 22, 190, 420, 130


def ablation_svg(ablation: Ablation) -> str:
    """Bars from 1: how many times as slow without each part; a line spans the interval of 95 %."""
    measured = [each for each in ablation.without if each.speedup is not None]
    ranked = sorted(measured, key=lambda each: -each.median)
    spreads = [each.speedup for each in ranked if each.speedup is not None]
    low = min([0.95, *(each.low for each in spreads)])
    high = max([1.05, *(each.high for each in spreads)])
    span = math.log(high / low)

    def x(value: float) -> float:
        return LEFT_WIDTH + CHART_WIDTH * math.log(max(value, low) / low) / span

    height = ROW_HEIGHT * (len(ranked) + 2)
    title = html.escape(f"{ablation.model}: times as slow without each part")
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT_WIDTH + CHART_WIDTH + RIGHT_WIDTH}" '
        f'height="{height}" font-family="sans-serif" font-size="12" role="img">',
        f"<title>{title}</title>",
        "<style>text{fill:#222}.bar{fill:#4878a8}.noise{fill:#bbb}line{stroke:#222}"
        "@media(prefers-color-scheme:dark){text{fill:#ddd}line{stroke:#ddd}}</style>",
        f'<text x="4" y="15" font-weight="bold">{title}</text>',
    ]
    for number, (each, spread) in enumerate(zip(ranked, spreads, strict=True)):
        top = ROW_HEIGHT * (number + 1) + 4
        begin, end = sorted((x(1.0), x(spread.median)))
        style = "bar" if each.counts else "noise"
        middle = top + ROW_HEIGHT / 2 - 3
        said = str(spread) if each.counts else NO_EFFECT
        lines += [
            f'<text x="{LEFT_WIDTH - 8}" y="{middle + 4}" text-anchor="end">'
            f"{html.escape(each.part.name)}</text>",
            f'<rect class="{style}" x="{begin:.1f}" y="{top}" width="{max(end - begin, 1):.1f}" '
            f'height="{ROW_HEIGHT - 6}"/>',
            f'<line x1="{x(spread.low):.1f}" x2="{x(spread.high):.1f}" y1="{middle}" '
            f'y2="{middle}"/>',
            f'<text x="{LEFT_WIDTH + CHART_WIDTH + 6}" y="{middle + 4}">{html.escape(said)}</text>',
        ]
    lines.append(
        f'<line x1="{x(1.0):.1f}" x2="{x(1.0):.1f}" y1="{ROW_HEIGHT}" y2="{height - 8}" '
        'stroke-dasharray="3 3"/>'
    )
    return "\n".join([*lines, "</svg>", ""])
