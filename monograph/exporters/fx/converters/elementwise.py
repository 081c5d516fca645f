"""Element by element: torch's function of the same meaning, mostly of the same name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from monograph.exporters.fx.emitter import TABLE, FxEmitter, Term, refuse_empty, refuse_uncomputed
from monograph.frontends.torch.types import dtype_to_torch
from monograph.ir.graph import Node
from monograph.ir.op import Op
from monograph.ir.types import DType, Kind, f32, f64, u64
from monograph.ops.activation import Celu, Elu, Gelu, Softplus
from monograph.ops.bitcast import Bitcast
from monograph.ops.elementwise.arithmetic import (
    Divide,
    Fmod,
    Power,
    TruncateDivide,
)
from monograph.ops.elementwise.bits import ShiftLeft, ShiftRight
from monograph.ops.elementwise.convert import Cast, Conj, Imag, Real, StopGradient
from monograph.ops.elementwise.rounding import Ceil, Floor, Round, Sign, Trunc
from monograph.ops.gamma import Polygamma
from monograph.ops.rectifier import Hardtanh, LeakyRelu

WORDS: Mapping[str, Callable[..., Any]] = {
    "abs": torch.abs,
    "add": torch.add,
    "acos": torch.acos,
    "acosh": torch.acosh,
    "asin": torch.asin,
    "asinh": torch.asinh,
    "atan": torch.atan,
    "atan2": torch.atan2,
    "atanh": torch.atanh,
    "bitwise_and": torch.bitwise_and,
    "bitwise_not": torch.bitwise_not,
    "bitwise_or": torch.bitwise_or,
    "bitwise_xor": torch.bitwise_xor,
    "complex": torch.complex,
    "copysign": torch.copysign,
    "cos": torch.cos,
    "cosh": torch.cosh,
    "equal": torch.eq,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "erf_inv": torch.erfinv,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "greater": torch.gt,
    "greater_equal": torch.ge,
    "is_finite": torch.isfinite,
    "is_inf": torch.isinf,
    "is_nan": torch.isnan,
    "less": torch.lt,
    "less_equal": torch.le,
    "log": torch.log,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "log2": torch.log2,
    "logical_and": torch.logical_and,
    "logical_not": torch.logical_not,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "multiply": torch.mul,
    "negate": torch.neg,
    "not_equal": torch.ne,
    "reciprocal": torch.reciprocal,
    "relu": torch.relu,
    "rsqrt": torch.rsqrt,
    "sigmoid": torch.sigmoid,
    "sin": torch.sin,
    "sinh": torch.sinh,
    "sqrt": torch.sqrt,
    "square": torch.square,
    "subtract": torch.sub,
    "tan": torch.tan,
    "tanh": torch.tanh,
    "where": torch.where,
    "airy_ai": torch.special.airy_ai,
    "bessel_i0": torch.special.i0,
    "bessel_i0e": torch.special.i0e,
    "bessel_i1": torch.special.i1,
    "bessel_i1e": torch.special.i1e,
    "bessel_j0": torch.special.bessel_j0,
    "bessel_j1": torch.special.bessel_j1,
    "bessel_k0": torch.special.modified_bessel_k0,
    "bessel_k0e": torch.special.scaled_modified_bessel_k0,
    "bessel_k1": torch.special.modified_bessel_k1,
    "bessel_k1e": torch.special.scaled_modified_bessel_k1,
    "bessel_y0": torch.special.bessel_y0,
    "bessel_y1": torch.special.bessel_y1,
    "spherical_bessel_j0": torch.special.spherical_bessel_j0,
    "digamma": torch.digamma,
    "erfcx": torch.special.erfcx,
    "igamma": torch.special.gammainc,
    "igammac": torch.special.gammaincc,
    "lgamma": torch.lgamma,
    "log_ndtr": torch.special.log_ndtr,
    "ndtr": torch.special.ndtr,
    "ndtri": torch.special.ndtri,
    "zeta": torch.special.zeta,
    "hardsigmoid": torch.nn.functional.hardsigmoid,
    "hardswish": torch.nn.functional.hardswish,
    "log_sigmoid": torch.nn.functional.logsigmoid,
    "mish": torch.nn.functional.mish,
    "relu6": torch.nn.functional.relu6,
    "selu": torch.nn.functional.selu,
    "silu": torch.nn.functional.silu,
    "softsign": torch.nn.functional.softsign,
}
"""Ops that are one function of torch, called on the operands alone."""

IN_DOUBLE = frozenset({
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_k0", "bessel_k0e", "bessel_k1", "bessel_k1e",
    "bessel_y0", "bessel_y1", "log_ndtr", "spherical_bessel_j0",
})  # fmt: skip
"""Functions that torch has for f32 and f64 alone; narrower floats are widened for them."""


def _word(emitter: FxEmitter, node: Node, op: Op) -> Term:
    operands = emitter.operands(node)
    dtype = node.operands[0].dtype
    if op.name in IN_DOUBLE and dtype not in (f32, f64):
        wide = [emitter.cast(each, f32) for each in operands]
        return emitter.cast(emitter.call(WORDS[op.name], *wide), node.result.dtype)
    return emitter.call(WORDS[op.name], *operands)


TABLE.writes_each(WORDS, _word, unless=refuse_uncomputed)


def _is_float(node: Node) -> str | None:
    return (
        None if node.result.dtype.is_float else f"{node.op.name} of {node.result.dtype} is guarded"
    )


def _refuse(node: Node) -> str | None:
    return refuse_uncomputed(node) or _is_float(node)


@TABLE.writes(Divide, unless=refuse_uncomputed)
def _divide(emitter: FxEmitter, node: Node, op: Divide) -> Term:
    a, b = emitter.operands(node)
    if not node.result.dtype.is_integer:
        return emitter.call(torch.div, a, b)
    return _guard_division(
        emitter, node, lambda divisor: emitter.call(torch.div, a, divisor, rounding_mode="trunc")
    )


@TABLE.writes(TruncateDivide, unless=refuse_uncomputed)
def _truncate_divide(emitter: FxEmitter, node: Node, op: TruncateDivide) -> Term:
    a, b = emitter.operands(node)
    if node.result.dtype.is_float:
        return emitter.call(torch.trunc, emitter.call(torch.div, a, b))
    return _guard_division(
        emitter, node, lambda divisor: emitter.call(torch.div, a, divisor, rounding_mode="trunc")
    )


@TABLE.writes(Fmod, unless=refuse_uncomputed)
def _fmod(emitter: FxEmitter, node: Node, op: Fmod) -> Term:
    a, b = emitter.operands(node)
    if node.result.dtype.is_float:
        return emitter.call(torch.fmod, a, b)
    return _guard_division(emitter, node, lambda divisor: emitter.call(torch.fmod, a, divisor), 0)


def _guard_division(
    emitter: FxEmitter, node: Node, divide_by: Callable[[Term], Term], by_minus_one: int = -1
) -> Term:
    """A division of integers that is 0 where the divisor is, and never traps.

    By -1, where the smallest number traps, too, it is the dividend times ``by_minus_one``.
    """
    a, b = emitter.operands(node)
    zero = emitter.call(torch.eq, b, 0)
    unsafe = zero
    if node.result.dtype.kind is Kind.SIGNED:
        unsafe = emitter.call(torch.logical_or, zero, emitter.call(torch.eq, b, -1))
    safe = emitter.call(torch.where, unsafe, emitter.call(torch.ones_like, b), b)
    made = divide_by(safe)
    if node.result.dtype.kind is Kind.SIGNED:
        turned = emitter.call(torch.mul, a, by_minus_one)
        made = emitter.call(torch.where, emitter.call(torch.eq, b, -1), turned, made)
    return emitter.call(torch.where, zero, emitter.call(torch.zeros_like, made), made)


@TABLE.writes(Power, unless=_refuse)
def _power(emitter: FxEmitter, node: Node, op: Power) -> Term:
    return emitter.call(torch.pow, *emitter.operands(node))


ROUNDING: Mapping[str, Callable[..., Any]] = {
    "ceil": torch.ceil, "floor": torch.floor, "round": torch.round, "trunc": torch.trunc,
}  # fmt: skip


@TABLE.writes(Ceil, Floor, Round, Trunc, unless=refuse_uncomputed)
def _rounding(emitter: FxEmitter, node: Node, op: Op) -> Term:
    (x,) = emitter.operands(node)
    return emitter.call(ROUNDING[op.name], x) if node.result.dtype.is_float else x


@TABLE.writes(Sign, unless=refuse_uncomputed)
def _sign(emitter: FxEmitter, node: Node, op: Sign) -> Term:
    """torch's sign of NaN is 0, and of -0.0 is 0.0; ours are NaN and -0.0."""
    (x,) = emitter.operands(node)
    if node.result.dtype.is_complex:
        return emitter.call(torch.sgn, x)
    made = emitter.call(torch.sign, x)
    if not node.result.dtype.is_float:
        return made
    special = emitter.call(
        torch.logical_or, emitter.call(torch.isnan, x), emitter.call(torch.eq, x, 0)
    )
    return emitter.call(torch.where, special, x, made)


