"""Concurrent sections of the entry point: lists of steps that run side by side.

    define internal i32 @sections0_1(ptr %table, ptr %status, i64 %threads)     one list
    define internal void @sections0(ptr %context, i64 %begin, i64 %end)         some of them

With one thread each, the kernels of a list wait for nobody. A list has a table of addresses of its
own, since its loops point slots at the pieces that they are at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from monograph.ir.dims import Dim, dim_max
from monograph.program.code import BROKEN_OFF, Launch, Sections, walk_steps
from monograph.targets.cpu.llvm.assembly import Lanes

if TYPE_CHECKING:
    from monograph.targets.cpu.entry_point.entry import EntryEmitter

PARALLEL_FOR = "monograph_parallel_for"


def single_range(launch: Launch) -> int | None:
    """The extent of a kernel that is so short, whatever the sizes, that one thread runs it."""
    extent, grain = launch.extent, launch.grain
    if not isinstance(extent, int) or not isinstance(grain, int):
        return None
    return extent if extent <= grain else None


def emit_sections(entry: EntryEmitter, step: Sections) -> None:
    """Run all lists at once if each would keep no more threads busy than there are lists."""
    name = _ranges(entry, step, [_list(entry, step, number) for number in range(len(step.parts))])
    b, count = entry.b, len(step.parts)
    place = entry.function.name("context")
    entry.function.entry.lines.insert(0, f"{place} = alloca {{ ptr, ptr, i64 }}, align 8")
    b.line(f"store ptr %slots, ptr {place}, align 8")
    b.line(f"store ptr %status, ptr {entry.field(place, 1)}, align 8")
    width = entry.dim(_width(step))
    useful = b.intrinsic("umin", Lanes("%threads", "i64"), width)
    alone = b.compare("icmp ule", useful, Lanes(str(count), "i64"))
    each = b.select(alone, Lanes("1", "i64"), Lanes("%threads", "i64"))
    b.line(f"store {each}, ptr {entry.field(place, 2)}, align 8")
    team = b.select(alone, Lanes("%threads", "i64"), Lanes("1", "i64"))
    entry.declarations.add(f"declare i32 @{PARALLEL_FOR}(ptr, ptr, i64, i64, i64)")
    b.assign(
        "i32", 1, f"call i32 @{PARALLEL_FOR}(ptr @{name}, ptr {place}, i64 {count}, i64 1, {team})"
    )
    entry.return_if(entry.look(), BROKEN_OFF)


def _width(step: Sections) -> Dim:
    """The most threads that a kernel of the lists is shared among."""
    launches = [each for each in walk_steps((step,)) if isinstance(each, Launch)]
    portions = [(each.extent + each.grain - 1) // each.grain for each in launches]
    return dim_max(1, *portions)


def _list(entry: EntryEmitter, step: Sections, number: int) -> str:
    """A function that runs one of the lists; it ends early if the call is broken off."""
    outer = entry.function, entry.b, entry.depth
    name, steps = f"sections{step.number}_{number}", step.parts[number]
    entry.open(f"define internal i32 @{name}(ptr %table, ptr %status, i64 %threads) #1", steps)
    entry.depth = 0
    words = entry.watch + 1
    entry.b.line(f"%slots = alloca [{words} x i64], align 64")
    entry.declarations.add("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    entry.b.line(
        f"call void @llvm.memcpy.p0.p0.i64(ptr %slots, ptr %table, i64 {8 * words}, i1 false)"
    )
    entry.begin_watch()
    entry.steps(steps)
    entry.b.line("ret i32 0")
    entry.functions.append(entry.function.text())
    entry.function, entry.b, entry.depth = outer
    return name


def _ranges(entry: EntryEmitter, step: Sections, names: list[str]) -> str:
    """A function that runs those of the lists whose numbers are in a range."""
    outer = entry.function, entry.b
    name = f"sections{step.number}"
    entry.open(f"define internal void @{name}(ptr %context, i64 %begin, i64 %end) #1", ())
    b, function = entry.b, entry.function
    table = b.assign("ptr", 1, "load ptr, ptr %context, align 8")
    status = b.assign("ptr", 1, f"load ptr, ptr {entry.field('%context', 1)}, align 8")
    threads = b.assign("i64", 1, f"load i64, ptr {entry.field('%context', 2)}, align 8")
    for number, each in enumerate(names):
        run, after = function.block("run"), function.block("after")
        begun = b.compare("icmp sle", Lanes("%begin", "i64"), Lanes(str(number), "i64"))
        open_ = b.compare("icmp slt", Lanes(str(number), "i64"), Lanes("%end", "i64"))
        inside = b.binary("and", begun, open_)
        b.line(f"br {inside}, label %{run.label}, label %{after.label}")
        b.block = function.place(run)
        b.assign("i32", 1, f"call i32 @{each}({table}, {status}, {threads})")
        b.line(f"br label %{after.label}")
        b.block = function.place(after)
    b.line("ret void")
    entry.functions.append(function.text())
    entry.function, entry.b = outer
    return name
