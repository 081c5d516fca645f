"""Every way to write a graph wrongly, and word for word what its author then reads.

The cases lie in ``malformed/*.txt``: a heading, the text, a line of dashes, the message.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tests.ir.probe_ops  # noqa: F401  # some of the texts use its ops
from monograph.errors import ParseError
from monograph.ir.text import parse

FOLDER = Path(__file__).parent / "malformed"
WHOLE = ("graphs", "types")
"""The files whose texts are whole graphs; in the others they are lines of the graph below."""


def wrapped(lines: str) -> str:
    """A graph with these lines in it."""
    indented = "".join(f"  {line}\n" for line in lines.split("\n"))
    return f"graph @main(%x: f32[4], %y: f32[4]) -> () {{\n{indented}  return\n}}\n"


def cases() -> Iterator[object]:
    for path in sorted(FOLDER.glob("*.txt")):
        for section in path.read_text(encoding="utf-8").split("=== ")[1:]:
            name, _, rest = section.partition("\n")
            text, _, message = rest.partition("\n---\n")
            whole = text if path.stem in WHOLE else wrapped(text)
            yield pytest.param(whole, message.rstrip("\n"), id=f"{path.stem}: {name}")


@pytest.mark.parametrize(("text", "message"), list(cases()))
def test_malformed_text_is_refused_with_this_message(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert str(caught.value) == message


def test_there_are_many_cases() -> None:
    assert len(list(cases())) >= 100


def test_errors_name_the_source() -> None:
    with pytest.raises(ParseError) as caught:
        parse("graph", source="models/mlp.ir")
    assert caught.value.where == "models/mlp.ir:1:6\ngraph\n     ^"


def test_long_lines_are_cut_around_the_place() -> None:
    text = "graph @main(" + ", ".join(f"%input{i}: f32[4]" for i in range(50)) + ", 7) -> () {"
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert caught.value.where == (
        "<text>:1:903\n"
        "...2[4], %input47: f32[4], %input48: f32[4], %input49: f32[4], 7) -> () {\n"
        "                                                               ^"
    )


def test_a_failing_type_rule_is_the_cause_of_the_error() -> None:
    with pytest.raises(ParseError) as caught:
        parse(wrapped("%i = constant(1) : i64[]\n%a = test.same(%x, %i) : f32[4]"))
    assert isinstance(caught.value.__cause__, AssertionError)
