"""NumPy's ufuncs: elementwise functions, in the dtypes that NumPy resolves for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from monograph import functional as F
from monograph.errors import UnsupportedError
from monograph.frontends.complex_functions import COMPLEX
from monograph.frontends.xla.arithmetic import cube_root
from monograph.ir.build import cast_to, promote_operands
from monograph.ir.graph import Value
from monograph.ir.types import bool_, dtype_of

Function = Callable[..., Any]


def _log_add(a: Value, b: Value) -> Value:
    return F.logsumexp(F.stack([a, b], 0), 0)


def _heaviside(x: Value, half: Value) -> Value:
    return F.where(F.equal(x, 0), half, cast_to(F.greater(x, 0), x.dtype))


def _not_less(a: Value, b: Value) -> Value:
    """The larger number, where NaN is none."""
    return F.where(F.is_nan(a), b, F.where(F.is_nan(b), a, F.maximum(a, b)))


def _not_greater(a: Value, b: Value) -> Value:
    return F.where(F.is_nan(a), b, F.where(F.is_nan(b), a, F.minimum(a, b)))


def _truth(x: Value) -> Value:
    return x if x.dtype is bool_ else F.not_equal(x, 0)


def _logical(function: Function) -> Function:
    return lambda *operands: function(*map(_truth, operands))


def _of_bools(numbers: Function, bools: Function) -> Function:
    """One function of numbers and another of bools: NumPy's + of bools is their or."""
    return lambda *values: (bools if values[0].dtype is bool_ else numbers)(*values)


def _divmod(a: Value, b: Value) -> tuple[Value, Value]:
    return F.floor_divide(a, b), F.remainder(a, b)


UFUNCS: dict[str, Function] = {
    "absolute": _of_bools(F.abs, lambda x: x),
    "add": _of_bools(F.add, F.logical_or),
    "arccos": F.acos,
    "arccosh": F.acosh,
    "arcsin": F.asin,
    "arcsinh": F.asinh,
    "arctan": F.atan,
    "arctan2": F.atan2,
    "arctanh": F.atanh,
    "bitwise_and": F.bitwise_and,
    "bitwise_or": F.bitwise_or,
    "bitwise_xor": F.bitwise_xor,
    "cbrt": cube_root,
    "ceil": F.ceil,
    "conjugate": lambda x: F.conj(x) if x.dtype.is_complex else x,
    "copysign": F.copysign,
    "cos": F.cos,
    "cosh": F.cosh,
    "deg2rad": lambda x: F.multiply(x, np.pi / 180),
    "divide": F.divide,
    "divmod": _divmod,
    "equal": F.equal,
    "exp": F.exp,
    "exp2": F.exp2,
    "expm1": F.expm1,
    "fabs": F.abs,
    "float_power": F.power,
    "floor": F.floor,
    "floor_divide": F.floor_divide,
    "fmax": _not_less,
    "fmin": _not_greater,
    "fmod": F.fmod,
    "greater": F.greater,
    "greater_equal": F.greater_equal,
    "heaviside": _heaviside,
    "hypot": lambda a, b: F.abs(F.complex(a, b)),
    "invert": F.bitwise_not,
    "isfinite": F.is_finite,
    "isinf": F.is_inf,
    "isnan": F.is_nan,
    "left_shift": F.shift_left,
    "less": F.less,
    "less_equal": F.less_equal,
    "log": F.log,
    "log10": F.log10,
    "log1p": F.log1p,
    "log2": F.log2,
    "logaddexp": _log_add,
    "logical_and": _logical(F.logical_and),
    "logical_not": _logical(F.logical_not),
    "logical_or": _logical(F.logical_or),
    "logical_xor": _logical(F.logical_xor),
    "matmul": F.matmul,
    "maximum": F.maximum,
    "minimum": F.minimum,
    "multiply": _of_bools(F.multiply, F.logical_and),
    "negative": F.negate,
    "not_equal": F.not_equal,
    "positive": lambda x: x,
    "power": F.power,
    "rad2deg": lambda x: F.multiply(x, 180 / np.pi),
    "reciprocal": F.reciprocal,
    "remainder": F.remainder,
    "right_shift": F.shift_right,
    "rint": F.round,
    "sign": F.sign,
    "signbit": lambda x: F.less(F.copysign(F.ones_like(x), x), 0),
    "sin": F.sin,
    "sinh": F.sinh,
    "sqrt": F.sqrt,
    "square": F.square,
    "subtract": F.subtract,
    "tan": F.tan,
    "tanh": F.tanh,
    "trunc": F.trunc,
}
"""What each ufunc is here, by NumPy's name."""

_INVERSES = ("cos", "cosh", "sin", "sinh", "tan", "tanh")
_OF_COMPLEX: dict[str, Function] = COMPLEX | {f"arc{f}": COMPLEX[f"a{f}"] for f in _INVERSES}
"""What those are of complex numbers that have another formula there."""

SAME = {"degrees": "rad2deg", "radians": "deg2rad", "mod": "remainder", "true_divide": "divide"}


def apply(ufunc: Any, inputs: Sequence[Any]) -> Any:
    """The result of a ufunc: operands meet in one dtype, and then in one that NumPy has it for."""
    name = SAME.get(ufunc.__name__, ufunc.__name__)
    function = UFUNCS.get(name)
    if function is None:
        raise UnsupportedError(f"numpy.{ufunc.__name__} cannot be traced")
    values = promote_operands(*inputs)
    if values[0].dtype.is_complex:
        function = _OF_COMPLEX.get(name, function)
    resolved = _resolve_dtypes(ufunc, values)
    if resolved is None:
        return function(*values)
    own, results = resolved[: ufunc.nin], resolved[ufunc.nin :]
    made = function(*(cast_to(v, dtype_of(d)) for v, d in zip(values, own, strict=True)))
    if ufunc.nout > 1:
        return tuple(cast_to(v, dtype_of(d)) for v, d in zip(made, results, strict=True))
    return cast_to(made, dtype_of(results[0]))


def _resolve_dtypes(ufunc: Any, values: Sequence[Value]) -> Sequence[Any] | None:
    """NumPy's dtypes of operands and results; None for dtypes that NumPy itself does not have."""
    given = tuple(value.dtype.numpy for value in values)
    if any(not dtype.isbuiltin for dtype in given):
        return None
    try:
        found: Sequence[Any] = ufunc.resolve_dtypes((*given, *(None,) * ufunc.nout))
    except TypeError as problem:
        raise UnsupportedError(f"numpy.{ufunc.__name__}: {problem}") from None
    return found
