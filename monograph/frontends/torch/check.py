"""Finds every op of a torch graph that cannot be imported, before anything is imported."""

from __future__ import annotations

import difflib
import operator
from collections import Counter
from typing import Any

import torch

from monograph.errors import Problem, UnsupportedError
from monograph.frontends.torch import custom_ops, decompose, half_complex, higher_order
from monograph.frontends.torch.importer import CHECKS, IGNORED, live_nodes, needs_only_numbers
from monograph.frontends.torch.location import location_of
from monograph.frontends.torch.registry import converters, find_converter
from monograph.frontends.torch.scalars import is_scalar
from monograph.frontends.torch.schema import functional_form
from monograph.frontends.torch.types import is_supported


def find_unsupported(module: Any) -> list[Problem]:
    """What stands in the way of importing a GraphModule of ATen ops; each with the user's line.

    An op without a converter is taken apart as the import would do, and its parts are looked at.
    """
    found: list[tuple[str, str, str]] = []
    _collect(module, found, None)
    counts = Counter((name, reason) for name, reason, _ in found)
    places: dict[tuple[str, str], str] = {}
    for name, reason, source in found:
        places.setdefault((name, reason), source)
    return [
        Problem(name, where, counts[name, reason], reason, _nearest(name))
        for (name, reason), where in places.items()
    ]


def _collect(module: Any, found: list[tuple[str, str, str]], source: str | None) -> None:
    live = live_nodes(module.graph)
    for node in module.graph.nodes:
        if node in live and node.op not in ("placeholder", "get_attr", "output"):
            _check(node, found, source or str(location_of(node)))


def _check(node: Any, found: list[tuple[str, str, str]], source: str) -> None:
    target = node.target
    if target is operator.getitem or is_scalar(node) or str(target) in IGNORED | CHECKS:
        return
    reason = _reason(node)
    if reason is not None:
        found.append((str(target), reason, source))
        return
    if isinstance(target, torch._ops.HigherOrderOperator):
        for module in higher_order.subgraphs(node):
            _collect(module, found, source)
        return
    form = functional_form(target) if _needs_form(target) else target
    if form is None or find_converter(str(form)) or custom_ops.is_custom(form):
        return
    if needs_only_numbers(node, form):
        return
    try:
        parts = decompose.decompose_node(node, form)
    except UnsupportedError as error:
        found.append((str(target), error.message, source))
        return
    _collect(parts.module, found, source)


def _reason(node: Any) -> str | None:
    """Why a call cannot be imported, as far as its own op goes."""
    target = node.target
    if node.op != "call_function":
        return f"a {node.op} node is not at the level of ATen"
    if isinstance(target, torch._ops.HigherOrderOperator):
        if higher_order.is_supported(target):
            return None
        return "this higher-order op is not supported"
    if not isinstance(target, torch._ops.OpOverload):
        return "not an op of ATen"
    for tensor in _tensors(node.meta.get("val")):
        if not is_supported(tensor.dtype):
            return f"there is no dtype here for {tensor.dtype}"
        if tensor.layout is not torch.strided:
            return f"{tensor.layout} tensors are not supported"
    if reason := half_complex.refusal(node):
        return reason
    if find_converter(str(target)) or custom_ops.is_custom(target):
        return None
    form = functional_form(target) if target._schema.is_mutable else target
    if form is None:
        return "it writes in place, and has no functional form"
    if find_converter(str(form)) or decompose.can_decompose(form):
        return None
    if needs_only_numbers(node, form):
        return None
    return "there is no converter, and torch has no decomposition"


def _needs_form(target: Any) -> bool:
    return target._schema.is_mutable and not find_converter(str(target))


def _nearest(name: str) -> str | None:
    near = difflib.get_close_matches(name, converters(), n=2, cutoff=0.75)
    return ", ".join(near) or None


def _tensors(recorded: Any) -> list[torch.Tensor]:
    if isinstance(recorded, torch.Tensor):
        return [recorded]
    if isinstance(recorded, list | tuple):
        return [tensor for item in recorded for tensor in _tensors(item)]
    return []
