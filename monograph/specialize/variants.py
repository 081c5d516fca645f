"""Variants: programs for the sizes that come back, specialized in the background.

A program with symbolic sizes runs at any of them, but its schedules, layouts and algorithms have to
hold for all. When the same sizes come a second time, a *variant* is compiled for just those, by a
thread of its own, while calls go on with the symbolic program; once it is there, calls of these
sizes run it. No call waits for it, and results may then differ in their last bits. Sizes that are
rare among many others get none: they would not pay for it. At most ``MONOGRAPH_VARIANTS`` are kept
(4 unless it is set, 0 for none), the least recently used one is dropped, and from then on sizes
have to come twice as often before they get one, so that many sizes in turns do not keep a processor
busy. Packed weights that are the same are held once.

Where some sizes stay and others never come back, like a cache that grows by a token a call, a
variant is compiled for those that stay, and takes the others from each call: products of a batch of
one row need no schedule for any number of rows. There are at most ``MAX_PARTIAL`` of these.

The parts of a program that calls complete (``specialize.staged``) have variants as well: so many
each, and ``MAX_PARTS`` times as many in all.

A variant that cannot be compiled is not tried again: the symbolic program serves these sizes, and
``explain`` names the reason. A fault of the compiler's own is a warning, too.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from monograph.dataclass import dataclass
from monograph.errors import MonographError, UnsupportedError
from monograph.ir.types import Array
from monograph.runtime.locks import ForkedLock
from monograph.specialize import background
from monograph.specialize.recent import Recent

if TYPE_CHECKING:
    from monograph.program.records import Json
    from monograph.runtime.compiled import Executable
    from monograph.runtime.device import LoadedProgram
    from monograph.runtime.storage import BundleParts

CALLS_BEFORE = 2
"""How often sizes have to come before a variant is compiled for them."""
CALLS_WATCHED = 64
"""Among how many of the last calls sizes have to be frequent, too."""
MIN_SHARE = 8
"""They are so where one call in so many is of these sizes."""
CALLS_BEFORE_PARTIAL = 8
"""How often a call has to have some of the sizes of the one before, until they get a variant."""
MAX_PARTIAL = 2
"""Variants for some of the sizes that are kept."""
MAX_PARTS = 4
"""The parts of a program together may keep as many variants as so many programs."""

Sizes = tuple[int, ...]
Pattern = tuple[int | None, ...]
"""Sizes of which some are known, and None for those that calls bring."""


class State(Enum):
    """What has become of a variant."""

    WAITING = "waiting to be compiled"
    READY = "compiled"
    LOADED = "loaded"
    REFUSED = "not possible"


@dataclass
class Variant:
    """A program for some sizes, once it is there; ``process`` is the one that is to compile it."""

    state: State = State.WAITING
    executable: Executable | None = None
    reason: str = ""
    process: int = 0


class VariantLimit:
    """How many variants the parts of one program may keep together; and the lock of all of them."""

    def __init__(self, most: int) -> None:
        self.most = most
        """How many each of them may keep."""
        self.lock = ForkedLock()
        self.clock = itertools.count()
        self._parts: weakref.WeakSet[Variants] = weakref.WeakSet()

    def join(self, part: Variants) -> None:
        """Count the variants of a part from now on."""
        self._parts.add(part)

    def make_room(self) -> None:
        """Drop the least recently used variants of all parts if there are too many."""
        parts = list(self._parts)
        while sum(map(len, parts)) > self.most * MAX_PARTS:
            parts = [each for each in parts if len(each)]
            min(parts, key=lambda each: each.last_used).drop_oldest()


class Variants:
    """The variants of one program; ``make`` compiles one for sizes in the program's order.

    A program that was loaded has no ``make``, but the variants that were stored with it.
    """

    def __init__(
        self,
        most: int,
        make: Callable[[Pattern], Executable] | None,
        limit: VariantLimit | None = None,
    ) -> None:
        self.version = 0
        """Changes whenever another program serves some sizes."""
        self._left_out = 0
        """How many ask at the moment that no variant is used."""
        self._make = make
        self._limit = limit or VariantLimit(most)
        self._lock = self._limit.lock
        self._variants: Recent[Sizes, Variant] = Recent(most, CALLS_BEFORE, self._limit.clock)
        self._partial: Recent[Pattern, Variant] = Recent(
            min(most, MAX_PARTIAL), CALLS_BEFORE_PARTIAL, self._limit.clock
        )
        self._last_calls: deque[Sizes] = deque(maxlen=CALLS_WATCHED)
        """The sizes of those that no variant served."""
        self._limit.join(self)
        _everyone.add(self)

    def __len__(self) -> int:
        return len(self._variants) + len(self._partial)

    @property
    def last_used(self) -> int:
        """When the least recently used variant was used, on the clock of the limit."""
        found = (self._variants.oldest(), self._partial.oldest())
        return min((each[0] for each in found if each is not None), default=0)

    @property
    def most(self) -> int:
        """How many are kept."""
        return self._variants.most

    def find(self, sizes: Sizes) -> tuple[LoadedProgram, Sizes] | None:
        """A variant for these sizes, if one is there, and the sizes that it is still to be told.

        This call counts as one of these sizes.
        """
        if self._left_out:
            return None
        variant = self._variants.get(sizes)
        if variant is None:
            self._count(sizes)
            return self._find_partial(sizes)
        self._submit_after_fork(sizes, variant)
        if variant.executable is None or variant.executable.native is None:
            return self._find_partial(sizes)
        return variant.executable.native, ()

    def _find_partial(self, sizes: Sizes) -> tuple[LoadedProgram, Sizes] | None:
        """The variant for some of these sizes, if it is there, and the others."""
        pattern = self._match(sizes)
        variant = None if pattern is None else self._partial.get(pattern)
        if pattern is None or variant is None:
            return None
        self._submit_after_fork(pattern, variant)
        if variant.executable is None or variant.executable.native is None:
            return None
        others = (size for size, known in zip(sizes, pattern, strict=True) if known is None)
        return variant.executable.native, tuple(others)

    def _match(self, sizes: Sizes) -> Pattern | None:
        """The sizes that a variant is for which takes these others from calls."""
        for pattern in self._partial:
            if all(known in (None, size) for size, known in zip(sizes, pattern, strict=True)):
                return pattern
        return None

    def may_compile(self, sizes: Sizes) -> bool:
        """Whether more calls of these sizes may have a variant compiled that nobody asked for."""
        return self._make is not None and sizes not in self._variants

    def ready(self, sizes: Pattern) -> Executable | None:
        """The variant for just these sizes, if it is there and may be used."""
        variant = None if self._left_out else self._peek(sizes)
        return None if variant is None else variant.executable

    @contextlib.contextmanager
    def leave_out(self) -> Iterator[None]:
        """Let the program for all sizes serve all calls, of which none counts."""
        self._left_out += 1
        self.version += 1
        try:
            yield
        finally:
            self._left_out -= 1
            self.version += 1

    def programs(self) -> list[LoadedProgram]:
        """The programs of those that are there."""
        made = [each.executable for each in self.states().values()]
        return [each.native for each in made if each is not None and each.native is not None]

    def states(self) -> Mapping[Pattern, Variant]:
        """What there is, the least recently used first, those for some of the sizes last."""
        with self._lock:
            found: dict[Pattern, Variant] = {}
            for sizes, variant in self._variants.items().items():
                found[sizes] = variant
            return found | self._partial.items()

    def _peek(self, sizes: Pattern) -> Variant | None:
        if None in sizes:
            return self._partial.peek(sizes)
        return self._variants.peek(tuple(size for size in sizes if size is not None))

    def served_by(self, sizes: Sizes) -> str:
        """Which program runs at these sizes, and why."""
        variant = self._variants.peek(sizes)
        if variant is not None and variant.executable is not None:
            return "the variant for these sizes"
        pattern = self._match(sizes)
        if pattern is not None and self.ready(pattern) is not None:
            return "the variant for some of these sizes, which takes the others from calls"
        if variant is not None:
            said = f"{variant.state.value}: {variant.reason}".removesuffix(": ")
            return f"the program for all sizes (a variant is {said})"
        if self._make is None:
            return "the program for all sizes (a loaded program cannot be specialized)"
        frequent = self._calls_until_frequent(sizes)
        calls = max(frequent, self._variants.calls_left(sizes))
        return f"the program for all sizes (a variant is compiled after {calls} more calls)"

    def wait(self, seconds: float) -> bool:
        """Whether nothing is left to compile, after so long at most; for tests and benchmarks."""
        return background.wait(seconds)

    def add(self, sizes: Sizes, executable: Executable) -> None:
        """A variant that was stored with the program."""
        with self._lock:
            self._variants.put(sizes, Variant(State.LOADED, executable))
            self.version += 1

    def compile_now(self, sizes: Sizes) -> None:
        """Compile a variant before calls ask for it; an error says why it cannot be."""
        if self._make is None:
            raise UnsupportedError(
                "a loaded program cannot be specialized",
                hint="add variants before it is saved: save(path, variants=True)",
            )
        made = self._make(sizes)
        with self._lock:
            self._keep(sizes, Variant(State.READY, made))
            self.version += 1

    def write(self, parts: BundleParts) -> list[Json]:
        """Add those that are ready to the parts of a stored program; what is to be said of them."""
        from monograph.specialize.stored_variants import write_variants  # few programs need it

        return write_variants(self, parts)

    def drop_oldest(self) -> None:
        """Forget the least recently used variant, which has to go for one of another part."""
        whole, part = self._variants.oldest(), self._partial.oldest()
        dropped = None
        if part is not None and (whole is None or part[0] < whole[0]):
            dropped = self._partial.drop(part[1])
        elif whole is not None:
            dropped = self._variants.drop(whole[1])
        self.version += dropped is not None and dropped.executable is not None

    def _count(self, sizes: Sizes) -> None:
        if self._make is None:
            return
        if self._last_calls:
            self._count_partial(sizes, self._last_calls[-1])
        self._last_calls.append(sizes)
        if self._calls_until_frequent(sizes) or not self._variants.comes_often(sizes):
            return
        with self._lock:
            if sizes in self._variants:
                return
            variant = Variant()
            self._keep(sizes, variant)
        self._submit(sizes, variant)

    def _count_partial(self, sizes: Sizes, before: Sizes) -> None:
        """Count the sizes that stay from call to call, if others do not."""
        pairs = zip(sizes, before, strict=True)
        pattern = tuple(size if size == last else None for size, last in pairs)
        if None not in pattern or all(each is None for each in pattern) or pattern in self._partial:
            return
        if not self._partial.comes_often(pattern):
            return
        with self._lock:
            if pattern in self._partial:
                return
            variant = Variant()
            for dropped in self._partial.put(pattern, variant):
                self.version += dropped.executable is not None
            self._make_room()
        self._submit(pattern, variant)

    def _calls_until_frequent(self, sizes: Sizes) -> int:
        """How many more calls of these sizes make a good part of the last ones."""
        wanted = -(-len(self._last_calls) // MIN_SHARE)
        return max(0, wanted - self._last_calls.count(sizes))

    def _keep(self, sizes: Sizes, variant: Variant) -> None:
        for dropped in self._variants.put(sizes, variant):
            self.version += dropped.executable is not None
        self._make_room()

    def _make_room(self) -> None:
        while len(self) > self.most:
            self.drop_oldest()
        self._limit.make_room()

    def ask_again(self) -> None:
        """Let calls ask for variants that a thread was to compile which is not in this process."""
        kept = (*self._variants.items().values(), *self._partial.items().values())
        self.version += any(each.state is State.WAITING for each in kept)

    def _submit_after_fork(self, sizes: Pattern, variant: Variant) -> None:
        """Submit what a thread was to compile that a fork left behind."""
        if variant.state is State.WAITING and variant.process != os.getpid():
            self._submit(sizes, variant)

    def _submit(self, sizes: Pattern, variant: Variant) -> None:
        variant.process = os.getpid()
        held = weakref.ref(self)
        background.submit(lambda: _compile(held, sizes))

    def compile(self, sizes: Pattern) -> None:
        """Compile the variant for these sizes, unless nobody wants it any more."""
        variant = self._peek(sizes)
        if variant is None or variant.executable is not None or self._make is None:
            return
        try:
            variant.executable = self._make(sizes)
            variant.state = State.READY
        except MonographError as error:
            variant.state, variant.reason = State.REFUSED, error.message
        except Exception as error:
            variant.state = State.REFUSED
            variant.reason = f"an error in the compiler, {type(error).__name__}: {error}"
            _warn(variant.reason)
        self.version += 1


_everyone: weakref.WeakSet[Variants] = weakref.WeakSet()


def _after_fork() -> None:
    for each in list(_everyone):
        each.ask_again()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _warn(reason: str) -> None:
    """Say that the compiler failed; the filters of ``warnings`` show the same reason once."""
    warnings.warn(
        f"a program for some sizes could not be compiled: {reason}; "
        "the program for all sizes goes on",
        RuntimeWarning,
        stacklevel=2,
    )


def _compile(held: weakref.ref[Variants], sizes: Pattern) -> None:
    """Compile for a program, if it is still there."""
    variants = held()
    if variants is not None:
        variants.compile(sizes)


def equal_panels(
    made: Mapping[int, Array], others: Iterable[Mapping[int, Array]]
) -> dict[int, Array]:
    """For packed weights, by slot, those of other programs that have the same bytes."""
    by_size: dict[tuple[int, str], list[Array]] = {}
    for panels in others:
        for array in panels.values():
            by_size.setdefault((array.nbytes, array.dtype.str), []).append(array)
    found = {}
    for slot, array in made.items():
        content = array.view(np.uint8)
        for other in by_size.get((array.nbytes, array.dtype.str), ()):
            if np.array_equal(other.view(np.uint8), content):
                found[slot] = other
                break
    return found
