"""Programs as text: a line for each slot and for each step, those in a step indented."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from monograph.program.code import (
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
)


def program_text(slots: Sequence[Slot], prepare: Sequence[Step], steps: Sequence[Step]) -> str:
    """The slots, the steps that run once, and those that run in every call."""
    lines = ["slots"]
    lines += [f"  {k}: {_slot(slot)}" for k, slot in enumerate(slots)]
    if prepare:
        lines += ["prepare", *_lines(prepare, "  ")]
    return "\n".join([*lines, "call", *_lines(steps, "  "), ""])


def _slot(slot: Slot) -> str:
    shape = ", ".join(map(str, slot.shape))
    strides = "" if slot.strides is None else f", strides {list(slot.strides)}"
    return f"{slot.kind.value} %{slot.name}: {slot.dtype}[{shape}]{strides}"


def _lines(steps: Sequence[Step], indent: str) -> Iterator[str]:
    for step in steps:
        yield indent + _line(step)
        inner = indent + "  "
        match step:
            case Branch(_, then, otherwise):
                yield from _lines(then, inner)
                yield f"{indent}else"
                yield from _lines(otherwise, inner)
            case WhileLoop(test, _, body, _, _):
                yield from _lines(test, inner)
                yield f"{indent}do"
                yield from _lines(body, inner)
            case ForLoop(_, _, body) | ParallelFor(_, _, body):
                yield from _lines(body, inner)
            case Sections(_, parts):
                for part in parts:
                    yield f"{indent}section"
                    yield from _lines(part, inner)


def _line(step: Step) -> str:
    match step:
        case Launch():
            *read, written = _write_slots(step)
            often = "" if step.times == 1 else f", {step.times} times"
            tasks = f"{step.extent} tasks"
            if step.grid:
                tasks = f"{' × '.join(map(str, step.grid))} programs"
            return f"launch {step.kernel}({', '.join(read)}) -> {written}, {tasks}{often}"
        case Interpret(call, inputs, outputs):
            return f"interpret node {call}({_numbers(inputs)}) -> {_numbers(outputs)}"
        case LibraryCall(call, inputs, outputs, library, _):
            return f"{library} node {call}({_numbers(inputs)}) -> {_numbers(outputs)}"
        case Copy(source, target, nbytes):
            return f"copy {source} -> {target}, {nbytes} bytes"
        case SliceView(slot, whole, counter, nbytes, reverse):
            order = "" if reverse is None else ", from the last"
            return f"slot {slot} = piece of {whole} by counter {counter}, {nbytes} bytes{order}"
        case Alternate(slot, first, second, counter, _):
            return f"slot {slot} = {first} or {second}, by turns of counter {counter}"
        case Branch(condition, _, _):
            return f"if {condition}"
        case WhileLoop(_, condition, _, limit, _):
            return f"while {condition}" + ("" if limit is None else f", {limit} times at most")
        case ForLoop(counter, times, _):
            return f"for counter {counter} up to {times}"
        case ParallelFor(counter, times, _):
            return f"parallel for counter {counter} up to {times}, own slots {list(step.own)}"
        case Sections(number, parts):
            return f"side by side {number}: {len(parts)} sections"


def _write_slots(step: Launch) -> tuple[str, ...]:
    """The slots that a launch reads, each with its offset, and last, as one, those it writes."""
    offsets = step.offsets or (0,) * len(step.slots)
    named = [
        f"{slot}+{offset}" if offset else str(slot)
        for slot, offset in zip(step.slots, offsets, strict=True)
    ]
    first = len(named) - step.outputs
    return (*named[:first], ", ".join(named[first:]))


def _numbers(slots: Sequence[int]) -> str:
    return ", ".join(map(str, slots))
