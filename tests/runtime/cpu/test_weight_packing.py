"""Weights are packed one after the other, and each is let go of before the next is read."""

from __future__ import annotations

import gc
import weakref
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest

from monograph.compiler import Options, compile_graph
from monograph.errors import EvaluationError
from monograph.ir.data import ArrayData, Data
from monograph.ir.graph import Graph
from monograph.ir.types import Array, f32

SIZE = 96
X = np.linspace(-1, 1, 32 * SIZE, dtype=np.float32).reshape(32, SIZE)


class Stored(Data):
    """A matrix that is made when it is read; ``most`` is how many were held at one time."""

    made: ClassVar[list[weakref.ref[Array]]] = []
    most = 0

    def __init__(self, seed: int, *, fails: bool = False) -> None:
        self.dtype = f32
        self.shape = (SIZE, SIZE)
        self.seed = seed
        self.fails = fails

    def array(self) -> Array:
        if self.fails:
            raise EvaluationError("the file is gone")
        made = (
            np.sin(np.arange(SIZE * SIZE, dtype=np.float32) + self.seed).reshape(self.shape).copy()
        )
        gc.collect()
        Stored.made.append(weakref.ref(made))
        Stored.most = max(Stored.most, sum(each() is not None for each in Stored.made))
        return made


def products(*weights: Data) -> Graph:
    """One product after the other."""
    graph = Graph("products")
    value = graph.add_input("x", f"f32[32, {SIZE}]")
    with graph.as_current():
        for number, weight in enumerate(weights):
            value = value @ graph.add_weight(f"w{number}", weight)
        graph.set_outputs([value])
    return graph


@pytest.mark.parametrize("owned", [True, False])
def test_one_weight_is_read_at_a_time(owned: bool) -> None:
    Stored.most = 0
    weights = [Stored(seed) for seed in range(4)]
    executable = compile_graph(products(*weights), Options(cache=False), owned=owned)
    assert Stored.most == 1
    (got,) = executable.run([X])
    expected = X.astype(np.float64)
    for weight in weights:
        expected = expected @ weight.array()
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


@pytest.mark.usefixtures("unfenced")
def test_panels_lie_one_after_the_other() -> None:
    graph = products(*(Stored(seed) for seed in range(3)))
    native = compile_graph(graph, Options(cache=False)).native
    assert native is not None
    panels = list(native.prepared().values())
    assert len(panels) == 3
    for panel, following in pairwise(panels):
        assert panel.ctypes.data % 64 == 0
        gap = following.ctypes.data - (panel.ctypes.data + panel.nbytes)
        assert 0 <= gap < 64


def test_what_two_products_share_is_held_until_both_are_packed() -> None:
    weight = ArrayData(Stored(1).array())
    graph = Graph("shared")
    x = graph.add_input("x", f"f32[32, {SIZE}]")
    with graph.as_current():
        held = graph.add_weight("w", weight)
        graph.set_outputs([x @ held, held @ x.graph.add_weight("v", weight)])
    got = compile_graph(graph, Options(cache=False), owned=True).run([X])
    np.testing.assert_allclose(got[0], X @ weight.array(), atol=1e-3)
    np.testing.assert_allclose(got[1], weight.array() @ weight.array(), atol=1e-3)


def test_a_weight_that_cannot_be_read_is_an_error_of_compiling() -> None:
    graph = products(Stored(0), Stored(1, fails=True))
    with pytest.raises(EvaluationError, match="the file is gone"):
        compile_graph(graph, Options(cache=False))
