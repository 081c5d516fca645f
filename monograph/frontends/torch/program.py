"""Reads a whole torch program: inputs, weights, outputs, and updates of state.

What the user passes comes first among the graph's inputs, in torch's flattened order. Parameters
and buffers are weights that share memory with torch, unless they are trained or overwritten: then
they are inputs too, and what the program writes to them is an extra output that *updates* them. A
program that draws random numbers takes a key as its last input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from enum import Enum
from typing import Any

import torch

from monograph.dataclass import dataclass
from monograph.errors import UnsupportedError
from monograph.frontends.torch.check import find_unsupported
from monograph.frontends.torch.custom_ops import Opaque
from monograph.frontends.torch.device_data import DeviceData, is_on_device
from monograph.frontends.torch.frame import Frame, NeedsFunctionalization
from monograph.frontends.torch.functionalize import functionalize_module
from monograph.frontends.torch.half_complex import is_half_complex
from monograph.frontends.torch.importer import Importer, tensor_data
from monograph.frontends.torch.memory_order import Order, order_of
from monograph.frontends.torch.ops import bind_dim
from monograph.frontends.torch.scalars import as_value
from monograph.frontends.torch.schema import bind, find_mutated_arguments, implicit_arguments
from monograph.frontends.torch.types import SymbolTable, array_from_torch
from monograph.ir.dims import Symbol
from monograph.ir.graph import Graph, Value
from monograph.ir.location import Location
from monograph.ir.tree import Fixed
from monograph.ir.types import TensorType, bool_, f64, i64, symbols_of


class InputKind(Enum):
    """Where an input of the graph comes from."""

    USER = "user"
    PARAMETER = "parameter"
    BUFFER = "buffer"
    MEMORY = "memory"
    RANDOM_KEY = "random_key"


@dataclass(frozen=True)
class Input:
    """One input of the graph: its kind, torch's name, and its place among the user's leaves.

    For the whole memory that an argument is a view of, ``view`` says which: strides and offset.
    """

    kind: InputKind
    name: str
    position: int | None = None
    view: tuple[tuple[int, ...], int] | None = None


@dataclass(frozen=True)
class Output:
    """One leaf that the program returns: its place among the graph's outputs (None for None).

    ``is_number`` marks a size or a number, which torch returns as a Python number;
    ``is_half_complex`` what torch returns as complex32, which the graph holds as c64. ``order`` is
    that of the dimensions in torch's memory, if it is not row by row, and ``is_turned`` says that
    the graph gives them in that order (``memory_order``). ``word`` is what stands in place of None
    where the program returns a string.
    """

    position: int | None
    is_number: bool = False
    is_half_complex: bool = False
    order: Order | None = None
    is_turned: bool = False
    word: str | None = None


@dataclass(frozen=True)
class ImportedModel:
    """A graph, and how it belongs to the torch program that it came from.

    ``inputs`` has one entry for each input of the graph, ``outputs`` one for each leaf that the
    program returns; what the graph returns beyond those are updates of inputs.
    ``input_spec`` and ``output_spec`` are torch's pytree structures, where they are known.
    """

    graph: Graph
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    input_spec: Any = None
    output_spec: Any = None
    opaque_calls: tuple[str, ...] = ()
    fixed: tuple[Fixed, ...] = ()
    """The arguments that are not inputs of the graph: it holds for these values of them alone."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """The tensors that the program itself brings for its parameters and buffers, by name."""
    is_trained: bool = False
    """Whether some of its parameters require gradients."""


def import_program(
    program: Any,
    *,
    training: bool = False,
    names: Mapping[str, str] | None = None,
    opaque: Opaque = False,
    graph_name: str = "main",
    ranges: Mapping[Any, Any] | None = None,
) -> ImportedModel:
    """Read an ``ExportedProgram``; ``ranges`` are of its sizes, in place of what it says itself."""
    _refuse_unsupported(program.graph_module, opaque)
    known = {**program.range_constraints, **(ranges or {})}
    builder = _Builder(program.graph_module, known, names, opaque, graph_name)
    signature = program.graph_signature
    specs = {spec.arg.name: spec for spec in signature.input_specs}
    updated = set(signature.buffers_to_mutate.values()) | builder.overwritten()
    tensors = _tensors_by_target(program)
    user = 0
    lifted = []
    state = {}
    for node in builder.placeholders:
        spec = specs[node.name]
        if spec.kind.name == "TOKEN":
            builder.add_token(node)
        elif spec.target is None:
            builder.add_user_input(node, user)
            user += 1
        else:
            lifted.append((node, spec))
    for node, spec in lifted:
        tensor = tensors[spec.target]
        is_parameter = spec.kind.name == "PARAMETER"
        if (training and is_parameter) or spec.target in updated or node.name in updated:
            kind = InputKind.PARAMETER if is_parameter else InputKind.BUFFER
            builder.add_state_input(node, kind, spec.target, tensor)
            state[spec.target] = tensor
        else:
            is_constant = spec.kind.name == "CONSTANT_TENSOR"
            builder.add_weight(node, spec.target, tensor, is_constant=is_constant)
    returned, frame = builder.run()
    builder.return_program(returned, frame, signature)
    made = builder.finish(program.call_spec.in_spec, program.call_spec.out_spec)
    tensors_used = (tensors[spec.target] for _, spec in lifted)
    is_trained = any(isinstance(x, torch.Tensor) and x.requires_grad for x in tensors_used)
    return replace(made, state=state, is_trained=is_trained)


def import_graph_module(
    module: Any,
    *,
    opaque: Opaque = False,
    graph_name: str = "main",
    weights: Mapping[int, torch.Tensor] | None = None,
) -> ImportedModel:
    """Read a GraphModule of ATen ops whose nodes know their types (``meta["val"]``).

    ``weights`` are arguments, by number, that are weights of the graph, unless it writes them.
    """
    try:
        return _import_module(module, opaque, graph_name, weights or {})
    except NeedsFunctionalization:
        functional = functionalize_module(module)
    try:
        return _import_module(functional, opaque, graph_name, weights or {})
    except NeedsFunctionalization as error:
        raise UnsupportedError(f"arguments that share memory are written: {error}") from error


def _import_module(
    module: Any, opaque: Opaque, graph_name: str, weights: Mapping[int, torch.Tensor]
) -> ImportedModel:
    _refuse_unsupported(module, opaque)
    builder = _Builder(module, {}, None, opaque, graph_name)
    written = builder.overwritten() if weights else set()
    for position, node in enumerate(builder.placeholders):
        if position in weights and node.name not in written:
            builder.add_weight(node, str(node.name), weights[position])
        elif not builder.takes_from_shapes(node):
            builder.add_user_input(node, position)
    returned, frame = builder.run()
    leaves, spec = torch.utils._pytree.tree_flatten(returned)
    builder.return_leaves(leaves, builder.returned_nodes())
    builder.return_written(frame)
    return builder.finish(None, spec)


def _refuse_unsupported(module: Any, opaque: Opaque) -> None:
    if opaque:
        return
    problems = find_unsupported(module)
    if problems:
        names = sorted({problem.op for problem in problems})
        raise UnsupportedError(f"{len(names)} ops have no converter: {', '.join(names)}", problems)


class _Builder:
    """Collects the inputs of a program, reads its graph, and declares its outputs."""

    def __init__(
        self, module: Any, ranges: Any, names: Mapping[str, str] | None, opaque: Opaque, name: str
    ) -> None:
        self.module = module
        self.graph = Graph(name)
        self.importer = Importer(self.graph, SymbolTable(ranges, names), opaque=opaque)
        self.placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        self.inputs: list[Input] = []
        self.fixed: list[Fixed] = []
        self.outputs: list[Value] = []
        self.slots: list[Output] = []
        self._values: dict[Any, Any] = {}
        self._positions: dict[Any, int] = {}  # of placeholders among the graph's inputs
        self._by_target: dict[str, Any] = {}
        self._weights: dict[Any, Value] = {}
        self._bound = self._sizes_of_inputs()

    def overwritten(self) -> set[str]:
        """The names of the placeholders whose memory some node writes."""
        storages: set[int | None] = set()
        for node in self.module.graph.nodes:
            if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
                continue
            arguments = bind(node, node.target._schema)
            for name in (*find_mutated_arguments(node.target), *implicit_arguments(node)):
                storages.update(map(_storage, _nodes(arguments[name])))
        storages.discard(None)
        return {
            node.name
            for node in self.placeholders
            if _storage(node) in storages and not _is_literal(node)
        }

    def add_user_input(self, node: Any, position: int) -> None:
        """An input that the caller passes: a tensor, a size, a number, or a constant."""
        recorded = node.meta.get("val")
        if _is_token(node):
            self.add_token(node)
            return
        if isinstance(recorded, torch.Tensor):
            type_ = self.importer.symbols.tensor_type(recorded)
        elif isinstance(recorded, torch.SymInt):
            type_ = TensorType(i64, ())
        elif isinstance(recorded, torch.SymFloat):
            type_ = TensorType(f64, ())
        elif isinstance(recorded, torch.SymBool):
            type_ = TensorType(bool_, ())
        else:
            self._values[node] = recorded  # specialised: torch has put the constant in its place
            self.fixed.append(Fixed(str(node.name), position, recorded))
            return
        value = self._declare(node, InputKind.USER, str(node.name), type_, position)
        if isinstance(recorded, torch.SymInt):
            self._values[node] = self._size(value, recorded)

    def takes_from_shapes(self, node: Any) -> bool:
        """Whether an argument is a size that the shapes of others tell, and so is not needed."""
        recorded = node.meta.get("val")
        symbols = self.importer.symbols
        if not isinstance(recorded, torch.SymInt) or not symbols.is_dimension(recorded):
            return False
        dim = symbols.dim(recorded)
        if dim not in self._bound:
            return False
        self._values[node] = dim
        return True

    def add_token(self, node: Any) -> None:
        """What says in which order effects happen: nothing that is passed or read."""
        self._values[node] = None

    def add_state_input(self, node: Any, kind: InputKind, target: str, tensor: Any) -> None:
        """A parameter or buffer that the caller passes, because it is trained or updated."""
        type_ = self.importer.symbols.tensor_type(tensor)
        self._by_target[target] = node
        self._declare(node, kind, target, type_, None)

    def add_weight(self, node: Any, name: str, tensor: Any, *, is_constant: bool = False) -> None:
        """A parameter or buffer that stays as it is; tensors that share memory are one weight."""
        if not isinstance(tensor, torch.Tensor):
            self._values[node] = tensor
            return
        key = _memory(tensor)
        if key not in self._weights:
            with self.graph.inserting_before(None, Location("<torch weights>", 0, name)):
                self._weights[key] = self._data(name, tensor, is_constant)
        self._values[node] = self._weights[key]

    def _is_number(self, leaf: Any) -> bool:
        return not isinstance(leaf, Value) or leaf in self.importer.numbers

    def _data(self, name: str, tensor: Any, is_constant: bool) -> Value:
        if is_constant:
            return tensor_data(self.graph, name, tensor)
        data = DeviceData(tensor) if is_on_device(tensor) else array_from_torch(tensor)
        return self.graph.add_weight(name, data)

    def run(self) -> tuple[Any, Frame]:
        """Read the graph."""
        arguments = [self._values[node] for node in self.placeholders]
        with self.graph.as_current():
            returned, frame = self.importer.run(self.module, arguments)
        return returned, frame

    def returned_nodes(self) -> list[Any]:
        """What the torch graph returns, flat: nodes, or constants."""
        output = next(iter(reversed(self.module.graph.nodes)))
        return list(torch.utils._pytree.tree_leaves(output.args[0]))

    def return_leaves(self, leaves: Sequence[Any], nodes: Sequence[Any]) -> None:
        """Declare outputs for what the program returns; ``nodes`` are torch's for the leaves."""
        with self.graph.inserting_before(None, Location("<torch outputs>", 0)):
            for leaf, node in zip(leaves, nodes, strict=True):
                if leaf is None or isinstance(leaf, str):
                    self.slots.append(Output(None, word=leaf))
                    continue
                place, is_number = len(self.outputs), self._is_number(leaf)
                order = order_of(node.meta.get("val")) if isinstance(node, torch.fx.Node) else None
                self.slots.append(Output(place, is_number, is_half_complex(node), order))
                self.outputs.append(as_value(leaf))

    def return_written(self, frame: Frame) -> None:
        """Declare an output for each input that the program has overwritten."""
        for node in frame.written:
            if not _is_literal(node):
                self._return_update(node, frame.read(node))

    def return_program(self, returned: Sequence[Any], frame: Frame, signature: Any) -> None:
        """Declare the outputs of an exported program: the user's first, then updates."""
        pairs = list(zip(returned, signature.output_specs, strict=True))
        users = [k for k, (_, spec) in enumerate(pairs) if spec.kind.name == "USER_OUTPUT"]
        nodes = self.returned_nodes()
        self.return_leaves([returned[k] for k in users], [nodes[k] for k in users])
        by_name = {node.name: node for node in self.placeholders}
        for leaf, spec in pairs:
            if spec.kind.name == "BUFFER_MUTATION":
                self._return_update(self._by_target[spec.target], leaf)
            elif spec.kind.name == "USER_INPUT_MUTATION":
                self._return_update(by_name[spec.target], leaf)
        self.return_written(frame)

    def finish(self, input_spec: Any, output_spec: Any) -> ImportedModel:
        """The finished model."""
        self.graph.set_outputs(self.outputs)
        memories = {memory: node for node, memory in self.importer.memories.items()}
        for value in self.graph.inputs[len(self.inputs) :]:
            node = memories.get(value)
            self.inputs.append(
                Input(InputKind.RANDOM_KEY, "random_key") if node is None else self._memory(node)
            )
        return ImportedModel(
            self.graph,
            tuple(self.inputs),
            tuple(self.slots),
            input_spec,
            output_spec,
            tuple(dict.fromkeys(self.importer.opaque_calls)),
            tuple(self.fixed),
        )

    def _memory(self, node: Any) -> Input:
        described, recorded = self.inputs[self._positions[node]], node.meta["val"]
        view = (tuple(recorded.stride()), int(recorded.storage_offset()))
        return Input(InputKind.MEMORY, described.name, described.position, view)

    def _return_update(self, node: Any, value: Value) -> None:
        self.graph.updates[len(self.outputs)] = self._positions[node]
        self.outputs.append(value)

    def _declare(
        self, node: Any, kind: InputKind, name: str, type_: TensorType, position: int | None
    ) -> Value:
        value = self.graph.add_input(name, type_)
        self._values[node] = value
        self._positions[node] = len(self.inputs)
        self.inputs.append(Input(kind, name, position))
        return value

    def _size(self, value: Value, recorded: Any) -> Any:
        """A size that is passed as a number: a dimension, unless it may be negative."""
        if not self.importer.symbols.is_dimension(recorded):
            return value
        dim = self.importer.symbols.dim(recorded)
        if isinstance(dim, Symbol) and dim not in self._bound:
            with self.graph.inserting_before(None, Location("<torch inputs>", 0, value.name)):
                bind_dim(value, dim)
        return dim

    def _sizes_of_inputs(self) -> set[Symbol]:
        """The symbols that the shapes of the inputs settle."""
        found: set[Symbol] = set()
        for node in self.placeholders:
            recorded = node.meta.get("val")
            if isinstance(recorded, torch.Tensor):
                type_ = self.importer.symbols.tensor_type(recorded)
                found.update(dim for dim in type_.shape if isinstance(dim, Symbol))
                found.update(symbol for symbol in symbols_of(type_) if symbol in type_.shape)
        return found


