"""Predicates on constants for rewrite rules, and the constants that rules make.

A constant may be a ``full``, or spread over a shape by ``expand`` or ``reshape``; rules look
through those, since a frontend writes ``x * 1`` in any of these ways. Weights are not looked at:
reading one may mean reading a file, and their values belong to the model, not to the program.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from monograph.ir.build import constant
from monograph.ir.graph import Value
from monograph.ir.types import DType, TensorType, dtype_of
from monograph.ops import data
from monograph.ops.data import Constant, Full
from monograph.ops.shape import Expand, Reshape, Transpose

SPREADING = (Expand, Reshape, Transpose)  # keep a tensor that is filled with one element so


def is_constant(value: Value) -> bool:
    """Whether the value is a constant, perhaps spread or reshaped."""
    return isinstance(_source(value).op, Constant | Full)


def splat(value: Value) -> Any | None:
    """The one element that fills the value, as a NumPy scalar; None if there is none."""
    op = _source(value).op
    if isinstance(op, Full):
        return op.element()[()]
    return op.data.splat if isinstance(op, Constant) else None


def real_splat(value: Value) -> float | None:
    """The real number that fills a constant, as a Python float."""
    element = splat(value)
    number = None if element is None else as_number(element)
    return None if number is None or isinstance(number, complex) else float(number)


def short_splat(value: Value) -> float | None:
    """Like ``real_splat``, but the shortest number that rounds to it: 1e-5, not 9.99999974e-06."""
    number = real_splat(value)
    if number is None or not value.dtype.is_float:
        return number
    short = float(str(splat(value)))
    return short if round_to(short, value.dtype) == number else number


def fill(type_: TensorType, number: bool | int | float) -> Value:
    """A tensor of this type filled with a number."""
    if type_.shape == ():
        return constant(np.asarray(number).astype(type_.dtype.numpy))
    return data.full(type_.shape, number, type_.dtype)


def as_number(element: Any) -> int | float | complex:
    """A constant's element as a plain Python number."""
    dtype = dtype_of(np.asarray(element).dtype)
    if dtype.is_complex:
        return complex(element)
    return float(element) if dtype.is_float else int(element)


def equals(element: Any, number: complex, tolerance: float = 0.0) -> bool:
    """Whether a constant's element is ``number``, rounded to the element's own precision.

    With a ``tolerance`` (relative) it need only be near. ``0.0`` and ``-0.0`` differ.
    """
    held = as_number(element)
    if isinstance(held, float) and isinstance(number, int | float):
        number = round_to(number, dtype_of(np.asarray(element).dtype))
    if tolerance:
        return abs(held - number) <= tolerance * abs(number)
    return held == number and _sign_of_zero(held) == _sign_of_zero(number)


def round_to(number: float, dtype: DType) -> float:
    """The number as a tensor of this dtype would hold it."""
    with np.errstate(all="ignore"):
        return float(np.asarray(number, np.float64).astype(dtype.numpy))


def _sign_of_zero(number: complex) -> bool:
    return number == 0 and isinstance(number, float) and math.copysign(1.0, number) < 0


def _source(value: Value) -> Value:
    """The value behind the shape ops that only spread or rearrange it."""
    while value.producer is not None and isinstance(value.producer.op, SPREADING):
        value = value.producer.operands[0]
    return value
