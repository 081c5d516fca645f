"""From a group of nodes to a kernel: each op says how one element is computed, and the group is
those sayings put into one another.

A value inside the group is never stored unless it leaves it: reading one of its elements writes
its formula at that position instead. Positions are exact index arithmetic, so a transpose, a
slice or an expand costs nothing but another subscript, and equal formulas meet in one expression.

Floats narrower than 32 bits are computed with in f32 and rounded where they are stored or cast. The
interpreter rounds after every op; a kernel that holds several is closer to the exact result.
Integers narrower than eight bits are computed with in i32 and wrap around after every op.
Complex numbers are taken apart while formulas are made (``complex_numbers``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from monograph.errors import UnsupportedError
from monograph.ir.dims import Dim, Shape, SymbolicDim, provably_equal, provably_less
from monograph.ir.graph import Node, Value
from monograph.ir.op import Op, Trait
from monograph.ir.types import DType, Kind, TensorType, bool_, i64, wide
from monograph.kernel import complex_numbers, whole_numbers
from monograph.kernel import expr as e
from monograph.kernel.complex_moves import move_whole_numbers
from monograph.kernel.complex_numbers import involves_complex
from monograph.kernel.expr import Apply, Buffer, Expr, Index, Reduce
from monograph.kernel.kernel import Kernel, Store
from monograph.kernel.layout import MemoryLayout, matching_runs
from monograph.kernel.scalar import APPROXIMATED, BASIC, TO_BOOL
from monograph.kernel.walk import Walk, whole_walk
from monograph.ops.data import Constant, Full
from monograph.ops.elementwise.arithmetic import Add

SCALAR_FUNCTIONS = BASIC | APPROXIMATED | complex_numbers.FUNCTIONS.keys()
Position: TypeAlias = tuple[Expr, ...]


def is_lowerable(node: Node) -> bool:
    """Whether the node's op says how one element is computed, of types that kernels hold."""
    op = node.op
    if op.has(Trait.EFFECT) or node.regions:
        return False
    values = (*node.operands, *node.results)
    if not all(isinstance(v.type, TensorType) and is_native(v.dtype) for v in values):
        return False
    if not (type(op).has_lowering() or is_scalar_function(type(op))):
        return False
    return not any(v.dtype.is_complex for v in values) or _can_take_apart(node)


def is_native(dtype: DType) -> bool:
    """Whether kernels hold elements of this dtype; the narrowest are computed with in wider."""
    return dtype.kind is not Kind.STRING


def is_scalar_function(op: type[Op]) -> bool:
    """Whether an op is the scalar function of its own name."""
    return Trait.ELEMENTWISE in op.traits and not op.attribute_names and op.name in SCALAR_FUNCTIONS


def _can_take_apart(node: Node) -> bool:
    """Whether the node's formulas hold only what complex numbers have in kernels."""
    group = GroupLowering((node,), {})
    try:
        for value in node.results:
            axes = [e.axis(f"_i{k}", dim) for k, dim in enumerate(value.shape)]
            group.element(value, tuple(e.index(axis.symbol) for axis in axes))
    except UnsupportedError:
        return False
    return True


class GroupLowering:
    """Formulas for the values of one group; ``elements`` remembers each (value, position)."""

    def __init__(self, nodes: Sequence[Node], layouts: Mapping[Value, MemoryLayout]) -> None:
        self.inside = {result for node in nodes for result in node.results}
        self.layouts = layouts
        self.inputs: dict[Value, Buffer] = {}
        self.elements: dict[tuple[Value, Position], Expr] = {}

    def buffer(self, value: Value) -> Buffer:
        """The parameter that a value from outside is read through."""
        if value not in self.inputs:
            name = f"b{len(self.inputs)}"
            self.inputs[value] = Buffer(name, value.dtype, value.shape, self.layouts.get(value))
        return self.inputs[value]

    def element(self, value: Value, position: Position) -> Expr:
        """The element of a value, of the dtype in which it is computed with."""
        key = (value, position)
        if key not in self.elements:
            self.elements[key] = self._element(value, position)
        return self.elements[key]

    def _element(self, value: Value, position: Position) -> Expr:
        node = value.producer
        constant = _splat(value)
        if constant is not None and not value.dtype.is_complex:
            return _checking(position, e.literal(constant, wide(value.dtype)))
        if node is None or value not in self.inside:
            return widen(complex_numbers.load(self.buffer(value), position))
        builder = NodeLowering(self, node, position)
        if type(node.op).has_lowering():
            found: Expr = node.op.lower(builder, position, value.index)
        else:
            operands = [builder.broadcast(k, position) for k in self._order(node)]
            found = builder.apply(node.op.name, *operands, dtype=builder.result_dtype())
        return wrap_integer(builder.cast(found, wide(value.dtype)), value.dtype)

    def _order(self, node: Node) -> Sequence[int]:
        """In which order a function takes its operands: a sum takes what the group computes first.

        So ``x + conv(y)`` and ``conv(y) + x`` are one kernel, and their buffers have one order.
        """
        inside = [operand in self.inside for operand in node.operands]
        if isinstance(node.op, Add) and inside == [False, True]:
            return 1, 0
        return range(len(node.operands))


