"""One operation of StableHLO as converters see it, and the registry of converters."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import ml_dtypes
import numpy as np
from jaxlib.mlir import ir

from monograph.errors import UnsupportedError
from monograph.ir.graph import Value
from monograph.ir.types import DTYPES, DType, TensorType

if TYPE_CHECKING:
    from monograph.frontends.stablehlo.reader import Reader

DTYPE_NAMES = {
    "i1": "bool",
    "f8E4M3FN": "f8e4m3fn",
    "f8E5M2": "f8e5m2",
    "complex<f32>": "c64",
    "complex<f64>": "c128",
    **{f"i{bits}": f"i{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    **{f"ui{bits}": f"u{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    **{name: name for name in ("f64", "f32", "f16", "bf16")},
}
"""MLIR's spelling of each dtype."""


def dtype_from(spelling: str) -> DType:
    """A dtype of MLIR's."""
    if spelling not in DTYPE_NAMES:
        raise UnsupportedError(f"there is no dtype {spelling} here")
    return DTYPES[DTYPE_NAMES[spelling]]


def type_from(type_: Any) -> TensorType:
    """The type of a tensor whose sizes are known."""
    try:
        ranked = ir.RankedTensorType(type_)
    except ValueError:
        raise UnsupportedError(f"{type_} is not a tensor") from None
    if not ranked.has_static_shape:
        raise UnsupportedError(
            f"{type_} has a size that is not known",
            hint="export the program for known sizes, or compile the JAX function itself",
        )
    return TensorType(dtype_from(str(ranked.element_type)), tuple(ranked.shape))


class Operation:
    """An operation on values of the graph; ``types`` are those that its results must have."""

    def __init__(self, reader: Reader, source: Any, operands: Sequence[Value]) -> None:
        self.reader = reader
        self.source = source
        self.name: str = source.operation.name
        self.operands = list(operands)

    @property
    def operand(self) -> Value:
        """The first operand."""
        return self.operands[0]

    @property
    def types(self) -> list[TensorType]:
        """The types of the results."""
        return [type_from(result.type) for result in self.source.results]

    @property
    def type(self) -> TensorType:
        """The type of the first result."""
        return self.types[0]

    def has(self, name: str) -> bool:
        """Whether an attribute is given."""
        return name in self.source.attributes

    def attribute(self, name: str) -> Any:
        """An attribute, as MLIR has it."""
        return self.source.attributes[name]

    def integer(self, name: str, default: int = 0) -> int:
        """An integer, or what it is if it is not given."""
        return ir.IntegerAttr(self.attribute(name)).value if self.has(name) else default

    def flag(self, name: str) -> bool:
        """A bool; false if it is not given."""
        return ir.BoolAttr(self.attribute(name)).value if self.has(name) else False

    def integers(self, name: str, default: Sequence[int] = ()) -> tuple[int, ...]:
        """A list of integers."""
        if not self.has(name):
            return tuple(default)
        return tuple(int(each) for each in ir.DenseI64ArrayAttr(self.attribute(name)))

    def pairs(self, name: str, count: int) -> tuple[tuple[int, int], ...]:
        """Padding before and after each of ``count`` axes; none if it is not given."""
        if not self.has(name):
            return ((0, 0),) * count
        array = dense_array(self.attribute(name)).reshape(count, 2)
        return tuple((int(low), int(high)) for low, high in array)

    def word(self, name: str) -> str:
        """The last word of an enumeration's attribute: ``LT`` of ``comparison_direction LT``."""
        return str(self.attribute(name)).rstrip(">").split()[-1].split(".")[-1]

    def region(self, number: int, arguments: Sequence[Value]) -> list[Value]:
        """What a region returns for these arguments."""
        return self.reader.run_block(self.source.regions[number].blocks[0], arguments)


def dense_array(attribute: Any) -> Any:
    """The contents of a dense attribute."""
    dense = ir.DenseElementsAttr(attribute)
    type_ = type_from(dense.type)
    try:
        array = np.array(dense)
    except (TypeError, ValueError, RuntimeError):
        array = np.array(list(dense))
    if type_.dtype.name == "bf16" and array.dtype == np.uint16:
        array = array.view(ml_dtypes.bfloat16)
    return _spread(array, type_)


def _spread(array: Any, type_: TensorType) -> Any:
    """Contents, or the one element that fills all of them, as an array of a type."""
    shape = type_.static_shape()
    whole = np.broadcast_to(array.reshape(()), shape) if array.size == 1 else array.reshape(shape)
    return whole.astype(type_.dtype.numpy)


_PAIR = re.compile(r"\(\s*([^,()]+?)\s*,\s*([^,()]+?)\s*\)")


def complex_array(text: str, type_: TensorType) -> Any:
    """The contents of a dense attribute of complex numbers, which MLIR hands out as text alone."""
    body = text.partition("dense<")[2].rpartition("> :")[0].strip()
    if body.startswith('"0x'):
        array = np.frombuffer(bytes.fromhex(body.strip('"')[2:]), type_.dtype.numpy)
    else:
        bits = np.uint32 if type_.dtype.name == "c64" else np.uint64

        def number(word: str) -> float:
            if not word.startswith("0x"):
                return float(word)
            part = np.float32 if bits is np.uint32 else np.float64
            return float(np.array(int(word, 16), bits).view(part))

        pairs = [complex(number(a), number(b)) for a, b in _PAIR.findall(body)]
        array = np.array(pairs, type_.dtype.numpy)
    return _spread(array, type_)


Converter: TypeAlias = Callable[[Operation], Any]
ConverterType = TypeVar("ConverterType", bound=Converter)
CONVERTERS: dict[str, Converter] = {}


def converter(*names: str) -> Callable[[ConverterType], ConverterType]:
    """Register a function as the converter of these operations (``"stablehlo.add"``)."""

    def register(function: ConverterType) -> ConverterType:
        for name in names:
            if name in CONVERTERS:
                raise ValueError(f"two converters are registered for {name}")
            CONVERTERS[name] = function
        return function

    return register
