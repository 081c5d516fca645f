"""Which layout each value of a graph has: channels-last where convolutions are, else row-major.

Convolutions read and write all channels of a pixel together, so around them channels lie last, with
a border of zeros, or zero points, where windows reach over the edge: no padded copy is made, and no
tap asks whether it is inside. What is computed between convolutions (activations, sums, pools,
concatenations) keeps the order of what it reads. Inputs, outputs and weights of the graph, and
whatever loops, control flow or the interpreter touch, stay row-major.

The order is followed through the graph axis by axis, so that a transpose to channels-last, for a
normalisation say, finds its operand's memory in the order in which it is wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import TypeAlias

from monograph.fusion.group import Group, GroupKind
from monograph.fusion.prologue import is_stored
from monograph.ir.dims import Dim, likely_size, shape_product
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.op import Trait
from monograph.ir.types import TensorType
from monograph.kernel.layout import MemoryLayout, channels_last, make_layout
from monograph.ops.attention import Attention
from monograph.ops.conv import Conv, ConvTranspose, ConvWeightGradient, IntegerConv
from monograph.ops.index.reading import Take
from monograph.ops.rules import normalize_axes
from monograph.ops.shape import Reshape, Transpose
from monograph.switches import is_on
from monograph.targets.cpu.convolutions.patches import has_patches
from monograph.targets.cpu.convolutions.windows import has_windows

Order: TypeAlias = tuple[int, ...]
"""The axes of a value from the outermost to the innermost in memory."""

CONVOLUTIONS = (Conv, ConvTranspose, ConvWeightGradient)
"""Ops whose first operand is an image that windows slide over."""
FEW_CHANNELS = 4
"""Channels under which a convolution's result is better off row-major."""
PANEL, FULL, ALMOST_FULL = 16, 0.9, 0.95
"""Columns of a product that are computed together, and the share of them that should be wanted."""
FEW_PRODUCTS = 240
"""Multiplications for each element at a convolution's ends up to which a tenth more are cheaper
than other layouts of these ends."""
MIN_IMAGE_RANK = 4
"""Axes from which an input that is not row-major is taken for an image that lies channels-last."""
MIN_ROW_MAJOR_COLUMNS = 6
"""Columns under which a row-major image is better off with its channels together."""


def plan_layouts(
    graph: Graph, groups: Sequence[Group], given: Mapping[Value, MemoryLayout]
) -> dict[Value, MemoryLayout]:
    """The layouts of the values that are not row-major; ``given`` are those of strided inputs."""
    layouts = dict(given)
    has_images = any(len(layout.strides) >= MIN_IMAGE_RANK for layout in given.values())
    if not has_images and not any(isinstance(node.op, CONVOLUTIONS) for node in graph.nodes):
        return layouts
    if not is_on("channels_last"):
        return layouts
    fixed = _find_fixed(graph, groups)
    orders = _orders(graph, fixed, given)
    for group in groups:
        is_view = all(isinstance(node.op, Reshape | Transpose) for node in group.nodes)
        stored = [node.results[0] for node in group.nodes] if is_view else group.outputs()
        for value in stored:
            if value in fixed:
                continue
            view = _layout_of_view(group, value, layouts)
            if view is not None:
                layouts[value] = view
            elif value in orders:
                layouts[value] = make_layout(value.shape, orders[value], _border(value, group))
    return layouts


def border_value(value: Value) -> Value | None:
    """What lies in the border of a value in its own layout: None stands for zeros.

    Convolutions that pad it with something else do not read that border.
    """
    nodes = [node for node in _convolutions_reading(value) if any(_padding(node))]
    return padding_value(nodes[0]) if nodes else None


def padding_value(node: Node) -> Value | None:
    """What a convolution pads its image with: None stands for zeros."""
    return node.operands[2] if isinstance(node.op, IntegerConv) else None


