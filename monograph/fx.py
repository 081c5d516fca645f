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
from monograph.frontends.torch import ImportedModel, Input, InputKind, Output, import_torch
from monograph.ir.graph import Node, Value
from monograph.ir.op import Trait
from monograph.ops.data import Constant, DimValue
from monograph.ops.elementwise.convert import Cast, Conj, Imag, Real
from monograph.ops.sorting import TopK
from monograph.passes.base import Pass

DEFAULT_PASSES = "canonicalize,simplify,cse,dce"

PLAIN = (bool, int, float, complex, str)
"""What a graph returns besides tensors."""


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
    shapes = _order_shapes(module, len(given), dynamic_shapes)
    exported = import_torch(_Plain(module), *given, dynamic_shapes=shapes, opaque=_is_as_good)
    _check_convention(exported)
    graph = optimize_graph(exported.graph, passes=passes)
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    writer = _Writer(module, exported, FxEmitter(TABLE.lower(graph), tensors), given, tensors)
    made = writer.module()
    made.training = module.training
    return made


def _is_as_good(node: Node) -> bool:
    """Whether torch can say a node of ours, and as quickly as what it was read from.

    Which of equal elements torch's ``topk`` takes is open. Ours takes the first, which needs a sort
    there.
    """
    return not isinstance(node.op, TopK) and TABLE.can_write(node)


class _Plain(torch.nn.Module):
    """The same code on the same parameters, without a graph or a mode of its own.

    Graphs of every origin are captured alike then: traced by hand, by torch.export, by make_fx.
    """

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__()
        _LazyGraphModule.force_recompile(module)  # a lazy one's forward is a stand-in until then
        own = {key: held for key, held in vars(module).items() if key not in ("train", "eval")}
        vars(self).update(own)
        self._forward = type(_with_detach(module)).forward

    def forward(self, *arguments: Any) -> Any:
        return self._forward(self, *arguments)


def _with_detach(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The module with ``detach`` for Dynamo's ``x.data``, which torch.export loses sight of."""
    reads_data = torch._C._autograd._get_data_attr  # type: ignore[attr-defined]  # not in its stubs
    if not module.graph.find_nodes(op="call_function", target=reads_data):
        return module
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    graph.set_codegen(module.graph._codegen)
    for node in graph.find_nodes(op="call_function", target=reads_data):
        node.target = torch.detach
    return torch.fx.GraphModule(module, graph)


def _order_shapes(module: torch.fx.GraphModule, count: int, dynamic_shapes: Any) -> Any:
    """What is said of the sizes of arguments, as of those of a function of ``*arguments``."""
    if dynamic_shapes is None:
        return None
    if isinstance(dynamic_shapes, Mapping):
        names = [str(node.target) for node in module.graph.find_nodes(op="placeholder")]
        dynamic_shapes = [dynamic_shapes.get(name) for name in names[:count]]
    return (tuple(dynamic_shapes),)


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
        if each.kind is InputKind.MEMORY:
            raise UnsupportedError(
                f"the graph reads memory beyond the elements of {each.name}, which FX cannot say"
            )
    if any(slot.is_half_complex for slot in exported.outputs):
        raise UnsupportedError("the graph returns complex numbers of 16 bits a part")


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
        results = self._own_memory(self.emitter.write_nodes())
        for output, position in self.emitter.source.updates.items():
            target = self.emitter.names[inputs[position]]
            if self._is_trained(self.exported.inputs[position]):
                target = self.emitter.method("detach", target)  # as whoever wrote it had to
            self.emitter.method("copy_", target, results[output])
        made = self.emitter.finish(self._nest_results(results))
        made.graph.set_codegen(self.original.graph._codegen)
        made.recompile()
        return made

    def _own_memory(self, results: Sequence[Term]) -> list[Term]:
        """Results that later writes to inputs leave alone: copies of what may be views of them."""
        if not self.emitter.source.updates:
            return list(results)
        pairs = zip(self.emitter.source.outputs, results, strict=True)
        return [
            term if _is_fresh(value) else self.emitter.method("clone", term)
            for value, term in pairs
        ]

    def _is_trained(self, written: Input) -> bool:
        """Whether what is written is a leaf of autograd, which only ``data`` or no_grad writes."""
        if written.position is None:
            tensor = self.tensors[written.name]
        else:
            tensor = _pytree.tree_leaves(self.examples)[written.position]
        return bool(tensor.requires_grad and tensor.is_leaf)

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

    def _leaf(self, slot: Output, results: Sequence[Term]) -> Any:
        """What the graph returns in one place: a tensor, a number, a word or None."""
        if slot.position is None:
            return slot.word
        value = self.emitter.source.outputs[slot.position]
        if not slot.is_number:
            return results[slot.position]
        if isinstance(value.op, DimValue):
            return self.emitter.size(value.op.value)
        if isinstance(value.op, Constant):
            return value.op.evaluate().item()
        return self.emitter.method("item", results[slot.position])

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
        leaves = [self._leaf(slot, results) for slot in self.exported.outputs]
        if isinstance(self.original.graph._codegen, _PyTreeCodeGen):
            return leaves
        return self._nest_result(_pytree.tree_unflatten(leaves, self.exported.output_spec))

    def _nest_result(self, returned: Any) -> Any:
        """A result in its own nesting, where calls make what is more than a list, tuple or dict."""
        kind = type(returned)
        if kind is dict:
            return {key: self._nest_result(each) for key, each in returned.items()}
        if isinstance(returned, list | tuple):
            parts = [self._nest_result(each) for each in returned]
            if kind in (list, tuple):
                return kind(parts)
            if hasattr(kind, "_fields"):  # a named tuple
                return self.emitter.call(kind, *parts)
            return self.emitter.call(kind, parts)  # torch.Size, or one of torch.return_types
        if returned is None or isinstance(returned, (torch.fx.Node, *PLAIN)):
            return returned
        raise UnsupportedError(
            f"a graph that returns a {kind.__name__} is not optimised in place",
            hint="return tensors and numbers, or tuples, lists and dicts of them",
        )


def _is_fresh(value: Value) -> bool:
    """Whether a value has memory of its own for certain, since it is computed."""
    computed = Trait.ELEMENTWISE | Trait.REDUCTION | Trait.CONTRACTION | Trait.WINDOW
    if value.op is None or isinstance(value.op, Cast | Conj | Imag | Real):
        return False
    return bool(value.op.traits & computed)


def _key(entry: Any) -> Any:
    """What an entry of a path is subscripted with."""
    if isinstance(entry, _pytree.SequenceKey):
        return entry.idx
    if isinstance(entry, _pytree.MappingKey):
        return entry.key
    raise UnsupportedError(f"an argument of a type that is no tuple, list or dict: {entry}")
