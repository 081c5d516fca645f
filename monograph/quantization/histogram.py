"""Histograms whose bins can be merged exactly: equal bins between two powers of two.

The bins divide [-limit, limit) evenly and ``limit`` is a power of two. Doubling it joins bins in
pairs, so histograms of batches, and of whole profiles, add up to the histogram of all of them.
"""

from __future__ import annotations

import math
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.ir.types import Array

BINS = 4096
MIN_EXPONENT = -100
"""The limit of numbers that are all zero, or next to it, is two to this power."""
MAX_EXPONENT = 127
"""The widest limit is two to this power, which f32 holds; larger numbers are in the outer bins."""


@dataclass(frozen=True, eq=False)
class Histogram:
    """How many numbers fell into each of ``BINS`` bins of [-limit, limit)."""

    limit: float
    counts: npt.NDArray[np.int64]

    @property
    def edges(self) -> Array:
        """The bounds of the bins, one more than there are bins."""
        return np.linspace(-self.limit, self.limit, BINS + 1)

    @property
    def centres(self) -> Array:
        """The middle of each bin."""
        edges = self.edges
        middles: Array = (edges[1:] + edges[:-1]) / 2
        return middles

    def widened(self, limit: float) -> Histogram:
        """The same numbers in wider bins."""
        counts = self.counts
        for _ in range(round(math.log2(limit / self.limit))):
            quarter = BINS // 4
            joined = np.zeros_like(counts)
            joined[quarter : 3 * quarter] = counts.reshape(-1, 2).sum(1)
            counts = joined
        return Histogram(limit, counts)

    def merged(self, other: Histogram) -> Histogram:
        """The numbers of both."""
        limit = max(self.limit, other.limit)
        return Histogram(limit, self.widened(limit).counts + other.widened(limit).counts)

    def to_json(self) -> dict[str, Any]:
        """The bins from the first that is not empty to the last."""
        filled = np.flatnonzero(self.counts)
        first, last = (int(filled[0]), int(filled[-1]) + 1) if filled.size else (0, 0)
        return {"limit": self.limit, "first": first, "counts": self.counts[first:last].tolist()}

    @classmethod
    def from_json(cls, given: Any) -> Histogram:
        """What ``to_json`` wrote; anything else is an error."""
        if not isinstance(given, dict):
            raise _damage_error("an object with limit, first and counts", given)
        limit, first, listed = (given.get(key) for key in ("limit", "first", "counts"))
        if not _is_limit(limit):
            raise _damage_error("a power of two as the limit", limit)
        if type(first) is not int or not isinstance(listed, list):
            raise _damage_error("a first bin and a list of counts", first)
        if first < 0 or first + len(listed) > BINS:
            raise _damage_error(f"at most {BINS} bins", first + len(listed))
        if any(type(count) is not int or not 0 <= count < 1 << 62 for count in listed):
            raise _damage_error("counts of 0 or more", listed[:4])
        counts = np.zeros(BINS, np.int64)
        counts[first : first + len(listed)] = listed
        return cls(float(limit), counts)


def _is_limit(number: Any) -> TypeGuard[float]:
    """Whether a histogram may have this limit; a number of a file may be too large for a float."""
    if type(number) not in (int, float):
        return False
    if not 2.0**MIN_EXPONENT <= number <= 2.0**MAX_EXPONENT:
        return False
    return math.frexp(number)[0] == 0.5


def limit_for(largest: float) -> float:
    """The least power of two that no number exceeds, signs aside; at most the widest."""
    if largest <= 2.0**MIN_EXPONENT:
        return 2.0**MIN_EXPONENT
    fraction, exponent = math.frexp(largest)
    return 2.0 ** min(MAX_EXPONENT, exponent - (fraction == 0.5))


def _damage_error(expected: str, found: object) -> InputError:
    return InputError(
        "a histogram of this profile is damaged", expected=expected, found=repr(found)[:80]
    )
