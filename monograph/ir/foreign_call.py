"""The base of ops that call a function of another framework, of which only types are known."""

from __future__ import annotations

from monograph.ir.op import Op


class ForeignCall(Op):
    """A call of another framework's function; of what it does, the compiler knows the types."""

    target: str
    """The function's name in that framework."""
