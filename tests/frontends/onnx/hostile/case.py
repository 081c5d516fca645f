"""What a wrong model is: a function that makes it, and what must come of importing it.

    @hostile("a cycle", InputError, "the nodes of the model read each other in a circle")
    def _(folder: Path) -> bytes: ...

The function returns bytes, a path beneath ``folder`` or a ``ModelProto``. It runs in a process of
its own (``sandbox.py``), with little time and memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from monograph.errors import MonographError

__all__ = [
    "CASES", "FLOAT", "INT64", "OPSET", "SECONDS", "Case", "array", "attribute", "field", "graph",
    "helper", "hostile", "model", "node", "raw_model", "saved", "sized", "unary", "value",
]  # fmt: skip

Source: TypeAlias = "bytes | Path | ModelProto"
Make: TypeAlias = Callable[[Path], Source]

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
OPSET = 21
SECONDS = 10
"""Of processor time for one import, and run if there is one."""


@dataclass(frozen=True)
class Case:
    """One wrong model; ``run`` holds the inputs of those that are wrong only when they run.

    ``error`` is None for a model that is odd and yet right, and ``gives`` what its first output
    must be. ``interrupt`` runs the model, which never ends by itself, and presses control-C.
    ``seconds`` are of processor time.
    """

    name: str
    make: Make
    error: type[MonographError] | None
    message: str
    run: Mapping[str, Any] | None = None
    gives: Any = None
    interrupt: bool = False
    seconds: int = SECONDS


CASES: dict[str, Case] = {}


def hostile(
    name: str,
    error: type[MonographError] | None = None,
    message: str = "",
    *,
    run: Mapping[str, Any] | None = None,
    gives: Any = None,
    interrupt: bool = False,
    seconds: int = SECONDS,
) -> Callable[[Make], Make]:
    """Add the model that the function makes to the cases."""

    def add(make: Make) -> Make:
        assert name not in CASES, name
        CASES[name] = Case(name, make, error, message, run, gives, interrupt, seconds)
        return make

    return add


# Short spellings for models.


def value(
    name: str, shape: Sequence[int | str] | None = (4,), dtype: int = FLOAT
) -> ValueInfoProto:
    """A declared input or output."""
    return helper.make_tensor_value_info(name, dtype, shape)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> NodeProto:
    """A node; names are separated by blanks."""
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def array(name: str, content: Any, dtype: Any = None) -> TensorProto:
    """An initializer."""
    return numpy_helper.from_array(np.asarray(content, dtype), name)


def sized(name: str, dims: Iterable[int], dtype: int = FLOAT, **fields: Any) -> TensorProto:
    """A tensor that claims these sizes, whatever it holds."""
    return TensorProto(name=name, dims=list(dims), data_type=dtype, **fields)


def graph(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto] = (),
    outputs: Sequence[ValueInfoProto] = (),
    initializers: Sequence[TensorProto] = (),
    name: str = "g",
) -> GraphProto:
    """A graph or body."""
    return helper.make_graph(nodes, name, inputs, outputs, initializers)


def model(
    *nodes: NodeProto,
    inputs: Sequence[ValueInfoProto] = (),
    outputs: Sequence[ValueInfoProto] = (),
    initializers: Sequence[TensorProto] = (),
    opset: int = OPSET,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Mapping[str, int] | None = None,
) -> ModelProto:
    """A model around nodes; nothing checks it."""
    imports = [helper.make_opsetid("", opset)]
    imports += [helper.make_opsetid(*each) for each in (domains or {}).items()]
    return helper.make_model(
        graph(nodes, inputs, outputs, initializers),
        opset_imports=imports,
        functions=list(functions),
        ir_version=10,
    )


def unary(op: str = "Relu", **attributes: Any) -> ModelProto:
    """The smallest useful model: one op from x to y."""
    return model(node(op, "x", "y", **attributes), inputs=[value("x")], outputs=[value("y")])


def saved(content: ModelProto | bytes) -> bytes:
    """A model as the bytes of its file."""
    return content if isinstance(content, bytes) else bytes(content.SerializeToString())


def attribute(name: str, kind: AttributeProto.AttributeType, **fields: Any) -> AttributeProto:
    """An attribute that says it is of this kind, whatever it holds."""
    return AttributeProto(name=name, type=kind, **fields)


# Protobuf, written by hand: what the library would not write.


def varint(number: int) -> bytes:
    """A number in base 128, lowest digits first."""
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*digits, number])


def field(number: int, content: bytes) -> bytes:
    """A length-delimited field: a string, bytes or a message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def raw_model(graph_content: bytes) -> bytes:
    """A model of opset 21 around the bytes of a graph."""
    opset = field(8, field(1, b"") + bytes([0x10, OPSET]))
    return bytes([0x08, 10]) + opset + field(7, graph_content)
