"""Complex numbers as pairs of real ones.

No expression computes with a complex number: one stands in formulas as ``complex(real, imaginary)``
of two real expressions, and every function of it is taken apart as soon as it is applied. So it
is read and written as two neighbouring floats, and everything behind the formulas (schedules,
loops, targets) knows real numbers alone.

    c64[n] in memory is f32[n, 2];  x * y  is  complex(a*c - b*d, a*d + b*c)

What rounds more than once (division, magnitudes, exp…) is computed in f64 for c64, so that it
neither overflows on the way nor loses more than its last rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from monograph.errors import UnsupportedError
from monograph.ir.types import DType, bool_, c64, c128, f32, f64
from monograph.kernel import expr as e
from monograph.kernel.expr import Apply, Axis, Buffer, Expr
from monograph.kernel.kernel import Store
from monograph.kernel.layout import MemoryLayout

Pair: TypeAlias = tuple[Expr, Expr]
JOIN = "complex"


def part_dtype(dtype: DType) -> DType:
    """The float that the parts of a complex dtype are."""
    return f64 if dtype is c128 else f32


def join(real: Expr, imaginary: Expr) -> Expr:
    """The complex number of two parts."""
    return e.apply(JOIN, real, imaginary, dtype=c128 if real.dtype is f64 else c64)


def parts(x: Expr) -> Pair:
    """The two parts of a number; a real one has no imaginary part."""
    if isinstance(x, Apply) and x.function == JOIN:
        real, imaginary = x.operands
        return real, imaginary
    assert not x.dtype.is_complex, f"{x} was not taken apart"
    return x, e.literal(0, x.dtype)


def literal(value: bool | int | float | complex, dtype: DType) -> Expr:
    """A complex number that is known."""
    number = complex(value)
    part = part_dtype(dtype)
    return join(e.literal(number.real, part), e.literal(number.imag, part))


# Memory -------------------------------------------------------------------------------------------


def split_buffer(buffer: Buffer) -> Buffer:
    """Complex elements as two floats each, along one more axis."""
    layout = buffer.layout
    if layout is not None:
        strides = (*(stride * 2 for stride in layout.strides), 1)
        span = None if layout.span is None else layout.span * 2
        layout = MemoryLayout(strides, layout.offset * 2, span)
    return Buffer(buffer.name, part_dtype(buffer.dtype), (*buffer.shape, 2), layout)


def load(buffer: Buffer, position: tuple[Expr, ...]) -> Expr:
    """The element at a position of a buffer, complex or not; ``split`` is how it is then read."""
    if not buffer.dtype.is_complex:
        return e.load(buffer, position)
    split = split_buffer(buffer)
    return join(*(e.load(split, (*position, e.index(part))) for part in range(2)))


def stores(buffer: Buffer, position: tuple[Expr, ...], value: Expr) -> list[Store]:
    """What writes an element: one store, or one a part."""
    if not buffer.dtype.is_complex:
        return [Store(buffer, position, value)]
    split = split_buffer(buffer)
    return [
        Store(split, (*position, e.index(part)), each) for part, each in enumerate(parts(value))
    ]


def to_kernel_buffer(buffer: Buffer) -> Buffer:
    """The buffer as kernels have it."""
    return split_buffer(buffer) if buffer.dtype.is_complex else buffer


# Functions ----------------------------------------------------------------------------------------


def involves_complex(operands: Sequence[Expr], dtype: DType | None) -> bool:
    """Whether a function is of complex numbers, or gives one."""
    if dtype is not None and dtype.is_complex:
        return True
    return any(operand.dtype.is_complex for operand in operands)


def apply(function: str, operands: Sequence[Expr]) -> Expr:
    """A function of complex numbers, taken apart."""
    rule = FUNCTIONS.get(function)
    if rule is None:
        raise UnsupportedError(f"there is no {function} of complex numbers in kernels")
    return rule(*operands)


def cast(x: Expr, dtype: DType) -> Expr:
    """A number as a complex one, or whether a complex number is not zero."""
    real, imaginary = parts(x)
    if dtype is bool_:
        return e.apply("logical_or", e.cast(real, bool_), e.cast(imaginary, bool_), dtype=bool_)
    part = part_dtype(dtype)
    if not x.dtype.is_complex:
        return join(e.cast(x, part), e.literal(0, part))
    return join(e.cast(real, part), e.cast(imaginary, part))


def select(condition: Expr, yes: Expr, no: Expr) -> Expr:
    """One of two numbers."""
    sides = zip(parts(yes), parts(no), strict=True)
    return join(*(e.select(condition, a, b) for a, b in sides))


def reduce(kind: str, axes: tuple[Axis, ...], body: Expr) -> Expr:
    """A sum of complex numbers is that of their parts."""
    if kind != "sum":
        raise UnsupportedError(f"there is no {kind} of complex numbers in kernels")
    return join(*(e.reduce(kind, axes, part) for part in parts(body)))


def _of(function: str) -> Callable[..., Expr]:
    def applied(*operands: Expr) -> Expr:
        return e.apply(function, *operands)

    return applied


_add, _subtract, _multiply, _divide = map(_of, ("add", "subtract", "multiply", "divide"))
_negate, _abs, _sqrt, _copysign = map(_of, ("negate", "abs", "sqrt", "copysign"))


def _is(function: str, x: Expr, bound: Expr | float) -> Expr:
    other = bound if isinstance(bound, Expr) else e.literal(bound, x.dtype)
    return e.apply(function, x, other, dtype=bool_)


def _question(function: str, x: Expr) -> Expr:
    return e.apply(function, x, dtype=bool_)


def _either(a: Expr, b: Expr) -> Expr:
    return e.apply("logical_or", a, b, dtype=bool_)


def _both(a: Expr, b: Expr) -> Expr:
    return e.apply("logical_and", a, b, dtype=bool_)


def _number(value: float, like: Expr) -> Expr:
    return e.literal(value, like.dtype)


def _each(function: str) -> Callable[..., Expr]:
    """A function that is that of the parts."""

    def applied(*operands: Expr) -> Expr:
        columns = zip(*map(parts, operands), strict=True)
        return join(*(e.apply(function, *column) for column in columns))

    return applied


def _product(x: Expr, y: Expr) -> Expr:
    (a, b), (c, d) = parts(x), parts(y)
    real = _subtract(_multiply(a, c), _multiply(b, d))
    return join(real, _add(_multiply(a, d), _multiply(b, c)))


def _ask_of_parts(function: str, both: Callable[[Expr, Expr], Expr]) -> Callable[..., Expr]:
    """A question that is asked of the parts."""

    def applied(*operands: Expr) -> Expr:
        columns = zip(*map(parts, operands), strict=True)
        real, imaginary = (e.apply(function, *column, dtype=bool_) for column in columns)
        return both(real, imaginary)

    return applied


# What rounds more than once -----------------------------------------------------------------------


def _in_double(rule: Callable[..., Expr]) -> Callable[..., Expr]:
    """The rule in f64, rounded to the operands' own precision at the end."""

    def applied(*operands: Expr) -> Expr:
        dtype = operands[0].dtype
        if dtype is not c64:
            return rule(*operands)
        found = rule(*(cast(operand, c128) for operand in operands))
        return cast(found, c64) if found.dtype.is_complex else e.cast(found, f32)

    return applied


