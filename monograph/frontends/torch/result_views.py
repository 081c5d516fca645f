"""Results that need no computing: arguments, and views of arguments or of other results.

A forward pass hands its backward pass the weights and their transposes, and many a program returns
the parts of one tensor. As results of a kernel each would be a copy. Who shares memory with whom is
recorded in the graph's fake tensors, so such results are left out of what is compiled, and made of
the tensors themselves, as torch itself makes them. Where a size or a stride is symbolic, the very
ops that make the view are called again: torch regenerates what a caller gets from the sizes,
strides and offset of such a result, so that a copy in rows would be read as something else.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch

Geometry: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], int]
"""Sizes, strides, and where the first element lies."""


class View(NamedTuple):
    """A result that is an argument, or one of the results that are computed, or a view of it."""

    place: int
    is_argument: bool
    geometry: Geometry | None
    """None if it is that very tensor; the offset counts from where that begins."""


class Replay(NamedTuple):
    """A result that the ops of ``Results.replay`` make; it is one of what they return."""

    place: int


class Results(NamedTuple):
    """A graph that returns only what must be computed, and how the results are made of that.

    Without ``views`` they are what it returns, in order. ``replay`` makes views of arguments and
    of computed results, which it takes in this order.
    """

    module: Any
    views: tuple[View | Replay, ...]
    replay: Callable[..., Any] | None = None


def view_results(parts: Results, arguments: Sequence[Any], computed: Sequence[Any]) -> list[Any]:
    """The results, given the arguments of a call and what was computed of them."""
    replayed = () if parts.replay is None else parts.replay(*arguments, *computed)
    results = []
    for view in parts.views:
        if isinstance(view, Replay):
            results.append(replayed[view.place])
            continue
        place, is_argument, geometry = view
        tensor = arguments[place] if is_argument else computed[place]
        if geometry is not None:
            sizes, strides, offset = geometry
            tensor = tensor.as_strided(sizes, strides, tensor.storage_offset() + offset)
        results.append(tensor)
    return results


def split_results(module: Any) -> Results:
    """What of a functional graph's results has to be computed."""
    output = next(iter(reversed(module.graph.nodes)))
    leaves = torch.utils._pytree.tree_leaves(output.args[0])
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    if any(map(_writes, module.graph.nodes)):
        return Results(module, ())
    arguments = {node: k for k, node in enumerate(inputs)}
    sources = _sources(module, leaves)
    computed: dict[Any, int] = {}
    replayed: dict[Any, int] = {}
    views: list[View | Replay] = []
    for k, leaf in enumerate(leaves):
        source, geometry = _source(leaf, sources)
        if source in arguments:
            views.append(View(arguments[source], True, geometry))
            continue
        if source is leaf and _is_symbolic_view(leaf, {*inputs, *leaves}):
            views.append(Replay(replayed.setdefault(leaf, len(replayed))))
            continue
        key = source if isinstance(source, torch.fx.Node) else (k, source)
        views.append(View(computed.setdefault(key, len(computed)), False, geometry))
    is_plain = all(view == View(k, False, None) for k, view in enumerate(views))
    if is_plain or not (computed or replayed):  # something has to be there to be compiled
        return Results(module, ())
    if not computed:
        computed[next(iter(replayed))] = 0
    replay = _replaying(module, inputs, list(computed), list(replayed)) if replayed else None
    return Results(_returning(module, list(computed)), tuple(views), replay)


_SIZES = (
    *(torch.ops.aten.sym_size.int, torch.ops.aten.sym_stride.int),
    *(torch.ops.aten.sym_numel.default, torch.ops.aten.sym_storage_offset.default),
)


def _is_symbolic_view(leaf: Any, sources: set[Any]) -> bool:
    """Whether a result is a view of one of the sources whose place is known by symbols alone."""
    if not isinstance(leaf, torch.fx.Node) or not _is_view_op(leaf):
        return False
    fake = leaf.meta.get("val")
    if type(fake) is not torch._subclasses.FakeTensor or fake.layout is not torch.strided:
        return False
    numbers = (*fake.shape, *fake.stride(), fake.storage_offset())
    if all(type(each) is int for each in numbers):
        return False
    waiting, seen = list(leaf.all_input_nodes), set()
    while waiting:
        node = waiting.pop()
        if node in seen or node.op == "placeholder":
            continue
        seen.add(node)
        if node in sources and not _is_view_op(node):
            continue
        if not (_is_view_op(node) or _is_of_sizes(node)):
            return False
        waiting += node.all_input_nodes
    return True


