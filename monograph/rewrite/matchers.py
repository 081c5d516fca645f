"""Matchers that see through spellings: whether a value is a mean, a square, a root or a variance.

Frontends spell the same thing differently: a mean may be a ``mean``, or a sum over a number; the
axes that it reduced may be kept, or put back by a reshape. A rule that asks these questions does
not need to know. Each answers None where the value is not that.
"""

from __future__ import annotations

from math import prod

from monograph.ir.graph import Node, Value
from monograph.ops.data import Iota
from monograph.ops.elementwise import (
    Add,
    Divide,
    GreaterEqual,
    LessEqual,
    Maximum,
    Multiply,
    Negate,
    Power,
    StopGradient,
    Subtract,
)
from monograph.ops.math import Reciprocal, Rsqrt, Sqrt, Square
from monograph.ops.rectifier import Relu
from monograph.ops.reduce import Mean, Reduction, Sum, Variance, reduce_shape
from monograph.ops.shape import Expand, Reshape, Unsqueeze
from monograph.rewrite.constants import real_splat, round_to, short_splat

Axes = tuple[int, ...]


def strip_expand(value: Value) -> Value:
    """The value before what does not change its elements: expand and stop_gradient."""
    while value.producer is not None and isinstance(value.producer.op, Expand | StopGradient):
        value = value.producer.operands[0]
    return value


def orders_positions(mask: Value) -> bool:
    """Whether a comparison is true where a key comes no later than its query.

    Positions along the last axis are compared with those along the axis before it.
    """
    node = mask.producer
    if node is None or not isinstance(node.op, LessEqual | GreaterEqual):
        return False
    smaller, larger = node.operands if isinstance(node.op, LessEqual) else node.operands[::-1]
    return find_counting_axis(smaller) == 1 and find_counting_axis(larger) == 2


def find_counting_axis(value: Value) -> int | None:
    """The axis, from the last one on, along which a value counts 0, 1, 2…"""
    from_end = 0
    while (value := strip_expand(value)).producer is not None and isinstance(value.op, Reshape):
        (source,) = value.producer.operands
        long = [k for k, dim in enumerate(value.shape[::-1]) if dim != 1]
        if source.rank != 1 or len(long) != 1:
            return None
        from_end, value = from_end + long[0], source
    op = value.op
    if not isinstance(op, Iota) or op.dtype.bits < 32:  # a narrow count would run over
        return None
    return from_end + len(op.shape) - op.axis % len(op.shape)


def match_reduction(value: Value, cls: type[Reduction]) -> tuple[Value, Axes] | None:
    """(x, axes) if the value is that reduction of x, in a shape that lies alongside x."""
    kept = strip_expand(value)
    node = _before_reshape(kept).producer
    if node is None or not isinstance(node.op, Reduction) or type(node.op) is not cls:
        return None
    return _alongside(kept, node.operands[0], node.op.axes)


def mean_of(value: Value) -> tuple[Value, Axes] | None:
    """(x, axes) if the value is the mean of x, in a shape that lies alongside x."""
    found = match_reduction(value, Mean)
    if found is not None:
        return found
    kept = strip_expand(value)
    inner = _before_reshape(kept)
    scaled = times_constant(inner)
    if scaled is None:
        return None
    total, factor = scaled
    node = _before_reshape(total).producer
    if node is None or not isinstance(node.op, Sum):
        return None
    x = node.operands[0]
    sizes = [x.shape[axis] for axis in node.op.axes]
    count = prod(size for size in sizes if isinstance(size, int))
    static = all(isinstance(size, int) for size in sizes) and count > 0
    if not static or abs(factor * count - 1.0) > 4 * abs(round_to(1 / 3, x.dtype) * 3 - 1) + 1e-6:
        return None
    return _alongside(kept, x, node.op.axes)


def square_of(value: Value) -> Value | None:
    """x if the value is x * x, square(x) or x ** 2."""
    node = value.producer
    if node is None:
        return None
    if isinstance(node.op, Square):
        return node.operands[0]
    if isinstance(node.op, Multiply) and node.operands[0] is node.operands[1]:
        return node.operands[0]
    if isinstance(node.op, Power) and real_splat(node.operands[1]) == 2.0:
        return node.operands[0]
    return None


def difference(value: Value) -> tuple[Value, Value] | None:
    """(a, b) if the value is a - b or a + (-b)."""
    node = value.producer
    if node is None:
        return None
    if isinstance(node.op, Subtract):
        return node.operands[0], node.operands[1]
    if not isinstance(node.op, Add):
        return None
    for a, b in (node.operands, node.operands[::-1]):
        if b.producer is not None and isinstance(b.producer.op, Negate):
            return a, b.producer.operands[0]
    return None


