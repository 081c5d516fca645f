"""What the QR iterations on real and on complex Hessenberg matrices share.

Both go from the bottom up: rows between ``top`` and ``bottom`` hang together, a sweep over them
makes their last elements smaller, and what is negligible becomes 0 and splits them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from monograph.ir.lower import LoopBuilder, Memory, Position, Scalar
from monograph.ops.hessenberg_loops import Hessenberg
from monograph.ops.loop_numbers import Numbers

EPSILON = 2.0**-52
MIN_NORMAL = 2.0**-1022
MAX_SWEEPS_PER_ROW = 30
"""Sweeps that a row may take on average."""
SWEEPS_PER_EXCEPTIONAL_SHIFT = 10
"""Sweeps without an eigenvalue after which another shift is tried."""


class SchurIteration(ABC):
    """The iteration on one matrix: rows from ``top`` to ``bottom`` are what is looked at."""

    def __init__(
        self, b: LoopBuilder, h: Hessenberg, parts: Memory, at: Position, with_basis: bool
    ) -> None:
        self.b, self.n, self.h, self.at = b, Numbers(b), h, at
        self.parts, self.with_basis = parts, with_basis
        self.bottom = b.variable(b.index(h.size - 1))
        self.top = b.variable(b.index(0))
        self.tries = b.variable(b.index(0))
        self.sweeps = b.variable(b.index(0))

    def run(self) -> Scalar:
        """All eigenvalues, real and imaginary parts; whether they were found."""
        b, n = self.b, self.n
        with b.while_(lambda: n.both(n.at_most(b.index(0), self.bottom.get()), self._goes_on())):
            self._find_top()
            self._step(self.top.get(), self.bottom.get())
        return self._goes_on()

    @abstractmethod
    def _step(self, top: Scalar, bottom: Scalar) -> None:
        """Store what is found in rows that hang together, or sweep over them."""

    @abstractmethod
    def _is_negligible(self, row: Scalar) -> Scalar:
        """Whether what stands left of a row's diagonal is small beside its neighbours."""

    def element(self, row: Scalar, column: Scalar) -> Scalar:
        """An element of the matrix; a row or column that is outside becomes the nearest one."""
        return self.b.load(self.h.matrix, [*self.at, self._hold_row(row), self._hold_row(column)])

    def _put(self, row: Scalar, column: Scalar, value: Scalar) -> None:
        self.b.store(self.h.matrix, [*self.at, self._hold_row(row), self._hold_row(column)], value)

    def _hold_row(self, row: Scalar) -> Scalar:
        return self.b.clamp(row, 0, self.h.size)

    def _goes_on(self) -> Scalar:
        most = MAX_SWEEPS_PER_ROW * self.h.size + MAX_SWEEPS_PER_ROW * SWEEPS_PER_EXCEPTIONAL_SHIFT
        return self.n.less(self.sweeps.get(), self.b.index(most))

    def _find_top(self) -> None:
        """The rows above ``bottom`` up to a negligible element, which becomes 0."""
        b, n = self.b, self.n
        self.top.set(self.bottom.get())

        def hangs_together() -> Scalar:
            row = self.top.get()
            return n.both(n.less(b.index(0), row), n.no(self._is_negligible(row)))

        with b.while_(hangs_together):
            self.top.set(self.top.get() - 1)
        with b.when(n.less(b.index(0), self.top.get())):
            self._put(self.top.get(), self.top.get() - 1, n.of(0.0))