@TABLE.writes(ShiftLeft, ShiftRight, unless=refuse_uncomputed)
def _shift(emitter: FxEmitter, node: Node, op: Op) -> Term:
    """Beyond the width, torch leaves it to the processor."""
    a, b = emitter.operands(node)
    width = node.result.dtype.bits
    beyond = emitter.call(
        torch.logical_or, emitter.call(torch.lt, b, 0), emitter.call(torch.ge, b, width)
    )
    if op.name == "shift_right":
        last = emitter.call(torch.full_like, b, width - 1)
        safe = emitter.call(torch.where, beyond, last, b)
        made = emitter.call(torch.bitwise_right_shift, a, safe)
        if node.result.dtype.kind is Kind.SIGNED:
            return made
    else:
        safe = emitter.call(torch.where, beyond, emitter.call(torch.zeros_like, b), b)
        made = emitter.call(torch.bitwise_left_shift, a, safe)
    return emitter.call(torch.where, beyond, emitter.call(torch.zeros_like, made), made)


@TABLE.writes(Real)
def _real(emitter: FxEmitter, node: Node, op: Real) -> Term:
    return emitter.call(torch.real, *emitter.operands(node))


@TABLE.writes(Imag)
def _imag(emitter: FxEmitter, node: Node, op: Imag) -> Term:
    return emitter.call(torch.imag, *emitter.operands(node))


