"""Pointwise kernels: each program computes a block of the results.

The index space is flattened, and a block is a run of it. Where some operand is contiguous along
another axis than the results (a transpose), a block is a tile of both axes instead: Triton reads it
in the order of one and writes it in that of the other, through shared memory.
"""

from __future__ import annotations

from monograph.ir.dims import Dim, shape_product
from monograph.kernel.expr import Axis, Expr, Index, Load
from monograph.kernel.flatten import coefficient
from monograph.kernel.kernel import Kernel
from monograph.targets.gpu.expressions import ExpressionWriter, reductions_of
from monograph.targets.gpu.plan import Refusal, divide_up
from monograph.targets.gpu.source import SourceWriter, TritonKernel

BLOCK_ELEMENTS = 1024
TILE_SIDE = 32
MIN_TRANSPOSED_EXTENT = 16
"""Elements along both axes of a transpose from which a tile is worth it."""


def plan_pointwise(kernel: Kernel, comment: tuple[str, ...]) -> TritonKernel | Refusal:
    """A kernel without reductions, a run of its flattened index space a program."""
    if reductions_of(kernel):
        return Refusal("it has reductions")
    source = SourceWriter()
    writer = ExpressionWriter(kernel, source, "offset", rank=1)
    total = shape_product(axis.extent for axis in kernel.axes)
    source.line(f"start = tl.program_id(0).to({writer.index_type}) * BLOCK")
    source.line("offset = start + tl.arange(0, BLOCK)")
    if not (isinstance(total, int) and total % BLOCK_ELEMENTS == 0):
        source.line(f"inside = offset < {writer.dim(total)}")
        writer.masks.append((frozenset(axis.symbol for axis in kernel.axes), "inside"))
    writer.decode("offset", kernel.axes)
    for store in kernel.stores:
        writer.store(store)
    grid = (divide_up(total, BLOCK_ELEMENTS),)
    return writer.finish("pointwise", grid, {"BLOCK": BLOCK_ELEMENTS}, comment)


def plan_transpose(kernel: Kernel, comment: tuple[str, ...]) -> TritonKernel | Refusal:
    """A kernel that reads along one axis and writes along another, a tile of both a program."""
    if reductions_of(kernel):
        return Refusal("it has reductions")
    pair = _transposed_axes(kernel)
    if pair is None:
        return Refusal("all that it reads is contiguous along the axis that it writes along")
    read, written = pair
    others = tuple(axis for axis in kernel.axes if axis not in pair)
    source = SourceWriter()
    writer = ExpressionWriter(kernel, source, "column")
    kind = writer.index_type
    for name, axis, number, shape in (
        ("row", read, 0, "[:, None]"),
        ("column", written, 1, "[None, :]"),
    ):
        lanes = f"tl.arange(0, TILE){shape}"
        source.line(f"{name} = tl.program_id({number}).to({kind}) * TILE + {lanes}")
        writer.positions[axis.symbol] = name
        source.line(f"{name}_inside = {name} < {writer.dim(axis.extent)}")
        writer.masks.append((frozenset((axis.symbol,)), f"{name}_inside"))
    if others:
        source.line(f"batch = tl.program_id(2).to({kind})")
        writer.decode("batch", others)
    for store in kernel.stores:
        writer.store(store)
    grid = (
        divide_up(read.extent, TILE_SIDE),
        divide_up(written.extent, TILE_SIDE),
        shape_product(axis.extent for axis in others),
    )
    return writer.finish("transpose", grid, {"TILE": TILE_SIDE}, comment)


def _transposed_axes(kernel: Kernel) -> tuple[Axis, Axis] | None:
    """The axis that an operand is contiguous along, and that of the results, if they differ."""
    written = _contiguous_axis(kernel, [store.position[0] for store in kernel.stores])
    if written is None:
        return None
    for load in kernel.loads():
        read = _contiguous_axis(kernel, [load.operands[0]])
        if read is None or read is written or not _moves(load, written):
            continue
        if _is_long(read.extent) and _is_long(written.extent):
            return read, written
    return None


def _contiguous_axis(kernel: Kernel, places: list[Expr]) -> Axis | None:
    """The axis along which every one of these places moves by one element."""
    for axis in kernel.axes:
        steps = [
            coefficient(place.dim, axis.symbol) if isinstance(place, Index) else None
            for place in places
        ]
        if steps and all(step == 1 for step in steps):
            return axis
    return None


def _moves(load: Load, axis: Axis) -> bool:
    return axis.symbol in load.symbols


def _is_long(extent: Dim) -> bool:
    return not isinstance(extent, int) or extent >= MIN_TRANSPOSED_EXTENT
