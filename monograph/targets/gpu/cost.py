"""The GPU cost model: ranks and prunes kernel configurations by predicted time.

    time = launch + max(bytes / bandwidth, operations / rate) / how much of the chip is busy

Bytes are those of the distinct elements that a kernel touches. A chip is busy in waves: with 133
programs of which 132 run at a time, the second wave takes as long as the first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from monograph.dataclass import dataclass
from monograph.ir.dims import likely_size
from monograph.kernel.expr import Buffer

BYTES_IN_FLIGHT = 2 << 20
"""Loads under way at a time that bandwidth times latency asks for."""


@dataclass(frozen=True)
class Rates:
    """What a chip does in a microsecond, measured."""

    multiprocessors: int
    bandwidth: float
    """Bytes that a copy reads and writes in a microsecond."""
    tensor: float
    """Multiplications and additions of 16-bit floats on tensor cores."""
    shared_bytes: int
    """Shared memory of a multiprocessor."""
    launch: float
    """Microseconds from the end of a kernel to the first loads of the next, in a captured graph."""


H200 = Rates(132, 4.2e6, 7.0e8, 227 << 10, 2.0)


def buffer_bytes(buffers: Iterable[Buffer]) -> float:
    """Bytes of buffers, each read or written once."""
    return sum(math.prod(map(likely_size, x.shape)) * max(1, x.dtype.bits // 8) for x in buffers)


def memory_time(nbytes: float, programs: int, in_flight: float = 16384) -> float:
    """Microseconds of a kernel that so many bytes go through.

    ``in_flight`` is what a program has under way at a time; about 2 MiB on the whole chip are
    needed to hide the latency of memory.
    """
    busy = min(1.0, programs * in_flight / BYTES_IN_FLIGHT)
    return H200.launch + nbytes / (H200.bandwidth * busy)


def waves(programs: int, at_a_time: int) -> int:
    """How many times over the chip is filled with programs."""
    return -(-programs // max(1, at_a_time))
