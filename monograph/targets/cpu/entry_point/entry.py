"""The entry point: every step of a program in one native function.

    define i32 @entry(ptr %slots, ptr %status, i64 %threads)
    define i32 @prepare(ptr %slots, ptr %status, i64 %threads)      where weights are packed

``slots`` holds the address of every slot, then the value of every symbolic size, then the address
of a function to call back and that of the call's watch, which loops look at as they turn
(``interrupts``). The result is 0, or 1 + the number of the step that failed, or ``BROKEN_OFF``: its
time was up, or a signal came.

``prepare`` calls back with the number of a slot before it first uses it, and with the complement of
that number once it is done with it: the runtime need not hold all weights at one time. If that
fails, the result is -1.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from monograph.ir.dims import Dim, FloorDiv, Max, Min, Mod, Opaque, Operation, Symbol
from monograph.program.code import (
    BROKEN_OFF,
    PREPARE,
    Alternate,
    Branch,
    Copy,
    ForLoop,
    Interpret,
    Launch,
    LibraryCall,
    ParallelFor,
    Sections,
    SliceView,
    Slot,
    Step,
    WhileLoop,
    has_loops,
    list_slots,
    walk_steps,
)
from monograph.targets.cpu.entry_point.interrupts import BEGIN
from monograph.targets.cpu.entry_point.sections import PARALLEL_FOR, emit_sections, single_range
from monograph.targets.cpu.entry_point.table import TableFunction
from monograph.targets.cpu.llvm.assembly import Builder, Function, Lanes


class EntryEmitter(TableFunction):
    """Writes the entry point of a program."""

    def __init__(
        self, slots: Sequence[Slot], sizes: Sequence[Symbol], codes: Mapping[str, str]
    ) -> None:
        super().__init__(len(slots), sizes)
        self.slots = slots
        self.codes = codes
        """The functions that stand for kernels that have none of their own."""
        self.failures: list[Step] = []
        self.counters: dict[int, str] = {}
        self.together: set[str] = set()
        self.functions: list[str] = []
        """Functions that the entry points call, besides kernels."""

    def emit(self, steps: Sequence[Step], name: str = "entry") -> str:
        """The text of a function that runs these steps."""
        self.open(f"define i32 @{name}(ptr %slots, ptr %status, i64 %threads) #1", steps)
        if has_loops(steps):
            self.begin_watch()
            self.declarations.add(f"declare void @{BEGIN}(ptr)")
            self.b.line(f"call void @{BEGIN}(ptr %watch)")
        if name == PREPARE:
            self.prepare(steps)
        else:
            self.steps(steps)
        self.b.line("ret i32 0")
        return self.function.text()

    def open(self, header: str, steps: Sequence[Step]) -> None:
        """Begin a function that runs these steps."""
        self.function = Function(header)
        self.b = Builder(self.function, self.function.entry, self.declarations)
        launches = _launches(steps)
        widest = max([len(s.slots) + s.times * (len(s.sizes) + 2) for s in launches], default=1)
        self.b.line(f"%arguments = alloca [{widest} x i64], align 64")

    def prepare(self, steps: Sequence[Step]) -> None:
        """One step after the other, each with the slots that it asks for and gives back."""
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for number, step in enumerate(steps):
            for slot in list_slots(step):
                first.setdefault(slot, number)
                last[slot] = number
        for number, step in enumerate(steps):
            used = sorted(set(list_slots(step)))
            for slot in used:
                if first[slot] == number:
                    self.return_if(self.call_back(slot), -1)
            self.steps([step])
            for slot in used:
                if last[slot] == number:
                    self.return_if(self.call_back(~slot), -1)

    def steps(self, steps: Sequence[Step]) -> None:
        """One step after the other."""
        for step in steps:
            match step:
                case Launch():
                    self.launch(step)
                case Interpret() | LibraryCall():
                    self.interpret(step)
                case Copy(source, target, nbytes):
                    self.copy(source, target, nbytes)
                case SliceView():
                    self.element(step)
                case Alternate():
                    self.alternate(step)
                case Branch():
                    self.branch(step)
                case WhileLoop():
                    self.repeat(step)
                case ForLoop():
                    self.count(step)
                case ParallelFor():
                    self.spread(step)
                case Sections():
                    emit_sections(self, step)

    # Steps ----------------------------------------------------------------------------------------

    def launch(self, step: Launch) -> None:
        """Fill in the arguments and run the kernel, on all threads if it is large enough."""
        if step.times > 1:
            self.launch_together(step)
            return
        values = [self.slot(k) for k in step.slots]
        for k, offset in enumerate(step.offsets):
            if offset:
                values[k] = self.b.binary("add", values[k], Lanes(str(offset), "i64"))
        values += [self.word(self.sizes[symbol]) for symbol in step.sizes]
        for k, value in enumerate(values):
            self.store_argument(k, value)
        self.store_argument(len(values), "ptr %status")
        total = self.dim(step.extent)
        kernel = self.codes.get(step.kernel, step.kernel)
        alone = single_range(step)
        if alone is None:
            self.declarations.add(f"declare i32 @{PARALLEL_FOR}(ptr, ptr, i64, i64, i64)")
            self.b.assign(
                "i32",
                1,
                f"call i32 @{PARALLEL_FOR}(ptr @{kernel}, ptr %arguments, i64 {total.text}, "
                f"i64 {self.dim(step.grain).text}, i64 %threads)",
            )
        elif alone > 0:
            self.b.line(f"call void @{kernel}(ptr %arguments, i64 0, i64 {alone})")
        if step.checked:
            flag = self.b.assign("i32", 1, "load i32, ptr %status, align 4")
            self.fail_if(self.b.compare("icmp ne", flag, Lanes("0", "i32")), step)

    def launch_together(self, step: Launch) -> None:
        """Run a kernel several times in one region: each run has arguments of its own."""
        extent = self.dim(step.extent)
        words = len(step.slots) // step.times + len(step.sizes) + 2
        for number, slots in enumerate(step.runs):
            values: list[Lanes | str] = [self.slot(slot) for slot in slots]
            values += [self.word(self.sizes[symbol]) for symbol in step.sizes]
            for k, value in enumerate([*values, "ptr %status", extent]):
                self.store_argument(number * words + k, value)
        total = self.b.binary("mul", extent, Lanes(str(step.times), "i64"))
        kernel = self.codes.get(step.kernel, step.kernel)
        name = self.together_function(kernel, step.times, words)
        self.declarations.add(f"declare i32 @{PARALLEL_FOR}(ptr, ptr, i64, i64, i64)")
        self.b.assign(
            "i32",
            1,
            f"call i32 @{PARALLEL_FOR}(ptr @{name}, ptr %arguments, "
            f"i64 {total.text}, i64 {self.dim(step.grain).text}, i64 %threads)",
        )

    def together_function(self, kernel: str, times: int, words: int) -> str:
        """A function over the ranges of several runs of a kernel, one after the other.

        The last of a run's words is the extent of its range, the same for all.
        """
        name = f"{kernel}.{times}"
        if name in self.together:
            return name
        self.together.add(name)
        outer = self.function, self.b
        self.open(f"define internal void @{name}(ptr %all, i64 %begin, i64 %end) #1", ())
        place = self.b.assign("ptr", 1, f"getelementptr i64, ptr %all, i64 {words - 1}")
        extent = self.b.assign("i64", 1, f"load i64, ptr {place.text}, align 8")
        ends = [self.b.binary("mul", extent, Lanes(str(k), "i64")) for k in range(times + 1)]
        for number, (first, last) in enumerate(itertools.pairwise(ends)):
            begin = self.b.intrinsic("smax", Lanes("%begin", "i64"), first)
            end = self.b.intrinsic("smin", Lanes("%end", "i64"), last)
            some = self.b.compare("icmp slt", begin, end)
            run, after = self.function.block("run"), self.function.block("after")
            self.b.line(f"br {some}, label %{run.label}, label %{after.label}")
            self.b.block = self.function.place(run)
            place = self.b.assign("ptr", 1, f"getelementptr i64, ptr %all, i64 {words * number}")
            begin, end = (self.b.binary("sub", each, first) for each in (begin, end))
            self.b.line(f"call void @{kernel}({place}, {begin}, {end})")
            self.b.line(f"br label %{after.label}")
            self.b.block = self.function.place(after)
        self.b.line("ret void")
        self.functions.append(self.function.text())
        self.function, self.b = outer
        return name

    def interpret(self, step: Interpret | LibraryCall) -> None:
        """Run a node in Python, or a library that is called from there."""
        self.fail_if(self.call_back(step.call), step)

    def call_back(self, number: int) -> Lanes:
        """Call the runtime's function with a number; whether that failed."""
        place = self.b.assign("ptr", 1, f"getelementptr i64, ptr %slots, i64 {self.callback}")
        function = self.b.assign("ptr", 1, f"load ptr, ptr {place.text}, align 8")
        result = self.b.assign("i32", 1, f"call i32 {function.text}(ptr %slots, i64 {number})")
        return self.b.compare("icmp ne", result, Lanes("0", "i32"))

    def copy(self, source: int, target: int, nbytes: Dim) -> None:
        """A memory copy."""
        self.declarations.add("declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)")
        size = self.dim(nbytes)
        self.b.line(
            f"call void @llvm.memmove.p0.p0.i64(ptr {self.pointer(target)}, "
            f"ptr {self.pointer(source)}, i64 {size.text}, i1 false)"
        )

    def element(self, step: SliceView) -> None:
        """Point a slot at one piece of another."""
        number = Lanes(self.counters[step.counter], "i64")
        if step.reverse is not None:
            last = self.b.binary("sub", self.dim(step.reverse), Lanes("1", "i64"))
            number = self.b.binary("sub", last, number)
        offset = self.b.binary("mul", number, self.dim(step.nbytes))
        whole = self.slot(step.whole)
        moved = self.b.binary("add", whole, offset)
        place = self.b.assign("ptr", 1, f"getelementptr i64, ptr %slots, i64 {step.slot}")
        self.b.line(f"store {moved}, ptr {place.text}, align 8")

    def alternate(self, step: Alternate) -> None:
        """Point a slot at one of two others, by turns."""
        done = Lanes(self.counters[step.counter], "i64")
        left = self.b.binary("sub", self.dim(step.times), done)
        odd = self.b.convert("trunc", left, "i1")
        address = self.b.select(odd, self.slot(step.first), self.slot(step.second))
        place = self.b.assign("ptr", 1, f"getelementptr i64, ptr %slots, i64 {step.slot}")
        self.b.line(f"store {address}, ptr {place.text}, align 8")

    def branch(self, step: Branch) -> None:
        """``if``."""
        function = self.function
        then, otherwise, after = (function.block(h) for h in ("then", "else", "endif"))
        condition = self.truth(step.condition)
        self.b.line(f"br {condition}, label %{then.label}, label %{otherwise.label}")
        for block, steps in ((then, step.then), (otherwise, step.otherwise)):
            self.b.block = function.place(block)
            self.steps(steps)
            self.b.line(f"br label %{after.label}")
        self.b.block = function.place(after)

    def repeat(self, step: WhileLoop) -> None:
        """``while``."""
        function = self.function
        test, body, after = (function.block(h) for h in ("test", "body", "endwhile"))
        self.enter_loop()
        done = function.name("done")
        function.entry.lines.insert(0, f"{done} = alloca i64, align 8")
        self.b.line(f"store i64 0, ptr {done}, align 8")
        self.b.line(f"br label %{test.label}")
        self.b.block = function.place(test)
        self.steps(step.test)
        condition = self.truth(step.condition)
        self.b.line(f"br {condition}, label %{body.label}, label %{after.label}")
        self.b.block = function.place(body)
        self.return_if(self.is_broken_off(), BROKEN_OFF)
        if step.limit is not None:
            before = self.b.assign("i64", 1, f"load i64, ptr {done}, align 8")
            self.fail_if(self.b.compare("icmp sge", before, Lanes(str(step.limit), "i64")), step)
            self.b.line(f"store {self.b.binary('add', before, Lanes('1', 'i64'))}, ptr {done}")
        self.steps(step.body)
        self.b.line(f"br label %{test.label}")
        self.b.block = function.place(after)
        self.depth -= 1

    def count(self, step: ForLoop) -> None:
        """A loop with a counter."""
        function = self.function
        head, body, after = (function.block(h) for h in ("head", "body", "endfor"))
        self.enter_loop()
        place = function.name("counter")
        function.entry.lines.insert(0, f"{place} = alloca i64, align 8")
        self.b.line(f"store i64 0, ptr {place}, align 8")
        times = self.dim(step.times)
        self.b.line(f"br label %{head.label}")
        self.b.block = function.place(head)
        now = self.b.assign("i64", 1, f"load i64, ptr {place}, align 8")
        again = self.b.compare("icmp slt", now, times)
        self.b.line(f"br {again}, label %{body.label}, label %{after.label}")
        self.b.block = function.place(body)
        self.return_if(self.is_broken_off(), BROKEN_OFF)
        self.counters[step.counter] = now.text
        self.steps(step.body)
        following = self.b.binary("add", now, Lanes("1", "i64"))
        self.b.line(f"store {following}, ptr {place}, align 8")
        self.b.line(f"br label %{head.label}")
        self.b.block = function.place(after)
        self.depth -= 1

    def spread(self, step: ParallelFor) -> None:
        """Runs side by side, as many as there are threads; the few that are left, one by one.

        Those have all threads to themselves, kernel by kernel.
        """
        name = self.run_function(step)
        place = self.function.name("context")
        self.function.entry.lines.insert(0, f"{place} = alloca {{ ptr, ptr, i64 }}, align 8")
        total = self.dim(step.times)
        copies = self.word(step.copies)
        team = self.b.intrinsic("umin", Lanes("%threads", "i64"), copies)
        left = self.b.binary("urem", total, team)
        even = self.b.binary("sub", total, left)
        self.b.line(f"store i64 0, ptr {self.pointer(step.memory)}, align 64")
        self.b.line(f"store ptr %slots, ptr {place}, align 8")
        self.b.line(f"store ptr %status, ptr {self.field(place, 1)}, align 8")
        threads = self.field(place, 2)
        self.b.line(f"store i64 1, ptr {threads}, align 8")
        self.declarations.add(f"declare i32 @{PARALLEL_FOR}(ptr, ptr, i64, i64, i64)")
        self.b.assign(
            "i32",
            1,
            f"call i32 @{PARALLEL_FOR}(ptr @{name}, ptr {place}, {even}, i64 1, {team})",
        )
        self.b.line(f"store i64 %threads, ptr {threads}, align 8")
        self.b.line(f"call void @{name}(ptr {place}, {even}, {total})")
        self.return_if(self.look(), BROKEN_OFF)

    def run_function(self, step: ParallelFor) -> str:
        """A function that runs the body for a range of its counter, with a copy of its own slots.

        It has a table of addresses of its own, and takes the first copy that nobody has.
        """
        inner = self.body_function(step)
        outer = self.function, self.b
        name = f"{inner}_runs"
        self.open(f"define internal void @{name}(ptr %context, i64 %begin, i64 %end) #1", ())
        words = self.watch + 1
        self.b.line(f"%table = alloca [{words} x i64], align 64")
        self.b.line("%slots = load ptr, ptr %context, align 8")
        status = self.b.assign("ptr", 1, f"load ptr, ptr {self.field('%context', 1)}, align 8")
        threads = self.b.assign("i64", 1, f"load i64, ptr {self.field('%context', 2)}, align 8")
        self.begin_watch()
        taken = self.pointer(step.memory)
        bit, number = self.take_copy(taken)
        self.declarations.add("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        self.b.line(
            f"call void @llvm.memcpy.p0.p0.i64(ptr %table, ptr %slots, i64 {8 * words}, i1 false)"
        )
        moved = self.b.binary("mul", number, self.word(step.distance))
        for slot in step.own:
            address = self.b.binary("add", self.slot(slot), moved)
            place = self.b.assign("ptr", 1, f"getelementptr i64, ptr %table, i64 {slot}")
            self.b.line(f"store {address}, ptr {place.text}, align 8")
        self.loop_over_runs(inner, f"ptr %table, {status}, {threads}")
        kept = self.b.binary("xor", bit, Lanes("-1", "i64"))
        self.b.line(f"%back = atomicrmw and ptr {taken}, {kept} release")
        self.b.line("ret void")
        self.functions.append(self.function.text())
        self.function, self.b = outer
        return name

    def body_function(self, step: ParallelFor) -> str:
        """A function that runs the body once, for one value of the counter."""
        outer = self.function, self.b
        name = f"spread{step.counter}"
        arguments = "ptr %slots, ptr %status, i64 %threads, i64 %counter"
        self.open(f"define internal void @{name}({arguments}) #1", step.body)
        self.counters[step.counter] = "%counter"
        self.steps(step.body)
        self.b.line("ret void")
        self.functions.append(self.function.text())
        self.function, self.b = outer
        return name

    def take_copy(self, taken: str) -> tuple[Lanes, Lanes]:
        """Take the first copy that is free, by its bit in a word: that bit, and its number."""
        function = self.function
        test, after = function.block("take"), function.block("taken")
        self.b.line(f"br label %{test.label}")
        self.b.block = function.place(test)
        seen = self.b.assign("i64", 1, f"load atomic i64, ptr {taken} monotonic, align 8")
        free = self.b.binary("xor", seen, Lanes("-1", "i64"))
        self.declarations.add("declare i64 @llvm.cttz.i64(i64, i1)")
        number = self.b.assign("i64", 1, f"call i64 @llvm.cttz.i64({free}, i1 false)")
        bit = self.b.binary("shl", Lanes("1", "i64"), number)
        more = self.b.binary("or", seen, bit)
        pair = self.b.assign(
            "{ i64, i1 }", 1, f"cmpxchg ptr {taken}, {seen}, {more} acquire monotonic"
        )
        done = self.b.assign("i1", 1, f"extractvalue {pair}, 1")
        self.b.line(f"br {done}, label %{after.label}, label %{test.label}")
        self.b.block = function.place(after)
        return bit, number

    def loop_over_runs(self, name: str, arguments: str) -> None:
        """Call a function for each number from ``%begin`` to ``%end``."""
        function = self.function
        before = self.b.block.label
        head, body, run, after = (function.block(h) for h in ("head", "body", "run", "endfor"))
        self.b.line(f"br label %{head.label}")
        self.b.block = function.place(head)
        self.b.line(f"%now = phi i64 [ %begin, %{before} ], [ %following, %{run.label} ]")
        again = self.b.compare("icmp slt", Lanes("%now", "i64"), Lanes("%end", "i64"))
        self.b.line(f"br {again}, label %{body.label}, label %{after.label}")
        self.b.block = function.place(body)
        stops = self.is_broken_off()
        self.b.line(f"br {stops}, label %{after.label}, label %{run.label}")
        self.b.block = function.place(run)
        self.b.line(f"call void @{name}({arguments}, i64 %now)")
        self.b.line("%following = add i64 %now, 1")
        self.b.line(f"br label %{head.label}")
        self.b.block = function.place(after)

    def field(self, context: str, number: int) -> str:
        """Where a field of a context is."""
        kind = "{ ptr, ptr, i64 }"
        place = f"getelementptr {kind}, ptr {context}, i64 0, i32 {number}"
        return self.b.assign("ptr", 1, place).text

    # Values ---------------------------------------------------------------------------------------

    def fail_if(self, condition: Lanes, step: Step) -> None:
        """Return the number of the step that went wrong."""
        self.failures.append(step)
        self.return_if(condition, len(self.failures))

    def dim(self, dim: Dim) -> Lanes:
        """A size, from the symbolic ones in the table; its named parts are computed once."""
        known: dict[Dim, Lanes] = {}
        for atom in () if isinstance(dim, int) else dim.definitions():
            known[atom] = self.size(atom, known)
        return self.size(dim, known)

    def size(self, dim: Dim, known: Mapping[Dim, Lanes]) -> Lanes:
        """A size, of parts that are known already and of symbols."""
        if isinstance(dim, int):
            return Lanes(str(dim), "i64")
        if dim in known:
            return known[dim]
        if isinstance(dim, Symbol):
            return self.word(self.sizes[dim])
        if isinstance(dim, Operation):
            return self.operation(dim, known)
        total = Lanes("0", "i64")
        for atoms, factor in dim.terms():
            term = Lanes(str(factor), "i64")
            for atom in atoms:
                term = self.b.binary("mul", term, self.size(atom, known))
            total = self.b.binary("add", total, term)
        return total

    def operation(self, dim: Operation, known: Mapping[Dim, Lanes]) -> Lanes:
        """Division, remainder and extremes of sizes."""
        from monograph.ir.types import i64
        from monograph.targets.cpu.llvm import instructions

        arguments = [self.size(argument, known) for argument in dim.arguments]
        if isinstance(dim, Opaque):
            return arguments[0]
        if isinstance(dim, FloorDiv | Mod):
            name = "index_divide" if isinstance(dim, FloorDiv) else "index_remainder"
            return instructions.FUNCTIONS[name](self.b, i64, i64, tuple(arguments))
        assert isinstance(dim, Max | Min)
        result = arguments[0]
        for argument in arguments[1:]:
            word = "smax" if isinstance(dim, Max) else "smin"
            result = self.b.intrinsic(word, result, argument)
        return result


def _launches(steps: Sequence[Step]) -> list[Launch]:
    return [step for step in walk_steps(tuple(steps)) if isinstance(step, Launch)]


def entry_text(
    slots: Sequence[Slot],
    sizes: Sequence[Symbol],
    steps: Sequence[Step],
    prepare: Sequence[Step],
    codes: Mapping[str, str],
) -> tuple[str, set[str], Mapping[int, Step]]:
    """The entry points, what they declare, and the step that each result code stands for."""
    emitter = EntryEmitter(slots, sizes, codes)
    text = emitter.emit(steps)
    if prepare:
        text += emitter.emit(prepare, PREPARE)
    text = "\n".join((*emitter.functions, text))
    return text, emitter.declarations, {k + 1: step for k, step in enumerate(emitter.failures)}