def convolution_layouts(
    group: Group, layouts: Mapping[Value, MemoryLayout]
) -> dict[Value, MemoryLayout]:
    """The values that a convolution would read or write in another layout than they have."""
    node = next((node for node in group.nodes if isinstance(node.op, CONVOLUTIONS)), None)
    if node is None or group.kind is not GroupKind.CONTRACTION:
        return {}
    x, made = node.operands[0], node.results[0]
    if isinstance(node.op, ConvWeightGradient):
        return _gradient_layouts(group, node, layouts)
    is_plain = isinstance(node.op, Conv)
    if is_plain and not any(value in layouts for value in (x, *group.outputs())):
        # both ends are row-major
        if _is_product(node) or (has_patches(group, layouts) and _skips_enough(node)):
            return {}
        if _has_own_windows(node) and x in group.inputs() and not _turns_channels(group, made):
            border = _padding(node)
            return {x: make_layout(x.shape, range(x.rank), border)} if any(border) else {}
        if has_windows(group, layouts):
            return {}
    wanted: dict[Value, MemoryLayout] = {}
    last = channels_last(x.rank)
    if x in group.inputs() and not _serves(layouts.get(x), node):
        wanted[x] = make_layout(x.shape, _order_read(node), _padding(node))
    for value in group.outputs():
        if value not in layouts and _is_as_made(group, value, made) and _is_turned(value, last):
            wanted[value] = make_layout(value.shape, last)
    return wanted


def _gradient_layouts(
    group: Group, node: Node, layouts: Mapping[Value, MemoryLayout]
) -> dict[Value, MemoryLayout]:
    """Pixel by pixel what was seen, times what came of it: channels of both lie together.

    So do, in the result, the channels that vectors run along: the outputs, unless they are few.
    """
    x, grad = node.operands
    (made,) = node.results
    last = channels_last(x.rank)
    wanted: dict[Value, MemoryLayout] = {}
    if x in group.inputs() and not _serves(layouts.get(x), node):
        wanted[x] = make_layout(x.shape, last, _padding(node))
    if grad in group.inputs() and grad not in layouts and _is_turned(grad, last):
        wanted[grad] = make_layout(grad.shape, last)
    outputs, channels = (likely_size(dim) for dim in made.shape[:2])
    few = outputs < PANEL // 2 and channels > outputs
    order = (*range(2, made.rank), *((0, 1) if few else (1, 0)))
    for value in group.outputs():
        if value not in layouts and _is_as_made(group, value, made) and _is_turned(value, order):
            wanted[value] = make_layout(value.shape, order)
    return wanted


def _is_as_made(group: Group, value: Value, made: Value) -> bool:
    """Whether the axes of a group's result are those of its convolution's."""
    place = group.places.get(value)
    return place is not None and place == group.places.get(made)


def _turns_channels(group: Group, made: Value) -> bool:
    """Whether a group stores the channels that its convolution made next to each other."""
    at = group.places.get(made)
    places = (group.places.get(value) for value in group.outputs())
    return at is not None and any(place is not None and place[-1:] == at[1:2] for place in places)


def _is_product(node: Node) -> bool:
    """Whether a convolution is a plain product with every pixel, as good row-major."""
    assert isinstance(node.op, Conv)
    outputs, channels, *window = node.operands[1].shape
    if shape_product(window) != 1 or set(node.op.stride) != {1} or any(_padding(node)):
        return False
    # turning the ends around takes longer the fewer products there are for each of their elements
    products = 1 / (1 / max(1, likely_size(outputs)) + 1 / max(1, likely_size(channels)))
    return _fills_panels(node, FULL if products <= FEW_PRODUCTS else ALMOST_FULL)


def _skips_enough(node: Node) -> bool:
    """Whether the pixels that separate windows read are better gathered than turned around.

    Lanes that are left empty cost more than turning, unless most of the image is not read at all.
    """
    assert isinstance(node.op, Conv)
    read = likely_size(shape_product(node.operands[1].shape[2:]))
    return _fills_panels(node, FULL if read * 2 <= prod(node.op.stride) else ALMOST_FULL)


