"""Matrix products in panels: which side is which, what lies beyond the edges, and the results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.ir.types import f32
from monograph.kernel import expr as e
from monograph.kernel.contraction import (
    Contraction,
    as_contraction,
    decode_position,
    k_steps,
    runs_across_k,
    runs_along_k,
    with_k_ordered,
)
from monograph.kernel.evaluate import evaluate_kernel
from monograph.kernel.expr import Buffer
from monograph.kernel.kernel import Kernel, Store
from monograph.targets.cpu.products.packing import panels_of, row_stride, rows_of, tiles_of
from monograph.targets.cpu.products.tiles import Segment
from tests.kernel.build import flat


def contraction(function: Any, *types: str) -> Contraction:
    found = as_contraction(flat(function, *types))
    assert found is not None
    return found


def sizes(found: Contraction) -> dict[str, Any]:
    names = ("batch", "m", "n", "k")
    return {name: found.size(getattr(found, name)) for name in names}


# Recognition.


def test_the_side_that_is_stored_contiguously_is_n() -> None:
    found = contraction(lambda x, w: x @ w, "f32[5, 7]", "f32[7, 9]")
    assert sizes(found) == {"batch": 1, "m": 5, "n": 9, "k": 7}
    turned = contraction(lambda x, w: F.transpose(x @ w, (1, 0)), "f32[5, 7]", "f32[7, 9]")
    assert sizes(turned) == {"batch": 1, "m": 9, "n": 5, "k": 7}


def test_axes_of_both_operands_are_the_batch() -> None:
    found = contraction(lambda x, w: x @ w, "f32[2, 3, 5, 7]", "f32[2, 3, 7, 9]")
    assert sizes(found) == {"batch": 6, "m": 5, "n": 9, "k": 7}


def test_an_operand_without_the_batch_makes_it_rows() -> None:
    found = contraction(lambda x, w: x @ w, "f32[4, 5, 7]", "f32[7, 9]")
    assert sizes(found) == {"batch": 1, "m": 20, "n": 9, "k": 7}


def test_an_epilogue_does_not_hide_the_product() -> None:
    found = contraction(lambda x, w, b: F.relu(x @ w + b), "f32[5, 7]", "f32[7, 9]", "f32[9]")
    assert sizes(found) == {"batch": 1, "m": 5, "n": 9, "k": 7}


@pytest.mark.parametrize(
    ("function", "types"),
    [
        (lambda x: F.sum(F.exp(x), axis=1), ["f32[5, 7]"]),
        (lambda x, y: F.max(x * y, axis=1), ["f32[5, 7]", "f32[5, 7]"]),
        (lambda x: F.sum(x, axis=1) * F.max(x, axis=1), ["f32[5, 7]"]),
    ],
    ids=["no product", "no sum", "two reductions"],
)
def test_what_is_no_contraction(function: Any, types: list[str]) -> None:
    assert as_contraction(flat(function, *types)) is None


# Packing.


def test_rows_are_an_odd_number_of_cache_lines_apart() -> None:
    (store,) = rows_of(contraction(lambda x, w: x @ w, "f32[5, 3]", "f32[3, 9]")).stores
    stride = row_stride(3)
    assert isinstance(stride, int)
    assert stride * 4 // 64 % 2 == 1
    assert repr(store.position[0]) == f"i_depth+{stride}*i_row"
    assert store.buffer.shape == (5 * stride,)
    assert repr(store.value) == "b0[i_depth+3*i_row]"


def test_panels_hold_zeros_beyond_the_edge() -> None:
    packing = panels_of(contraction(lambda x, w: x @ w, "f32[5, 3]", "f32[3, 9]"), 8)
    w = np.arange(1, 28, dtype=np.float32).reshape(3, 9)
    (panels,) = evaluate_kernel(packing, [w.reshape(-1)])
    wide = np.zeros((3, 16), np.float32)
    wide[:, :9] = w
    np.testing.assert_array_equal(panels.reshape(2, 3, 8), wide.reshape(3, 2, 8).transpose(1, 0, 2))


# Several axes of k.


def windows() -> Contraction:
    """A convolution over padded pixels with their channels together, and weights as given."""
    x, w = Buffer("b0", f32, (10 * 10 * 4,)), Buffer("b1", f32, (8 * 4 * 3 * 3,))
    y = Buffer("o0", f32, (64 * 8,))
    pixels, outputs = (e.axis("_i0", 8), e.axis("_i1", 8)), e.axis("_i2", 8)
    channel, down, across = e.axis("_r0", 4), e.axis("_r1", 3), e.axis("_r2", 3)
    i, j, o = pixels[0].symbol, pixels[1].symbol, outputs.symbol
    c, p, q = channel.symbol, down.symbol, across.symbol
    element = e.load(x, (e.index(((i + p) * 10 + j + q) * 4 + c),))
    weight = e.load(w, (e.index(((o * 4 + c) * 3 + p) * 3 + q),))
    total = e.reduce("sum", (channel, down, across), e.apply("multiply", element, weight))
    place = e.index((i * 8 + j) * 8 + o)
    kernel = Kernel("windows", (x, w), (y,), (*pixels, outputs), (Store(y, (place,), total),))
    found = as_contraction(kernel)
    assert found is not None
    return found


def test_k_is_read_in_the_order_of_memory() -> None:
    found = with_k_ordered(windows(), windows().left, merge=False)
    assert [axis.extent for axis in found.k] == [3, 3, 4]
    assert k_steps(found.left, found) == (40, 4, 1)


def test_axes_of_k_without_a_gap_become_one_if_the_other_side_is_packed() -> None:
    found = with_k_ordered(windows(), windows().left, merge=True)
    assert [axis.extent for axis in found.k] == [3, 12]
    assert k_steps(found.left, found) == (40, 1)


def test_a_position_that_walks_in_one_stride_is_not_divided() -> None:
    axes = (e.axis("_i0", 4), e.axis("_i1", 6))
    i, j = (axis.symbol for axis in axes)
    place = e.axis("_i_flat", 24).symbol
    together = e.load(Buffer("b0", f32, (24,)), (e.index(6 * i + j),))
    assert repr(decode_position(together, axes, place)) == "b0[i_flat]"
    padded = e.load(Buffer("b0", f32, (32,)), (e.index(8 * i + j),))
    assert repr(decode_position(padded, axes, place)) == "b0[i_flat%6+8*(i_flat//6)]"


# Results.

SHAPES = {
    "odd": ((37, 29), (29, 43)),
    "one row": ((1, 129), (129, 257)),
    "three rows": ((3, 65), (65, 130)),
    "batch": ((3, 2, 13, 19), (3, 2, 19, 33)),
    "broadcast on the right": ((5, 17, 31), (31, 40)),
    "broadcast on the left": ((17, 31), (5, 31, 40)),
    "broadcast both ways": ((4, 1, 9, 33), (3, 33, 24)),
    "a matrix and a vector": ((70, 300), (300,)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_products_are_right_to_the_rounding(name: str) -> None:
    rng = np.random.default_rng(7)
    a, b = (rng.normal(size=shape).astype(np.float32) for shape in SHAPES[name])
    graph = monograph.trace(lambda a, b: F.relu(a @ b * 0.5), a, b)
    executable = compile_graph(graph, Options(cache=False))
    exact = np.maximum(a.astype(np.float64) @ b.astype(np.float64) * 0.5, 0)
    size = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    (got,) = executable(a, b)
    assert got.shape == exact.shape
    assert np.all(np.abs(got - exact) <= 4 * np.finfo(np.float32).eps * size)


def test_a_product_of_unknown_size_is_right() -> None:
    graph = monograph.trace(lambda a, b: a @ b, "f32[n, 40]", "f32[40, m]")
    executable = compile_graph(graph, Options(cache=False))
    rng = np.random.default_rng(7)
    for n, m in ((1, 1), (3, 17), (30, 50), (64, 64)):
        a, b = rng.normal(size=(n, 40)), rng.normal(size=(40, m))
        got = executable(a.astype(np.float32), b.astype(np.float32))[0]
        np.testing.assert_allclose(got, a @ b, rtol=1e-4, atol=1e-4)


def test_tiles_hold_a_few_steps_of_every_row_side_by_side() -> None:
    found = contraction(lambda x, w: x @ w, "f32[5, 16]", "f32[16, 8]")
    x = np.arange(80, dtype=np.float32)
    (got,) = evaluate_kernel(tiles_of(found, height=3, depth=8), [x])
    # two rounds of k, two tiles, two groups, three rows, four steps
    packed, rows = got.reshape(2, 2, 2, 3, 4), x.reshape(5, 16)
    np.testing.assert_array_equal(packed[0, 0, 1], rows[:3, 4:8])
    np.testing.assert_array_equal(packed[1, 0, 0], rows[:3, 8:12])
    np.testing.assert_array_equal(packed[0, 1, 0], rows[[3, 4, 4], :4])


def test_rows_that_lie_side_by_side_stay_so_in_tiles() -> None:
    found = contraction(lambda x, w: F.transpose(x, (1, 0)) @ w, "f32[4, 7]", "f32[4, 8]")
    assert runs_across_k(found)
    x = np.arange(28, dtype=np.float32)
    segments = (Segment(0, 3, 1), Segment(3, 2, 2))
    (got,) = evaluate_kernel(tiles_of(found, 3, 4, segments), [x])
    packed, columns = got.reshape(3, 4, 3), x.reshape(4, 7)
    np.testing.assert_array_equal(packed[0], columns[:, :3])
    np.testing.assert_array_equal(packed[1], columns[:, 3:6])
    np.testing.assert_array_equal(packed[2], columns[:, 4:7])  # its own rows are 5 and 6


@pytest.mark.parametrize(
    ("left", "shape", "runs"),
    [
        (lambda x: x, "f32[12, 16]", True),
        (lambda x: F.cast(x, "f32"), "bf16[12, 16]", True),
        (lambda x: F.transpose(x, (1, 0)), "f32[16, 12]", False),
    ],
)
def test_whether_rows_of_the_left_operand_run_along_k(left: Any, shape: str, runs: bool) -> None:
    found = as_contraction(flat(lambda x, w: left(x) @ w, shape, "f32[16, 32]"))
    assert found is not None
    assert runs_along_k(found) is runs


def test_tiles_of_fewer_rows_come_after_the_others() -> None:
    found = contraction(lambda x, w: x @ w, "f32[7, 4]", "f32[4, 8]")
    x = np.arange(28, dtype=np.float32)
    segments = (Segment(0, 3, 1), Segment(3, 2, 2))
    (got,) = evaluate_kernel(tiles_of(found, 3, 4, segments), [x])
    packed, rows = got.reshape(3, 3, 4), x.reshape(7, 4)
    np.testing.assert_array_equal(packed[0], rows[:3])
    np.testing.assert_array_equal(packed[1, :2], rows[3:5])
    np.testing.assert_array_equal(packed[2, :2], rows[5:7])