def widen(element: Expr) -> Expr:
    """An element in the dtype in which it is computed with."""
    return e.cast(element, wide(element.dtype))


def wrap_integer(element: Expr, dtype: DType) -> Expr:
    """An integer narrower than eight bits, which is computed in ``i32``, held to its own bits."""
    if not dtype.is_packed or not dtype.is_integer or _keeps_to(element, dtype):
        return element
    return e.cast(e.cast(element, dtype), element.dtype)


def _keeps_to(element: Expr, dtype: DType) -> bool:
    """Whether an element is seen at once to be a number of a dtype: it was one, or the largest."""
    if isinstance(element, Reduce) and element.kind in ("max", "min"):
        return _keeps_to(element.body, dtype)
    if isinstance(element, e.Literal):
        return bool(np.asarray(element.value).astype(dtype.numpy) == element.value)
    return (
        isinstance(element, Apply)
        and element.function == "cast"
        and element.operands[0].dtype is dtype
    )


class NodeLowering:
    """The builder that one node's op is lowered with (``ir.lower.Lowering``)."""

    def __init__(self, group: GroupLowering, node: Node, position: Position) -> None:
        self.group = group
        self.node = node
        self.position = position
        self.nesting = 0
        """How many reductions of this node the body that is being computed lies inside of."""

    @property
    def operands(self) -> tuple[TensorType, ...]:
        return tuple(operand.tensor for operand in self.node.operands)

    @property
    def results(self) -> tuple[TensorType, ...]:
        return tuple(result.tensor for result in self.node.results)

    def result_dtype(self) -> DType:
        """The dtype that an elementwise op computes in."""
        return wide(self.results[0].dtype)

    def read(self, operand: int, index: Sequence[Expr]) -> Expr:
        return self.group.element(self.node.operands[operand], tuple(index))

    def stored(self, operand: int, index: Sequence[Expr]) -> Expr:
        value = self.node.operands[operand]
        return e.cast(self.group.element(value, tuple(index)), value.dtype)

    def broadcast(self, operand: int, index: Sequence[Expr]) -> Expr:
        shape = self.node.operands[operand].shape
        added = len(index) - len(shape)
        target = self.results[0].shape[added:]
        places = zip(tuple(index)[added:], shape, target, strict=True)
        return self.read(operand, [self._broadcast_position(*place) for place in places])

    def _broadcast_position(self, position: Expr, dim: Dim, target: Dim) -> Expr:
        """The position along a dimension that is 1 or, as far as is known, the target's size."""
        if dim == 1:
            return e.index(0)
        return position if provably_equal(dim, target) else self.clamp(position, 0, dim)

    def reshaped(self, operand: int, shape: Shape, index: Sequence[Expr]) -> Expr:
        value = self.node.operands[operand]
        viewed = self.group.buffer(value).viewed(shape) if self._is_in_memory(value) else None
        if viewed is not None:
            return widen(complex_numbers.load(viewed, tuple(index)))
        return self.read(operand, reshape_position(tuple(index), shape, value.shape))

    def border(self, operand: int) -> tuple[int, ...]:
        value = self.node.operands[operand]
        layout = self.group.layouts.get(value)
        if layout is None or not layout.border or not self._is_in_memory(value):
            return (0,) * len(value.shape)
        return layout.border

    def _is_in_memory(self, value: Value) -> bool:
        """Whether it is read from a buffer, borders and all: not computed here, nor a number."""
        return value not in self.group.inside and _splat(value) is None

    def literal(self, value: bool | int | float, dtype: DType) -> Expr:
        if dtype.is_complex:
            return complex_numbers.literal(value, dtype)
        return e.literal(value, dtype)

    def index(self, position: Expr | Dim) -> Expr:
        return e.index(position)

    def apply(self, function: str, *operands: Expr, dtype: DType | None = None) -> Expr:
        if involves_complex(operands, dtype):
            return complex_numbers.apply(function, operands)
        if dtype is None and function in TO_BOOL:
            dtype = bool_
        if dtype is None and function == "where":
            dtype = operands[1].dtype
        known = (
            whole_numbers.apply_to_positions(function, operands)
            if dtype in (None, bool_, i64)
            else None
        )
        return e.apply(function, *operands, dtype=dtype) if known is None else known

    def cast(self, operand: Expr, dtype: DType) -> Expr:
        if operand.dtype is not dtype and involves_complex((operand,), dtype):
            return complex_numbers.cast(operand, dtype)
        return e.cast(operand, dtype)

    def select(self, condition: Expr, yes: Expr, no: Expr) -> Expr:
        if yes.dtype.is_complex or no.dtype.is_complex:
            return complex_numbers.select(condition, yes, no)
        return e.select(condition, yes, no)

    def both(self, left: Expr, right: Expr) -> Expr:
        return _both(left, right)

    def within(self, position: Expr, lower: Dim, upper: Dim) -> Expr:
        low = _compare("greater_equal", position, lower)
        high = _compare("less", position, upper)
        return _both(low, high)

    def clamp(self, position: Expr, lower: Dim, upper: Dim) -> Expr:
        at_least = _compare("greater_equal", position, lower)
        below = _compare("less", position, upper)
        bounded = e.select(below, position, e.index(upper) - 1)
        if not provably_less(lower, upper):  # perhaps an empty range, of which `lower` is given
            at_least = _compare("greater_equal", bounded, lower)
        return e.select(at_least, bounded, e.index(lower))

    def most(self, position: Expr) -> int | None:
        if not isinstance(position, Index):
            return None
        return position.dim if isinstance(position.dim, int) else position.dim.bounds()[1]

    def reduce(self, kind: str, extents: Shape, body: Callable[[Position], Expr]) -> Expr:
        depth = _depth(self.position) + self.nesting
        axes = tuple(e.axis(f"_r{depth}_{k}", extent) for k, extent in enumerate(extents))
        self.nesting += 1
        combined = body(tuple(e.index(each.symbol) for each in axes))
        self.nesting -= 1
        if combined.dtype.is_complex:
            return complex_numbers.reduce(kind, axes, combined)
        return e.reduce(kind, axes, combined)

    def checked(self, position: Expr, size: Dim) -> Expr:
        if position.dtype.kind is Kind.UNSIGNED:
            return e.apply("checked", _as_signed(position), e.index(size))
        wide_position = e.cast(position, i64)
        if whole_numbers.is_inside(wide_position, size):
            return wide_position
        negative = e.apply("less", wide_position, e.index(0), dtype=bool_)
        wrapped = e.select(negative, e.apply("add", wide_position, e.index(size)), wide_position)
        return e.apply("checked", wrapped, e.index(size))


