"""A kernel evaluated in NumPy, over its whole index space at once: what its formulas mean.

Loop variables are arrays that broadcast against one another; a reduction gives its body further
axes and combines along them. Scalar functions are the ops of those names. Every target's code is
held against this. A read outside its buffer is an error, also where a ``where`` throws it away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce as fold
from math import prod
from typing import Any

import numpy as np

from monograph.errors import EvaluationError
from monograph.ir.dims import Dim, FloorDiv, Max, Min, Mod, Operation, Symbol
from monograph.ir.op import registry
from monograph.ir.types import Array, DType, i64
from monograph.kernel.expr import Apply, Axis, Buffer, Expr, Index, Literal, Load, Reduce
from monograph.kernel.kernel import Kernel
from monograph.ops.activation import Gelu
from monograph.ops.elementwise import Cast


def evaluate_kernel(
    kernel: Kernel, inputs: Sequence[Array], sizes: Mapping[Symbol, int] | None = None
) -> list[Array]:
    """The outputs of a kernel, every element of which must be written (unless a guard forbids)."""
    with np.errstate(all="ignore"):
        return _run(kernel, inputs, sizes or {})


def _in_parts(array: Array, held: DType) -> Array:
    """Complex numbers as two floats each, as kernels hold them, or one integer if only moved."""
    if array.dtype.kind != "c":
        return array
    if held is i64:
        return np.ascontiguousarray(array).view(np.int64)
    return np.stack([array.real, array.imag], -1)


def _run(kernel: Kernel, inputs: Sequence[Array], sizes: Mapping[Symbol, int]) -> list[Array]:
    memory = {
        buffer.name: _in_parts(np.asarray(array), buffer.dtype)
        for buffer, array in zip(kernel.inputs, inputs, strict=True)
    }
    scope = _Scope(None, kernel.axes, memory, dict(sizes))
    outputs: dict[str, Array] = {}
    written: dict[str, Array] = {}
    for buffer in kernel.outputs:
        shape = tuple(int(scope.dim(dim)) for dim in buffer.shape)
        outputs[buffer.name] = np.zeros(shape, buffer.dtype.numpy)
        written[buffer.name] = np.zeros(shape, np.bool_)
    whole = tuple(scope.extents)
    for store in kernel.stores if 0 not in whole else ():
        name = store.buffer.name
        value = np.broadcast_to(scope.value(store.value), whole)
        place = tuple(np.broadcast_to(scope.value(p), whole) for p in store.position)
        if store.guard is not None:
            kept = np.broadcast_to(scope.value(store.guard), whole)
            value, place = value[kept], tuple(each[kept] for each in place)
            written[name][...] = True  # what it is meant to leave out nobody knows
        outputs[name][place] = value
        written[name][place] = True
    for name, places in written.items():
        if not places.all():
            raise EvaluationError(f"{kernel.name}: some of {name} is never written")
    return [outputs[buffer.name] for buffer in kernel.outputs]


class _Scope:
    """The loops around an expression; the innermost have the last axes of every array."""

    def __init__(
        self,
        parent: _Scope | None,
        axes: Sequence[Axis],
        memory: Mapping[str, Array],
        bindings: dict[Symbol, Any],
    ) -> None:
        self.parent = parent
        self.memory = memory
        self.bindings = dict(bindings)
        self.own = {axis.symbol for axis in axes}
        self.known: dict[Expr, Array] = {}
        outer: list[int] = [] if parent is None else parent.extents
        inner = [int(self.dim(axis.extent)) for axis in axes]
        self.extents: list[int] = [*outer, *inner]
        self.reduced = tuple(range(len(outer), len(self.extents)))
        rank = len(self.extents)
        for symbol, value in bindings.items():  # the loops outside, seen from inside
            if isinstance(value, np.ndarray):
                self.bindings[symbol] = value.reshape(*value.shape, *[1] * len(axes))
        for place, axis in zip(self.reduced, axes, strict=True):
            shape = [-1 if other == place else 1 for other in range(rank)]
            self.bindings[axis.symbol] = np.arange(self.extents[place]).reshape(shape)

    def dim(self, dim: Dim) -> Any:
        """Index arithmetic, of numbers and arrays."""
        if isinstance(dim, int):
            return dim
        if isinstance(dim, Symbol):
            return self.bindings[dim]
        if isinstance(dim, Operation):
            return fold(_OPERATIONS[type(dim)], map(self.dim, dim.arguments))
        return sum(
            fold(np.multiply, map(self.dim, atoms), coefficient)
            for atoms, coefficient in dim.terms()
        )

    def value(self, expr: Expr) -> Array:
        """The values of an expression, one for each value of the loops that it depends on."""
        if expr not in self.known:
            if self.parent is not None and not expr.symbols & self.own:
                outside = self.parent.value(expr)
                self.known[expr] = outside.reshape(*outside.shape, *[1] * len(self.reduced))
            else:
                self.known[expr] = self._compute(expr)
        return self.known[expr]

    def _compute(self, expr: Expr) -> Array:
        if isinstance(expr, Literal):
            found: Any = np.asarray(expr.value).astype(expr.dtype.numpy)
        elif isinstance(expr, Index):
            found = np.asarray(self.dim(expr.dim), np.int64)
        elif isinstance(expr, Load):
            found = self._load(expr.buffer, [self.value(place) for place in expr.operands])
        elif isinstance(expr, Reduce):
            return self._reduce(expr)
        else:
            assert isinstance(expr, Apply)
            operands = [self.value(operand) for operand in expr.operands]
            found = _apply(expr.function, operands, expr.dtype)
        array = np.asarray(found)
        if array.dtype != expr.dtype.numpy:
            raise EvaluationError(f"{expr} is {array.dtype}", expected=str(expr.dtype))
        return array.reshape([1] * (len(self.extents) - array.ndim) + list(array.shape))

    def _load(self, buffer: Buffer, place: list[Array]) -> Array:
        shape = tuple(int(self.dim(dim)) for dim in buffer.shape)
        array = self.memory[buffer.name].reshape(shape)
        if array.size == 0:  # nothing is there: the element is thrown away
            return np.zeros([1] * len(self.extents), array.dtype)
        for axis, positions in enumerate(place):
            inside = (positions >= 0) & (positions < shape[axis])
            if not inside.all():
                raise EvaluationError(f"{buffer.name} is read outside of its axis {axis}")
        return array[tuple(place)] if place else array

    def _reduce(self, expr: Reduce) -> Array:
        inner = _Scope(self, expr.axes, self.memory, self.bindings)
        body = inner.value(expr.body)
        outer = body.shape[: len(self.extents)]
        along = inner.extents[len(outer) :]
        flat = np.broadcast_to(body, (*outer, *along)).reshape(*outer, prod(along))
        if flat.shape[-1] == 0 and expr.kind in _IDENTITIES:
            return np.full(outer, _IDENTITIES[expr.kind](expr.dtype), expr.dtype.numpy)
        return np.asarray(_REDUCTIONS[expr.kind](flat))


_OPERATIONS: Mapping[type[Operation], Callable[[Any, Any], Any]] = {
    FloorDiv: np.floor_divide,
    Mod: np.mod,
    Max: np.maximum,
    Min: np.minimum,
}
_REDUCTIONS: Mapping[str, Callable[[Array], Any]] = {
    "sum": lambda x: x.sum(-1, dtype=x.dtype),
    "prod": lambda x: x.prod(-1, dtype=x.dtype),
    "max": lambda x: x.max(-1),
    "min": lambda x: x.min(-1),
    "any": lambda x: x.any(-1),
    "all": lambda x: x.all(-1),
    "argmax": lambda x: x.argmax(-1),
    "argmin": lambda x: x.argmin(-1),
}
_IDENTITIES: Mapping[str, Callable[[DType], Any]] = {
    "max": lambda dtype: -np.inf if dtype.is_float else np.iinfo(dtype.numpy).min,
    "min": lambda dtype: np.inf if dtype.is_float else np.iinfo(dtype.numpy).max,
    "argmax": lambda _: 0,
    "argmin": lambda _: 0,
}


def _apply(function: str, operands: list[Array], dtype: DType) -> Any:
    if function in ("cast", "convert"):
        return Cast(dtype).evaluate(operands[0])
    if function == "bitcast":
        return np.ascontiguousarray(operands[0]).reshape(operands[0].shape).view(dtype.numpy)
    if function in _BESIDE_OPS:
        return _BESIDE_OPS[function](*operands)
    return np.asarray(registry()[function]().evaluate(*operands)).astype(dtype.numpy)


def _check_bounds(position: Array, size: Array) -> Array:
    if not ((position >= 0) & (position < size)).all():
        raise EvaluationError("an index is outside its axis")
    return position


_BESIDE_OPS: Mapping[str, Callable[..., Any]] = {
    "index_divide": np.floor_divide,
    "index_remainder": np.mod,
    "fma": lambda a, b, c: a * b + c,
    "checked": _check_bounds,
    "gelu_erf": Gelu("none").evaluate,
    "gelu_tanh": Gelu("tanh").evaluate,
}
