"""Fourier transforms of pairs, by ONNX's DFT."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from monograph.dataclass import dataclass
from monograph.exporters.onnx.complex_numbers import Pair
from monograph.exporters.onnx.complex_rules import rule
from monograph.exporters.onnx.context import ExportContext
from monograph.exporters.onnx.registry import Exported, expands, exports
from monograph.ir.build import apply, cast_to
from monograph.ir.dims import Dim, shape_product
from monograph.ir.graph import Node, Value
from monograph.ir.op import Family, Op, Trait
from monograph.ir.types import TensorType, i64
from monograph.ops import data, fft, joining, slicing
from monograph.ops import elementwise as e
from monograph.ops import math as m
from monograph.ops import shape as s


@dataclass(frozen=True, eq=False, repr=False)
class Dft(Op):
    """ONNX's DFT along one axis of ``[..., 2]``: for the exporter alone, so not in the registry.

    The inverse divides by the number of elements.
    """

    axis: int
    inverse: bool = False

    name: ClassVar[str] = "dft"
    family: ClassVar[Family] = Family.COMPUTE
    traits: ClassVar[Trait] = Trait.NONE
    region_names: ClassVar[tuple[str, ...]] = ()
    operand_names: ClassVar[tuple[str, ...]] = ("x",)
    arity: ClassVar[tuple[int, int | None]] = (1, 1)
    attribute_names: ClassVar[tuple[str, ...]] = ("axis", "inverse")
    required_attributes: ClassVar[tuple[str, ...]] = ("axis",)
    _symbolic_attributes: ClassVar[tuple[str, ...]] = ()

    def infer(self, x: TensorType) -> TensorType:
        return x


@exports(Dft)
def dft(node: ExportContext[Dft]) -> Exported:
    """A first axis of one example is added, which ONNX Runtime wants."""
    op, shape = node.op, node.shape()
    if 0 in shape:
        return node.inputs[0]
    if not node.runs("DFT", node.dtype):
        return None
    one = (1, *shape)
    x = node.reshape(node.inputs[0], shape, one)
    inverse = int(op.inverse)
    if node.opset >= 20:
        y = node.emit("DFT", x, None, node.number(op.axis + 1, i64), inverse=inverse)
    else:
        y = node.emit("DFT", x, axis=op.axis + 1, inverse=inverse)
    return node.reshape(y, one, shape)


@expands(Dft)
def dft_by_matrix(op: Dft, x: Value) -> Value:
    """The product with the matrix of cosines and sines, for f64."""
    size = x.shape[op.axis]
    count = data.dim(size)
    turns = e.remainder(data.iota((size, size), 0) * data.iota((size, size), 1), count)
    angle = cast_to(turns, x.dtype) * (2 * math.pi) / cast_to(count, x.dtype)
    cosine, sine = m.cos(angle), m.sin(angle)
    rows = s.moveaxis(x, op.axis, -2)
    real, imag = (s.squeeze(part, -1) for part in joining.split(rows, (1, 1), -1))
    sign = 1.0 if op.inverse else -1.0
    made = (
        real @ cosine - (imag @ sine) * sign,
        imag @ cosine + (real @ sine) * sign,
    )
    whole = s.moveaxis(joining.stack(made, -1), -2, op.axis)
    return whole / cast_to(count, x.dtype) if op.inverse else whole


def _transform(x: Pair, axes: Sequence[int], inverse: bool, scale: str) -> Pair:
    """The transform along axes; forwards it is a sum, backwards a mean, and then scaled."""
    shape = x.real.shape
    whole = joining.stack(list(x), -1)
    for axis in axes:
        whole = apply(Dft(axis % len(shape), inverse), whole)
    parts = [slicing.slice(whole, [part], [part + 1], axes=[len(shape)]) for part in (0, 1)]
    count = shape_product(shape[axis] for axis in axes)
    made = Pair(*(s.reshape(part, shape) for part in parts))
    return Pair(*(_scale(part, count, inverse, scale) for part in made))


def _scale(x: Value, count: Dim, inverse: bool, scale: str) -> Value:
    if scale == ("count" if inverse else "none"):
        return x
    number = cast_to(data.dim(count), x.dtype)
    factor = m.sqrt(number) if scale == "root" else number
    return e.multiply(x, factor) if inverse else e.divide(x, factor)


@rule(fft.Fft)
def fft_(node: Node, x: Pair) -> Pair:
    """Sums of complex exponentials, along each axis."""
    assert isinstance(node.op, fft.Fft)
    return _transform(x, node.op.axes, node.op.inverse, node.op.scale) if node.op.axes else x


@rule(fft.Rfft)
def rfft(node: Node, x: Value) -> Pair:
    """The whole spectrum, of which the first half is kept."""
    assert isinstance(node.op, fft.Rfft)
    whole = _transform(Pair(x, data.zeros_like(x)), node.op.axes, False, node.op.scale)
    last = node.op.axes[-1] % x.rank
    half = node.result.shape[last]
    parts = (slicing.slice(part, [0], [half], axes=[last]) for part in whole)
    return Pair(*(s.reshape(part, node.result.shape) for part in parts))


@rule(fft.Irfft)
def irfft(node: Node, x: Pair) -> Value:
    """The other half of the spectrum is the conjugate of the first, backwards.

    That holds once the other axes have been transformed; what is left is real.
    """
    assert isinstance(node.op, fft.Irfft)
    op = node.op
    rank = x.real.rank
    last = op.axes[-1] % rank
    between = _transform(x, op.axes[:-1], True, "count") if op.axes[:-1] else x
    mirrored = op.length - x.real.shape[last]
    tail = [slicing.slice(part, [1], [1 + mirrored], axes=[last]) for part in between]
    real = joining.concat([between.real, slicing.flip(tail[0], last)], last)
    imag = joining.concat([between.imag, e.negate(slicing.flip(tail[1], last))], last)
    whole = _transform(Pair(real, imag), (last,), True, "count").real
    shaped = s.reshape(whole, node.result.shape)
    count = shape_product(node.result.shape[axis] for axis in op.axes)
    return _scale(shaped, count, True, op.scale)
