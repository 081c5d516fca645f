"""One model in several IRs side by side, aligned by source line, for a terminal of 100 columns.

TABLE                FX         ONNX        Monograph
typed                0 of 5     5 of 5      5 of 5
…
net.py:8  return torch.softmax(x + self.b(h), -1)
  FX           linear_1 = F.linear(relu, b_weight, b_bias)
  ONNX         linear_1 = Gemm(relu, b.weight, b.bias) {transB}
"""

from __future__ import annotations

import linecache
import shutil
import textwrap
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path

from monograph.dataclass import dataclass
from monograph.inspect.views import CONTROL, Line, View
from monograph.ir.location import Location

WIDTH = 100
MOST_GROUPS = 40
"""Source lines that a terminal shows, unless all are asked for."""
MOST_LINES = 6
"""Lines of one IR that a terminal shows for one source line."""
MOST_OPS = 4
LEVELS = {
    "fx": "torch functions",
    "torchscript": "torch ops, Python's values",
    "onnx": "tensor ops, versioned",
    "stablehlo": "tensor primitives",
    "hlo": "XLA's primitives",
    "relay": "tensor ops",
    "monograph": "composites, primitives",
}
"""What an IR's vocabulary is made of; how high it stands is counted beside it."""


@dataclass(frozen=True)
class SourceLineGroup:
    """What every IR has for one source line, in order."""

    location: Location | None
    lines: tuple[tuple[Line, ...], ...]
    """For each view."""
    is_module: bool = False
    """Whether it is what a module of the model does, instead of a line."""

    @property
    def place(self) -> str:
        """``net.py:8``, or the path of a module: ``encoder.layer.0``."""
        if self.is_module:
            return (self.location.scope if self.location else "") or "the model itself"
        if self.location is None or not self.location.line:
            return "no source line"
        return f"{Path(self.location.file).name}:{self.location.line}"

    def source(self) -> str:
        """The line itself, where its file can be read."""
        if self.location is None or not self.location.line or self.is_module:
            return ""
        return linecache.getline(self.location.file, self.location.line).strip()


Key = tuple[str, int] | None
LINES_PER_SOURCE_LINE = 20
"""Above which a source line says too little (a library's model is one call): modules are taken."""


def align(views: Sequence[View]) -> list[SourceLineGroup]:
    """Lines of one source line together, in the order of our own view, which the others come from.

    A line whose source line the leader does not have again stays with the lines before it. Where
    our view is not among them, the one leads that has most source lines, in the fewest pieces.
    """
    lines = max((view.lines for view in views), key=len, default=())
    known = {_line_key(line.location) for line in lines} - {None}
    by_module = len(lines) > LINES_PER_SOURCE_LINE * max(len(known), 1)
    key_of = _module_key if by_module else _line_key
    runs = [_runs(list(_key_lines(view.lines, key_of))) for view in views]
    leader = max(zip(views, runs, strict=True), key=_leads, default=(None, []))[1]
    keys = [key for key, _ in leader] or [None]
    slots: list[list[list[Line]]] = [[[] for _ in views] for _ in keys]
    for number, each in enumerate(runs):
        places = _places(keys, [key for key, _ in each])
        for place, (_, own) in zip(places, each, strict=True):
            slots[place][number] += own
    groups = []
    for slot in slots:
        location = next((line.location for part in slot for line in part if line.location), None)
        groups.append(SourceLineGroup(location, tuple(map(tuple, slot)), by_module))
    return [group for group in groups if any(group.lines)]


def _leads(view_and_runs: tuple[View, list[tuple[Key, list[Line]]]]) -> tuple[bool, int, int]:
    """How well a view's order serves all: XLA moves operations, and repeats them."""
    view, runs = view_and_runs
    known = [key for key, _ in runs if key is not None]
    return view.name == "monograph" and bool(known), len(set(known)), -len(known)


def _places(keys: Sequence[Key], own: Sequence[Key]) -> list[int]:
    """Where each run of a view goes: beside its match, or else where the run before it went.

    XLA and TorchScript put some operations elsewhere: the longest common order is kept.
    """
    matches: dict[int, int] = {}
    for block in SequenceMatcher(None, keys, own, autojunk=False).get_matching_blocks():
        matches.update((block.b + k, block.a + k) for k in range(block.size))
    places = []
    here = 0
    for position in range(len(own)):
        here = matches.get(position, here)
        places.append(here)
    return places


def _line_key(location: Location | None) -> Key:
    return (location.file, location.line) if location is not None and location.line else None


def _module_key(location: Location | None) -> Key:
    return None if location is None else (location.scope, 0)


