"""torch's type promotion: which dtype tensors, 0-d tensors and Python numbers meet in.

Three ranks of operand: tensors with dimensions, tensors without, Python numbers. A lower rank
changes the result only where its kind (bool, integer, float, complex) is higher than what the
ranks above it have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from monograph.frontends.torch.types import default_float
from monograph.ir.dims import SymbolicDim
from monograph.ir.graph import Value
from monograph.ir.types import DType, Kind, bool_, c64, c128, f32, f64, i64, promote

Scalar: TypeAlias = bool | int | float | complex


def common_dtype(operands: Sequence[Any]) -> DType:
    """The dtype that torch would compute on these values and numbers in."""
    tensors = _meet(operand.dtype for operand in operands if _rank(operand) == 2)
    scalars = _meet(operand.dtype for operand in operands if _rank(operand) == 1)
    numbers = _meet(_number_dtype(operand) for operand in operands if _rank(operand) == 0)
    found = _combine(_combine(tensors, scalars), numbers)
    return f32 if found is None else found


def float_dtype(dtype: DType) -> DType:
    """The dtype in which ops on floats compute: integers and bools become the default float."""
    return dtype if dtype.is_differentiable else default_float()


def _rank(operand: Any) -> int:
    if isinstance(operand, Value):
        return 2 if operand.rank else 1
    return 0


def _meet(dtypes: Iterable[DType]) -> DType | None:
    found: DType | None = None
    for dtype in dtypes:
        found = dtype if found is None else promote(found, dtype)
    return found


def _number_dtype(number: Any) -> DType:
    if isinstance(number, bool):
        return bool_
    if isinstance(number, int | SymbolicDim):
        return i64
    if isinstance(number, complex):
        return c128 if default_float() is f64 else c64
    return default_float()


def _combine(higher: DType | None, lower: DType | None) -> DType | None:
    """What a rank of operands becomes beside the rank below it."""
    if higher is None or lower is None:
        return lower if higher is None else higher
    if higher.is_complex:
        return higher
    if higher.is_float:
        return _as_complex(higher) if lower.is_complex else higher
    if higher.kind is Kind.BOOL or lower.is_differentiable:
        return promote(higher, lower)
    return higher


def _as_complex(dtype: DType) -> DType:
    return c128 if dtype is f64 else c64
