"""A graph evaluated on symbols: what each element of its outputs is, as a term for z3.

Integers are bit-vectors of their own width, bools are bools, and floats are IEEE floats of a few
bits (their format may be any: rules do not know it), of their own width, or real numbers. Ops that
only move elements run in NumPy as they are, on arrays of terms; the others are written here once
more, by their documentation and not by their code.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import z3

from monograph.ir.graph import Graph, Node, Value
from monograph.ir.op import Family
from monograph.ir.types import DType, Kind, TensorType


class Floats(Enum):
    """What stands for a float."""

    SMALL = "4 bits of exponent, 4 of significand"
    TRUE = "the dtype's own format"
    REAL = "real numbers"


FORMATS = {"f64": (11, 53), "f32": (8, 24), "f16": (5, 11), "bf16": (8, 8), "f8e5m2": (5, 3)}
SMALL = (4, 4)
NEAREST = z3.RNE()
ROUNDINGS = {"floor": z3.RTN(), "ceil": z3.RTP(), "round": z3.RNE(), "trunc": z3.RTZ()}
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


class Unprovable(Exception):
    """Something that there is no term for."""


@dataclass
class Symbols:
    """Makes terms, and collects what they rest on over the reals."""

    floats: Floats
    defined: list[Any] = field(default_factory=list)
    """Conditions: no division by zero, no root of what is negative."""
    facts: list[Any] = field(default_factory=list)
    """What roots are."""
    constants: dict[str, Any] | None = None
    """The terms that stand for constants, by their contents, if constants are symbols."""
    _numbers: Any = field(default_factory=itertools.count)

    # Sorts and constants --------------------------------------------------------------------------

    def sort(self, dtype: DType) -> Any:
        if dtype.kind is Kind.BOOL:
            return z3.BoolSort()
        if dtype.is_integer:
            return z3.BitVecSort(dtype.bits)
        if not dtype.is_float or (self.floats is Floats.TRUE and dtype.name not in FORMATS):
            raise Unprovable(f"nothing stands for {dtype}")
        if self.floats is Floats.REAL:
            return z3.RealSort()
        return z3.FPSort(*(SMALL if self.floats is Floats.SMALL else FORMATS[dtype.name]))

    def fresh(self, dtype: DType, name: str = "t") -> Any:
        return z3.Const(f"{name}_{next(self._numbers)}", self.sort(dtype))

    def array(self, type_: TensorType, name: str) -> Any:
        made = np.empty(type_.shape, object)
        for place in np.ndindex(*made.shape):
            made[place] = self.fresh(type_.dtype, name)
        return made

    def literal(self, number: Any, dtype: DType) -> Any:
        if dtype.kind is Kind.BOOL:
            return z3.BoolVal(bool(number))
        if dtype.is_integer:
            return z3.BitVecVal(int(number), dtype.bits)
        value = float(number)
        if self.floats is Floats.REAL:
            if not np.isfinite(value):
                raise Unprovable("an infinity is no real number")
            return z3.RealVal(Fraction(value))
        made = z3.FPVal(value, self.sort(dtype))
        if np.isfinite(value) and _as_fraction(made) != Fraction(value):
            raise Unprovable(f"{value} has no float of so few bits")
        return made

    def lifted(self, array: Any, dtype: DType) -> Any:
        """An array of numbers as one of terms."""
        if array.dtype == object:
            return array
        made = np.empty(array.shape, object)
        for place in np.ndindex(*made.shape):
            made[place] = self.literal(array[place], dtype)
        return made

    # Graphs ---------------------------------------------------------------------------------------

    def run(self, graph: Graph, inputs: Sequence[Any]) -> list[Any]:
        """The outputs' elements."""
        known: dict[Value, Any] = dict(zip(graph.inputs, inputs, strict=True))
        for node in graph.nodes:
            results = self._node(node, [known[each] for each in node.operands])
            known.update(zip(node.results, results, strict=True))
        return [self.lifted(known[each], each.dtype) for each in graph.outputs]

    def _node(self, node: Node, operands: list[Any]) -> Sequence[Any]:
        name = node.op.name
        if self.constants is not None and name == "constant":
            element = str(node.op.attributes()["data"].array().tolist())
            term = self.constants.setdefault(element, self.fresh(node.result.dtype, "c"))
            return (np.full(node.result.shape, term, object),)
        if node.regions:
            return self._control(node, operands)
        if all(each.dtype != object for each in operands):
            return _evaluated(node, operands)
        if name in REDUCTIONS:
            return (self._reduced(node, operands[0]),)
        if node.op.family is Family.SHAPE or name in ("take", "stop_gradient"):
            moved = self._terms(node, operands)
            return _evaluated(node, [moved[0], *operands[1:]] if name == "take" else moved)
        if name == "softmax":
            return (self._rows(node, self._terms(node, operands)[0]),)
        if name not in ELEMENTS:
            raise Unprovable(f"there is no term for {name}")
        terms = self._terms(node, operands)
        spread = np.broadcast_arrays(*terms)
        made = np.empty(spread[0].shape, object)
        for place in np.ndindex(*made.shape):
            made[place] = ELEMENTS[name](self, node, *(each[place] for each in spread))
        return (made,)

    def _terms(self, node: Node, operands: list[Any]) -> list[Any]:
        pairs = zip(operands, node.operands, strict=True)
        return [self.lifted(array, value.dtype) for array, value in pairs]

    def _control(self, node: Node, operands: list[Any]) -> Sequence[Any]:
        if node.op.name == "if":
            then, otherwise = (self.run(each, operands[1:]) for each in node.regions)
            chosen = self.lifted(operands[0], node.operands[0].dtype).item()
            pairs = zip(then, otherwise, strict=True)
            return [_each(lambda a, b: z3.If(chosen, a, b), a, b) for a, b in pairs]
        if node.op.name == "while":
            (goes_on,) = self.run(node.regions[0], operands)
            if not z3.is_false(z3.simplify(goes_on.item())):
                raise Unprovable("a loop that may turn")
            return operands
        if node.op.name == "scan":
            return self._scan(node, operands)
        raise Unprovable(f"there is no term for {node.op.name}")

    def _scan(self, node: Node, operands: list[Any]) -> Sequence[Any]:
        carries = int(node.op.attributes()["carries"])
        carried, sequences = operands[:carries], operands[carries:]
        stacked: list[list[Any]] = [[] for _ in node.results[carries:]]
        for step in range(len(sequences[0])):
            rows = [np.asarray(each[step], object) for each in sequences]
            results = self.run(node.regions[0], [*carried, *rows])
            carried = results[:carries]
            for rows_of, row in zip(stacked, results[carries:], strict=True):
                rows_of.append(row)
        return [*carried, *map(np.stack, stacked)]

    def _reduced(self, node: Node, x: Any) -> Any:
        attributes = node.op.attributes()
        axes = tuple(axis % x.ndim for axis in attributes["axes"])
        x = self.lifted(x, node.operands[0].dtype)
        kept = [axis for axis in range(x.ndim) if axis not in axes]
        made = np.empty([x.shape[axis] for axis in kept], object)
        for place in np.ndindex(*made.shape):
            index: list[Any] = [slice(None)] * x.ndim
            for axis, position in zip(kept, place, strict=True):
                index[axis] = position
            made[place] = self._fold(node, list(np.asarray(x[tuple(index)], object).flat))
        return made.reshape(node.result.shape)

    def _rows(self, node: Node, x: Any) -> Any:
        """Some function of each row: nothing is known of it but what it reads."""
        axis = int(node.op.attributes()["axis"]) % x.ndim
        made = np.empty(x.shape, object)
        for place in np.ndindex(*x.shape):
            row = [x[(*place[:axis], k, *place[axis + 1 :])] for k in range(x.shape[axis])]
            sorts = [each.sort() for each in row]
            name = f"{node.op.name}_{place[axis]}_of_{len(row)}"
            made[place] = z3.Function(name, *sorts, sorts[0])(*row)
        return made

    def unknown(self, name: str, a: Any) -> Any:
        """A function of which it is known that it is never below zero, and never -0.0."""
        found = z3.Function(name, a.sort(), a.sort())(a)
        if z3.is_fp(a):
            self.facts.append(z3.Or(z3.fpIsNaN(found), z3.fpIsPositive(found)))
        return found

    def _fold(self, node: Node, terms: list[Any]) -> Any:
        dtype, name = node.result.dtype, node.op.name
        if name in ("max", "min"):
            step = ELEMENTS["maximum" if name == "max" else "minimum"]
            return reduce(lambda a, b: step(self, node, a, b), terms)
        if name in ("any", "all"):
            return (z3.Or if name == "any" else z3.And)(*terms)
        if name == "prod":
            return reduce(lambda a, b: self.multiply(dtype, a, b), terms)
        total = reduce(lambda a, b: self.add(dtype, a, b), terms, self.literal(0, dtype))
        count = self.literal(len(terms), dtype) if name == "mean" else None
        return total if count is None else self.divide(dtype, total, count)

    # Numbers --------------------------------------------------------------------------------------

    def add(self, dtype: DType, a: Any, b: Any) -> Any:
        if dtype.kind is Kind.BOOL:
            return z3.Or(a, b)
        return z3.fpAdd(NEAREST, a, b) if z3.is_fp(a) else a + b

    def multiply(self, dtype: DType, a: Any, b: Any) -> Any:
        if dtype.kind is Kind.BOOL:
            return z3.And(a, b)
        return z3.fpMul(NEAREST, a, b) if z3.is_fp(a) else a * b

    def divide(self, dtype: DType, a: Any, b: Any) -> Any:
        if z3.is_fp(a):
            return z3.fpDiv(NEAREST, a, b)
        self.defined.append(b != 0)
        return a / b

    def negate(self, a: Any) -> Any:
        return z3.fpNeg(a) if z3.is_fp(a) else -a

    def root(self, a: Any) -> Any:
        if z3.is_fp(a):
            return z3.fpSqrt(NEAREST, a)
        found = z3.Real(f"root({a.sexpr()})")
        self.defined.append(a >= 0)
        self.facts.append(z3.Implies(a >= 0, z3.And(found >= 0, found * found == a)))
        return found

    def compare(self, name: str, dtype: DType, a: Any, b: Any) -> Any:
        if dtype.kind is Kind.BOOL:
            a, b = (z3.If(each, z3.BitVecVal(1, 2), z3.BitVecVal(0, 2)) for each in (a, b))
        if name in ("equal", "not_equal"):
            same = z3.fpEQ(a, b) if z3.is_fp(a) else a == b
            return same if name == "equal" else z3.Not(same)
        if name.startswith("greater"):
            name, a, b = name.replace("greater", "less"), b, a
        if z3.is_fp(a):
            return z3.fpLT(a, b) if name == "less" else z3.fpLEQ(a, b)
        if dtype.kind in (Kind.UNSIGNED, Kind.BOOL):
            return z3.ULT(a, b) if name == "less" else z3.ULE(a, b)
        return a < b if name == "less" else a <= b

    def extreme(self, dtype: DType, a: Any, b: Any, *, largest: bool) -> Any:
        first, second = (a, b) if largest else (b, a)
        if not z3.is_fp(a):
            return z3.If(self.compare("less", dtype, first, second), b, a)
        zeros = z3.If(z3.fpIsNegative(first), second, first) if largest else (
            z3.If(z3.fpIsNegative(a), a, b)
        )  # fmt: skip
        ordered = z3.If(z3.fpLT(a, b), b if largest else a, a if largest else b)
        either = z3.If(z3.fpEQ(a, b), zeros, ordered)
        return z3.If(z3.Or(z3.fpIsNaN(a), z3.fpIsNaN(b)), z3.fpNaN(a.sort()), either)

    def clipped(self, dtype: DType, x: Any, low: Any, high: Any) -> Any:
        if low is not None:
            x = self.extreme(dtype, x, self.literal(low, dtype), largest=True)
        if high is not None:
            x = self.extreme(dtype, x, self.literal(high, dtype), largest=False)
        return x

    def power(self, dtype: DType, a: Any, b: Any) -> Any:
        """As products, and over the reals as roots; IEEE's pow has no term."""
        if z3.is_fp(a):
            raise Unprovable("z3 has no pow of floats")
        a, b = z3.simplify(a), z3.simplify(b)
        one = self.literal(1, dtype)
        if z3.eq(a, one):
            return one
        if z3.is_bv_value(b) and b.as_signed_long() >= 0:
            return reduce(lambda x, y: x * y, [a] * b.as_signed_long(), one)
        if z3.is_rational_value(b):
            exponent = b.as_fraction()
            if exponent in (Fraction(1, 2), Fraction(-1, 2)):
                found = self.root(a)
                return found if exponent > 0 else self.divide(dtype, one, found)
            if exponent.denominator == 1 and exponent >= 0:
                return reduce(lambda x, y: x * y, [a] * int(exponent), one)
        raise Unprovable(f"no term for the power {b}")

    def quotient(self, dtype: DType, a: Any, b: Any) -> tuple[Any, Any]:
        """Quotient and remainder of integers, rounded down; both 0 for a divisor of 0."""
        if z3.is_fp(a):
            raise Unprovable("z3 has no floor division of floats")
        zero = self.literal(0, dtype)
        if dtype.kind is Kind.UNSIGNED:
            down, rest = z3.UDiv(a, b), z3.URem(a, b)
        else:
            cut, left = a / b, z3.SRem(a, b)
            is_off = z3.And(left != 0, (left < 0) != (b < 0))
            down, rest = z3.If(is_off, cut - 1, cut), z3.If(is_off, left + b, left)
        return z3.If(b == 0, zero, down), z3.If(b == 0, zero, rest)

    def shifted(self, dtype: DType, a: Any, b: Any, *, left: bool) -> Any:
        inside = z3.ULT(b, dtype.bits)
        if left:
            return z3.If(inside, a << b, self.literal(0, dtype))
        if dtype.kind is Kind.UNSIGNED:
            return z3.If(inside, z3.LShR(a, b), self.literal(0, dtype))
        return z3.If(inside, a >> b, z3.If(a < 0, self.literal(-1, dtype), self.literal(0, dtype)))

    def cast(self, a: Any, source: DType, target: DType) -> Any:
        if source is target:
            return a
        if source.kind is Kind.BOOL:
            return z3.If(a, self.literal(1, target), self.literal(0, target))
        if target.kind is Kind.BOOL:
            return z3.Not(self.compare("equal", source, a, self.literal(0, source)))
        if source.is_integer and target.is_integer:
            if target.bits <= source.bits:
                return z3.Extract(target.bits - 1, 0, a)
            extend = z3.SignExt if source.kind is Kind.SIGNED else z3.ZeroExt
            return extend(target.bits - source.bits, a)
        if self.floats is Floats.REAL:
            raise Unprovable("casts of real numbers")
        if source.is_integer:
            if source.kind is Kind.SIGNED:
                return z3.fpSignedToFP(NEAREST, a, self.sort(target))
            return z3.fpUnsignedToFP(NEAREST, a, self.sort(target))
        if target.is_float:
            return z3.fpFPToFP(NEAREST, a, self.sort(target))
        return self._saturated(a, target)

    def _saturated(self, a: Any, target: DType) -> Any:
        signed = target.kind is Kind.SIGNED
        wide = target.bits + 2
        low = -(1 << target.bits - 1) if signed else 0
        high = (1 << target.bits - 1) - 1 if signed else (1 << target.bits) - 1
        sort = a.sort()
        below = z3.fpLEQ(a, z3.FPVal(float(low), sort))
        above = z3.fpGEQ(a, z3.FPVal(float(high), sort))
        inside = z3.Extract(target.bits - 1, 0, z3.fpToSBV(z3.RTZ(), a, z3.BitVecSort(wide)))
        ends = z3.If(below, self.literal(low, target), self.literal(high, target))
        chosen = z3.If(z3.Or(below, above), ends, inside)
        return z3.If(z3.fpIsNaN(a), self.literal(0, target), chosen)


