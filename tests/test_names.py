"""Names say what they hold: a constant its quantity and unit, a function what it does."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

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


def constants(tree: ast.Module) -> Iterator[str]:
    """The names that a module assigns, without the underscore of those for itself."""
    for statement in tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        for target in targets:
            for node in ast.walk(target):
                if isinstance(node, ast.Name):
                    yield node.id.lstrip("_")


def own_functions(tree: ast.Module) -> Iterator[str]:
    """A module's functions, and the methods that classes have for themselves."""
    statements = tree.body
    methods = [each for one in statements if isinstance(one, ast.ClassDef) for each in one.body]
    for each in [*statements, *methods]:
        if not isinstance(each, ast.FunctionDef) or each.name.startswith("__"):
            continue
        if each in methods and not each.name.startswith("_"):
            continue
        if all(IS_NO_REGISTRATION.fullmatch(ast.unparse(d)) for d in each.decorator_list):
            yield each.name


def undecorated_functions(tree: ast.Module) -> Iterator[str]:
    """The functions of a module that no decorator registers anywhere."""
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef) and not statement.decorator_list:
            yield statement.name


class Names(NamedTuple):
    """What a module defines."""

    constants: tuple[str, ...]
    functions: tuple[str, ...]
    undecorated: tuple[str, ...]


@cache
def package() -> Mapping[str, Names]:
    """The names of every module, by its path in the package."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        names = (constants(tree), own_functions(tree), undecorated_functions(tree))
        found[path.relative_to(PACKAGE).as_posix()] = Names(*map(tuple, names))
    return found


def test_constants_name_their_quantity() -> None:
    found = {
        (path, name)
        for path, names in package().items()
        for name in names.constants
        if name in BARE
    }
    assert found == OF_A_FUNCTION, "say of what, and in which unit: MAX_ROWS_PER_BLOCK"


@pytest.mark.parametrize("text", ["FEW = 4", "_LARGEST: int = 8", "NEAR, FAR = 48, 4096"])
def test_a_bare_adjective_is_found(text: str) -> None:
    assert set(constants(ast.parse(text))) & BARE


PARTICIPLES = frozenset(
    [
        *("begun", "borne", "bought", "bound", "bred", "broken", "brought", "built", "caught"),
        *("chosen", "dealt", "done", "drawn", "driven", "dug", "fallen", "fed", "felt", "found"),
        *("frozen", "given", "gone", "grown", "hidden", "hung", "held", "kept", "known", "laid"),
        *("led", "left", "lent", "lost", "made", "meant", "met", "paid", "rebuilt", "rewritten"),
        *("said", "seen", "sent", "shown", "sought", "spoken", "spun", "struck", "stuck", "sunk"),
        *("swept", "swung", "taken", "taught", "thought", "thrown", "told", "torn", "unbound"),
        *("undone", "wound", "woven", "written"),
    ]
)
"""Those that do not end in ``ed``; what is a verb as well (``cut``, ``read``, ``set``) is none."""

VERBS_IN_ED = frozenset(["bleed", "embed", "exceed", "feed", "need", "proceed", "seed", "shed"])

IS_NO_REGISTRATION = re.compile(
    r"(functools\.)?(cache|lru_cache|wraps)\b.*|.*contextmanager|staticmethod|classmethod|override"
)
"""Decorators after which a function keeps its name; others register it, mostly under an op's."""


def says_what_was_done(name: str) -> bool:
    """Whether a name begins with a participle: ``moved``, ``_joined_parts``, ``written``."""
    first = name.lstrip("_").split("_")[0]
    return first in PARTICIPLES or (first.endswith("ed") and first not in VERBS_IN_ED)


def test_functions_are_verbs() -> None:
    found = {
        (path, name)
        for path, names in package().items()
        for name in names.functions
        if says_what_was_done(name)
    }
    assert not found, "say what it does: move, join_parts, write"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def _moved(x): ...", ["_moved"]),
        ("@cache\ndef written(): ...", ["written"]),
        ("class A:\n    def _joined_parts(self): ...", ["_joined_parts"]),
        ("class A:\n    def sorted(self): ...", []),
        ("@property\ndef _moved(self): ...", []),
        ("@exports(Split)\ndef transposed(node): ...", []),
        ("def embed(x): ...", []),
        ("def read(file): ...", []),
    ],
)
def test_a_participle_is_found(text: str, expected: list[str]) -> None:
    assert [name for name in own_functions(ast.parse(text)) if says_what_was_done(name)] == expected


def test_every_function_is_called() -> None:
    """By name at least, in the package or by a test of it; what nobody calls goes."""
    folders = ("monograph", "tests", "benchmarks", "examples")
    sources = [path for folder in folders for path in (PACKAGE.parent / folder).rglob("*.py")]
    words = Counter(word for path in sources for word in re.findall(r"\w+", path.read_text()))
    functions = {
        name
        for names in package().values()
        for name in names.undecorated
        if not name.startswith("__")
    }
    assert not {name for name in functions if words[name] == 1}