def _key_lines(
    lines: Sequence[Line], key_of: Callable[[Location | None], Key]
) -> Iterator[tuple[Key, Line]]:
    """Each line with its key, or that of the line before it if it has none."""
    last: Key = None
    for line in lines:
        last = key_of(line.location) or last
        yield last, line


def _runs(keyed: Sequence[tuple[Key, Line]]) -> list[tuple[Key, list[Line]]]:
    """Neighbours of one source line joined; a line that comes back later is a run of its own."""
    runs: list[tuple[Key, list[Line]]] = []
    for key, line in keyed:
        if runs and runs[-1][0] == key:
            runs[-1][1].append(line)
        else:
            runs.append((key, [line]))
    return runs


def table_rows(views: Sequence[View]) -> list[tuple[str, list[str]]]:
    """The comparison, filled in from the model."""
    own = next((len(view.lines) for view in views if view.name == "monograph"), None)
    kinds = max((len(view.ops()) for view in views), default=0)
    return [
        ("typed", [_of(view, f"{view.typed} of {len(view.lines)}") for view in views]),
        ("SSA", [_of(view, "yes" if view.is_ssa else "no: names again") for view in views]),
        ("control flow", [_of(view, _control(view)) for view in views]),
        ("level", [_of(view, LEVELS[view.name]) for view in views]),
        ("nodes", [_of(view, _nodes(view, own)) for view in views]),
        ("kinds of op", [_of(view, str(len(view.ops()))) for view in views]),
        *((f"op {k + 1}", [_op(view, k) for view in views]) for k in range(min(MOST_OPS, kinds))),
    ]


def _of(view: View, text: str) -> str:
    return "cannot say it" if view.problem else text


def _control(view: View) -> str:
    return f"{view.control} here" if view.control else f"none ({CONTROL[view.name][0]})"


def _nodes(view: View, own: int | None) -> str:
    ratio = f" (×{len(view.lines) / own:.1f})" if own and view.name != "monograph" else ""
    return f"{len(view.lines):,}{ratio}"


def _op(view: View, rank: int) -> str:
    ordered = view.ops().most_common()
    if rank >= len(ordered):
        return ""
    name, count = ordered[rank]
    return f"{name.removeprefix('stablehlo.')} {count}"


def text_of(name: str, views: Sequence[View], most: int | None = MOST_GROUPS) -> str:
    """The page for a terminal."""
    width = min(WIDTH, max(60, shutil.get_terminal_size((WIDTH, 24)).columns))
    groups = align(views)
    lines = [name, "", *_table(views, width), ""]
    for view in views:
        if view.problem:
            lines += [*textwrap.wrap(f"{view.title}: {view.problem}", width), ""]
    shown = groups if most is None else groups[:most]
    for group in shown:
        lines += _group(group, views, width)
    if len(shown) < len(groups):
        rest = len(groups) - len(shown)
        lines.append(f"… {rest} more places: --all shows them, -o page.html side by side")
    return "\n".join(lines)


def _table(views: Sequence[View], width: int) -> list[str]:
    """As wide as it must be; in two halves where the columns do not fit beside each other."""
    rows = [("", [view.title for view in views]), *table_rows(views)]
    first = max(len(label) for label, _ in rows)
    lines: list[str] = []
    start = 0
    while start < len(views):
        end, used = start, first
        while end < len(views):
            wide = max(len(cells[end]) for _, cells in rows) + 2
            if end > start and used + wide > width:
                break
            used += wide
            end += 1
        sizes = [max(len(cells[k]) for _, cells in rows) for k in range(start, end)]
        for label, cells in rows:
            if not any(cells[start:end]):
                continue
            parts = [cell.ljust(size) for cell, size in zip(cells[start:end], sizes, strict=True)]
            lines.append(_cut("  ".join([label.ljust(first), *parts]).rstrip(), width))
        if end < len(views):
            lines.append("")
        start = end
    return lines


def _group(group: SourceLineGroup, views: Sequence[View], width: int) -> list[str]:
    lines = [_cut(f"{group.place}  {group.source()}".rstrip(), width)]
    label = max(len(view.title) for view in views)
    for view, own in zip(views, group.lines, strict=True):
        for number, line in enumerate(own[:MOST_LINES]):
            title = view.title if number == 0 else ""
            lines.append(_cut(f"  {title.ljust(label)}  {line.text}", width))
        if len(own) > MOST_LINES:
            lines.append(f"  {' ' * label}  … {len(own) - MOST_LINES} more")
    return [*lines, ""]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
