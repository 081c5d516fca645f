"""Contractions: which kernels are matrix products, and the axes and formulas of their operands.

    out[m, n] = epilogue(sum(k: left[m, k] * right[n, k]))

What an operand is does not matter: its formula may be a transpose, a cast or a gather (the
prologue), which a target computes once an element when it packs the operand. In which dtypes its
elements are stored and multiplied, an ``Operand`` says; ``summed`` is what they are added up in.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Symbol, shape_product
from monograph.ir.types import DType
from monograph.kernel import expr as e
from monograph.kernel.expr import Apply, Axis, Buffer, Expr, Index, Load, Reduce
from monograph.kernel.flatten import coefficient
from monograph.kernel.kernel import Kernel, Store
from monograph.kernel.operand import Operand, operand

MIN_MULTIPLICATIONS = 1 << 14
"""Multiplications from which tiles pay."""


@dataclass(frozen=True)
class Contraction:
    """A kernel that is a matrix product: the axes of each side, and the operands' formulas."""

    kernel: Kernel
    reduction: Reduce
    batch: tuple[Axis, ...]
    outer: tuple[Axis, ...]
    """Axes of the right operand that are stored too far apart to be columns: the batch of a
    convolution, say."""
    m: tuple[Axis, ...]
    n: tuple[Axis, ...]
    left: Expr
    right: Expr

    @property
    def k(self) -> tuple[Axis, ...]:
        """The axes that are summed over."""
        return self.reduction.axes

    @property
    def summed(self) -> DType:
        """The dtype that products are added up in."""
        return self.reduction.dtype

    def operands(self, small: Collection[str] = ()) -> tuple[Operand, Operand]:
        """Left and right with their dtypes; ``small`` are buffers that hold small integers."""
        return operand(self.left, self.k, small), operand(self.right, self.k, small)

    @property
    def weights(self) -> Operand:
        """The right operand with its dtypes."""
        return operand(self.right, self.k)

    def summing(
        self,
        axes: tuple[Axis, ...],
        body: Expr,
        more: tuple[Buffer, ...] = (),
        lack: Expr | None = None,
    ) -> Contraction:
        """The same results as the sum of another product, which may read ``more`` buffers.

        What the sum has too much is a ``lack`` that is taken from it.
        """
        reduction = e.reduce("sum", axes, body)
        assert isinstance(reduction, Reduce)
        total = reduction if lack is None else e.apply("subtract", reduction, lack)
        known: dict[Expr, Expr] = {self.reduction: total}
        stores = tuple(
            Store(s.buffer, s.position, e.replace(s.value, known), s.guard)
            for s in self.kernel.stores
        )
        kernel = replace(self.kernel, inputs=(*self.kernel.inputs, *more), stores=stores)
        left, right = body.operands
        return replace(self, kernel=kernel, reduction=reduction, left=left, right=right)

    def size(self, axes: Sequence[Axis]) -> Dim:
        """How many positions axes have together."""
        return shape_product(axis.extent for axis in axes)


def as_contraction(kernel: Kernel) -> Contraction | None:
    """The kernel as a contraction, if it is one; the side that is stored contiguously is ``n``."""
    reductions = [x for x in kernel.expressions() if isinstance(x, Reduce)]
    if len(reductions) != 1 or reductions[0].kind != "sum":
        return None
    (reduction,) = reductions
    body = reduction.body
    if not isinstance(body, Apply) or body.function != "multiply":
        return None
    left, right = body.operands
    axes = {axis.symbol: axis for axis in kernel.axes}
    on_left = frozenset(axes) & left.symbols
    on_right = frozenset(axes) & right.symbols
    if on_left | on_right != frozenset(axes) or not _all_stored(kernel, frozenset(axes)):
        return None
    contiguous = contiguous_axis(kernel)
    if contiguous in on_left and contiguous not in on_right:
        left, right, on_left, on_right = right, left, on_right, on_left

    def pick(symbols: frozenset[Symbol]) -> tuple[Axis, ...]:
        return tuple(axis for axis in kernel.axes if axis.symbol in symbols)

    both = on_left & on_right
    summed = {axis.symbol for axis in reduction.axes}
    if not (summed <= left.symbols and summed <= right.symbols):
        return None
    outer, columns = _columns(kernel, pick(on_right - both))
    return Contraction(
        kernel, reduction, pick(both), outer, pick(on_left - both), columns, left, right
    )


