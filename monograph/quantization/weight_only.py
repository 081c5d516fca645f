"""Weight-only quantization: products of float activations with weights of 8, 4 or 3 bits.

    %y = linear(%x, %w)      ─▶      %v = dequantize(%w4, %scales, %points) {axis = 1, block = 32}
                                     %y = linear(%x, %v)

The weight stays packed in memory and is unpacked while the product packs its operand. There is no
dtype of 3 bits: the low two are a tensor of ``u2``, the high one a tensor of bytes of eight each.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from monograph import functional as F
from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.types import Array, u8
from monograph.ops.blocked_linear import BLOCK_MULTIPLE
from monograph.ops.linalg import Linear, Matmul
from monograph.passes.dce import DeadCodeElimination
from monograph.quantization.report import LayerReport, QuantizationReport
from monograph.quantization.roles import Role, role_of, weight_of
from monograph.quantization.scheme import Scheme
from monograph.quantization.weights import StoredWeight, contents, store_groups

BITS_PER_BYTE = 8


def quantize_weights(
    graph: Graph, scheme: Scheme, only: Callable[[Node], bool] = lambda _: True
) -> QuantizationReport:
    """Store the weights of linear layers in a few bits, in place."""
    layers = [node for node in graph.nodes if role_of(node) is Role.CONTRACTION]
    names = [node.result.name for node in layers]
    unknown = [name for name in scheme.skip if name not in names]
    if unknown:
        raise InputError(f"no layer is called {unknown[0]!r}", expected=", ".join(names)[:400])
    reports = []
    held: dict[tuple[Value, bool], _Held] = {}
    for node in layers:
        weight = weight_of(node)
        before = 0 if weight is None else int(np.prod(weight.tensor.static_shape())) * 4
        reason = "left out" if not only(node) else _obstacle(node, weight, scheme)
        name, op = node.result.name, node.op.name
        if reason:
            reports.append(LayerReport(name, op, "float", reason, before, before))
            continue
        assert weight is not None
        form = weight, isinstance(node.op, Matmul)
        if form not in held:  # layers that share a weight share what is stored of it
            held[form] = _hold(graph, node, weight, scheme)
        _replace(graph, node, held[form])
        size, rounds = held[form].size, held[form].rounds
        precision = f"{'i8' if rounds else 'f32'} × {scheme.weight_bits} bits"
        reports.append(LayerReport(name, op, precision, "", before, size))
    DeadCodeElimination().run(graph)
    return QuantizationReport(tuple(reports), 0, 0, 0, 0)


def _obstacle(node: Node, weight: Value | None, scheme: Scheme) -> str:
    """Why a layer keeps its weight as it is; empty if it need not."""
    if node.result.name in scheme.skip:
        return "skipped, as the scheme says"
    if weight is None:
        return "a product of two activations"
    if not isinstance(node.op, Linear | Matmul) or weight.rank != 2:
        return "not a linear layer"
    return ""


def _has_whole_blocks(stored: StoredWeight) -> bool:
    """Whether words hold whole groups, and rows do, so that activations are rounded by group."""
    block = stored.block
    return block is not None and block % BLOCK_MULTIPLE == 0 and stored.stored.shape[1] % block == 0


@dataclass(frozen=True)
class _Held:
    """A stored weight in the graph; ``rounds`` if layers round what they multiply it by."""

    numbers: Value
    scale: Value
    point: Value | None
    axis: int | None
    block: int | None
    rounds: bool
    size: int
    """In bytes."""


def _hold(graph: Graph, node: Node, weight: Value, scheme: Scheme) -> _Held:
    """Store the weight of a layer before it."""
    rows, bits = contents(weight), scheme.weight_bits
    if isinstance(node.op, Matmul):
        rows = rows.T
    stored = store_groups(rows, bits, scheme.group, scheme.symmetric_weights)
    name = getattr(weight.op, "label", weight.name)
    point = None
    with graph.inserting_before(node, node.location):
        if bits == 3:
            numbers = _three_bits(graph, f"{name}.w3", stored.stored, stored.zero_point is None)
            size = stored.stored.size * 3 // BITS_PER_BYTE
            size += stored.scale.nbytes + _size(stored.zero_point)
        else:
            numbers = graph.add_weight(f"{name}.w{bits}", stored.stored)
            size = stored.nbytes
        scale = graph.add_weight(f"{name}.scale", stored.scale)
        if stored.zero_point is not None:
            point = graph.add_weight(f"{name}.zero_point", stored.zero_point)
    rounds = scheme.dynamic and _has_whole_blocks(stored)
    return _Held(numbers, scale, point, stored.axis, stored.block, rounds, size)


def _replace(graph: Graph, node: Node, held: _Held) -> None:
    """Let a layer read the stored weight."""
    x, bias = node.operands[0], node.operands[2:]
    with graph.inserting_before(node, node.location):
        if held.rounds and held.block is not None:
            y = F.blocked_linear(x, held.numbers, held.scale, held.point, block=held.block)
            made = F.add(y, bias[0]) if bias else y
        else:
            parameters = held.scale, held.point
            real = F.dequantize(held.numbers, *parameters, axis=held.axis, block=held.block)
            made = graph.create(Linear(), (x, real, *bias), location=node.location).result
    graph.replace(node, [made])


def _size(points: Array | None) -> int:
    return 0 if points is None else points.nbytes


def _three_bits(graph: Graph, name: str, stored: Array, signed: bool) -> Value:
    """Numbers of 3 bits as graph: two bits of each beside the bytes that hold the third."""
    codes = (stored + (4 if signed else 0)).astype(np.uint8)
    outputs, inputs = codes.shape
    whole = -(-inputs // BITS_PER_BYTE) * BITS_PER_BYTE
    low = graph.add_weight(f"{name}.low", (codes & 3).astype(ml_dtypes.uint2))
    packed = np.packbits(codes >> 2, axis=1, bitorder="little")
    high = graph.add_weight(f"{name}.high", packed)
    shape = (outputs, packed.shape[1], BITS_PER_BYTE)
    places = F.expand(F.cast(F.iota((1, 1, BITS_PER_BYTE), 2), u8), shape)
    shifted = F.shift_right(F.expand(F.unsqueeze(high, (2,)), shape), places)
    bits = F.reshape(F.bitwise_and(shifted, F.full(shape, 1, u8)), (outputs, whole))
    if whole != inputs:
        bits = F.slice(bits, (0,), (inputs,), axes=(1,))
    numbers = F.add(F.cast(low, u8), F.multiply(bits, F.full((), 4, u8)))
    if not signed:
        return numbers
    return F.subtract(F.cast(numbers, "i8"), F.full((), 4, "i8"))
