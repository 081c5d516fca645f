"""Tensor contents that belong to a graph: constants and weights.

A ``Data`` knows its dtype and shape without being read; its array is read when asked for. Two are
equal when their bytes are: ``-0.0`` differs from ``0.0``, and a NaN equals the same NaN. Arrays are
handed out read-only, because a graph shares them with whoever made them.
"""

from __future__ import annotations

import copy
import hashlib
import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from monograph.errors import EvaluationError
from monograph.ir.types import Array, DType, TensorType, dtype_of, string

STORED = {
    **{"f64": "F64", "f32": "F32", "f16": "F16", "bf16": "BF16", "c64": "C64", "bool": "BOOL"},
    **{"i64": "I64", "i32": "I32", "i16": "I16", "i8": "I8"},
    **{"u64": "U64", "u32": "U32", "u16": "U16", "u8": "U8"},
    **{"f8e4m3fn": "F8_E4M3", "f8e5m2": "F8_E5M2", "f8e8m0fnu": "F8_E8M0"},
    **{"f8e4m3fnuz": "F8_E4M3FNUZ", "f8e5m2fnuz": "F8_E5M2FNUZ"},
}
"""Our dtypes that safetensors has, with its names for them; the others are stored as bytes."""


REMEMBERED = ("digest", "splat")
"""What contents remember of themselves once they were asked."""


class Data(ABC):
    """The contents of one tensor, perhaps not yet read."""

    dtype: DType
    shape: tuple[int, ...]

    @abstractmethod
    def array(self) -> Array:
        """The contents as a read-only NumPy array."""

    @property
    def is_private(self) -> bool:
        """Whether nobody outside of the graph can write to the contents, in memory or in a file."""
        return False

    def snapshot(self) -> Data:
        """The contents as they are now, in memory of their own; these, if they are private."""
        if self.is_private:
            return self
        return ArrayData(self.array().copy(), self.dtype, private=True)

    def reread(self) -> Data:
        """The same contents without the digest and splat that are remembered of them.

        Whoever wrote to them since has made both untrue.
        """
        if self.is_private or self.__dict__.keys().isdisjoint(REMEMBERED):
            return self
        fresh = copy.copy(self)
        for name in REMEMBERED:
            fresh.__dict__.pop(name, None)
        return fresh

    def unload(self) -> None:  # noqa: B027  # most have nothing to give back
        """Give back memory that reading took, if the contents can be read again as they are."""

    @property
    def device_tensor(self) -> Any | None:
        """The contents as a torch tensor on a GPU, if they lie there and need not be brought."""
        return None

    @property
    def type(self) -> TensorType:
        """The tensor type of the contents."""
        return TensorType(self.dtype, self.shape)

    @property
    def size(self) -> int:
        """How many elements there are."""
        return math.prod(self.shape)

    @cached_property
    def digest(self) -> str:
        """A content hash of dtype, shape and bytes: equal contents have equal digests.

        Of a splat only the one element is hashed, so that its size costs nothing.
        """
        state = hashlib.blake2b(f"{self.dtype.name}{self.shape}".encode(), digest_size=16)
        element = self.splat
        state.update(raw_bytes(self.array() if element is None else np.asarray(element)))
        return state.hexdigest()

    @cached_property
    def splat(self) -> Any | None:
        """The one element that fills the tensor, as a NumPy scalar, or None if there is no such."""
        if self.size == 0 or self.dtype is string:
            return None
        array = self.array()
        if not any(array.strides):  # one element broadcast: nothing to compare, or to copy
            return array[(0,) * array.ndim]
        flat = array.reshape(-1)
        first = flat[:1]
        if self.size > 1:
            if raw_bytes(flat[-1:]) != raw_bytes(first):
                return None
            view = _bit_view(flat)
            if not bool((view == view[:1]).all()):
                return None
        return first[0]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Data):
            return NotImplemented
        if self.dtype is not other.dtype or self.shape != other.shape:
            return False
        return self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


