"""What this machine can do, measured: streams of reads and writes, and products and sums.

The kernels are those of ``monograph.inspect.stream_kernels``. Two threads run them over arrays far
larger than the cache; what multiplies does so in registers alone. What is read lies
where a workload's inputs do, in memory that torch has allocated: on small pages, which are read
more slowly than huge ones. What is written may lie on huge ones, as a contender's outputs may. A
workload's floor in seconds is its bytes at the measured rate of the stream with the nearest share
of writes, or its products and sums at the rate of those, whichever is longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy
import numpy.typing

from monograph.inspect.stream_kernels import STEP, StreamKernels

MEBIBYTES = 128
LINE = 64
ITERATIONS = 1 << 20
"""How many vectors each thread multiplies."""

Array = numpy.typing.NDArray[numpy.float32]


@dataclass(frozen=True)
class Ceiling:
    """Bytes a second of each stream: reading only, two reads to a write, one read to a write.

    ``flops`` are the products and sums of f32 a second.
    """

    read: float
    triad: float
    copy: float
    flops: float = 0.0

    def highest(self, other: Ceiling) -> Ceiling:
        """The higher rate of two measurements for each: noise only ever lowers them."""
        return Ceiling(
            max(self.read, other.read),
            max(self.triad, other.triad),
            max(self.copy, other.copy),
            max(self.flops, other.flops),
        )

    def seconds(self, read_bytes: int, written_bytes: int) -> float:
        """The least time in which this machine moves that many bytes."""
        total = read_bytes + written_bytes
        if not total:
            return 0.0
        share = written_bytes / total
        cost = numpy.interp(
            share, (0, 1 / 3, 1 / 2), (1 / self.read, 1 / self.triad, 1 / self.copy)
        )
        return float(total * cost)

    def floor(self, read_bytes: int, written_bytes: int, flops: int) -> float:
        """The least time in which this machine moves the bytes and does the arithmetic."""
        arithmetic = flops / self.flops if self.flops else 0.0
        return max(self.seconds(read_bytes, written_bytes), arithmetic)


def cache_bytes() -> int:
    """The size of the last level of cache, or 32 MiB where the system does not tell."""
    folder = Path("/sys/devices/system/cpu/cpu0/cache")
    sizes = [path.read_text().strip() for path in folder.glob("index*/size")]
    kibibytes = [int(size.removesuffix("K")) for size in sizes if size.endswith("K")]
    return max(kibibytes, default=32 * 1024) * 1024


def measure(threads: int, rounds: int = 15, mebibytes: int = MEBIBYTES) -> Ceiling:
    """Time each stream by turns and keep the best of each."""
    library = StreamKernels()
    count = mebibytes * 2**20 // 4
    arrays = [_aligned(count), _as_inputs_lie(count), _as_inputs_lie(count)]
    rates = {"read": 0.0, "triad": 0.0, "copy": 0.0}
    streams = {"read": 1, "triad": 3, "copy": 2}
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(rounds):
            for name, arrays_moved in streams.items():
                seconds = _time(pool, library.kernels[name], arrays, threads)
                rates[name] = max(rates[name], arrays_moved * arrays[0].nbytes / seconds)
        flops = max(_flops(pool, library, arrays, threads) for _ in range(rounds))
    return Ceiling(**rates, flops=flops)


def _flops(
    pool: ThreadPoolExecutor, library: StreamKernels, arrays: list[Array], threads: int
) -> float:
    """Products and sums a second, of one short run on each thread."""
    addresses = [each.ctypes.data for each in arrays]
    begin = time.perf_counter()
    list(pool.map(lambda _: library.kernels["multiply"](*addresses, ITERATIONS, 1), range(threads)))
    seconds = time.perf_counter() - begin
    return threads * library.flops(ITERATIONS) / seconds


def _aligned(count: int) -> Array:
    """Ones that begin at a line of the cache, as vector stores require."""
    room = numpy.ones(count + LINE // 4, numpy.float32)
    skipped = -room.ctypes.data % LINE // 4
    return room[skipped : skipped + count]


def _as_inputs_lie(count: int) -> Array:
    """Ones in torch's memory, which begins at a line of the cache."""
    import torch

    found: Array = torch.ones(count).numpy()
    return found


def _time(
    pool: ThreadPoolExecutor,
    kernel: Callable[..., None],
    arrays: list[Array],
    threads: int,
) -> float:
    part = arrays[0].size // threads // STEP * STEP
    starts = [index * part * 4 for index in range(threads)]
    addresses = [[each.ctypes.data + start for each in arrays] for start in starts]
    begin = time.perf_counter()
    list(pool.map(lambda pointers: kernel(*pointers, part, 1), addresses))
    return time.perf_counter() - begin