def _tensors_by_target(program: Any) -> dict[str, Any]:
    """Parameters, buffers and constants of an exported program by their names."""
    return {**program.constants, **program.state_dict}


def _is_literal(node: Any) -> bool:
    """Whether a placeholder is a tensor that the program writes out: each call has a fresh copy."""
    copies = (torch.ops.aten.lift_fresh_copy.default, torch.ops.aten.lift_fresh.default)
    return bool(node.users) and all(user.target in copies for user in node.users)


def _is_token(node: Any) -> bool:
    """Whether a placeholder only says in which order effects happen; the caller passes None."""
    wrapper = torch.ops.higher_order.with_effects
    return bool(node.users) and all(
        user.target is wrapper and user.args[0] is node for user in node.users
    )


def _storage(node: Any) -> int | None:
    recorded = node.meta.get("val")
    if not isinstance(recorded, torch.Tensor):
        return None
    return int(recorded.untyped_storage()._cdata)


def _nodes(argument: Any) -> list[Any]:
    if isinstance(argument, torch.fx.Node):
        return [argument]
    if isinstance(argument, list | tuple):
        return [node for item in argument for node in _nodes(item)]
    return []


def _memory(tensor: Any) -> Any:
    """What two tensors that are one piece of memory have in common."""
    if tensor.numel() == 0:
        return id(tensor)
    storage = tensor.untyped_storage()._cdata  # an address would part what programs share
    place = (storage, tensor.storage_offset(), tensor.stride())
    return (*place, tuple(tensor.shape), tensor.dtype)
