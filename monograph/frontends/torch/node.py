"""What a converter sees of a torch node: its arguments by name, its result types, a few helpers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from monograph import functional as F
from monograph.errors import UnsupportedError
from monograph.frontends.torch.float_casts import to_integer
from monograph.frontends.torch.location import location_of
from monograph.frontends.torch.promotion import Scalar, common_dtype
from monograph.frontends.torch.types import default_float
from monograph.ir.build import cast_to, constant
from monograph.ir.dims import Dim, SymbolicDim
from monograph.ir.graph import Value, current_graph
from monograph.ir.location import Location
from monograph.ir.types import DType, TensorType, bool_, c64, c128, f64, i64

if TYPE_CHECKING:
    from monograph.frontends.torch.importer import Importer

Operand: TypeAlias = "Value | Scalar | SymbolicDim"


class TorchNode:
    """One call in a torch graph, on its way to become nodes of ours.

    ``node["dim"]`` (or ``node.dim``, where no method has that name) is an argument under the name
    that torch's schema gives it, its default where it was not given. Tensors are values of our
    graph, sizes are dimensions, dtypes are ours; lists are lists of those.
    """

    __slots__ = ("_arguments", "_importer", "_results", "fx_node", "op_name")

    def __init__(
        self,
        fx_node: Any,
        op_name: str,
        arguments: Mapping[str, Any],
        importer: Importer,
        results: Sequence[TensorType] | None = None,
    ) -> None:
        self.fx_node = fx_node
        self.op_name = op_name
        self._arguments = arguments
        self._importer = importer
        self._results = results

    @property
    def arguments(self) -> Mapping[str, Any]:
        """All of them by name, in the order of torch's schema."""
        return self._arguments

    def __getitem__(self, name: str) -> Any:
        return self._arguments[name]

    def __getattr__(self, name: str) -> Any:
        try:
            return self._arguments[name]
        except KeyError:
            raise AttributeError(
                f"{self.op_name} has no argument {name!r}; it has {', '.join(self._arguments)}"
            ) from None

    def get(self, name: str, default: Any = None) -> Any:
        """An argument that only some of the overloads have."""
        return self._arguments.get(name, default)

    def all_arguments(self) -> Mapping[str, Any]:
        """Every argument by its name, in the order of the schema."""
        return self._arguments

    # What torch says of the results.

    def result_types(self) -> list[TensorType | None]:
        """The types of all results; None for one that is not a tensor."""
        if self._results is not None:
            return list(self._results)
        return self._importer.result_types(self.fx_node)

    def result_type(self, index: int = 0) -> TensorType:
        """The type of one result, which must be a tensor."""
        type_ = self.result_types()[index]
        if type_ is None:
            raise UnsupportedError(f"{self.op_name}: result {index} is not a tensor")
        return type_

    @property
    def result_dtype(self) -> DType:
        """The dtype of the first result."""
        return self.result_type().dtype

    @property
    def location(self) -> Location:
        """The user's line that made the node."""
        return location_of(self.fx_node)

    # Operands as values.

    def value(self, operand: Operand, dtype: DType | None = None) -> Value:
        """A tensor, number or dimension as a value, in ``dtype`` if one is given."""
        if isinstance(operand, Value):
            return operand if dtype is None else to_dtype(operand, dtype)
        if isinstance(operand, SymbolicDim):
            value = F.dim(operand)
            return value if dtype is None else to_dtype(value, dtype)
        return constant(operand, dtype or natural_dtype(operand), current_graph())

    def values(self, operands: Sequence[Operand], dtype: DType | None = None) -> list[Value]:
        """``value`` of each."""
        return [self.value(operand, dtype) for operand in operands]

    def promote(self, *operands: Operand) -> tuple[Value, ...]:
        """The operands as values of the dtype in which torch lets them meet."""
        dtype = common_dtype(operands)
        return tuple(self.value(operand, dtype) for operand in operands)

    def as_result(self, *operands: Operand) -> tuple[Value, ...]:
        """The operands as values of the result's dtype."""
        dtype = self.result_dtype
        return tuple(self.value(operand, dtype) for operand in operands)

    # Effects.

    def random_key(self) -> Value:
        """A key that no other node uses; the graph has an input that all of them come from."""
        return self._importer.random_key()

    def memory_behind(self, place: int) -> Value | None:
        """The memory, as one dimension, of which the argument at ``place`` shows a part; or None.

        Only memory that the caller passes and that is still as it was can be read so.
        """
        return self._importer.memory_behind(self.fx_node.args[place])

    def write(self, name: str, value: Value) -> None:
        """Say that the op also overwrites its tensor argument ``name``, with ``value``."""
        self._importer.write_argument(self.fx_node, name, value)

    def call(
        self, op_name: str, /, *, results: Sequence[TensorType] | None = None, **arguments: Any
    ) -> Any:
        """What another op's converter makes of these arguments; those not given have defaults.

        ``results`` are the types of its results, where they are not those of this node.
        """
        return self._importer.call(self.fx_node, op_name, arguments, results)


def natural_dtype(number: Scalar) -> DType:
    """What torch makes of a Python number."""
    if isinstance(number, bool | np.bool_):
        return bool_
    if isinstance(number, int | np.integer):
        return i64
    if isinstance(number, complex):
        return c128 if default_float() is f64 else c64
    return default_float()


def to_dtype(value: Value, dtype: DType) -> Value:
    """The value in another dtype; the real part where complex numbers become real ones."""
    if value.dtype.is_complex and not dtype.is_complex and dtype is not bool_:
        value = F.real(value)
    if value.dtype.is_float and dtype.is_integer:
        return to_integer(value, dtype)
    return cast_to(value, dtype)


def as_list(argument: Any) -> list[Any]:
    """An argument that may be one thing, a list of them, or nothing."""
    if argument is None:
        return []
    return list(argument) if isinstance(argument, list | tuple) else [argument]


def static(dim: Dim, what: str) -> int:
    """A dimension that must be a number here."""
    if isinstance(dim, int):
        return dim
    raise UnsupportedError(f"{what} must be known before the model runs; it is {dim}")
