"""One operation of StableHLO as converters see it, and the registry of converters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from jaxlib.mlir import ir

from monograph.errors import UnsupportedError
from monograph.frontends.stablehlo.attributes import dense_array, read_tensor_type, type_from
from monograph.frontends.stablehlo.sizes import learn
from monograph.ir.dims import Dim
from monograph.ir.graph import Value
from monograph.ir.types import DType, TensorType

if TYPE_CHECKING:
    from monograph.frontends.stablehlo.reader import Reader


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

    @property
    def dtype(self) -> DType:
        """The dtype of the first result."""
        return read_tensor_type(self.source.results[0].type)[0]

    def alike(self, first: int, second: int) -> tuple[Value, Value]:
        """Two operands that StableHLO wants of one shape: what that tells of sizes is learnt."""
        a, b = self.operands[first], self.operands[second]
        if a.rank == b.rank:
            for one, other in zip(a.shape, b.shape, strict=True):
                learn("EQ", one, other)
        return a, b

    def dims(self, number: int) -> tuple[Dim, ...]:
        """The elements of an operand that is a shape, or other sizes."""
        found = self.reader.sizes.dims(self.source.operands[number])
        if found is None:
            raise UnsupportedError(
                f"sizes that are data have no meaning here (operand {number} of {self.name})",
                hint="export the program for known sizes",
            )
        return found

    def numbers(self, number: int) -> tuple[int, ...]:
        """The same where each must be a number."""
        found = self.dims(number)
        known = tuple(each for each in found if isinstance(each, int))
        if len(known) < len(found):
            listed = ", ".join(map(str, found))
            raise UnsupportedError(f"operand {number} of {self.name} must be known, not {listed}")
        return known

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
