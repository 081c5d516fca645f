"""Weights that are packed are not held a second time, unless somebody wants them to be."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import numpy as np
import pytest

import monograph
from monograph.compiler import Options, compile_graph
from monograph.errors import EvaluationError
from monograph.ir.data import ArrayData
from monograph.ir.graph import Graph
from monograph.ir.types import Array
from monograph.runtime.compiled import Executable
from monograph.runtime.weight_ownership import Held, read_by_calls

X = np.linspace(-1, 1, 32 * 64, dtype=np.float32).reshape(32, 64)


def matrix() -> Array:
    """A weight that is worth packing."""
    return np.sin(np.arange(64 * 96, dtype=np.float32)).reshape(64, 96).copy()


def product(weight: Array) -> Graph:
    """A product with a weight."""
    graph = Graph("product")
    x = graph.add_input("x", "f32[32, 64]")
    with graph.as_current():
        graph.set_outputs([x @ graph.add_weight("matrix", weight)])
    return graph


def compiled(weight: Array, *, keep: bool = False) -> Executable:
    return compile_graph(product(weight), Options(cache=False, keep_weights=keep), owned=True)


def test_a_packed_weight_is_let_go_of_by_compiling() -> None:
    weight = matrix()
    gone = weakref.ref(weight)
    executable = compiled(weight)
    expected = X @ weight
    del weight
    gc.collect()
    assert gone() is None
    (got,) = executable.run([X])
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(executable.run([X])[0], got)


def test_the_graph_says_what_became_of_its_weight() -> None:
    executable = compiled(matrix())
    with pytest.raises(EvaluationError, match="packed it") as problem:
        monograph.interpret(executable.graph, [X])
    assert "keep_weights" in str(problem.value)
    assert "matrix" in str(executable.graph)


def test_weights_are_kept_for_those_who_ask() -> None:
    executable = compiled(matrix(), keep=True)
    (got,) = executable.run([X])
    np.testing.assert_allclose(got, monograph.interpret(executable.graph, [X])[0], atol=1e-4)


def test_a_graph_of_somebody_else_keeps_its_weights() -> None:
    graph = product(matrix())
    (got,) = compile_graph(graph, Options(cache=False)).run([X])
    np.testing.assert_allclose(got, monograph.interpret(graph, [X])[0], atol=1e-4)


def test_what_a_call_reads_is_kept() -> None:
    graph = Graph("sum")
    x = graph.add_input("x", "f32[32, 64]")
    with graph.as_current():
        graph.set_outputs([x + graph.add_weight("bias", np.ones(64, np.float32))])
    executable = compile_graph(graph, Options(cache=False), owned=True)
    executable.run([X])
    assert executable.code is not None and read_by_calls(executable.code) == {0}
    np.testing.assert_array_equal(executable.run([X])[0], X + 1)


def test_it_is_saved_as_it_was_packed(tmp_path: Path) -> None:
    executable = compiled(matrix())
    (got,) = executable.run([X])
    again = monograph.load(executable.save(tmp_path / "m.mono"))
    assert isinstance(again, Executable) and again.native is not None
    assert not again.native.weights
    np.testing.assert_array_equal(again.run([X])[0], got)
    third = monograph.load(again.save(tmp_path / "again.mono"))
    assert isinstance(third, Executable)
    np.testing.assert_array_equal(third.run([X])[0], got)


def test_what_follows_is_let_go_of_too() -> None:
    first, second = (Held(each) for each in (_data(), _data()))
    first.followers.append(second)
    first.release()
    assert first != second
    with pytest.raises(EvaluationError):
        second.array()


def _data() -> Held:
    return Held(ArrayData(np.zeros(3, np.float32)))
