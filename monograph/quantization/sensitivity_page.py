"""The sensitivity report as one HTML file: each layer's error, time and histograms, and a verdict.

Nothing is fetched when it is opened: bars are drawn as SVG.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import TYPE_CHECKING

from monograph.quantization.distribution import Distribution
from monograph.quantization.report import LayerReport, QuantizationReport

if TYPE_CHECKING:
    from monograph.quantization.sensitivity import LayerSensitivity, SensitivityReport

WIDTH, HEIGHT = 192, 44
"""Pixels of a histogram."""
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem;
       color: #1d2733; background: #fff; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .4rem .8rem; border-bottom: 1px solid #dbe1e8;
         vertical-align: top; }
td.figure { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
small { color: #55606d; display: block; }
svg { display: block; }
.bar { fill: #0072b2; } .beyond { fill: #d55e00; } .stored { fill: #e8f2f9; }
.error { fill: #d55e00; }
@media (prefers-color-scheme: dark) {
  body { color: #e4e9ee; background: #14191f; } th, td { border-color: #333d48; }
  small { color: #9aa6b2; } .stored { fill: #22384a; } .bar { fill: #4aa3d8; } }
"""


def write_page(report: SensitivityReport, made: QuantizationReport | None = None) -> str:
    """The page; with the report of a model that was made, also what became of each layer."""
    verdicts = {} if made is None else {each.name: each for each in made.layers}
    layers = sorted(report.layers, key=lambda layer: -layer.error)
    largest = max((each.error for each in layers), default=0.0)
    rows = "\n".join(_row(each, largest, verdicts) for each in layers)
    head = ["layer", "error alone", "ms alone", "what is quantized", "precision, and why"]
    columns = "".join(f"<th>{each}</th>" for each in head)
    summary = (
        f"All layers quantized: error {report.quantized_error:.2e}, "
        f"{report.quantized_seconds * 1e3:.3f} ms; none: {report.float_seconds * 1e3:.3f} ms."
    )
    whole = "" if made is None else f"<pre>{html.escape(str(made))}</pre>"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>Sensitivity to quantization</title><style>{STYLE}</style></head><body>\n"
        f"<h1>Sensitivity to quantization</h1>\n<p>{summary} Errors are ‖got − float‖ / ‖float‖ "
        "with one layer quantized. Bars are logarithms of counts; the shaded range is stored, and "
        f"numbers beyond it saturate.</p>\n{whole}\n"
        f"<table><thead><tr>{columns}</tr></thead><tbody>\n{rows}\n</tbody></table>\n"
        "</body></html>\n"
    )


def _row(layer: LayerSensitivity, largest: float, verdicts: Mapping[str, LayerReport]) -> str:
    verdict = verdicts.get(layer.name)
    said = layer.reason
    if verdict is not None:
        said = f"{verdict.precision}: {verdict.reason}" if verdict.reason else verdict.precision
    share = layer.error / largest if largest else 0.0
    bar = f'<rect class="error" width="{WIDTH / 2 * share:.1f}" height="6"/>'
    bar = f'<svg width="{WIDTH // 2}" height="6">{bar}</svg>'
    drawings = "".join(draw_distribution(each) for each in layer.distributions)
    return (
        f"<tr><td>{html.escape(layer.name)}<small>{html.escape(layer.op)}</small></td>"
        f'<td class="figure">{layer.error:.2e}{bar}</td>'
        f'<td class="figure">{layer.seconds * 1e3:.3f}</td>'
        f"<td>{drawings}</td><td>{html.escape(said)}</td></tr>"
    )


def draw_distribution(seen: Distribution) -> str:
    """Bars over the stored range, and a line that says what they are."""
    span = seen.high - seen.low
    left, right = (
        min(WIDTH, max(0.0, (end - seen.low) / span * WIDTH))
        for end in (seen.stored_low, seen.stored_high)
    )
    parts = [f'<rect class="stored" x="{left:.1f}" width="{right - left:.1f}" height="{HEIGHT}"/>']
    width = WIDTH / len(seen.counts)
    for number, height in enumerate(seen.heights):
        middle = (number + 0.5) * width
        kind = "bar" if left <= middle <= right else "beyond"
        tall = height * HEIGHT
        parts.append(
            f'<rect class="{kind}" x="{number * width:.1f}" y="{HEIGHT - tall:.1f}" '
            f'width="{width - 1:.1f}" height="{tall:.1f}"/>'
        )
    title = html.escape(f"{seen.kind} {seen.name}")
    said = f"{title}: {seen.low:.3g} to {seen.high:.3g}, {sum(seen.counts):,} numbers"
    if seen.kind == "activation":
        said += f", stored {seen.stored_low:.3g} to {seen.stored_high:.3g}"
    drawing = f'<svg width="{WIDTH}" height="{HEIGHT}" role="img">{"".join(parts)}</svg>'
    return f"{drawing}<small>{said}</small>"
