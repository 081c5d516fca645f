"""torch's dtypes and symbolic sizes as ours.

A size that torch knows as a SymPy expression over symbols (``2*s0 + 1``) becomes a dimension over
symbols of our own, each with the range that torch has found for it. Symbols that torch cannot know
before the model runs (``u0``, the length of a ``nonzero``) are symbols like others, from 0 up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import torch

from monograph.errors import UnsupportedError
from monograph.ir import types as ours
from monograph.ir.dims import Dim, Shape, Symbol, dim_max, dim_min
from monograph.ir.types import Array, DType, TensorType

_NAMES = {
    "float64": ours.f64,
    "float32": ours.f32,
    "float16": ours.f16,
    "bfloat16": ours.bf16,
    "float8_e4m3fn": ours.f8e4m3fn,
    "float8_e5m2": ours.f8e5m2,
    "float8_e4m3fnuz": ours.f8e4m3fnuz,
    "float8_e5m2fnuz": ours.f8e5m2fnuz,
    "float8_e8m0fnu": ours.f8e8m0fnu,
    "complex128": ours.c128,
    "complex64": ours.c64,
    "int64": ours.i64,
    "int32": ours.i32,
    "int16": ours.i16,
    "int8": ours.i8,
    "uint64": ours.u64,
    "uint32": ours.u32,
    "uint16": ours.u16,
    "uint8": ours.u8,
    "bool": ours.bool_,
}
_TO_OURS: Mapping[Any, DType] = {
    getattr(torch, name): dtype for name, dtype in _NAMES.items() if hasattr(torch, name)
}
_TO_TORCH: Mapping[DType, Any] = {dtype: theirs for theirs, dtype in _TO_OURS.items()}
_CARRIED: Mapping[Any, DType] = {**_TO_OURS, torch.complex32: ours.c64}
_UNBOUNDED = 2**48  # a bound beyond this is torch's way of saying that there is none


def dtype_from_torch(dtype: torch.dtype) -> DType:
    """Our dtype for torch's; an error that names one we do not have.

    complex32 is carried as c64: see ``half_complex``.
    """
    found = _CARRIED.get(dtype)
    if found is None:
        raise UnsupportedError(f"there is no dtype here for {dtype}")
    return found


def dtype_to_torch(dtype: DType) -> torch.dtype:
    """torch's dtype for ours; an error that names one that torch does not have."""
    found: torch.dtype | None = _TO_TORCH.get(dtype)
    if found is None:
        raise UnsupportedError(f"torch has no dtype for {dtype}")
    return found


def is_torch_dtype(dtype: DType) -> bool:
    """Whether torch has a dtype for ours."""
    return dtype in _TO_TORCH


def is_supported(dtype: torch.dtype) -> bool:
    """Whether we have a dtype for this one."""
    return dtype in _CARRIED


def array_from_torch(tensor: torch.Tensor) -> Array:
    """The tensor's memory as a NumPy array; nothing is copied but complex32, which is widened."""
    if tensor.is_nested or tensor.is_meta:
        kind = "nested" if tensor.is_nested else "meta"
        raise UnsupportedError(f"a {kind} tensor ({tensor.dtype}) is not an array")
    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain.layout is not torch.strided or plain.is_quantized:
        raise UnsupportedError(f"a {plain.layout} tensor ({plain.dtype}) is not an array")
    if plain.device.type != "cpu":
        plain = plain.cpu()
    if plain.dtype is torch.complex32:
        plain = plain.to(torch.complex64)
    dtype = dtype_from_torch(plain.dtype)
    if dtype.is_float and dtype.bits < 32 and dtype is not ours.f16:
        carrier = torch.int16 if dtype.bits == 16 else torch.uint8
        array: Array = plain.view(carrier).numpy().view(dtype.numpy)
        return array
    shared: Array = plain.numpy()
    return shared


def array_to_torch(array: Array) -> torch.Tensor:
    """The array as a tensor: a view where torch can hold one (writable, forward strides)."""
    given = np.asarray(array)
    if given.dtype.char in "fdlqib?" and given.flags.c_contiguous and given.flags.writeable:
        return torch.from_numpy(given)
    if not given.flags.writeable or any(stride < 0 for stride in given.strides):
        given = given.copy()
    dtype = dtype_to_torch(ours.dtype_of(given.dtype))
    if given.dtype.kind == "V" or given.dtype.type.__module__ == ml_dtypes.__name__:
        carrier = np.int16 if given.dtype.itemsize == 2 else np.uint8
        return torch.from_numpy(given.view(carrier)).view(dtype)
    return torch.from_numpy(given)


