"""What this machine can do at best, measured: bytes a second from each memory, and FLOP a second.

Loops of generated code (``stream_kernels``) are timed once, on as many threads as programs use, and
the figures are kept in the disk cache. A kernel's place on the roofline is what it reached of the
lower of two roofs: its arithmetic at the peak, or its bytes at the rate of the memory that holds
them.

    >>> roofline = measured_roofline()
    >>> roofline.place(flops=2 * 10**9, traffic=[(3 * 10**7, 3 * 10**7)], seconds=0.02)

A busy machine measures less than it can do, which makes kernels look better: ``again=True``
measures anew and keeps the higher figure of each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import TypeAlias

import numpy as np

from monograph.config import Config
from monograph.dataclass import dataclass
from monograph.inspect.stream_kernels import ARRAYS_MOVED, STEP, StreamKernels
from monograph.ir.types import Array
from monograph.program.records import exactly, require_type
from monograph.progress import announce
from monograph.runtime.bundle import Bundle, Json
from monograph.runtime.cache import cache_key, open_cache
from monograph.targets.cpu.machine import Machine, host

ROUNDS = 12
"""Turns of each loop; the best counts."""
TURN_BYTES = 1 << 27
"""About how much a stream moves in a turn, so that starting the threads costs little of it."""
TURN_LENGTH = 1 << 17
"""Vectors that each thread multiplies in a turn: about a millisecond."""
LINE = 64


Traffic: TypeAlias = "Sequence[tuple[int, int]]"
"""Bytes that a kernel moves, each with the bytes that a memory has to hold for them to be there:
weights are there again in the next call only if all of a program's weights are."""


@dataclass(frozen=True)
class MemoryLevel:
    """A cache, or memory: the bytes that it holds (None: any number) and bytes a second from it."""

    name: str
    holds: int | None
    bandwidth: float


@dataclass(frozen=True)
class Placement:
    """Where a kernel stands: which roof is lowest for it, and what it reached of that."""

    bound: str
    """``compute``, or the name of the memory that its bytes come from."""
    reached: float
    """Its speed over the roof's; above 1 where bytes came from a nearer memory than was assumed."""
    intensity: float
    """FLOP for each byte."""
    flops_per_second: float
    bytes_per_second: float


@dataclass(frozen=True)
class Roofline:
    """The roofs of this machine, with so many threads."""

    machine: str
    threads: int
    flops: float
    """Products and sums of f32 a second."""
    levels: tuple[MemoryLevel, ...]
    """The nearest first; the last is memory."""

    @property
    def bandwidth(self) -> float:
        """Bytes a second to and from memory: a copy that stores past the cache."""
        return self.levels[-1].bandwidth

    def level(self, nbytes: int) -> MemoryLevel:
        """The nearest memory that holds so many bytes."""
        fitting = (each for each in self.levels if each.holds is None or nbytes <= each.holds)
        return next(fitting)

    def floor(self, flops: int, traffic: Traffic) -> tuple[float, str]:
        """The least seconds for this work, and which roof says so."""
        taken: dict[str, float] = {}
        for nbytes, held in traffic:
            level = self.level(held)
            taken[level.name] = taken.get(level.name, 0.0) + nbytes / level.bandwidth
        moving, computing = sum(taken.values()), flops / self.flops
        if computing >= moving:
            return computing, "compute"
        return moving, max(taken, key=lambda name: taken[name])

    def place(self, flops: int, traffic: Traffic, seconds: float) -> Placement | None:
        """Where a kernel stands that took so long; None for one that does nothing measurable."""
        least, bound = self.floor(flops, traffic)
        if not least or not seconds:
            return None
        nbytes = sum(moved for moved, _ in traffic)
        return Placement(
            bound,
            least / seconds,
            flops / nbytes if nbytes else float("inf"),
            flops / seconds,
            nbytes / seconds,
        )

    def highest(self, other: Roofline) -> Roofline:
        """The higher rate of two measurements for each: noise only ever lowers them."""
        pairs = zip(self.levels, other.levels, strict=True)
        levels = tuple(max(pair, key=lambda each: each.bandwidth) for pair in pairs)
        return Roofline(self.machine, self.threads, max(self.flops, other.flops), levels)

    def as_json(self) -> dict[str, Json]:
        """The figures as plain dictionaries and lists."""
        written: dict[str, Json] = asdict(self)
        return written | {"levels": [asdict(each) for each in self.levels]}

    def __str__(self) -> str:
        rates = ", ".join(f"{each.name} {each.bandwidth / 1e9:.3g} GB/s" for each in self.levels)
        return f"{self.flops / 1e9:.3g} GFLOP/s (f32), {rates}, with {threads(self.threads)}"


def threads(count: int) -> str:
    """``1 thread``, ``2 threads``."""
    return f"{count} thread" if count == 1 else f"{count} threads"


