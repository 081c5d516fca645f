"""Kernels read back from their text are equal: of models, with symbolic sizes, layouts, guards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.errors import GraphError, ParseError
from monograph.fusion.regions import fuse_regions
from monograph.ir.dims import Symbol
from monograph.ir.graph import Graph
from monograph.ir.types import bool_, f32, i64
from monograph.kernel import expr as e
from monograph.kernel.evaluate import evaluate_kernel
from monograph.kernel.expr import Buffer
from monograph.kernel.kernel import Kernel, Store
from monograph.kernel.layout import make_layout
from monograph.kernel.parse import parse_kernel, parse_kernels
from monograph.kernel.verify_kernel import verify_kernel
from monograph.passes.manager import run_pipeline
from monograph.targets.base import BuildOptions
from monograph.targets.names import resolve_target
from tests.kernel.build import flat

WEIGHT = np.ones((64, 64), np.float32)


def block(x: Any) -> Any:
    """A transformer's layer, without heads."""
    q, k, v = (F.matmul(x, WEIGHT) for _ in range(3))
    scores = F.softmax(F.matmul(q, F.swapaxes(k, -1, -2)) * 0.125, -1)
    return F.layer_norm(x + F.gelu(F.matmul(F.matmul(scores, v), WEIGHT)), WEIGHT[0], WEIGHT[1])


def images(x: Any) -> Any:
    """Convolutions with borders, a pool, and a resize that gathers."""
    found = F.relu(F.conv(x, np.ones((8, 3, 3, 3), np.float32), padding=1, stride=2))
    pooled = F.max_pool(F.conv(found, np.ones((8, 1, 3, 3), np.float32), groups=8), 2)
    return F.concat([F.resize(pooled, (7, 9)), F.resize(pooled, (7, 9), mode="linear")], 1)


def kernels_of(graph: Graph, target: str = "cpu") -> tuple[Kernel, ...]:
    """The kernels that a target makes of a graph."""
    made = resolve_target(target)
    run_pipeline(graph, made.lowering())
    assembled = made.assemble(
        graph, fuse_regions(graph, made.computes, made.fusion_limits), BuildOptions()
    )
    assembled.close()
    return assembled.kernels


@pytest.mark.parametrize("target", ["cpu", "cpu:aarch64"])
@pytest.mark.parametrize(
    "function, type_",
    [
        *((block, each) for each in ("f32[16, 64]", "f32[n, 64]")),
        *((images, each) for each in ("f32[1, 3, 33, 40]", "f32[n, 3, 33, w]")),
    ],
)
def test_kernels_of_models_read_back(function: Any, type_: str, target: str) -> None:
    found = kernels_of(monograph.trace(function, type_), target)
    assert len(found) > 2
    assert [parse_kernel(str(each)) for each in found] == list(found)
    assert parse_kernels("\n".join(map(str, found))) == list(found)


def test_a_size_may_be_called_as_a_loop_variable_is() -> None:
    kernel = flat(lambda x: F.sum(x * x, axis=1), "f32[i0, r0_0]")
    assert "for _i0 < i0:" in str(kernel) and "where 1 <= i0, 1 <= r0_0:" in str(kernel)
    assert parse_kernel(str(kernel)) == kernel


def test_ranges_of_sizes_are_kept() -> None:
    graph = monograph.parse(
        "graph @f(%x: f32[n, m]) -> (f32[n, m]) where 2 <= n <= 64, m <= 5 {\n"
        "  %y = exp(%x) : f32[n, m]\n  return %y\n}"
    )
    (kernel,) = kernels_of(graph)
    assert "where m <= 5, 2 <= n <= 64:" in str(kernel).replace("1 <= m", "m")
    assert parse_kernel(str(kernel)) == kernel


def test_layouts_guards_and_every_kind_of_number_are_kept() -> None:
    seen = Buffer("b0", f32, (2, 3, 4), make_layout((2, 3, 4), (0, 2, 1), (0, 0, 1)))
    made = Buffer("o0", f32, (8,))
    i, inner = e.axis("_i0", 8), e.axis("_r0", 3)
    place = (e.index(0), e.index(inner.symbol), e.index(i.symbol % 4))
    numbers = (0.1, -0.0, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"))
    value = e.reduce("sum", (inner,), e.load(seen, place))
    for each in numbers:
        value = e.apply("add", value, e.literal(each, f32))
    moved = e.apply("add", e.index(i.symbol), e.literal(1, i64))
    is_third = e.apply("equal", moved, e.index(3), dtype=bool_)
    guard = e.apply("logical_and", is_third, e.literal(True, bool_))
    kernel = Kernel("kept", (seen,), (made,), (i,), (Store(made, place[2:], value, guard),))
    verify_kernel(kernel)
    assert parse_kernel(str(kernel)) == kernel
    without = replace(kernel, stores=(replace(kernel.stores[0], guard=None),))
    assert without.digest != kernel.digest


def test_a_kernel_of_text_computes() -> None:
    kernel = parse_kernel(
        "kernel scale(b0: f32[n]) -> (o0: f32[n]) where 1 <= n:\n"
        "  for i0 < n:\n"
        "    v0 = (b0[n-i0-1] * 2.0:f32)\n"
        "    o0[i0] = (v0 + maximum(v0, 1.0:f32))\n"
    )
    (size,) = kernel.sizes
    (got,) = evaluate_kernel(kernel, [np.float32([1, 2, 3])], {size: 3})
    np.testing.assert_array_equal(got, [12, 8, 4])


GOOD = "kernel k(b0: f32[8]) -> (o0: f32[8]):\n  for i0 < 8:\n    o0[i0] = exp(b0[i0])\n"


@pytest.mark.parametrize(
    "old, new, problem",
    [
        ("kernel k", "kernl k", "expected `kernel"),
        ("i0 < 8:", "i0 to 8:", "expected a loop"),
        ("b0[i0]", "b0[i1]", "unknown symbol 'i1'"),
        ("b0[i0]", "b1[i0]", "it has no buffer b1"),
        ("b0: f32[8]", "b0: f32<8>", "expected a buffer"),
        ("o0[i0] = ", "o0[i0] : ", "expected `buffer"),
        ("exp(b0[i0])", "exp(b0[i0]", "unknown function"),
    ],
)
def test_what_is_no_kernel_is_an_error_that_says_why(old: str, new: str, problem: str) -> None:
    parse_kernel(GOOD)
    with pytest.raises(ParseError, match=problem):
        parse_kernel(GOOD.replace(old, new))


@pytest.mark.parametrize(
    "old, new, problem",
    [
        ("(o0: f32[8])", "(o0: f16[8])", "o0 holds f16"),
        ("b0[i0]", "b0{2, 4}[0, cast<f32>(i0)]", "a position is an integer"),
        ("(b0: f32[8])", "(b0: f32[8], b0: f32[8])", "two buffers have one name"),
        ("o0[i0]", "b0[i0]", "only results are written"),
    ],
)
def test_a_malformed_kernel_is_refused(old: str, new: str, problem: str) -> None:
    kernel = parse_kernel(GOOD.replace(old, new))
    with pytest.raises(GraphError, match=problem):
        verify_kernel(kernel)


def test_a_loop_variable_that_nothing_binds_is_refused() -> None:
    kernel = parse_kernel(GOOD)
    loose = e.load(kernel.inputs[0], (e.index(Symbol("_r0", 0, 7)),))
    store = replace(kernel.stores[0], value=loose)
    with pytest.raises(GraphError, match="no loop binds _r0"):
        verify_kernel(replace(kernel, stores=(store,)))