class ArrayData(Data):
    """Contents that are already an array in memory.

    ``private`` promises that nobody writes to it any more; of ``bytes`` that is known.
    """

    def __init__(
        self, array: npt.ArrayLike, dtype: DType | None = None, *, private: bool = False
    ) -> None:
        given = np.asarray(array)
        self.dtype = dtype_of(given.dtype) if dtype is None else dtype
        with np.errstate(over="ignore", invalid="ignore"):  # infinite, as a computed one would be
            converted = given.astype(self.dtype.numpy, copy=False)
        view = converted.view() if converted is given or converted.base is not None else converted
        view.flags.writeable = False
        self._array = view
        self._is_private = private or _is_of_bytes(view)
        self.shape = tuple(int(size) for size in view.shape)

    def array(self) -> Array:
        """The array itself, read-only."""
        return self._array

    @property
    def is_private(self) -> bool:
        """Whether nobody writes to the array."""
        return self._is_private

    def __repr__(self) -> str:
        return f"ArrayData({self.type})"


class MissingData(Data):
    """Contents that are known by digest alone, as when text is parsed without its weights."""

    def __init__(self, type_: TensorType, digest: str) -> None:
        self.dtype = type_.dtype
        self.shape = type_.static_shape()
        self._digest = digest

    @property
    def digest(self) -> str:
        """The digest that the text form gave."""
        return self._digest

    def array(self) -> Array:
        """There is nothing to read: an error that says how to supply it."""
        raise EvaluationError(
            "this weight's data was not loaded",
            expected="the array with digest " + self._digest,
            found=f"only its type, {self.type}",
            hint="pass weights={name: array} to parse, or load the graph with its weights file",
        )

    def __repr__(self) -> str:
        return f"MissingData({self.type})"


def _is_of_bytes(array: Array) -> bool:
    """Whether an array is a view of Python's ``bytes``, which never change."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return type(base) is bytes


def _bit_view(flat: Array) -> Array:
    """A 1-d array's elements as bits, so that NaN and -0.0 compare by representation."""
    if flat.dtype.itemsize == 16:
        return np.ascontiguousarray(flat).view(np.uint64).reshape(-1, 2)
    unsigned = np.dtype(f"u{flat.dtype.itemsize}")
    return np.ascontiguousarray(flat).view(unsigned)


def raw_bytes(array: Array) -> bytes:
    """The bytes that stand for an array's contents; strings are joined with their lengths."""
    if array.dtype.hasobject:
        encoded = [str(item).encode() for item in array.reshape(-1)]
        return b"".join(len(item).to_bytes(8, "little") + item for item in encoded)
    return np.ascontiguousarray(array).tobytes()


def pack(array: Array, bits: int) -> npt.NDArray[np.uint8]:
    """Pack the elements of a sub-byte type into bytes, lowest bits first.

    ``i4`` values ``[1, -1, 3]`` become ``[0xF1, 0x03]``.
    """
    per_byte = 8 // bits
    codes = np.ascontiguousarray(array).reshape(-1).view(np.uint8) & np.uint8((1 << bits) - 1)
    padded = np.zeros(-(-codes.size // per_byte) * per_byte, np.uint8)
    padded[: codes.size] = codes
    groups = padded.reshape(-1, per_byte)
    packed = np.zeros(groups.shape[0], np.uint8)
    for position in range(per_byte):
        packed |= groups[:, position] << np.uint8(position * bits)
    return packed


def unpack(packed: npt.NDArray[np.uint8], dtype: DType, shape: tuple[int, ...]) -> Array:
    """Undo ``pack``: the elements of a sub-byte type, one a byte, as NumPy holds them."""
    per_byte = 8 // dtype.bits
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(dtype.bits)
    codes = (packed[:, None] >> shifts) & np.uint8((1 << dtype.bits) - 1)
    flat = codes.reshape(-1)[: int(np.prod(shape, dtype=np.int64))]
    if dtype.kind.name == "SIGNED":
        sign = np.uint8(1 << (dtype.bits - 1))
        flat = (flat ^ sign) - sign
        return flat.view(np.int8).astype(dtype.numpy).reshape(shape)
    if dtype.is_float:
        return flat.view(dtype.numpy).reshape(shape)
    return flat.astype(dtype.numpy).reshape(shape)
