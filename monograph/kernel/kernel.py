"""A kernel, as an algorithm: which elements of which buffers become what.

    kernel softmax(b0: f32[64, 128]) -> (o0: f32[64, 128]):
      for i0 < 64, i1 < 128:
        o0[i0, i1] = exp(b0[i0, i1] - max(r0 < 128: b0[i0, r0])) / sum(r0 < 128: …)

It says nothing of order: loops, threads and vectors are a ``Schedule``'s business. Buffers are
named by their place in the signature, so two equal layers of a model are one kernel.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property

from monograph.dataclass import dataclass
from monograph.ir.dims import Symbol, SymbolicDim
from monograph.kernel import expr as e
from monograph.kernel.expr import Axis, Buffer, Expr, Load


@dataclass(frozen=True)
class Store:
    """``buffer[position] = value`` at every value of the loop variables in it (under a guard)."""

    buffer: Buffer
    position: tuple[Expr, ...]
    value: Expr
    guard: Expr | None = None

    def mapped(self, on: Callable[[Expr], Expr]) -> Store:
        """The store with each of its formulas changed."""
        guard = None if self.guard is None else on(self.guard)
        return Store(self.buffer, tuple(map(on, self.position)), on(self.value), guard)


@dataclass(frozen=True)
class Kernel:
    """Stores over an index space. Inputs come first in the signature, then outputs."""

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    axes: tuple[Axis, ...]
    stores: tuple[Store, ...]

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """Every buffer, in the order of the signature."""
        return self.inputs + self.outputs

    @cached_property
    def sizes(self) -> tuple[Symbol, ...]:
        """The symbolic dimensions that it depends on, sorted by name."""
        loops = {axis.symbol for axis in self.axes} | {
            axis.symbol for expr in self.expressions() for axis in getattr(expr, "axes", ())
        }
        found: set[Symbol] = set()
        for expr in self.expressions():
            found |= expr.symbols
        for buffer in self.buffers:
            for dim in (*buffer.shape, *buffer.element_strides(), buffer.reach()):
                if isinstance(dim, SymbolicDim):
                    found.update(dim.symbols())
        for axis in self.axes:
            if isinstance(axis.extent, SymbolicDim):
                found.update(axis.extent.symbols())
        return tuple(sorted(found - loops, key=lambda symbol: symbol.name))

    def expressions(self) -> Iterator[Expr]:
        """Every expression in it once, operands first."""
        return e.walk(self._roots())

    def _roots(self) -> tuple[Expr, ...]:
        return tuple(expr for store in self.stores for expr in (*store.position, store.value))

    def loads(self) -> Iterator[Load]:
        """Every distinct element read."""
        return e.find_loads(*self._roots())

    def with_replaced(
        self, replaced: Mapping[Expr, Expr], *more: Buffer
    ) -> tuple[Kernel, tuple[int, ...]]:
        """The kernel with parts of its formulas replaced by what is read of ``more`` buffers.

        And the numbers of the inputs that it still reads: those alone are left, before ``more``.
        """
        stores = tuple(
            replace(store, value=e.replace(store.value, replaced)) for store in self.stores
        )
        read = {load.buffer.name for load in replace(self, stores=stores).loads()}
        kept = tuple(k for k, each in enumerate(self.inputs) if each.name in read)
        inputs = (*(self.inputs[k] for k in kept), *more)
        return replace(self, inputs=inputs, stores=stores), kept

    @cached_property
    def digest(self) -> str:
        """A key for the kernel that does not depend on its name."""
        from monograph.kernel.text import kernel_text

        return hashlib.sha256(kernel_text(self, name="kernel").encode()).hexdigest()

    def __str__(self) -> str:
        from monograph.kernel.text import kernel_text

        return kernel_text(self)


def write_kernel(
    name: str, axes: tuple[Axis, ...], *stores: Store, inputs: tuple[Buffer, ...] = ()
) -> Kernel:
    """A kernel of these stores, which reads what their formulas read.

    Its inputs are in the order of ``inputs``; those that are not among them come behind, as they
    are read.
    """
    roots = (expr for store in stores for expr in (*store.position, store.value))
    read = {load.buffer.name: load.buffer for load in e.find_loads(*roots)}
    given = {each.name: each for each in inputs if each.name in read}
    outputs = tuple(dict.fromkeys(store.buffer for store in stores))
    return Kernel(name, tuple({**given, **read}.values()), outputs, axes, stores)