def _magnitude(x: Expr) -> Expr:
    """√(a² + b²) without overflow; infinite if a part is, even beside a NaN."""
    a, b = map(_abs, parts(x))
    is_larger = _is("greater", a, b)
    large, small = e.select(is_larger, a, b), e.select(is_larger, b, a)
    ratio = _divide(small, e.select(_is("equal", large, 0.0), _number(1.0, large), large))
    size = _multiply(large, _sqrt(_add(_number(1.0, ratio), _multiply(ratio, ratio))))
    is_nan = _either(_question("is_nan", a), _question("is_nan", b))
    size = e.select(is_nan, _number(math.nan, size), size)
    is_infinite = _either(_question("is_inf", a), _question("is_inf", b))
    return e.select(is_infinite, _number(math.inf, size), size)


def _magnitude_of_single(x: Expr) -> Expr:
    """√(a² + b²) in f64, where no square of an f32 overflows."""
    a, b = parts(cast(x, c128))
    size = _sqrt(_add(_multiply(a, a), _multiply(b, b)))
    is_infinite = _either(_question("is_inf", a), _question("is_inf", b))
    return e.cast(e.select(is_infinite, _number(math.inf, size), size), f32)


def _absolute(x: Expr) -> Expr:
    return _magnitude_of_single(x) if x.dtype is c64 else _magnitude(x)


def _quotient(x: Expr, y: Expr) -> Expr:
    """Smith's division: by the larger part of the divisor first."""
    (a, b), (c, d) = parts(x), parts(y)
    is_real = _is("greater_equal", _abs(c), _abs(d))
    large, small = e.select(is_real, c, d), e.select(is_real, d, c)
    ratio = _divide(small, large)
    is_zero = _is("equal", large, 0.0)
    ratio = e.select(is_zero, _number(0.0, ratio), ratio)
    scale = _add(large, _multiply(small, ratio))
    near, far = e.select(is_real, a, b), e.select(is_real, b, a)
    real = _divide(_add(near, _multiply(far, ratio)), scale)
    imaginary = _divide(_subtract(far, _multiply(near, ratio)), scale)
    return join(real, e.select(is_real, imaginary, _negate(imaginary)))


def _reciprocal(x: Expr) -> Expr:
    return _quotient(literal(1, x.dtype), x)


def _sign(x: Expr) -> Expr:
    """The number of magnitude 1 in the same direction; 0 of 0."""
    size = _magnitude(x)
    divisor = e.select(_is("equal", size, 0.0), _number(1.0, size), size)
    return join(*(_divide(part, divisor) for part in parts(x)))


