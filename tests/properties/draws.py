"""Which random graphs a run draws: the same ones each time, or others by night.

Seeds are numbers in the tests. ``MONOGRAPH_TEST_SEED`` moves them all, so that a nightly run looks
where none looked before, and its number draws the same graphs again.
"""

from __future__ import annotations

import os

VARIABLE = "MONOGRAPH_TEST_SEED"


def seed_of(number: int) -> int:
    """The seed that a test's number stands for in this run."""
    return number + int(os.environ.get(VARIABLE, "0"))
