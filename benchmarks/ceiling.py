"""What this machine can do, measured: streams of reads and writes, and products and sums.

Each kernel is a few lines of LLVM IR, compiled here: whole vectors, and stores that bypass the
cache, since an ordinary store first reads the line that it overwrites. Two threads run them over
arrays far larger than the cache; what multiplies does so in registers alone. What is read lies
where a workload's inputs do, in memory that torch has allocated: on small pages, which are read
more slowly than huge ones. What is written may lie on huge ones, as a contender's outputs may. A
workload's floor in seconds is its bytes at the measured rate of the stream with the nearest share
of writes, or its products and sums at the rate of those, whichever is longer.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy
import numpy.typing

MEBIBYTES = 128
LANES, UNROLL, LINE = 8, 4, 64
CHAINS, ITERATIONS = 12, 1 << 20
"""Products in flight at a time, enough to hide the latency of each; and how often."""

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
    library = _Kernels()
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


def _flops(pool: ThreadPoolExecutor, library: _Kernels, arrays: list[Array], threads: int) -> float:
    """Products and sums a second, of one short run on each thread."""
    addresses = [each.ctypes.data for each in arrays]
    begin = time.perf_counter()
    list(pool.map(lambda _: library.kernels["multiply"](*addresses, ITERATIONS), range(threads)))
    seconds = time.perf_counter() - begin
    return 2 * threads * CHAINS * library.lanes * ITERATIONS / seconds


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
    part = arrays[0].size // threads // (LANES * UNROLL) * (LANES * UNROLL)
    starts = [index * part * 4 for index in range(threads)]
    addresses = [[each.ctypes.data + start for each in arrays] for start in starts]
    begin = time.perf_counter()
    list(pool.map(lambda pointers: kernel(*pointers, part), addresses))
    return time.perf_counter() - begin


class _Kernels:
    """The compiled kernels; they live as long as this does."""

    def __init__(self) -> None:
        import llvmlite.binding as llvm

        from monograph.targets.cpu.machine import host

        self.lanes = host().vector_bytes // 4
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
        )
        streams = ("read", "triad", "copy")
        source = [*(_source(name) for name in streams), _multiply_source(self.lanes)]
        module = llvm.parse_assembly("\n".join(source))
        self.engine = llvm.create_mcjit_compiler(module, machine)
        self.engine.finalize_object()
        kind = ctypes.CFUNCTYPE(None, *(ctypes.c_void_p,) * 3, ctypes.c_int64)
        self.kernels = {
            name: kind(self.engine.get_function_address(name)) for name in (*streams, "multiply")
        }


def _source(name: str) -> str:
    """A loop over whole vectors of a (written), b and c (read); ``read`` writes one vector."""
    vector = f"<{LANES} x float>"
    body: list[str] = []
    sums = []
    for step in range(UNROLL):
        body.append(f"  %i{step} = add i64 %i, {step * LANES}")
        body += _load("b", step, vector)
        if name == "read":
            sums.append(f"  %s{step} = phi {vector} [zeroinitializer, %entry], [%t{step}, %loop]")
            body.append(f"  %t{step} = fadd {vector} %s{step}, %b{step}")
            continue
        value = f"%b{step}"
        if name == "triad":
            body += _load("c", step, vector)
            body.append(f"  %t{step} = fadd {vector} %b{step}, %c{step}")
            value = f"%t{step}"
        body.append(f"  %pa{step} = getelementptr float, ptr %a, i64 %i{step}")
        body.append(f"  store {vector} {value}, ptr %pa{step}, align 32, !nontemporal !0")
    end = ["  fence seq_cst"]
    if name == "read":
        end = [f"  %u0 = fadd {vector} %t0, %t1", f"  %u1 = fadd {vector} %t2, %t3"]
        end += [f"  %u = fadd {vector} %u0, %u1", f"  store {vector} %u, ptr %a, align 4"]
    return "\n".join(
        [
            f"define void @{name}(ptr %a, ptr noalias %b, ptr noalias %c, i64 %n) {{",
            "entry:",
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [0, %entry], [%next, %loop]",
            *sums,
            *body,
            f"  %next = add i64 %i, {LANES * UNROLL}",
            "  %more = icmp slt i64 %next, %n",
            "  br i1 %more, label %loop, label %done",
            "done:",
            *end,
            "  ret void",
            "}",
            "!0 = !{i32 1}" if name == "read" else "",
        ]
    )


def _multiply_source(lanes: int) -> str:
    """Chains of products and sums of what b and c begin with; their sum goes to a."""
    vector = f"<{lanes} x float>"
    fma = f"llvm.fma.v{lanes}f32"
    chains = range(CHAINS)
    sums = [f"  %s{k} = phi {vector} [zeroinitializer, %entry], [%t{k}, %loop]" for k in chains]
    steps = [
        f"  %t{k} = call {vector} @{fma}({vector} %b0, {vector} %c0, {vector} %s{k})"
        for k in chains
    ]
    total = [
        f"  %u{k} = fadd {vector} {f'%u{k - 1}' if k else 'zeroinitializer'}, %t{k}" for k in chains
    ]
    return "\n".join(
        [
            f"declare {vector} @{fma}({vector}, {vector}, {vector})",
            "define void @multiply(ptr %a, ptr %b, ptr %c, i64 %n) {",
            "entry:",
            "  %i0 = add i64 0, 0",
            *_load("b", 0, vector),
            *_load("c", 0, vector),
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [0, %entry], [%next, %loop]",
            *sums,
            *steps,
            "  %next = add i64 %i, 1",
            "  %more = icmp slt i64 %next, %n",
            "  br i1 %more, label %loop, label %done",
            "done:",
            *total,
            f"  store {vector} %u{CHAINS - 1}, ptr %a, align 4",
            "  ret void",
            "}",
        ]
    )


def _load(array: str, step: int, vector: str) -> list[str]:
    return [
        f"  %p{array}{step} = getelementptr float, ptr %{array}, i64 %i{step}",
        f"  %{array}{step} = load {vector}, ptr %p{array}{step}, align 4",
    ]
