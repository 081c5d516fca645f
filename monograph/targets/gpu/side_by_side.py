"""Small pointwise kernels that do not wait for each other, as one launch.

    launch keys(…)   grid 513
    launch values(…) grid 513        ─▶        launch keys_beside(…)   grid 1042
    launch query(…)  grid 16                   program < 513: keys; < 1026: values; else query

A launch takes a microsecond or two however little it does. Each kernel stays a function of the
module, and a program runs the one that its number belongs to. A kernel moves up to an earlier one
if all that it reads is there by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim
from monograph.kernel.expr import Buffer
from monograph.kernel.kernel import Kernel
from monograph.program.code import Launch, Step, list_slots
from monograph.targets.gpu.source import TritonKernel, parameter_names

MAX_ELEMENTS = 1 << 20
"""Elements of a kernel above which a launch does not show."""
MAX_PARTS = 6
FUNCTION = "@triton.jit\n"


@dataclass(frozen=True)
class Gathered:
    """The steps of a program after launches were gathered, and where each old one went."""

    steps: tuple[Step, ...]
    moved: tuple[int, ...]
    """For each step that there was, the number of the step that does its work."""
    parts: Mapping[int, tuple[Launch, ...]]
    """For steps that are several launches, these."""


def gather_launches(steps: Sequence[Step], kernels: Mapping[str, TritonKernel]) -> Gathered:
    """Which launches are done with an earlier one."""
    places: list[list[Launch] | Step] = []
    moved: list[int] = []
    written: dict[int, int] = {}
    used: dict[int, int] = {}
    for step in steps:
        slots = list_slots(step)
        is_small = isinstance(step, Launch) and _is_small(kernels.get(step.kernel))
        place = len(places)
        if isinstance(step, Launch) and is_small:
            read, made = step.slots[: -step.outputs], step.slots[-step.outputs :]
            first = max([written.get(slot, -1) for slot in read], default=-1)
            first = max([first, *(used.get(slot, -1) for slot in made)]) + 1
            place = next(
                (k for k in range(first, len(places)) if _has_room(places[k])), len(places)
            )
        if place == len(places):
            places.append([step] if isinstance(step, Launch) and is_small else step)
        else:
            found = places[place]
            assert isinstance(found, list) and isinstance(step, Launch)
            found.append(step)
        moved.append(place)
        outputs = step.slots[-step.outputs :] if isinstance(step, Launch) else slots
        written.update(dict.fromkeys(outputs, max(place, *(written.get(s, -1) for s in outputs))))
        for slot in slots:
            used[slot] = max(place, used.get(slot, -1))
    parts = {k: tuple(x) for k, x in enumerate(places) if isinstance(x, list) and len(x) > 1}
    flat = tuple(x[0] if isinstance(x, list) else x for x in places)
    return Gathered(flat, tuple(moved), parts)


def _has_room(place: list[Launch] | Step) -> bool:
    return isinstance(place, list) and len(place) < MAX_PARTS


def _is_small(kernel: TritonKernel | None) -> bool:
    """Whether a kernel is pointwise, of few elements, and of sizes that are known."""
    if kernel is None or kernel.family != "pointwise" or kernel.checks or kernel.sizes:
        return False
    (programs,) = kernel.grid
    return isinstance(programs, int) and 0 < programs * kernel.blocks["BLOCK"] <= MAX_ELEMENTS


def join_kernels(name: str, parts: Sequence[TritonKernel]) -> TritonKernel:
    """One kernel whose programs are those of several, one kernel's after the other's."""
    inputs, outputs = list[Buffer](), list[Buffer]()
    helpers: dict[str, None] = {}
    functions, calls = list[str](), list[str]()
    blocks: dict[str, int] = {}
    first = 0
    for number, part in enumerate(parts):
        names: dict[str, str] = {}
        for own, found, letter in (
            (part.kernel.inputs, inputs, "b"),
            (part.kernel.outputs, outputs, "o"),
        ):
            for buffer in own:
                names[buffer.name] = f"{letter}{len(found)}"
                found.append(replace(buffer, name=names[buffer.name]))
        *others, body = part.source.split(FUNCTION)[1:]
        helpers |= dict.fromkeys(each.strip() for each in others)
        constant = f"BLOCK{number}"
        blocks[constant] = part.blocks["BLOCK"]
        own_names = parameter_names(part.kernel, checks=False)
        function = f"{name}_part{number}"
        signature = ", ".join(("program", *own_names, "BLOCK: tl.constexpr"))
        functions.append("\n".join([f"def {function}({signature}):", *_body(body)]))
        given = ", ".join((f"program - {first}", *(names[x] for x in own_names), constant))
        calls.append(f"{function}({given})")
        first += _programs(part.grid)
    kernel = Kernel(name, tuple(inputs), tuple(outputs), (), ())
    parameters = [x.name for x in kernel.buffers] + [f"{each}: tl.constexpr" for each in blocks]
    main = [f"def {name}(", *(f"    {each}," for each in parameters), "):"]
    main += ["    program = tl.program_id(0)", *_branches(parts, calls)]
    head = "import triton\nimport triton.language as tl\n"
    texts = [*helpers, *functions, "\n".join(main)]
    source = "\n\n".join([head, *(FUNCTION + each + "\n" for each in texts)])
    warps = max(part.warps for part in parts)
    return TritonKernel(name, "side by side", source, kernel, (first,), blocks, warps)


def _programs(grid: tuple[Dim, ...]) -> int:
    (programs,) = grid
    assert isinstance(programs, int), "only kernels of known sizes are gathered"
    return programs


def _body(function: str) -> Iterator[str]:
    """The lines of a function after its signature, which number programs from their own first."""
    lines = iter(function.rstrip().splitlines())
    for line in lines:
        if line.endswith("):"):
            break
    for line in lines:
        yield line.replace("tl.program_id(0)", "program")


def _branches(parts: Sequence[TritonKernel], calls: Sequence[str]) -> Iterator[str]:
    """Which kernel a program belongs to."""
    last = 0
    for number, (part, call) in enumerate(zip(parts, calls, strict=True)):
        last += _programs(part.grid)
        if number == len(parts) - 1:
            yield "    else:"
        else:
            yield f"    {'el' if number else ''}if program < {last}:"
        yield f"        {call}"
