"""Every option that comes from the environment, typed and documented in one place."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import field
from typing import Literal, TypeVar

from monograph.cpu_quota import cpu_quota
from monograph.dataclass import dataclass
from monograph.errors import InputError

T = TypeVar("T")

MOST_THREADS = 1024
"""The most threads that a program may use."""

VECTOR_BYTES = (16, 32, 64)
"""The sizes of vector that a processor may be said to have."""
VECTOR_REGISTERS = (16, 32)
"""The numbers of vector registers that a processor may be said to have."""
MATRIX_TILES: tuple[Literal["off"], Literal["emulated"]] = ("off", "emulated")
"""What may be said of a processor's matrix unit: that it has none, or as if it had one."""
FENCES: tuple[Literal["begin"], Literal["end"]] = ("begin", "end")
"""The sides of memory that fences may be put up at."""


def processor_count() -> int:
    """How many processors this process may run on, which may be fewer than the machine has.

    Its affinity says which ones, and a container's quota how much of their time.
    """
    if hasattr(os, "sched_getaffinity"):
        found = len(os.sched_getaffinity(0))
    else:
        found = os.cpu_count() or 1
    return min(found, cpu_quota() or found, MOST_THREADS)


@dataclass(frozen=True)
class Config:
    """Settings that hold for the whole process.

    ========================  ==================================================================
    ``MONOGRAPH_VERIFY=1``    check graphs after every pass, memory plans and accesses
    ``MONOGRAPH_DUMP=dir``    write every stage (the graph after each pass, the groups, the code)
                              to numbered files in ``dir``
    ``MONOGRAPH_TARGET=name`` compile for this target (``cpu:aarch64``); this machine's processor
                              unless it is set
    ``MONOGRAPH_TF32=1``      on a GPU, multiply f32 with 10 bits of precision, which is faster
    ``MONOGRAPH_GPU_TIMES``   a file of what was measured on a GPU, which decides there between
                              libraries and kernels of ours, also where there is no GPU
    ``MONOGRAPH_THREADS=n``   use at most ``n`` threads; see below if it is not set
    ``MONOGRAPH_CACHE=0``     keep no compiled programs on disk, and use none
    ``MONOGRAPH_CACHE_DIR``   the folder for them; the user's cache folder unless it is set
    ``MONOGRAPH_VARIANTS=n``  keep programs for at most ``n`` of the sizes that come back to a
                              program with symbolic ones: 4 unless it is set, 0 for none
    ``MONOGRAPH_TIMEOUT=s``   seconds that a call may take, unless it has a limit of its own
    ``MONOGRAPH_LOG=stages``  log what these stages do, ``passes,+fusion`` (``monograph.logs``)
    ========================  ==================================================================

    How many threads a call uses is said by the first of these that says it: ``threads=`` where a
    model is compiled; ``MONOGRAPH_THREADS``; for models from torch, ``torch.set_num_threads`` (as
    it is when the model is compiled); ``OMP_NUM_THREADS``; and else the processors that the process
    may run on, by its affinity and its container's quota.

    Four are for testing. Three of them replace what is known of this processor, so that any machine
    compiles as others do: LLVM splits vectors that are wider than the processor's. The last one
    makes code that leaves its memory end the process (``runtime.cpu.fences``); it is slow.

    ================================  ==========================================================
    ``MONOGRAPH_VECTOR_BYTES=n``      vectors have 16, 32 or 64 bytes; as many as the
                                      processor's unless it is set
    ``MONOGRAPH_VECTOR_REGISTERS=n``  there are 16 or 32 vector registers; likewise
    ``MONOGRAPH_MATRIX_TILES=how``    ``off``: multiply bytes without the processor's matrix unit
                                      (AMX); ``emulated``: as if it had one
    ``MONOGRAPH_FENCES=side``         what a call reads or writes begins, or ends, at memory that
                                      may not be touched: ``begin`` or ``end``
    ================================  ==========================================================
    """

    verify: bool = False
    dump: str | None = None
    target: str | None = None
    tf32: bool = False
    gpu_times: str | None = None
    threads: int = field(default_factory=processor_count)
    cache: bool = True
    cache_dir: str | None = None
    variants: int = 4
    timeout: float | None = None
    vector_bytes: int | None = None
    vector_registers: int | None = None
    matrix_tiles: Literal["off", "emulated"] | None = None
    fences: Literal["begin", "end"] | None = None

    @staticmethod
    def from_environment(environment: Mapping[str, str] = os.environ) -> Config:
        """Read the ``MONOGRAPH_*`` variables; an unknown one is an error: it would do nothing."""
        known = {
            *("MONOGRAPH_VERIFY", "MONOGRAPH_DUMP", "MONOGRAPH_TARGET", "MONOGRAPH_THREADS"),
            *("MONOGRAPH_CACHE", "MONOGRAPH_CACHE_DIR", "MONOGRAPH_TIMEOUT", "MONOGRAPH_VARIANTS"),
            *("MONOGRAPH_VECTOR_BYTES", "MONOGRAPH_VECTOR_REGISTERS", "MONOGRAPH_FENCES"),
            *("MONOGRAPH_LOG", "MONOGRAPH_TF32", "MONOGRAPH_GPU_TIMES", "MONOGRAPH_MATRIX_TILES"),
        }
        unknown = [
            name for name in environment if name.startswith("MONOGRAPH_") and name not in known
        ]
        if unknown:
            raise InputError(f"{unknown[0]} is not a setting", expected=", ".join(sorted(known)))
        return Config(
            verify=_flag("MONOGRAPH_VERIFY", environment),
            dump=environment.get("MONOGRAPH_DUMP") or None,
            target=environment.get("MONOGRAPH_TARGET") or None,
            tf32=allows_tf32(environment),
            gpu_times=environment.get("MONOGRAPH_GPU_TIMES") or None,
            threads=_threads("MONOGRAPH_THREADS", environment),
            cache=_flag("MONOGRAPH_CACHE", environment, default="1"),
            cache_dir=environment.get("MONOGRAPH_CACHE_DIR") or None,
            variants=_count("MONOGRAPH_VARIANTS", environment, default=4),
            timeout=timeout_setting(environment),
            vector_bytes=_one_of("MONOGRAPH_VECTOR_BYTES", environment, VECTOR_BYTES),
            vector_registers=_one_of("MONOGRAPH_VECTOR_REGISTERS", environment, VECTOR_REGISTERS),
            matrix_tiles=_one_of("MONOGRAPH_MATRIX_TILES", environment, MATRIX_TILES),
            fences=_one_of("MONOGRAPH_FENCES", environment, FENCES),
        )


