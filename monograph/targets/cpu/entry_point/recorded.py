"""A second entry point that runs the same kernels and records when each began and ended.

It is made for a program that is compiled already, in a module of its own: kernels stay where they
are, byte for byte, and each is called through a function of the same name that reads the clock
before and after. So is every step. What is recorded goes to *lanes* of memory, one for each thread,
so that no thread waits for another; all consist of lines of ``LINE_WORDS`` words:

    memory      a line with the generation, then the lanes
    lane        a line with owner, records, records lost; then the records, a line each
    record      what, generation, begin, end, busy, pieces

Times are nanoseconds of the monotonic clock. *What* is a kernel's number, or -1 minus a step's. The
generation counts steps as they begin: a thread's pieces of one launch of a kernel are one record,
whose ``busy`` sums their times.

An observer is told of the steps as they begin and end, on the thread that made the call: steps that
run side by side are one to it.

    void observer(i64 step, i64 ended)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import Template

from monograph.dataclass import dataclass
from monograph.program.code import (
    Code,
    Copy,
    Interpret,
    Launch,
    LibraryCall,
    ParallelFor,
    Sections,
    Step,
    walk_steps,
)
from monograph.targets.cpu.entry_point.entry import EntryEmitter
from monograph.targets.cpu.threads.pool import platform_of

RECORDED_ENTRY = "recorded_entry"
LINE_WORDS = 8
OWNER, RECORDS, LOST = range(3)
WHAT, GENERATION, BEGAN, ENDED, BUSY, PIECES = range(6)


@dataclass(frozen=True)
class RecordMemory:
    """Where what is recorded goes, and how many records each lane has room for."""

    address: int
    lanes: int
    capacity: int

    @property
    def lane_words(self) -> int:
        """Words of a lane."""
        return LINE_WORDS * (1 + self.capacity)

    @property
    def words(self) -> int:
        """Words of all of it."""
        return LINE_WORDS + self.lanes * self.lane_words


def kernel_names(code: Code) -> list[str]:
    """The functions that a program's launches call, in the order of their numbers."""
    launches = (step for step in walk_steps(code.steps) if isinstance(step, Launch))
    return list(dict.fromkeys(code.codes.get(step.kernel, step.kernel) for step in launches))


def write_recorder(
    code: Code, kernels: Mapping[str, int], memory: RecordMemory, triple: str, observer: int = 0
) -> str:
    """The module; ``kernels`` says where each function lies that launches call."""
    emitter = _RecordedEmitter(code, bool(observer))
    entry = emitter.emit(code.steps, RECORDED_ENTRY)
    numbers = {
        "generation": memory.address,
        "lanes": memory.address + 8 * LINE_WORDS,
        "count": memory.lanes,
        "capacity": memory.capacity,
        "lane_bytes": 8 * memory.lane_words,
        "clock": platform_of(triple).monotonic_clock,
        "observer": observer,
    }
    stubs = [
        Template(_KERNEL).substitute(numbers, name=name, number=number, address=kernels[name])
        for number, name in enumerate(kernel_names(code))
    ]
    parts = (
        Template(_RECORDING).substitute(numbers),
        Template(_OBSERVED).substitute(numbers) if observer else "",
        *stubs,
        *sorted(emitter.declarations - {"declare i32 @clock_gettime(i32, ptr)"}),
        *emitter.functions,
        entry,
        "attributes #1 = { nounwind }",
    )
    return "\n".join(parts)


class _RecordedEmitter(EntryEmitter):
    """Writes an entry point whose steps are recorded."""

    def __init__(self, code: Code, observed: bool) -> None:
        super().__init__(code.slots, code.sizes, code.codes)
        self._numbers = {id(step): number for number, step in enumerate(walk_steps(code.steps))}
        self._observed = observed
        self._side_by_side = 0
        """How many steps that run others side by side the one that is written is in."""

    def steps(self, steps: Sequence[Step]) -> None:
        """Every step, between two looks at the clock; those in others, too."""
        for step in steps:
            number, parallel = self._numbers[id(step)], isinstance(step, ParallelFor | Sections)
            if not parallel and not isinstance(step, Launch | Interpret | LibraryCall | Copy):
                super().steps([step])
                continue
            observed = self._observed and not self._side_by_side
            if observed:
                self.b.line(f"call void @observe(i64 {number}, i64 0)")
            generation = self.b.assign("i64", 1, "call i64 @begin_step()")
            began = self.b.assign("i64", 1, "call i64 @now()")
            self._side_by_side += parallel
            super().steps([step])
            self._side_by_side -= parallel
            ended = self.b.assign("i64", 1, "call i64 @now()")
            self.b.line(f"call void @record(i64 {-1 - number}, {generation}, {began}, {ended})")
            if observed:
                self.b.line(f"call void @observe(i64 {number}, i64 1)")


