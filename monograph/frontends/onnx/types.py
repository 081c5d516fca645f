"""ONNX's types as ours and back, and the symbols that stand for dimensions without a size.

A dimension with a name (``dim_param``) is one symbol wherever the name appears; one without a name
or size gets a fresh symbol. ONNX allows either to be 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from onnx import TensorProto, TypeProto

from monograph.errors import InputError
from monograph.frontends.onnx.habits import names_no_size
from monograph.ir.dims import Dim, Symbol, parse_dim, provably_different
from monograph.ir.types import (
    DTYPES,
    DType,
    OptionalType,
    SequenceType,
    TensorType,
    UnrankedType,
    ValueType,
)

_NAMES = {
    "FLOAT": "f32", "DOUBLE": "f64", "FLOAT16": "f16", "BFLOAT16": "bf16",
    "FLOAT8E4M3FN": "f8e4m3fn", "FLOAT8E4M3FNUZ": "f8e4m3fnuz", "FLOAT8E5M2": "f8e5m2",
    "FLOAT8E5M2FNUZ": "f8e5m2fnuz", "FLOAT8E8M0": "f8e8m0fnu", "FLOAT4E2M1": "f4e2m1fn",
    "COMPLEX64": "c64", "COMPLEX128": "c128", "BOOL": "bool", "STRING": "string",
    "INT64": "i64", "INT32": "i32", "INT16": "i16", "INT8": "i8", "INT4": "i4", "INT2": "i2",
    "UINT64": "u64", "UINT32": "u32", "UINT16": "u16", "UINT8": "u8", "UINT4": "u4", "UINT2": "u2",
}  # fmt: skip

DTYPE_BY_CODE: Mapping[int, DType] = {
    code: DTYPES[_NAMES[name]] for name, code in TensorProto.DataType.items() if name in _NAMES
}
CODE_BY_DTYPE: Mapping[DType, int] = {dtype: code for code, dtype in DTYPE_BY_CODE.items()}

LARGEST_DIM = 2**63 - 1
HIGHEST_RANK = 64
DEEPEST_TYPE = 8


class Symbols:
    """The symbols of one import: those that the model names, and fresh ones for the rest."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._named: dict[str, Dim] = {}
        self._counts: dict[str, int] = {}

    def declare(self, parameters: Iterable[str]) -> None:
        """Name the symbols of a model's inputs: plain names first, then expressions of them."""
        names = list(parameters)
        words = [name for name in names if name.isidentifier() and not names_no_size(name)]
        plain = {name: self.named(name) for name in words}
        known = {name: dim for name, dim in plain.items() if isinstance(dim, Symbol)}
        for name in names:
            parts = set(re.findall(r"[A-Za-z_]\w*", name)) - {"max", "min"}
            if name in self._named or not parts or not parts <= set(known):
                continue
            try:
                self._named[name] = parse_dim(name, known)
            except ValueError:
                continue  # not an expression after all: it gets a symbol of its own

    def named(self, parameter: str) -> Dim:
        """The dimension that a ``dim_param`` stands for; one symbol for each name."""
        found = self._named.get(parameter)
        if found is None and names_no_size(parameter):
            return self.fresh()
        if found is None:
            word = re.sub(r"\W", "_", parameter, flags=re.ASCII)
            word = word if word[:1].isalpha() or word[:1] == "_" else f"d{word}"
            found = self._named[parameter] = Symbol(self._fresh_name(word[:60]), 0)
        return found

    def fresh(self, hint: str = "d", lower: int = 0, upper: int | None = None) -> Symbol:
        """A symbol that nothing else uses."""
        return Symbol(self._fresh_name(hint), lower, upper)

    def take(self, names: Iterable[str]) -> None:
        """Never hand out these names: others use them."""
        self._taken.update(names)

    def _fresh_name(self, hint: str) -> str:
        name = hint
        while name in self._taken or (name == hint and hint == "d"):
            self._counts[hint] = self._counts.get(hint, 0) + 1
            name = f"{hint}{'' if hint == 'd' else '_'}{self._counts[hint]}"
        self._taken.add(name)
        return name


def dtype_of_code(code: int, where: str) -> DType:
    """The dtype that a number of ``TensorProto.DataType`` stands for."""
    found = DTYPE_BY_CODE.get(code)
    if found is None:
        raise InputError(
            f"{where} has an element type that is not known",
            expected=", ".join(sorted(_NAMES)),
            found=f"data type {code}",
        )
    return found


def value_type(proto: TypeProto, symbols: Symbols, where: str, depth: int = 0) -> ValueType:
    """A declared type as one of ours; ``where`` names the value in errors."""
    kind = proto.WhichOneof("value") if depth <= DEEPEST_TYPE else f"one nested {depth} deep"
    if kind == "tensor_type":
        return _tensor_type(proto.tensor_type, symbols, where)
    if kind == "sparse_tensor_type":
        return _tensor_type(proto.sparse_tensor_type, symbols, where)
    if kind == "sequence_type":
        element = value_type(proto.sequence_type.elem_type, symbols, where, depth + 1)
        return SequenceType(element_type(element))
    if kind == "optional_type":
        return OptionalType(value_type(proto.optional_type.elem_type, symbols, where, depth + 1))
    raise InputError(
        f"{where} has a type that is not supported",
        expected="a tensor, or a sequence or optional of tensors",
        found=kind or "no type",
    )


