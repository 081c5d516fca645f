"""The contents of constants in the text form: exact for every dtype, and short where possible.

A scalar is written as a number, up to 64 elements as nested lists, a tensor of one repeated element
as ``splat 0.0``, and everything else (or what decimal digits cannot say, such as the payload of a
NaN) as ``base64 "..."`` of its bytes. A splat costs nothing to read, whatever its shape.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Sequence
from typing import Any, Literal

import ml_dtypes
import numpy as np

from monograph.dataclass import dataclass
from monograph.ir.data import ArrayData, Data, pack, unpack
from monograph.ir.text.attributes import spell_complex
from monograph.ir.text.lexer import REAL, quote, shorten
from monograph.ir.types import Array, DType, Kind, TensorType, string

MAX_LISTED = 64
"""Up to how many elements a constant prints as nested lists."""

MAX_BYTES = 2**40
MAX_RANK = 64  # NumPy's limit
_INTEGER = re.compile(r"[-+]?[0-9]+")
_REAL = re.compile(rf"[-+]?{REAL}")
_COMPLEX = re.compile(rf"([-+]?{REAL})(?:([-+]{REAL})j)?")


@dataclass(slots=True)
class Payload:
    """The contents of a constant as read, before the dtype behind them is known."""

    form: Literal["list", "splat", "base64"]
    begin: int
    texts: Sequence[str]
    starts: Sequence[int]
    shape: tuple[int, ...] = ()


class PayloadError(ValueError):
    """Contents that do not fit their type; ``element`` says which text is at fault, if one is."""

    def __init__(
        self, message: str, element: int | None, expected: str, found: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.element = element
        self.expected = expected
        self.found = found


# Writing.


def spell_contents(data: Data, *, elide: bool = False) -> str:
    """What stands between the parentheses of a constant; ``elide`` leaves out what is long."""
    if data.dtype is string:
        array = data.array()
        return _nest([quote(str(item)) for item in array.reshape(-1)], data.shape)
    if data.size == 0:
        return "[]"
    element = data.splat
    if element is not None and data.size > 1:
        return f"splat {_spell_exactly(np.asarray(element), data.dtype, ())}"
    if data.size > MAX_LISTED:
        return 'base64 "..."' if elide else _spell_bytes(data.array(), data.dtype)
    return _spell_exactly(data.array(), data.dtype, data.shape)


def _spell_exactly(array: Array, dtype: DType, shape: tuple[int, ...]) -> str:
    """Digits if they read back as the same bytes, else the bytes themselves."""
    flat = array.reshape(-1)
    texts = [_spell_element(item, dtype) for item in flat]
    try:
        same = _decode_elements(texts, dtype).tobytes() == flat.tobytes()
    except PayloadError:
        same = False
    return _nest(texts, shape) if same else _spell_bytes(array, dtype)


def _spell_bytes(array: Array, dtype: DType) -> str:
    packed = pack(array, dtype.bits) if dtype.is_packed else np.ascontiguousarray(array)
    return f'base64 "{base64.b64encode(packed.tobytes()).decode()}"'


def _spell_element(item: Any, dtype: DType) -> str:
    if dtype.kind is Kind.BOOL:
        return "true" if item else "false"
    if dtype.is_integer:
        return str(int(item))
    if dtype.is_complex:
        return spell_complex(_spell_float(item.real), _spell_float(item.imag))
    return _spell_float(item)


def _spell_float(item: Any) -> str:
    """The shortest digits that round to this float of whatever width."""
    exact = float(item)
    kind = np.asarray(item).dtype
    if kind == np.float64 or not math.isfinite(exact) or exact.is_integer():
        return repr(exact)
    for digits in range(1, 17):
        rounded = float(f"{exact:.{digits}g}")
        if float(_round(np.asarray([rounded]), kind)[0]) == exact:
            return repr(rounded)
    return repr(exact)


def _nest(texts: Sequence[str], shape: tuple[int, ...]) -> str:
    """Flat texts as nested lists."""
    if 0 in shape:
        return "[]"
    level = list(texts)
    for size in reversed(shape):
        level = [
            f"[{', '.join(level[start : start + size])}]" for start in range(0, len(level), size)
        ]
    return level[0]


# Reading.


def read_contents(payload: Payload, type_: TensorType) -> Data:
    """The data that a payload stands for, given the type behind it; PayloadError if none."""
    shape = type_.static_shape()
    if type_.rank > MAX_RANK:
        raise PayloadError(
            "a constant has too many dimensions", None, f"at most {MAX_RANK}", str(type_.rank)
        )
    if payload.form == "base64":
        return ArrayData(_decode_bytes(payload.texts[0], type_.dtype, shape), type_.dtype)
    if payload.form == "splat":
        return _splat(payload, type_, shape)
    empty = payload.shape == (0,) and 0 in shape
    if payload.shape != shape and not empty:
        raise PayloadError(
            "the constant's contents and its type differ in shape",
            None,
            _spell_shape(shape),
            _spell_shape(payload.shape),
        )
    flat = _decode_elements(payload.texts, type_.dtype)
    return ArrayData(flat.reshape(shape), type_.dtype)


def _spell_shape(shape: tuple[int, ...]) -> str:
    return f"shape [{', '.join(map(str, shape))}]"


def _splat(payload: Payload, type_: TensorType, shape: tuple[int, ...]) -> Data:
    size = math.prod(shape) * max(type_.dtype.numpy.itemsize, 1)
    if size > MAX_BYTES:
        raise PayloadError(
            "the constant is too large", None, f"at most {MAX_BYTES} bytes", f"{size} bytes"
        )
    if payload.shape == (1,):
        element = _decode_bytes(payload.texts[0], type_.dtype, ())
    else:
        element = _decode_elements(payload.texts, type_.dtype).reshape(())
    return ArrayData(np.broadcast_to(element, shape), type_.dtype)


def _decode_bytes(text: str, dtype: DType, shape: tuple[int, ...]) -> Array:
    if dtype is string:
        raise PayloadError("strings are not written in base64", 0, "quoted strings")
    try:
        raw = base64.b64decode(text, validate=True)
    except binascii.Error as problem:
        raise PayloadError(f"this is not base64: {problem}", 0, "base64") from None
    size = math.prod(shape)
    needed = -(-size * dtype.bits // 8) if dtype.is_packed else size * dtype.numpy.itemsize
    if len(raw) != needed:
        raise PayloadError(
            "the constant's contents and its type differ in size",
            0,
            f"{needed} bytes",
            f"{len(raw)} bytes",
        )
    if dtype.is_packed:
        return unpack(np.frombuffer(raw, np.uint8), dtype, shape)
    if dtype.kind is Kind.BOOL and raw.strip(b"\0\1"):
        raise PayloadError("a bool is a byte of 0 or 1", 0, "bytes of 0 and 1")
    return np.frombuffer(raw, dtype.numpy).reshape(shape)


def _decode_elements(texts: Sequence[str], dtype: DType) -> Array:
    if dtype is string:
        return _decode_strings(texts)
    if dtype.kind is Kind.BOOL:
        return _decode_bools(texts)
    if dtype.is_integer:
        return _decode_integers(texts, dtype)
    if dtype.is_complex:
        return _decode_complex(texts, dtype)
    return _decode_floats(texts, dtype)


def _decode_strings(texts: Sequence[str]) -> Array:
    """Strings arrive unquoted behind a mark, so that ``true`` and ``"true"`` differ."""
    array = np.empty(len(texts), np.object_)
    for index, text in enumerate(texts):
        if not text.startswith('"'):
            raise _misfit(text, index, "a quoted string")
        array[index] = text[1:]
    return array


def _decode_bools(texts: Sequence[str]) -> Array:
    for index, text in enumerate(texts):
        if text not in ("true", "false"):
            raise _misfit(text, index, "true or false")
    return np.fromiter((text == "true" for text in texts), np.bool_, len(texts))


def _decode_integers(texts: Sequence[str], dtype: DType) -> Array:
    signed = dtype.kind is Kind.SIGNED
    low = -(1 << (dtype.bits - 1)) if signed else 0
    high = (1 << (dtype.bits - signed)) - 1
    values = []
    for index, text in enumerate(texts):
        if _INTEGER.fullmatch(text) is None:
            raise _misfit(text, index, f"an integer, for {dtype}")
        value = int(text)
        if not low <= value <= high:
            raise PayloadError(
                f"{shorten(text, 40)} does not fit in {dtype}", index, f"{low} to {high}"
            )
        values.append(value)
    return np.array(values, np.int64 if signed else np.uint64).astype(dtype.numpy)


def _decode_floats(texts: Sequence[str], dtype: DType) -> Array:
    values = np.empty(len(texts), np.float64)
    for index, text in enumerate(texts):
        if _REAL.fullmatch(text) is None:
            raise _misfit(text, index, f"a number, for {dtype}")
        values[index] = float(text)
    return _narrow(texts, values, dtype.numpy, dtype)


def _decode_complex(texts: Sequence[str], dtype: DType) -> Array:
    parts = np.zeros((len(texts), 2), np.float64)
    for index, text in enumerate(texts):
        match = _COMPLEX.fullmatch(text)
        if match is None:
            raise _misfit(text, index, f"a number such as 1.0+2.0j, for {dtype}")
        parts[index] = float(match[1]), float(match[2] or 0.0)
    half = np.dtype(np.float32 if dtype.bits == 64 else np.float64)
    columns = [_narrow(texts, parts[:, column], half, dtype) for column in range(2)]
    return np.stack(columns, axis=-1).view(dtype.numpy).reshape(-1)


def _narrow(texts: Sequence[str], values: Array, kind: np.dtype[Any], dtype: DType) -> Array:
    """Doubles as floats of another width; digits stay finite, inf stays inf and NaN NaN."""
    rounded = _round(values, kind)
    wide = rounded.astype(np.float64)
    largest = float(ml_dtypes.finfo(kind).max)  # type: ignore[no-untyped-call]  # has no types
    kept = np.isfinite(wide) & (np.abs(values) <= 1.25 * largest)
    kept |= np.isnan(values) & np.isnan(wide)
    kept |= np.isinf(values) & (values == wide)
    lost = np.flatnonzero(~kept | np.isinf(values))
    for index in map(int, lost):
        if not kept[index] or "inf" not in texts[index]:
            raise PayloadError(
                f"{shorten(texts[index], 40)} does not fit in {dtype}",
                index,
                f"a number of magnitude up to {largest!r}",
            )
    return rounded


def _round(values: Array, kind: np.dtype[Any]) -> Array:
    """Doubles as floats of another width; what does not fit becomes inf or NaN, without a word."""
    with np.errstate(all="ignore"):
        return values.astype(kind)


def _misfit(text: str, index: int, expected: str) -> PayloadError:
    shown = quote(shorten(text[1:], 40)) if text.startswith('"') else f"`{shorten(text, 40)}`"
    return PayloadError("the constant's contents do not fit its dtype", index, expected, shown)
