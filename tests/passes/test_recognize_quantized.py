"""Products of dequantized numbers become products of integers, where that is the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monograph import functional as F
from monograph.frontends.trace import trace
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from monograph.ir.types import Array
from monograph.passes.dce import DeadCodeElimination
from monograph.passes.fold_constants import FoldConstants
from monograph.passes.recognize import Recognize
from monograph.rewrite.constants import real_splat

RNG = np.random.default_rng(0)
POINT = np.asarray(7, np.uint8)
SCALES = (RNG.random(5) + 0.5).astype(np.float32)


def bytes_of(*shape: int, dtype: Any = np.int8) -> Array:
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)


def matmul(x: Any, w: Any) -> Any:
    real = F.dequantize(x, 0.1, POINT)
    return F.matmul(real, F.dequantize(w, SCALES, np.arange(5, dtype=np.int8), axis=1))


def linear(x: Any, w: Any) -> Any:
    real = F.dequantize(x, 0.1, POINT)
    return F.linear(real, F.dequantize(w, SCALES, axis=0), np.arange(5, dtype=np.float32))


def conv(x: Any, w: Any) -> Any:
    real = F.dequantize(x, 0.1, POINT)
    weight = F.dequantize(w, SCALES, axis=0)
    return F.conv(real, weight, np.arange(5, dtype=np.float32), padding=1)


CASES = {
    "matmul": (matmul, bytes_of(2, 3, 8, dtype=np.uint8), bytes_of(8, 5)),
    "linear": (linear, bytes_of(3, 8, dtype=np.uint8), bytes_of(5, 8)),
    "conv": (conv, bytes_of(1, 4, 6, 6, dtype=np.uint8), bytes_of(5, 4, 3, 3)),
}


def product_dtypes(graph: Graph) -> set[str]:
    products = ("matmul", "linear", "conv")
    return {str(n.operands[0].dtype) for n in graph.nodes if n.op.name in products}


@pytest.mark.parametrize("name", CASES)
def test_integers_are_multiplied_and_sums_are_scaled(name: str) -> None:
    function, x, w = CASES[name]
    graph = trace(function, x, w)
    (expected,) = interpret(graph, [x, w])
    assert Recognize().run(graph).changed
    assert product_dtypes(graph) == {"i32"}
    (got,) = interpret(graph, [x, w])
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4)


def test_scales_along_the_sum_stay() -> None:
    scales = np.ones(8, np.float32)
    graph = trace(
        lambda x, w: F.matmul(F.dequantize(x, 0.1), F.dequantize(w, scales, axis=0)),
        bytes_of(3, 8),
        bytes_of(8, 5),
    )
    Recognize().run(graph)
    assert product_dtypes(graph) == {"f32"}


def test_a_sum_that_a_word_might_not_hold_stays() -> None:
    depth = 1 << 17
    graph = trace(
        lambda x, w: F.matmul(F.dequantize(x, 0.1), F.dequantize(w, 0.1)),
        f"i8[1, {depth}]",
        f"i8[{depth}, 2]",
    )
    Recognize().run(graph)
    assert product_dtypes(graph) == {"f32"}


def requantized(activation: Any, point: int) -> Graph:
    """A convolution of bytes whose results are stored as bytes again."""

    def model(x: Any, w: Any) -> Any:
        real = activation(conv(x, w))
        return F.quantize(real, 7.5, np.asarray(point, np.uint8), "u8")

    return trace(model, *CASES["conv"][1:])


def simplified(graph: Graph) -> list[str]:
    passes = (FoldConstants(), Recognize(), FoldConstants(), Recognize(), FoldConstants())
    for each in (*passes, DeadCodeElimination()):
        each.run(graph)
    return [node.op.name for node in graph.nodes]


@pytest.mark.parametrize(
    "activation, point, stays",
    [
        (F.relu, 0, False),
        (F.relu, 3, True),
        (F.relu6, 0, True),
        (lambda x: F.clip(x, 0.0, 255 * 7.5), 0, False),
        (lambda x: F.clip(x, -900.0, 5000.0), 100, False),
        (lambda x: F.clip(x, -700.0, 5000.0), 100, True),
        (lambda x: F.hardtanh(x, 0.0, 1.0), 0, True),
    ],
)
def test_a_clip_to_what_bytes_hold_anyway_goes(activation: Any, point: int, stays: bool) -> None:
    graph = requantized(activation, point)
    inputs = CASES["conv"][1:]
    (expected,) = interpret(graph, inputs)
    names = simplified(graph)
    assert stays == any(name in ("relu", "relu6", "clip", "hardtanh") for name in names)
    (got,) = interpret(graph, inputs)
    assert np.max(np.abs(got.astype(int) - expected)) <= 1
    assert np.mean(got != expected) < 0.01


def test_steps_of_a_result_are_folded_into_the_scales() -> None:
    graph = requantized(F.relu, 3)
    names = simplified(graph)
    (stored,) = [node for node in graph.nodes if node.op.name == "quantize"]
    assert names.count("multiply") == 1
    assert real_splat(stored.operands[1]) == 1


def test_sums_of_bytes_are_scaled_in_steps_of_the_result() -> None:
    def model(x: Any, y: Any) -> Any:
        total = F.dequantize(x, 0.1, POINT) + F.dequantize(y, 0.3)
        return F.quantize(total, 0.2, POINT, "u8")

    inputs = [bytes_of(40, 50, dtype=np.uint8), bytes_of(40, 50)]
    graph = trace(model, *inputs)
    (expected,) = interpret(graph, inputs)
    assert simplified(graph).count("dequantize") == 2
    (got,) = interpret(graph, inputs)
    assert np.max(np.abs(got.astype(int) - expected)) <= 1


def test_what_others_read_too_is_not_computed_twice() -> None:
    def model(x: Any, w: Any) -> Any:
        real = conv(x, w)
        return real, F.quantize(real, 7.5, None, "i8")

    graph = trace(model, *CASES["conv"][1:])
    names = simplified(graph)
    assert names.count("add") == 1


def test_an_input_is_divided_as_it_is_said() -> None:
    graph = trace(lambda x: F.quantize(F.reshape(x, (6,)), 0.3), "f32[2, 3]")
    assert not Recognize().run(graph).changed
