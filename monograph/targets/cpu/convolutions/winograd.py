"""Convolutions by Winograd's method, where that is less work than multiplying directly.

``plan_winograd`` looks for a group around one 3×3 convolution at stride 1 (with gaps in its windows
or without) or 2, weighs the method against the direct one, and plans the kernels of
``winograd_loops`` or refuses; either reason is among the group's. F(2×2) and F(2×4) are about as
exact as direct summation and need no leave; F(4×4) rounds more, and is taken only if the caller
stated a tolerance that its error stays within. Bytes are convolved in whole numbers, exactly, where
no instruction multiplies four of them at once: pairs of 16 bits are then what is quickest anyway.

What is compared are cycles, roughly: of the products, which wait for the weights' planes if those
have to come from far, and of the transforms on either side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from monograph.dataclass import dataclass
from monograph.fusion.axis_map import AxisMap
from monograph.fusion.group import Group, GroupKind
from monograph.ir.dims import Dim, Symbol, likely_size, provably_at_least
from monograph.ir.graph import Node, Value
from monograph.ir.types import bf16, f16, f32, i32, integer_limits
from monograph.kernel import expr as e
from monograph.kernel.expr import Axis, Buffer, Expr, Index, Load, Reduce
from monograph.kernel.flatten import coefficient, flat_buffer, flat_expr, flatten
from monograph.kernel.kernel import Store
from monograph.kernel.layout import MemoryLayout
from monograph.kernel.lower import GroupLowering
from monograph.kernel.winograd_transform import (
    F2,
    F2_STRIDED,
    F2X4,
    F4,
    TAPS,
    WHOLE_F2,
    WHOLE_F2X4,
    Transform,
)
from monograph.ops.conv import Conv
from monograph.ops.conv.integer import IntegerConv
from monograph.targets.cpu.assemble.program_builder import ProgramBuilder
from monograph.targets.cpu.convolutions.winograd_loops import Winograd
from monograph.targets.cpu.convolutions.winograd_plan import (
    Convolution,
    Point,
    WinogradPlan,
    flat_store,
    tile_counts,
)
from monograph.targets.cpu.costs import WinogradCosts
from monograph.targets.cpu.machine import Machine
from monograph.targets.cpu.plans.plan import GroupRequest, Launchable
from monograph.targets.plan import KernelPlan, Refusal

if TYPE_CHECKING:
    from monograph.targets.cpu.assemble.steps import StepBuilder

MIN_GROUP_CHANNELS = 16
"""Channels of a group, on either side, from which the method is considered."""
MIN_ROWS_PER_GAP = 8
"""Rows of an image, over the gap between those of a window, from which most taps see some."""
ERROR = {F2: 1.5e-6, F2_STRIDED: 1.5e-6, F2X4: 3e-6, F4: 6e-6}
"""Largest error over largest result that each stays within (``kernel.winograd_transform``)."""
MIN_BLOCKS, AMPLE_BLOCKS = 6, 16
"""Blocks of tiles from which they keep a few threads busy, and from which one more is no matter."""
MIN_BUSY_SHARE = 0.85
"""The share of the time that threads work, from which other blocks are not looked for."""
MAX_BLOCK_FACTOR = 4
"""How many times smaller blocks may become for that."""


@dataclass(frozen=True)
class WinogradMatch:
    """A convolution that the method can compute, and the values that its buffers are."""

    convolution: Convolution
    values: Mapping[str, Value]


def plan_winograd(builder: StepBuilder, request: GroupRequest) -> Launchable | Refusal:
    """The kernels of a 3×3 convolution, if this is one and the method wins."""
    group, wanted = request.group, request.wanted
    node = _main(group)
    if node is None:
        return Refusal("it is no convolution")
    refused = unfit(node) or refuse_bytes(node, builder.machine)
    found = None if refused else find(group, node, request.outputs, request.layouts)
    if found is None:
        return Refusal(refused or "what is computed around it is not of single pixels")
    weights = [found.values[buffer.name] for buffer in found.convolution.weight_buffers()]
    constant = all(value not in wanted and builder.is_weight(value) for value in weights)
    choice = choose(found.convolution, builder.machine, constant, builder.tolerance)
    if choice.plan is None:
        return Refusal(choice.reason, weighed=True)
    kernels = Winograd(found.convolution, choice.plan)

    scratch = (kernels.input_planes,) if choice.plan.whole else ()
    name = f"{choice.plan.transform.name}, {choice.plan.rows}×{choice.plan.columns} in registers"
    layouts = {value.name: layout for value, layout in wanted.items()}
    plan = KernelPlan("winograd", choice.reason, name, scratch, layouts, choice.share)
    return ConvolutionPlan(plan, request, kernels, found.values)


@dataclass(frozen=True)
class ConvolutionPlan(Launchable):
    """A convolution by Winograd's method, and the values that its buffers are."""

    request: GroupRequest
    kernels: Winograd
    values: Mapping[str, Value]

    def launch(self, builder: StepBuilder, read: Sequence[int], written: Sequence[int]) -> None:
        """Bring operands into the layouts that are wanted, transform, multiply, transform back."""
        request = self.request
        request.group.joined.append(self.plan.reason)
        operands, results = builder.operands(request)
        slots = {name: operands[value] for name, value in self.values.items()}
        _launch(builder, request.group, self.kernels, slots, results)
        builder.finish(request, results)


