"""What ops mean for the real and the imaginary part; see ``complex_numbers``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from monograph.exporters.onnx.complex_numbers import Pair, Part, part_dtype
from monograph.ir.build import apply, cast_to
from monograph.ir.data import ArrayData
from monograph.ir.graph import Node, Value
from monograph.ir.op import Op
from monograph.ir.types import bool_
from monograph.ops import (
    control,
    cumulative,
    data,
    index,
    joining,
    linalg,
    memory,
    reduce,
    slicing,
    trigonometry,
)
from monograph.ops import elementwise as e
from monograph.ops import math as m
from monograph.ops import shape as s

Rule = Callable[..., Any]

_RULES: dict[type[Op], Rule] = {}


def rule_of(op: Op) -> Rule | None:
    """What rewrites an op: ``rule(node, *operands)`` gives its results as parts."""
    return _RULES[type(op)] if has_rule(type(op)) else None


def has_rule(op: type[Op]) -> bool:
    """Whether it is said what an op means for the parts."""
    from monograph.exporters.onnx import complex_fourier  # noqa: F401  # registers its rules

    return op in _RULES


def rule(*ops: type[Op]) -> Callable[[Rule], Rule]:
    """Register the rule of these ops."""

    def register(function: Rule) -> Rule:
        for op in ops:
            _RULES[op] = function
        return function

    return register


@rule(
    *(e.Add, e.Subtract, e.Negate, e.Where, e.StopGradient, memory.Copy),
    *(s.Reshape, s.Expand, s.Transpose, s.Squeeze, s.Unsqueeze, s.Tile),
    *(joining.Concat, joining.Stack, joining.Split, slicing.Slice, slicing.Flip, slicing.Roll),
    *(slicing.PadBorder, reduce.Sum, cumulative.Cumsum),
    *(index.Gather, index.Take, index.TakeAlongAxis, index.Embedding),
)
def part_by_part(node: Node, *operands: Part) -> Any:
    """Ops that do the same to both parts; real operands (indices, conditions) serve both."""
    made = [
        node.op(*(each if isinstance(each, Value) else each[part] for each in operands))
        for part in (0, 1)
    ]
    if len(node.results) == 1:
        return Pair(*made)
    return [Pair(*parts) for parts in zip(*made, strict=True)]


@rule(index.Scatter, index.PutAlongAxis)
def written(node: Node, *operands: Part) -> Any:
    """Setting and adding are linear; a product or a maximum of pairs is neither."""
    assert isinstance(node.op, index.Scatter | index.PutAlongAxis)
    if node.op.mode not in ("set", "add"):
        raise NotImplementedError
    return part_by_part(node, *operands)


@rule(slicing.Pad)
def pad(node: Node, x: Pair) -> Pair:
    """The fill is a real number."""
    assert isinstance(node.op, slicing.Pad)
    return Pair(apply(replace(node.op, value=float(node.op.value)), x.real),
                apply(replace(node.op, value=0.0), x.imag))  # fmt: skip


# Making and taking apart --------------------------------------------------------------------------


@rule(data.Constant, data.Weight)
def constant(node: Node) -> Pair:
    """The two parts, as constants (weights) of their own."""
    op: Any = node.op
    array, dtype = op.data.array(), part_dtype(op.data.dtype)
    parts = ((array.real, "real"), (array.imag, "imag"))
    made = [
        replace(op, data=ArrayData(np.ascontiguousarray(part), dtype), **_label(op, suffix))
        for part, suffix in parts
    ]
    return Pair(*(apply(each) for each in made))


def _label(op: Any, suffix: str) -> dict[str, str]:
    return {"label": f"{op.label}.{suffix}"} if isinstance(op, data.Weight) else {}


@rule(data.Full)
def full(node: Node) -> Pair:
    """A real number everywhere."""
    assert isinstance(node.op, data.Full)
    part = part_dtype(node.op.dtype)
    values = (float(node.op.value), 0.0)
    return Pair(*(apply(data.Full(node.op.shape, value, part)) for value in values))


@rule(e.Complex)
def complex_(node: Node, a: Value, b: Value) -> Pair:
    """Two real values, as they are."""
    shape = node.result.shape
    return Pair(s.expand(a, shape), s.expand(b, shape))


@rule(e.Real)
def real(node: Node, x: Pair) -> Value:
    """The first part."""
    return x.real


@rule(e.Imag)
def imag(node: Node, x: Pair) -> Value:
    """The second part."""
    return x.imag


@rule(e.Conj)
def conj(node: Node, x: Pair) -> Pair:
    """The second part, negated."""
    return Pair(x.real, e.negate(x.imag))


@rule(e.Cast)
def cast(node: Node, x: Part) -> Part:
    """From real and complex numbers to complex ones, and to bool."""
    assert isinstance(node.op, e.Cast)
    if node.op.dtype is bool_:
        assert isinstance(x, Pair)
        return e.logical_or(e.not_equal(x.real, 0.0), e.not_equal(x.imag, 0.0))
    part = part_dtype(node.op.dtype)
    if isinstance(x, Pair):
        return Pair(*(cast_to(each, part) for each in x))
    number = cast_to(x, part)
    return Pair(number, data.zeros_like(number))


# Arithmetic ---------------------------------------------------------------------------------------


def product(a: Pair, b: Pair, times: Callable[[Value, Value], Value] = e.multiply) -> Pair:
    """(a + bi)(c + di), for any product that is linear in both factors."""
    return Pair(
        times(a.real, b.real) - times(a.imag, b.imag),
        times(a.real, b.imag) + times(a.imag, b.real),
    )


def quotient(a: Pair, b: Pair) -> Pair:
    """a / b, both divided by the larger part of b first, so that its square cannot overflow."""
    larger = e.maximum(e.abs(b.real), e.abs(b.imag))
    safe = e.where(e.equal(larger, 0.0), 1.0, larger)
    c, d = b.real / safe, b.imag / safe
    size = (c * c + d * d) * safe
    over = product(a, Pair(c, e.negate(d)))
    return Pair(over.real / size, over.imag / size)


def modulus(x: Pair) -> Value:
    """√(a² + b²), of which the squares cannot overflow; an infinite part makes it infinite."""
    a, b = e.abs(x.real), e.abs(x.imag)
    larger = e.maximum(a, b)
    plain = e.logical_or(e.equal(larger, 0.0), e.is_inf(larger))
    safe = e.where(plain, 1.0, larger)
    size = safe * m.sqrt(m.square(a / safe) + m.square(b / safe))
    either = e.logical_or(e.is_inf(a), e.is_inf(b))
    return e.where(either, math.inf, e.where(plain, larger, size))


def exponential(x: Pair) -> Pair:
    """eᵃ (cos b + i sin b)."""
    size = m.exp(x.real)
    return Pair(size * m.cos(x.imag), size * m.sin(x.imag))


def logarithm(x: Pair) -> Pair:
    """log|z| + i arg z."""
    return Pair(m.log(modulus(x)), e.atan2(x.imag, x.real))


@rule(e.Multiply)
def multiply(node: Node, a: Pair, b: Pair) -> Pair:
    """(a + bi)(c + di)."""
    return product(a, b)


@rule(m.Square)
def square(node: Node, x: Pair) -> Pair:
    """A product with itself."""
    return product(x, x)


@rule(e.Divide)
def divide(node: Node, a: Pair, b: Pair) -> Pair:
    """See ``quotient``."""
    return quotient(a, b)


@rule(m.Reciprocal)
def reciprocal(node: Node, x: Pair) -> Pair:
    """1 / z."""
    return quotient(Pair(data.ones_like(x.real), data.zeros_like(x.real)), x)


@rule(e.Abs)
def abs_(node: Node, x: Pair) -> Value:
    """See ``modulus``."""
    return modulus(x)


@rule(e.Sign)
def sign(node: Node, x: Pair) -> Pair:
    """z / |z|, and 0 for 0."""
    size = modulus(x)
    safe = e.where(e.equal(size, 0.0), 1.0, size)
    return Pair(x.real / safe, x.imag / safe)


@rule(e.Power)
def power(node: Node, a: Pair, b: Pair) -> Pair:
    """exp(b log a); 0 to what has a positive real part is 0, and anything to the 0 is 1."""
    found = exponential(product(b, logarithm(a)))
    is_zero = e.logical_and(e.equal(a.real, 0.0), e.equal(a.imag, 0.0))
    of_zero = e.logical_and(is_zero, b.real > 0.0)
    to_zero = e.logical_and(e.equal(b.real, 0.0), e.equal(b.imag, 0.0))
    parts = (e.where(of_zero, 0.0, part) for part in found)
    return Pair(*(e.where(to_zero, one, part) for one, part in zip((1.0, 0.0), parts, strict=True)))


@rule(m.Exp)
def exp(node: Node, x: Pair) -> Pair:
    """See ``exponential``."""
    return exponential(x)


@rule(m.Log)
def log(node: Node, x: Pair) -> Pair:
    """See ``logarithm``."""
    return logarithm(x)


@rule(m.Sqrt)
def sqrt(node: Node, x: Pair) -> Pair:
    """The root whose real part is not negative; the part that would cancel is divided for."""
    size = m.sqrt((modulus(x) + e.abs(x.real)) * 0.5)
    safe = e.where(e.equal(size, 0.0), 1.0, size)
    other = e.abs(x.imag) / (safe * 2.0)
    left = x.real < 0.0
    return Pair(e.where(left, other, size), e.copysign(e.where(left, size, other), x.imag))


@rule(m.Sin)
def sin(node: Node, x: Pair) -> Pair:
    """sin a cosh b + i cos a sinh b."""
    a, b = x
    return Pair(m.sin(a) * trigonometry.cosh(b), m.cos(a) * trigonometry.sinh(b))


@rule(m.Cos)
def cos(node: Node, x: Pair) -> Pair:
    """cos a cosh b - i sin a sinh b."""
    a, b = x
    return Pair(m.cos(a) * trigonometry.cosh(b), e.negate(m.sin(a) * trigonometry.sinh(b)))


@rule(m.Tanh)
def tanh(node: Node, x: Pair) -> Pair:
    """(sinh 2a + i sin 2b) / (cosh 2a + cos 2b); beyond 20 it is ±1 and the rest is nothing."""
    a, b = e.clip(x.real, -20.0, 20.0) * 2.0, x.imag * 2.0
    size = trigonometry.cosh(a) + m.cos(b)
    return Pair(trigonometry.sinh(a) / size, m.sin(b) / size)


# Comparison ---------------------------------------------------------------------------------------


@rule(e.Equal)
def equal(node: Node, a: Pair, b: Pair) -> Value:
    """Both parts are."""
    return e.logical_and(e.equal(a.real, b.real), e.equal(a.imag, b.imag))


@rule(e.NotEqual)
def not_equal(node: Node, a: Pair, b: Pair) -> Value:
    """Either part is."""
    return e.logical_or(e.not_equal(a.real, b.real), e.not_equal(a.imag, b.imag))


@rule(e.IsNan, e.IsInf)
def either(node: Node, x: Pair) -> Value:
    """Whether it is so for one of the parts."""
    return e.logical_or(node.op(x.real), node.op(x.imag))


@rule(e.IsFinite)
def is_finite(node: Node, x: Pair) -> Value:
    """Whether both parts are."""
    return e.logical_and(node.op(x.real), node.op(x.imag))


# Contractions and running products ----------------------------------------------------------------


@rule(linalg.DotGeneral, linalg.Matmul)
def contraction(node: Node, a: Pair, b: Pair) -> Pair:
    """Four contractions of the parts."""
    return product(a, b, lambda one, other: apply(node.op, one, other))


@rule(reduce.Prod)
def prod(node: Node, x: Pair) -> Pair:
    """The last of the running products, axis by axis."""
    assert isinstance(node.op, reduce.Prod)
    total = x
    for axis in sorted((axis % x.real.rank for axis in node.op.axes), reverse=True):
        total = _running(total, axis, reverse=False)[0]
    return Pair(*(s.reshape(part, node.result.shape) for part in total))


@rule(cumulative.Cumprod)
def cumprod(node: Node, x: Pair) -> Pair:
    """Running products, by a scan."""
    assert isinstance(node.op, cumulative.Cumprod)
    op, axis = node.op, node.op.axis % x.real.rank
    return _running(x, axis, op.reverse, op.exclusive)[1]


def _running(x: Pair, axis: int, reverse: bool, exclusive: bool = False) -> tuple[Pair, Pair]:
    """The product of all along an axis, and the running products."""
    rows = [s.moveaxis(part, axis, 0) for part in x]
    ones = data.ones(rows[0].shape[1:], rows[0].dtype)
    start = (ones, data.zeros_like(ones))

    def step(before: Sequence[Value], item: Sequence[Value]) -> Any:
        after = tuple(product(Pair(*before), Pair(*item)))
        return after, before if exclusive else after

    last, running = control.scan(step, start, tuple(rows), reverse=reverse)
    return Pair(*last), Pair(*(s.moveaxis(part, 0, axis) for part in running))
