"""What a value is: its dtype, its shape, and where and how it lies in memory.

A ``DType`` is one of a fixed set of singletons (``f32``, ``bf16``, ``i4``…). A ``TensorType`` adds
a shape whose dimensions are ints or symbolic expressions (see ``dims``). Sequences and optionals of
tensors exist beside it for models that carry them; only the interpreter runs those.

Types print the way that the text form writes them: ``f32[batch, 4]``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import Enum
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt

from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.ir.dims import Dim, Shape, Symbol, SymbolicDim, shape_product, substitute_shape

Array: TypeAlias = npt.NDArray[Any]


class Kind(Enum):
    """The families of number that promotion and type rules speak of."""

    BOOL = 0
    UNSIGNED = 1
    SIGNED = 2
    FLOAT = 3
    COMPLEX = 4
    STRING = 5


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """One element type. Compared by identity: each exists once, in this module."""

    name: str
    kind: Kind
    bits: int
    numpy: np.dtype[Any]

    @property
    def is_float(self) -> bool:
        """Real floating point (complex numbers are not)."""
        return self.kind is Kind.FLOAT

    @property
    def is_complex(self) -> bool:
        """A pair of floats."""
        return self.kind is Kind.COMPLEX

    @property
    def is_integer(self) -> bool:
        """A signed or unsigned integer (bool is not)."""
        return self.kind in (Kind.SIGNED, Kind.UNSIGNED)

    @property
    def is_differentiable(self) -> bool:
        """Whether gradients flow through values of this type."""
        return self.kind in (Kind.FLOAT, Kind.COMPLEX)

    @property
    def is_packed(self) -> bool:
        """Whether several elements share a byte in memory (i4, u4, i2, u2, f4)."""
        return 0 < self.bits < 8 and self.kind is not Kind.BOOL

    @property
    def dtype(self) -> np.dtype[Any]:
        """What NumPy asks an object for that stands where a dtype does: ``np.ones(2, x.dtype)``."""
        return self.numpy

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return self.name

    def __deepcopy__(self, memo: object) -> DType:
        return self


f64 = DType("f64", Kind.FLOAT, 64, np.dtype(np.float64))
f32 = DType("f32", Kind.FLOAT, 32, np.dtype(np.float32))
f16 = DType("f16", Kind.FLOAT, 16, np.dtype(np.float16))
bf16 = DType("bf16", Kind.FLOAT, 16, np.dtype(ml_dtypes.bfloat16))
f8e4m3fn = DType("f8e4m3fn", Kind.FLOAT, 8, np.dtype(ml_dtypes.float8_e4m3fn))
f8e5m2 = DType("f8e5m2", Kind.FLOAT, 8, np.dtype(ml_dtypes.float8_e5m2))
f8e4m3fnuz = DType("f8e4m3fnuz", Kind.FLOAT, 8, np.dtype(ml_dtypes.float8_e4m3fnuz))
f8e5m2fnuz = DType("f8e5m2fnuz", Kind.FLOAT, 8, np.dtype(ml_dtypes.float8_e5m2fnuz))
f8e8m0fnu = DType("f8e8m0fnu", Kind.FLOAT, 8, np.dtype(ml_dtypes.float8_e8m0fnu))
f4e2m1fn = DType("f4e2m1fn", Kind.FLOAT, 4, np.dtype(ml_dtypes.float4_e2m1fn))
c128 = DType("c128", Kind.COMPLEX, 128, np.dtype(np.complex128))
c64 = DType("c64", Kind.COMPLEX, 64, np.dtype(np.complex64))
i64 = DType("i64", Kind.SIGNED, 64, np.dtype(np.int64))
i32 = DType("i32", Kind.SIGNED, 32, np.dtype(np.int32))
i16 = DType("i16", Kind.SIGNED, 16, np.dtype(np.int16))
i8 = DType("i8", Kind.SIGNED, 8, np.dtype(np.int8))
i4 = DType("i4", Kind.SIGNED, 4, np.dtype(ml_dtypes.int4))
i2 = DType("i2", Kind.SIGNED, 2, np.dtype(ml_dtypes.int2))
u64 = DType("u64", Kind.UNSIGNED, 64, np.dtype(np.uint64))
u32 = DType("u32", Kind.UNSIGNED, 32, np.dtype(np.uint32))
u16 = DType("u16", Kind.UNSIGNED, 16, np.dtype(np.uint16))
u8 = DType("u8", Kind.UNSIGNED, 8, np.dtype(np.uint8))
u4 = DType("u4", Kind.UNSIGNED, 4, np.dtype(ml_dtypes.uint4))
u2 = DType("u2", Kind.UNSIGNED, 2, np.dtype(ml_dtypes.uint2))
bool_ = DType("bool", Kind.BOOL, 8, np.dtype(np.bool_))
string = DType("string", Kind.STRING, 0, np.dtype(np.object_))

DTYPES: Mapping[str, DType] = {
    dtype.name: dtype
    for dtype in (
        *(f64, f32, f16, bf16, f8e4m3fn, f8e5m2, f8e4m3fnuz, f8e5m2fnuz, f8e8m0fnu, f4e2m1fn),
        *(c128, c64, i64, i32, i16, i8, i4, i2, u64, u32, u16, u8, u4, u2, bool_, string),
    )
}
_BY_NUMPY = {dtype.numpy: dtype for dtype in DTYPES.values()}


def dtype_of(spelling: DType | str | npt.DTypeLike) -> DType:
    """The DType that a caller means: ours, our name for it, or anything that NumPy understands."""
    if isinstance(spelling, DType):
        return spelling
    if isinstance(spelling, str) and spelling in DTYPES:
        return DTYPES[spelling]
    try:
        numpy_dtype: np.dtype[Any] | None = np.dtype(spelling)
    except TypeError:
        numpy_dtype = None
    if numpy_dtype is not None and numpy_dtype.kind in "UT":
        return string
    found = None if numpy_dtype is None else _BY_NUMPY.get(numpy_dtype.newbyteorder("="))
    if found is None:
        raise InputError(
            f"{spelling!r} is not a dtype",
            expected="one of " + ", ".join(DTYPES),
            found=repr(spelling),
        )
    return found


def promote(a: DType, b: DType) -> DType:
    """The dtype in which ``a`` and ``b`` meet: the higher kind first, then the wider type.

    A float beats an integer whatever their widths (``i64`` and ``f16`` meet in ``f16``), as in
    PyTorch and JAX; two floats of one width that hold different numbers meet in ``f32``.
    """
    if a is b:
        return a
    if string in (a, b):
        raise InputError("strings and numbers do not mix", found=f"{a} and {b}")
    if a.kind is not b.kind and not (a.is_integer and b.is_integer):
        high, low = (a, b) if a.kind.value > b.kind.value else (b, a)
        if high is c64 and low is f64:
            return c128
        return high
    if a.kind is b.kind:
        if a.bits == b.bits:
            return f32 if a.bits == 16 else f16 if a.bits == 8 else a
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a.kind is Kind.SIGNED else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    wider = {2: i4, 4: i8, 8: i16, 16: i32}
    return wider.get(unsigned.bits, i64)


def integer_limits(dtype: DType) -> tuple[int, int]:
    """The least and the greatest number that an integer dtype holds, or a boolean's."""
    if dtype is bool_:
        return 0, 1
    if dtype.kind is Kind.SIGNED:
        return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    return 0, (1 << dtype.bits) - 1