def match_centering(value: Value) -> tuple[Value, Axes] | None:
    """(x, axes) if the value is x less its mean along the axes."""
    parts = difference(value)
    average = None if parts is None else mean_of(parts[1])
    if parts is None or average is None or average[0] is not parts[0]:
        return None
    return average


def variance_of(value: Value) -> tuple[Value, Axes] | None:
    """(x, axes) if the value is the (uncorrected) variance of x along the axes.

    As the op, as the mean square of the centred x, or as mean(x²) - mean(x)², perhaps held above 0.
    """
    value = _above_zero(value)
    node = _before_reshape(strip_expand(value)).producer
    if node is not None and isinstance(node.op, Variance):
        return None if node.op.correction else match_reduction(value, Variance)
    squares = mean_of(value)
    if squares is not None:
        base = square_of(squares[0])
        found = None if base is None else match_centering(base)
        return found if found is not None and found[1] == squares[1] else None
    return _mean_of_squares_less_square_of_mean(value)


def mean_square_of(value: Value) -> tuple[Value, Axes] | None:
    """(x, axes) if the value is the mean of x² along the axes."""
    squares = mean_of(value)
    base = None if squares is None else square_of(squares[0])
    return None if squares is None or base is None else (base, squares[1])


def plus_constant(value: Value) -> tuple[Value, float]:
    """(x, c) if the value is x + c for a number c; (value, 0) otherwise."""
    node = value.producer
    if node is None or not isinstance(node.op, Add):
        return value, 0.0
    for x, constant in (node.operands, node.operands[::-1]):
        number = short_splat(constant)
        if number is not None:
            return x, number
    return value, 0.0


def times_constant(value: Value) -> tuple[Value, float] | None:
    """(x, c) if the value is x * c or x / (1/c) for a number c."""
    node = value.producer
    if node is None or not isinstance(node.op, Multiply | Divide):
        return None
    a, b = node.operands
    number = real_splat(b)
    if isinstance(node.op, Divide):
        return (a, 1.0 / number) if number else None
    if number is not None:
        return a, number
    number = real_splat(a)
    return None if number is None else (b, number)


def under_root(value: Value) -> Value | None:
    """x if the value is sqrt(x)."""
    return _root(value, Sqrt, 0.5)


def under_inverse_root(value: Value) -> Value | None:
    """x if the value is 1 / sqrt(x)."""
    direct = _root(value, Rsqrt, -0.5)
    inverse = None if direct is not None else under_reciprocal(value)
    return direct if inverse is None else under_root(inverse)


def under_reciprocal(value: Value) -> Value | None:
    """x if the value is 1 / x."""
    node = value.producer
    if node is None:
        return None
    if isinstance(node.op, Reciprocal):
        return node.operands[0]
    if isinstance(node.op, Divide) and real_splat(node.operands[0]) == 1.0:
        return node.operands[1]
    return None


def _root(value: Value, cls: type[Sqrt | Rsqrt], exponent: float) -> Value | None:
    node = strip_expand(value).producer
    if node is None:
        return None
    if isinstance(node.op, cls):
        return node.operands[0]
    if isinstance(node.op, Power) and real_splat(node.operands[1]) == exponent:
        return node.operands[0]
    return None


def _before_reshape(value: Value) -> Value:
    """The value before a reshape, if there is one."""
    node = value.producer
    return node.operands[0] if node is not None and _is_reshape(node) else value


def _is_reshape(node: Node) -> bool:
    return isinstance(node.op, Reshape | Unsqueeze)


def _alongside(kept: Value, x: Value, axes: Axes) -> tuple[Value, Axes] | None:
    """(x, axes) if ``kept`` has 1 where x was reduced, or is a scalar of all of x."""
    normal = tuple(sorted(axis % x.rank for axis in axes)) if x.rank else ()
    scalar = kept.shape == () and len(normal) == x.rank
    if not scalar and kept.shape != reduce_shape("reduction", x.shape, normal, True):
        return None
    return x, normal


def _above_zero(value: Value) -> Value:
    """x if the value is max(x, 0)."""
    node = value.producer
    if node is None:
        return value
    if isinstance(node.op, Relu):
        return node.operands[0]
    if isinstance(node.op, Maximum):
        for x, zero in (node.operands, node.operands[::-1]):
            if real_splat(zero) == 0.0:
                return x
    return value


def _mean_of_squares_less_square_of_mean(value: Value) -> tuple[Value, Axes] | None:
    parts = difference(value)
    squares = None if parts is None else mean_square_of(parts[0])
    mean = None if parts is None else square_of(parts[1])
    average = None if mean is None else mean_of(mean)
    if squares is None or average is None:
        return None
    return squares if squares[0] is average[0] and squares[1] == average[1] else None
