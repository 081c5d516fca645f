"""Orthogonal polynomials whose degree is data: Chebyshev's, Hermite's, Laguerre's, Legendre's.

All follow pₖ₊₁ = (aₖ + bₖ x) pₖ - cₖ pₖ₋₁ from 1 and a first polynomial. Chebyshev polynomials of
high degree, on the interval where they oscillate, are sines and cosines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np

from monograph.dataclass import dataclass
from monograph.ir.build import Operand
from monograph.ir.graph import Value
from monograph.ir.lower import LoopBuilder
from monograph.ir.op import Sample, op
from monograph.ir.operators import function
from monograph.ir.types import Array, Kind, TensorType, f64
from monograph.ops import special_loops
from monograph.ops.elementwise.base import ELEMENTWISE, FLOATS, Binary, binary_float, in_double
from monograph.ops.rules import require


@dataclass(frozen=True)
class Recurrence:
    """A family: the first polynomial, and how (x, k, pₖ, pₖ₋₁) become the next.

    ``oscillation`` is a closed form of (angle, degree) where x is the cosine of the angle.
    """

    first: Callable[[Any], Any]
    following: Callable[[Any, Any, Any, Any], Any]
    oscillation: Callable[[Any, Any], Any] | None = None


def _double(x: Any, _: int, p: Any, q: Any) -> Any:
    return 2 * x * p - q


FAMILIES = {
    "chebyshev_t": Recurrence(lambda x: x, _double, lambda angle, n: np.cos(n * angle)),
    "chebyshev_u": Recurrence(
        lambda x: 2 * x, _double, lambda angle, n: np.sin((n + 1) * angle) / np.sin(angle)
    ),
    "chebyshev_v": Recurrence(
        lambda x: 2 * x - 1,
        _double,
        lambda angle, n: np.cos((n + 0.5) * angle) / np.cos(angle / 2),
    ),
    "chebyshev_w": Recurrence(
        lambda x: 2 * x + 1,
        _double,
        lambda angle, n: np.sin((n + 0.5) * angle) / np.sin(angle / 2),
    ),
    "hermite_h": Recurrence(lambda x: 2 * x, lambda x, k, p, q: 2 * x * p - 2 * k * q),
    "hermite_he": Recurrence(lambda x: x, lambda x, k, p, q: x * p - k * q),
    "laguerre_l": Recurrence(
        lambda x: 1 - x, lambda x, k, p, q: ((2 * k + 1 - x) * p - k * q) / (k + 1)
    ),
    "legendre_p": Recurrence(
        lambda x: x, lambda x, k, p, q: ((2 * k + 1) * x * p - k * q) / (k + 1)
    ),
}


@op("polynomial", traits=ELEMENTWISE)
class Polynomial(Binary):
    """The polynomial of degree b (cut to a whole number) of a family (``kind``), at a.

    0 where the degree is negative. With ``shifted`` the interval is [0, 1] instead of [-1, 1].
    Hermite polynomials are NaN beyond a degree of 128 (512 for f64), where they overflow.
    """

    kind: str
    shifted: bool = False
    kinds: ClassVar[frozenset[Kind]] = FLOATS

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        require(
            self.kind in FAMILIES,
            "polynomial: no such family",
            expected=", ".join(FAMILIES),
            found=self.kind,
        )
        return super().infer(a, b)

    def evaluate(self, a: Array, b: Array) -> Any:
        limit = 512 if a.dtype == np.float64 else 128
        return in_double(lambda x, n: self._values(x, n, limit), a, b)

    def lower_loops(self, b: LoopBuilder) -> None:
        limit = None
        if self.kind.startswith("hermite"):
            limit = 512 if b.operands[0].dtype is f64 else 128
        special_loops.lower_polynomial(b, FAMILIES[self.kind], self.shifted, limit)

    def _values(self, x: Array, n: Array, limit: int) -> Array:
        recurrence = FAMILIES[self.kind]
        x, n = np.broadcast_arrays(2 * x - 1 if self.shifted else x, np.trunc(n))
        degree = np.where(np.isnan(n), -1.0, n)
        result = np.where(degree < 0, 0.0, 1.0)
        pending = degree > 0
        if self.kind.startswith("hermite"):
            result = np.where(degree > limit, np.nan, result)
            pending &= degree <= limit
        if recurrence.oscillation is not None:
            swift = (degree > 8) & (np.abs(x) < 1)
            angle = np.arccos(np.where(swift, x, 0.0))
            result = np.where(swift, recurrence.oscillation(angle, degree), result)
            pending &= ~swift
        before: Any = np.ones_like(x)
        current: Any = recurrence.first(x)
        for k in range(1, int(np.max(degree, where=pending, initial=0)) + 1):
            result = np.where(pending & (degree == k), current, result)
            current, before = recurrence.following(x, k, current, before), current
        return result

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        generator = np.random.default_rng(0)
        x = generator.uniform(-1.5, 1.5, (4, 5)).astype(np.float32)
        n = generator.integers(-2, 14, (4, 5)).astype(np.float32)
        for family in FAMILIES:
            yield Sample(cls(family), (x, n + 0.25), family)
        for family in FAMILIES:
            if family.startswith("chebyshev"):
                yield Sample(cls(family, True), (x * 0.5 + 0.5, n), f"shifted {family}")
        ends = np.array([-1, 1, 0, -0.0], np.float32)
        for family in ("chebyshev_w", "legendre_p", "laguerre_l"):
            yield Sample(
                cls(family), (ends, np.array([[0], [9], [12]], np.float32)), f"{family} ends"
            )
        yield Sample(cls("hermite_h"), (x[:, :1].astype(np.float64), n.astype(np.float64)), "f64")

        def high(x: Value) -> Value:
            return polynomial("hermite_h", x, np.array([7, 129], np.float32))

        yield Sample(high, (x[0, :2],), "too high", False)
        yield Sample(cls("legendre_p"), (x[::2].T, n[::2].T), "strided")
        yield Sample(cls("legendre_p"), (x[:0], n[:0]), "empty")


@function
def polynomial(family: str, x: Operand, degree: Operand, shifted: bool = False) -> Value:
    """The polynomial of a family (``chebyshev_t``, ``legendre_p``…) of this degree, at x."""
    return binary_float(Polynomial(family, shifted), x, degree)
