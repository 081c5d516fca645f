"""What is special about resizing: every mode of torch's, coordinates, scales, symbolic sizes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from monograph.errors import EvaluationError
from monograph.frontends.trace import trace
from monograph.ir.dims import Symbol
from monograph.ir.interpret import interpret
from monograph.ir.types import TensorType, f32
from monograph.ops.resize import Resize, resize
from tests.ops.against_torch import agree, draw
from tests.ops.running import assert_same, refuses, run, run_decomposed

NEAREST = {
    "nearest": {"coordinates": "asymmetric", "rounding": "floor"},
    "nearest-exact": {"coordinates": "half_pixel", "rounding": "round_prefer_ceil"},
}
SMOOTH = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}
SIZES = [1, 2, 3, 4, 5, 6, 7, 9, 10, 13]


def smooth_options(mode: str, corners: bool) -> dict[str, Any]:
    return {
        "mode": "cubic" if "cubic" in mode else "linear",
        "coordinates": "align_corners" if corners else "half_pixel",
    }


@pytest.mark.parametrize("mode", NEAREST)
@pytest.mark.parametrize("wanted", SIZES)
def test_nearest_neighbours_agree_with_torch(mode: str, wanted: int) -> None:
    for size in (1, 3, 5, 6):
        agree(
            lambda x: resize(x, (wanted, 4), mode="nearest", **NEAREST[mode]),
            lambda x: F.interpolate(x, (wanted, 4), mode=mode),
            draw(2, 3, size, 6),
        )


@pytest.mark.parametrize("mode", NEAREST)
def test_nearest_neighbours_agree_with_torch_to_the_last_bit_of_f32_coordinates(mode: str) -> None:
    for size in (7, 10, 49, 100):
        x = np.arange(size, dtype=np.float32).reshape(1, 1, size)
        for wanted in range(1, 160, 3):
            ours = run(lambda x, n=wanted: resize(x, (n,), mode="nearest", **NEAREST[mode]), x)
            assert_same(ours, F.interpolate(torch.tensor(x), (wanted,), mode=mode).numpy())


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("mode", SMOOTH)
@pytest.mark.parametrize("wanted", SIZES)
def test_smooth_modes_agree_with_torch(mode: str, wanted: int, corners: bool) -> None:
    rank = SMOOTH[mode]
    sizes = (wanted, 6, 4)[:rank]
    for size in (1, 4, 6):
        agree(
            lambda x: resize(x, sizes, **smooth_options(mode, corners)),
            lambda x: F.interpolate(x, sizes, mode=mode, align_corners=corners),
            draw(2, 2, *(size, 5, 3)[:rank]),
        )


@pytest.mark.parametrize("mode", [*NEAREST, "bilinear", "bicubic"])
@pytest.mark.parametrize("scales", [(2.0, 1.5), (0.5, 0.25), (1.7, 0.6), (1.0, 3.0)])
def test_scales_are_used_as_they_are_given(mode: str, scales: tuple[float, float]) -> None:
    smooth = mode not in NEAREST
    options = smooth_options(mode, False) if smooth else NEAREST[mode]
    agree(
        lambda x: resize(x, scales=scales, **options),
        lambda x: F.interpolate(
            x, scale_factor=scales, mode=mode, align_corners=False if smooth else None
        ),
        draw(1, 2, 8, 7),
    )


@pytest.mark.parametrize("mode", [*NEAREST, "bilinear", "bicubic"])
def test_symbolic_sizes(mode: str) -> None:
    corners = [None] if mode in NEAREST else [False, True]
    for corner in corners:
        options = NEAREST[mode] if corner is None else smooth_options(mode, corner)
        agree(
            lambda x, options=options: resize(
                x, (x.shape[2] * 2, (x.shape[3] + 1) // 2), **options
            ),
            lambda x, corner=corner: F.interpolate(x, (10, 4), mode=mode, align_corners=corner),
            draw(2, 3, 5, 7),
            types=["f64[n, c, h, w]"],
        )


def test_symbolic_sizes_times_exact_scales_are_formulas() -> None:
    graph = trace(lambda x: resize(x, scales=(2.0, 0.75)), "f32[n, c, h, w]")
    assert str(graph.outputs[0].type) == "f32[n, c, 2*h, 3*w//4]"
    refuses("rounded fraction", lambda x: resize(x, scales=(0.1,)), "f32[n, c, h]")


def test_coordinates_by_hand() -> None:
    x = np.array([[0.0, 10.0, 20.0, 30.0]])

    def linear(count: int, coordinates: str) -> np.ndarray:
        return run(Resize((1,), (count,), (), "linear", coordinates), x)[0]

    np.testing.assert_allclose(linear(2, "half_pixel"), [5, 25])
    np.testing.assert_allclose(linear(2, "align_corners"), [0, 30])
    np.testing.assert_allclose(linear(2, "asymmetric"), [0, 20])
    np.testing.assert_allclose(linear(1, "half_pixel"), [15])
    np.testing.assert_allclose(linear(1, "pytorch_half_pixel"), [0])
    np.testing.assert_allclose(linear(1, "align_corners"), [0])
    np.testing.assert_allclose(linear(8, "half_pixel")[:3], [0, 2.5, 7.5])


def test_roundings_of_a_half() -> None:
    x = np.arange(4.0)
    halves = {"floor": 0, "ceil": 1, "round_prefer_floor": 0, "round_prefer_ceil": 1}
    for rounding, first in halves.items():  # two elements look at 0.5 and 2.5
        assert_same(
            run(Resize((0,), (2,), (), "nearest", "half_pixel", rounding), x), [first, first + 2]
        )


def test_equal_sizes_copy_every_bit() -> None:
    x = np.array([[np.nan, np.inf, -np.inf, -0.0]], np.float32)
    for mode in ("nearest", "linear", "cubic"):
        assert_same(run(Resize((1,), (4,), (), mode), x), x)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.bool_, np.complex64])
def test_nearest_takes_any_dtype(dtype: type) -> None:
    x = np.array([0, 1, 1, 0]).astype(dtype)
    op = Resize((0,), (8,), (), "nearest", "asymmetric", "floor")
    for got in (run(op, x), run_decomposed(op, x)):
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, np.repeat(x, 2))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_rounded_once(dtype: type) -> None:
    x = draw(1, 2, 5, 6).astype(dtype)
    op = Resize((2, 3), (9, 4), (), "cubic")
    exact = run(op, x.astype(np.float32)).astype(dtype)
    for got in (run(op, x), run_decomposed(op, x)):
        assert got.dtype == dtype
        step = float(ml_dtypes.finfo(dtype).eps)
        np.testing.assert_allclose(
            got.astype(np.float32), exact.astype(np.float32), rtol=step, atol=1e-6
        )


def test_what_does_not_fit_is_refused() -> None:
    refuses("no such mode", Resize((0,), (2,), (), "area"), "f32[4]")
    refuses("no such coordinates", Resize((0,), (2,), (), "linear", "corners"), "f32[4]")
    refuses("no such rounding", Resize((0,), (2,), (), "linear", "half_pixel", "up"), "f32[4]")
    refuses("mode linear needs floats", Resize((0,), (2,), (), "linear"), "i32[4]")
    refuses("axis 1 is out of range", Resize((1,), (2,)), "f32[4]")
    refuses("axes and sizes do not fit", Resize((0, 0), (2, 2)), "f32[4]")
    refuses("axes and sizes do not fit", Resize((0,), (2, 2)), "f32[4]")
    refuses("scales do not fit", Resize((0,), (2,), (1.0, 1.0)), "f32[4]")
    refuses("scales do not fit", Resize((0,), (2,), (-1.0,)), "f32[4]")
    refuses("nothing to interpolate", Resize((0,), (2,)), "f32[0]")
    refuses("nothing to interpolate", Resize((0,), (-2,)), "f32[4]")
    refuses("sizes or scales", lambda x: resize(x), "f32[4]")
    refuses("no such scale", lambda x: resize(x, scales=(0.0,)), "f32[4]")
    refuses("axes do not fit", lambda x: resize(x, (2, 2), axes=(0,)), "f32[4]")
    refuses("axes do not fit", lambda x: resize(x, (2, 2)), "f32[4]")


def test_nothing_to_interpolate_is_found_at_run_time_if_not_before() -> None:
    graph = trace(lambda x: resize(x, (3,)), TensorType(f32, (Symbol("n", 0),)))
    with pytest.raises(EvaluationError, match="nothing to interpolate"):
        interpret(graph, [np.zeros(0, np.float32)])
