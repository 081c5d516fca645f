"""Decomposes an op without a converter, by torch's decomposition or by ours.

The node's recorded (fake) arguments are enough: ``make_fx`` traces the decomposition of this one
op, one level deep, into a small torch graph. Its ops are then read like any others, so that those
we do have converters for keep their structure. Results are remembered by op and argument types.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from monograph.dataclass import dataclass
from monograph.errors import UnsupportedError
from monograph.frontends.torch.fast_paths import FAST_PATHS
from monograph.frontends.torch.functionalize import functionalize_module


@dataclass(frozen=True)
class DecomposedCall:
    """A decomposed call: a torch graph, and the nodes that stand for its placeholders."""

    module: Any
    operands: tuple[Any, ...]
    structure: Any

    def unflatten(self, results: Any) -> Any:
        """What the graph returned, in the structure that the op returns."""
        leaves = list(results)
        if self.structure.is_leaf():
            return leaves[0]
        if self.structure.num_leaves == self.structure.num_children:
            return leaves
        return pytree.tree_unflatten(leaves, self.structure)


_CACHE: dict[Any, tuple[Any, Any]] = {}


@cache
def _table() -> dict[Any, Callable[..., Any]]:
    """torch's decompositions: those to core ATen first, then all others, and ours for the rest."""
    from torch._decomp import core_aten_decompositions, decomposition_table

    return {**FAST_PATHS, **decomposition_table, **core_aten_decompositions()}


def decomposition_of(op: Any) -> Callable[..., Any] | None:
    """A function that computes what an op does out of other ops; None if torch has none."""
    found = _table().get(op)
    if found is not None:
        return found
    if torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd"):
        return op.decompose  # type: ignore[no-any-return]  # torch is not typed
    if op.py_kernels.get(torch._C.DispatchKey.CompositeImplicitAutograd) is not None:
        return op.decompose  # type: ignore[no-any-return]  # torch is not typed
    return None


def can_decompose(op: Any) -> bool:
    """Whether torch can take this op apart."""
    return decomposition_of(op) is not None


def decompose_node(node: Any, op: Any) -> DecomposedCall:
    """The call of ``op`` on a node's arguments as a torch graph of other ops."""
    rule = decomposition_of(op)
    if rule is None:
        raise UnsupportedError(f"{op} has no converter, and torch cannot take it apart")
    leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
    operands = tuple(dict.fromkeys(leaf for leaf in leaves if _is_node(leaf)))
    key = _key(op, leaves, operands, spec)
    found = _CACHE.get(key) if key is not None else None
    if found is None:
        found = _trace(op, rule, leaves, operands, spec)
        if key is not None:
            _CACHE[key] = found
    module, structure = found
    return DecomposedCall(module, operands, structure)


def _trace(op: Any, rule: Any, leaves: Any, operands: Any, spec: Any) -> tuple[Any, Any]:
    structure: Any = None

    def run(*values: Any) -> Any:
        nonlocal structure
        given = dict(zip(operands, values, strict=True))
        filled = [given.get(leaf, leaf) if _is_node(leaf) else leaf for leaf in leaves]
        args, kwargs = pytree.tree_unflatten(filled, spec)
        flat, structure = pytree.tree_flatten(rule(*args, **kwargs))
        return flat

    fakes = _stand_ins([operand.meta["val"] for operand in operands])
    try:
        module = _make_graph(run, fakes)
        if any(_writes(node) for node in module.graph.nodes):
            module = functionalize_module(module)
    except UnsupportedError:
        raise
    except Exception as error:  # torch raises errors of every kind from its decompositions
        raise UnsupportedError(f"torch could not take {op} apart: {error}") from error
    if any(each.target is op for each in module.graph.nodes):
        raise UnsupportedError(f"{op} has no converter, and torch takes it apart into itself")
    module.graph.eliminate_dead_code()
    return module, structure


def _make_graph(function: Callable[..., Any], fakes: Any) -> Any:
    mode = torch._guards.detect_fake_mode(fakes)
    symbolic = mode is not None and mode.shape_env is not None
    return make_fx(
        function,
        tracing_mode="symbolic" if symbolic else "fake",
        _allow_non_fake_inputs=True,
        _error_on_data_dependent_ops=False,
    )(*fakes)


def _stand_ins(recorded: list[Any]) -> list[Any]:
    """Fake tensors of one mode: new ones where every size is known, else the recorded ones."""
    tensors = [each for each in recorded if isinstance(each, torch.Tensor)]
    if len(tensors) < len(recorded) or not all(map(_is_static, tensors)):
        return recorded
    with FakeTensorMode():
        return [
            torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
            for tensor in tensors
        ]


def _is_static(tensor: Any) -> bool:
    return tensor.layout is torch.strided and all(type(size) is int for size in tensor.shape)


def _writes(node: Any) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _is_node(leaf: Any) -> bool:
    return isinstance(leaf, torch.fx.Node)


def _key(op: Any, leaves: Any, operands: Any, spec: Any) -> Any | None:
    """What decides the decomposition; None where a size is symbolic, and nothing is remembered."""
    parts: list[Any] = [op, str(spec)]
    positions = {operand: index for index, operand in enumerate(operands)}
    for leaf in leaves:
        if not _is_node(leaf):
            parts.append((type(leaf).__name__, str(leaf)))
            continue
        fake = leaf.meta.get("val")
        if not isinstance(fake, torch.Tensor):
            return None
        if any(type(size) is not int for size in (*fake.shape, *fake.stride())):
            return None
        parts.append((positions[leaf], tuple(fake.shape), fake.stride(), fake.dtype))
    return tuple(parts)
