"""From a node to loop nests: its op says which loops fill its results.

A lowering is a list of stages. A fill is a formula, so it becomes a kernel, which is scheduled as
any other; a parallel loop with statements in it is a loop nest as it stands. What is written in a
nest and read there again is read where the op reads it (a ``Let``), so a scalar keeps the value
that it had.

    cumsum of f32[3, 100] along axis 1:

    nest cumsum(b0: f32[300], o0: f32[300]):
      parallel i1 < 3 in steps of 108:
        c2: f64 = -0.0:f64
        for i3 < 100:
          v4 = c2
          c2 := (v4 + cast<f64>(b0[100*i1+i3]))
          o0[100*i1+i3] = cast<f32>((v4 + cast<f64>(b0[100*i1+i3])))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Shape, Symbol, dim_min, shape_product
from monograph.ir.graph import Node, Value
from monograph.ir.types import DType, TensorType, wide
from monograph.kernel import complex_numbers
from monograph.kernel import expr as e
from monograph.kernel.complex_numbers import to_kernel_buffer
from monograph.kernel.expr import Buffer, Expr, Index, Literal, Variable
from monograph.kernel.flatten import flat_buffer, flat_expr, offset
from monograph.kernel.kernel import Kernel
from monograph.kernel.layout import MemoryLayout
from monograph.kernel.lower import GroupLowering, NodeLowering, Position, is_native
from monograph.targets.cpu.nests.loop_nest import (
    Assign,
    Declare,
    If,
    Let,
    Loop,
    LoopKind,
    LoopNest,
    Statement,
    While,
    Write,
)
from monograph.targets.cpu.nests.walk import (
    inner_statements,
    loads_in,
    sizes_in,
    statements_in,
    writes_in,
)

MIN_LANES = 4
"""Neighbours from which a vector is worth its remainder."""
TYPICAL_LOOP_EXTENT = 64
"""A size to plan with where nothing is known."""


def has_loops(node: Node) -> bool:
    """Whether the node's op says which loops fill its results, of types that kernels hold."""
    if node.regions or not node.op.has_loops():
        return False
    values = (*node.operands, *node.results)
    if not all(isinstance(v.type, TensorType) and is_native(v.dtype) for v in values):
        return False
    return node.op.complex_loops or not any(v.dtype.is_complex for v in values)


@dataclass(frozen=True)
class LoweredLoops:
    """The stages of a node, in order, and what their buffers are, by name."""

    stages: tuple[Kernel | LoopNest, ...]
    operands: Mapping[str, Value]
    results: Mapping[str, Value]
    temporaries: Mapping[str, Buffer]


def lower_node(
    node: Node,
    layouts: Mapping[Value, MemoryLayout] | None = None,
    vector_bytes: int = 32,
    task_instructions: int = 1 << 15,
) -> LoweredLoops:
    """The loops of a node whose op has them, for vectors and tasks of these sizes."""
    builder = LoopLowering(node, layouts or {}, vector_bytes, task_instructions)
    node.op.lower_loops(builder)
    operands = {buffer.name: value for value, buffer in builder.group.inputs.items()}
    results = {f"o{k}": value for k, value in enumerate(node.results)}
    return LoweredLoops(tuple(builder.stages), operands, results, builder.temporaries)


class LoopCell:
    """A declared variable (``ir.lower.Cell``)."""

    def __init__(self, builder: LoopLowering, variable: Variable) -> None:
        self.builder = builder
        self.variable = variable

    def get(self) -> Expr:
        return self.builder.let(self.variable)

    def set(self, value: Expr) -> None:
        held = self.builder.flat(e.cast(value, self.variable.dtype))
        self.builder.statements.append(Assign(self.variable, held))


class ComplexCell:
    """A declared complex number: a variable a part."""

    def __init__(self, real: LoopCell, imaginary: LoopCell) -> None:
        self.cells = (real, imaginary)

    def get(self) -> Expr:
        return complex_numbers.join(*(cell.get() for cell in self.cells))

    def set(self, value: Expr) -> None:
        held = [self.cells[0].builder.keep(part) for part in complex_numbers.parts(value)]
        for cell, part in zip(self.cells, held, strict=True):
            cell.set(part)


