"""Minimum cuts: the cheapest way to part a network's vertices into two sides (Dinic's algorithm).

A vertex is on the source's side or the sink's. An edge from one on the source's side to one on the
sink's costs its capacity. The cheapest sides are found as a maximum flow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

INFINITE = float("inf")


class Network:
    """A directed network between ``SOURCE`` and ``SINK``; vertices are anything hashable."""

    SOURCE = "source"
    SINK = "sink"

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._heads: list[int] = []
        self._residual: list[float] = []
        self._edges: list[list[int]] = []
        self._number(self.SOURCE)
        self._number(self.SINK)

    def add_edge(self, tail: Hashable, head: Hashable, capacity: float) -> None:
        """What it costs if ``tail`` is on the source's side and ``head`` on the sink's."""
        start, end = self._number(tail), self._number(head)
        for first, last, amount in ((start, end, float(capacity)), (end, start, 0.0)):
            self._edges[first].append(len(self._heads))
            self._heads.append(last)
            self._residual.append(amount)

    def cut(self) -> tuple[float, set[Hashable]]:
        """The cost of a cheapest cut, and the vertices on the source's side of it."""
        total = 0.0
        while True:
            levels = self._levels()
            if levels[1] < 0:
                names = {number: name for name, number in self._numbers.items()}
                return total, {names[k] for k, level in enumerate(levels) if level >= 0}
            following = [0] * len(self._edges)
            while (pushed := self._push(levels, following)) > 0:
                total += pushed

    def _number(self, vertex: Hashable) -> int:
        if vertex not in self._numbers:
            self._numbers[vertex] = len(self._edges)
            self._edges.append([])
        return self._numbers[vertex]

    def _levels(self) -> list[int]:
        """How many edges each vertex is from the source; -1 where none with capacity leads."""
        levels = [-1] * len(self._edges)
        levels[0] = 0
        queue = deque([0])
        while queue:
            here = queue.popleft()
            for edge in self._edges[here]:
                there = self._heads[edge]
                if self._residual[edge] > 0 and levels[there] < 0:
                    levels[there] = levels[here] + 1
                    queue.append(there)
        return levels

    def _push(self, levels: list[int], following: list[int]) -> float:
        """Send what one path from source to sink can take; 0 if there is none any more."""
        path: list[int] = []
        here = 0
        while here != 1:
            edges = self._edges[here]
            while following[here] < len(edges):
                edge = edges[following[here]]
                there = self._heads[edge]
                if self._residual[edge] > 0 and levels[there] == levels[here] + 1:
                    path.append(edge)
                    here = there
                    break
                following[here] += 1
            else:
                if not path:
                    return 0.0
                here = self._heads[path.pop() ^ 1]  # back to where the last edge came from
                following[here] += 1
        amount = min(self._residual[edge] for edge in path)
        for edge in path:
            self._residual[edge] -= amount
            self._residual[edge ^ 1] += amount
        return amount
