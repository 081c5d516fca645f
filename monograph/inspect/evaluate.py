"""An interpreter with memoization, for tools that run variants of one graph on the same inputs.

After a pass, most nodes still compute what they did before it. A result is remembered by the op
and by the contents (not the names) of its operands: where two forms of a graph reach the same bits,
the rest is not computed again. What is remembered is bounded in bytes, the oldest goes first.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from monograph.dataclass import dataclass
from monograph.deadline import call_limit
from monograph.inspect.noise import NoisyRun
from monograph.inspect.precise import widen_graph
from monograph.ir.contents import contents_of
from monograph.ir.data import Data, raw_bytes
from monograph.ir.dims import Symbol
from monograph.ir.graph import Graph, Node
from monograph.ir.interpret import bind_inputs, check_results, evaluate_node, run_nodes
from monograph.ir.types import TensorType

MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class _Item:
    """A value, and what tells it from others: a digest, or None if it is no array."""

    value: Any
    digest: bytes | None


class Evaluator:
    """Runs graphs in NumPy and in double precision, remembering what it computed."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._known: OrderedDict[Any, tuple[_Item, ...]] = OrderedDict()
        self._wide: dict[Data, Data] = {}
        self._digests: dict[Data, bytes | None] = {}
        """Of weights, which every form of a graph holds, and which are most of a model's bytes."""

    def forget(self) -> None:
        """Drop all results, before other inputs are evaluated."""
        self._known.clear()
        self._bytes = 0

    def run(self, graph: Graph, inputs: Sequence[Any]) -> list[Any]:
        """The graph's outputs, as ``interpret`` computes them."""
        arrays, bindings = bind_inputs(graph, inputs)
        given = [_item(array) for array in arrays]
        with np.errstate(all="ignore"), call_limit():
            results = run_nodes(graph, given, lambda node, items: self._node(node, items, bindings))
        return [item.value for item in results]

    def run_wide(self, graph: Graph, inputs: Sequence[Any]) -> list[Any]:
        """The outputs in double precision; a graph that looks at bits has none: an error."""
        twin = widen_graph(graph, self._wide)
        return self.run(twin, _widen_inputs(twin, inputs))

    def run_noisy(self, graph: Graph, inputs: Sequence[Any], seed: int) -> list[Any]:
        """In double precision again, with every float on the way rounded or moved (``noise``)."""
        origins: dict[Node, Node] = {}
        twin = widen_graph(graph, self._wide, origins)
        arrays, bindings = bind_inputs(twin, _widen_inputs(twin, inputs))
        noise = NoisyRun(origins, np.random.default_rng(seed))
        with np.errstate(all="ignore"), call_limit():
            return noise.run(twin, arrays, bindings)

    def _node(
        self, node: Node, items: Sequence[_Item], bindings: dict[Symbol, int]
    ) -> tuple[_Item, ...]:
        operands = [item.value for item in items]
        data = contents_of(node)
        if data is not None:
            (value,) = evaluate_node(node, operands, bindings)
            if data not in self._digests:
                self._digests[data] = _item(value).digest
            return (_Item(value, self._digests[data]),)
        digests = tuple(item.digest for item in items)
        if node.regions or node.has_effect or None in digests or not digests:
            return tuple(map(_item, evaluate_node(node, operands, bindings)))
        key = (node.op.substitute(bindings), digests)
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
            raw = tuple(item.value for item in found)
            check_results(node, raw, bindings)  # which binds sizes that the results decide
            return found
        made = tuple(map(_item, evaluate_node(node, operands, bindings)))
        self._remember(key, made)
        return made

    def _remember(self, key: Any, items: tuple[_Item, ...]) -> None:
        self._known[key] = items
        self._bytes += _bytes_of(items)
        while self._bytes > self._most_bytes and self._known:
            _, oldest = self._known.popitem(last=False)
            self._bytes -= _bytes_of(oldest)


def _item(value: Any) -> _Item:
    if not isinstance(value, np.ndarray):
        return _Item(value, None)
    state = hashlib.blake2b(f"{value.dtype}{value.shape}".encode(), digest_size=16)
    if value.dtype.hasobject:
        state.update(raw_bytes(value))
    else:
        state.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
    return _Item(value, state.digest())


def _bytes_of(items: Sequence[_Item]) -> int:
    return sum(int(item.value.nbytes) for item in items)


def _widen_inputs(twin: Graph, inputs: Sequence[Any]) -> list[Any]:
    return [
        np.asarray(item).astype(value.dtype.numpy) if isinstance(value.type, TensorType) else item
        for value, item in zip(twin.inputs, inputs, strict=True)
    ]