def _exp(x: Expr) -> Expr:
    a, b = parts(x)
    size = e.apply("exp", a)
    is_real = _is("equal", b, 0.0)
    vanishes = _both(_is("equal", size, 0.0), e.apply("logical_not", _question("is_nan", b)))
    turned = [_multiply(size, e.apply(name, b)) for name in ("cos", "sin")]
    real = e.select(is_real, size, e.select(vanishes, size, turned[0]))
    return join(real, e.select(is_real, b, e.select(vanishes, _number(0.0, b), turned[1])))


def _log(x: Expr) -> Expr:
    a, b = parts(x)
    size = e.apply("log", _magnitude(x))
    a_size, b_size = _abs(a), _abs(b)
    is_larger = _is("greater", a_size, b_size)
    large, small = e.select(is_larger, a_size, b_size), e.select(is_larger, b_size, a_size)
    # Near 1, log √(a² + b²) is ½ log(1 + (a - 1)(a + 1) + b²).
    one = _number(1.0, large)
    beyond = _add(_multiply(_subtract(large, one), _add(large, one)), _multiply(small, small))
    near = _multiply(_number(0.5, beyond), e.apply("log1p", beyond))
    is_near = _is("less", _abs(beyond), 0.25)
    return join(e.select(is_near, near, size), e.apply("atan2", b, a))


def _root(x: Expr) -> Expr:
    """√x with a real part that is not negative."""
    a, b = parts(x)
    half = _number(0.5, a)
    side = _sqrt(_add(_multiply(half, _abs(a)), _multiply(half, _magnitude(x))))
    is_zero = _is("equal", side, 0.0)
    twice = _multiply(_number(2.0, side), e.select(is_zero, half, side))
    other = _divide(_abs(b), twice)
    is_right = _is("greater_equal", a, 0.0)
    real = e.select(is_right, side, other)
    imaginary = _copysign(e.select(is_right, other, side), b)
    is_infinite = _question("is_inf", b)
    real = e.select(is_infinite, _number(math.inf, real), real)
    return join(real, e.select(is_infinite, b, imaginary))


def _sine(x: Expr) -> Expr:
    a, b = parts(x)
    sine, cosine = (e.apply(name, a) for name in ("sin", "cos"))
    return join(_multiply(sine, e.apply("cosh", b)), _multiply(cosine, e.apply("sinh", b)))


def _cosine(x: Expr) -> Expr:
    a, b = parts(x)
    sine, cosine = (e.apply(name, a) for name in ("sin", "cos"))
    across = _negate(_multiply(sine, e.apply("sinh", b)))
    return join(_multiply(cosine, e.apply("cosh", b)), across)


FAR = 20.0
"""Where tanh is ±1 to the last bit of an f64."""


def _hyperbolic_tangent(x: Expr) -> Expr:
    """sinh 2a / (cosh 2a + cos 2b) and sin 2b / (cosh 2a + cos 2b), by tan b and sinh a."""
    a, b = parts(x)
    bounded = e.apply("maximum", e.apply("minimum", a, _number(FAR, a)), _number(-FAR, a))
    sinh, cosh = e.apply("sinh", bounded), e.apply("cosh", bounded)
    sine, cosine = e.apply("sin", b), e.apply("cos", b)
    scale = _add(_multiply(sinh, sinh), _multiply(cosine, cosine))
    return join(_divide(_multiply(sinh, cosh), scale), _divide(_multiply(sine, cosine), scale))


def _power(x: Expr, y: Expr) -> Expr:
    """exp(y log x); 1 for an exponent of 0, and 0 to what has a positive real part is 0."""
    (a, b), (c, d) = parts(x), parts(y)
    found = _exp(_product(y, _log(x)))
    is_nothing = _both(_is("equal", a, 0.0), _is("equal", b, 0.0))
    is_growing = _both(_is("greater", c, 0.0), _is("equal", d, 0.0))
    found = select(_both(is_nothing, is_growing), literal(0, x.dtype), found)
    is_none = _both(_is("equal", c, 0.0), _is("equal", d, 0.0))
    return select(is_none, literal(1, x.dtype), found)


FUNCTIONS: dict[str, Callable[..., Expr]] = {
    JOIN: join,
    "real": lambda x: parts(x)[0],
    "imag": lambda x: parts(x)[1],
    "conj": lambda x: join(parts(x)[0], _negate(parts(x)[1])),
    **{name: _each(name) for name in ("add", "subtract", "negate")},
    "multiply": _product,
    "where": select,
    "divide": _in_double(_quotient),
    "reciprocal": _in_double(_reciprocal),
    "abs": _absolute,
    "sign": _in_double(_sign),
    "exp": _in_double(_exp),
    "log": _in_double(_log),
    "sqrt": _in_double(_root),
    "sin": _in_double(_sine),
    "cos": _in_double(_cosine),
    "tanh": _in_double(_hyperbolic_tangent),
    "power": _in_double(_power),
    "equal": _ask_of_parts("equal", _both),
    "not_equal": _ask_of_parts("not_equal", _either),
    "is_nan": _ask_of_parts("is_nan", _either),
    "is_inf": _ask_of_parts("is_inf", _either),
    "is_finite": _ask_of_parts("is_finite", _both),
}
"""The functions that complex numbers have in kernels."""
