"""Matrix products in panels: which side is which, what lies beyond the edges, and the results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.ir.types import f32, f64
from monograph.kernel import expr as e
from monograph.kernel.contraction import Contraction, Tile, as_contraction, decoded, pack
from monograph.kernel.expr import Buffer
from monograph.runtime.compile import Options, compile_graph
from monograph.targets.cpu.contract import choose_tile, is_worth_packing
from monograph.targets.cpu.machine import machine_named
from tests.kernel.build import flat
from tests.kernel.evaluate_kernel import run_kernel

MACHINE = machine_named("x86-64")


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
        (lambda x, w: x @ w, ["i32[5, 7]", "i32[7, 9]"]),
        (lambda x: F.sum(x, axis=1) * F.max(x, axis=1), ["f32[5, 7]"]),
    ],
    ids=["no product", "no sum", "integers", "two reductions"],
)
def test_what_is_no_contraction(function: Any, types: list[str]) -> None:
    assert as_contraction(flat(function, *types)) is None


# Packing.


def test_panels_hold_zeros_beyond_the_edge() -> None:
    packed = pack(contraction(lambda x, w: x @ w, "f32[5, 3]", "f32[3, 9]"), Tile(4, 8))
    x = np.arange(1, 16, dtype=np.float32).reshape(5, 3)
    (panels,) = run_kernel(packed.left, [x.reshape(-1)])
    expected = np.zeros((8, 3), np.float32)
    expected[:5] = x
    np.testing.assert_array_equal(
        panels.reshape(2, 3, 4), expected.reshape(2, 4, 3).transpose(0, 2, 1)
    )
    w = np.arange(1, 28, dtype=np.float32).reshape(3, 9)
    (panels,) = run_kernel(packed.right, [w.reshape(-1)])
    wide = np.zeros((3, 16), np.float32)
    wide[:, :9] = w
    np.testing.assert_array_equal(panels.reshape(2, 3, 8), wide.reshape(3, 2, 8).transpose(1, 0, 2))


def test_rows_beyond_the_edge_are_guarded_only_where_there_are_some() -> None:
    found = contraction(lambda x, w: x @ w, "f32[8, 3]", "f32[3, 16]")
    assert all(store.guard is None for store in pack(found, Tile(4, 8)).product.stores)
    guards = [str(store.guard) for store in pack(found, Tile(3, 8)).product.stores]
    assert guards == ["(3*i_row < 8)", "(3*i_row+1 < 8)", "(3*i_row+2 < 8)"]


def test_the_product_reads_panels_and_what_the_epilogue_needs() -> None:
    types = ("f32[8, 3]", "f32[3, 16]", "f32[16]")
    packed = pack(contraction(lambda x, w, b: F.relu(x @ w + b), *types), Tile(4, 8))
    assert [buffer.name for buffer in packed.product.inputs] == ["left", "right", "b2"]
    assert packed.epilogue_inputs == (2,)


def test_a_position_that_walks_in_one_stride_is_not_divided() -> None:
    axes = (e.axis("_i0", 4), e.axis("_i1", 6))
    i, j = (axis.symbol for axis in axes)
    place = e.axis("_i_flat", 24).symbol
    together = e.load(Buffer("b0", f32, (24,)), (e.index(6 * i + j),))
    assert repr(decoded(together, axes, place)) == "b0[i_flat]"
    padded = e.load(Buffer("b0", f32, (32,)), (e.index(8 * i + j),))
    assert repr(decoded(padded, axes, place)) == "b0[i_flat%6+8*(i_flat//6)]"


# Tiles.


def test_a_tile_fills_the_registers() -> None:
    found = contraction(lambda x, w: x @ w, "f32[512, 64]", "f32[64, 512]")
    assert choose_tile(found, MACHINE) == Tile(6, 16)


def test_a_tile_is_not_taller_than_needed() -> None:
    found = contraction(lambda x, w: x @ w, "f32[4, 64]", "f32[64, 512]")
    assert choose_tile(found, MACHINE) == Tile(4, 16)


@pytest.mark.parametrize(("rows", "tile"), [(1, Tile(1, 64)), (2, Tile(2, 32)), (3, Tile(3, 32))])
def test_few_rows_have_wide_tiles(rows: int, tile: Tile) -> None:
    found = contraction(lambda x, w: x @ w, f"f32[{rows}, 64]", "f32[64, 512]")
    if rows == 1:  # a row alone is an axis of size one, which is dropped
        assert found.m == ()
    assert choose_tile(found, MACHINE) == tile


def test_doubles_have_half_the_columns() -> None:
    found = contraction(lambda x, w: x @ w, "f64[512, 64]", "f64[64, 512]")
    assert found.reduction.dtype is f64
    assert choose_tile(found, MACHINE).columns == 8


def test_packing_has_to_pay() -> None:
    small = contraction(lambda x, w: x @ w, "f32[4, 8]", "f32[8, 16]")
    assert not is_worth_packing(small, constant=True)
    few = contraction(lambda x, w: x @ w, "f32[2, 512]", "f32[512, 512]")
    assert is_worth_packing(few, constant=True)
    assert not is_worth_packing(few, constant=False)
    many = contraction(lambda x, w: x @ w, "f32[64, 512]", "f32[512, 512]")
    assert is_worth_packing(many, constant=False)


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