def holds_integers_of(dtype: DType, other: DType) -> bool:
    """Whether an integer dtype has every number of another."""
    (low, high), (least, greatest) = integer_limits(dtype), integer_limits(other)
    return low <= least and greatest <= high


def wide(dtype: DType) -> DType:
    """The dtype in which arithmetic on ``dtype`` is carried out before rounding back to it."""
    if dtype.is_float and dtype.bits < 32:
        return f32
    if dtype.is_packed:
        return i32
    return dtype


@dataclass(frozen=True, slots=True)
class Layout:
    """How dimensions lie in memory: ``order`` from outermost to innermost, then inner ``blocks``.

    Row-major is ``Layout((0, 1, 2, 3))`` (and is what no layout means); channels-last is
    ``Layout((0, 2, 3, 1))``; ``blocks=((1, 16),)`` splits axis 1 into blocks of 16 innermost.
    """

    order: tuple[int, ...]
    blocks: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        text = ",".join(map(str, self.order))
        if self.blocks:
            text += ";" + ",".join(f"{axis}:{size}" for axis, size in self.blocks)
        return f"<{text}>"


@dataclass(frozen=True, slots=True)
class Device:
    """A place that holds tensors: ``cpu:0``, ``gpu:1``."""

    kind: str
    index: int = 0

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"