def lower_group(
    name: str,
    nodes: Sequence[Node],
    space: Shape,
    outputs: Mapping[Value, tuple[int | None, ...]],
    layouts: Mapping[Value, MemoryLayout] | None = None,
    walk: Walk | None = None,
) -> tuple[Kernel, tuple[Value, ...]]:
    """The kernel of a group and the values that its inputs are.

    ``space`` is the shape of what the kernel visits; each output is stored at its place in it: the
    axis of the space for each dimension of the output, None where that has size one. ``layouts``
    are those of the values that are not row-major. ``walk`` says which positions of the space are
    visited, and by which axes; None is all of them, by an axis each.
    """
    lies = layouts or {}
    group = GroupLowering(nodes, lies)
    walk = walk or whole_walk(space)
    buffers = tuple(Buffer(f"o{k}", v.dtype, v.shape, lies.get(v)) for k, v in enumerate(outputs))
    stores: list[Store] = []
    for buffer, (value, place) in zip(buffers, outputs.items(), strict=True):
        position = tuple(e.index(0 if k is None else walk.at[k]) for k in place)
        element = e.cast(group.element(value, position), value.dtype)
        stores += complex_numbers.stores(buffer, position, element)
    inputs = tuple(map(complex_numbers.to_kernel_buffer, group.inputs.values()))
    written = tuple(map(complex_numbers.to_kernel_buffer, buffers))
    kernel = Kernel(name, inputs, written, walk.axes, tuple(stores))
    return move_whole_numbers(kernel), tuple(group.inputs)


