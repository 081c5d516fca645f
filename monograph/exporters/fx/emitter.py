"""Writes a graph as an FX graph: nodes that call torch's functions, weights as parameters."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

import torch

from monograph.exporters.fx.sizes import SizeEmitter
from monograph.exporters.writers import WriterTable
from monograph.frontends.torch.types import array_to_torch, dtype_to_torch, is_torch_dtype
from monograph.ir.dims import Dim, Shape
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.types import DType, Kind, TensorType

Term: TypeAlias = torch.fx.Node
Size: TypeAlias = "int | torch.fx.Node"


def _refuse_types(node: Node) -> str | None:
    """Only tensors of torch's dtypes can stand in a torch program."""
    for value in (*node.operands, *node.results):
        if not isinstance(value.type, TensorType):
            return f"a {value.type} is no tensor of torch"
        if not is_torch_dtype(value.dtype):
            return f"torch has no {value.dtype}"
    return None


TABLE: WriterTable[FxEmitter, Term] = WriterTable("FX", _refuse_types)
"""What each op is in torch; the files of ``converters`` fill it."""


class FxEmitter:
    """Builds the FX graph of one graph, or of a region of it."""

    def __init__(
        self,
        graph: Graph,
        parameters: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        self.given = dict(parameters or {})
        self.source = graph
        self.root = torch.nn.Module()
        self.fx = torch.fx.Graph()
        self.names: dict[Value, Term] = {}
        self.sizes = SizeEmitter(self.call)

    def module(self) -> torch.fx.GraphModule:
        """The finished module: an input each, and the results, as one or as a tuple."""
        for value in self.source.inputs:
            self.define(value, self.fx.placeholder(_identifier(value.name)))
        results = self.write_nodes()
        return self.finish(results[0] if len(results) == 1 else tuple(results))

    def region_module(self) -> torch.fx.GraphModule:
        """The finished module of a region, which takes a list of tensors and returns one."""
        given = self.fx.placeholder("operands", type_expr=list[torch.Tensor])
        for position, value in enumerate(self.source.inputs):
            self.define(value, self.call(operator.getitem, given, position))
        return self.finish(self.write_nodes())

    def write_nodes(self) -> list[Term]:
        """Write every node, once the inputs are defined; the terms of the outputs."""
        for node in self.source.nodes:
            before = len(self.fx.nodes)
            terms = TABLE.write(self, node)
            for value, term in zip(node.results, terms, strict=True):
                self.define(value, term)
            count = len(self.fx.nodes) - before
            for term in islice(reversed(self.fx.nodes), count):
                term.meta["location"] = node.location
        return [self.names[value] for value in self.source.outputs]

    def finish(self, results: Any) -> torch.fx.GraphModule:
        """Return these, and check the graph."""
        self.fx.output(results)
        self.fx.lint()
        return torch.fx.GraphModule(self.root, self.fx, class_name="GraphModule")

    def define(self, value: Value, term: Term) -> None:
        """Say which term stands for a value, whose sizes are known from then on."""
        self.names[value] = term
        self.sizes.learn(value.tensor.shape, term)

    # For writers.

    def operands(self, node: Node) -> list[Term]:
        """The terms of a node's operands."""
        return [self.names[value] for value in node.operands]

    def call(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Term:
        """A call of one of torch's functions."""
        return self.fx.call_function(function, arguments, keywords)

    def method(self, name: str, *arguments: Any, **keywords: Any) -> Term:
        """A call of a tensor's method."""
        return self.fx.call_method(name, arguments, keywords)

    def unpack(self, term: Term, count: int) -> list[Term]:
        """The parts of a tuple that a call returns."""
        return [self.call(operator.getitem, term, position) for position in range(count)]

    def submodule(self, name: str, module: torch.nn.Module, *arguments: Any) -> Term:
        """A call of a module, which becomes part of this one."""
        unique = _unique(self.root, name)
        self.root.add_module(unique, module)
        return self.fx.create_node("call_module", unique, arguments)

    def region(self, graph: Graph) -> torch.fx.GraphModule:
        """A region as a module that takes and returns a list."""
        return FxEmitter(graph, self.given).region_module()

    def parameter(self, label: str, array: Any) -> Term:
        """A weight under its own name (``encoder.0.bias``): the tensor given for it, or a copy."""
        *path, last = [_identifier(part, first="") for part in label.split(".")]
        module = self.root
        for part in path:
            if not hasattr(module, part):
                module.add_module(part, torch.nn.Module())
            inner = getattr(module, part)
            if not isinstance(inner, torch.nn.Module):
                return self.parameter(label.replace(".", "_"), array)
            module = inner
        unique = _unique(module, last)
        held = self.given.get(label)
        if held is None:
            tensor = array_to_torch(array)
            held = torch.nn.Parameter(tensor, requires_grad=False)
        if isinstance(held, torch.nn.Parameter):
            module.register_parameter(unique, held)
        else:
            module.register_buffer(unique, held)
        return self.fx.create_node("get_attr", ".".join((*path, unique)))

    def state(self, name: str, tensor: torch.Tensor) -> Term:
        """A buffer or parameter that the program writes, under its own name."""
        self.given.setdefault(name, tensor)
        return self.parameter(name, None)

    def constant(self, array: Any, name: str = "constant") -> Term:
        """A tensor that is known now, as a buffer."""
        unique = _unique(self.root, _identifier(name))
        self.root.register_buffer(unique, array_to_torch(array).clone())
        return self.fx.create_node("get_attr", unique)

    def size(self, dim: Dim) -> Size:
        """A dimension as an int, or as the node that works it out."""
        found: Size = self.sizes.size(dim)
        return found

    def shape(self, shape: Shape) -> list[Size]:
        """A shape as a list of those."""
        return [self.size(dim) for dim in shape]

    def cast(self, term: Term, dtype: DType) -> Term:
        """torch's own conversion."""
        return self.method("to", term, dtype_to_torch(dtype))


def _unique(module: torch.nn.Module, name: str) -> str:
    taken, count = name, 0
    while hasattr(module, taken):
        count += 1
        taken = f"{name}_{count}"
    return taken


def _identifier(name: str, first: str = "_") -> str:
    """A name as Python and TorchScript take it; ``first`` goes before a digit."""
    cleaned = re.sub(r"\W", "_", name)
    return cleaned if cleaned and not cleaned[0].isdigit() else f"{first}{cleaned}"


def normal_axes(axes: Sequence[int], rank: int) -> list[int]:
    """Axes counted from the front."""
    return [axis % rank for axis in axes]


def refuse_uncomputed(node: Node) -> str | None:
    """torch holds numbers of u16, u32, u64 and 8-bit floats, but hardly computes with them."""
    for value in node.operands:
        dtype = value.dtype
        if (dtype.kind is Kind.UNSIGNED and dtype.bits > 8) or (dtype.is_float and dtype.bits == 8):
            return f"torch does not compute {node.op.name} of {dtype}"
    return None


def refuse_empty(node: Node) -> str | None:
    """torch refuses operands without elements for many an op."""
    if any(dim == 0 for value in (*node.operands, *node.results) for dim in value.shape):
        return f"torch has no {node.op.name} of nothing"
    return refuse_uncomputed(node)
