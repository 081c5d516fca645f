"""Softmax, its logarithm and logsumexp, spelled out with exp, sum and log.

The ops take the largest element away before they exponentiate; where the spelled-out form did not,
that is an improvement: large elements no longer overflow to NaN. Of a row that holds +inf, softmax
and its logarithm give NaN alone, where the spelled-out form may give 0 (or -inf) beside the NaN.
"""

from __future__ import annotations

from monograph.ir.graph import Node, Value
from monograph.ops.elementwise import Add, Divide, Multiply, Subtract
from monograph.ops.math import Exp, Log
from monograph.ops.reduce import Logsumexp, Max, Sum, logsumexp
from monograph.ops.softmax import LogSoftmax, Softmax, log_softmax, softmax
from monograph.rewrite.matchers import (
    Axes,
    difference,
    match_reduction,
    strip_expand,
    under_reciprocal,
)
from monograph.rewrite.rule import Rule, rewrite

ALL_NAN = "a row that holds +inf is all NaN"
IMPROVED = "rounds otherwise; large elements no longer overflow where none was taken away"


@rewrite(
    "softmax_quotient",
    root=(Divide, Multiply),
    floats=f"{IMPROVED}; {ALL_NAN}",
    changes_specials=True,
)
def softmax_quotient(node: Node) -> Value | None:
    """exp(x) / sum(exp(x)) → softmax(x); multiplied by 1 / sum as well."""
    for exponential, total in _quotients(node):
        if not isinstance(exponential.op, Exp) or exponential.producer is None:
            continue
        found = match_reduction(total, Sum)
        axis = _only_axis(found, exponential)
        if axis is not None:
            return softmax(exponential.producer.operands[0], axis)
    return None


def _quotients(node: Node) -> list[tuple[Value, Value]]:
    """(dividend, divisor) for each way in which the node is a quotient."""
    a, b = node.operands
    if isinstance(node.op, Divide):
        return [(a, b)]
    inverses = ((x, under_reciprocal(strip_expand(y))) for x, y in ((a, b), (b, a)))
    return [(x, divisor) for x, divisor in inverses if divisor is not None]


def _only_axis(found: tuple[Value, Axes] | None, x: Value) -> int | None:
    """The axis of a reduction of x along one axis."""
    if found is None or found[0] is not x or len(found[1]) != 1:
        return None
    return found[1][0]


@rewrite(
    "softmax_shifted",
    root=(Softmax, LogSoftmax),
    floats="exact in f32 and f64: the largest of x - max(x) is 0; narrow floats round once less",
)
def softmax_shifted(node: Node) -> Value | None:
    """softmax(x - max(x)) → softmax(x): softmax does that itself. So for log_softmax."""
    assert isinstance(node.op, Softmax | LogSoftmax)
    parts = difference(node.operands[0])
    if parts is None:
        return None
    x, largest = parts
    axis = _only_axis(match_reduction(largest, Max), x)
    if axis is None or axis != node.op.axis % x.rank:
        return None
    result: Value = node.op(x)
    return result


@rewrite("softmax_exp", root=Exp, floats="rounds otherwise")
def softmax_exp(node: Node) -> Value | None:
    """exp(log_softmax(x)) → softmax(x)."""
    inner = node.operands[0].producer
    if inner is None or not isinstance(inner.op, LogSoftmax):
        return None
    return softmax(inner.operands[0], inner.op.axis)


@rewrite(
    "log_softmax_log",
    root=Log,
    floats="rounds otherwise; finite where softmax underflows",
    changes_specials=True,
)
def log_softmax_log(node: Node) -> Value | None:
    """log(softmax(x)) → log_softmax(x)."""
    inner = node.operands[0].producer
    if inner is None or not isinstance(inner.op, Softmax) or inner.op.fully_masked != "nan":
        return None
    return log_softmax(inner.operands[0], inner.op.axis)


@rewrite(
    "log_softmax_difference",
    root=(Subtract, Add),
    floats=f"rounds otherwise; {ALL_NAN}",
    changes_specials=True,
)
def log_softmax_difference(node: Node) -> Value | None:
    """x - logsumexp(x) → log_softmax(x)."""
    parts = difference(node.result)
    if parts is None:
        return None
    x, total = parts
    axis = _only_axis(match_reduction(total, Logsumexp), x)
    return None if axis is None else log_softmax(x, axis)


@rewrite(
    "logsumexp_log",
    root=Log,
    floats=IMPROVED,
    changes_specials=True,
)
def logsumexp_log(node: Node) -> Value | None:
    """log(sum(exp(x))) → logsumexp(x)."""
    total = node.operands[0].producer
    if total is None or not isinstance(total.op, Sum):
        return None
    inner = total.operands[0].producer
    if inner is None or not isinstance(inner.op, Exp) or not inner.operands[0].dtype.is_float:
        return None
    return logsumexp(inner.operands[0], total.op.axes, total.op.keepdims)


@rewrite("logsumexp_shifted", root=Add, floats="rounds otherwise")
def logsumexp_shifted(node: Node) -> Value | None:
    """max(x) + logsumexp(x - max(x)) → logsumexp(x)."""
    for largest, rest in (node.operands, node.operands[::-1]):
        inner = rest.producer
        if inner is None or not isinstance(inner.op, Logsumexp):
            continue
        parts = difference(inner.operands[0])
        found = None if parts is None else match_reduction(parts[1], Max)
        if parts is None or found != (parts[0], inner.op.axes) or not _same(largest, parts[1]):
            continue
        return logsumexp(parts[0], inner.op.axes, inner.op.keepdims)
    return None


def _same(a: Value, b: Value) -> bool:
    """Whether two values are one, or one reduction of one value that keeps its axes or not."""
    if strip_expand(a) is strip_expand(b):
        return True
    left, right = a.producer, b.producer
    if left is None or right is None or left.operands != right.operands:
        return False
    return isinstance(left.op, Max) and isinstance(right.op, Max) and left.op.axes == right.op.axes


RULES: tuple[Rule, ...] = (
    softmax_quotient,
    softmax_shifted,
    softmax_exp,
    log_softmax_log,
    log_softmax_difference,
    logsumexp_log,
    logsumexp_shifted,
)