def _columns(kernel: Kernel, axes: tuple[Axis, ...]) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """The last axes that are stored as one, and those before them."""
    place = kernel.stores[0].position[0]
    if not isinstance(place, Index) or not axes:
        return (), axes
    first = len(axes) - 1
    while first > 0:
        outer, inner = axes[first - 1], axes[first]
        step, small = coefficient(place.dim, outer.symbol), coefficient(place.dim, inner.symbol)
        if step is None or small is None or step != small * inner.extent:
            break
        first -= 1
    return axes[:first], axes[first:]


def _all_stored(kernel: Kernel, axes: frozenset[Symbol]) -> bool:
    """Whether every store has an element for each position."""
    return all(axes <= store.position[0].symbols for store in kernel.stores)


def contiguous_axis(kernel: Kernel) -> Symbol | None:
    """The axis along which the first store is contiguous, or goes in the shortest steps."""
    place = kernel.stores[0].position[0]
    if not isinstance(place, Index):
        return None
    steps = [(coefficient(place.dim, axis.symbol), axis.symbol) for axis in reversed(kernel.axes)]
    known = [(step, symbol) for step, symbol in steps if isinstance(step, int) and step > 0]
    return min(known, key=lambda each: each[0])[1] if known else None


def k_steps(formula: Expr, contraction: Contraction) -> tuple[Dim, ...] | None:
    """How far each axis of k moves through an array; None if the formula is not one's element."""
    if not isinstance(formula, Load) or formula.dtype is not contraction.reduction.dtype:
        return None
    return _steps_through(formula, contraction)


def _steps_through(load: Load, contraction: Contraction) -> tuple[Dim, ...] | None:
    """How far each axis of k moves through the array that is read."""
    (place,) = load.operands
    if not isinstance(place, Index):
        return None
    steps = []
    for axis in contraction.k:
        step = coefficient(place.dim, axis.symbol)
        if step is None:
            return None
        steps.append(step)
    return tuple(steps)


def runs_along_k(contraction: Contraction) -> bool:
    """Whether the left operand is made of arrays that k, one axis, walks through one by one."""
    if len(contraction.k) != 1:
        return False
    (along,) = contraction.k
    return _runs_along(contraction.left, along)


def runs_across_k(contraction: Contraction) -> bool:
    """Whether the left operand's rows, one axis, lie side by side at each step of k."""
    if len(contraction.k) != 1 or len(contraction.m) != 1:
        return False
    (row,) = contraction.m
    return not runs_along_k(contraction) and _runs_along(contraction.left, row)


def _runs_along(formula: Expr, axis: Axis) -> bool:
    """Whether what is read along an axis, if that matters, lies one by one in memory."""
    places = [load.operands[0] for load in e.find_loads(formula)]
    known = [coefficient(x.dim, axis.symbol) for x in places if isinstance(x, Index)]
    return len(known) == len(places) and 1 in known and all(step in (0, 1) for step in known)


