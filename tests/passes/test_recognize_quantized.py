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
from monograph.passes.recognize import Recognize

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
