"""Our passes on torch's own graphs: an FX ``GraphModule`` in, an optimised one out.

    traced = torch.fx.symbolic_trace(model)
    smaller = monograph.fx.optimize(traced, x, passes="cse,simplify")

What comes back is called as before and shares its parameters and buffers with the original. Ops
that we do not know stay as they are. Passes need types, so the graph is captured by torch.export
on the example inputs, or on those that the graph itself remembers (``meta["val"]``).
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.graph import _PyTreeCodeGen
from torch.utils import _pytree

from monograph.api import optimize as optimize_graph
from monograph.errors import InputError, UnsupportedError
from monograph.exporters.fx import TABLE
from monograph.exporters.fx.emitter import FxEmitter, Term
from monograph.frontends.torch import ImportedModel, InputKind, import_torch
from monograph.passes.base import Pass

DEFAULT_PASSES = "canonicalize,simplify,cse,dce"


def optimize(
    module: torch.fx.GraphModule,
    *examples: Any,
    passes: str | Sequence[Pass | str] = DEFAULT_PASSES,
    dynamic_shapes: Any = None,
) -> torch.fx.GraphModule:
    """Run passes on a GraphModule; a new one of the same calling convention and parameters.

    ``examples`` are the positional arguments of a call. The module is read in eval mode, as it is
    compiled; buffers that it writes are written by the result, too. ``dynamic_shapes`` is what
    ``torch.export`` takes, without which sizes are those of the examples.
    """
    if not isinstance(module, torch.fx.GraphModule):
        raise InputError(
            "this is not a graph of torch's",
            expected="a torch.fx.GraphModule",
            found=type(module).__name__,
            hint="torch.fx.symbolic_trace(module) makes one; monograph.compile takes any module",
        )
    given = examples or _remember_inputs(module)
    exported = import_torch(_Plain(module), *given, dynamic_shapes=dynamic_shapes, opaque=True)
    _check_convention(exported)
    graph = optimize_graph(exported.graph, passes=passes)
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    writer = _Writer(module, exported, FxEmitter(TABLE.lower(graph), tensors), given, tensors)
    made = writer.module()
    made.training = module.training
    return made


class _Plain(torch.nn.Module):
    """The same code on the same parameters, without a graph or a mode of its own.

    Graphs of every origin are captured alike then: traced by hand, by torch.export, by make_fx.
    """

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__()
        _LazyGraphModule.force_recompile(module)  # a lazy one's forward is a stand-in until then
        own = {key: held for key, held in vars(module).items() if key not in ("train", "eval")}
        vars(self).update(own)
        self._forward = type(module).forward

    def forward(self, *arguments: Any) -> Any:
        return self._forward(self, *arguments)


def _remember_inputs(module: torch.fx.GraphModule) -> tuple[Any, ...]:
    """Inputs like those that the graph was captured on."""
    found = []
    for node in module.graph.find_nodes(op="placeholder"):
        recorded = node.meta.get("val", node.meta.get("example_value"))
        if not isinstance(recorded, torch.Tensor):
            raise InputError(
                "this graph's inputs do not know their types",
                expected='example inputs, or meta["val"] on every placeholder',
                found=f"{node.name} has none",
                hint="monograph.fx.optimize(graph_module, example_input, passes=…)",
            )
        sizes = [int(size) for size in recorded.shape]
        found.append(torch.zeros(sizes, dtype=recorded.dtype))
    return tuple(found)


def _check_convention(exported: ImportedModel) -> None:
    for each in exported.inputs:
        if each.kind in (InputKind.RANDOM_KEY, InputKind.MEMORY):
            what = "draws random numbers" if each.kind is InputKind.RANDOM_KEY else "writes views"
            raise UnsupportedError(f"the graph {what}, which FX's graphs cannot say in our ops")
    for slot in exported.outputs:
        if slot.is_number or slot.word is not None or slot.is_half_complex:
            raise UnsupportedError("the graph returns something else than tensors")


class _Writer:
    """Puts the optimised nodes between the placeholders and the outputs of the original."""

    def __init__(
        self,
        module: torch.fx.GraphModule,
        exported: ImportedModel,
        emitter: FxEmitter,
        examples: Sequence[Any],
        tensors: Mapping[str, torch.Tensor],
    ) -> None:
        self.original = module
        self.exported = exported
        self.emitter = emitter
        self.examples = tuple(examples)
        self.tensors = tensors

    def module(self) -> torch.fx.GraphModule:
        """The finished module."""
        leaves = self._leaves()
        inputs = self.emitter.source.inputs
        for value, each in zip(inputs, self.exported.inputs, strict=True):
            if each.kind is InputKind.USER:
                assert each.position is not None
                self.emitter.define(value, leaves[each.position])
            else:
                self.emitter.define(value, self.emitter.state(each.name, self.tensors[each.name]))
        results = self.emitter.write_nodes()
        for output, position in self.emitter.source.updates.items():
            target = self.emitter.names[inputs[position]]
            self.emitter.method("copy_", target, results[output])
        made = self.emitter.finish(self._nest_results(results))
        made.graph.set_codegen(self.original.graph._codegen)
        made.recompile()
        return made

    def _leaves(self) -> list[Term]:
        """The original's placeholders, taken apart where an argument is nested."""
        placeholders = [self._placeholder(node) for node in self._own_placeholders()]
        paths, _ = _pytree.tree_flatten_with_path(self.examples)
        if isinstance(self.original.graph._codegen, _PyTreeCodeGen):
            return placeholders  # which are the leaves already
        leaves = []
        for (first, *path), _ in paths:
            term = placeholders[_key(first)]
            for key in path:
                term = self.emitter.call(operator.getitem, term, _key(key))
            leaves.append(term)
        return leaves

    def _own_placeholders(self) -> list[torch.fx.Node]:
        return list(self.original.graph.find_nodes(op="placeholder"))

    def _placeholder(self, node: torch.fx.Node) -> Term:
        made = self.emitter.fx.create_node(
            "placeholder", str(node.target), node.args, {}, type_expr=node.type
        )
        made.meta.update(
            {key: node.meta[key] for key in ("val", "example_value") if key in node.meta}
        )
        return made

    def _nest_results(self, results: Sequence[Term]) -> Any:
        """The results in the nesting of the original's; a list of leaves for a pytree's code."""
        leaves = [
            None if slot.position is None else results[slot.position]
            for slot in self.exported.outputs
        ]
        if isinstance(self.original.graph._codegen, _PyTreeCodeGen):
            return leaves
        returned = _pytree.tree_unflatten(leaves, self.exported.output_spec)
        _check_kinds(returned)
        return returned


def _check_kinds(returned: Any) -> None:
    """Refuse what a graph cannot make anew: named tuples, also inside of others."""
    kind = type(returned)
    if kind in (tuple, list, dict):
        for each in returned.values() if kind is dict else returned:
            _check_kinds(each)
    elif returned is not None and not isinstance(returned, torch.fx.Node):
        raise UnsupportedError(
            f"a graph that returns a {kind.__name__} is not optimised in place",
            hint="return tensors, or tuples, lists and dicts of them",
        )


def _key(entry: Any) -> Any:
    """What an entry of a path is subscripted with."""
    if isinstance(entry, _pytree.SequenceKey):
        return entry.idx
    if isinstance(entry, _pytree.MappingKey):
        return entry.key
    raise UnsupportedError(f"an argument of a type that is no tuple, list or dict: {entry}")
