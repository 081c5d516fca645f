"""Loads and stores of a loop nest: what a vector reads from memory, and how it is written.

How far apart the elements of neighbouring lanes are decides: the same element is read once, the
next ones are one vector, a square is turned in registers; anything else is gathered and scattered.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from itertools import groupby

from monograph.ir.types import DType, bool_
from monograph.kernel.expr import Apply, Buffer, Expr, Index, Load, Variable, walk
from monograph.kernel.flatten import coefficient
from monograph.targets.cpu.costs import CACHE_LINE_BYTES
from monograph.targets.cpu.llvm.assembly import (
    INDEX,
    Lanes,
    constant_vector,
    memory_type,
    transpose_square,
    type_suffix,
    vector_type,
)
from monograph.targets.cpu.llvm.joined_writes import PAIR_ELEMENTS, Join
from monograph.targets.cpu.llvm.positions import PositionEmitter, Term, is_multiple, runs_of
from monograph.targets.cpu.nests.loop_nest import Prefetch, Write


class MemoryEmitter(PositionEmitter):
    """Emits the loads and stores of one loop nest."""

    declarations: set[str]
    pointers: dict[str, str]
    body_loads: list[Load]
    """Loads of the vector loop that is being emitted."""
    joins: dict[int, Join]
    """Writes of the vector loop that is being emitted that are stored together."""
    aligned: set[Expr]
    """Positions at which the vector loop that is being emitted begins with a cache line."""
    streams: bool
    """Whether anything is written past the cache."""

    @abstractmethod
    def value(self, expr: Expr) -> Lanes:
        """An expression's value."""

    @abstractmethod
    def _variable(self, variable: Variable) -> Lanes:
        """What a variable holds here."""

    # Loads ----------------------------------------------------------------------------------------

    def _load(self, load: Load) -> Lanes:
        b = self.here
        memory = memory_type(load.dtype)
        (offset,) = load.operands
        step = self._step(offset)
        alignment = load.dtype.numpy.itemsize
        if step == 0 or self._is_single():
            address = self._place(load.buffer, offset)
            address = address or self._address(load.buffer, self.value(offset))
            raw = b.assign(memory, 1, f"load {memory}, ptr {address.text}, align {alignment}")
        elif step == 1:
            address = self._place(load.buffer, offset)
            address = address or self._address(load.buffer, self._first(offset))
            raw = self._contiguous_load(load, address, memory, alignment)
        elif step == -1 and self.vector is not None and self.vector.mask is None:
            raw = self._backward_load(load, memory, alignment)
        else:
            square = self._square(load, step)
            if square is not None:
                return square
            paired = self._load_pairs(load, step, memory, alignment)
            if paired is not None:
                return paired
            every_few = self._every_few(load, step, memory, alignment)
            raw = every_few or self._gather(load, memory, alignment)
        return self._to_register(raw, load.dtype)

    def _is_single(self) -> bool:
        """Whether a vector has one lane: what is left over of a longer one."""
        vector = self.vector
        return vector is not None and vector.width == 1 and vector.mask is None

    def _backward_load(self, load: Load, memory: str, alignment: int) -> Lanes:
        """A load whose lanes lie the other way round."""
        assert self.vector is not None
        b, width = self.here, self.vector.width
        last = b.binary("sub", self._first(load.operands[0]), Lanes(str(width - 1), INDEX))
        address = self._address(load.buffer, last)
        raw = self._contiguous_load(load, address, memory, alignment)
        if width == 1:
            return raw
        order = ", ".join(f"i32 {k}" for k in reversed(range(width)))
        return b.assign(
            memory, width, f"shufflevector {raw}, {raw.type} poison, <{width} x i32> <{order}>"
        )

    def _load_pairs(
        self, load: Load, step: int | None, memory: str, alignment: int
    ) -> Lanes | None:
        """A load of every second element, where the others are loaded too: both out of two loads.

        What belongs to the other is kept for it.
        """
        vector = self.vector
        if (
            step != PAIR_ELEMENTS
            or vector is None
            or vector.mask is not None
            or vector.width < PAIR_ELEMENTS
        ):
            return None
        loads = self._neighbours(load, PAIR_ELEMENTS)
        if loads is None:
            return None
        b, width = self.here, vector.width
        first = self._first(loads[0].operands[0])
        parts = []
        for start in (0, width):
            offset = b.binary("add", first, Lanes(str(start), INDEX))
            place = f"ptr {self._address(load.buffer, offset).text}, align {alignment}"
            parts.append(b.assign(memory, width, f"load {vector_type(memory, width)}, {place}"))
        for k, each in enumerate(loads):
            order = ", ".join(f"i32 {PAIR_ELEMENTS * lane + k}" for lane in range(width))
            text = f"shufflevector {parts[0]}, {parts[1]}, <{width} x i32> <{order}>"
            taken = b.assign(memory, width, text)
            self.scopes[-1].values[each] = self._to_register(taken, load.dtype)
        return self.scopes[-1].values[load]

    def _every_few(self, load: Load, step: int | None, memory: str, alignment: int) -> Lanes | None:
        """A load of every second to fourth element, out of loads that reach no further."""
        vector = self.vector
        if step not in (2, 3, 4) or vector is None or vector.mask is not None:
            return None
        b, width = self.here, vector.width
        if width < step:
            return None
        first = self._first(load.operands[0])
        starts = [part * width for part in range(step)]
        starts[-1] -= step - 1
        found: Lanes | None = None
        for part, start in enumerate(starts):
            offset = b.binary("add", first, Lanes(str(start), INDEX))
            place = f"ptr {self._address(load.buffer, offset).text}, align {alignment}"
            piece = b.assign(memory, width, f"load {vector_type(memory, width)}, {place}")
            if found is None:
                found, taken = piece, [step * lane for lane in range(width)]
                continue
            # Lanes that lie in an earlier part are there already, each in its place.
            last = [-(-starts[p] // step) for p in range(part + 1, step)]
            reach = last[0] if last else width
            order = [
                taken[lane] if lane < -(-start // step) else width + step * lane - start
                for lane in range(reach)
            ] + ["poison"] * (width - reach)
            text = ", ".join(f"i32 {each}" for each in order)
            joined = f"shufflevector {found}, {piece}, <{width} x i32> <{text}>"
            found, taken = b.assign(memory, width, joined), list(range(width))
        return found

    def _square(self, load: Load, step: int | None) -> Lanes | None:
        """A strided load whose neighbours are loaded too: read rows, and turn them in registers.

        Loads at ``p, p + 1, … p + n - 1``, each strided over the n lanes, are an n × n square. All
        of it is loaded with contiguous loads, and what belongs to the others is kept for them.
        """
        vector = self.vector
        if vector is None or vector.mask is not None or step is None:
            return None
        loads = self._neighbours(load, vector.width)
        if loads is None:
            return None
        b, memory = self.here, memory_type(load.dtype)
        first = self._first(loads[0].operands[0])
        rows = []
        for lane in range(vector.width):
            offset = b.binary("add", first, Lanes(str(lane * step), INDEX))
            address = self._address(load.buffer, offset)
            type_ = vector_type(memory, vector.width)
            place = f"ptr {address.text}, align {load.dtype.numpy.itemsize}"
            rows.append(b.assign(memory, vector.width, f"load {type_}, {place}"))
        for each, column in zip(loads, transpose_square(b, rows), strict=True):
            self.scopes[-1].values[each] = self._to_register(column, load.dtype)
        return self.scopes[-1].values[load]

    def _neighbours(self, load: Load, count: int) -> list[Load] | None:
        """The loads of the loop body that, with this one, read ``count`` elements in a row."""
        (offset,) = load.operands
        if not isinstance(offset, Index) or count & (count - 1):
            return None
        if load.buffer.name in self.nest.volatile:
            return None
        found: dict[int, Load] = {}
        for other in self.body_loads:
            place = other.operands[0]
            if other.buffer == load.buffer and isinstance(place, Index):
                difference = place.dim - offset.dim
                if isinstance(difference, int):
                    found[difference] = other
        if found.get(0) is not load:  # of another loop, inside or outside
            return None
        low = 0
        while low - 1 in found:
            low -= 1
        low += -low // count * count  # of a longer run, the square that it is in
        if any(low + k not in found for k in range(count)):
            return None
        return [found[low + k] for k in range(count)]

    def _contiguous_load(self, load: Load, address: Lanes, memory: str, alignment: int) -> Lanes:
        assert self.vector is not None
        b, width = self.here, self.vector.width
        vector = vector_type(memory, width)
        mask = self.vector.mask
        if mask is None or load.buffer.name in self.nest.padded:
            return b.assign(memory, width, f"load {vector}, ptr {address.text}, align {alignment}")
        return self._load_masked(
            "load",
            vector,
            f"ptr align {alignment} {address.text}",
            mask,
            f"{vector} zeroinitializer",
        )

    def _load_masked(self, what: str, vector: str, place: str, mask: Lanes, default: str) -> Lanes:
        """A load or gather of the lanes under a mask."""
        element = vector.split(" x ")[1][:-1]
        short = Lanes("", element, mask.lanes)
        pointer = "p0" if what == "load" else f"v{mask.lanes}p0"
        kind = "ptr" if what == "load" else f"<{mask.lanes} x ptr>"
        name = f"@llvm.masked.{what}.{type_suffix(short)}.{pointer}"
        self.declarations.add(f"declare {vector} {name}({kind}, {mask.type}, {vector})")
        return self.here.assign(
            element, mask.lanes, f"call {vector} {name}({place}, {mask}, {default})"
        )

    def _gather(self, load: Load, memory: str, alignment: int) -> Lanes:
        assert self.vector is not None
        b, width = self.here, self.vector.width
        offsets = b.splat(self.value(load.operands[0]), width)
        pointers = self._addresses(load.buffer, offsets)
        mask = self.vector.mask or constant_vector(Lanes("true", "i1"), width)
        vector = vector_type(memory, width)
        return self._load_masked(
            "gather",
            vector,
            f"<{width} x ptr> align {alignment} {pointers.text}",
            mask,
            f"{vector} zeroinitializer",
        )

    # Stores ---------------------------------------------------------------------------------------

    def _write(self, write: Write) -> None:
        b = self.here
        alignment = write.buffer.dtype.numpy.itemsize
        value = self._to_memory(self.value(write.value), write.buffer.dtype)
        step = self._step(write.offset)
        if self.vector is None or step == 0 or self._is_single():
            if value.lanes > 1:  # made of an accumulator, which has lanes that are all alike
                value = b.assign(value.element, 1, f"extractelement {value}, i64 0")
            address = self._place(write.buffer, write.offset)
            address = address or self._address(write.buffer, self.value(write.offset))
            b.line(f"store {value}, ptr {address.text}, align {alignment}")
            return
        value = b.splat(value, self.vector.width)
        mask = self.vector.mask
        join = self.joins.get(id(write))
        if join is not None and mask is None:
            if join.add(write, value):
                self._write_joined(join, alignment)
            return
        if step == 1:
            address = self._place(write.buffer, write.offset)
            address = address or self._address(write.buffer, self._first(write.offset))
            if mask is None:
                hint, aligned = self._streaming(write, alignment)
                b.line(f"store {value}, ptr {address.text}, align {aligned}{hint}")
                return
            self._store_masked("store", value, f"ptr align {alignment} {address.text}", "p0", mask)
            return
        whole = mask is None and not self.aligned  # else vectors may begin in the middle of a run
        run = runs_of(write.offset, self.vector) if whole else None
        if run is not None:
            self._write_runs(write, value, *run)
            return
        offsets = b.splat(self.value(write.offset), self.vector.width)
        pointers = self._addresses(write.buffer, offsets)
        everywhere = mask or constant_vector(Lanes("true", "i1"), self.vector.width)
        place = f"{pointers.type} align {alignment} {pointers.text}"
        self._store_masked("scatter", value, place, f"v{value.lanes}p0", everywhere)

    def _write_runs(self, write: Write, value: Lanes, length: int, distance: int) -> None:
        """A vector in runs of ``length`` neighbours, each ``distance`` after the one before."""
        b, alignment = self.here, write.buffer.dtype.numpy.itemsize
        first = self._first(write.offset)
        for run in range(value.lanes // length):
            order = ", ".join(f"i32 {run * length + k}" for k in range(length))
            part = b.assign(
                value.element,
                length,
                f"shufflevector {value}, {value.type} poison, <{length} x i32> <{order}>",
            )
            place = b.binary("add", first, Lanes(str(run * distance), INDEX))
            address = self._address(write.buffer, place)
            b.line(f"store {part}, ptr {address.text}, align {alignment}")

    def _write_joined(self, join: Join, alignment: int) -> None:
        """The vectors of writes that lie together."""
        b, first = self.here, join.writes[0]
        start = self._first(first.offset)
        for distance, row in join.rows(b):
            place = b.binary("add", start, Lanes(str(distance), INDEX))
            address = self._address(first.buffer, place)
            b.line(f"store {row}, ptr {address.text}, align {alignment}")

    def _prefetch(self, statement: Prefetch) -> None:
        """One request a cache line; nothing where neighbours are far apart."""
        if self.vector is None or self.vector.mask is not None:
            return
        step = self._step(statement.offset)
        if step not in (0, 1):
            return
        self.declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        first = self._first(statement.offset)
        nbytes = self.vector.width * step * statement.buffer.dtype.numpy.itemsize
        per_line = CACHE_LINE_BYTES // statement.buffer.dtype.numpy.itemsize
        near = 1 if statement.far else 3
        for line in range(max(1, nbytes // CACHE_LINE_BYTES)):
            offset = self.here.binary("add", first, Lanes(str(line * per_line), INDEX))
            place = f"ptr {self._address(statement.buffer, offset, inbounds='').text}"
            self.here.line(f"call void @llvm.prefetch.p0({place}, i32 0, i32 {near}, i32 1)")

    def _streaming(self, write: Write, alignment: int) -> tuple[str, int]:
        """A hint to write past the cache, where the address is known to be aligned."""
        if not write.streaming or self.vector is None or not isinstance(write.offset, Index):
            return "", alignment
        if not self.vector.is_aligned:
            return "", alignment
        itemsize = write.buffer.dtype.numpy.itemsize
        aligned = min(64, self.vector.width * itemsize)
        elements = aligned // itemsize
        is_aligned = write.offset in self.aligned
        if not is_aligned and not is_multiple(write.offset.dim, elements, self.vector.symbol):
            return "", alignment
        self.streams = True
        return ", !nontemporal !1", aligned

    def _store_masked(self, what: str, value: Lanes, place: str, pointer: str, mask: Lanes) -> None:
        name = f"@llvm.masked.{what}.{type_suffix(value)}.{pointer}"
        kind = "ptr" if what == "store" else f"<{value.lanes} x ptr>"
        self.declarations.add(f"declare void {name}({value.type}, {kind}, {mask.type})")
        self.here.line(f"call void {name}({value}, {place}, {mask})")

    # Addresses ------------------------------------------------------------------------------------

    def _place(self, buffer: Buffer, offset: Expr) -> Lanes | None:
        """The address of an element at a polynomial position: of the first lane, along the vector.

        A pointer moves by what outer loops change, before the loop, and then by the rest.
        """
        if not isinstance(offset, Index) or isinstance(offset.dim, int):
            return None
        place, kept = Lanes(self.pointers[buffer.name], "ptr"), self.scopes
        key: tuple[object, ...] = (buffer.name,)
        for level, terms in groupby(
            self.terms(offset.dim), lambda term: term[0] if term[1] else -1
        ):
            moved = list(terms)
            key += tuple(part for term in moved for part in term[1:])
            self.scopes = kept if level < 0 else kept[: level + 1]
            place = self.once(key, partial(self._move, buffer, place, moved))
        self.scopes = kept
        return place

    def _move(self, buffer: Buffer, place: Lanes, terms: Sequence[Term]) -> Lanes:
        """A pointer so many elements further; it may leave the buffer and come back later."""
        moved, memory = self.sum(terms), memory_type(buffer.dtype)
        return self.here.assign("ptr", 1, f"getelementptr {memory}, ptr {place.text}, {moved}")

    def _address(self, buffer: Buffer, offset: Lanes, inbounds: str = "inbounds ") -> Lanes:
        memory = memory_type(buffer.dtype)
        base = self.pointers[buffer.name]
        return self.here.assign("ptr", 1, f"getelementptr {inbounds}{memory}, ptr {base}, {offset}")

    def _addresses(self, buffer: Buffer, offsets: Lanes) -> Lanes:
        memory = memory_type(buffer.dtype)
        base = self.pointers[buffer.name]
        return self.here.assign(
            "ptr", offsets.lanes, f"getelementptr inbounds {memory}, ptr {base}, {offsets}"
        )

    def _to_register(self, raw: Lanes, dtype: DType) -> Lanes:
        if dtype is not bool_:
            return raw
        return self.here.compare("icmp ne", raw, constant_vector(Lanes("0", "i8"), raw.lanes))

    def _to_memory(self, value: Lanes, dtype: DType) -> Lanes:
        return self.here.convert("zext", value, "i8") if dtype is bool_ else value

    def _step(self, offset: Expr) -> int | None:
        """How far apart neighbouring lanes are; None if that is not one known number."""
        if self.vector is None or self.vector.symbol not in offset.symbols:
            return 0 if not self._varies(offset) else None
        if isinstance(offset, Index):
            step = coefficient(offset.dim, self.vector.symbol)
            return step if isinstance(step, int) else None
        if isinstance(offset, Apply) and offset.function == "add":
            steps = [self._step(operand) for operand in offset.operands]
            known = [step for step in steps if step is not None]
            return sum(known) if len(known) == len(steps) else None
        return None

    def _varies(self, offset: Expr) -> bool:
        """Whether a variable in the position differs from lane to lane."""
        return any(self._variable(x).lanes > 1 for x in walk((offset,)) if isinstance(x, Variable))

    def _first(self, offset: Expr) -> Lanes:
        """The first lane's position."""
        if isinstance(offset, Apply) and offset.function == "add":
            return self.here.binary("add", *(self._first(x) for x in offset.operands))
        if isinstance(offset, Index):
            return self.dim(offset.dim)
        return self.value(offset)
