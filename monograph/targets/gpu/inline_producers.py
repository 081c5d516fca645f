"""Computes small producers again in the kernels that read them: a launch costs more than that.

    rms norm of one token ─▶ product with weights ─▶ silu(gate) * up        three launches, or one

The time of a decoding step is that of its weights and of its launches. So a kernel takes in the one
that makes its operand where little is computed again:

- elements of few bytes, by a few instructions each;
- a norm of one short row, which every program of a matrix-vector product computes for itself;
- a matrix-vector product of which the reader takes every result once: nothing is computed twice.

It does so only if all who read the producer's results can: then that kernel is gone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from monograph.fusion.group import Fusion, Group, GroupKind
from monograph.ir.graph import Node, Value
from monograph.ops.linalg import DotGeneral
from monograph.ops.shape import Reshape
from monograph.ops.slicing import Slice

MAX_SMALL_BYTES = 64 << 10
"""Bytes of a producer's results that are cheaper to compute again than to launch a kernel for."""
MAX_WORK = 40
"""Instructions for an element that may be computed again."""
MAX_RECOMPUTED = 1 << 20
"""Elements that readers may compute again, all together."""
MAX_ROW = 8192
"""Elements of a row that every program of a reader may norm again."""
MAX_READER_ROWS = 32768
"""Rows of a matrix whose programs may norm the vector again, each for itself."""


def inline_producers(fusion: Fusion) -> Fusion:
    """The groups, with small producers in the groups that read them."""
    groups, number = list(fusion.groups), 0
    while number < len(groups):
        writer = groups[number]
        outputs = writer.outputs()
        readers = [each for each in groups if set(each.inputs()) & set(outputs)]
        if _is_inlined(writer, outputs, readers):
            for reader in readers:
                groups[groups.index(reader)] = _with(writer, reader, outputs)
            groups.pop(number)
        else:
            number += 1
    return Fusion(tuple(groups))


def _is_inlined(writer: Group, outputs: Sequence[Value], readers: Sequence[Group]) -> bool:
    """Whether all who read a group's results are groups that compute them for themselves."""
    if not readers or not _may_be_inlined(writer):
        return False
    inside = {node for each in readers for node in each.nodes}
    if any(use.node not in inside for value in outputs for use in value.uses):
        return False  # an output of the graph
    return all(_may_take_in(each, writer, outputs, len(readers)) for each in readers)


def _may_be_inlined(writer: Group) -> bool:
    values = [value for node in writer.nodes for value in (*node.operands, *node.results)]
    if not all(value.tensor.is_static for value in values):
        return False
    return writer.kind in (GroupKind.POINTWISE, GroupKind.ROWS, GroupKind.CONTRACTION)


def _may_take_in(reader: Group, writer: Group, outputs: Sequence[Value], readers: int) -> bool:
    if reader.kind is GroupKind.OPAQUE:
        return False
    values = [value for node in reader.nodes for value in (*node.operands, *node.results)]
    if not all(value.tensor.is_static for value in values):
        return False
    match writer.kind:
        case GroupKind.POINTWISE:
            return _is_cheap(reader, writer, outputs)
        case GroupKind.ROWS:
            return _is_short_row(reader, writer, outputs)
        case _:
            return readers == 1 and _is_read_once(reader, writer, outputs)


def _is_cheap(reader: Group, writer: Group, outputs: Sequence[Value]) -> bool:
    """Whether a pointwise kernel computes a few small elements again."""
    small = sum(_count(value) * value.dtype.bits // 8 for value in outputs) <= MAX_SMALL_BYTES
    again = _size(reader.space)
    is_elementwise = reader.kind is GroupKind.POINTWISE
    return is_elementwise and small and writer.work() <= MAX_WORK and again <= MAX_RECOMPUTED


def _is_short_row(reader: Group, writer: Group, outputs: Sequence[Value]) -> bool:
    """Whether a matrix-vector product norms its vector itself."""
    product = _vector_product(reader)
    if product is None or len(outputs) != 1 or product.operands[0] not in outputs:
        return False
    if [use.node for use in outputs[0].uses] != [product]:
        return False
    is_short = _size(writer.space) <= MAX_ROW and _count(outputs[0]) == _size(writer.space)
    return is_short and _count(product.results[0]) <= MAX_READER_ROWS


def _is_read_once(reader: Group, writer: Group, outputs: Sequence[Value]) -> bool:
    """Whether a pointwise kernel reads each result of a matrix-vector product once."""
    if reader.kind is not GroupKind.POINTWISE or len(outputs) != 1:
        return False
    (value,) = outputs
    if _vector_product(writer) is None:
        return False
    reads = _elements_read(value, reader)
    return reads is not None and reads <= _count(value)


def _elements_read(value: Value, reader: Group) -> int | None:
    """How many elements of a value a group's formulas read, through slices; None if unknown."""
    total = 0
    for use in value.uses:
        result = use.node.results[0]
        if use.node not in reader.nodes:
            return None
        if isinstance(use.node.op, Slice | Reshape):
            if use.node in reader.copies:
                return None
            found = _elements_read(result, reader)
            if found is None:
                return None
            total += found
        elif _count(result) == _count(value) == _size(reader.space):
            total += _count(value)
        else:
            return None
    return total


def _vector_product(group: Group) -> Node | None:
    """The product of a vector and a matrix, if a group has no other."""
    products = [node for node in group.nodes if isinstance(node.op, DotGeneral)]
    if len(products) != 1 or group.kind is not GroupKind.CONTRACTION:
        return None
    (product,) = products
    op, vector = product.op, product.operands[0]
    assert isinstance(op, DotGeneral)
    depth = math.prod(_int(vector.shape[axis]) for axis in op.lhs_contracting)
    return product if not op.lhs_batch and depth == _count(vector) else None


def _with(writer: Group, reader: Group, outputs: Sequence[Value]) -> Group:
    """A reader that computes what it reads of a writer."""
    inside = set(reader.nodes)
    names = ", ".join(f"%{value.name}" for value in outputs)
    kind = reader.kind if writer.kind is GroupKind.POINTWISE else GroupKind.CONTRACTION
    return Group(
        [*(node for node in writer.nodes if node not in inside), *reader.nodes],
        kind,
        reader.space,
        reader.places,
        reader.rows,
        [*reader.joined, f"{names} is computed here: a launch of its own would take longer"],
        reader.apart,
        copies=reader.copies | (set(writer.nodes) - inside),
        exported=reader.exported,
        taken_in=[*reader.taken_in, *outputs],
    )


def _count(value: Value) -> int:
    return _size(value.shape)


def _size(shape: Sequence[object]) -> int:
    return math.prod(map(_int, shape))


def _int(dim: object) -> int:
    assert isinstance(dim, int), "sizes are known"
    return dim
