"""Lazily evaluated constants: contents that an op makes of others when somebody reads them.

Folding a batch norm into a convolution, or turning a matrix over, gives a weight as large as the
one that it is made of. As long as nobody reads the new one, it need not be in memory: a program
reads it once, to pack it, and what it was made of is let go of with it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

import numpy as np

from monograph.ir.data import ArrayData, Data
from monograph.ir.interpret import evaluate_op
from monograph.ir.op import Op
from monograph.ir.types import Array, TensorType


class LazyData(Data):
    """The result of an op that has one, on these contents; made again if nobody holds it."""

    def __init__(self, op: Op, sources: tuple[Data, ...]) -> None:
        type_ = op.infer(*(source.type for source in sources))
        assert isinstance(type_, TensorType), "an op with one result, a tensor"
        self.dtype = type_.dtype
        self.shape = type_.static_shape()
        self.op = op
        self.sources = sources
        self._made: weakref.ref[Array] | None = None

    def array(self) -> Array:
        """The contents, in memory of their own."""
        made = None if self._made is None else self._made()
        if made is None:
            made = self._evaluate()
            self._made = weakref.ref(made)
        return made

    @property
    def is_private(self) -> bool:
        """Whether nobody can write to what it is computed of."""
        return all(source.is_private for source in self.sources)

    def snapshot(self) -> Data:
        """The contents as they are now: what is computed lies in memory of its own."""
        return self if self.is_private else ArrayData(self.array(), self.dtype, private=True)

    def unload(self) -> None:
        """Let the sources give back what reading them took."""
        for source in self.sources:
            source.unload()

    def of(self, change: Callable[[Data], Data]) -> LazyData:
        """The same with other sources."""
        return LazyData(self.op, tuple(change(source) for source in self.sources))

    def _evaluate(self) -> Array:
        arrays = [source.array() for source in self.sources]
        with np.errstate(all="ignore"):
            found = np.asarray(evaluate_op(self.op, arrays))
        is_new = found.base is None and all(found is not each for each in arrays)
        found = found.astype(self.dtype.numpy, order="C", copy=not is_new)
        found.flags.writeable = False
        return found

    def __repr__(self) -> str:
        return f"LazyData({self.type})"
