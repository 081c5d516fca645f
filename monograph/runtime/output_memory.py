"""A pool for output memory, reused as soon as no array refers to it.

Touching fresh pages costs far more than computing into them, so a program that runs again should
write its outputs where earlier ones stood. The question is when an earlier output is dead.
Counting references (``sys.getrefcount``) cannot tell: the count depends on who is asking and on
the interpreter's version, and a view may keep alive something else than what was counted. So
nothing is counted here. Each time memory is lent, a new small object is made that *is* the memory
in the sense of the buffer protocol: a ``Buffer``, a ctypes array placed at the address. Every
array is built on that buffer, and NumPy, torch, DLPack and ``memoryview`` each keep alive what
they were built on; that is their own rule of safety, not a guess of ours. When the last of them
goes, the interpreter finalizes the buffer, and only its finalizer puts the memory back. The next
loan makes a new buffer, so one that is still held somewhere is never handed out a second time.

A finalizer may run at any moment, in any thread, inside any other call, even in one of the pool's
own. So no path here waits for a lock: memory is lent and returned by single operations that the
interpreter makes atomic (``list.pop``, ``list.append``), and the book-keeping is left to whoever
gets its lock without waiting.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
import weakref
from collections.abc import Callable
from functools import cache
from itertools import count
from types import TracebackType
from typing import Final

import numpy as np
import numpy.typing as npt

from monograph.errors import EvaluationError, InputError

ALIGNMENT: Final = 64
"""Bytes that every address is a multiple of: a cache line, and the widest vector."""

IDLE_LIMIT: Final = 1 << 30
"""Bytes that a pool keeps for later use, unless told otherwise."""

MAX_MALLOC_BYTES: Final = 1 << 14
"""Bytes up to which an output comes from the allocator, which has such pieces at hand."""

MAPPED_FROM: Final = 1 << 20
"""Sizes from here on get a mapping of their own; the system takes its pages back at once."""

HUGE_PAGE: Final = 1 << 21
HUGE_FROM: Final = 1 << 22
"""Sizes from here on are placed on a huge page's boundary and ask for huge pages."""

REMEMBERED_SIZES: Final = 4096
"""How many different requests a pool remembers the size class of."""

_return_times = count()


def size_class(nbytes: int) -> int:
    """The size that is really kept for ``nbytes``: eight steps a doubling, at least 64 apart.

    Sizes that differ a little (the same program on inputs of another length) then share memory,
    and at most an eighth is left over.
    """
    shift = max(nbytes.bit_length() - 4, 6)
    return max(-(-nbytes >> shift) << shift, ALIGNMENT)


class Storage:
    """Memory at a fixed, aligned address; it goes back to the system with this object."""

    __slots__ = ("_memory", "address", "buffer_type", "pool", "returned", "size")

    def __init__(self, size: int, pool: weakref.ref[OutputPool]) -> None:
        self.size = size
        self.buffer_type = _buffer_type(size)
        self.pool = pool
        self.returned = 0
        if size < MAPPED_FROM:
            block = np.empty(size + ALIGNMENT, np.uint8)
            self._memory: object = block
            self.address = _round_up(block.ctypes.data, ALIGNMENT)
        else:
            self._memory, self.address = _map_pages(size)


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _map_pages(size: int) -> tuple[mmap.mmap, int]:
    """A private anonymous mapping and the address in it to use; no page is touched."""
    huge = size >= HUGE_FROM
    length = size + HUGE_PAGE if huge else size
    try:
        if os.name == "nt":
            mapping = mmap.mmap(-1, length)
        else:
            mapping = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError, ValueError) as error:
        raise EvaluationError(
            f"no memory for {size:,} bytes",
            found=str(error),
            hint="make the inputs smaller, or let go of outputs that are no longer needed",
        ) from error
    start = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    if not huge:
        return mapping, start
    if hasattr(mmap, "MADV_HUGEPAGE"):
        _advise_huge_pages(mapping)
    return mapping, _round_up(start, HUGE_PAGE)


def _advise_huge_pages(mapping: mmap.mmap) -> None:
    """Ask for huge pages: a kernel built without them says no, and small pages do as well."""
    try:
        mapping.madvise(mmap.MADV_HUGEPAGE)
    except OSError:
        return


class Buffer(ctypes.Array[ctypes.c_char]):
    """One loan of memory: it lasts as long as this object or anything built on it.

    The class is abstract: the buffers of one size are instances of a subclass of their own, since
    the length of a ctypes array is a part of its type.
    """

    _type_ = ctypes.c_char
    _length_ = 0
    __slots__ = ("_storage", "address")

    _storage: Storage
    address: int

    @property
    def nbytes(self) -> int:
        """Bytes that may be used, which can be a little more than was asked for."""
        return self._storage.size

    def as_array(
        self, dtype: npt.DTypeLike, shape: int | tuple[int, ...]
    ) -> npt.NDArray[np.generic]:
        """An uninitialized, writable, contiguous array that starts at ``address``."""
        try:
            return np.ndarray(shape, dtype, self)  # type: ignore[arg-type]  # stubs know no ctypes
        except TypeError as error:
            raise InputError(
                f"an array of shape {shape} and dtype {dtype} cannot be placed in a buffer",
                expected=f"at most {self.nbytes:,} bytes",
                found=str(error),
            ) from error

    def __del__(self) -> None:
        storage = self._storage
        pool = storage.pool()
        if pool is not None:
            pool._put_back(storage)


