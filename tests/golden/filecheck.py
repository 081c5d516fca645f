"""Golden tests in one file each: a graph, the passes to run on it, and what must come out.

    // Equal nodes become one.
    // RUN: cse
    // CHECK: %a = relu(%x)
    // CHECK-NEXT: add(%a, %a)
    // CHECK-NOT: relu

The first comment is the title. ``RUN`` takes passes as ``monograph opt -p`` does. ``CHECK`` finds
its text in a later line, ``CHECK-NEXT`` in the very next one, ``CHECK-NOT`` in none of the lines up
to the next ``CHECK``. Runs of spaces count as one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from monograph.api import optimize
from monograph.ir.text.files import load_graph
from monograph.ir.text.printer import print_graph
from monograph.ir.verify import verify

_DIRECTIVE = re.compile(r"\s*//\s*(RUN|CHECK(?:-[A-Z]+)?):(.*)")
_KINDS = ("CHECK", "CHECK-NEXT", "CHECK-NOT")


@dataclass(frozen=True)
class Directive:
    """One line of a golden file that says something: its kind, text and line number."""

    kind: str
    text: str
    line: int


@dataclass(frozen=True)
class Golden:
    """What a golden file asks for."""

    path: Path
    title: str
    passes: str
    checks: tuple[Directive, ...]


def read(path: Path) -> Golden:
    """Read the directives of a file; a file without title, RUN or CHECK is an error."""
    lines = path.read_text().splitlines()
    title = lines[0].removeprefix("//").strip() if lines else ""
    directives = [
        Directive(match[1], _plain(match[2]), number)
        for number, line in enumerate(lines, 1)
        if (match := _DIRECTIVE.fullmatch(line)) is not None
    ]
    runs = [each.text for each in directives if each.kind == "RUN"]
    checks = tuple(each for each in directives if each.kind != "RUN")
    unknown = [each.kind for each in checks if each.kind not in _KINDS]
    assert not unknown, f"{path}: there is no {unknown[0]}"
    assert lines and lines[0].startswith("//") and "RUN:" not in title, f"{path} has no title"
    assert len(runs) == 1, f"{path} has {len(runs)} RUN lines"
    assert checks, f"{path} checks nothing"
    return Golden(path, title, runs[0], checks)


def run(golden: Golden) -> str:
    """The graph of a golden file after its passes, as text."""
    graph = load_graph(golden.path)
    verify(graph)
    optimized = optimize(graph, passes=golden.passes)
    verify(optimized)
    return print_graph(optimized)


def mismatch(checks: tuple[Directive, ...], output: str) -> str | None:
    """What is wrong with the output, or None if it is as it should be."""
    lines = [_plain(line) for line in output.splitlines()]
    position = 0  # of the line behind the last match
    forbidden: list[Directive] = []
    for check in checks:
        if check.kind == "CHECK-NOT":
            forbidden.append(check)
            continue
        found = _find(check, lines, position)
        if found is None:
            where = "in the next line" if check.kind == "CHECK-NEXT" else "in a later line"
            return f"line {check.line}: {check.kind}: {check.text!r} is not {where}"
        problem = _forbidden_in(forbidden, lines[position:found])
        if problem is not None:
            return problem
        forbidden = []
        position = found + 1
    return _forbidden_in(forbidden, lines[position:])


def _find(check: Directive, lines: list[str], position: int) -> int | None:
    last = position + 1 if check.kind == "CHECK-NEXT" else len(lines)
    for index in range(position, min(last, len(lines))):
        if check.text in lines[index]:
            return index
    return None


def _forbidden_in(forbidden: list[Directive], lines: list[str]) -> str | None:
    for check in forbidden:
        for line in lines:
            if check.text in line:
                return f"line {check.line}: CHECK-NOT: {check.text!r} is in {line.strip()!r}"
    return None


def _plain(text: str) -> str:
    return " ".join(text.split())
