"""Memory, threads, sizes and files: chapters 9 to 11."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path

from docs.pictures.canvas import Canvas
from docs.pictures.models import ANY_BATCH, executable, program
from monograph.inspect.explain import arena_plan
from monograph.ir.dims import Dim, Symbol, evaluate_dim
from monograph.program.code import SlotKind

FILL = ("blue", "green", "orange", "pink", "violet")


def memory_and_threads() -> str:
    """Where each intermediate lies in the arena, step by step, and the chunks of each step."""
    steps = program().steps
    canvas = Canvas("The arena of digits, and the chunks of its kernels", 760, 600)
    canvas.text(20, 26, "The arena: what lies where, from step to step", bold=True)
    _arena(canvas, len(steps), left=90, top=50, wide=80, high=250)
    canvas.text(20, 346, "The chunks that threads share; one chunk runs in the caller", bold=True)
    for number, step in enumerate(steps):
        chunks = max(1, -(-step.extent // step.grain))
        y, width = 364 + number * 27, 430 / chunks
        canvas.code(20, y + 14, f"{number}  {step.kernel}")
        for chunk in range(chunks):
            hue = "violet" if chunks > 1 else "plain"
            canvas.box(310 + chunk * width, y, width, 18, hue, radius=1)
    return canvas.svg()


def _arena(canvas: Canvas, steps: int, *, left: int, top: int, wide: int, high: int) -> None:
    """A box for each intermediate: as wide as it is alive, as high as it is large."""
    plan = arena_plan(executable(), {})
    bottom, scale = top + high, high / plan.peak
    for number in range(steps):
        x = left + number * wide
        canvas.note(x + wide / 2, bottom + 18, f"step {number}", "middle")
        canvas.line((x, top), (x, bottom), dashed=True, wide=0.6)
    canvas.line((left, bottom), (left + steps * wide, bottom))
    for index, (request, offset) in enumerate(zip(plan.requests, plan.offsets, strict=True)):
        x, width = left + request.first * wide, (request.last - request.first + 1) * wide
        tall = max(request.size * scale, 4)
        y = bottom - offset * scale - tall
        canvas.box(x + 2, y, width - 4, tall, FILL[index % len(FILL)])
        words = f"{request.name}  {_kib(request.size)}"
        middle = y + tall / 2 + 4 if tall >= 16 else y - 5
        canvas.text(x + width / 2, middle, words, anchor="middle", size=12)
    canvas.note(left - 8, top + 8, _kib(plan.peak), "end")
    canvas.note(left - 8, bottom, "0", "end")


def _kib(size: int) -> str:
    return f"{size / 1024:.0f} KiB" if size >= 1024 else f"{size} B"


ALIVE_IN_CALLS = (SlotKind.INPUT, SlotKind.ARENA, SlotKind.OUTPUT)
COLUMNS = {1: 510, 16: 600, 64: 690}
"""Where the numbers of a batch end."""


def dynamic_shapes() -> str:
    """What of the program is arithmetic of the batch, and what that is for some batches."""
    made = program(ANY_BATCH)
    slots = [(slot.name, slot.nbytes) for slot in made.slots if slot.kind in ALIVE_IN_CALLS]
    loops = [(step.kernel, step.extent) for step in made.steps]
    canvas = Canvas("Sizes of a program that serves every batch", 720, 64 + 26 * 15 + 2 * 34)
    canvas.text(270, 30, "for every batch", bold=True)
    for batch, x in COLUMNS.items():
        canvas.text(x, 30, f"batch = {batch}", bold=True, anchor="end")
    y = _sizes(canvas, 64, "bytes of a slot", "green", slots, made.sizes[0])
    title = "iterations of the parallel loop of a kernel"
    y = _sizes(canvas, y + 34, title, "violet", loops, made.sizes[0])
    canvas.height = int(y) + 24
    return canvas.svg()


def _sizes(
    canvas: Canvas, y: float, title: str, hue: str, rows: list[tuple[str, Dim]], symbol: Symbol
) -> float:
    """A row for each symbolic number; returns where the rows end."""
    canvas.note(20, y, title)
    for number, (name, dim) in enumerate(rows):
        top = y + 6 + 26 * number
        canvas.box(16, top, 688, 22, hue)
        canvas.code(28, top + 15, name)
        canvas.code(270, top + 15, str(dim))
        for batch, x in COLUMNS.items():
            canvas.code(x, top + 15, f"{evaluate_dim(dim, {symbol: batch}):,}", "end")
    return y + 26 * len(rows)


MEANING = {
    "program.o": "machine code of every kernel, and the entry point that runs them",
    "program.json": "slots, steps and sizes, how it is called, what explain shows",
    "weights.safetensors": "weights as calls read them: packed, or mapped where they lie",
    "manifest.json": "the processor it was made for; name and SHA-256 of all the rest",
}


def cache_and_artifacts() -> str:
    """The members of a saved program, in their order in the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = executable().save(Path(folder) / "digits.mono")
        with zipfile.ZipFile(path) as file:
            names = file.namelist()
    canvas = Canvas("The file digits.mono", 700, 104 + 46 * len(names))
    canvas.text(20, 28, "digits.mono, from its first byte to its last", bold=True)
    for number, (name, hue) in enumerate(zip(names, FILL, strict=False)):
        y = 44 + 46 * number
        canvas.box(20, y, 660, 38, hue)
        canvas.text(34, y + 24, name, bold=True, mono=True)
        canvas.text(230, y + 24, MEANING[name], size=12)
    y = 44 + 46 * len(names)
    canvas.box(20, y, 660, 38)
    canvas.text(34, y + 24, "end of the zip: the place and the SHA-256 of the manifest", size=12)
    return canvas.svg()
