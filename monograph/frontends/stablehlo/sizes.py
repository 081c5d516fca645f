"""Reads the sizes that a StableHLO program computes back as symbolic dimensions.

A program with free sizes (``tensor<?x4xf32>``) asks for a size, computes with it, and hands the
result to an operation as a tensor:

    %n = stablehlo.get_dimension_size %x, dim = 0        batch
    %m = stablehlo.multiply %n, %two                     2*batch
    %s = stablehlo.concatenate %m, %four, dim = 0        [2*batch, 4]
    %y = stablehlo.dynamic_reshape %x, %s                f32[2*batch, 4]

``SizeTable`` evaluates small tensors of integers beside the graph, element by element; an element
is a number, a dimension, a truth value, or None where it is not known. What the program asserts of
its sizes (``@shape_assertion``) is learnt: the program is read again with what was `Learnt`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxlib.mlir import ir

from monograph.frontends.stablehlo.attributes import dense_array
from monograph.ir.dims import (
    Dim,
    Mod,
    Symbol,
    SymbolicDim,
    dim_max,
    dim_min,
    provably_at_least,
    provably_different,
    provably_equal,
    provably_less,
    solve_for,
)
from monograph.ir.types import Array

MAX_ELEMENTS = 64
"""How long a tensor of sizes may be."""


class Learnt(Exception):
    """A symbol is something else: another symbol, an expression, or of another range."""

    def __init__(self, symbol: Symbol, meaning: Dim) -> None:
        super().__init__(f"{symbol} is {meaning}")
        self.symbol = symbol
        self.meaning = meaning


class SizeTable:
    """What is known of small tensors of integers and truth values, by the program's values."""

    def __init__(self) -> None:
        self.known: dict[Any, Array] = {}

    def dims(self, value: Any) -> tuple[Dim, ...] | None:
        """The elements of a tensor as dimensions; None if one is not known."""
        found = self.known.get(value)
        if found is None or any(item is None for item in found.reshape(-1)):
            return None
        return tuple(found.reshape(-1).tolist())

    def note(self, source: Any, shape_of: Callable[[Any], Sequence[Dim]]) -> None:
        """Evaluate an operation, if it is one that sizes are made with."""
        rule = _RULES.get(source.operation.name)
        if rule is None or len(source.results) != 1 or not _is_small(source.results[0]):
            return
        if source.operation.name == "stablehlo.get_dimension_size":
            axis = ir.IntegerAttr(source.attributes["dimension"]).value
            self.known[source.results[0]] = _scalar(shape_of(source.operands[0])[axis])
            return
        operands = [self._operand(each) for each in source.operands]
        if any(each is None for each in operands):
            return
        shape = tuple(ir.RankedTensorType(source.results[0].type).shape)
        self.known[source.results[0]] = np.asarray(rule(source, operands), object).reshape(shape)

    def hand_on(self, values: Sequence[Any], to: Sequence[Any]) -> None:
        """Let other values of the program have what is known of these."""
        for value, other in zip(values, to, strict=True):
            self.known.pop(other, None)
            if value in self.known:
                self.known[other] = self.known[value]

    def _operand(self, value: Any) -> Array | None:
        if value in self.known:
            return self.known[value]
        if not _is_small(value):
            return None
        return np.full(tuple(ir.RankedTensorType(value.type).shape), None, object)


def _is_small(value: Any) -> bool:
    try:
        type_ = ir.RankedTensorType(value.type)
    except ValueError:
        return False
    if not type_.has_static_shape or not isinstance(type_.element_type, ir.IntegerType):
        return False
    return int(np.prod(type_.shape)) <= MAX_ELEMENTS


def _scalar(element: Any) -> Array:
    array = np.empty((), object)
    array[()] = element
    return array


# Conditions on sizes ------------------------------------------------------------------------------