def _as_fraction(value: Any) -> Fraction | None:
    """A finite float of z3 as a fraction."""
    if z3.fpIsInf(value) is True or value.isInf() or value.isNaN():
        return None
    return Fraction(z3.simplify(z3.fpToReal(value)).as_fraction())


def _evaluated(node: Node, operands: list[Any]) -> Sequence[Any]:
    results = node.op.evaluate(*operands)
    listed = results if isinstance(results, tuple) else (results,)
    types = [value.type for value in node.results]
    return [
        np.asarray(each) if np.asarray(each).dtype == object else np.asarray(each, t.dtype.numpy)
        for each, t in zip(listed, types, strict=True)
    ]


def _each(function: Callable[..., Any], *arrays: Any) -> Any:
    made = np.empty(arrays[0].shape, object)
    for place in np.ndindex(*made.shape):
        made[place] = function(*(each[place] for each in arrays))
    return made


def _of_operand(function: Callable[..., Any]) -> Callable[..., Any]:
    """An element whose dtype is that of the first operand."""
    return lambda s, node, *terms: function(s, node.operands[0].dtype, *terms)


def _bitwise(logical: Callable[..., Any], bits: Callable[..., Any]) -> Callable[..., Any]:
    return lambda s, node, *terms: (logical if z3.is_bool(terms[0]) else bits)(*terms)


