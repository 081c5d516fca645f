"""Reads large tensors of a model's own file lazily.

The file is kept open and its bytes are read into an array of their own: a model may be exported
again to the same path while a graph is still in use. If its file was changed in place, what it held
is gone, and asking for a tensor is an error that says so.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from monograph.errors import EvaluationError
from monograph.ir.data import Data, unpack
from monograph.ir.types import Array, DType

_AT_ONCE = 1 << 30  # the system reads at most 2 GiB in one call


class OpenFile:
    """A file that tensors are read from, as it was when it was opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        weakref.finalize(self, os.close, self._descriptor)
        self._stamp = self._state()

    def read(self, start: int, end: int) -> npt.NDArray[np.uint8]:
        """The bytes from ``start`` up to, not including, ``end``."""
        content = np.empty(end - start, np.uint8)
        done = 0
        while done < len(content):
            piece = content.data[done : done + _AT_ONCE]
            count = os.preadv(self._descriptor, [piece], start + done)
            if not count:
                break
            done += count
        if done < len(content) or self._state() != self._stamp:
            raise EvaluationError(
                f"{self.path} has changed since it was imported",
                hint="import it again, or write new models beside it",
            )
        return content

    def _state(self) -> tuple[int, int]:
        status = os.fstat(self._descriptor)
        return status.st_size, status.st_mtime_ns


class Blob(NamedTuple):
    """Bytes of a file, or of a model that was given as bytes."""

    source: OpenFile | bytes
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return self.end - self.start

    def read(self) -> npt.NDArray[np.uint8]:
        """The bytes, in memory that nobody else writes to."""
        if isinstance(self.source, OpenFile):
            return self.source.read(self.start, self.end)
        return np.frombuffer(self.source, np.uint8, self.size, self.start).copy()


class BlobData(Data):
    """Contents that are read when they are first asked for, and kept until they are unloaded."""

    def __init__(self, blob: Blob, dtype: DType, shape: tuple[int, ...]) -> None:
        self.dtype = dtype
        self.shape = shape
        self._blob: Blob | None = blob
        self._array: Array | None = None
        self._last: weakref.ref[Array] | None = None
        """What was read last, which somebody may still hold."""

    def array(self) -> Array:
        """The contents, read-only."""
        blob, made = self._blob, self._array
        if made is None and self._last is not None:
            made = self._last()
        if made is None:
            assert blob is not None
            made = _as_elements(blob.read(), self.dtype, self.shape)
            made.flags.writeable = False
            self._last = weakref.ref(made)
        self._array = made
        if blob is not None and isinstance(blob.source, bytes):
            self._blob = None  # after the array is there: another thread may be here too
        return made

    @property
    def is_read(self) -> bool:
        """Whether it keeps them in memory now."""
        return self._array is not None

    def unload(self) -> None:
        """Let go of what was read from a file; it is read again if nobody holds it then."""
        if self._blob is not None:
            self._array = None

    @property
    def is_private(self) -> bool:
        """It is: a file that was changed since is an error, and what was read is a copy."""
        return True

    def __repr__(self) -> str:
        return f"BlobData({self.type})"


def _as_elements(content: npt.NDArray[np.uint8], dtype: DType, shape: tuple[int, ...]) -> Array:
    if dtype.is_packed:
        return unpack(content, dtype, shape)
    if dtype.numpy.kind == "b":
        return np.not_equal(content, 0).reshape(shape)
    return content.view(dtype.numpy).reshape(shape)