def _main(group: Group) -> Node | None:
    """The one convolution of a group that is made around one."""
    if group.kind is not GroupKind.CONTRACTION:
        return None
    nodes = [node for node in group.nodes if isinstance(node.op, Conv)]
    return nodes[0] if len(nodes) == 1 else None


# Recognition --------------------------------------------------------------------------------------


def find(
    group: Group,
    node: Node,
    outputs: Mapping[Value, AxisMap],
    layouts: Mapping[Value, MemoryLayout],
) -> WinogradMatch | None:
    """The group as a convolution and what is computed of it, if its windows are 3×3."""
    x, weight, *bias = node.operands
    op, result = node.op, node.results[0]
    assert isinstance(op, Conv)
    place = group.places.get(result)
    if place is None or unfit(node) or _spread(place) != _long_axes(group):
        return None
    lowering = GroupLowering(group.nodes, layouts)
    lowering.inside.discard(result)
    at, weight_at = _point("bcyx", x), _point("ocij", weight)
    element = lowering.element(x, tuple(map(e.index, at)))
    taps = lowering.element(weight, tuple(map(e.index, weight_at)))
    added = padding = None
    if isinstance(op, IntegerConv):
        padding = lowering.element(bias[0], ())
    elif bias:
        added = lowering.element(bias[0], (e.index(weight_at[0]),))
    axes = tuple(e.axis(f"_i{k}", dim) for k, dim in enumerate(group.space))
    own = _position(axes, place)
    whole = e.load(lowering.buffer(result), own)
    stores = tuple(
        _store(lowering, number, value, _position(axes, where), layouts.get(value))
        for number, (value, where) in enumerate(outputs.items())
    )
    if not _is_pointwise(stores, lowering.inputs.pop(result), own):
        return None
    if any(isinstance(each, Reduce) for each in e.walk((element, taps))):
        return None
    per_group, channels = weight.shape[0], weight.shape[1]
    assert isinstance(per_group, int) and isinstance(channels, int)
    done: dict[Expr, Expr] = {}
    convolution = Convolution(
        name=group.name,
        inputs=tuple(map(flat_buffer, lowering.inputs.values())),
        outputs=tuple(flat_buffer(store.buffer) for store in stores),
        element=flat_expr(element, done),
        at=at,
        weight=flat_expr(taps, done),
        weight_at=weight_at,
        bias=None if added is None else flat_expr(added, done),
        stores=tuple(map(flat_store, stores)),
        result=flat_expr(whole, done),
        result_at=tuple(None if k is None else axes[k].symbol for k in place),
        batch=x.shape[0],
        groups=op.groups,
        channels=channels,
        features=per_group // op.groups,
        size=(x.shape[2], x.shape[3]),
        result_size=(result.shape[2], result.shape[3]),
        before=(op.padding[0][0], op.padding[1][0]),
        border=_border(x, group, layouts),
        stride=op.stride[0],
        dilation=(op.dilation[0], op.dilation[1]),
        padding=None if padding is None else flat_expr(padding, done),
    )
    return WinogradMatch(
        convolution, {buffer.name: value for value, buffer in lowering.inputs.items()}
    )