class SymbolTable:
    """Turns torch's symbolic sizes into dimensions, one symbol of ours for each of torch's.

    ``ranges`` gives a symbol's bounds (a SymPy symbol to an object with ``lower`` and ``upper``);
    ``names`` gives symbols the names that the user chose.
    """

    def __init__(
        self,
        ranges: Mapping[Any, Any] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        self._ranges = dict(ranges or {})
        self._names = dict(names or {})
        self._symbols: dict[str, Symbol | None] = {}
        self._dims: dict[Any, Dim] = {}
        self._measured: dict[Symbol, Dim] = {}
        self._shape_env: Any = None  # knows the ranges of symbols that `ranges` does not

    def dim(self, size: Any) -> Dim:
        """A size (an int or a SymInt) as a dimension."""
        if isinstance(size, int):
            return int(size)
        self._shape_env = size.node.shape_env
        return self.expression(size.node.expr)

    def expression(self, expression: Any) -> Dim:
        """A SymPy expression as a dimension."""
        found = self._dims.get(expression)
        if found is None:
            found = self._dims[expression] = self._convert(expression)
        return found

    def shape(self, sizes: Any) -> Shape:
        """torch's sizes as a shape."""
        return tuple(int(size) if type(size) is int else self.dim(size) for size in sizes)

    def tensor_type(self, tensor: torch.Tensor) -> TensorType:
        """The type of a tensor (usually a fake one that stands for a value)."""
        return TensorType(dtype_from_torch(tensor.dtype), self.shape(tensor.shape))

    def measure(self, declared: Shape, actual: Shape) -> None:
        """Let sizes that only the data decides (torch's ``u0``) be what our graph calls them."""
        for symbol, dim in zip(declared, actual, strict=True):
            if not isinstance(symbol, Symbol) or symbol == dim or symbol in self._measured:
                continue
            if re.fullmatch(r"u\d+", symbol.name):
                self._measured[symbol] = dim
                self._dims.clear()

    def is_dimension(self, size: Any) -> bool:
        """Whether a SymInt can be a dimension: no symbol in it may be negative."""
        if isinstance(size, int):
            return True
        self._shape_env = size.node.shape_env
        return all(self._symbol(symbol) is not None for symbol in size.node.expr.free_symbols)

    def _symbol(self, symbol: Any) -> Symbol | None:
        """Our symbol for one of torch's; None if it may be negative."""
        name = self._names.get(str(symbol), str(symbol))
        if name not in self._symbols:
            bounds = self._ranges.get(symbol)
            if bounds is None and self._shape_env is not None:
                bounds = self._shape_env.var_to_range.get(symbol)
            lower = 0 if bounds is None else _read_bound(bounds.lower)
            upper = None if bounds is None else _read_bound(bounds.upper)
            made = None
            if lower is not None and lower >= 0:
                made = Symbol(name, lower, upper)
            self._symbols[name] = made
        return self._symbols[name]

    def _convert(self, expression: Any) -> Dim:
        if expression.is_Integer:
            return int(expression)
        if expression.is_Symbol:
            symbol = self._symbol(expression)
            if symbol is None:
                raise UnsupportedError(f"size {expression} may be negative: it has no lower bound")
            return self._measured.get(symbol, symbol)
        rule = _RULES.get(type(expression).__name__)
        if rule is None:
            raise UnsupportedError(f"{type(expression).__name__} in the size {expression}")
        if rule is _read_rounded_division:
            return _read_rounded_division(self, expression)
        return rule(*(self.expression(argument) for argument in expression.args))


def _read_bound(bound: Any) -> int | None:
    """An end of a range as an int; None if there is none."""
    if not bound.is_Integer:  # an infinity
        return None
    value = int(bound)
    return value if abs(value) < _UNBOUNDED else None


def _sum(*terms: Dim) -> Dim:
    total: Dim = 0
    for term in terms:
        total = total + term
    return total


def _product(*factors: Dim) -> Dim:
    total: Dim = 1
    for factor in factors:
        total = total * factor
    return total


def _power(base: Dim, exponent: Dim) -> Dim:
    if not isinstance(exponent, int) or exponent < 0:
        raise UnsupportedError(f"a size to the power {exponent}")
    return _product(*[base] * exponent)


def _modular(base: Dim, divisor: Dim, modulus: Dim) -> Dim:
    return (base // divisor) % modulus


def _read_rounded_division(table: SymbolTable, expression: Any) -> Dim:
    """``FloorToInt(a / b)`` and its relatives, for sizes that are not negative."""
    (quotient,) = expression.args
    if type(quotient).__name__ not in ("IntTrueDiv", "FloatTrueDiv"):
        raise UnsupportedError(f"the size {expression}")
    numerator, denominator = (table.expression(argument) for argument in quotient.args)
    if type(expression).__name__ == "CeilToInt":
        return (numerator + denominator - 1) // denominator
    return numerator // denominator


def _identity(dim: Dim) -> Dim:
    return dim


_RULES: Mapping[str, Callable[..., Dim]] = {
    "Add": _sum,
    "Mul": _product,
    "Pow": _power,
    "PowByNatural": _power,
    "FloorDiv": lambda a, b: a // b,
    "CleanDiv": lambda a, b: a // b,
    "CeilDiv": lambda a, b: (a + b - 1) // b,
    "Mod": lambda a, b: a % b,
    "PythonMod": lambda a, b: a % b,
    "ModularIndexing": _modular,
    "Max": dim_max,
    "Min": dim_min,
    "Identity": _identity,
    "ToFloat": _identity,
    "FloorToInt": _read_rounded_division,
    "TruncToInt": _read_rounded_division,
    "CeilToInt": _read_rounded_division,
}


def default_float() -> DType:
    """What a Python float is as a tensor."""
    return dtype_from_torch(torch.get_default_dtype())
