"""Im2col for row-major images: copies the rows that windows read, then multiplies.

    x[n, c, y, 2x + j - 1]   ─▶   windows[n, y, c, j, x]   ─▶   a product with every row of results

The few channels of a picture fill no vector, so these run along the columns of the result. A row of
the picture is stored once for each tap along it, its columns in the order in which results read
them: what a row of results is made of is then one run of memory, whose steps are those of k. The
copy is small beside the result, which is written as it is wanted, and need not be turned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TypeAlias

from monograph.dataclass import dataclass
from monograph.fusion.group import Group, GroupKind
from monograph.ir.dims import Dim, Symbol, substitute_dim
from monograph.ir.graph import Node, Value
from monograph.ir.types import f32, f64
from monograph.kernel import expr as e
from monograph.kernel.contraction import Contraction, as_contraction, with_k_ordered
from monograph.kernel.expr import Apply, Buffer, Expr, Reduce
from monograph.kernel.flatten import flatten
from monograph.kernel.kernel import Kernel, Store, write_kernel
from monograph.kernel.layout import MemoryLayout
from monograph.ops.conv import Conv
from monograph.targets.cpu.assemble.program_builder import ProgramBuilder
from monograph.targets.cpu.plans.plan import GroupRequest, Launchable
from monograph.targets.cpu.products.contract import TiledProduct
from monograph.targets.cpu.products.readings import Weights
from monograph.targets.cpu.products.tiling import choose_tiling, is_worth_tiling
from monograph.targets.plan import KernelPlan, Refusal

MIN_CHANNELS_LAST = 4
"""Channels under which they are better off apart."""
MIN_COPIED_CHANNELS = 16
"""Channels of a result from which turning it costs more than a copy of the picture."""
PANEL_COLUMNS = 16
"""Columns that are computed together."""
MAX_TRANSPOSED_STEPS = 160
"""Products of a result up to which turning it takes a share of the time that matters."""


@dataclass(frozen=True)
class CopiedWindows:
    """Kernels that lay out the rows of a picture, and the convolution that reads them."""

    windows: Buffer
    rows: tuple[Kernel, ...]
    product: Kernel


def has_windows(group: Group, layouts: Mapping[Value, MemoryLayout]) -> bool:
    """Whether a group is a convolution of a picture, row-major at both ends, with long rows."""
    node = _convolution(group)
    if node is None or any(value in layouts for value in (node.operands[0], *group.outputs())):
        return False
    x, weight, result = node.operands[0], node.operands[1], node.results[0]
    assert isinstance(node.op, Conv)
    sizes = (x.shape[1], result.shape[1], result.shape[-1], *weight.shape[2:], *x.shape[2:])
    known = [size for size in sizes if isinstance(size, int)]
    if len(known) != len(sizes) or x.rank != 4 or node.op.groups != 1 or x not in group.inputs():
        return False
    channels, results, columns = known[:3]
    if channels >= MIN_CHANNELS_LAST or results < MIN_COPIED_CHANNELS or x.dtype not in (f32, f64):
        return False
    steps = channels * prod(known[3:5])
    return columns % PANEL_COLUMNS == 0 and steps <= MAX_TRANSPOSED_STEPS


def in_windows(group: Group, kernel: Kernel, x: Buffer) -> CopiedWindows | None:
    """The two kernels of a convolution that ``has_windows``; ``x`` is the picture."""
    node = _convolution(group)
    reductions = [each for each in kernel.expressions() if isinstance(each, Reduce)]
    if node is None or len(reductions) != 1 or len(kernel.axes) != 4:
        return None
    body, taps = reductions[0].body, reductions[0].axes
    if not isinstance(body, Apply) or body.function != "multiply" or len(taps) != 3:
        return None
    seen = [each for each in body.operands if _reads(each) == {x.name}]
    if len(seen) != 1:
        return None
    assert isinstance(node.op, Conv)
    batch, _, down, along = kernel.axes
    channel, tap_down, tap_along = taps
    place = down.symbol * node.op.stride[0] + tap_down.symbol * node.op.dilation[0]
    reached: dict[Symbol, Dim] = {axis.symbol: axis.extent - 1 for axis in (down, tap_down)}
    row = e.axis("_i_row", substitute_dim(place, reached) + 1)
    space = (batch, row, channel, tap_along, along)
    windows = Buffer("windows", x.dtype, tuple(axis.extent for axis in space))
    at = (batch.symbol, place, channel.symbol, tap_along.symbol, along.symbol)
    known: Mapping[Expr, Expr] = {seen[0]: e.load(windows, tuple(map(e.index, at)))}
    stores = tuple(replace(each, value=e.replace(each.value, known)) for each in kernel.stores)
    read = tuple(windows if each.name == x.name else each for each in kernel.inputs)
    rows = _lay_out(kernel.name, node.op, x, windows)
    return CopiedWindows(windows, rows, replace(kernel, inputs=read, stores=stores))


def _reads(value: Expr) -> set[str]:
    """The buffers that a formula reads."""
    return {each.buffer.name for each in e.find_loads(value)}


def _lay_out(name: str, op: Conv, x: Buffer, windows: Buffer) -> tuple[Kernel, ...]:
    """Store the rows of a picture as windows read them, and zeros for what lies around it.

    The columns that a tap reads inside the picture are one kernel: none asks where it is.
    """
    _, rows, _, taps, columns = windows.shape
    height, width = x.shape[2:]
    assert isinstance(rows, int) and isinstance(taps, int) and isinstance(columns, int)
    assert isinstance(height, int) and isinstance(width, int)
    top, left = op.padding[0][0], op.padding[1][0]
    end = min(rows, top + height)
    kernels = [_part(name, x, windows, y, (0, taps), (0, columns)) for y in ((0, top), (end, rows))]
    for tap in range(taps):
        ahead, step = tap * op.dilation[1] - left, op.stride[1]
        first = min(columns, max(0, -(ahead // step)))
        after = max(first, min(columns, (width - 1 - ahead) // step + 1))
        for x_range in ((0, first), (after, columns)):
            kernels.append(_part(name, x, windows, (top, end), (tap, tap + 1), x_range))
        source = (-top, step, ahead)
        inside = _part(name, x, windows, (top, end), (tap, tap + 1), (first, after), source)
        kernels.append(inside)
    return tuple(each for each in kernels if all(axis.extent != 0 for axis in each.axes))


Range: TypeAlias = tuple[int, int]
"""The first and the one after the last."""


def _part(
    name: str,
    x: Buffer,
    windows: Buffer,
    rows: Range,
    taps: Range,
    columns: Range,
    source: tuple[int, int, int] | None = None,
) -> Kernel:
    """Store zeros in some rows, taps and columns, or what lies at the source.

    That is how far rows are ahead of the picture's, how far apart its columns are, and the first.
    """
    batch, _, channels, _, _ = windows.shape
    spans = [max(0, after - first) for first, after in (rows, taps, columns)]
    sizes = (batch, spans[0], channels, spans[1], spans[2])
    axes = tuple(e.axis(f"_i{k}", size) for k, size in enumerate(sizes))
    n, y, c, tap, column = (axis.symbol for axis in axes)
    place = (n, y + rows[0], c, tap + taps[0], column + columns[0])
    value: Expr = e.literal(0, x.dtype)
    if source is not None:
        ahead, step, first = source
        at = (n, c, y + rows[0] + ahead, (column + columns[0]) * step + first)
        value = e.load(x, tuple(map(e.index, at)))
    store = Store(windows, tuple(map(e.index, place)), value)
    return write_kernel(f"{name}_windows", axes, store)


def plan_windows(builder: ProgramBuilder, request: GroupRequest) -> Launchable | Refusal:
    """Lay out the rows of a picture as its windows read them, then multiply."""
    group = request.group
    if request.wanted or len(request.kernels) != 1 or not has_windows(group, builder.layouts):
        return Refusal("it is no convolution of a picture between row-major ends")
    kernel, inputs = request.kernels[0]
    x = next(node.operands[0] for node in group.nodes if isinstance(node.op, Conv))
    windows = in_windows(group, kernel, kernel.inputs[inputs.index(x)])
    if windows is None:
        return Refusal("its picture is read in more than one way")
    flat = flatten(windows.product)
    contraction = as_contraction(flat)
    if contraction is None or not is_worth_tiling(contraction, Weights.NONE, builder.machine):
        return Refusal("there is too little to multiply for tiles to pay")
    contraction, tiling = choose_tiling(_by_rows(contraction), builder.machine, Weights.NONE)
    reason = "a picture's rows are laid out as its windows read them, then multiplied"
    plan = KernelPlan("windows", reason, tiling, (windows.windows,))
    product = TiledProduct(flat.digest, group, contraction, tiling)
    return WindowsPlan(plan, windows, product, tuple(inputs), tuple(request.outputs))


@dataclass(frozen=True)
class WindowsPlan(Launchable):
    """Rows of a picture as windows read them, the product, and the values that both are of."""

    windows: CopiedWindows
    product: TiledProduct
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]

    def launch(self, builder: ProgramBuilder, read: Sequence[int], written: Sequence[int]) -> None:
        """Lay out the rows, and multiply."""
        group, buffer = self.product.group, self.windows.windows
        given = [builder.slot(value) for value in self.inputs]
        made = [builder.slot(value) for value in self.outputs]
        names = [each.name for each in self.product.contraction.kernel.inputs]
        picture = given[names.index(buffer.name)]
        slot = builder.add_scratch(buffer)
        for part in self.windows.rows:
            source = [picture] if part.inputs else []
            builder.launch_flat(group, flatten(part), source, [slot])
        group.joined.append("a picture's rows are laid out as its windows read them")
        given[names.index(buffer.name)] = slot
        self.product.launch(builder, given, made)


def _by_rows(contraction: Contraction) -> Contraction:
    """The columns of a product are those of one row; k walks through what the row reads."""
    *rows, columns = contraction.n
    outer = (*contraction.outer, *rows)
    contraction = replace(contraction, outer=outer, n=(columns,))
    return with_k_ordered(contraction, contraction.right, merge=True)


def _convolution(group: Group) -> Node | None:
    """The one convolution of a group that is made around one."""
    if group.kind is not GroupKind.CONTRACTION:
        return None
    nodes = [node for node in group.nodes if isinstance(node.op, Conv)]
    return nodes[0] if len(nodes) == 1 else None