@TABLE.writes(Conj)
def _conj(emitter: FxEmitter, node: Node, op: Conj) -> Term:
    return emitter.call(torch.conj_physical, *emitter.operands(node))


@TABLE.writes(StopGradient)
def _stop_gradient(emitter: FxEmitter, node: Node, op: StopGradient) -> Term:
    return emitter.method("detach", *emitter.operands(node))


def _refuse_cast(node: Node) -> str | None:
    if node.operands[0].dtype.is_float and node.result.dtype is u64:
        return "torch's conversion of large floats to u64 is the processor's"
    return None


@TABLE.writes(Cast, unless=_refuse_cast)
def _cast(emitter: FxEmitter, node: Node, op: Cast) -> Term:
    """Floats beyond an integer's range saturate here; torch leaves them to the processor."""
    (x,) = emitter.operands(node)
    own, dtype = node.operands[0].dtype, op.dtype
    if own.is_float and own.bits == 8 and not dtype.is_float:
        x, own = emitter.cast(x, f32), f32
    if not (own.is_float and dtype.is_integer):
        return emitter.cast(x, dtype)
    return _saturate(emitter, x, dtype)


def _saturate(emitter: FxEmitter, x: Term, dtype: DType) -> Term:
    signed = dtype.kind is Kind.SIGNED
    end = 2.0 ** (dtype.bits - signed)
    least, most = (-int(end) if signed else 0), int(end) - 1
    wide = emitter.cast(x, f64)
    target = dtype_to_torch(dtype)
    high = emitter.call(torch.ge, wide, end)
    low = emitter.call(torch.lt, wide, float(least))
    outside = emitter.call(torch.logical_or, high, low)
    outside = emitter.call(torch.logical_or, outside, emitter.call(torch.isnan, wide))
    inside = emitter.call(torch.where, outside, emitter.call(torch.zeros_like, wide), wide)
    made = emitter.method("to", inside, target)
    if dtype.kind is Kind.UNSIGNED and dtype.bits > 8:
        return made
    for where, end_value, name in ((high, most, "largest"), (low, least, "smallest")):
        made = emitter.call(
            torch.where, where, emitter.constant(np.array(end_value, dtype.numpy), name), made
        )
    return made


@TABLE.writes(Bitcast, unless=refuse_empty)
def _bitcast(emitter: FxEmitter, node: Node, op: Bitcast) -> Term:
    (x,) = emitter.operands(node)
    solid = emitter.method("contiguous", x)
    return emitter.call(torch.ops.aten.view, solid, dtype=dtype_to_torch(op.dtype))


@TABLE.writes(Gelu, unless=refuse_uncomputed)
def _gelu(emitter: FxEmitter, node: Node, op: Gelu) -> Term:
    (x,) = emitter.operands(node)
    return emitter.call(torch.nn.functional.gelu, x, approximate=op.approximate)


@TABLE.writes(Elu, unless=refuse_uncomputed)
def _elu(emitter: FxEmitter, node: Node, op: Elu) -> Term:
    return emitter.call(torch.nn.functional.elu, *emitter.operands(node), alpha=op.alpha)


@TABLE.writes(Celu, unless=refuse_uncomputed)
def _celu(emitter: FxEmitter, node: Node, op: Celu) -> Term:
    return emitter.call(torch.nn.functional.celu, *emitter.operands(node), alpha=op.alpha)


def _refuse_no_threshold(node: Node) -> str | None:
    assert isinstance(node.op, Softplus)
    if not math.isfinite(node.op.threshold):
        return "torch's softplus has a threshold"
    return refuse_uncomputed(node)


@TABLE.writes(Softplus, unless=_refuse_no_threshold)
def _softplus(emitter: FxEmitter, node: Node, op: Softplus) -> Term:
    (x,) = emitter.operands(node)
    function = torch.nn.functional.softplus
    return emitter.call(function, x, beta=op.beta, threshold=op.threshold)


@TABLE.writes(LeakyRelu, unless=refuse_uncomputed)
def _leaky_relu(emitter: FxEmitter, node: Node, op: LeakyRelu) -> Term:
    (x,) = emitter.operands(node)
    return emitter.call(torch.nn.functional.leaky_relu, x, negative_slope=op.slope)


@TABLE.writes(Hardtanh, unless=refuse_uncomputed)
def _hardtanh(emitter: FxEmitter, node: Node, op: Hardtanh) -> Term:
    (x,) = emitter.operands(node)
    return emitter.call(torch.nn.functional.hardtanh, x, min_val=op.low, max_val=op.high)


@TABLE.writes(Polygamma, unless=refuse_uncomputed)
def _polygamma(emitter: FxEmitter, node: Node, op: Polygamma) -> Term:
    return emitter.call(torch.special.polygamma, op.order, *emitter.operands(node))
