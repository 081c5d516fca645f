"""What only programs from torch have: its own ops as they came in, sizes read from data, checks."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch

from monograph.exporters.fx.emitter import TABLE, FxEmitter, Term
from monograph.frontends.torch.custom_ops import TorchCall
from monograph.frontends.torch.ops import BindDim, Check
from monograph.frontends.torch.schema import overload_named
from monograph.ir.graph import Node


@TABLE.writes(TorchCall)
def _torch_call(emitter: FxEmitter, node: Node, op: TorchCall) -> list[Term]:
    """What the op overwrites is a copy, whose new contents are results."""
    operands = emitter.operands(node)
    if op.written:
        operands = [emitter.call(torch.clone, term) for term in operands]
    function = overload_named(op.target)
    given = op.keyword_arguments(operands, emitter.shape(op.sizes))
    made = emitter.fx.call_function(function, *_arguments(function, given))
    fresh = len(node.results) - len(op.written)
    returns = function._schema.returns
    results = [made]
    if len(returns) > 1 or (returns and "[]" in str(returns[0].type)):
        results = [emitter.call(operator.getitem, made, position) for position in range(fresh)]
    return [*results[:fresh], *(given[name] for name in op.written)]


def _arguments(function: Any, given: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments by position as far as that goes, and the others by name."""
    known = [each for each in function._schema.arguments if each.name in given]
    by_name = {each.name: given[each.name] for each in known if each.kwarg_only}
    return tuple(given[each.name] for each in known if not each.kwarg_only), by_name


@TABLE.writes(BindDim)
def _bind_dim(emitter: FxEmitter, node: Node, op: BindDim) -> Term:
    """A tensor of that size without elements, as in our own graphs."""
    (count,) = emitter.operands(node)
    return emitter.call(torch.empty, [emitter.call(int, count), 0], dtype=torch.int64)


@TABLE.writes(Check)
def _check(emitter: FxEmitter, node: Node, op: Check) -> list[Term]:
    (condition,) = emitter.operands(node)
    emitter.call(torch._assert_async, emitter.call(torch.all, condition), op.message)
    return []