def allows_tf32(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether ``MONOGRAPH_TF32`` is set, which is asked before each product of a library."""
    return _flag("MONOGRAPH_TF32", environment)


def timeout_setting(environment: Mapping[str, str]) -> float | None:
    """The seconds of ``MONOGRAPH_TIMEOUT``; None if it is not set."""
    text = environment.get("MONOGRAPH_TIMEOUT", "").strip()
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if seconds > 0:
        return seconds
    expected = "a number of seconds above 0"
    raise InputError("MONOGRAPH_TIMEOUT is not a time", expected=expected, found=repr(text))


def _flag(name: str, environment: Mapping[str, str], default: str = "0") -> bool:
    text = environment.get(name, default).strip().lower()
    if text in ("1", "true", "yes", "on"):
        return True
    if text in ("0", "false", "no", "off", ""):
        return False
    raise InputError(f"{name} is not a yes or no", expected="1 or 0", found=repr(text))


def _one_of(name: str, environment: Mapping[str, str], choices: tuple[T, ...]) -> T | None:
    text = environment.get(name, "").strip()
    if not text:
        return None
    for choice in choices:
        if text == str(choice):
            return choice
    expected = ", ".join(map(str, choices[:-1])) + f" or {choices[-1]}"
    raise InputError(f"{name} is not one of its values", expected=expected, found=repr(text))


def _openmp_threads(environment: Mapping[str, str]) -> int | None:
    """What ``OMP_NUM_THREADS`` says of outermost loops; what is no number is ignored there too."""
    text = environment.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if not text.isdecimal() or len(text) > 4 or not int(text):
        return None
    return min(int(text), MOST_THREADS)


def _threads(name: str, environment: Mapping[str, str]) -> int:
    text = environment.get(name, "").strip()
    if not text:
        return _openmp_threads(environment) or processor_count()
    if text.isdecimal() and len(text) < 5 and 1 <= int(text) <= MOST_THREADS:
        return int(text)
    expected = f"a whole number from 1 to {MOST_THREADS}"
    raise InputError(f"{name} is not a number of threads", expected=expected, found=repr(text))


def _count(name: str, environment: Mapping[str, str], default: int) -> int:
    text = environment.get(name, "").strip()
    if not text:
        return default
    if text.isascii() and text.isdecimal() and len(text) < 10:
        return int(text)
    raise InputError(f"{name} is not a count", expected="a whole number, 0 or more", found=text)
