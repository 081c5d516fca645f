"""Other targets: chapters 15 and 16."""

from __future__ import annotations

from docs.pictures.canvas import Canvas
from docs.pictures.models import SIXTEEN, traced
from monograph.compiler import Options, compile_graph
from monograph.program.code import Launch, LibraryCall
from monograph.targets.base import Target

GPU = "gpu:sm_90"


def gpu() -> str:
    """The steps of digits on a GPU, and what runs each."""
    executable = compile_graph(traced(SIXTEEN), Options(target=GPU, cache=False))
    made = executable.program
    canvas = Canvas("The steps of digits on a GPU", 720, 64 + 46 * len(made.steps) + 12)
    canvas.text(20, 28, "one CUDA graph, replayed in every call", bold=True)
    for number, step in enumerate(made.steps):
        y = 44 + 46 * number
        names = [made.slots[slot].name for slot in _slots(step)]
        if isinstance(step, LibraryCall):
            hue, title = "orange", f"{step.library}: {made.fallbacks[step.call].op.name}"
            what = "a library, on the memory of the program"
        else:
            hue, title = "blue", step.kernel
            what = f"a Triton kernel, {step.grid[0]} programs"
        canvas.box(20, y, 680, 38, hue)
        canvas.text(34, y + 16, title, bold=True, size=12)
        canvas.note(34, y + 31, what)
        canvas.text(686, y + 24, ", ".join(names), size=11, mono=True, anchor="end", kind="faint")
        if number:
            canvas.line((360, y - 8), (360, y), arrow=True)
    return canvas.svg()


def _slots(step: LibraryCall | Launch) -> tuple[int, ...]:
    return step.inputs + step.outputs if isinstance(step, LibraryCall) else step.slots


ROAD = (
    ("optimise", "the passes of a level", ""),
    ("lower", "to the ops that kernels compute", "lowering"),
    ("fuse", "which nodes share a kernel", "computes"),
    ("assemble", "how each group is computed; slots and steps", "assemble"),
    ("emit", "code", "emit"),
    ("load and call", "", "Device"),
)
"""The stages of ``compiler.py``, and what of a target each asks."""


def add_a_target() -> str:
    """The road of the compiler, and where it asks the target."""
    canvas = Canvas("Where the compiler asks a target", 680, 64 + 54 * len(ROAD) + 8)
    canvas.text(190, 28, "the same for every target", anchor="middle", bold=True)
    canvas.text(540, 28, "yours", anchor="middle", bold=True)
    for number, (stage, what, asked) in enumerate(ROAD):
        y = 44 + 54 * number
        canvas.box(30, y, 320, 40)
        canvas.text(44, y + 17, stage, bold=True)
        canvas.note(44, y + 33, what or "a call: arrays in, arrays out")
        if number:
            canvas.line((190, y - 14), (190, y), arrow=True)
        if not asked:
            continue
        is_method = asked in Target.__abstractmethods__
        canvas.box(420, y, 230, 40, "green" if is_method else "blue")
        said = f"Target.{asked}" if is_method else f"{asked}.load"
        canvas.text(535, y + 25, said, anchor="middle", mono=True, size=12)
        canvas.line((420, y + 20), (352, y + 20), arrow=True)
    return canvas.svg()
