"""A bounded map of compiled things: the least recently used one makes room for a new one.

Compiling takes far longer than running, so what replaces something has to come often enough: each
time that one has to go, keys have to come twice as often as before to get in. Many keys in turns
then do not keep a processor busy.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

Key = TypeVar("Key")
Item = TypeVar("Item")

MAX_COUNTED = 256
"""For how many keys it is counted how often they came."""


class Recent(Generic[Key, Item]):
    """At most so many items; whoever uses it from several threads holds a lock."""

    def __init__(self, most: int, calls_before: int = 2) -> None:
        self.most = most
        self._calls_before = calls_before
        self._items: OrderedDict[Key, Item] = OrderedDict()
        self._calls: OrderedDict[Key, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: Key) -> bool:
        return key in self._items

    @property
    def is_full(self) -> bool:
        """Whether one has to go before another can come."""
        return len(self._items) >= self.most

    def get(self, key: Key) -> Item | None:
        """The item of a key, if it is there."""
        return self._items.get(key)

    def touch(self, key: Key) -> None:
        """Note that an item was used; it need not be there any more."""
        if key in self._items:
            self._items.move_to_end(key)

    def items(self) -> dict[Key, Item]:
        """What there is, the least recently used first."""
        return dict(self._items)

    def comes_often(self, key: Key) -> bool:
        """Count that a key came; whether it has come often enough to get an item."""
        calls = self._calls.pop(key, 0) + 1
        if calls >= self._calls_before:
            return True
        self._calls[key] = calls
        while len(self._calls) > MAX_COUNTED:
            self._calls.popitem(last=False)
        return False

    def calls_left(self, key: Key) -> int:
        """How often a key still has to come to get an item."""
        return self._calls_before - self._calls.get(key, 0)

    def put(self, key: Key, item: Item) -> list[tuple[Key, Item]]:
        """Keep an item; those that had to go for it."""
        self._items[key] = item
        gone = []
        while len(self._items) > self.most:
            gone.append(self._items.popitem(last=False))
            self._calls_before *= 2
        return gone

    def drop(self, key: Key) -> Item | None:
        """Forget an item, which had to go for another elsewhere."""
        found = self._items.pop(key, None)
        if found is not None:
            self._calls_before *= 2
        return found