def unfit(node: Node) -> str | None:
    """Why the method is not for a convolution; None if it is."""
    x, weight, *_ = node.operands
    op, result = node.op, node.results[0]
    assert isinstance(op, Conv)
    if x.rank != 4 or weight.shape[2:] != (TAPS, TAPS):
        return "its windows are not 3×3"
    if isinstance(op, IntegerConv):
        if op.stride != (1, 1) or not isinstance(weight.shape[1], int) or weight.shape[1] % 2:
            return "its windows are not at stride 1, or of an odd number of channels"
    elif result.dtype not in (f32, f16, bf16):
        return f"it sums in {result.dtype}, and the transforms are in f32"
    if op.stride not in ((1, 1), (2, 2)) or (op.stride != (1, 1) and op.dilation != (1, 1)):
        return "its windows are not at stride 1, or at stride 2 without gaps"
    if not all(isinstance(dim, int) for dim in weight.shape[:2]):
        return "its channels are not of a fixed number"
    if not all(_touches_nothing_or_something(op, x, result, axis) for axis in range(2)):
        return "its image may be empty where its result is not, or its result may be of no pixel"
    return None


def refuse_bytes(node: Node, machine: Machine) -> str | None:
    """Why bytes are better multiplied directly; None if they are not, or if these are floats."""
    if not isinstance(node.op, IntegerConv):
        return None
    if machine.byte_dot() is not None:
        return "an instruction multiplies four of its bytes, where transformed ones are not bytes"
    if machine.small_byte_dot() is None:
        return "no instruction multiplies two numbers of 16 bits"
    return None


def _touches_nothing_or_something(op: Conv, x: Value, result: Value, axis: int) -> bool:
    """Whether an image that has no pixel to be read has no result either, so no tile either.

    Beside an image, the nearest pixel is read in place of one that does not exist.
    """
    size, count = x.shape[2 + axis], result.shape[2 + axis]
    if provably_at_least(size, 1) and provably_at_least(count, 1):
        return True
    span = op.dilation[axis] * (TAPS - 1) + 1
    return sum(op.padding[axis]) < span


def _spread(place: AxisMap) -> set[int]:
    return {axis for axis in place if axis is not None}


def _long_axes(group: Group) -> set[int]:
    return {axis for axis, dim in enumerate(group.space) if dim != 1}


def _point(names: str, value: Value) -> Point:
    n, c, y, x = (e.axis(f"_i_{n}", d).symbol for n, d in zip(names, value.shape, strict=True))
    return n, c, y, x


def _position(axes: tuple[Axis, ...], place: AxisMap) -> tuple[Expr, ...]:
    return tuple(e.index(0 if k is None else axes[k].symbol) for k in place)


def _store(
    lowering: GroupLowering,
    number: int,
    value: Value,
    position: tuple[Expr, ...],
    layout: MemoryLayout | None,
) -> Store:
    buffer = Buffer(f"o{number}", value.dtype, value.shape, layout)
    return Store(buffer, position, e.cast(lowering.element(value, position), value.dtype))


def _is_pointwise(stores: Sequence[Store], own: Buffer, position: tuple[Expr, ...]) -> bool:
    """Whether the convolution's result is read only where it is being computed."""
    parts = list(e.walk(tuple(store.value for store in stores)))
    loads = [x for x in parts if isinstance(x, Load) and x.buffer.name == own.name]
    reduces = any(isinstance(x, Reduce) for x in parts)
    return not reduces and all(load.operands == position for load in loads)


def _border(x: Value, group: Group, layouts: Mapping[Value, MemoryLayout]) -> tuple[int, int]:
    """The zeros that lie around the image in memory, if it is read as it lies."""
    layout = layouts.get(x)
    if layout is None or not layout.border or x not in group.inputs():
        return 0, 0
    return layout.border[2], layout.border[3]


# Choice -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """How a convolution is computed, or None for directly, and why."""

    plan: WinogradPlan | None
    reason: str
    share: float | None = None
    """Predicted cycles over those of direct convolution."""


