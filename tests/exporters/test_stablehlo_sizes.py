"""StableHLO modules with free sizes: one module, refined and run by XLA at several sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

import monograph
from monograph import functional as F
from monograph.errors import UnsupportedError
from monograph.exporters.stablehlo import to_stablehlo
from monograph.frontends.stablehlo import from_stablehlo
from monograph.ir.dims import Symbol, evaluate_dim
from monograph.ir.graph import Graph
from monograph.ir.types import TensorType, f32
from tests.exporters.claims import assert_close, run_stablehlo
from tests.exporters.test_networks import transformer_block
from tests.exporters.test_symbolic import CASES

SIZES = (
    {"n": 3, "m": 2, "b": 2, "batch": 2, "seq": 5},
    {"n": 5, "m": 4, "b": 1, "batch": 1, "seq": 3},
)

REFUSED = {"average pool": "hang over", "fft": "transforms an axis whose size is free"}
"""Cases that StableHLO cannot say, and why."""
ONE_WAY = ("roll",)
"""Cases that are not read back: remainders of numbers below zero are no sizes to the reader."""


def at_sizes(graph: Graph, *, reads_back: bool = True) -> None:
    """What XLA makes of the module, and what is read back from it, beside the interpreter."""
    text = to_stablehlo(graph)
    again = from_stablehlo(text) if reads_back else graph
    assert [value.type for value in again.inputs] == [value.type for value in graph.inputs]
    generator = np.random.default_rng(0)
    for numbers in SIZES:
        bindings = {s: numbers[name] for name, s in graph.symbols().items() if name in numbers}
        arrays = []
        for value in graph.inputs:
            shape = [evaluate_dim(dim, bindings) for dim in value.shape]
            arrays.append(generator.normal(size=shape).astype(value.dtype.numpy))
        expected = monograph.interpret(graph, arrays)
        for found in (run_stablehlo(text, arrays), monograph.interpret(again, arrays)):
            for a, b in zip(found, expected, strict=True):
                assert_close(a, b)


@pytest.mark.parametrize("name", [name for name in CASES if name not in REFUSED])
def test_one_module_serves_every_size(name: str) -> None:
    function, types = CASES[name]
    graph = monograph.trace(function, *types.replace("] ", "]|").split("|"))
    at_sizes(graph, reads_back=name not in ONE_WAY)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_said_of_a_free_size_is_named(name: str) -> None:
    function, types = CASES[name]
    with pytest.raises(UnsupportedError, match=REFUSED[name]):
        to_stablehlo(monograph.trace(function, *types.replace("] ", "]|").split("|")))


LOOPS: dict[str, tuple[Callable[..., Any], str]] = {
    "scan": (lambda x: F.scan(lambda c, r: (c + r, c * 2.0), F.zeros_like(x[0]), x), "f32[n, m]"),
    "backwards": (lambda x: F.scan(lambda c, r: (c + r, c), x[0], x, reverse=True), "f32[n, m]"),
    "while": (
        lambda x: F.while_loop(lambda c: F.sum(c) < 9.0, lambda c: c + F.ones_like(x), F.abs(x)),
        "f32[n, m]",
    ),
    "if": (lambda x: F.cond(F.sum(x) > 0.0, lambda: x, lambda: F.zeros_like(x)), "f32[n, m]"),
}


@pytest.mark.parametrize(("function", "types"), LOOPS.values(), ids=LOOPS)
def test_loops_and_branches_over_free_sizes(function: Callable[..., Any], types: str) -> None:
    at_sizes(monograph.trace(function, types))


def test_a_transformer_block_of_free_batch_and_length() -> None:
    at_sizes(monograph.trace(transformer_block(), "f32[batch, seq, 16]"))


def test_sizes_are_checked_by_xla_too() -> None:
    graph = monograph.trace(lambda x, y: F.sum(x, 0) + F.sum(y), "f32[n]", "f32[2*n]")
    text = to_stablehlo(graph)
    assert 'monograph.type = "f32[2*n]"' in text
    with pytest.raises(Exception, match=r"2\*n is 6"):
        run_stablehlo(text, [np.ones(3, np.float32), np.ones(5, np.float32)])


def test_sizes_that_data_decides_have_no_place() -> None:
    graph = monograph.trace(lambda x: F.nonzero(x > 0.0), "f32[n]")
    with pytest.raises(UnsupportedError, match="nonzero"):
        to_stablehlo(graph)


def test_a_size_that_no_input_tells_is_named() -> None:
    graph = Graph()
    n = Symbol("n")
    x = graph.add_input("x", TensorType(f32, (n * n,)))
    graph.set_outputs([x])
    with pytest.raises(UnsupportedError, match="no input's shape tells the size n"):
        to_stablehlo(graph)