def reshape_position(index: Position, shape: Shape, target: Shape) -> Position:
    """The position in ``target`` of the element at ``index`` of ``shape`` (row-major).

    Runs of dimensions with equal products are matched first, so that division is left only where
    a dimension is really split or joined otherwise.
    """
    if any(dim == 0 for dim in target):  # nothing is there to be read
        return (e.index(0),) * len(target)
    result: list[Expr] = []
    for from_, to in matching_runs(shape, target):
        linear: Expr = e.index(0)
        for k in from_:
            linear = linear * shape[k] + index[k]
        places = {k: e.index(0) for k in to}
        first, *others = [k for k in to if target[k] != 1] or to[:1] or (None,)
        for k in reversed(others):
            places[k] = linear % target[k]
            linear = linear // target[k]
        if first is not None:
            places[first] = linear
        result += places.values()
    return tuple(result)


def _checking(position: Position, value: Expr) -> Expr:
    """A value that is the same everywhere, with the checks of the position that it is read at."""
    for place in position:
        applied = (expr for expr in e.walk((place,)) if isinstance(expr, Apply))
        if any(expr.function == "checked" for expr in applied):
            is_inside = e.apply("greater_equal", place, e.index(0), dtype=bool_)
            value = e.apply("where", is_inside, value, value, dtype=value.dtype)
    return value


def _splat(value: Value) -> bool | int | float | None:
    """The number that every element of a constant is."""
    node = value.producer
    if node is None or not isinstance(node.op, Constant | Full):
        return None
    if isinstance(node.op, Full):
        number = node.op.element().item()
    else:
        splat = node.op.data.splat
        number = None if splat is None else splat.item()
    return number if isinstance(number, bool | int | float) else None


def _as_signed(position: Expr) -> Expr:
    """An unsigned index as an i64; one beyond what that holds is beyond any axis."""
    if position.dtype.bits == 64:
        largest = e.literal(2**63 - 1, position.dtype)
        position = e.apply("minimum", position, largest)
    return e.cast(position, i64)


def _depth(position: Position) -> int:
    """How many reductions the position that is being computed lies inside of."""
    depths = [
        int(symbol.name[2:].split("_")[0]) + 1
        for each in position
        for symbol in each.symbols
        if symbol.name.startswith("_r")
    ]
    return max(depths, default=0)


def _compare(function: str, position: Expr, bound: Dim) -> Expr:
    """A comparison of positions, settled now where the bounds of the loops settle it."""
    if isinstance(position, Index):
        difference = position.dim - bound
        low, high = (
            difference.bounds() if isinstance(difference, SymbolicDim) else (difference,) * 2
        )
        if function == "less":
            low, high = (None if high is None else -high), (None if low is None else -low)
            low, high = (None if low is None else low - 1), (None if high is None else high - 1)
        if low is not None and low >= 0:
            return e.literal(True, bool_)
        if high is not None and high < 0:
            return e.literal(False, bool_)
    return e.apply(function, position, e.index(bound), dtype=bool_)


def _both(left: Expr, right: Expr) -> Expr:
    if isinstance(left, e.Literal):
        return right if left.value else left
    if isinstance(right, e.Literal):
        return left if right.value else right
    return e.apply("logical_and", left, right, dtype=bool_)