def load_or_measure_roofline(count: int | None = None, *, again: bool = False) -> Roofline:
    """This machine's roofs with so many threads, from the disk cache if they were measured before.

    Measuring takes about a second. ``again`` measures in any case, and keeps the best of both.
    """
    config = Config.from_environment()
    number = count or config.threads
    machine = host()
    cache = open_cache(config)
    key = cache_key({"roofline": "4", "machine": repr(machine), "threads": str(number)})
    stored = None if cache is None else cache.get(key)
    known = None if stored is None else _read(stored.manifest)
    if known is not None and not again:
        return known
    found = measure_roofline(number, machine)
    if known is not None:
        found = found.highest(known)
    if cache is not None:
        about: Json = {"kind": "roofline", "target": machine.cpu}
        cache.put(key, Bundle({**found.as_json(), "about": about}))
    return found


def _read(manifest: object) -> Roofline:
    given = require_type(manifest, dict)
    levels = [require_type(each, dict) for each in exactly(given["levels"], 3)]
    return Roofline(
        given["machine"],
        given["threads"],
        given["flops"],
        tuple(MemoryLevel(each["name"], each["holds"], each["bandwidth"]) for each in levels),
    )


def measure_roofline(
    count: int, machine: Machine | None = None, *, rounds: int = ROUNDS
) -> Roofline:
    """Time every loop on so many threads, by turns, and keep the best of each."""
    machine = machine or host()
    kernels = StreamKernels()
    # A third of a cache: three arrays, and room for what else is there.
    sizes = {
        "L2": ("cached_triad", machine.l2 // 2),
        "L3": ("cached_triad", machine.l3 // 2 // count),
        "memory": ("copy", max(8 * machine.l3, TURN_BYTES) // count),
    }
    best = dict.fromkeys(sizes, 0.0)
    flops = 0.0
    with ThreadPoolExecutor(count) as pool:
        memory = {name: _arrays(kernel, size, count) for name, (kernel, size) in sizes.items()}
        for number in range(rounds):
            announce("measuring the machine", number, rounds)
            for name, (kernel, _) in sizes.items():
                rate = _stream_rate(pool, kernels.kernels[kernel], memory[name])
                best[name] = max(best[name], rate * ARRAYS_MOVED[kernel])
            flops = max(flops, _flop_rate(pool, kernels, memory["L2"]))
    holds = {"L2": machine.l2 * count, "L3": machine.l3, "memory": None}
    levels = tuple(MemoryLevel(name, holds[name], best[name]) for name in sizes)
    return Roofline(f"{machine.triple} ({machine.cpu})", count, flops, levels)


def _arrays(kernel: str, nbytes: int, count: int) -> list[list[Array]]:
    """For each thread the arrays that a stream moves, so many bytes together, and those unused."""
    moved = ARRAYS_MOVED[kernel]
    length = nbytes // moved // 4 // STEP * STEP
    return [
        [
            _allocate_aligned(length),
            _allocate_aligned(length),
            _allocate_aligned(length if moved > 2 else STEP),
        ]
        for _ in range(count)
    ]


def _allocate_aligned(length: int) -> Array:
    """Ones that begin at a line of the cache, as vector stores require."""
    room = np.ones(length + LINE // 4, np.float32)
    skipped = -room.ctypes.data % LINE // 4
    return room[skipped : skipped + length]


def _stream_rate(
    pool: ThreadPoolExecutor, kernel: Callable[..., None], arrays: Sequence[Sequence[Array]]
) -> float:
    """Bytes a second, of each array that is moved, of one turn on all threads."""
    nbytes = arrays[0][0].nbytes
    times = max(1, TURN_BYTES // nbytes)
    seconds, _ = _turn(pool, kernel, arrays, arrays[0][0].size, times)
    return nbytes * times * len(arrays) / seconds


def _flop_rate(
    pool: ThreadPoolExecutor, kernels: StreamKernels, arrays: Sequence[Sequence[Array]]
) -> float:
    """Cores do not share their arithmetic: each thread counts the time that it had a processor."""
    _, spent = _turn(pool, kernels.kernels["multiply"], arrays, TURN_LENGTH, 10)
    return sum(kernels.flops(TURN_LENGTH) * 10 / seconds for seconds in spent)


def _turn(
    pool: ThreadPoolExecutor,
    kernel: Callable[..., None],
    arrays: Sequence[Sequence[Array]],
    length: int,
    times: int,
) -> tuple[float, list[float]]:
    """Seconds of a kernel that runs on every thread at once, and what each had a processor for."""
    addresses = [[each.ctypes.data for each in own] for own in arrays]

    def run(own: Sequence[int]) -> float:
        started = time.thread_time()
        kernel(*own, length, times)
        return time.thread_time() - started

    started = time.perf_counter()
    spent = list(pool.map(run, addresses))
    return time.perf_counter() - started, spent
