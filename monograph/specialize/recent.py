"""An LRU cache of compiled programs: the least recently used one makes room for a new one.

Compiling takes far longer than running, so what replaces something has to come often enough: each
time that one has to go, keys have to come twice as often as before to get in. Many keys in turns
then do not keep a processor busy.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key")
Item = TypeVar("Item")

MAX_COUNTED = 256
"""For how many keys it is counted how often they came."""


class _Entry(Generic[Item]):
    """An item, and when it was last used."""

    __slots__ = ("item", "used")

    def __init__(self, item: Item, used: int) -> None:
        self.item = item
        self.used = used


class Recent(Generic[Key, Item]):
    """At most so many items. Whoever puts or drops one from several threads holds a lock.

    Maps that share a ``clock`` can tell whose oldest item is the oldest of all.
    """

    def __init__(
        self, most: int, calls_before: int = 2, clock: Iterator[int] | None = None
    ) -> None:
        self.most = most
        self._calls_before = calls_before
        self._clock = clock or itertools.count()
        self._entries: dict[Key, _Entry[Item]] = {}
        self._calls: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    @property
    def is_full(self) -> bool:
        """Whether one has to go before another can come."""
        return len(self._entries) >= self.most

    def get(self, key: Key) -> Item | None:
        """The item of a key, if it is there, which is used now."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        entry.used = next(self._clock)
        return entry.item

    def peek(self, key: Key) -> Item | None:
        """The item of a key, which is not used by that."""
        entry = self._entries.get(key)
        return None if entry is None else entry.item

    def __iter__(self) -> Iterator[Key]:
        return iter(list(self._entries))

    def items(self) -> dict[Key, Item]:
        """What there is, the least recently used first."""
        ordered = sorted(self._entries.items(), key=lambda pair: pair[1].used)
        return {key: entry.item for key, entry in ordered}

    def oldest(self) -> tuple[int, Key] | None:
        """When the least recently used item was used, and its key."""
        ages = [(entry.used, key) for key, entry in self._entries.items()]
        return min(ages, key=lambda each: each[0], default=None)

    def comes_often(self, key: Key) -> bool:
        """Count that a key came; whether it has come often enough to get an item."""
        calls = self._calls.get(key, 0) + 1
        if calls < self._calls_before:
            if len(self._calls) >= MAX_COUNTED:
                self._calls.clear()
            self._calls[key] = calls
            return False
        self._calls.pop(key, None)
        return True

    def calls_left(self, key: Key) -> int:
        """How often a key still has to come to get an item."""
        return self._calls_before - self._calls.get(key, 0)

    def put(self, key: Key, item: Item) -> list[Item]:
        """Keep an item; those that had to go for it."""
        self._entries[key] = _Entry(item, next(self._clock))
        gone = []
        while len(self._entries) > self.most:
            found = self.oldest()
            assert found is not None
            gone.append(self._entries.pop(found[1]).item)
            self._calls_before *= 2
        return gone

    def drop(self, key: Key) -> Item | None:
        """Forget an item, which has to go for another elsewhere."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        self._calls_before *= 2
        return entry.item