@cache
def _buffer_type(size: int) -> type[Buffer]:
    class SizedBuffer(Buffer):
        _length_ = size
        __slots__ = ()

    return SizedBuffer


class Lease:
    """Memory for a stretch of work, given back by ``release``, a ``with`` block or ``del``.

    Unlike a ``Buffer`` it makes no arrays: they could outlive it. It suits arenas and scratch space
    that only native code sees.
    """

    __slots__ = ("_storage", "address", "nbytes")

    def __init__(self, storage: Storage) -> None:
        self._storage: Storage | None = storage
        self.address = storage.address
        self.nbytes = storage.size

    def release(self) -> None:
        """Give the memory back; a second call does nothing."""
        storage, self._storage = self._storage, None
        if storage is None:
            return
        pool = storage.pool()
        if pool is not None:
            pool._put_back(storage)

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def __del__(self) -> None:
        self.release()


class OutputPool:
    """Lends 64-byte aligned memory and lends it again once every holder has let go.

    At most ``idle_limit`` bytes wait for their next use; beyond that the longest unused go back to
    the system. What is lent is not limited, and outlives the pool where it has to. All methods may
    be called from any thread.
    """

    def __init__(self, idle_limit: int = IDLE_LIMIT) -> None:
        if idle_limit < 0:
            raise InputError("a pool cannot keep less than nothing", found=f"{idle_limit} bytes")
        self.idle_limit = idle_limit
        self._idle: dict[int, list[Storage]] = {}
        self._idle_for: dict[int, list[Storage]] = {}
        self._self = weakref.ref(self)
        self._owned = 0
        self._journal: list[int] = []
        self._settling = threading.Lock()
        _pools.add(self)

    def acquire(self, nbytes: int) -> Buffer:
        """Memory of at least ``nbytes``, lent until everything built on it is gone."""
        storage = self._take(nbytes)
        address = storage.address
        buffer = storage.buffer_type.from_address(address)
        buffer._storage = storage
        buffer.address = address
        return buffer

    def lease(self, nbytes: int) -> Lease:
        """Memory of at least ``nbytes``, lent until it is released."""
        return Lease(self._take(nbytes))

    def clear(self) -> None:
        """Give all idle memory back to the system; what is lent follows when it returns."""
        for idle in list(self._idle.values()):
            while (storage := _pop(idle)) is not None:
                self._journal.append(-storage.size)
        self._settle()

    @property
    def idle_bytes(self) -> int:
        """Bytes that wait for their next use."""
        return sum(size * len(idle) for size, idle in list(self._idle.items()))

    @property
    def owned_bytes(self) -> int:
        """Bytes taken from the system: idle and lent."""
        self._settle()
        return self._owned

    def _take(self, nbytes: int) -> Storage:
        try:
            return self._idle_for[nbytes].pop()
        except (KeyError, IndexError):
            return self._take_slowly(nbytes)

    def _take_slowly(self, nbytes: int) -> Storage:
        if nbytes < 0:
            raise InputError("a buffer cannot be smaller than nothing", found=f"{nbytes} bytes")
        size = size_class(nbytes)
        idle = self._idle.setdefault(size, [])
        if len(self._idle_for) >= REMEMBERED_SIZES:
            self._idle_for.clear()
        self._idle_for[nbytes] = idle
        if (storage := _pop(idle)) is not None:
            return storage
        return self._new_storage(size)

    def _new_storage(self, size: int) -> Storage:
        try:
            storage = Storage(size, self._self)
        except (EvaluationError, MemoryError):
            self.clear()
            storage = Storage(size, self._self)
        self._journal.append(size)
        self._settle()
        return storage

    def _put_back(
        self, storage: Storage, is_ending: Callable[[], bool] = sys.is_finalizing
    ) -> None:
        if is_ending():  # the names of this module mean nothing any more
            return
        storage.returned = next(_return_times)
        self._idle[storage.size].append(storage)
        if self._owned > self.idle_limit:
            self._settle()

    def _settle(self) -> None:
        """Bring the books up to date and trim; if another thread is at it, that is enough."""
        if not self._settling.acquire(blocking=False):
            return
        try:
            while self._journal:
                self._owned += self._journal.pop()
            if self._owned > self.idle_limit:
                self._trim()
        finally:
            self._settling.release()

    def _trim(self) -> None:
        excess = self.idle_bytes - self.idle_limit
        while excess > 0:
            waiting = [idle for idle in list(self._idle.values()) if idle]
            oldest = _pop(min(waiting, key=_first_returned), 0) if waiting else None
            if oldest is None:
                return
            self._owned -= oldest.size
            excess -= oldest.size


def _pop(idle: list[Storage], position: int = -1) -> Storage | None:
    """One idle storage, or nothing where another thread was quicker."""
    try:
        return idle.pop(position)
    except IndexError:
        return None


def _first_returned(idle: list[Storage]) -> int:
    try:
        return idle[0].returned
    except IndexError:
        return next(_return_times)


_pools: weakref.WeakSet[OutputPool] = weakref.WeakSet()


def _after_fork() -> None:
    """A thread that was settling in the parent does not exist in the child: free its lock."""
    for pool in list(_pools):
        pool._settling = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