class LoopLowering(NodeLowering):
    """The builder that one node's op states its loops with (``ir.lower.LoopBuilder``)."""

    def __init__(
        self,
        node: Node,
        layouts: Mapping[Value, MemoryLayout],
        vector_bytes: int,
        task_instructions: int,
    ) -> None:
        super().__init__(GroupLowering((), layouts), node, ())
        self.vector_bytes = vector_bytes
        self.task_instructions = task_instructions
        self.stages: list[Kernel | LoopNest] = []
        self.temporaries: dict[str, Buffer] = {}
        self.locals: dict[str, Buffer] = {}
        self.statements: list[Statement] = []
        self.in_nest = False
        self.complaint = ""
        self.names = 0
        self.done: dict[Expr, Expr] = {}

    # Memory ---------------------------------------------------------------------------------------

    def result(self, number: int = 0) -> Buffer:
        value = self.node.results[number]
        return Buffer(f"o{number}", value.dtype, value.shape)

    def is_read(self, number: int) -> bool:
        return bool(self.node.results[number].uses)

    def temporary(self, dtype: DType, shape: Shape) -> Buffer:
        buffer = Buffer(f"m{len(self.temporaries)}", dtype, shape)
        self.temporaries[buffer.name] = buffer
        return buffer

    def local(self, dtype: DType, size: int) -> Buffer:
        assert self.in_nest, "each iteration of a parallel loop has its own"
        buffer = Buffer(self.new_name("l"), dtype, (size,))
        self.locals[buffer.name] = flat_buffer(to_kernel_buffer(buffer))
        return buffer

    def viewed(self, memory: Buffer, shape: Shape) -> Buffer:
        view = memory.viewed(shape)
        assert view is not None, f"{memory.name} is strided: it has no other shape"
        return view

    def load(self, memory: Buffer, index: Sequence[Expr]) -> Expr:
        found = complex_numbers.load(memory, tuple(index))
        if memory.dtype.is_complex and self.in_nest:
            return complex_numbers.join(*map(self.keep, complex_numbers.parts(found)))
        if self.in_nest:
            found = self.keep(found)
        return e.cast(found, wide(memory.dtype))

    def store(self, memory: Buffer, index: Sequence[Expr], value: Expr) -> None:
        stored = self.cast(value, memory.dtype)
        if memory.dtype.is_complex:  # a part may be computed from what the other one replaces
            stored = complex_numbers.join(*map(self.keep, complex_numbers.parts(stored)))
        for store in complex_numbers.stores(memory, tuple(index), stored):
            place = self.flat(offset(store.buffer, store.position))
            self.statements.append(Write(flat_buffer(store.buffer), place, self.flat(store.value)))

    def flat(self, value: Expr) -> Expr:
        """The expression with flat buffers, as nests have them."""
        return flat_expr(value, self.done)

    # Variables ------------------------------------------------------------------------------------

    def new_name(self, letter: str) -> str:
        """A name that nothing else in the node has."""
        self.names += 1
        return f"{letter}{self.names}"

    def keep(self, value: Expr) -> Expr:
        """What an expression of any buffers is now; a number stays one."""
        return value if isinstance(value, Literal) else self.let(self.flat(value))

    def let(self, value: Expr) -> Variable:
        """What an expression's value is now."""
        variable = e.variable(self.new_name("v"), value.dtype)
        self.statements.append(Let(variable, value))
        return variable

    def variable(self, initial: Expr) -> LoopCell | ComplexCell:
        if not initial.dtype.is_complex:
            return self._variable(initial)
        real, imaginary = complex_numbers.parts(initial)
        return ComplexCell(self._variable(real), self._variable(imaginary))

    def _variable(self, initial: Expr) -> LoopCell:
        variable = e.variable(self.new_name("c"), initial.dtype)
        self.statements.append(Declare(variable, self.flat(initial)))
        return LoopCell(self, variable)

    # Stages ---------------------------------------------------------------------------------------

    def fill(self, target: Buffer, body: Callable[[Position], Expr]) -> None:
        assert not self.in_nest, "a fill is a stage of its own"
        axes = tuple(e.axis(f"_i{k}", dim) for k, dim in enumerate(target.shape))
        position = tuple(e.index(axis.symbol) for axis in axes)
        value = self.cast(body(position), target.dtype)
        read = dict.fromkeys(load.buffer.name for load in e.find_loads(value))
        own = {buffer.name: buffer for buffer in self.group.inputs.values()}
        inputs = tuple(to_kernel_buffer(own.get(name) or self.memory(name)) for name in read)
        stores = tuple(complex_numbers.stores(target, position, value))
        self.stages.append(
            Kernel(self.node.op.name, inputs, (to_kernel_buffer(target),), axes, stores)
        )

    def memory(self, name: str) -> Buffer:
        """A result or a temporary, by name."""
        return self.result(int(name[1:])) if name[0] == "o" else self.temporaries[name]

    @contextmanager
    def parallel(self, extents: Shape, *, lanes: bool = False) -> Iterator[Position]:
        assert not self.in_nest, "parallel loops do not nest"
        self.in_nest, self.statements, self.complaint, self.locals = True, [], "", {}
        if lanes and isinstance(extents[-1], int) and extents[-1] < MIN_LANES:
            lanes = False
        width = self._width(extents[-1], 8) if lanes else 1
        outer = (*extents[:-1], -(-extents[-1] // width)) if lanes else extents
        whole = e.axis(self.new_name("_i"), shape_product(outer))
        positions = _unravel(whole.symbol, outer)
        if not lanes:
            yield positions
            body = tuple(self.statements)
        else:
            inner = e.axis(self.new_name("_i"), extents[-1])
            yield (*positions[:-1], e.index(inner.symbol))
            body = (_vector_tile(inner, positions[-1], width, tuple(self.statements)),)
        self.in_nest = False
        self.stages.append(self._nest(whole.symbol, whole.extent, body))

    def _width(self, extent: Dim, registers: int) -> int:
        """Lanes: a few registers' worth of the widest elements that are computed."""
        dtypes = [result.dtype for result in self.results]
        dtypes += [buffer.dtype for buffer in self.temporaries.values()]
        bits = max(32, *(_part_bits(dtype) for dtype in dtypes))
        lanes = self.vector_bytes * 8 // bits
        width = lanes * registers
        while width > lanes and isinstance(extent, int) and width > extent:
            width //= 2
        return width

    def _nest(self, parallel: Symbol, extent: Dim, body: tuple[Statement, ...]) -> LoopNest:
        written = {write.buffer.name: write.buffer for write in writes_in(body)}
        read = {x.buffer.name: x.buffer for x in loads_in(body) if x.buffer.name not in written}
        inputs = tuple(read.values())
        outputs = tuple(b for name, b in written.items() if name not in self.locals)
        bound = {each.symbol for each in statements_in(body) if isinstance(each, Loop)}
        sizes = sizes_in(body, extent, (*inputs, *outputs)) - bound - {parallel}
        return LoopNest(
            name=self.node.op.name.replace(".", "_"),
            inputs=inputs,
            outputs=outputs,
            scratch=tuple(self.locals.values()),
            sizes=tuple(sorted(sizes, key=lambda symbol: symbol.name)),
            parallel=parallel,
            extent=extent,
            grain=max(1, self.task_instructions // max(_steps(body), 1)),
            body=body,
            complaint=self.complaint,
            volatile=frozenset(written),
        )

    # Statements -----------------------------------------------------------------------------------

    @contextmanager
    def _block(self) -> Iterator[list[Statement]]:
        """Statements inside another one."""
        outer, self.statements = self.statements, []
        inner = self.statements
        yield inner
        self.statements = outer

    @contextmanager
    def loop(
        self, extent: Dim | Expr, *, lanes: bool = False, registers: int = 2
    ) -> Iterator[Expr]:
        if isinstance(extent, Expr) and not isinstance(extent, Index):
            with self._open_counted_loop(extent) as position:
                yield position
            return
        if isinstance(extent, Index):
            extent = extent.dim
        axis = e.axis(self.new_name("_i"), extent)
        with self._block() as body:
            yield e.index(axis.symbol)
        inner = tuple(body)
        kind, width = LoopKind.SERIAL, 1
        if lanes and not (isinstance(extent, int) and extent < MIN_LANES):
            kind, width = LoopKind.VECTOR, self._width(extent, registers)
        self.statements.append(Loop(axis.symbol, 0, extent, inner, kind, width))

    @contextmanager
    def _open_counted_loop(self, extent: Expr) -> Iterator[Expr]:
        """A loop whose extent only the data say."""
        counter = self.variable(e.index(0))
        with self.while_(lambda: self.apply("less", counter.get(), extent)):
            position = counter.get()
            yield position
            counter.set(position + 1)

    def piece(self, number: Expr, size: int, whole: Dim) -> tuple[Expr, Expr]:
        assert isinstance(number, Index)
        start = number.dim * size
        return e.index(start), e.index(dim_min(size, whole - start))

    @contextmanager
    def when(self, condition: Expr) -> Iterator[None]:
        with self._block() as body:
            yield
        if isinstance(condition, Literal):
            self.statements += body if condition.value else ()
            return
        self.statements.append(If(self.flat(condition), tuple(body)))

    def require(self, condition: Expr, complaint: str) -> None:
        if isinstance(condition, Literal) and condition.value:
            return
        self.complaint = complaint
        position = e.select(condition, e.index(0), e.index(1))
        self.let(self.flat(e.apply("checked", position, e.index(1))))

    @contextmanager
    def while_(self, condition: Callable[[], Expr]) -> Iterator[None]:
        with self._block() as test:
            holds = self.flat(condition())
        with self._block() as body:
            yield
        self.statements.append(While(tuple(test), holds, tuple(body)))


def _part_bits(dtype: DType) -> int:
    """Bits of what a lane computes with."""
    return complex_numbers.part_dtype(dtype).bits if dtype.is_complex else wide(dtype).bits


Statements: TypeAlias = tuple[Statement, ...]


def _vector_tile(axis: e.Axis, tile: Expr, width: int, body: Statements) -> Loop:
    """One vector of an axis: the ``tile``-th."""
    assert isinstance(tile, Index)
    start = tile.dim * width
    even = isinstance(axis.extent, int) and axis.extent % width == 0
    extent = width if even else dim_min(width, axis.extent - start)
    return Loop(axis.symbol, start, extent, body, LoopKind.VECTOR, width)


def _unravel(whole: Symbol, extents: Shape) -> Position:
    """The position along each axis of the ``whole``-th element (row-major), if there is one."""
    rest: Dim = whole
    found: list[Expr] = []
    longer = [k for k, extent in enumerate(extents) if extent not in (0, 1)]
    for k in reversed(range(len(extents))):
        if k not in longer:
            found.append(e.index(0))
        elif k == longer[0]:
            found.append(e.index(rest))
        else:
            found.append(e.index(rest % extents[k]))
            rest = rest // extents[k]
    return tuple(reversed(found))


def _steps(body: Statements) -> int:
    """About how many instructions the statements take."""
    total = 0
    for statement in body:
        inner = _steps(inner_statements(statement))
        times = 1
        if isinstance(statement, Loop):
            times = max(1, _mean_extent(statement.extent) // statement.width)
        elif isinstance(statement, While):
            times = TYPICAL_LOOP_EXTENT
        total += 1 + inner * times
    return total


def _mean_extent(dim: Dim) -> int:
    """How far a loop runs; one up to another loop's variable runs half as far on average."""
    if isinstance(dim, int):
        return dim
    lower, upper = dim.bounds()
    if upper is None:
        return max(lower or 0, TYPICAL_LOOP_EXTENT)
    return max(1, ((lower or 0) + upper) // 2)