@dataclass(frozen=True, slots=True)
class Quantization:
    """What the stored integers stand for: ``real = (stored - zero_point) * scale``.

    One scale and zero point for the whole tensor, or one for each index of ``axis``.
    """

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int | None = None

    def __str__(self) -> str:
        scale = ", ".join(map(repr, self.scale))
        zero_point = ", ".join(map(str, self.zero_point))
        axis = "" if self.axis is None else f"; {self.axis}"
        return f"!q({scale}; {zero_point}{axis})"


@dataclass(frozen=True, slots=True)
class TensorType:
    """An n-dimensional array of ``dtype``; the shape's dimensions may be symbolic."""

    dtype: DType
    shape: Shape
    layout: Layout | None = None
    device: Device | None = None
    quantization: Quantization | None = None
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_of(self.dtype))
        parts = (self.dtype.name, self.shape, self.layout, self.device, self.quantization)
        object.__setattr__(self, "_hash", hash(parts))

    def __hash__(self) -> int:
        return self._hash

    @property
    def rank(self) -> int:
        """How many dimensions it has."""
        return len(self.shape)

    @property
    def size(self) -> Dim:
        """How many elements it has."""
        return shape_product(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether every dimension is an int."""
        return all(isinstance(dim, int) for dim in self.shape)

    @property
    def nbytes(self) -> Dim:
        """Bytes in memory; types under eight bits are packed, the last byte padded."""
        bits = self.size * self.dtype.bits
        return (bits + 7) // 8

    def static_shape(self) -> tuple[int, ...]:
        """The shape as plain ints; an error if a dimension is symbolic."""
        dims = tuple(dim for dim in self.shape if isinstance(dim, int))
        if len(dims) != len(self.shape):
            raise InputError(
                "a static shape is needed here",
                expected="every dimension to be an int",
                found=str(self),
            )
        return dims

    def with_shape(self, shape: Shape) -> TensorType:
        """The same element type and device in another shape (a layout does not carry over)."""
        return TensorType(self.dtype, shape, None, self.device)

    def with_dtype(self, dtype: DType) -> TensorType:
        """The same shape with another element type."""
        return TensorType(dtype, self.shape, self.layout, self.device)

    def substitute(self, bindings: Mapping[Symbol, Dim]) -> TensorType:
        """The type with symbols replaced."""
        shape = substitute_shape(self.shape, bindings)
        return TensorType(self.dtype, shape, self.layout, self.device, self.quantization)

    def __str__(self) -> str:
        text = f"{self.dtype.name}[{', '.join(map(str, self.shape))}]"
        if self.layout is not None:
            text += str(self.layout)
        if self.device is not None:
            text += f"@{self.device}"
        if self.quantization is not None:
            text += str(self.quantization)
        return text


@dataclass(frozen=True, slots=True)
class UnrankedType:
    """A tensor of which only the dtype is known; lives inside sequences and optionals."""

    dtype: DType

    def __str__(self) -> str:
        return f"{self.dtype.name}[*]"


@dataclass(frozen=True, slots=True)
class SequenceType:
    """A list of values of one type."""

    element: ValueType

    def __str__(self) -> str:
        return f"sequence<{self.element}>"


@dataclass(frozen=True, slots=True)
class OptionalType:
    """A value that may be absent."""

    element: ValueType

    def __str__(self) -> str:
        return f"optional<{self.element}>"


ValueType: TypeAlias = TensorType | UnrankedType | SequenceType | OptionalType


def symbols_of(type_: ValueType) -> Iterator[Symbol]:
    """Every symbol that a type mentions, in order of appearance."""
    if isinstance(type_, TensorType):
        for dim in type_.shape:
            if isinstance(dim, SymbolicDim):
                yield from dim.symbols()
    elif isinstance(type_, SequenceType | OptionalType):
        yield from symbols_of(type_.element)


def type_of_array(array: Array) -> TensorType:
    """The type that a NumPy array has."""
    return TensorType(dtype_of(array.dtype), tuple(int(size) for size in array.shape))
