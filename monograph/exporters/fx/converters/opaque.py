"""Ops without a meaning of ours: calls of torch, which are exported as they came in."""

from __future__ import annotations

import operator

import torch

from monograph.exporters.fx.emitter import TABLE, FxEmitter, Term
from monograph.frontends.torch.custom_ops import TorchCall
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
    names = [each.name for each in function._schema.arguments if each.name in given]
    made = emitter.call(function, **{name: given[name] for name in names})
    fresh = len(node.results) - len(op.written)
    returns = function._schema.returns
    results = [made]
    if len(returns) > 1 or (returns and "[]" in str(returns[0].type)):
        results = [emitter.call(operator.getitem, made, position) for position in range(fresh)]
    return [*results[:fresh], *(given[name] for name in op.written)]
