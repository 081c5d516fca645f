"""What an op is stands in its block: no room to its right asks for an op by the text of its name.

Traits, attributes and classes say it; a new op then needs no table in fusion, kernels or targets.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "monograph"
ROOMS = ("fusion", "kernel", "program", "targets", "runtime", "specialize", "tuning")

ALLOWED = {
    # Scalar functions are called as the ops are that apply them: this finds the function.
    ("kernel/lower.py", "op.name in SCALAR_FUNCTIONS"),
}


def is_name_of_op(node: ast.expr) -> bool:
    """Whether an expression is ``op.name``, or ``….op.name``."""
    if not isinstance(node, ast.Attribute) or node.attr != "name":
        return False
    owner = node.value
    return getattr(owner, "attr", getattr(owner, "id", "")) == "op"


def string_tests(text: str) -> Iterator[str]:
    """Comparisons of an op's name, sets of such names that are compared, and tables keyed by it."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Compare) and any(
            map(is_name_of_op, [node.left, *node.comparators])
        ):
            yield ast.unparse(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.Sub | ast.BitOr):
            parts = [node.left, node.right]
            if any(isinstance(x, ast.SetComp) and is_name_of_op(x.elt) for x in parts):
                yield ast.unparse(node)
        if isinstance(node, ast.Match) and is_name_of_op(node.subject):
            yield ast.unparse(node.subject)
        if isinstance(node, ast.Subscript) and is_name_of_op(node.slice):
            yield ast.unparse(node)
        is_get = isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".get")
        if is_get and any(map(is_name_of_op, node.args)):
            yield ast.unparse(node)


def test_no_op_is_asked_for_by_the_text_of_its_name() -> None:
    found = {
        (path.relative_to(PACKAGE).as_posix(), each)
        for room in ROOMS
        for path in (PACKAGE / room).rglob("*.py")
        for each in string_tests(path.read_text())
    }
    assert found == ALLOWED, "say it by a trait, an attribute or isinstance of the op's class"


@pytest.mark.parametrize(
    "text",
    [
        "node.op.name == 'cast'",
        "each.op.name in ('add', 'subtract')",
        "use.node.op.name not in VIEWS",
        "op.name != 'reshape'",
        "{node.op.name for node in nodes} & CONTRACTIONS",
        "LIBRARIES.get(node.op.name)",
        "LIBRARIES[op.name]",
    ],
)
def test_a_string_test_is_found(text: str) -> None:
    assert list(string_tests(text))
