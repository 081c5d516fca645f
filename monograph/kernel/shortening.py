"""Finds functions whose results are stored in few bits, which shorter formulas can compute.

    cast<bf16>(sigmoid(x))                 8 digits are kept
    cast<bf16>(decay(x) / sum(r: decay))   products, quotients and sums of what is positive keep
                                           the relative error of their parts
    cast<bf16>(x - log(sum(r: decay)))     the logarithm of a sum of which one term is exactly 1

What reaches a result in any other way (a difference, a comparison, a position) keeps all digits.
"""

from __future__ import annotations

from dataclasses import replace

from monograph.ir.types import DType, bf16, f16, f32
from monograph.kernel import expr as e
from monograph.kernel.expr import Apply, Expr, Reduce
from monograph.kernel.kernel import Kernel, Store
from monograph.kernel.mathlib.shortened import name_of
from monograph.kernel.softmax import is_decay, is_sum_of_decays

DIGITS: dict[DType, int] = {bf16: 8, f16: 11}
"""How many digits the types that are worth it keep."""
PASSING = frozenset(("multiply", "divide", "negate", "abs"))
"""Functions whose result has the relative error of what they are given."""


def with_short_formulas(kernel: Kernel) -> Kernel:
    """The kernel with short formulas where its results do not show the difference."""
    if not any(store.buffer.dtype in DIGITS for store in kernel.stores):
        return kernel
    roots = tuple(store.value for store in kernel.stores)
    kept = _track_digits(roots, kernel)
    replaced: dict[Expr, Expr] = {}
    for expr in e.walk(roots):
        again = e.replace(expr, replaced) if isinstance(expr, Apply) else expr
        dtype = kept.get(expr)
        name = name_of(expr.function, dtype) if isinstance(expr, Apply) and dtype else None
        if name is not None and expr.dtype is f32:
            replaced[expr] = e.apply(name, *again.operands)
    if not replaced:
        return kernel
    stores = tuple(
        Store(s.buffer, s.position, e.replace(s.value, replaced), s.guard) for s in kernel.stores
    )
    return replace(kernel, stores=stores)


def _track_digits(roots: tuple[Expr, ...], kernel: Kernel) -> dict[Expr, DType | None]:
    """For each expression, of which type its digits are kept; None for all of them."""
    found: dict[Expr, DType | None] = dict.fromkeys(roots)

    def note(expr: Expr, dtype: DType | None) -> None:
        if expr not in found:
            found[expr] = dtype
        elif dtype is None or found[expr] is None:
            found[expr] = None
        elif DIGITS[dtype] > DIGITS[found[expr] or dtype]:
            found[expr] = dtype

    for store in kernel.stores:
        for part in (*store.position, *(() if store.guard is None else (store.guard,))):
            for inner in e.walk((part,)):
                note(inner, None)
    for expr in reversed(list(e.walk(roots))):
        for operand in expr.operands:
            note(operand, _digits_kept_by_use(operand, expr, found.get(expr)))
    return found


def _digits_kept_by_use(operand: Expr, user: Expr, kept: DType | None) -> DType | None:
    """Of which type's digits one use of an operand keeps no more."""
    if isinstance(user, Reduce):
        return kept if user.kind == "sum" and is_decay(user.body) else None
    if not isinstance(user, Apply):
        return None
    if user.function == "cast" and user.dtype in DIGITS:
        return user.dtype
    if user.function in PASSING:
        return kept
    if user.function == "where":
        return None if operand is user.operands[0] else kept
    if user.function == "log":
        return kept if is_sum_of_decays(operand) else None
    if user.function == "subtract":
        is_logarithm = isinstance(operand, Apply) and operand.function == "log"
        return kept if is_logarithm and is_sum_of_decays(operand.operands[0]) else None
    return None
