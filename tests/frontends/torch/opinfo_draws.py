"""Random ops, held against eager on eager's own draws.

No two generators agree, so an op that draws can be compared by type alone. But most such samples
do something with what they draw (dropout, fractional pools, randomised SVD). For them the draws
that eager made are given to the graph as inputs, in place of the nodes that draw, and what it makes
of them must agree by value. A sample that returns its draws is left to the comparison of types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

DRAWS = frozenset(
    {
        "aten.bernoulli.p",
        "aten.bernoulli_.float",
        "aten.normal_functional.default",
        "aten.rand.default",
        "aten.rand_like.default",
        "aten.randint.default",
        "aten.randint.low",
        "aten.randn.default",
        "aten.randn_like.default",
        "aten.randperm.default",
        "aten.uniform.default",
    }
)
"""Ops that only draw: of their operands they read the shape, never the elements."""

OFF = {"dropout_p": 0.0, "dropout": 0.0, "train": False, "training": False}
"""Arguments that leave an op nothing to draw."""


@dataclass(frozen=True)
class Drawn:
    """A graph that takes draws after its own inputs, eager's draws, and what eager returned."""

    module: Any
    draws: list[Any]
    expected: Any


def random_nodes(module: Any) -> list[Any]:
    """The nodes of a graph that draw random numbers."""
    return [node for node in module.graph.nodes if _is_random(node)]


def _is_random(node: Any) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    if torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    for position, argument in enumerate(node.target._schema.arguments):
        if argument.name not in OFF:
            continue
        given = node.args[position] if position < len(node.args) else argument.default_value
        if node.kwargs.get(argument.name, given) == OFF[argument.name]:
            return False
    return True


def with_draws(
    module: Any,
    function: Callable[..., Any],
    copies: Callable[[], Sequence[Any]],
) -> Drawn | None:
    """The graph with eager's draws as further inputs; None if nothing could be compared.

    That the draws are eager's is not taken on trust: run by torch on them, the graph must return
    exactly what the function did.
    """
    nodes = random_nodes(module)
    if not nodes or any(str(node.target) not in DRAWS for node in nodes):
        return None
    given = _given_draws(module, nodes)
    if given is None:
        return None
    with _Recorder() as recorder:
        expected = function(*copies())
    if len(recorder.draws) != len(nodes):
        return None
    draws = [draw.clone() for draw in recorder.draws]  # the graph may write to them
    if not _identical(given(*copies(), *draws), expected):
        return None
    return Drawn(given, recorder.draws, expected)


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch is not typed
    """Keeps what the random ops of a program in torch draw."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch is not typed
        self.draws: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.draws.extend(each.clone() for each in pytree.tree_leaves(result))
        return result


def _given_draws(module: Any, nodes: Sequence[Any]) -> Any | None:
    """The graph with inputs in place of its draws; None if a result depends on no other input."""
    graph = torch.fx.Graph()
    renamed: dict[Any, Any] = {}
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    for node in inputs:
        renamed[node] = graph.node_copy(node)
    for node in nodes:
        draw = graph.placeholder(f"draw_{node.name}")
        draw.meta = dict(node.meta)
        renamed[node] = draw
    returned = None
    for node in module.graph.nodes:
        if node.op == "output":
            returned = torch.fx.map_arg(node.args[0], lambda each: renamed[each])
        elif node not in renamed:
            renamed[node] = graph.node_copy(node, lambda each: renamed[each])
    graph.output(returned)
    graph.eliminate_dead_code()
    own = {renamed[node] for node in inputs}
    leaves = [leaf for leaf in pytree.tree_leaves(returned) if isinstance(leaf, torch.fx.Node)]
    if not leaves or not all(_ancestors(leaf) & own for leaf in leaves):
        return None
    return torch.fx.GraphModule(module, graph)


def _ancestors(node: Any) -> set[Any]:
    found, waiting = {node}, [node]
    while waiting:
        for each in waiting.pop().all_input_nodes:
            if each not in found:
                found.add(each)
                waiting.append(each)
    return found


def _identical(a: Any, b: Any) -> bool:
    try:
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
    except AssertionError:
        return False
    return True