def learn(direction: str, a: Dim, b: Dim) -> bool:
    """Take a condition for granted: whether it holds anyway; `Learnt` if it says something new.

    False if it cannot be told by sizes of inputs, or never holds.
    """
    if direction == "EQ":
        return provably_equal(a, b) or _learn_equal(a, b) or _learn_equal(b, a)
    if direction == "LE":
        a, b, direction = b, a, "GE"
    if direction != "GE":
        return False
    if provably_at_least(a, b):
        return True
    shifted = _split_offset(a)
    if shifted is not None and isinstance(b, int):
        symbol, rest = shifted
        if symbol.upper is None or b - rest <= symbol.upper:
            raise Learnt(symbol, Symbol(symbol.name, b - rest, symbol.upper))
    return False


def name_size(dim: SymbolicDim, name: str) -> None:
    """Give a size its name: of ``x[d]`` with n = d - 1 that means ``x[n + 1]``."""
    lower, upper = dim.bounds()
    named = Symbol(name, max(lower or 0, 0), upper)
    shifted = _split_offset(dim)
    if shifted is not None and dim != named:
        symbol, rest = shifted
        raise Learnt(symbol, named - rest)


def _split_offset(dim: Dim) -> tuple[Symbol, int] | None:
    """The symbol and the number that a size is the sum of."""
    if not isinstance(dim, SymbolicDim) or len(dim.symbols()) != 1:
        return None
    (symbol,) = dim.symbols()
    rest = dim - symbol
    return (symbol, rest) if isinstance(rest, int) else None


def _learn_equal(a: Dim, b: Dim) -> bool:
    """``n == 2*m`` says what n is, ``n % 2 == 0`` that it is twice something."""
    if not isinstance(a, SymbolicDim) or provably_different(a, b):
        return False
    symbols = set(b.symbols()) if isinstance(b, SymbolicDim) else set()
    if isinstance(a, Symbol) and a not in symbols:
        raise Learnt(a, b)
    if isinstance(a, Mod) and b == 0:
        whole, factor = a.arguments
        if isinstance(whole, Symbol) and isinstance(factor, int):
            raise Learnt(whole, factor * Symbol(whole.name, whole.lower))
    if isinstance(b, int) and len(a.symbols()) == 1:
        try:
            solved = solve_for(a, b, {})
        except ValueError:
            return False
        for symbol, value in (solved or {}).items():
            raise Learnt(symbol, value)
    return False


# What operations make of sizes --------------------------------------------------------------------

Rule = Callable[[Any, list[Any]], Any]


def _each(function: Callable[..., Any]) -> Rule:
    """Element by element; what cannot be told of an element is None."""

    def apply(_: Any, operands: list[Any]) -> Any:
        return np.frompyfunc(function, len(operands), 1)(*operands)

    return apply


def _constant_rule(function: Callable[..., Any]) -> Rule:
    """The same for functions of what is known."""
    return _each(lambda *given: None if any(x is None for x in given) else function(*given))


def _quotient(a: Dim, b: Dim) -> Any:
    """Integer division, where rounding down and towards zero are the same."""
    return a // b if provably_at_least(a, 0) and provably_less(0, b) else None


def _remainder(a: Dim, b: Dim) -> Any:
    return a % b if provably_at_least(a, 0) and provably_less(0, b) else None


def _sign(a: Dim) -> Any:
    if provably_equal(a, 0):
        return 0
    return 1 if provably_less(0, a) else -1 if provably_less(a, 0) else None


def _and(a: Any, b: Any) -> Any:
    """One that is false is enough, whatever the other is."""
    if a is False or b is False:
        return False
    return True if a is True and b is True else None


def _or(a: Any, b: Any) -> Any:
    if a is True or b is True:
        return True
    return False if a is False and b is False else None


def _select(condition: Any, a: Any, b: Any) -> Any:
    if condition is None:
        return a if a is not None and a == b else None
    return a if condition else b


def _proven(holds: bool, fails: bool) -> bool | None:
    return True if holds else False if fails else None