def _is_view_op(node: Any) -> bool:
    """Whether it makes a view of its first operand, and computes nothing."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:  # one of several views
        return _is_view_op(node.args[0])
    return isinstance(node.target, torch._ops.OpOverload) and bool(node.target.is_view)


def _is_of_sizes(node: Any) -> bool:
    """Whether it is a number made of sizes."""
    if not isinstance(node.meta.get("val"), int | float | bool | torch.SymInt | torch.SymFloat):
        return False
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target in _SIZES
    return bool(node.op == "call_function")


def _replaying(
    module: Any, inputs: Sequence[Any], computed: Sequence[Any], results: Sequence[Any]
) -> Callable[..., Any]:
    """A function of arguments and computed results that makes these views again."""
    graph = torch.fx.Graph()
    copies = {node: graph.placeholder(node.name) for node in inputs}
    for number, node in enumerate(computed):
        place = graph.placeholder(f"computed_{number}")
        if isinstance(node, torch.fx.Node) and node not in results:
            copies[node] = place

    def copy(node: Any) -> Any:
        if node not in copies:
            for operand in node.all_input_nodes:
                copy(operand)
            copies[node] = graph.node_copy(node, lambda each: copies[each])
        return copies[node]

    graph.output(tuple(copy(node) for node in results))
    call: Callable[..., Any] = torch.fx.GraphModule(module, graph)
    return call


def _source(leaf: Any, sources: Mapping[Any, Any]) -> tuple[Any, Geometry | None]:
    """The node that a result is made of, and how."""
    source = sources.get(_memory(leaf), leaf)
    if source is leaf:
        return leaf, None
    geometry = _geometry(leaf, source)
    return (leaf, None) if geometry is None else (source, geometry)


def _writes(node: Any) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _sources(module: Any, leaves: Sequence[Any]) -> dict[Any, Any]:
    """By memory, the node of which the results that lie there may be views.

    That is an argument; else a result that has all of the memory, in rows; else a node that has,
    and of which the results show at least as much as there is.
    """
    nodes = dict.fromkeys(leaf for leaf in leaves if isinstance(leaf, torch.fx.Node))
    shown: dict[Any, int] = {}
    for leaf in nodes:
        memory = _memory(leaf)
        if memory is not None:
            shown[memory] = shown.get(memory, 0) + leaf.meta["val"].numel()
    found: dict[Any, tuple[int, Any]] = {}
    for node in module.graph.nodes:
        memory = _memory(node)
        if memory not in shown:
            continue
        rank = _rank(node, node in nodes, shown[memory])
        if rank is not None and (memory not in found or rank < found[memory][0]):
            found[memory] = rank, node
    return {memory: node for memory, (_, node) in found.items()}


def _rank(node: Any, is_result: bool, shown: int) -> int | None:
    """How well a node serves as a source, 0 being best; None if it does not."""
    if node.op == "placeholder":
        return 0
    fake = node.meta["val"]
    if node.op != "call_function" or not _is_whole(fake):
        return None
    if is_result:
        return 1
    return 2 if shown >= fake.numel() else None


def _is_whole(fake: Any) -> bool:
    size = fake.untyped_storage().nbytes()
    return bool(fake.is_contiguous() and fake.numel() * fake.element_size() == size)


def _memory(node: Any) -> tuple[int, Any] | None:
    """The memory that a node's tensor lies in; None if that, or where in it, is not known."""
    fake = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    if type(fake) is not torch._subclasses.FakeTensor or fake.layout is not torch.strided:
        return None
    numbers = (*fake.shape, *fake.stride(), fake.storage_offset())
    if fake.is_conj() or fake.is_neg() or not all(type(each) is int for each in numbers):
        return None
    return int(fake.untyped_storage()._cdata), fake.dtype


def _geometry(leaf: Any, source: Any) -> Geometry | None:
    """Where a leaf lies in what its source has; None if it begins before that."""
    fake, base = leaf.meta["val"], source.meta["val"]
    offset = fake.storage_offset() - base.storage_offset()
    return (tuple(fake.shape), tuple(fake.stride()), offset) if offset >= 0 else None


def _returning(module: Any, results: Sequence[Any]) -> Any:
    """A copy of the graph that returns these nodes."""
    graph = torch.fx.Graph()
    copies: dict[Any, Any] = {}
    graph.graph_copy(module.graph, copies)
    graph.output(
        tuple(copies[each] if isinstance(each, torch.fx.Node) else each[1] for each in results)
    )
    return torch.fx.GraphModule(module, graph)
