"""``OnnxNode``: what a converter sees of the node that it converts.

Operands are values of the graph being built. What must be known when the graph is built (axes,
shapes, a count) is asked for with ``constant`` and ``dims``; ``need_constant`` and ``need_dims``
give up with ``NotStatic`` where only the run knows it, and the node is then deferred.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from onnx import AttributeProto, GraphProto, NodeProto

from monograph.errors import InputError, MonographError
from monograph.frontends.onnx.order import describe_node
from monograph.frontends.onnx.tensors import data_of, data_of_sparse
from monograph.frontends.onnx.types import dtype_of_code
from monograph.ir.data import Data
from monograph.ir.dims import Dim, Symbol
from monograph.ir.graph import Value
from monograph.ir.types import Array, DType, ValueType

if TYPE_CHECKING:
    from monograph.frontends.onnx.importer import Importer
    from monograph.frontends.onnx.scope import Scope

Kind = TypeVar("Kind")
_A = AttributeProto
_ATTRIBUTE_KINDS = {
    _A.FLOAT: "f", _A.INT: "i", _A.STRING: "s", _A.TENSOR: "t", _A.GRAPH: "g",
    _A.SPARSE_TENSOR: "sparse_tensor", _A.TYPE_PROTO: "tp", _A.FLOATS: "floats", _A.INTS: "ints",
    _A.STRINGS: "strings", _A.TENSORS: "tensors", _A.GRAPHS: "graphs",
    _A.SPARSE_TENSORS: "sparse_tensors", _A.TYPE_PROTOS: "type_protos",
}  # fmt: skip


_SCALARS = ("f", "i", "s", "t", "g", "sparse_tensor", "tp")


class NotStatic(MonographError):
    """A node whose result type depends on contents that only the run knows.

    The importer defers such a node. ``types`` are its result types, for an op that ONNX has no
    shape inference for; ``contents`` is the operand that was asked for, if one was.
    """

    def __init__(
        self,
        message: str,
        types: Sequence[ValueType] | None = None,
        contents: Value | None = None,
    ) -> None:
        super().__init__(message)
        self.types = types
        self.contents = contents


class OnnxNode:
    """One node of the model, with its operands in the graph being built.

    ``inputs`` has None for an omitted optional input; ``opset`` is the version of the node's own
    domain; ``outputs_wanted`` says which outputs anything reads.
    """

    def __init__(
        self,
        proto: NodeProto,
        inputs: tuple[Value | None, ...],
        opset: int,
        outputs_wanted: tuple[bool, ...],
        importer: Importer,
        scope: Scope,
    ) -> None:
        self.proto = proto
        self.inputs = inputs
        self.opset = opset
        self.outputs_wanted = outputs_wanted
        self.importer = importer
        self.scope = scope
        self._attributes: Mapping[str, AttributeProto] | None = None

    @property
    def op_type(self) -> str:
        """The name of the op: ``Conv``."""
        return str(self.proto.op_type)

    @property
    def name(self) -> str:
        """The node in words, for messages."""
        return describe_node(self.proto)

    # Operands.

    def input(self, index: int) -> Value:
        """Operand ``index``, which must be there."""
        value = self.optional(index)
        if value is None:
            raise self.error(f"input {index} is missing", found=f"{len(self.inputs)} inputs")
        return value

    def optional(self, index: int) -> Value | None:
        """Operand ``index``, or None if it is omitted."""
        return self.inputs[index] if index < len(self.inputs) else None

    def given(self) -> tuple[Value, ...]:
        """All operands, for ops that take any number; none may be omitted."""
        return tuple(self.input(index) for index in range(len(self.inputs)))

    def wants(self, index: int) -> bool:
        """Whether anything reads output ``index``."""
        return index < len(self.outputs_wanted) and self.outputs_wanted[index]

    def constant(self, index: int) -> Array | None:
        """The contents of operand ``index``, if they are known now; None if not, or omitted."""
        value = self.optional(index)
        return None if value is None else self.importer.contents.array(value)

    def need_constant(self, index: int) -> Array:
        """The contents of operand ``index``; the node is deferred if they are unknown."""
        value = self.input(index)
        found = self.constant(index)
        if found is None:
            raise self._unknown(index, value)
        return found

    def dims(self, index: int) -> tuple[Dim, ...] | None:
        """The contents of an integer operand as dimensions, if they are known now."""
        value = self.optional(index)
        return None if value is None else self.importer.contents.dims(value)

    def whole_numbers(self, index: int) -> tuple[Dim, ...] | None:
        """The contents of an operand as dimensions, floats that were integers included."""
        value = self.optional(index)
        return None if value is None else self.importer.contents.whole_numbers(value)

    def need_dims(self, index: int) -> tuple[Dim, ...]:
        """The contents of operand ``index`` as dimensions; the node is deferred if unknown."""
        value = self.input(index)
        found = self.dims(index)
        if found is None:
            raise self._unknown(index, value)
        return found

    def _unknown(self, index: int, value: Value) -> NotStatic:
        return NotStatic(
            f"{self.name}: the contents of input {index} are not known before it runs",
            contents=value,
        )

    def need_ints(self, index: int) -> tuple[int, ...]:
        """The contents of an integer operand as plain ints, without symbols (axes, say)."""
        return tuple(int(item) for item in self.need_constant(index).reshape(-1))

    def fresh(self, hint: str = "d", lower: int = 0, upper: int | None = None) -> Symbol:
        """A symbol that nothing else in the model uses, for a size that only the run knows."""
        return self.importer.symbols.fresh(hint, lower, upper)

    def with_inputs(self, *inputs: Value | None) -> OnnxNode:
        """The same node with other operands."""
        return OnnxNode(
            self.proto, inputs, self.opset, self.outputs_wanted, self.importer, self.scope
        )

    # Attributes.

    def has(self, name: str) -> bool:
        """Whether the attribute is given."""
        return name in self._by_name()

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute: an int, float, str, Data, GraphProto or TypeProto, or a tuple of them."""
        proto = self._by_name().get(name)
        return default if proto is None else self._value(proto)

    def integer(self, name: str, default: int | None = None) -> int:
        """An attribute that must be an int; it must be given if there is no default."""
        return self._read_attribute(name, int, default)

    def number(self, name: str, default: float | None = None) -> float:
        """An attribute that must be a float."""
        return self._read_attribute(name, float, default)

    def string(self, name: str, default: str | None = None) -> str:
        """An attribute that must be a string."""
        return self._read_attribute(name, str, default)

    def ints(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """An attribute that must be a list of ints."""
        return self._read_items(name, int, default)

    def floats(self, name: str, default: Sequence[float] | None = None) -> tuple[float, ...]:
        """An attribute that must be a list of floats."""
        return self._read_items(name, float, default)

    def strings(self, name: str, default: Sequence[str] | None = None) -> tuple[str, ...]:
        """An attribute that must be a list of strings."""
        return self._read_items(name, str, default)

    def tensor(self, name: str) -> Data:
        """An attribute that must be a tensor."""
        return self._read_attribute(name, Data, None)  # type: ignore[type-abstract]  # only asked about

    def graph(self, name: str) -> GraphProto:
        """An attribute that must be a body."""
        return self._read_attribute(name, GraphProto, None)

    def dtype(self, name: str, default: DType | None = None) -> DType:
        """An attribute that names a dtype by its number in ``TensorProto.DataType``."""
        code = self.attribute(name)
        if code is None and default is not None:
            return default
        return dtype_of_code(self.integer(name), f"attribute {name!r} of {self.name}")

    # Errors.

    def error(self, message: str, **parts: Any) -> InputError:
        """An error about this node, to be raised by its converter."""
        return InputError(f"{self.name}: {message}", **parts)

    def _by_name(self) -> Mapping[str, AttributeProto]:
        if self._attributes is None:
            found: dict[str, AttributeProto] = {}
            for attribute in self.proto.attribute:
                if found.setdefault(attribute.name, attribute) is not attribute:
                    raise self.error(f"attribute {attribute.name!r} is given twice")
            self._attributes = found
        return self._attributes

    def _read_attribute(self, name: str, kind: type[Kind], default: Kind | None) -> Kind:
        value = _coerce(self.attribute(name, default), kind)
        if isinstance(value, kind):
            return value
        if value is None:
            raise self.error(f"attribute {name!r} is missing", expected=f"a {kind.__name__}")
        raise self.error(
            f"attribute {name!r} is of the wrong kind",
            expected=f"a {kind.__name__}",
            found=f"{type(value).__name__}: {value!r:.60}",
        )

    def _read_items(self, name: str, kind: type[Any], default: Any) -> tuple[Any, ...]:
        items = self.attribute(name, None if default is None else tuple(default))
        if isinstance(items, int | float):
            items = (items,)
        if isinstance(items, tuple):
            items = tuple(_coerce(item, kind) for item in items)
        if isinstance(items, tuple) and all(isinstance(item, kind) for item in items):
            return items
        raise self.error(
            f"attribute {name!r} is {'missing' if items is None else 'of the wrong kind'}",
            expected=f"a list, each a {kind.__name__}",
            found=None if items is None else f"{items!r:.60}",
        )

    def _value(self, proto: AttributeProto) -> Any:
        field = _ATTRIBUTE_KINDS.get(proto.type) or _find_untyped_field(proto)
        if field is None:
            raise self.error(f"attribute {proto.name!r} has no value")
        if field in _SCALARS and not proto.HasField(field):
            raise self.error(f"attribute {proto.name!r} has no value")
        content = getattr(proto, field)
        if field not in _SCALARS:
            return tuple(self._item(item, proto.name) for item in content)
        return self._item(content, proto.name)

    def _item(self, item: Any, name: str) -> Any:
        if isinstance(item, bytes):
            try:
                return item.decode()
            except UnicodeDecodeError:
                raise self.error(f"attribute {name!r} is not UTF-8") from None
        if type(item).__name__ == "TensorProto":
            return data_of(item, self.importer.files)
        if type(item).__name__ == "SparseTensorProto":
            return data_of_sparse(item, self.importer.files)
        return item


def _coerce(value: Any, kind: type[Any]) -> Any:
    """A number as the kind of number that is meant, where it is the same number."""
    if kind is float and type(value) is int:
        return float(value)
    if kind is int and type(value) is float and value.is_integer():
        return int(value)
    if kind in (int, float) and isinstance(value, tuple) and len(value) == 1:
        return _coerce(value[0], kind)
    return value


def _find_untyped_field(proto: AttributeProto) -> str | None:
    """The field that is set in an attribute of a very old model, which does not say its type."""
    for field in ("f", "i", "s", "t", "g"):
        if proto.HasField(field):
            return field
    for field in ("floats", "ints", "strings", "tensors", "graphs"):
        if len(getattr(proto, field)):
            return field
    return None
