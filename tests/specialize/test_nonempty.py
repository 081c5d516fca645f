"""Programs that assume sizes not to be zero, against the interpreter on the graph as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

import monograph
from monograph.errors import InputError
from monograph.ir.deferred import DeferredOp
from monograph.ir.interpret import interpret
from monograph.specialize.nonempty import assume_nonempty
from tests.frontends.onnx.models import graph_of, model

LAST_ONES = """m (float[past, 3] x, float[seq] like) => (float[k, 3] y) {
    axis = Constant <value_ints: ints = [0]> ()
    end = Constant <value_ints: ints = [9223372036854775807]> ()
    size = Shape(like)
    start = Neg(size)
    last = Slice(x, start, end, axis)
    y = Exp(last)
}"""
TOWARDS_ZERO = """m (float[n] x) => (float[k] y) {
    one = Constant <value_ints: ints = [1]> ()
    four = Constant <value_ints: ints = [4]> ()
    size = Shape(x)
    less = Sub(size, one)
    count = Div(less, four)
    more = Add(count, one)
    zero = Constant <value_ints: ints = [0]> ()
    ends = Concat <axis=0> (more)
    y = Slice(x, zero, ends, zero)
}"""


def compiled(text: str) -> Any:
    return monograph.compile(model(text), cache=False)


def rows(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) / 8


@pytest.mark.parametrize("text, places", [(LAST_ONES, ((1, 0),)), (TOWARDS_ZERO, ((0, 0),))])
def test_only_sizes_that_nodes_wait_for_are_assumed(text: str, places: Any) -> None:
    graph = graph_of(text)
    assert any(isinstance(node.op, DeferredOp) for node in graph.walk())
    assumed = assume_nonempty(graph)
    assert assumed is not None and assumed.places == places
    assert not any(isinstance(node.op, DeferredOp) for node in assumed.graph.walk())


def test_one_program_serves_all_sizes_above_zero() -> None:
    executable, graph = compiled(LAST_ONES), graph_of(LAST_ONES)
    assert executable.native is not None and executable.stage is None
    for past, count in ((5, 2), (7, 7), (3, 1), (4, 6), (0, 2)):
        inputs = [rows(past, 3), rows(count)]
        np.testing.assert_allclose(executable(*inputs)[0], interpret(graph, inputs)[0], rtol=1e-6)


@pytest.mark.parametrize("by_name", [False, True])
def test_a_size_of_zero_means_what_it_meant(by_name: bool) -> None:
    executable, graph = compiled(LAST_ONES), graph_of(LAST_ONES)
    inputs = [rows(5, 3), rows(0)]
    for _ in range(2):
        found = executable(x=inputs[0], like=inputs[1]) if by_name else executable(*inputs)
        np.testing.assert_allclose(found[0], interpret(graph, inputs)[0], rtol=1e-6)
    assert found[0].shape == (5, 3)
    np.testing.assert_allclose(
        executable(rows(5, 3), rows(1))[0], np.exp(rows(5, 3)[4:]), rtol=1e-6
    )


def test_division_rounds_towards_zero_where_it_matters() -> None:
    executable, graph = compiled(TOWARDS_ZERO), graph_of(TOWARDS_ZERO)
    assert executable.stage is None
    for size in (0, 1, 4, 5, 9):
        np.testing.assert_array_equal(executable(rows(size))[0], interpret(graph, [rows(size)])[0])


def test_a_saved_program_says_which_sizes_it_takes(tmp_path: Path) -> None:
    loaded: Any = monograph.load(compiled(LAST_ONES).save(tmp_path / "last.mono"))
    np.testing.assert_allclose(loaded(rows(5, 3), rows(2))[0], np.exp(rows(5, 3)[3:]), rtol=1e-6)
    with pytest.raises(InputError, match="seq is outside its declared range"):
        loaded(rows(5, 3), rows(0))


def test_a_graph_without_waiting_nodes_is_left_alone() -> None:
    assert assume_nonempty(graph_of("m (float[n] x) => (float[n] y) { y = Exp(x) }")) is None