REDUCTIONS = ("sum", "mean", "prod", "max", "min", "any", "all")
ELEMENTS: dict[str, Callable[..., Any]] = {
    "add": _of_operand(Symbols.add),
    "subtract": _of_operand(lambda s, t, a, b: z3.fpSub(NEAREST, a, b) if z3.is_fp(a) else a - b),
    "multiply": _of_operand(Symbols.multiply),
    "divide": _of_operand(Symbols.divide),
    "floor_divide": _of_operand(lambda s, t, a, b: s.quotient(t, a, b)[0]),
    "remainder": _of_operand(lambda s, t, a, b: s.quotient(t, a, b)[1]),
    "power": _of_operand(Symbols.power),
    "negate": _of_operand(lambda s, t, a: s.negate(a)),
    "abs": _of_operand(
        lambda s, t, a: (
            z3.fpAbs(a) if z3.is_fp(a) else (a if t.kind is Kind.UNSIGNED else z3.If(a < 0, -a, a))
        )
    ),
    "square": _of_operand(lambda s, t, a: s.multiply(t, a, a)),
    "reciprocal": _of_operand(lambda s, t, a: s.divide(t, s.literal(1, t), a)),
    "sqrt": _of_operand(lambda s, t, a: s.root(a)),
    "maximum": _of_operand(lambda s, t, a, b: s.extreme(t, a, b, largest=True)),
    "minimum": _of_operand(lambda s, t, a, b: s.extreme(t, a, b, largest=False)),
    "relu": _of_operand(
        lambda s, t, a: z3.If(s.compare("less_equal", t, a, s.literal(0, t)), s.literal(0, t), a)
    ),
    "relu6": _of_operand(lambda s, t, a: s.clipped(t, a, 0.0, 6.0)),
    "clip": lambda s, node, a: s.clipped(node.result.dtype, a, node.op.low, node.op.high),
    "hardtanh": lambda s, node, a: s.clipped(node.result.dtype, a, node.op.low, node.op.high),
    "is_nan": _of_operand(lambda s, t, a: z3.fpIsNaN(a)),
    "where": lambda s, node, c, a, b: z3.If(c, a, b),
    "logical_not": _of_operand(lambda s, t, a: z3.Not(a)),
    "logical_and": _of_operand(lambda s, t, a, b: z3.And(a, b)),
    "logical_or": _of_operand(lambda s, t, a, b: z3.Or(a, b)),
    "logical_xor": _of_operand(lambda s, t, a, b: z3.Xor(a, b)),
    "bitwise_not": _bitwise(z3.Not, lambda a: ~a),
    "bitwise_and": _bitwise(z3.And, lambda a, b: a & b),
    "bitwise_or": _bitwise(z3.Or, lambda a, b: a | b),
    "bitwise_xor": _bitwise(z3.Xor, lambda a, b: a ^ b),
    "shift_left": _of_operand(lambda s, t, a, b: s.shifted(t, a, b, left=True)),
    "shift_right": _of_operand(lambda s, t, a, b: s.shifted(t, a, b, left=False)),
    "cast": lambda s, node, a: s.cast(a, node.operands[0].dtype, node.result.dtype),
    "rsqrt": _of_operand(lambda s, t, a: s.divide(t, s.literal(1, t), s.root(a))),
    "exp": _of_operand(lambda s, t, a: s.unknown("exp", a)),
    "sigmoid": _of_operand(lambda s, t, a: s.unknown("sigmoid", a)),
    **{
        name: _of_operand(lambda s, t, a, mode=mode: z3.fpRoundToIntegral(mode, a))
        for name, mode in ROUNDINGS.items()
    },
    **{
        name: _of_operand(lambda s, t, a, b, name=name: s.compare(name, t, a, b))
        for name in COMPARISONS
    },
}
"""What ops compute of elements, by name: ``(symbols, node, *terms)``."""
