"""Reductions, running results, sorts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax

from monograph import functional as F
from monograph.frontends.jax.equation import Equation
from monograph.frontends.jax.registry import converter
from monograph.frontends.xla import reduction, sorting, windows
from monograph.frontends.xla.windows import Window
from monograph.ir.build import cast_to
from monograph.ir.graph import Value
from monograph.ir.types import bool_, i32

KINDS = {
    "reduce_sum": "add",
    "reduce_prod": "multiply",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_and": "and",
    "reduce_or": "or",
    "reduce_xor": "xor",
}
WINDOW_KINDS = {
    "reduce_window_sum": "add",
    "reduce_window_max": "max",
    "reduce_window_min": "min",
}
COMBINING = {
    "add": "add",
    "add_any": "add",
    "mul": "multiply",
    "max": "max",
    "min": "min",
    "and": "and",
    "or": "or",
    "xor": "xor",
}
"""Primitives that, alone in a jaxpr, make it one of the functions that reductions know."""


@converter(*KINDS)
def convert_reduce(equation: Equation) -> Value:
    """Elements along axes combined."""
    return reduction.reduce(KINDS[equation.name], equation.operand, tuple(equation["axes"]))


@converter("argmax", "argmin")
def convert_arg_extremum(equation: Equation) -> Value:
    """The first place of the extremum along one axis; NaN counts as it."""
    (axis,) = equation["axes"]
    x = cast_to(equation.operand, i32) if equation.operand.dtype is bool_ else equation.operand
    found = F.argmax(x, axis) if equation.name == "argmax" else F.argmin(x, axis)
    return cast_to(found, equation.type.dtype)


def kind_of(jaxpr: Any) -> str | None:
    """Which of the functions that reductions know a jaxpr of two arguments is."""
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    if len(inner.eqns) != 1 or len(inner.invars) != 2:
        return None
    (equation,) = inner.eqns
    if equation.primitive.name in ("jit", "pjit"):
        own = kind_of(equation.params["jaxpr"])
        return own if list(equation.invars) == list(inner.invars) else None
    is_plain = set(equation.invars) == set(inner.invars) and inner.outvars == equation.outvars
    return COMBINING.get(equation.primitive.name) if is_plain else None


def combiner(equation: Equation, jaxpr: Any, consts: Sequence[Any] = ()) -> reduction.Combine:
    """A jaxpr of scalars as a function of two tuples of values, element by element."""
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    own = getattr(jaxpr, "consts", consts)

    def combine(a: Sequence[Value], b: Sequence[Value]) -> Sequence[Value]:
        def mapped(*arrays: Any) -> Any:
            function = partial(jax.core.eval_jaxpr, inner, own)
            for _ in range(a[0].rank):
                function = jax.vmap(function)
            return function(*arrays)

        found: list[Value] = equation.trace(mapped, [*a, *b])
        return found

    return combine


@converter("reduce")
def convert_reduce_with(equation: Equation) -> Sequence[Value]:
    """Elements along axes folded by a function of the user's."""
    count = len(equation.operands) // 2
    operands, initial = equation.operands[:count], equation.operands[count:]
    axes = tuple(equation["dimensions"])
    jaxpr = equation["jaxpr"]
    kind = kind_of(jaxpr) if count == 1 else None
    if kind is not None:
        reduced = reduction.reduce(kind, operands[0], axes)
        return [reduction.COMBINERS[kind](reduced, initial[0])]
    return reduction.reduce_with(combiner(equation, jaxpr), operands, initial, axes)


def window_of(equation: Equation) -> Window:
    """The windows that an equation describes."""
    dimensions = tuple(map(int, equation["window_dimensions"]))
    ones = (1,) * len(dimensions)
    return Window(
        dimensions,
        tuple(map(int, equation["window_strides"])),
        tuple((int(low), int(high)) for low, high in equation["padding"]),
        tuple(map(int, equation.params.get("base_dilation") or ones)),
        tuple(map(int, equation.params.get("window_dilation") or ones)),
    )


@converter(*WINDOW_KINDS)
def convert_reduce_window(equation: Equation) -> Value:
    """Sliding windows, each combined."""
    kind = WINDOW_KINDS[equation.name]
    return windows.reduce_window(kind, equation.operand, window_of(equation))


@converter("reduce_window")
def convert_reduce_window_with(equation: Equation) -> Sequence[Value]:
    """Sliding windows, each folded by a function of the user's."""
    count = len(equation.operands) // 2
    operands, initial = equation.operands[:count], equation.operands[count:]
    jaxpr, window = equation["jaxpr"], window_of(equation)
    kind = kind_of(jaxpr) if count == 1 else None
    if kind is not None:
        return [windows.reduce_window(kind, operands[0], window, initial[0])]
    combine = combiner(equation, jaxpr, equation.params.get("consts", ()))
    return windows.reduce_window_with(combine, operands, initial, window)


@converter("select_and_gather_add")
def convert_select_and_gather(equation: Equation) -> Value:
    """Of each window of tangents the one where the operand is largest, or smallest."""
    tangents, operand = equation.operands
    is_max = equation["select_prim"].name == "ge"
    return windows.select_and_gather(tangents, operand, window_of(equation), is_max)


@converter("select_and_scatter_add")
def convert_select_and_scatter(equation: Equation) -> Value:
    """A source added to the element that each window selects."""
    source, operand = equation.operands
    is_max = equation["select_prim"].name == "ge"
    start = F.full((), False if source.dtype is bool_ else 0, source.dtype)
    return windows.select_and_scatter(operand, source, start, window_of(equation), is_max)


@converter("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def convert_running(equation: Equation) -> Value:
    """Running results along an axis."""
    x, axis, reverse = equation.operand, int(equation["axis"]), bool(equation["reverse"])
    if equation.name == "cumlogsumexp":
        return F.logcumsumexp(x, axis, reverse)
    kinds = {"cumsum": "add", "cumprod": "multiply", "cummax": "max", "cummin": "min"}
    return reduction.running_result(kinds[equation.name], x, axis, reverse)


@converter("sort")
def convert_sort(equation: Equation) -> Sequence[Value]:
    """Operands in the order of the first of them."""
    return sorting.sort(equation.operands, int(equation["dimension"]), int(equation["num_keys"]))


@converter("top_k")
def convert_top_k(equation: Equation) -> Sequence[Value]:
    """The largest elements and their places."""
    axis = int(equation.params.get("axis", equation.operand.rank - 1))
    return sorting.top_k(equation.operand, int(equation["k"]), axis, equation.types[1].dtype)


@converter("approx_top_k")
def convert_approximate_top_k(equation: Equation) -> Sequence[Value]:
    """Computed exactly, as JAX does where there is no faster way."""
    x, axis, k = equation.operand, int(equation["reduction_dimension"]), int(equation["k"])
    values, places = F.top_k(x, k, axis, largest=bool(equation["is_max_k"]))
    return values, cast_to(places, equation.types[1].dtype)
