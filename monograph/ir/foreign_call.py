"""Calls of functions that only another framework knows."""

from __future__ import annotations

from monograph.ir.op import Op


class ForeignCall(Op):
    """A call of another framework's function; of what it does, the compiler knows the types."""

    target: str
    """The function's name in that framework."""
