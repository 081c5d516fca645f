"""Pointwise kernels: each program computes a block of the results.

The index space is flattened, and a block is a run of it. Where some operand is contiguous along
another axis than the results (a transpose), a block is a tile of both axes instead: Triton reads it
in the order of one and writes it in that of the other, through shared memory.
"""

from __future__ import annotations

from monograph.ir.dims import Dim, likely_size, shape_product
from monograph.kernel.expr import Axis, Expr, Index, Load
from monograph.kernel.flatten import coefficient
from monograph.kernel.kernel import Kernel
from monograph.targets.gpu.cost import H200, buffer_bytes, memory_time
from monograph.targets.gpu.expressions import ExpressionWriter, reductions_of
from monograph.targets.gpu.plan import Configuration, Family, divide_up
from monograph.targets.gpu.source import SourceWriter, TritonKernel
from monograph.targets.plan import Refusal

BLOCK_ELEMENTS = 1024
"""Elements of a program: eight to a thread, which a thread loads in 16 or 32 bytes."""
MIN_BLOCK = 128
TILE_BYTES = 32 << 10
"""Bytes of a tile of a transpose."""
MIN_TRANSPOSED_EXTENT = 16
"""Elements along both axes of a transpose from which a tile is worth it."""


def configure_pointwise(kernel: Kernel) -> tuple[Configuration, ...] | Refusal:
    """Runs of the flattened index space."""
    if reductions_of(kernel):
        return Refusal("it has reductions")
    total = likely_size(shape_product(axis.extent for axis in kernel.axes))
    block = BLOCK_ELEMENTS
    while block > MIN_BLOCK and total < 2 * H200.multiprocessors * block:
        block //= 2
    time = memory_time(buffer_bytes(kernel.buffers), -(-total // block))
    return (Configuration({"BLOCK": block}, max(1, block // 256), microseconds=time),)


def write_pointwise(
    kernel: Kernel, configuration: Configuration, comment: tuple[str, ...]
) -> TritonKernel:
    """A kernel without reductions, a run of its flattened index space a program."""
    source = SourceWriter()
    writer = ExpressionWriter(kernel, source, "offset", rank=1)
    total = shape_product(axis.extent for axis in kernel.axes)
    block = configuration.blocks["BLOCK"]
    source.line(f"start = tl.program_id(0).to({writer.index_type}) * BLOCK")
    source.line("offset = start + tl.arange(0, BLOCK)")
    if not (isinstance(total, int) and total % block == 0):
        source.line(f"inside = offset < {writer.dim(total)}")
        writer.masks.append((frozenset(axis.symbol for axis in kernel.axes), "inside"))
    writer.decode("offset", kernel.axes)
    for store in kernel.stores:
        writer.store(store)
    return writer.finish("pointwise", (divide_up(total, block),), configuration, comment)


POINTWISE = Family(
    "pointwise", "each element is computed by itself", configure_pointwise, write_pointwise
)


def configure_transpose(kernel: Kernel) -> tuple[Configuration, ...] | Refusal:
    """Tiles of the axis that is read along and the axis that is written along."""
    if reductions_of(kernel):
        return Refusal("it has reductions")
    pair = _find_transposed_axes(kernel)
    if pair is None:
        return Refusal("all that it reads is contiguous along the axis that it writes along")
    width = max(store.buffer.dtype.bits // 8 for store in kernel.stores)
    total = likely_size(shape_product(axis.extent for axis in kernel.axes))
    side = 128
    while side > 32 and (side * side * width > TILE_BYTES or total < 1024 * side * side):
        side //= 2
    time = memory_time(buffer_bytes(kernel.buffers), H200.multiprocessors)
    return (Configuration({"TILE": side}, 8 if side > 32 else 4, microseconds=time),)


def write_transpose(
    kernel: Kernel, configuration: Configuration, comment: tuple[str, ...]
) -> TritonKernel:
    """A kernel that reads along one axis and writes along another, a tile of both a program."""
    pair = _find_transposed_axes(kernel)
    assert pair is not None
    read, written = pair
    others = tuple(axis for axis in kernel.axes if axis not in pair)
    source = SourceWriter()
    writer = ExpressionWriter(kernel, source, "column")
    kind, side = writer.index_type, configuration.blocks["TILE"]
    tiles = [divide_up(axis.extent, side) for axis in pair]
    columns = writer.dim(tiles[1])
    source.line(f"program = tl.program_id(0).to({kind})")
    if others:
        source.line(f"batch = program // {writer.dim(tiles[0] * tiles[1])}")
        writer.decode("batch", others)
        source.line(f"program = program % {writer.dim(tiles[0] * tiles[1])}")
    for name, axis, number, shape in (
        ("row", read, f"program // {columns}", "[:, None]"),
        ("column", written, f"program % {columns}", "[None, :]"),
    ):
        source.line(f"{name} = {number} * TILE + tl.arange(0, TILE){shape}")
        writer.positions[axis.symbol] = name
        if not (isinstance(axis.extent, int) and axis.extent % side == 0):
            source.line(f"{name}_inside = {name} < {writer.dim(axis.extent)}")
            writer.masks.append((frozenset((axis.symbol,)), f"{name}_inside"))
    for store in kernel.stores:
        writer.store(store)
    grid = (tiles[0] * tiles[1] * shape_product(axis.extent for axis in others),)
    return writer.finish("transpose", grid, configuration, comment)


TRANSPOSE = Family(
    "transpose",
    "it reads along one axis and writes along another: tiles of both",
    configure_transpose,
    write_transpose,
)


def _find_transposed_axes(kernel: Kernel) -> tuple[Axis, Axis] | None:
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
