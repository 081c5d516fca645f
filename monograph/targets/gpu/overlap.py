"""Kernels that begin while the one before them ends: they load weights, then wait.

    gdc_launch_dependents()        the next kernel may begin when all programs of this one have
    weights = tl.load(b2 + …)      nobody writes weights: they are read at once
    gdc_wait()                     from here on, what kernels before have written is there
    x = tl.load(b0 + …)

A step of a language model is a chain of short kernels, and each of them would otherwise begin to
read its weights when the one before has ended (programmatic dependent launch, from sm_90 on). Every
kernel that begins early waits for the whole of the one before, so that all earlier ones are done.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import replace

from monograph.targets.gpu.chip import Chip
from monograph.targets.gpu.source import TritonKernel

CONSTANT = "OVERLAP"
"""The constant of kernels that begin early; 0 where there is nothing to wait for, as on a host."""
MIN_ARCHITECTURE = 90
IMPORTS = "from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait\n"
_BUFFER = re.compile(r"tl\.(?:load|store)\((\w+) \+ ")
_STORE = re.compile(r"tl\.(?:store|atomic_\w+)\(")


def overlap(kernel: TritonKernel, weights: Set[str], chip: Chip) -> TritonKernel:
    """The kernel as one that loads weights before it waits, if it begins with loading them.

    ``weights`` are the buffers that nobody writes to while the program runs.
    """
    is_able = isinstance(chip.architecture, int) and chip.architecture >= MIN_ARCHITECTURE
    if not is_able or chip.backend != "cuda" or kernel.family != "rows" or kernel.checks:
        return kernel
    lines = kernel.source.splitlines()
    opening = max(k for k, line in enumerate(lines) if line.startswith(f"def {kernel.name}("))
    signature = next(k for k in range(opening, len(lines)) if lines[k].endswith("):"))
    body = [k for k in range(signature + 1, len(lines)) if not lines[k].lstrip().startswith("#")]
    accesses = [k for k in body if "tl.load(" in lines[k] or _STORE.search(lines[k])]
    waits = next(k for k in accesses if not _reads_weights(lines[k], weights))
    if waits == accesses[0] or not lines[waits].startswith("    ") or lines[waits][4] == " ":
        return kernel  # it begins with what others write, or inside a loop
    head = lines[: signature + 1]
    head[-1] = head[-1].replace("):", f", {CONSTANT}: tl.constexpr):")
    if head[-1].startswith(","):
        head[-1] = f"    {head[-1][2:]}"
    made = [
        *head,
        f"    if {CONSTANT}:",
        "        gdc_launch_dependents()",
        *lines[signature + 1 : waits],
        f"    if {CONSTANT}:",
        "        gdc_wait()",
        *lines[waits:],
    ]
    source = "\n".join(made).replace(
        "import triton.language as tl\n", f"import triton.language as tl\n{IMPORTS}", 1
    )
    return replace(kernel, source=source + "\n", blocks={**kernel.blocks, CONSTANT: 1})


def _reads_weights(line: str, weights: Set[str]) -> bool:
    """Whether all that a line reads are weights, and it writes nothing."""
    if _STORE.search(line):
        return False
    read = _BUFFER.findall(line)
    return len(read) == line.count("tl.load(") and all(buffer in weights for buffer in read)


def begins_early(kernel: TritonKernel) -> bool:
    """Whether it may be launched before the kernel before it has ended."""
    return bool(kernel.blocks.get(CONSTANT))