def _fills_panels(node: Node, share: float) -> bool:
    """Whether few lanes are left empty if vectors run along the pixels of a result."""
    pixels = shape_product(node.results[0].shape[2:])
    return not isinstance(pixels, int) or pixels >= share * (-(-pixels // PANEL) * PANEL)


def _has_own_windows(node: Node) -> bool:
    """Whether each channel of an image is convolved by itself, and rows are long enough."""
    op, weight, result = node.op, node.operands[1], node.results[0]
    assert isinstance(op, Conv)
    columns = result.shape[-1]
    fits = isinstance(columns, int) and columns >= MIN_ROW_MAJOR_COLUMNS and result.rank >= 4
    alone = weight.shape[1] == 1 and weight.shape[0] == op.groups
    return fits and alone and op.stride[-1] <= 2


def _serves(layout: MemoryLayout | None, node: Node) -> bool:
    """Whether a convolution can read its operand as it lies."""
    x = node.operands[0]
    border = (layout.border if layout is not None else ()) or (0,) * x.rank
    enough = all(have >= need for have, need in zip(border, _padding(node), strict=True))
    enough &= not any(_padding(node)) or padding_value(node) is border_value(x)
    return enough and (layout is not None or not _is_turned(x, _order_read(node)))


def _order_read(node: Node) -> Order:
    """The order in which a convolution reads its operand best.

    The few channels of a picture are as good row-major: giving it a border is then a plain copy.
    """
    x, op = node.operands[0], node.op
    as_it_is = isinstance(op, Conv) and op.groups == 1 and not _has_channels(x)
    return tuple(range(x.rank)) if as_it_is else channels_last(x.rank)


def _is_turned(value: Value, order: Order) -> bool:
    """Whether an order differs from row-major for this value."""
    axes = [axis for axis in order if value.shape[axis] != 1]
    return axes != sorted(axes) and all(dim != 0 for dim in value.shape)


def _find_fixed(graph: Graph, groups: Sequence[Group]) -> set[Value]:
    """The values that have to be row-major, or as they were given."""
    fixed = {*graph.inputs, *graph.outputs}
    for node in graph.nodes:
        if is_stored(node):
            fixed.update(node.results)
    for group in groups:
        attends = any(isinstance(node.op, Attention) for node in group.nodes)
        if group.kind is GroupKind.OPAQUE or attends:
            for node in group.nodes:
                fixed.update((*node.operands, *node.results))
    return fixed


def _orders(
    graph: Graph, fixed: set[Value], given: Mapping[Value, MemoryLayout]
) -> dict[Value, Order]:
    """The values whose axes lie in another order than row-major."""
    orders: dict[Value, Order] = {}
    for value, layout in given.items():
        _note(orders, value, _order_of(layout))
    for node in graph.nodes:
        for result in node.results:
            if not isinstance(result.type, TensorType) or result in fixed:
                continue
            order = _order(node, result, orders)
            if order is None and _feeds_convolution(result):
                order = channels_last(result.rank)
            _note(orders, result, order)
    return orders


def _note(orders: dict[Value, Order], value: Value, order: Order | None) -> None:
    if order is not None and _is_turned(value, order):
        orders[value] = order


def _order_of(layout: MemoryLayout) -> Order | None:
    steps = [stride if isinstance(stride, int) else None for stride in layout.strides]
    known = [step for step in steps if step is not None]
    if len(known) != len(steps):
        return None
    return tuple(sorted(range(len(known)), key=lambda axis: -known[axis]))


def _order(node: Node, result: Value, orders: Mapping[Value, Order]) -> Order | None:
    """The order of a node's result, by what it computes and the order of what it reads."""
    if isinstance(node.op, Conv | ConvTranspose):
        return channels_last(result.rank) if _has_channels(result) else None
    operands = [value for value in node.operands if isinstance(value.type, TensorType)]
    moves = isinstance(node.op, Reshape | Transpose | Take)
    source = next((v for v in operands if v in orders and (moves or v.rank >= result.rank)), None)
    if source is None:
        return None
    order = orders[source]
    if isinstance(node.op, Transpose):
        permutation = [axis % source.rank for axis in node.op.permutation]
        return tuple(permutation.index(axis) for axis in order)
    if isinstance(node.op, Reshape):
        view = make_layout(source.shape, order).viewed(source.shape, result.shape)
        return None if view is None else _order_of(view)
    if isinstance(node.op, Take):
        return _order_of_gather(node, source, order)
    if node.op.has(Trait.REDUCTION) and not node.op.has(Trait.KEEPS_AXES):
        return _order_of_reduction(node, source, result, order)
    keeps = node.op.has(Trait.ELEMENTWISE) or node.op.has(Trait.KEEPS_AXES)
    return order if keeps and source.rank == result.rank else None


def _order_of_gather(node: Node, source: Value, order: Order) -> Order | None:
    """The order of what is taken along an axis: those of the indices stand in its place."""
    if source is not node.operands[0]:
        return None
    axis = node.op.attributes()["axis"] % source.rank
    count = node.operands[1].rank
    places = {each: [each if each < axis else each + count - 1] for each in order}
    places[axis] = list(range(axis, axis + count))
    return tuple(place for each in order for place in places[each])


def _order_of_reduction(node: Node, source: Value, result: Value, order: Order) -> Order | None:
    if result.rank == source.rank:
        return order
    attributes = node.op.attributes()
    axes = attributes["axes"] if "axes" in attributes else (attributes["axis"],)
    gone = normalize_axes(node.op.name, axes, source.rank)
    kept = [axis for axis in range(source.rank) if axis not in gone]
    if len(kept) != result.rank:
        return None
    return tuple(kept.index(axis) for axis in order if axis in kept)


def _has_channels(value: Value) -> bool:
    channels: Dim = value.shape[1]
    return not isinstance(channels, int) or channels >= FEW_CHANNELS


def _convolutions_reading(value: Value) -> Iterable[Node]:
    for use in value.uses:
        if isinstance(use.node.op, CONVOLUTIONS) and use.node.operands[0] is value:
            yield use.node


def _feeds_convolution(value: Value) -> bool:
    return any(True for _ in _convolutions_reading(value))


def _border(value: Value, group: Group) -> tuple[int, ...]:
    """Border enough for every convolution that reads the value, which a group makes.

    What it is filled with must be known by then.
    """
    border, filling = (0,) * value.rank, border_value(value)
    producer = None if filling is None else filling.producer
    is_known = producer is not None and is_stored(producer)
    if filling is not None and not is_known and filling not in group.inputs():
        return border
    for node in _convolutions_reading(value):
        if padding_value(node) is filling:
            border = tuple(map(max, border, _padding(node)))
    return border


def _padding(node: Node) -> tuple[int, ...]:
    """How far past the ends of its operand a convolution reads zeros."""
    if isinstance(node.op, ConvTranspose):
        return (0, 0, *(each or 0 for each in node.op.reach(node.operands[1].shape[2:])))
    assert isinstance(node.op, Conv | ConvWeightGradient)
    return (0, 0, *(max(pair) for pair in node.op.padding))


def _layout_of_view(
    group: Group, value: Value, layouts: Mapping[Value, MemoryLayout]
) -> MemoryLayout | None:
    """The layout of a reshape alone that needs no kernel."""
    node = group.nodes[0]
    if len(group.nodes) != 1 or not isinstance(node.op, Reshape):
        return None
    (source,) = node.operands
    layout = layouts.get(source)
    if layout is None or _feeds_convolution(value):
        return None
    return layout.viewed(source.shape, value.shape)
