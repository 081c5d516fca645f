"""SVG by a few verbs: boxes, lines and text whose colours follow the reader's theme."""

from __future__ import annotations

import html
from dataclasses import dataclass, field

FONT = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', sans-serif"
MONO = "ui-monospace, 'DejaVu Sans Mono', monospace"

HUES = {
    "plain": ("#f6f8fa", "#8c959f", "#21262d", "#6e7681"),
    "blue": ("#ddeefb", "#0969b2", "#12304a", "#58a6e8"),
    "green": ("#dcf3e8", "#0b7a54", "#0f3527", "#3fb98a"),
    "orange": ("#fdeadb", "#bc4c00", "#43240f", "#f0883e"),
    "pink": ("#fae7f3", "#a33d83", "#3d1c33", "#db7fc0"),
    "yellow": ("#fbf2cf", "#8a6a00", "#3a2f09", "#d6ad33"),
    "violet": ("#ebe8fa", "#6250b5", "#28224a", "#a393f0"),
}
"""Of each hue: inside and outline on light paper, then on dark."""


def _style() -> str:
    light = [".paper{fill:#ffffff}", ".ink{fill:#1f2328}", ".faint{fill:#59636e}"]
    dark = [".paper{fill:#0d1117}", ".ink{fill:#e6edf3}", ".faint{fill:#9198a1}"]
    light.append(".line{stroke:#8c959f;fill:none}.head{fill:#8c959f}")
    dark.append(".line{stroke:#6e7681}.head{fill:#6e7681}")
    for hue, (inside, outline, dark_inside, dark_outline) in HUES.items():
        light.append(f".{hue}{{fill:{inside};stroke:{outline}}}")
        light.append(f".line-{hue}{{stroke:{outline};fill:none}}.text-{hue}{{fill:{outline}}}")
        dark.append(f".{hue}{{fill:{dark_inside};stroke:{dark_outline}}}")
        dark.append(f".line-{hue}{{stroke:{dark_outline}}}.text-{hue}{{fill:{dark_outline}}}")
    return f"{''.join(light)}@media (prefers-color-scheme:dark){{{''.join(dark)}}}"


@dataclass
class Canvas:
    """A picture in the making; coordinates are pixels from the upper left corner."""

    title: str
    width: int
    height: int
    parts: list[str] = field(default_factory=list)

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        hue: str = "plain",
        *,
        radius: float = 4,
        dashed: bool = False,
    ) -> None:
        """A rectangle, filled and outlined in a hue."""
        dashes = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(
            f'<rect class="{hue}" x="{_number(x)}" y="{_number(y)}" width="{_number(width)}" '
            f'height="{_number(height)}" rx="{_number(radius)}"{dashes}/>'
        )

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        kind: str = "ink",
        size: float = 13,
        anchor: str = "start",
        mono: bool = False,
        bold: bool = False,
    ) -> None:
        """One line of text whose baseline is at y."""
        font = f' font-family="{MONO}"' if mono else ""
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text class="{kind}" x="{_number(x)}" y="{_number(y)}" font-size="{_number(size)}" '
            f'text-anchor="{anchor}"{font}{weight} xml:space="preserve">{html.escape(words)}</text>'
        )

    def note(self, x: float, y: float, words: str, anchor: str = "start") -> None:
        """A remark: small and faint."""
        self.text(x, y, words, kind="faint", size=12, anchor=anchor)

    def code(self, x: float, y: float, words: str, anchor: str = "start") -> None:
        """A name or a number, as it stands in the program."""
        self.text(x, y, words, mono=True, size=12, anchor=anchor)

    def line(
        self,
        *points: tuple[float, float],
        hue: str = "",
        dashed: bool = False,
        arrow: bool = False,
        wide: float = 1.2,
    ) -> None:
        """A line through points, with a head at its end if it is an arrow."""
        path = "L".join(f"{_number(x)},{_number(y)}" for x, y in points)
        kind = f"line-{hue}" if hue else "line"
        dashes = ' stroke-dasharray="4 3"' if dashed else ""
        head = ' marker-end="url(#head)"' if arrow else ""
        self.parts.append(
            f'<path class="{kind}" stroke-width="{_number(wide)}" d="M{path}"{dashes}{head}/>'
        )

    def curve(
        self,
        start: tuple[float, float],
        end: tuple[float, float],
        *,
        hue: str = "",
        dashed: bool = False,
    ) -> None:
        """An arrow that leaves downwards and arrives downwards."""
        (x0, y0), (x1, y1) = start, end
        bend = (y1 - y0) / 2
        kind = f"line-{hue}" if hue else "line"
        dashes = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(
            f'<path class="{kind}" stroke-width="1.2" d="M{_number(x0)},{_number(y0)}'
            f"C{_number(x0)},{_number(y0 + bend)} {_number(x1)},{_number(y1 - bend)} "
            f'{_number(x1)},{_number(y1)}"{dashes} marker-end="url(#head)"/>'
        )

    def svg(self) -> str:
        """The whole picture."""
        head = (
            '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto"><path class="head" d="M0,0L8,4L0,8z"/></marker>'
        )
        opening = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" role="img" font-family="{FONT}">'
        )
        paper = f'<rect class="paper" width="{self.width}" height="{self.height}" rx="6"/>'
        title = f"<title>{html.escape(self.title)}</title>"
        lines = [opening, title, f"<style>{_style()}</style>", f"<defs>{head}</defs>", paper]
        return "\n".join([*lines, *self.parts, "</svg>"]) + "\n"


def _number(value: float) -> str:
    """A coordinate, to a tenth of a pixel."""
    return f"{round(value, 1):g}"