def with_k_ordered(contraction: Contraction, guide: Expr, merge: bool) -> Contraction:
    """The contraction with the axes of k in the order in which an operand holds them.

    The ``guide`` is an operand, or the bytes that it is made of. With ``merge``, axes that it holds
    without a gap become one: the other operand is packed beforehand, and divides as it needs.
    """
    if isinstance(guide, Load) and guide.dtype.is_integer:
        steps = _steps_through(guide, contraction)
    else:
        steps = k_steps(guide, contraction)
    if steps is None:
        return contraction
    known_steps = [step for step in steps if isinstance(step, int)]
    if len(known_steps) != len(steps):
        return contraction
    order = sorted(zip(contraction.k, known_steps, strict=True), key=lambda x: x[1], reverse=True)
    axes: list[tuple[Axis, int]] = []
    left, right = contraction.left, contraction.right
    for axis, step in order:
        if merge and axes and axes[-1][1] == step * axis.extent:
            outer = axes.pop()[0]
            joined = e.axis(axis.symbol.name, outer.extent * axis.extent)
            left, right = (decode_position(x, (outer, axis), joined.symbol) for x in (left, right))
            axes.append((joined, step))
        else:
            axes.append((axis, step))
    ordered = tuple(axis for axis, _ in axes)
    return contraction.summing(ordered, contraction.reduction.body.rebuilt((left, right)))


def with_scale_groups(contraction: Contraction) -> Contraction:
    """The contraction with k as groups of steps that share a scale; itself, if none do."""
    if len(contraction.k) != 1:
        return contraction
    (axis,), size = contraction.k, contraction.weights.group
    if size is None or not isinstance(axis.extent, int) or axis.extent % size:
        return contraction
    outer = e.axis(f"{axis.symbol.name}o", axis.extent // size)
    inner = e.axis(f"{axis.symbol.name}i", size)
    bindings: dict[Symbol, Dim] = {axis.symbol: outer.symbol * size + inner.symbol}
    sides = tuple(e.substitute(x, bindings) for x in (contraction.left, contraction.right))
    grouped = contraction.summing((outer, inner), contraction.reduction.body.rebuilt(sides))
    is_narrower = grouped.weights.stored is not contraction.weights.stored
    return grouped if is_narrower else contraction


def ceiling(size: Dim, width: Dim) -> Dim:
    """How many groups of ``width`` hold ``size``."""
    return (size + width - 1) // width


def flat_position(axes: Sequence[Axis]) -> Dim:
    """The position among all that the axes visit."""
    place: Dim = 0
    for axis in axes:
        place = place * axis.extent + axis.symbol
    return place


def decode_position(expr: Expr, axes: tuple[Axis, ...], place: Dim) -> Expr:
    """A formula whose axes are all given by one flat position.

    Where a subscript walks through several axes in one stride, the flat position is used as it
    is; division is left for those that do not.
    """
    if not axes:
        return expr
    if len(axes) == 1:
        return e.substitute(expr, {axes[0].symbol: place})
    done: dict[Expr, Expr] = {}

    def visit(part: Expr) -> Expr:
        found = done.get(part)
        if found is None:
            if isinstance(part, Index):
                found = e.index(_decode_dim(part.dim, axes, place))
            else:
                operands = tuple(visit(operand) for operand in part.operands)
                found = part if operands == part.operands else part.rebuilt(operands)
            done[part] = found
        return found

    return visit(expr)


def _decode_dim(dim: Dim, axes: tuple[Axis, ...], place: Dim) -> Dim:
    """Index arithmetic over axes as arithmetic over their flat position."""
    if isinstance(dim, int) or not any(axis.symbol in dim.symbols() for axis in axes):
        return dim
    groups: list[tuple[Symbol, Dim]] = []
    for axis in axes:
        step = coefficient(dim, axis.symbol)
        if groups and step is not None:
            outer = coefficient(dim, groups[-1][0])
            if outer is not None and outer == step * axis.extent:
                dim = dim.substitute({groups[-1][0]: 0}) if not isinstance(dim, int) else dim
                groups[-1] = (axis.symbol, groups[-1][1] * axis.extent)
                continue
        groups.append((axis.symbol, axis.extent))
    bindings: dict[Symbol, Dim] = {}
    rest = place
    for number, (symbol, extent) in reversed(list(enumerate(groups))):
        bindings[symbol] = rest if number == 0 else rest % extent
        rest = rest if number == 0 else rest // extent
    return dim if isinstance(dim, int) else dim.substitute(bindings)
