"""Sequential reductions: each lane has one result and walks through what it reduces.

For windows of a few elements, and for reductions inside reductions:

    max_pool 3×3, sums of 8 columns    BLOCK results, a loop of 9
"""

from __future__ import annotations

from monograph.ir.dims import likely_size, shape_product
from monograph.kernel.expr import Reduce
from monograph.kernel.kernel import Kernel
from monograph.targets.gpu.cost import H200, buffer_bytes, memory_time
from monograph.targets.gpu.expressions import ExpressionWriter, reductions_of
from monograph.targets.gpu.plan import Configuration, Family, divide_up
from monograph.targets.gpu.reductions import COMBINED, HELPER_OF, POSITIONS, neutral_text
from monograph.targets.gpu.scalars import type_text
from monograph.targets.gpu.source import SourceWriter, TritonKernel
from monograph.targets.plan import Refusal

BLOCK_ELEMENTS = 256
MIN_BLOCK = 64


def configure_sequential(kernel: Kernel) -> tuple[Configuration, ...] | Refusal:
    """Lanes that each walk through what they reduce."""
    if not reductions_of(kernel):
        return Refusal("it has no reductions")
    total = likely_size(shape_product(axis.extent for axis in kernel.axes))
    block = BLOCK_ELEMENTS
    while block > MIN_BLOCK and total < 2 * H200.multiprocessors * block:
        block //= 2
    time = memory_time(buffer_bytes(kernel.buffers), H200.multiprocessors)
    return (Configuration({"BLOCK": block}, block // 64, 2, time),)


def write_sequential(
    kernel: Kernel, configuration: Configuration, comment: tuple[str, ...]
) -> TritonKernel:
    """A kernel whose lanes each walk through what they reduce."""
    source = SourceWriter()
    writer = ExpressionWriter(kernel, source, "offset", rank=1)
    writer.reduce = lambda expr: _walk(writer, expr)
    total = shape_product(axis.extent for axis in kernel.axes)
    source.line(f"offset = tl.program_id(0).to({writer.index_type}) * BLOCK + tl.arange(0, BLOCK)")
    source.line(f"inside = offset < {writer.dim(total)}")
    writer.masks.append((frozenset(axis.symbol for axis in kernel.axes), "inside"))
    writer.decode("offset", kernel.axes)
    for store in kernel.stores:
        writer.store(store)
    grid = (divide_up(total, configuration.blocks["BLOCK"]),)
    return writer.finish("sequential", grid, configuration, comment)


SEQUENTIAL = Family(
    "sequential",
    "each lane walks through what its own element is reduced from",
    configure_sequential,
    write_sequential,
)


def _walk(writer: ExpressionWriter, expr: Reduce) -> str:
    """A loop over the reduced elements, one at a time, in every lane."""
    source, dtype = writer.source, expr.body.dtype
    held = type_text(dtype)
    counter, total = writer.new_name("r"), writer.new_name("total")
    source.line(f"{total} = tl.full([BLOCK], {neutral_text(expr)}, {held})")
    place = ""
    if expr.kind in POSITIONS:
        place = writer.new_name("place")
        source.helper(POSITIONS[expr.kind])
        source.line(f"{place} = tl.full([BLOCK], {2**62}, tl.int64)")
    elif expr.kind in ("max", "min") and dtype.is_float:
        source.helper(HELPER_OF[expr.kind])
    length = writer.dim(shape_product(axis.extent for axis in expr.axes))
    moving = frozenset(axis.symbol for axis in expr.axes)
    with writer.loop(f"for {counter} in range(0, {length}):", moving, [expr.body]):
        writer.decode(counter, expr.axes)
        body = f"tl.broadcast_to({writer.value(expr.body)}, [BLOCK])"
        if place:
            at = f"tl.full([BLOCK], 0, tl.int64) + {counter}"
            call = f"{POSITIONS[expr.kind]}({total}, {place}, {body}, {at})"
            source.line(f"{total}, {place} = {call}")
        else:
            source.line(f"{total} = ({_combine(expr, total, body)}).to({held})")
    return place or total


def _combine(expr: Reduce, x: str, y: str) -> str:
    if expr.kind in ("max", "min") and not expr.body.dtype.is_float:
        return f"tl.{expr.kind}imum({x}, {y})"
    return COMBINED[expr.kind].format(x=x, y=y)
