"""Ops on the bits of floats: frexp, ldexp, nextafter, hash_tensor."""

from __future__ import annotations

from typing import NamedTuple

from monograph import functional as F
from monograph.errors import UnsupportedError
from monograph.frontends.torch.node import TorchNode, as_list
from monograph.frontends.torch.registry import converter
from monograph.ir.graph import Value
from monograph.ir.types import DType, bf16, f16, f32, f64, i16, i32, i64, u64


class _Format(NamedTuple):
    """How a float lies in its bits: the integer of its width, and the size of its fraction."""

    integer: DType
    fraction: int
    bias: int


_FORMATS = {
    f64: _Format(i64, 52, 1023),
    f32: _Format(i32, 23, 127),
    f16: _Format(i16, 10, 15),
    bf16: _Format(i16, 7, 127),
}


def _format(dtype: DType) -> _Format:
    found = _FORMATS.get(dtype)
    if found is None:
        raise UnsupportedError(f"the bits of {dtype}")
    return found


@converter("aten.nextafter.default", "prims.nextafter.default")
def _nextafter(node: TorchNode) -> Value:
    x, towards = node.as_result(*list(node.all_arguments().values())[:2])
    integer = _format(x.dtype).integer
    shape = node.result_type().shape
    x, towards = F.expand(x, shape), F.expand(towards, shape)
    bits = F.bitcast(x, integer)
    # Away from zero is one more, in the order of the bits; from zero it is the smallest number.
    outwards = F.equal(F.greater(towards, x), F.greater(x, 0.0))
    step = F.where(outwards, node.value(1, integer), node.value(-1, integer))
    stepped = F.bitcast(F.add(bits, step), x.dtype)
    smallest = F.copysign(F.bitcast(F.ones_like(bits), x.dtype), towards)
    moved = F.where(F.equal(x, 0.0), smallest, stepped)
    still = F.where(F.equal(x, towards), towards, moved)
    missing = F.logical_or(F.is_nan(x), F.is_nan(towards))
    return F.where(missing, float("nan"), still)


@converter("aten.frexp.Tensor", "prims.frexp.default")
def _frexp(node: TorchNode) -> tuple[Value, Value]:
    x: Value = next(iter(node.all_arguments().values()))
    integer, fraction, bias = _format(x.dtype)
    # Subnormal numbers are scaled up first, so that their exponent is in the bits.
    tiny = F.less(F.abs(x), 2.0 ** (1 - bias))
    scaled = F.where(tiny, F.multiply(x, 2.0**fraction), x)
    bits = F.bitcast(scaled, integer)
    field = F.bitwise_and(F.shift_right(bits, fraction), 2 * bias + 1)
    exponent = F.subtract(field, F.where(tiny, bias - 1 + fraction, bias - 1))
    kept = F.bitwise_and(bits, ~((2 * bias + 1) << fraction))
    mantissa = F.bitcast(F.bitwise_or(kept, (bias - 1) << fraction), x.dtype)
    special = F.logical_or(F.equal(x, 0.0), F.logical_not(F.is_finite(x)))
    zero = F.zeros_like(exponent)
    return F.where(special, x, mantissa), F.where(special, zero, exponent)


@converter("aten.hash_tensor.default")
def _hash_tensor(node: TorchNode) -> Value:
    x: Value = node["self"]
    if node["mode"] != 0:
        raise UnsupportedError(f"hash_tensor in mode {node['mode']}")
    wide = x if x.dtype.is_integer else node.value(x, f64)
    bits = F.bitcast(wide, u64) if wide.dtype is f64 else node.value(wide, u64)
    axes = [axis % max(x.rank, 1) for axis in as_list(node["dim"])] or list(range(x.rank))
    for axis in sorted(axes, reverse=True):
        bits = _xor_along(bits, axis) if x.rank else bits
    return F.reshape(bits, node.result_type().shape)


def _xor_along(x: Value, axis: int) -> Value:
    """The exclusive or of all elements along an axis."""
    start = F.zeros((*x.shape[:axis], *x.shape[axis + 1 :]), x.dtype)
    sequence = F.moveaxis(x, axis, 0)
    total: Value = F.scan(lambda sum_, row: (F.bitwise_xor(sum_, row), ()), start, sequence)[0]
    return total