def choose(
    convolution: Convolution, machine: Machine, constant: bool, tolerance: float | None = None
) -> Choice:
    """The cheapest transform that is allowed, if it is cheaper than direct convolution."""
    c = convolution
    if min(c.channels, c.features) < MIN_GROUP_CHANNELS:
        few = f"{c.channels} to {c.features} channels are too few to pay for transforms"
        return Choice(None, f"multiplied directly: {few}")
    direct = direct_cycles(c, machine)
    known = list_whole_transforms(c) if c.is_whole else list_transforms(tolerance, c.stride)
    if tolerance is None and _sees_mostly_zeros(c) and not c.is_whole:
        known = known[:1]
    plans = [plan_for(c, transform, machine) for transform in known]
    if not plans:
        limit = "32 bits" if c.is_whole else f"{tolerance:g}"
        return Choice(None, f"multiplied directly: no transform stays within {limit}")
    plan = min(plans, key=lambda each: winograd_cycles(c, each, machine, constant))
    share = winograd_cycles(c, plan, machine, constant) / direct
    name = plan.transform.name
    if share > machine.costs.winograd.max_share:
        return Choice(None, f"multiplied directly: {name} would take {share:.0%} of the time")
    saves = f"{plan.transform.fewer:.2f} times fewer multiplications, about {share:.0%} of the time"
    exact = "exactly, in whole numbers"
    if not c.is_whole:
        exact = f"error at most {ERROR[plan.transform]:.1e} of the largest result"
    return Choice(plan, f"3×3 windows by Winograd's {name}: {saves}; {exact}", share)


def list_whole_transforms(convolution: Convolution) -> list[Transform]:
    """The transforms after which results, times a power of two, are still of 32 bits."""
    of_both = (integer_limits(each.dtype) for each in (convolution.element, convolution.weight))
    element, weight = (max(-low, high) for low, high in of_both)
    largest = TAPS**2 * convolution.channels * element * weight
    return [
        transform
        for transform in (WHOLE_F2, WHOLE_F2X4)
        if largest * (transform.scale & -transform.scale) < 1 << (i32.bits - 1)
    ]


def list_transforms(tolerance: float | None, stride: int = 1) -> list[Transform]:
    """The transforms within a tolerance; None allows what is as exact as summing directly."""
    exact = [F2, F2X4] if stride == 1 else [F2_STRIDED]
    if tolerance is None:
        return exact
    known = [*exact, F4] if stride == 1 else exact
    return [transform for transform in known if ERROR[transform] <= tolerance]


def _sees_mostly_zeros(c: Convolution) -> bool:
    """Whether many taps fall outside the image: directly, few terms are summed and rounded."""
    sides = zip(c.result_size, c.dilation, strict=True)
    return any(gap > 1 and likely_size(size) < MIN_ROWS_PER_GAP * gap for size, gap in sides)


