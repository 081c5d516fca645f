"""Names say what they hold: a constant its quantity and unit, a function what it does."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "monograph"

BARE = frozenset(
    [
        *("FEW", "FEWEST", "MANY", "MOST", "LEAST", "LARGE", "LARGEST"),
        *("SMALL", "SMALLEST", "LONG", "LONGEST", "SHORT", "SHORTEST", "WIDE"),
        *("WIDEST", "NARROW", "DEEP", "DEEPEST", "NEAR", "FAR", "CHEAP"),
        *("LIGHT", "HEAVY", "WORTH", "REACH", "CLEARLY", "CLOSE", "BETTER"),
        *("ENOUGH", "OFTEN"),
    ]
)
"""Adjectives that name no quantity: of what, and in which unit, a reader has to look up."""

OF_A_FUNCTION = {
    # Arguments of a mathematical function, in its file's own terms.
    ("kernel/mathlib/bessel.py", "NEAR"),
    ("kernel/mathlib/normal.py", "FAR"),
    ("kernel/complex_numbers.py", "FAR"),
}


def constants(text: str) -> Iterator[str]:
    """The names that a module assigns, without the underscore of those for itself."""
    for statement in ast.parse(text).body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        for target in targets:
            for node in ast.walk(target):
                if isinstance(node, ast.Name):
                    yield node.id.lstrip("_")


def test_constants_name_their_quantity() -> None:
    found = {
        (path.relative_to(PACKAGE).as_posix(), name)
        for path in PACKAGE.rglob("*.py")
        for name in constants(path.read_text())
        if name in BARE
    }
    assert found == OF_A_FUNCTION, "say of what, and in which unit: MAX_ROWS_PER_BLOCK"


@pytest.mark.parametrize("text", ["FEW = 4", "_LARGEST: int = 8", "NEAR, FAR = 48, 4096"])
def test_a_bare_adjective_is_found(text: str) -> None:
    assert set(constants(text)) & BARE


def undecorated_functions(text: str) -> Iterator[str]:
    """The functions of a module that no decorator registers anywhere."""
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.FunctionDef) and not statement.decorator_list:
            yield statement.name


def test_every_function_is_called() -> None:
    """By name at least, in the package or by a test of it; what nobody calls goes."""
    folders = ("monograph", "tests", "benchmarks", "examples")
    sources = [path for folder in folders for path in (PACKAGE.parent / folder).rglob("*.py")]
    words = Counter(word for path in sources for word in re.findall(r"\w+", path.read_text()))
    functions = {
        name
        for path in PACKAGE.rglob("*.py")
        for name in undecorated_functions(path.read_text())
        if not name.startswith("__")
    }
    assert not {name for name in functions if words[name] == 1}
