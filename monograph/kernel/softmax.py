"""Simplifies softmax kernels: no element exceeds the maximum, so none overflows.

    m = max(r: x[r])                          a maximum that need not look out for NaN: the sum,
    exp(x[i] - m) / sum(r: exp(x[r] - m))     and with it the result, is NaN if any element is

    decay(x[i] - m)                           e to a number that is not positive: short, and exactly
                                              0 for what a mask of -inf leaves out

Both hold for whatever is made of such a sum by arithmetic: softmax, its logarithm, cross entropy.
So they do where the maximum and the sum are replaced by a number if they are less, as where zeros
stand for a row of nothing but -inf.
"""

from __future__ import annotations

from dataclasses import replace

from monograph.ir.dims import Dim, Symbol
from monograph.ir.types import bf16, f16
from monograph.kernel import expr as e
from monograph.kernel.expr import Apply, Axis, Expr, Reduce
from monograph.kernel.kernel import Kernel, Store
from monograph.kernel.mathlib.number import FORMATS
from monograph.kernel.mathlib.shortened import name_of

LARGEST_NUMBER = "max_number"
"""The reduction to the largest element, of those that are not NaN."""
ARITHMETIC = frozenset(
    ("add", "subtract", "multiply", "divide", "negate", "fma", "log", "log2", "exp", "sqrt")
)
"""Functions that give NaN if any operand is NaN."""
DECAYS = frozenset(("decay", *(name_of("decay", dtype) for dtype in (bf16, f16))))


def with_decays(kernel: Kernel) -> Kernel:
    """The kernel with ``exp(x - max(x))`` computed as a decay."""
    if not any(isinstance(x, Reduce) and x.kind == "max" for x in kernel.expressions()):
        return kernel
    extents = _extents(kernel)
    replaced = {
        expr: e.apply("decay", expr.operands[0])
        for expr in kernel.expressions()
        if _is_exp_of_difference(expr, extents)
    }
    if not replaced:
        return kernel
    return _without_care_for_nan(_replace_reductions(kernel, replaced))


def is_decay(expr: Expr) -> bool:
    """Whether it is a decay, to as many digits as a result keeps."""
    return isinstance(expr, Apply) and expr.function in DECAYS


def is_sum_of_decays(expr: Expr, *, has_one: bool = True) -> bool:
    """Whether it is the sum of ``decay(x - max(x))``, of which one term is 1 (or it is NaN).

    If it need not have one, something larger than the maximum may be subtracted.
    """
    if not isinstance(expr, Reduce) or expr.kind != "sum":
        return False
    term = expr.body
    if not isinstance(term, Apply) or not is_decay(term):
        return False
    largest = _largest(term)
    if largest is None or largest.axes != expr.axes:
        return False
    return not has_one or term.operands[0].operands[1] is largest


def without_lower_bound(expr: Expr) -> Expr:
    """x, if it is ``where(x < number, number, x)``; NaN is not less than anything."""
    if not isinstance(expr, Apply) or expr.function != "where":
        return expr
    condition, bound, x = expr.operands
    is_bounded = isinstance(condition, Apply) and condition.function == "less"
    return x if is_bounded and condition.operands == (x, bound) else expr


def _largest(decay: Apply) -> Reduce | None:
    """The maximum that is subtracted before the exponential is taken."""
    (difference,) = decay.operands
    if not isinstance(difference, Apply) or difference.function != "subtract":
        return None
    largest = without_lower_bound(difference.operands[1])
    is_largest = isinstance(largest, Reduce) and largest.kind in ("max", LARGEST_NUMBER)
    return largest if is_largest and isinstance(largest, Reduce) else None


def _extents(kernel: Kernel) -> dict[Symbol, Dim]:
    """How many values each loop variable takes; reductions that share one have one extent."""
    found = {axis.symbol: axis.extent for axis in kernel.axes}
    for expr in kernel.expressions():
        if isinstance(expr, Reduce):
            found |= {axis.symbol: axis.extent for axis in expr.axes}
    return found


def _is_exp_of_difference(expr: Expr, extents: dict[Symbol, Dim]) -> bool:
    """Whether it is ``exp(x - max(x))``, with x one of the elements that the maximum is of."""
    if not isinstance(expr, Apply) or expr.function != "exp" or expr.dtype not in FORMATS:
        return False
    largest = _largest(expr)
    if largest is None:
        return False
    element = expr.operands[0].operands[0]
    if element is largest.body:
        return True
    own = [symbol for symbol in extents if symbol in element.symbols - largest.symbols]
    if len(own) != len(largest.axes):
        return False
    pairs = list(zip(largest.axes, own, strict=True))
    if any(extents[symbol] != axis.extent for axis, symbol in pairs):
        return False
    named: dict[Symbol, Dim] = {axis.symbol: symbol for axis, symbol in pairs}
    return e.substitute(largest.body, named) is element


def _replace_reductions(kernel: Kernel, replaced: dict[Expr, Expr]) -> Kernel:
    stores = tuple(
        Store(s.buffer, s.position, e.replace(s.value, replaced), s.guard) for s in kernel.stores
    )
    return replace(kernel, stores=stores)


def _without_care_for_nan(kernel: Kernel) -> Kernel:
    """Maxima whose NaN shows in every result by way of the sum of the decays."""
    sums = [x for x in kernel.expressions() if is_sum_of_decays(x, has_one=False)]
    replaced: dict[Expr, Expr] = {}
    for each in sums:
        assert isinstance(each, Reduce)
        assert isinstance(each.body, Apply)
        largest = _largest(each.body)
        if largest is None or not _starts_before(each.axes):
            continue
        values = [s.value for s in kernel.stores if largest in set(e.walk((s.value,)))]
        if all(_shows(value, each, largest) for value in values):
            replaced[largest] = e.reduce(LARGEST_NUMBER, largest.axes, largest.body)
    return _replace_reductions(kernel, replaced) if replaced else kernel


def _starts_before(axes: tuple[Axis, ...]) -> bool:
    """Whether there is an element at all: of none, the largest is -inf and the sum 0."""
    return all(isinstance(axis.extent, int) and axis.extent > 0 for axis in axes)


def _shows(value: Expr, cause: Expr, largest: Expr) -> bool:
    """Whether a value is NaN whenever ``cause`` is, unless it does without the largest element."""
    if largest not in set(e.walk((value,))):
        return True
    if not isinstance(value, Apply):
        return _is_nan_with(value, cause)
    if value.function == "where":
        condition, *ways = value.operands
        unknown = largest in set(e.walk((condition,)))
        return not unknown and all(_shows(way, cause, largest) for way in ways)
    if value.function in ("negate", "cast") and value.dtype.is_float:
        return _shows(value.operands[0], cause, largest)
    return _is_nan_with(value, cause)


def _is_nan_with(value: Expr, cause: Expr) -> bool:
    """Whether a value is NaN whenever ``cause`` is."""
    value = without_lower_bound(value)
    if value is cause:
        return True
    if isinstance(value, Reduce):
        return (
            value.kind == "sum" and _starts_before(value.axes) and _is_nan_with(value.body, cause)
        )
    if not isinstance(value, Apply):
        return False
    if value.function == "cast":
        floats = value.dtype.is_float and value.operands[0].dtype.is_float
        return floats and _is_nan_with(value.operands[0], cause)
    return value.function in ARITHMETIC and any(_is_nan_with(x, cause) for x in value.operands)