def plan_for(c: Convolution, transform: Transform, machine: Machine) -> WinogradPlan:
    """Blocks of tiles that stay in a core's cache, and are enough for what the weights cost."""
    lanes = machine.vector_bytes * 8 // f32.bits
    tiles = likely_size(tile_count(c, transform))
    weights = 4 * transform.weight_planes * c.channels * c.features
    wanted = 24 if weights <= machine.l3 // 8 else 48 if weights <= machine.l3 // 4 else 96
    whole = -(-tiles // wanted) * c.groups < max(MIN_BLOCKS, machine.threads)
    if whole:
        wanted = max(wanted, 48)
    whole = whole or c.is_whole or 4 * transform.planes * wanted * c.channels > machine.l2
    blocks = -(-tiles // wanted)
    if whole:
        panels = -(-c.features // (2 * lanes))
        blocks = _busy_blocks(blocks, tiles, panels * c.groups, machine.threads)
    elif blocks < AMPLE_BLOCKS:
        blocks += blocks % 2
    each = -(-tiles // blocks)
    most = (machine.registers - 4) // 2
    candidates = range(most, min(4, most) - 1, -1)
    rows = min(candidates, key=lambda count: (-(-each // count) * (count + 1.5), -count))
    prefetch = weights > machine.l2
    return WinogradPlan(transform, -(-each // rows) * rows, rows, 2 * lanes, lanes, whole, prefetch)


def _busy_blocks(blocks: int, tiles: int, others: int, threads: int) -> int:
    """So many blocks, or more where threads would wait for the last of them.

    There is a task for each block and each of so many ``others``.
    """

    def busy_share(count: int) -> float:
        rounds = -(-count * others // threads)
        return tiles * others / (rounds * threads * -(-tiles // count))

    if busy_share(blocks) >= MIN_BUSY_SHARE:
        return blocks
    return max(
        range(blocks, min(tiles, MAX_BLOCK_FACTOR * blocks) + 1),
        key=lambda count: (min(busy_share(count), MIN_BUSY_SHARE), -count),
    )


def tile_count(c: Convolution, transform: Transform) -> Dim:
    """How many tiles the result has."""
    rows, columns = tile_counts(c, transform)
    return c.batch * rows * columns


def winograd_cycles(c: Convolution, plan: WinogradPlan, machine: Machine, constant: bool) -> float:
    """About how long the method takes, in cycles of one core."""
    transform, costs = plan.transform, machine.costs.winograd
    tiles = likely_size(tile_count(c, transform))
    panels = -(-c.features // plan.columns)
    planes = transform.planes * panels * c.groups
    steps = c.channels // c.together
    products = planes * -(-tiles // plan.rows) * (steps * plan.rows + costs.tile_overhead_cycles)
    nbytes = 4 * transform.weight_planes * panels * c.groups * steps * plan.columns
    speed = costs.memory_bytes_per_cycle if nbytes > machine.l2 else costs.cache_bytes_per_cycle
    fetched = nbytes * -(-tiles // plan.block) / speed
    of_input, of_products = transform_cycles(transform, costs)
    if not lie_together(c, (c.element,), c.at[1]):
        of_input *= costs.scattered_factor
    if not lie_together(c, c.stored(), c.result_at[1]):
        of_products *= costs.scattered_factor
    vectors = -(-steps // plan.lanes) * of_input + 2 * panels * of_products
    prepared = 0 if constant else 2 * transform.weight_planes * c.channels * c.features
    waits = costs.exposed_fetch_share * min(products, fetched) if nbytes >= machine.l3 // 2 else 0
    return max(products, fetched) + waits + c.groups * (tiles * vectors + prepared)


def transform_cycles(transform: Transform, costs: WinogradCosts) -> tuple[int, int]:
    """Cycles to transform a vector of a tile's input, and of its products."""
    if transform in (F2X4, WHOLE_F2X4):
        return costs.f2x4_cycles
    if transform is F4:
        return costs.f4_cycles
    return costs.f2_strided_cycles if transform is F2_STRIDED else costs.f2_cycles


def direct_cycles(c: Convolution, machine: Machine) -> float:
    """About how long multiplying every tap takes, in cycles of one core."""
    costs = machine.costs.winograd
    columns = 2 * machine.vector_bytes * 8 // f32.bits
    panels = -(-c.features // columns) * c.groups
    pixels = likely_size(c.batch * c.result_size[0] * c.result_size[1])
    steps = TAPS**2 * (c.channels // c.together)
    products = steps * panels * pixels / costs.direct_peak_share
    return max(products, 4 * steps * panels * columns / costs.memory_bytes_per_cycle)


def lie_together(c: Convolution, formulas: tuple[Expr, ...], channel: Symbol | None) -> bool:
    """Whether what is read and written for a channel is next to that of the next channel."""
    if channel is None:
        return True
    own = {buffer.name for buffer in c.inputs}
    loads = [x for x in e.find_loads(*formulas) if x.buffer.name in own]
    places = [load.operands[0] for load in loads] + [x for x in formulas if isinstance(x, Index)]
    steps = [
        coefficient(place.dim, channel) if isinstance(place, Index) else None
        for place in places
        if channel in place.symbols
    ]
    return all(step == 1 for step in steps)


# Launching ----------------------------------------------------------------------------------------


def _launch(
    builder: ProgramBuilder,
    group: Group,
    kernels: Winograd,
    slots: dict[str, int],
    written: Sequence[int],
) -> None:
    """The steps: the weights' planes (beforehand, if they are constant), then the rest."""
    weights = kernels.weight_kernel()
    read = tuple(slots[buffer.name] for buffer in weights.inputs)
    slots[kernels.weights.name] = builder.packed(group, flatten(weights), read)
    if not kernels.plan.whole:
        nest = kernels.fused_nest()
    else:
        target = slots[kernels.input_planes.name] = builder.add_scratch(kernels.input_planes)
        c, lanes = kernels.convolution, kernels.plan.lanes
        costs = builder.machine.costs
        work = transform_cycles(kernels.transform, costs.winograd)[0] * -(-c.channels // lanes)
        first = kernels.input_nest(max(1, costs.task_instructions // work))
        inputs = [slots[buffer.name] for buffer in first.inputs]
        how = f"the input's planes of Winograd's {kernels.transform.name}"
        built = builder.built_nest(group, first, how=how)
        builder.launch_built(built, group, inputs, [target])
        nest = kernels.product_nest()
    inputs = [slots[buffer.name] for buffer in nest.inputs]
    plan = kernels.plan
    how = f"Winograd's {kernels.transform.name}, {plan.block} tiles at a time"
    how = f"{how}, {plan.rows}×{plan.columns} in registers"
    builder.launch_built(builder.built_nest(group, nest, how=how), group, inputs, written)