def element_type(type_: ValueType) -> ValueType:
    """The type that elements of a sequence have in common: sizes that may differ are unknown."""
    if isinstance(type_, TensorType) and not type_.is_static:
        return UnrankedType(type_.dtype)
    return type_


def _tensor_type(
    proto: TypeProto.Tensor | TypeProto.SparseTensor, symbols: Symbols, where: str
) -> ValueType:
    dtype = dtype_of_code(proto.elem_type, where)
    if not proto.HasField("shape"):
        return UnrankedType(dtype)
    if len(proto.shape.dim) > HIGHEST_RANK:
        raise too_many_dimensions(where, len(proto.shape.dim))
    dims = [_dim(dim, symbols) for dim in proto.shape.dim]
    return TensorType(dtype, tuple(dims))


def too_many_dimensions(where: str, count: int) -> InputError:
    """The error for a tensor that NumPy could not hold."""
    return InputError(
        f"{where} has too many dimensions", expected=f"at most {HIGHEST_RANK}", found=str(count)
    )


def _dim(dim: object, symbols: Symbols) -> Dim:
    kind = dim.WhichOneof("value")  # type: ignore[attr-defined]  # a TensorShapeProto.Dimension
    if kind == "dim_param" and dim.dim_param:  # type: ignore[attr-defined]
        return symbols.named(dim.dim_param)  # type: ignore[attr-defined]
    size = dim.dim_value if kind == "dim_value" else -1  # type: ignore[attr-defined]
    if size < 0:  # exporters write any negative number where they know none
        return symbols.fresh()
    return int(size)


class TypeWriter:
    """Our types as ONNX's, for its shape inference; remembers what its dimension names mean."""

    def __init__(self) -> None:
        self.dims: dict[str, Dim] = {}

    def write(self, type_: ValueType) -> TypeProto:
        """The type as ONNX writes it; an expression becomes a name that ``read`` understands."""
        proto = TypeProto()
        if isinstance(type_, SequenceType):
            proto.sequence_type.elem_type.CopyFrom(self.write(type_.element))
        elif isinstance(type_, OptionalType):
            proto.optional_type.elem_type.CopyFrom(self.write(type_.element))
        else:
            proto.tensor_type.elem_type = CODE_BY_DTYPE[type_.dtype]
            if isinstance(type_, TensorType):
                self._write_shape(type_, proto)
        return proto

    def _write_shape(self, type_: TensorType, proto: TypeProto) -> None:
        proto.tensor_type.shape.SetInParent()
        for dim in type_.shape:
            entry = proto.tensor_type.shape.dim.add()
            if isinstance(dim, int):
                entry.dim_value = dim
            else:
                entry.dim_param = str(dim)
                self.dims[entry.dim_param] = dim

    def read(self, proto: TypeProto, symbols: Symbols, where: str) -> ValueType:
        """A type that ONNX inferred from those written; dimensions that it invents are fresh."""
        copied = TypeProto()
        copied.CopyFrom(proto)
        return value_type(copied, _Known(self.dims, symbols), where)


class _Known(Symbols):
    """Symbols that mean dimensions which were written before; any other name is fresh."""

    def __init__(self, dims: Mapping[str, Dim], symbols: Symbols) -> None:
        super().__init__()
        self._dims = dims
        self._symbols = symbols

    def named(self, parameter: str) -> Dim:
        """The dimension that was written under this name."""
        return self._dims[parameter] if parameter in self._dims else self._symbols.fresh()

    def fresh(self, hint: str = "d", lower: int = 0, upper: int | None = None) -> Symbol:
        """A symbol that nothing in the import uses."""
        return self._symbols.fresh(hint, lower, upper)


def contradicts(declared: object, actual: ValueType) -> str | None:
    """What a declared ``TypeProto`` says, in words, where it cannot be true; None if it may be."""
    kind = declared.WhichOneof("value")  # type: ignore[attr-defined]  # a TypeProto
    if isinstance(actual, OptionalType) or kind in (None, "optional_type"):
        return None
    if isinstance(actual, SequenceType):
        return None if kind == "sequence_type" else str(kind)
    if kind not in ("tensor_type", "sparse_tensor_type"):
        return str(kind)
    proto = getattr(declared, kind)
    dtype = DTYPE_BY_CODE.get(proto.elem_type)
    if dtype is not None and dtype is not actual.dtype:
        return dtype.name
    if not proto.HasField("shape") or not isinstance(actual, TensorType):
        return None
    dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in proto.shape.dim]
    same = len(dims) == actual.rank and not any(
        size is not None and size >= 0 and provably_different(size, dim)
        for size, dim in zip(dims, actual.shape, strict=True)
    )
    return None if same else str(["?" if size is None else size for size in dims])
