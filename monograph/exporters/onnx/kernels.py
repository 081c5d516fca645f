"""The dtypes for which ONNX Runtime has a kernel of each op, and which dtype replaces the others.

ONNX defines most ops for most dtypes; ONNX Runtime's CPU kernels exist for some. A dtype without a
kernel is *carried* by another that holds its numbers: the operands are cast to the carrier, the
result is cast back. That changes no result, because the carrier is exact for the op: bf16 in f32
rounds once, at the end, as the interpreter does; integers wrap when they are cast back, and u64 in
i64 has the same bits (so it serves only ops that don't ask which of two numbers is larger).

The table was found by loading a model of one node for each op and dtype in ONNX Runtime 1.31. An op
that is not in it has kernels for all that we need. f16 counts as present where ONNX Runtime inserts
the casts by itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from monograph.ir.types import DTYPES, DType


def _set(text: str) -> frozenset[DType]:
    return frozenset(DTYPES[name] for name in text.split())


_FLOATS = "f64 f32 f16"
_NARROW_INTEGERS = "i16 i8 u16 u8"
_WHOLE = f"i64 i32 u64 u32 {_NARROW_INTEGERS}"
_MOVED = _set(f"{_FLOATS} bf16 {_WHOLE} bool string")
_F8 = "f8e4m3fn f8e5m2 f8e4m3fnuz f8e5m2fnuz"
_REAL = _set(f"{_FLOATS} {_WHOLE}")
_REDUCED = _set(f"{_FLOATS} i64 i32")
_FLOAT = _set(_FLOATS)
_SINGLE = _set("f32 f16")

KERNELS: Mapping[str, frozenset[DType]] = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Mod", "Abs"), _REAL),
    **dict.fromkeys(("Less", "LessOrEqual", "Greater", "GreaterOrEqual"), _REAL),
    "Equal": _REAL | _set("bool string"),
    "Neg": _set(f"{_FLOATS} i64 i32 i16 i8"),
    "Sign": _set(f"f64 f32 {_WHOLE}"),  # of a NaN in f16 or bf16 the kernel makes 0
    **dict.fromkeys(("Max", "Min", "Clip"), _set(f"{_FLOATS} i64 i32 i8 u64 u32 u8")),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"), _set(_WHOLE)),
    "BitShift": _set("u64 u32 u8"),
    "Where": _set(f"{_FLOATS} i64 i32 i8 u32 u8 string"),
    **dict.fromkeys(("IsNaN", "IsInf"), _set(f"{_FLOATS} bf16 {_F8}")),
    **dict.fromkeys(("Floor", "Ceil", "Round", "Exp", "Log", "Sqrt", "Reciprocal"), _FLOAT),
    **dict.fromkeys(("Sin", "Cos", "Tanh", "Sigmoid", "Pow", "Softmax", "Gemm"), _FLOAT),
    **dict.fromkeys(("Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Erf"), _SINGLE),
    **dict.fromkeys(("Asinh", "Acosh", "Atanh", "Elu", "Selu", "Softplus"), _SINGLE),
    **dict.fromkeys(("Mish", "HardSigmoid", "HardSwish", "Gelu", "LeakyRelu", "PRelu"), _SINGLE),
    "Celu": _set("f32"),
    "Relu": _set(f"{_FLOATS} i32 i8"),
    "LogSoftmax": _SINGLE,  # the f64 kernel is wrong where a row holds an infinity
    **dict.fromkeys(("ReduceSum", "ReduceProd", "ReduceMean"), _REDUCED),
    "ReduceLogSumExp": _set("f64 f32"),  # that of f16 overflows
    **dict.fromkeys(("CumSum", "CumProd"), _REDUCED),
    **dict.fromkeys(("ReduceMax", "ReduceMin"), _set(f"{_FLOATS} i64 i32 i8 u8 bool")),
    **dict.fromkeys(("ArgMax", "ArgMin"), _set(f"{_FLOATS} i64 i32 i8 u8")),
    "TopK": _set(f"{_FLOATS} i64 i32 i16 i8 u8"),
    "MatMul": _set(f"{_FLOATS} i64 i32 u64 u32"),
    "Einsum": _REDUCED,
    "Reshape": _MOVED | _set(_F8),
    "Transpose": _MOVED | _set(f"{_F8} i4 u4"),
    "Identity": _MOVED | _set(_F8),
    **dict.fromkeys(("Squeeze", "Unsqueeze", "Concat", "Split", "Slice"), _MOVED),
    **dict.fromkeys(("Gather", "GatherND", "GatherElements"), _MOVED),
    **dict.fromkeys(("ScatterND", "ScatterElements"), _REAL | _set("bool string")),
    **dict.fromkeys(("Expand", "Tile"), _REAL | _set("bool string")),
    "Pad": _set(f"{_FLOATS} i64 i32 i8 u64 u32 u8 bool"),
    "Trilu": _set(f"{_FLOATS} i64 i32 bool"),
    "OneHot": _set("f32 f16 i64 string"),
    "NonZero": _set("f32 f16 i64 i32 u8 bool"),
    "Range": _set("f64 f32 i64 i32 i16"),
    "ConstantOfShape": _REAL | _set("bf16 bool"),
    **dict.fromkeys(("Conv", "ConvTranspose", "AveragePool", "InstanceNormalization"), _SINGLE),
    "MaxPool": _set(f"{_FLOATS} i8 u8"),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _FLOAT),
    **dict.fromkeys(("GroupNormalization", "BatchNormalization"), _FLOAT),
    "Attention": _SINGLE,  # in f64 it computes in f32
    "DFT": _SINGLE,  # the same, where the size is no power of two
    "Det": _SINGLE,
    "Unique": _set("f64 f32 i64 i8 string"),
    "Resize": _set("f32 f16 i32 i8 u8"),
    "SoftmaxCrossEntropyLoss": _FLOAT,
    "BitCast": _set(f"{_FLOATS} bf16 {_WHOLE}"),
}

_CARRIERS: Mapping[str, str] = {
    "f16": "f32", "bf16": "f32", "f8e4m3fn": "f16 f32", "f8e5m2": "f16 f32",
    "f8e4m3fnuz": "f16 f32", "f8e5m2fnuz": "f16 f32", "f8e8m0fnu": "f32", "f4e2m1fn": "f32",
    "i2": "i8 i32 i64", "i4": "i8 i32 i64", "u2": "u8 i32 i64", "u4": "u8 i32 i64",
    "i8": "i32 i64", "u8": "i32 i64", "i16": "i32 i64", "u16": "i32 u32 i64",
    "i32": "i64", "u32": "i64", "u64": "i64", "bool": "u8 i32 i64",
}  # fmt: skip

_COUNTED = frozenset({"MatMul", "Einsum", "ReduceSum"})
"""Ops in which bools are counted: 256 of them must not come out as 0."""

_BLIND = frozenset({
    "Add", "Sub", "Mul", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "Equal", "Where",
    "MatMul", "Einsum", "CumSum", "CumProd", "Pad", "Expand", "Tile", "Trilu", "OneHot", "NonZero",
    "ReduceSum", "ReduceProd", "Identity", "Range", "ConstantOfShape",
})  # fmt: skip
"""Ops that give the same bits whether 64 of them stand for a signed number or not."""


def carrier(op_type: str, dtype: DType) -> DType | None:
    """The dtype to compute in: itself where there is a kernel, None where nothing will do."""
    kernels = KERNELS.get(op_type)
    if kernels is None or dtype in kernels:
        return dtype
    if dtype.name == "u64" and op_type not in _BLIND:
        return None
    for name in _CARRIERS.get(dtype.name, "").split():
        if DTYPES[name] in kernels and not (op_type in _COUNTED and name == "u8"):
            return DTYPES[name]
    return None
