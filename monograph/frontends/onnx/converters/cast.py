"""Casts, saturating ones among them, and bit casts."""

from __future__ import annotations

from monograph import functional as F
from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import cast_to, constant
from monograph.ir.graph import Value
from monograph.ir.types import (
    DType,
    TensorType,
    UnrankedType,
    f8e4m3fn,
    f8e4m3fnuz,
    f8e5m2,
    f8e5m2fnuz,
    f8e8m0fnu,
    f32,
    i32,
    u8,
    u32,
)
from monograph.ops.elementwise.base import float_facts

_EIGHT_BITS = (f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz)


@converter("Cast")
def cast_by_name(node: OnnxNode) -> Value:
    """Before opset 6 the dtype is spelled out."""
    names = {"FLOAT": "f32", "DOUBLE": "f64", "FLOAT16": "f16", "BOOL": "bool", "STRING": "string"}
    spelled = node.string("to")
    word = names.get(spelled) or spelled.lower().replace("uint", "u").replace("int", "i")
    return F.cast(node.input(0), word)


@converter("Cast", since=6)
def cast(node: OnnxNode) -> Value:
    """Elements in the dtype that an attribute names."""
    return convert(node, node.input(0), node.dtype("to"))


@converter("CastLike")
def cast_like(node: OnnxNode) -> Value:
    """Elements in the dtype of another operand."""
    like = node.input(1).type
    if not isinstance(like, TensorType | UnrankedType):
        raise node.error("a tensor is needed", found=str(like))
    return convert(node, node.input(0), like.dtype)


def convert(node: OnnxNode, x: Value, dtype: DType) -> Value:
    """Elements in another dtype.

    Floats too large for an eight-bit float saturate unless told otherwise; floats too large for a
    packed integer keep the low bits of the integer that they truncate to.
    """
    if x.dtype is dtype:
        return x
    saturate = bool(node.integer("saturate", 1))
    if dtype in _EIGHT_BITS and saturate and x.dtype.is_float:
        facts = float_facts(dtype)
        return cast_to(F.clip(x, float(facts.min), float(facts.max)), dtype)
    if dtype is f8e8m0fnu and x.dtype.is_float:
        return power_of_two(node, cast_to(x, f32), saturate)
    if dtype.is_packed and dtype.is_integer and x.dtype.is_float:
        return cast_to(cast_to(x, i32), dtype)
    return cast_to(x, dtype)


def power_of_two(node: OnnxNode, x: Value, saturate: bool) -> Value:
    """The exponent of a float alone: rounded up, down, or to the nearest as the node says."""
    mode = node.string("round_mode", "up")
    if mode not in ("up", "down", "nearest"):
        raise node.error("an unknown round_mode", expected="up, down or nearest", found=mode)
    bits = F.bitcast(x, u32)
    exponent = F.bitwise_and(F.shift_right(bits, _bits(23)), _bits(0xFF))
    if mode == "down":
        return F.bitcast(cast_to(exponent, u8), f8e8m0fnu)
    fraction = F.bitwise_and(bits, _bits(0x7FFFFF))
    half = _bits(0x400000)
    if mode == "up":
        rounds = F.greater(fraction, _bits(0))
    else:  # a tie goes to the even exponent, which ONNX takes any but the smallest to need
        tie = F.logical_and(F.equal(fraction, half), F.greater(exponent, _bits(0)))
        rounds = F.logical_or(F.greater(fraction, half), tie)
    last = _bits(0xFD if saturate else 0xFE)
    raised = F.logical_and(rounds, F.less_equal(exponent, last))
    return F.bitcast(cast_to(F.add(exponent, cast_to(raised, u32)), u8), f8e8m0fnu)


def _bits(value: int) -> Value:
    return constant(value, u32)


@converter("BitCast")
def bit_cast(node: OnnxNode) -> Value:
    """The same bits as elements of another dtype of the same width."""
    x, dtype = node.input(0), node.dtype("to")
    if x.dtype.bits != dtype.bits:
        raise node.error(
            "the widths differ",
            expected=f"{x.dtype.bits} bits",
            found=f"{dtype}, {dtype.bits} bits",
        )
    return x if x.dtype is dtype else F.bitcast(x, dtype)
