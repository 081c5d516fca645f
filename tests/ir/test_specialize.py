"""Symbolic sizes that are given: in types, attributes and regions, and nowhere outside a range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.errors import InputError
from monograph.ir.graph import Graph
from monograph.ir.specialize import specialize_sizes
from monograph.ir.text import parse
from monograph.ir.verify import verify


def graph() -> Graph:
    def function(x: Any) -> Any:
        rows = F.reshape(x, (x.shape[0] * x.shape[1],))
        total, parts = F.scan(lambda c, row: (c + row, c * row), F.zeros((3,)), x)
        return F.expand(F.sum(rows), (x.shape[0], 2)), total, parts

    return monograph.trace(function, "f32[batch, 3]")


def test_a_size_replaces_its_symbol_everywhere() -> None:
    fixed = specialize_sizes(graph(), {"batch": 5})
    verify(fixed)
    assert not fixed.symbols()
    x = np.arange(15, dtype=np.float32).reshape(5, 3)
    for got, want in zip(
        monograph.interpret(fixed, [x]), monograph.interpret(graph(), [x]), strict=True
    ):
        np.testing.assert_array_equal(got, want)


def test_a_range_narrows_the_declared_one() -> None:
    bounded = specialize_sizes(graph(), {"batch": (2, 64)})
    verify(bounded)
    (symbol,) = bounded.symbols().values()
    assert (symbol.name, symbol.lower, symbol.upper) == ("batch", 2, 64)
    assert not parse(str(bounded)).symbols()["batch"].lower < 2


def test_the_graph_itself_stays_as_it_is() -> None:
    source = graph()
    before = str(source)
    specialize_sizes(source, {"batch": 5})
    assert str(source) == before


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"rows": 4}, "no symbolic size 'rows'"),
        ({"batch": "4"}, "is no size"),
        ({"batch": (1, 2, 3)}, "is no size"),
        ({"batch": (9, 3)}, "holds no size"),
        ({"batch": -1}, "cannot be this"),
    ],
)
def test_what_is_no_size_is_an_error(sizes: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        specialize_sizes(graph(), sizes)


def test_a_compiled_model_takes_only_the_sizes_that_it_was_given() -> None:
    compiled = monograph.compile(lambda x: x * 2.0, "f32[batch, n]", sizes={"batch": 1})
    x = np.ones((1, 7), np.float32)
    np.testing.assert_array_equal(compiled(x), x * 2)
    with pytest.raises(InputError):
        compiled(np.ones((2, 7), np.float32))
