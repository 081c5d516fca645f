"""The thread pool, as LLVM IR.

Kernels run in parallel without Python and without a C compiler, so the pool is native code that
this module writes. Programs call one function,

    i32 monograph_parallel_for(ptr body, ptr context, i64 total, i64 grain, i64 threads)

which calls ``void body(ptr context, i64 begin, i64 end)`` over disjoint chunks that cover
``[0, total)``. A chunk begins at a multiple of ``grain`` and may be several grains long, up to all
of them; so what a body computes must depend on the grains that it is given, never on how they are
bundled. It returns 0, or ``INVALID``.

A **region** is one such call. Everything that decides who may take part is in one 64-bit word, the
*gate*: its generation, its seats (how many workers may enter) and the workers that are inside. The
caller opens the gate, takes chunks like everybody else, closes the gate and waits for those inside.
A worker that comes late finds the gate shut and is not waited for: one that sleeps, or that the
system does not schedule, costs speed and nothing else.

One region runs at a time. A caller that finds the pool busy (another thread's region, or its own:
a body may call ``monograph_parallel_for``) does its work alone, at once.
"""

from __future__ import annotations

from string import Template

from monograph.config import MOST_THREADS
from monograph.dataclass import dataclass
from monograph.targets.cpu.threads.regions import REGION, SERIAL, STATE
from monograph.targets.cpu.threads.workers import (
    AFFINITY,
    CONDITION_PARKING,
    FUTEX_PARKING,
    LIFE,
    NO_AFFINITY,
    WORKER,
)

PARALLEL_FOR = "monograph_parallel_for"
"""The function that programs call; the others are for :mod:`monograph.runtime.cpu.thread_pool`."""

CONFIGURE = "monograph_pool_configure"
"""``void (i64 threads, i64 nanoseconds)``: the most threads, and how long idle workers spin."""

START = "monograph_pool_start"
"""``i64 (i64 threads)``: create workers now; the threads there are, the caller included."""

STOP = "monograph_pool_stop"
"""``i32 ()``: end the workers and wait for them; 1 if the pool is busy, and nothing is done."""

RESET = "monograph_pool_reset"
"""``void ()``: forget the workers, in the child of a fork, which has none."""

INVALID = 22
"""What ``monograph_parallel_for`` returns, having run nothing, for a grain or threads below 1."""

MOST_STRETCHES = 16
"""Stretches that a region is cut into at most: whoever has nothing left looks at all of them."""


@dataclass(frozen=True)
class Platform:
    """What the pool has to know of an architecture and an operating system.

    ``threads`` is false where there are none to be had: a region is then a plain call. ``futex`` is
    the number of that system call where there is one; elsewhere workers sleep on a condition
    variable. ``faults`` are the signals that a worker keeps: those that its own code may cause.
    """

    pause: str | None = None
    threads: bool = True
    futex: int | None = None
    affinity: bool = False
    monotonic_clock: int = 1
    set_signal_mask: int = 2
    faults: tuple[int, ...] = (4, 6, 7, 8, 11)


PAUSES = {
    "x86_64": "@llvm.x86.sse2.pause()",
    "aarch64": "@llvm.aarch64.hint(i32 1)",
    "arm64": "@llvm.aarch64.hint(i32 1)",
    "riscv64": None,
}
"""How a core is told that it spins, by the architecture's name in a triple.

RISC-V's ``pause`` is an extension that not every description of a RISC-V core names.
"""

FUTEXES = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
"""The number of Linux's futex call, by the architecture's name in a triple."""


def platform_of(triple: str) -> Platform:
    """The platform that a target triple such as ``x86_64-unknown-linux-gnu`` names."""
    architecture, _, system = triple.partition("-")
    if architecture not in PAUSES:
        return Platform(threads=False)
    pause = PAUSES[architecture]
    if "linux" in system:
        return Platform(pause=pause, futex=FUTEXES.get(architecture), affinity=True)
    if "darwin" in system or "macos" in system:
        faults = (4, 6, 8, 10, 11)
        return Platform(pause=pause, monotonic_clock=6, set_signal_mask=3, faults=faults)
    return Platform(threads=False)


def pool_module(triple: str, platform: Platform | None = None) -> str:
    """The pool for a target triple, as the text of an LLVM module."""
    platform = platform or platform_of(triple)
    header = f'target triple = "{triple}"\n'
    if not platform.threads:
        return header + SERIAL
    pause, declaration = _pause(platform)
    text = "".join(
        (
            STATE,
            REGION,
            WORKER,
            CONDITION_PARKING if platform.futex is None else FUTEX_PARKING,
            AFFINITY if platform.affinity else NO_AFFINITY,
            LIFE,
            declaration,
        )
    )
    keep_faults = "\n".join(
        f"  call i32 @sigdelset(ptr %blocked, i32 {number})" for number in platform.faults
    )
    return header + Template(text).substitute(
        most_workers=MOST_THREADS - 1,
        most_stretches=MOST_STRETCHES,
        invalid=INVALID,
        pause=pause,
        futex=platform.futex,
        clock=platform.monotonic_clock,
        set_signal_mask=platform.set_signal_mask,
        keep_faults=keep_faults,
    )


def _pause(platform: Platform) -> tuple[str, str]:
    """The instruction that says "I spin", and its declaration."""
    if platform.pause is None:
        return "", ""
    declared = platform.pause.replace("i32 1", "i32 immarg")
    return f"call void {platform.pause}", f"declare void {declared}\n"