_KERNEL = """
define internal void @$name(ptr %arguments, i64 %begin, i64 %end) {
  %generation = load atomic i64, ptr inttoptr (i64 $generation to ptr) monotonic, align 8
  %began = call i64 @now()
  call void inttoptr (i64 $address to ptr)(ptr %arguments, i64 %begin, i64 %end)
  %ended = call i64 @now()
  call void @record(i64 $number, i64 %generation, i64 %began, i64 %ended)
  ret void
}
"""

_RECORDING = """
declare i32 @clock_gettime(i32, ptr)
declare i64 @pthread_self()

define internal i64 @now() {
  %time = alloca { i64, i64 }
  %ignored = call i32 @clock_gettime(i32 $clock, ptr %time)
  %seconds = load i64, ptr %time
  %rest.place = getelementptr { i64, i64 }, ptr %time, i64 0, i32 1
  %rest = load i64, ptr %rest.place
  %scaled = mul i64 %seconds, 1000000000
  %sum = add i64 %scaled, %rest
  ret i64 %sum
}

; A step begins: its generation.
define internal i64 @begin_step() {
  %before = atomicrmw add ptr inttoptr (i64 $generation to ptr), i64 1 monotonic
  %generation = add i64 %before, 1
  ret i64 %generation
}

; The lane of this thread, taken when it first asks; null if others have all of them.
define internal ptr @own_lane() {
enter:
  %self = call i64 @pthread_self()
  br label %look
look:
  %number = phi i64 [ 0, %enter ], [ %following, %next ]
  %offset = mul i64 %number, $lane_bytes
  %lane = getelementptr i8, ptr inttoptr (i64 $lanes to ptr), i64 %offset
  %owner = load atomic i64, ptr %lane monotonic, align 8
  %own = icmp eq i64 %owner, %self
  br i1 %own, label %found, label %ask
ask:
  %free = icmp eq i64 %owner, 0
  br i1 %free, label %take, label %next
take:
  %exchange = cmpxchg ptr %lane, i64 0, i64 %self monotonic monotonic
  %taken = extractvalue { i64, i1 } %exchange, 1
  br i1 %taken, label %found, label %next
next:
  %following = add i64 %number, 1
  %more = icmp ult i64 %following, $count
  br i1 %more, label %look, label %none
found:
  ret ptr %lane
none:
  ret ptr null
}

define internal void @record(i64 %what, i64 %generation, i64 %began, i64 %ended) {
enter:
  %lane = call ptr @own_lane()
  %is.none = icmp eq ptr %lane, null
  br i1 %is.none, label %done, label %look
look:
  %busy = sub i64 %ended, %began
  %count.place = getelementptr i64, ptr %lane, i64 1
  %count = load i64, ptr %count.place
  %records = getelementptr i64, ptr %lane, i64 8
  %place = getelementptr [8 x i64], ptr %records, i64 %count
  %empty = icmp eq i64 %count, 0
  br i1 %empty, label %append, label %compare
compare:
  %last = getelementptr [8 x i64], ptr %place, i64 -1
  %last.what = load i64, ptr %last
  %same.what = icmp eq i64 %last.what, %what
  %last.generation.place = getelementptr i64, ptr %last, i64 1
  %last.generation = load i64, ptr %last.generation.place
  %same.generation = icmp eq i64 %last.generation, %generation
  %same = and i1 %same.what, %same.generation
  br i1 %same, label %extend, label %append
extend:
  %last.end = getelementptr i64, ptr %last, i64 3
  store i64 %ended, ptr %last.end
  %last.busy = getelementptr i64, ptr %last, i64 4
  %busy.before = load i64, ptr %last.busy
  %busy.sum = add i64 %busy.before, %busy
  store i64 %busy.sum, ptr %last.busy
  %last.pieces = getelementptr i64, ptr %last, i64 5
  %pieces.before = load i64, ptr %last.pieces
  %pieces = add i64 %pieces.before, 1
  store i64 %pieces, ptr %last.pieces
  ret void
append:
  %full = icmp uge i64 %count, $capacity
  br i1 %full, label %lose, label %write
lose:
  %lost.place = getelementptr i64, ptr %lane, i64 2
  %lost = load i64, ptr %lost.place
  %more.lost = add i64 %lost, 1
  store i64 %more.lost, ptr %lost.place
  ret void
write:
  store i64 %what, ptr %place
  %generation.place = getelementptr i64, ptr %place, i64 1
  store i64 %generation, ptr %generation.place
  %began.place = getelementptr i64, ptr %place, i64 2
  store i64 %began, ptr %began.place
  %ended.place = getelementptr i64, ptr %place, i64 3
  store i64 %ended, ptr %ended.place
  %busy.place = getelementptr i64, ptr %place, i64 4
  store i64 %busy, ptr %busy.place
  %pieces.place = getelementptr i64, ptr %place, i64 5
  store i64 1, ptr %pieces.place
  %following = add i64 %count, 1
  store i64 %following, ptr %count.place
  ret void
done:
  ret void
}
"""

_OBSERVED = """
define internal void @observe(i64 %step, i64 %ended) {
  call void inttoptr (i64 $observer to ptr)(i64 %step, i64 %ended)
  ret void
}
"""
