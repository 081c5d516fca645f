"""How right an answer is, in the four words that the project uses.

An answer in float32 is held against the same computation in float64, beside the framework's own
answer: its error may be at most twice the framework's (three times for few elements or narrow
types), plus a rounding. Errors are norms: ‖got − reference‖ / ‖reference‖.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

ROUNDING = 1.2e-7
FEW = 1000
USELESS = 1e-3
"""With a larger error of eager itself, its float64 twin computes something else: no reference."""


class Word(IntEnum):
    """What may be said of an answer, from best to worst."""

    EXACT = 0
    MORE_ACCURATE = 1
    WITHIN_ROUNDING = 2
    WRONG = 3

    def __str__(self) -> str:
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True)
class Verdict:
    """The word for an answer, its error and the framework's, and what was wrong."""

    word: Word
    error: float
    eager_error: float
    reason: str = ""

    def about(self, what: str) -> Verdict:
        """The same, with a reason (if there is one) that says of what."""
        return replace(self, reason=f"{what}: {self.reason}") if self.reason else self


def judge(
    got: Array,
    eager: Array,
    reference: Array,
    *,
    narrow: bool = False,
    floor: float = 0.0,
    level: float = 0.0,
    spread: float = 0.0,
) -> Verdict:
    """Hold one answer against eager's and against the reference in double precision.

    ``floor`` is a size below which a difference does not count, whatever the reference's size:
    gradients that are zero in theory are noise in practice. ``level`` is eager's error elsewhere in
    the same model: on a few numbers it may be small by luck. ``spread`` is the largest of eager's
    errors here over several runs, where one says little.
    """
    if got.shape != eager.shape:
        return Verdict(Word.WRONG, np.inf, 0.0, f"shape {got.shape}, not {eager.shape}")
    if got.dtype != eager.dtype:
        return Verdict(Word.WRONG, np.inf, 0.0, f"dtype {got.dtype}, not {eager.dtype}")
    if np.array_equal(got, eager, equal_nan=got.dtype.kind == "f"):
        error = error_of(eager, reference, floor)
        return Verdict(Word.EXACT, error, error)
    finite = np.isfinite(eager)
    if not np.array_equal(np.isfinite(got), finite):
        count = int((np.isfinite(got) != finite).sum())
        return Verdict(Word.WRONG, np.inf, 0.0, f"{count} NaN or inf in other places")
    error, eager_error = error_of(got, reference, floor), error_of(eager, reference, floor)
    if eager_error > USELESS and not narrow:
        return Verdict(Word.WRONG, error, eager_error, "eager is no reference for itself")
    if error <= eager_error:
        return Verdict(Word.MORE_ACCURATE, error, eager_error)
    few = got.size < FEW
    allowed = (3 if few or narrow else 2) * max(eager_error, spread, level if few else 0.0)
    if error <= allowed + ROUNDING:
        return Verdict(Word.WITHIN_ROUNDING, error, eager_error)
    return Verdict(Word.WRONG, error, eager_error, f"error {error:.1e}, eager's {eager_error:.1e}")


def judge_all(
    got: Sequence[Array], eager: Sequence[Array], reference: Sequence[Array]
) -> list[Verdict]:
    """Verdicts on the outputs of one model."""
    level = max(error_of(*pair) for pair in zip(eager, reference, strict=True))
    triples = zip(got, eager, reference, strict=True)
    return [
        judge(*each, level=level).about(f"output {position}")
        for position, each in enumerate(triples)
    ]


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict on several answers: that on the worst of them."""
    return max(verdicts, key=lambda verdict: (verdict.word, verdict.error))


def error_of(got: Array, reference: Array, floor: float = 0.0) -> float:
    """The norm of the difference over that of the reference, where both are finite."""
    finite = np.isfinite(got) & np.isfinite(reference)
    exact = reference[finite].astype(np.float64)
    distance = float(np.linalg.norm(got[finite].astype(np.float64) - exact))
    size = max(float(np.linalg.norm(exact)), floor)
    return distance / size if size else (0.0 if distance == 0 else np.inf)
