"""What the table of libraries holds, and what a library is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from monograph.dataclass import dataclass
from monograph.ir.graph import Node
from monograph.ir.types import bf16, f16, f32, f64

Tensor: TypeAlias = Any
FLOATS = (f64, f32, f16, bf16)


@dataclass(frozen=True)
class LibraryTask:
    """One call: an op, torch tensors that it reads, and those that it is to write."""

    op: Any
    operands: Sequence[Tensor]
    results: Sequence[Tensor]
    flag: Tensor | None = None
    """A number that becomes other than zero if an index is out of range."""
    choice: str = ""
    """What is to compute it, as the step says: the library, or one of several that it has."""


Given: TypeAlias = Sequence[Tensor] | None
"""What a library gives as new tensors, one a result; None if it has written the results."""


@dataclass(frozen=True)
class Library:
    """How a library computes an op."""

    name: str
    """As people know it: ``cuBLAS``."""
    computes: Callable[[Node], bool]
    run: Callable[[LibraryTask], Given]
    checks: bool = False
    """Whether it tells of indices that are out of range."""


def has_dtypes(*dtypes: object) -> Callable[[Node], bool]:
    """Asks of a node whether all of its operands and results have one of these dtypes."""
    return lambda node: all(value.dtype in dtypes for value in (*node.operands, *node.results))