_COMPARE: Mapping[str, Callable[[Dim, Dim], bool | None]] = {
    "EQ": lambda a, b: _proven(provably_equal(a, b), provably_different(a, b)),
    "NE": lambda a, b: _proven(provably_different(a, b), provably_equal(a, b)),
    "LT": lambda a, b: _proven(provably_less(a, b), provably_at_least(a, b)),
    "GE": lambda a, b: _proven(provably_at_least(a, b), provably_less(a, b)),
    "GT": lambda a, b: _proven(provably_less(b, a), provably_at_least(b, a)),
    "LE": lambda a, b: _proven(provably_at_least(b, a), provably_less(b, a)),
}


def direction_of(source: Any) -> str:
    """Which comparison an operation makes: ``"EQ"``."""
    return str(source.attributes["comparison_direction"]).rstrip(">").split()[-1]


def _compare(source: Any, operands: list[Any]) -> Any:
    compare = _COMPARE[direction_of(source)]

    def each(a: Any, b: Any) -> Any:
        if isinstance(a, bool) and isinstance(b, bool):
            a, b = int(a), int(b)
        return compare(a, b)

    return _constant_rule(each)(source, operands)


def _constant(source: Any, _: list[Any]) -> Any:
    array = dense_array(source.attributes["value"])
    return np.array(array.tolist(), object)


def _concatenate(source: Any, operands: list[Any]) -> Any:
    return np.concatenate(operands, ir.IntegerAttr(source.attributes["dimension"]).value)


def _slice(source: Any, operands: list[Any]) -> Any:
    names = ("start_indices", "limit_indices", "strides")
    bounds = [list(ir.DenseI64ArrayAttr(source.attributes[name])) for name in names]
    return operands[0][tuple(slice(*each) for each in zip(*bounds, strict=True))]


def _broadcast(source: Any, operands: list[Any]) -> Any:
    """Scalars and vectors, as shapes are put together from."""
    target = tuple(ir.RankedTensorType(source.results[0].type).shape)
    shape = [1] * len(target)
    for axis, place in enumerate(ir.DenseI64ArrayAttr(source.attributes["broadcast_dimensions"])):
        shape[place] = operands[0].shape[axis]
    return np.broadcast_to(operands[0].reshape(shape), target)


def _convert(source: Any, operands: list[Any]) -> Any:
    """Sizes fit in 32 bits; a truth value as a number is one of two."""
    bits = ir.IntegerType(ir.RankedTensorType(source.results[0].type).element_type).width
    if bits < 32:
        return np.full(operands[0].shape, None, object)
    return _constant_rule(lambda x: int(x) if isinstance(x, bool) else x)(source, operands)


_RULES: Mapping[str, Rule] = {
    "stablehlo.add": _constant_rule(lambda a, b: a + b),
    "stablehlo.and": _each(_and),
    "stablehlo.broadcast_in_dim": _broadcast,
    "stablehlo.clamp": _constant_rule(lambda low, x, high: dim_min(dim_max(x, low), high)),
    "stablehlo.compare": _compare,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.constant": _constant,
    "stablehlo.convert": _convert,
    "stablehlo.divide": _constant_rule(_quotient),
    "stablehlo.get_dimension_size": lambda source, operands: operands[0],
    "stablehlo.maximum": _constant_rule(dim_max),
    "stablehlo.minimum": _constant_rule(dim_min),
    "stablehlo.multiply": _constant_rule(lambda a, b: a * b),
    "stablehlo.negate": _constant_rule(lambda a: -a),
    "stablehlo.not": _constant_rule(lambda a: None if not isinstance(a, bool) else not a),
    "stablehlo.or": _each(_or),
    "stablehlo.remainder": _constant_rule(_remainder),
    "stablehlo.reshape": lambda source, operands: operands[0],
    "stablehlo.select": _each(_select),
    "stablehlo.sign": _constant_rule(_sign),
    "stablehlo.slice": _slice,
    "stablehlo.subtract": _constant_rule(lambda a, b: a - b),
}
