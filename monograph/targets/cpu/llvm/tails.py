"""Tails of vector loops: how the elements that fill no whole vector are read and written.

There are four ways, chosen here and nowhere else, for any number of lanes and any element size:

``NONE``     the extent is a multiple of the width
``SHORTER``  a known rest, as ever shorter vectors with no mask: 7 of 8 lanes are 4 + 2 + 1
``OVERLAP``  one more whole vector that ends with the loop, and computes some elements twice
``MASKED``   one vector under a mask: lanes beyond the end are neither read nor written

What may be touched follows from it: no way reads or writes an element outside the loop's range,
but for the loads of buffers that a nest declares ``padded`` to whole vectors. ``OVERLAP`` needs an
extent of at least one vector, nothing that a second visit would change (accumulators, reads of what
is written), and output memory of its own.

A mask is computed from a count that LLVM cannot see through. With a constant mask of one lane it
turns a masked store of truncated lanes into a scalar store of the lane *before* truncation: four
bytes where a bf16 belongs (LLVM 22, processors with AVX-512).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Min
from monograph.kernel.expr import Load, walk
from monograph.targets.cpu.llvm.assembly import Builder, Lanes
from monograph.targets.cpu.llvm.combining import find_accumulators
from monograph.targets.cpu.nests.loop_nest import Let, Loop, Prefetch, Write

MAX_SHORTER_VECTORS = 5
"""Shorter vectors that a rest is split into, each of them with its own code."""
MAX_REPEATED_EXPRESSIONS = 48
"""Expressions in a loop body up to which it may be written out once more for its last elements."""


class TailKind(Enum):
    """How what is left over is computed."""

    NONE = "none"
    SHORTER = "shorter vectors"
    OVERLAP = "overlapping vector"
    MASKED = "masked vector"


@dataclass(frozen=True)
class Tail:
    """The way that a loop ends; ``widths`` are those of its shorter vectors."""

    kind: TailKind
    widths: tuple[int, ...] = ()
    or_masked: bool = False
    """Whether an overlapping loop may turn out shorter than a vector, and is masked then."""


def tail_of(loop: Loop, loads: Iterable[Load], *, aliased: bool, head: bool) -> Tail:
    """How a vector loop ends.

    ``loads`` are those of its body. ``aliased`` says that an output may lie in an input's memory,
    and ``head`` that the first elements are computed apart, so that whole vectors begin at cache
    lines, which are written past the cache and would have to come back.
    """
    if isinstance(loop.extent, int) and loop.extent % loop.width == 0 and not head:
        return Tail(TailKind.NONE)
    widths = () if find_accumulators(loop.body) else _shorter_widths(loop)
    if widths:
        return Tail(TailKind.SHORTER, widths)
    if aliased or head or not _may_repeat(loop, loads):
        return Tail(TailKind.MASKED)
    return Tail(TailKind.OVERLAP, or_masked=not is_at_least(loop.extent, loop.width))


def _may_repeat(loop: Loop, loads: Iterable[Load]) -> bool:
    """Whether the last elements may be computed twice, which spares a mask.

    Masked stores take several times as long. Nothing may be read that the loop changes, and where
    the loop may be shorter than a vector, so that both ways are needed, it is a small one.
    """
    if not is_at_least(loop.extent, loop.width, possibly=True):
        return False
    if not all(isinstance(each, Let | Write | Prefetch) for each in loop.body):
        return False
    written = {each.buffer.name for each in loop.body if isinstance(each, Write)}
    if any(load.buffer.name in written for load in loads):
        return False
    if is_at_least(loop.extent, loop.width):
        return True
    roots = tuple(each.value for each in loop.body if isinstance(each, Let | Write))
    return len(list(walk(roots))) <= MAX_REPEATED_EXPRESSIONS


def _shorter_widths(loop: Loop) -> tuple[int, ...]:
    """What a loop of loops leaves over as ever shorter vectors, if that is known.

    A mask would be applied to every element that the loops inside it read.
    """
    if not any(isinstance(each, Loop) for each in loop.body):
        return ()
    rest = rest_of_extent(loop.extent, loop.width)
    widths = tuple(1 << k for k in reversed(range(rest.bit_length())) if rest >> k & 1)
    return widths if len(widths) <= MAX_SHORTER_VECTORS else ()


def rest_of_extent(extent: Dim, width: int) -> int:
    """How many elements a loop leaves over for whole vectors: always as many, or none; else 0.

    Tiles of one vector, of which the last is shorter, have an extent ``min(width, n - width*t)``.
    """
    if isinstance(extent, int):
        return extent % width
    left: Dim = extent
    if isinstance(extent, Min) and len(extent.arguments) == 2 and width in extent.arguments:
        (left,) = (each for each in extent.arguments if each != width)
    if isinstance(left, int):
        return left % width
    if any(factor % width for atoms, factor in left.terms() if atoms):
        return 0
    return sum(factor for atoms, factor in left.terms() if not atoms) % width


def tail_mask(b: Builder, count: Lanes, width: int) -> Lanes:
    """A mask of the first ``count`` lanes, which no optimisation may find to be constant."""
    narrow = b.convert("trunc", count, "i32")
    opaque = b.assign("i32", 1, f'call i32 asm "", "=r,0"({narrow})')
    lanes = ", ".join(f"i32 {k}" for k in range(width))
    return b.compare("icmp slt", Lanes(f"<{lanes}>", "i32", width), b.splat(opaque, width))


def is_at_least(extent: Dim, size: int, possibly: bool = False) -> bool:
    """Whether an extent always (or possibly) reaches a size."""
    if isinstance(extent, int):
        return extent >= size
    lower, upper = extent.bounds()
    if possibly:
        return upper is None or upper >= size
    return lower is not None and lower >= size
