"""Result types from ONNX's own shape inference, for nodes that are not converted yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx.checker
import onnx.shape_inference
from onnx import NodeProto, TensorProto, TypeProto

from monograph.errors import InputError
from monograph.frontends.onnx.functions import Schema
from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.order import describe_node
from monograph.frontends.onnx.tensors import tensor_of
from monograph.frontends.onnx.types import Symbols, TypeWriter
from monograph.ir.data import ArrayData
from monograph.ir.graph import Value
from monograph.ir.types import DTYPES, DType, TensorType, UnrankedType, ValueType, i32, i64

_REFUSALS = (
    onnx.checker.ValidationError,
    onnx.shape_inference.InferenceError,
    RuntimeError,
    ValueError,
    TypeError,
)
_TYPE_WORDS = {
    "float": "f32", "double": "f64", "float16": "f16", "bfloat16": "bf16", "bool": "bool",
    "string": "string", "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8",
    "uint64": "u64", "uint32": "u32", "uint16": "u16", "uint8": "u8",
}  # fmt: skip


def infer_result_types(
    node: OnnxNode, schema: Schema, captured: Mapping[str, Value]
) -> tuple[ValueType, ...]:
    """The types of a node's outputs, with fresh symbols for sizes that are not known."""
    writer = TypeWriter()
    types: dict[str, TypeProto] = {}
    contents: dict[str, TensorProto] = {}
    for position, (name, value) in enumerate(zip(node.proto.input, node.inputs, strict=True)):
        if value is None:
            continue
        type_ = _as_schema_wants(value.type, position, schema)
        types[name] = writer.write(type_)
        array = node.importer.contents.array(value) if _is_small(value) else None
        if array is not None and isinstance(type_, TensorType):
            contents[name] = tensor_of(
                ArrayData(array.astype(type_.dtype.numpy), type_.dtype), name
            )
    for name, value in captured.items():
        types[name] = writer.write(value.type)
    inferred = _infer(node, schema, types, contents)
    symbols = node.importer.symbols
    return tuple(
        _result_type(name, position, inferred.get(name), node, schema, writer, symbols)
        for position, name in enumerate(node.proto.output)
    )


def _as_schema_wants(type_: ValueType, position: int, schema: Schema) -> ValueType:
    """The type of an operand, i64 for an i32 where only the former will do: indices, sizes."""
    if not isinstance(type_, TensorType | UnrankedType) or type_.dtype is not i32:
        return type_
    allowed = schema.inputs[min(position, len(schema.inputs) - 1)].types
    if "tensor(int32)" in allowed or "tensor(int64)" not in allowed:
        return type_
    return TensorType(i64, type_.shape) if isinstance(type_, TensorType) else UnrankedType(i64)


def _is_small(value: Value) -> bool:
    if not isinstance(value.type, TensorType):
        return False
    size = value.type.size
    return isinstance(size, int) and size <= 1024


def _infer(
    node: OnnxNode, schema: Schema, types: dict[str, TypeProto], contents: dict[str, TensorProto]
) -> dict[str, TypeProto]:
    proto = NodeProto()
    proto.CopyFrom(node.proto)
    for position, value in enumerate(node.inputs):
        if value is None:  # omitted by name, or by the call of the function that it is in
            proto.input[position] = ""
    imports = [onnx.helper.make_opsetid(*pair) for pair in node.scope.opsets.items()]
    try:
        return onnx.shape_inference.infer_node_outputs(schema, proto, types, contents, {}, imports)
    except _REFUSALS as error:
        text = str(error).strip().splitlines()
        raise InputError(
            f"{node.name}: ONNX refuses its operands", found=text[0] if text else None
        ) from None


def _result_type(
    name: str, position: int, proto: TypeProto | None, node: OnnxNode, schema: Schema,
    writer: TypeWriter, symbols: Symbols,
) -> ValueType:  # fmt: skip
    where = f"output {position} of {describe_node(node.proto)}"
    if proto is not None and proto.WhichOneof("value") is not None:
        return writer.read(proto, symbols, where)
    formal = schema.outputs[min(position, len(schema.outputs) - 1)]
    dtype = _dtype_like(formal.type_str, schema, node.inputs)
    if dtype is None and name:
        raise InputError(f"the type of {where} is not known", found=formal.type_str)
    return UnrankedType(DTYPES["f32"] if dtype is None else dtype)


def _dtype_like(word: str, schema: Schema, inputs: Sequence[Value | None]) -> DType | None:
    """The dtype that a type word of a schema means: that of an operand of this word, or its own."""
    for position, value in enumerate(inputs):
        formal = schema.inputs[min(position, len(schema.inputs) - 1)]
        if value is not None and formal.type_str == word:
            return value.type.dtype if isinstance(value.type, TensorType | UnrankedType) else None
    inner = word.removeprefix("tensor(").removesuffix(")")
    return DTYPES[_TYPE_WORDS[inner]] if inner in _TYPE_WORDS else None
