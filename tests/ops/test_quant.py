"""quantize, dequantize and fake_quantize: exact values, granularities, torch, type rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from monograph.autodiff.vjp import grad
from monograph.errors import TypeRuleError
from monograph.frontends.trace import trace
from monograph.ir.interpret import interpret
from monograph.ir.types import DTYPES
from monograph.ir.verify import verify
from monograph.ops import reduce
from monograph.ops.quant import STORAGE_DTYPES, dequantize, fake_quantize, quantize


def run(function: Callable[..., Any], *arrays: Any) -> Any:
    operands = [np.asarray(array) for array in arrays]
    graph = trace(function, *operands)
    verify(graph)
    return interpret(graph, operands)[0]


def f32(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def test_ties_round_to_even_before_the_zero_point_is_added() -> None:
    x = f32(0.5, 1.5, 2.5, -0.5, -1.5, -2.5)
    np.testing.assert_array_equal(run(lambda x: quantize(x, 1.0), x), [0, 2, 2, 0, -2, -2])
    np.testing.assert_array_equal(run(lambda x: quantize(x, 1.0, 1), x), [1, 3, 3, 1, -1, -1])


@pytest.mark.parametrize("dtype", [d for d in STORAGE_DTYPES if d.is_integer], ids=str)
def test_integers_saturate_and_nan_is_zero(dtype: Any) -> None:
    limits = ml_dtypes.iinfo(dtype.numpy)
    x = f32(np.inf, -np.inf, 1e30, -1e30, np.nan, 1.0)
    got = run(lambda x: quantize(x, 0.5, dtype=dtype), x).astype(np.int64)
    one = min(2, int(limits.max))
    expected = [limits.max, limits.min, limits.max, limits.min, 0, one]
    np.testing.assert_array_equal(got, np.array(expected, np.int64))


@pytest.mark.parametrize("dtype", [d for d in STORAGE_DTYPES if d.is_float], ids=str)
def test_small_floats_saturate_at_their_largest_number(dtype: Any) -> None:
    largest = float(ml_dtypes.finfo(dtype.numpy).max)
    got = run(lambda x: quantize(x, 1.0, dtype=dtype), f32(np.inf, -1e30, largest * 2, 1.0, 0.3))
    rounded = float(np.asarray(0.3, np.float32).astype(dtype.numpy))
    expected = [largest, -largest, largest, 1.0, rounded]
    np.testing.assert_array_equal(got.astype(np.float64), expected)


def test_nan_stays_in_a_float_that_has_it() -> None:
    assert np.isnan(run(lambda x: quantize(x, 1.0, dtype="f8e5m2"), f32(np.nan)).astype(np.float32))
    assert run(lambda x: quantize(x, 1.0, dtype="f4e2m1fn"), f32(np.nan)).astype(np.float32) == 0


def test_32_bit_integers_are_exact() -> None:
    x = np.array([2.0**31 - 1, -(2.0**31), 16777217.0])
    got = run(lambda x: quantize(x, np.asarray(1.0), dtype="i32"), x)
    np.testing.assert_array_equal(got, [2**31 - 1, -(2**31), 16777217])
    back = run(lambda x: dequantize(x, 1.0, dtype="f64"), got)
    np.testing.assert_array_equal(back, x)


@pytest.mark.parametrize("dtype", ["u8", "i8"])
def test_per_tensor_agrees_with_torch(dtype: str) -> None:
    x = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32) * 20
    kind = torch.quint8 if dtype == "u8" else torch.qint8
    reference = torch.quantize_per_tensor(torch.tensor(x), 0.25, 3, kind)
    stored = run(lambda x: quantize(x, 0.25, 3, dtype), x)
    np.testing.assert_array_equal(stored, reference.int_repr().numpy())
    real = run(lambda q: dequantize(q, 0.25, 3), stored)
    np.testing.assert_array_equal(real, reference.dequantize().numpy())


def test_per_axis_agrees_with_torch() -> None:
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32) * 20
    scale, point = np.array([0.25, 0.5, 1, 0.125]), np.array([0, 5, -5, 100], np.int8)
    reference = torch.quantize_per_channel(
        torch.tensor(x), torch.tensor(scale), torch.tensor(point), 1, torch.qint8
    )
    scales = scale.astype(np.float32)
    stored = run(lambda x, s, z: quantize(x, s, z, axis=-1), x, scales, point)
    np.testing.assert_array_equal(stored, reference.int_repr().numpy())
    real = run(lambda q, s, z: dequantize(q, s, z, axis=1), stored, scales, point)
    np.testing.assert_array_equal(real, reference.dequantize().numpy())


@pytest.mark.parametrize("axis", [0, 1])
def test_blocks_have_a_scale_each(axis: int) -> None:
    x = np.arange(1, 21, dtype=np.float32).reshape(4, 5)
    shape = [4, 5]
    shape[axis] = -(-shape[axis] // 2)
    scale = np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape) / 4
    point = np.arange(np.prod(shape), dtype=np.int8).reshape(shape)
    stored = run(lambda x, s, z: quantize(x, s, z, "i8", axis, 2), x, scale, point)
    real = run(lambda q, s, z: dequantize(q, s, z, axis=axis, block=2), stored, scale, point)
    for place in np.ndindex(x.shape):
        part = tuple(i // 2 if a == axis else i for a, i in enumerate(place))
        assert stored[place] == np.round(x[place] / scale[part]) + point[part]
        assert real[place] == (np.float32(stored[place]) - point[part]) * scale[part]


def test_symbolic_blocks() -> None:
    def function(x: Any, scale: Any) -> Any:
        return dequantize(quantize(x, scale, axis=1, block=4), scale, axis=1, block=4)

    graph = trace(function, "f32[n, m]", "f32[n, (m+3)//4]")
    assert str(graph.outputs[0].type) == "f32[n, m]"
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    got = interpret(graph, [x, np.ones((2, 2), np.float32)])[0]
    np.testing.assert_array_equal(got, x)


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
def test_what_fits_survives_the_round_trip(dtype: str) -> None:
    x = np.arange(-8, 8).astype(DTYPES[dtype].numpy)
    got = run(lambda x: dequantize(quantize(x, 0.5, dtype="i8"), 0.5, dtype=dtype), x)
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(got, x)


def test_the_scale_of_dequantize_has_a_gradient() -> None:
    graph = grad(trace(lambda q, s: reduce.sum(dequantize(q, s, 2, axis=0)), "i8[2, 3]", "f32[2]"))
    q = np.arange(6, dtype=np.int8).reshape(2, 3)
    np.testing.assert_array_equal(interpret(graph, [q, f32(1, 2)])[0], (q - 2).sum(1))


@pytest.mark.parametrize("axis", [None, 1])
def test_fake_quantize_and_its_gradient_agree_with_torch(axis: int | None) -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(6, 4)).astype(np.float32) * 6
    weight = generator.normal(size=(6, 4)).astype(np.float32)
    scale, point = (f32(0.25)[0], np.int32(3)) if axis is None else (
        f32(0.25, 0.5, 1, 0.125), np.array([0, 3, -3, 7], np.int32)
    )  # fmt: skip

    def function(x: Any, weight: Any) -> Any:
        return reduce.sum(fake_quantize(x, scale, point, -16, 15, axis) * weight)

    leaf = torch.tensor(x, requires_grad=True)
    if axis is None:
        theirs = torch.fake_quantize_per_tensor_affine(leaf, 0.25, 3, -16, 15)
    else:
        theirs = torch.fake_quantize_per_channel_affine(
            leaf, torch.tensor(scale), torch.tensor(point), axis, -16, 15
        )
    (theirs * torch.tensor(weight)).sum().backward()
    ours = run(lambda x: fake_quantize(x, scale, point, -16, 15, axis), x)
    np.testing.assert_array_equal(ours, theirs.detach().numpy())
    gradient = interpret(grad(trace(function, x, weight), [0]), [x, weight])[0]
    assert 0 < np.count_nonzero(gradient) < gradient.size
    np.testing.assert_array_equal(gradient, leaf.grad.numpy())


def test_fake_quantize_is_quantize_and_back() -> None:
    x = np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32) * 9
    scale = np.array([[0.5, 0.25]] * 3, np.float32)

    def really(x: Any) -> Any:
        return dequantize(quantize(x, scale, axis=1, block=4, dtype="i4"), scale, axis=1, block=4)

    fake = run(lambda x: fake_quantize(x, scale, low=-8, high=7, axis=1, block=4), x)
    np.testing.assert_array_equal(fake, run(really, x))


ERRORS: list[tuple[str, Callable[..., Any]]] = [
    ("a real operand", lambda x: quantize(np.arange(3), 1.0)),
    ("a real operand", lambda x: quantize(x, 1)),
    ("not stored in this dtype", lambda x: quantize(x, 1.0, dtype="i64")),
    ("not stored in this dtype", lambda x: quantize(x, 1.0, dtype="f32")),
    ("not stored in this dtype", lambda x: dequantize(x, 1.0)),
    ("zero point does not fit", lambda x: quantize(x, 1.0, 300)),
    ("scale has the wrong shape", lambda x: quantize(x, f32(1))),
    ("scale has the wrong shape", lambda x: quantize(x, f32(1, 2, 3), axis=1)),
    (
        "scale has the wrong shape",
        lambda x: quantize(x, np.ones((2, 3), np.float32), axis=1, block=2),
    ),
    ("zero point has the wrong shape", lambda x: quantize(x, 1.0, np.zeros(4, np.int8))),
    ("axis 2 is out of range", lambda x: quantize(x, f32(1), axis=2)),
    ("blocks lie along an axis", lambda x: quantize(x, 1.0, block=2)),
    ("blocks lie along an axis", lambda x: quantize(x, 1.0, axis=0, block=0)),
    ("result is a real number", lambda x: dequantize(quantize(x, 1.0), 1.0, dtype="i32")),
    ("range is empty", lambda x: fake_quantize(x, 1.0, low=3, high=2)),
]


@pytest.mark.parametrize(("message", "function"), ERRORS)
def test_refused(message: str, function: Callable[..., Any]) -> None:
    with pytest.raises(TypeRuleError, match=message):
        trace(function, "f32[2, 4]")


def test_a_zero_point_of_another_dtype_is_refused_by_the_op() -> None:
    from monograph.ops.quant import Quantize

    with pytest.raises(TypeRuleError, match="another dtype than what is stored"):
        trace(lambda x, s, z: Quantize(DTYPES["i8"])(x, s, z), "f32[2]", "f32[]", "u8[]")
