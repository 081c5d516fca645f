"""Tensors in files beside the model: found strictly beneath one folder, and memory-mapped.

A model names such files itself, so a hostile one may try to name any file of the machine. Each step
of the path is opened relative to the folder before it and never through a link, what is opened must
be an ordinary file with one name, and offset and length must lie inside it before anything is read.
"""

from __future__ import annotations

import math
import mmap
import os
import stat
from pathlib import Path

import numpy as np

from monograph.errors import InputError
from monograph.ir.data import Data, unpack
from monograph.ir.types import Array, DType

_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_READ |= getattr(os, "O_NONBLOCK", 0)  # a pipe must not make us wait


class MappedData(Data):
    """Contents that lie in a memory-mapped file; the system reads the pages that are touched."""

    def __init__(
        self, memory: mmap.mmap | bytes, offset: int, dtype: DType, shape: tuple[int, ...]
    ):
        self.dtype = dtype
        self.shape = shape
        self._memory = memory
        self._offset = offset

    def array(self) -> Array:
        """A read-only view of the file (elements under eight bits are unpacked)."""
        if self.dtype.is_packed:
            count = count_packed_bytes(self.size, self.dtype)
            codes = np.frombuffer(self._memory, np.uint8, count, self._offset)
            return unpack(codes, self.dtype, self.shape)
        stored = self.dtype.numpy if self.dtype.numpy.kind != "b" else np.dtype(np.uint8)
        flat = np.frombuffer(self._memory, stored, self.size, self._offset)
        return (flat != 0 if self.dtype.numpy.kind == "b" else flat).reshape(self.shape)

    @property
    def is_private(self) -> bool:
        """Whether it is no file that somebody may write to."""
        return isinstance(self._memory, bytes)

    def unload(self) -> None:
        """Let the system take back the pages that hold nothing else; it can read them again."""
        first = -(-self._offset // mmap.PAGESIZE)
        end = (self._offset + count_packed_bytes(self.size, self.dtype)) // mmap.PAGESIZE
        if isinstance(self._memory, mmap.mmap) and end > first and hasattr(mmap, "MADV_DONTNEED"):
            length = (end - first) * mmap.PAGESIZE
            self._memory.madvise(mmap.MADV_DONTNEED, first * mmap.PAGESIZE, length)

    def __repr__(self) -> str:
        return f"MappedData({self.type})"


class AbsentData(Data):
    """Contents whose file is not there, of a model that is only looked at."""

    def __init__(self, name: str, location: str, dtype: DType, shape: tuple[int, ...]) -> None:
        self.dtype = dtype
        self.shape = shape
        self._name = name
        self._location = location

    def array(self) -> Array:
        """There are none: an error that names the file."""
        raise InputError(
            f"the contents of tensor {self._name!r} are needed",
            expected=f"the file {self._location!r} beside the model",
            found="no such file",
        )

    def __repr__(self) -> str:
        return f"AbsentData({self.type})"


def count_packed_bytes(size: int, dtype: DType) -> int:
    """How many bytes ``size`` elements take in a file, where small ones share bytes."""
    return (size * dtype.bits + 7) // 8


class Files:
    """The files beneath one folder that a model may read, each mapped once.

    With ``may_be_absent`` a file that is not there is no error until its contents are asked for.
    """

    def __init__(self, folder: Path | None, *, may_be_absent: bool = False) -> None:
        self.folder = folder
        self.may_be_absent = may_be_absent
        self._maps: dict[str, mmap.mmap | bytes] = {}

    def read(
        self, location: str, offset: int, length: int | None, dtype: DType, shape: tuple[int, ...],
        name: str,
    ) -> Data:  # fmt: skip
        """The tensor called ``name`` at these bytes of a file."""
        if self.may_be_absent and self._is_absent(_steps(location, name)):
            return AbsentData(name, location, dtype, shape)
        memory = self._map(location, name)
        needed = count_packed_bytes(math.prod(shape), dtype)
        if length is not None and length != needed:
            raise InputError(
                f"the external data of tensor {name!r} has the wrong length",
                expected=f"{needed} bytes for {dtype}{list(shape)}",
                found=f"{length} bytes",
            )
        if offset < 0 or offset + needed > len(memory):
            raise InputError(
                f"the external data of tensor {name!r} lies outside its file",
                expected=f"{needed} bytes from offset {offset}",
                found=f"a file of {len(memory)} bytes, {location!r}",
            )
        return MappedData(memory, offset, dtype, shape)

    def _is_absent(self, steps: list[str]) -> bool:
        return self.folder is None or not self.folder.joinpath(*steps).exists()

    def _map(self, location: str, name: str) -> mmap.mmap | bytes:
        found = self._maps.get(location)
        if found is None:
            found = self._maps[location] = self._open(location, name)
        return found

    def _open(self, location: str, name: str) -> mmap.mmap | bytes:
        steps = _steps(location, name)
        if self.folder is None:
            raise InputError(
                f"tensor {name!r} is in another file, {location!r}, and no folder is known",
                hint="pass the model's path, or weights_folder=",
            )
        opened: list[int] = []
        try:
            opened.append(os.open(self.folder, os.O_RDONLY))
            for step in steps[:-1]:
                flags = _READ | getattr(os, "O_DIRECTORY", 0)
                opened.append(os.open(step, flags, dir_fd=opened[-1]))
            opened.append(os.open(steps[-1], _READ, dir_fd=opened[-1]))
            return _map_file(opened[-1], location, name)
        except (OSError, ValueError) as error:
            raise InputError(
                f"the external data of tensor {name!r} cannot be read",
                expected=f"an ordinary file {location!r} beneath {self.folder}, no link",
                found=getattr(error, "strerror", None) or str(error),
            ) from None
        finally:
            for descriptor in opened:
                os.close(descriptor)


def _steps(location: str, name: str) -> list[str]:
    """The parts of a relative path that stays inside its folder."""
    steps = location.replace("\\", "/").split("/")
    steps = [step for step in steps if step != "."]
    absolute = location.startswith(("/", "\\")) or ":" in steps[0] if steps else True
    if absolute or not all(steps) or ".." in steps or "\0" in location:
        raise InputError(
            f"the external data of tensor {name!r} is outside the model's folder",
            expected="a relative path beneath the folder, without `..`",
            found=repr(location),
        )
    return steps


def _map_file(descriptor: int, location: str, name: str) -> mmap.mmap | bytes:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is not an ordinary file")
    if status.st_nlink != 1:
        raise ValueError(f"it has {status.st_nlink} names: a hard link may lead anywhere")
    if status.st_size == 0:
        return b""
    return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
