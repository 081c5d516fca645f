"""GPUs by the names of their chips, and what compiling and planning must know of each."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.targets.gpu.measurements import Measurements


@dataclass(frozen=True)
class Chip:
    """A kind of GPU: how Triton calls it, and its sizes."""

    name: str
    backend: Literal["cuda", "hip"]
    architecture: int | str
    """As Triton names it: 90, or ``gfx942``."""
    warp: int
    """Threads that run in step."""
    multiprocessors: int
    shared_bytes: int
    """Shared memory that one program may have."""
    l2_bytes: int
    measured: Measurements = field(default_factory=Measurements, repr=False, compare=False)
    """What such a chip was measured to do, which overrules the cost model."""

    @property
    def triple(self) -> str:
        """As LLVM calls the system that code for it runs on."""
        return "nvptx64-nvidia-cuda" if self.backend == "cuda" else "amdgcn-amd-amdhsa"

    @property
    def code_suffix(self) -> str:
        """The kind of file that its machine code is."""
        return "cubin" if self.backend == "cuda" else "hsaco"


CHIPS: dict[str, Chip] = {
    chip.name: chip
    for chip in (
        Chip("sm_80", "cuda", 80, 32, 108, 163 << 10, 40 << 20),
        Chip("sm_86", "cuda", 86, 32, 84, 99 << 10, 6 << 20),
        Chip("sm_89", "cuda", 89, 32, 128, 99 << 10, 72 << 20),
        Chip("sm_90", "cuda", 90, 32, 132, 227 << 10, 50 << 20),
        Chip("sm_100", "cuda", 100, 32, 148, 227 << 10, 126 << 20),
        Chip("gfx942", "hip", "gfx942", 64, 304, 64 << 10, 4 << 20),
    )
}
"""A100, consumer Ampere, Ada, Hopper, Blackwell; and MI300, which is only compiled for."""


def chip_named(name: str) -> Chip:
    """The chip of that name."""
    if name not in CHIPS:
        raise InputError(
            f"{name!r} is not a GPU that code is made for",
            expected=", ".join(CHIPS),
            found=repr(name),
        )
    return CHIPS[name]
