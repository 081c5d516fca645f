"""Tensors out of nothing: full, zeros, arange, linspace, eye, and their ``_like`` and ``new_``."""

from __future__ import annotations

from typing import Any

from monograph import functional as F
from monograph.frontends.torch.node import TorchNode
from monograph.frontends.torch.registry import converter
from monograph.ir.dims import SymbolicDim
from monograph.ir.graph import Value
from monograph.ir.types import bool_, f64, i64


def fill_result(node: TorchNode, value: Any) -> Value:
    """``value`` everywhere in the result's shape and dtype."""
    type_ = node.result_type()
    plain = isinstance(value, bool | int | float) and not type_.dtype.is_complex
    if not plain or (type_.dtype.is_integer and value != value):
        return F.expand(node.value(value, type_.dtype), type_.shape)
    if type_.dtype is bool_:
        return F.full(type_.shape, bool(value), bool_)
    if type_.dtype.is_integer:
        return F.expand(node.value(int(value), type_.dtype), type_.shape)
    return F.full(type_.shape, float(value), type_.dtype)


@converter(
    "aten.full.default",
    "aten.full_like.default",
    "aten.new_full.default",
)
def _full(node: TorchNode) -> Value:
    return fill_result(node, node["fill_value"])


@converter("aten.fill.Scalar", "aten.fill.Tensor")
def _fill(node: TorchNode) -> Value:
    return fill_result(node, node["value"])


@converter(
    "aten.zeros.default",
    "aten.zeros_like.default",
    "aten.new_zeros.default",
    "aten.zero.default",
    "aten._efficientzerotensor.default",
    # Memory that nobody has written holds zeros here: the same on every run.
    "aten.empty.memory_format",
    "aten.empty_like.default",
    "aten.empty_permuted.default",
    "aten.empty_strided.default",
    "aten.new_empty.default",
    "aten.new_empty_strided.default",
)
def _zeros(node: TorchNode) -> Value:
    return fill_result(node, 0)


@converter("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def _ones(node: TorchNode) -> Value:
    return fill_result(node, 1)


@converter("aten.arange.default", "aten.arange.start", "aten.arange.start_step")
def _arange(node: TorchNode) -> Value:
    type_ = node.result_type()
    start, step = node.get("start", 0), node.get("step", 1)
    whole = all(isinstance(number, int | SymbolicDim) for number in (start, step))
    wide = i64 if whole else f64
    ramp = F.iota(type_.shape, 0, wide)
    if step != 1:
        ramp = F.multiply(ramp, node.value(step, wide))
    if start != 0:
        ramp = F.add(ramp, node.value(start, wide))
    return node.value(ramp, type_.dtype)


@converter(
    "aten.linspace.default",
    "aten.linspace.Tensor_Tensor",
    "aten.linspace.Tensor_Scalar",
    "aten.linspace.Scalar_Tensor",
)
def _linspace(node: TorchNode) -> Value:
    return node.value(_space_evenly(node), node.result_dtype)


@converter(
    "aten.logspace.default",
    "aten.logspace.Tensor_Tensor",
    "aten.logspace.Tensor_Scalar",
    "aten.logspace.Scalar_Tensor",
)
def _logspace(node: TorchNode) -> Value:
    exponents = _space_evenly(node)
    return node.value(F.power(node.value(float(node["base"]), f64), exponents), node.result_dtype)


def _space_evenly(node: TorchNode) -> Value:
    """Evenly spaced numbers in f64, counted from the nearer end as torch does."""
    (count,) = node.result_type().shape
    start, end = node.value(node["start"], f64), node.value(node["end"], f64)
    ramp = F.iota((count,), 0, f64)
    gaps = node.value(count - 1, f64)
    step = F.divide(F.subtract(end, start), F.maximum(gaps, 1.0))
    from_start = F.add(start, F.multiply(step, ramp))
    from_end = F.subtract(end, F.multiply(step, F.subtract(gaps, ramp)))
    first_half = F.less(ramp, F.floor(F.divide(node.value(count, f64), 2.0)))
    single = F.equal(gaps, 0.0)
    return F.where(F.logical_or(first_half, single), from_start, from_end)


@converter("aten.eye.default", "aten.eye.m")
def _eye(node: TorchNode) -> Value:
    type_ = node.result_type()
    rows, columns = type_.shape
    equal = F.equal(F.iota((rows, columns), 0), F.iota((rows, columns), 1))
    return node.value(equal, type_.dtype)
