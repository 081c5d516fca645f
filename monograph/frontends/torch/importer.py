"""Reads a torch graph, node by node, into a graph of ours.

Each call finds its converter by the name of the op; without one, the op is taken apart by torch's
own decomposition and its parts are read instead; custom ops become opaque calls. Every result is
held against the type that torch has recorded for it: a converter that gets a shape wrong is found
at import, not in the numbers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Any

import torch

from monograph import functional as F
from monograph.errors import GraphError, MonographError, UnsupportedError
from monograph.frontends.torch import (
    custom_ops,
    decompose,
    half_complex,
    higher_order,
    out_arguments,
    scalars,
)
from monograph.frontends.torch.custom_ops import Opaque
from monograph.frontends.torch.frame import Frame, shares_memory
from monograph.frontends.torch.location import location_of
from monograph.frontends.torch.node import TorchNode, natural_dtype, to_dtype
from monograph.frontends.torch.ops import check
from monograph.frontends.torch.registry import find_converter
from monograph.frontends.torch.schema import (
    bind,
    find_mutated_arguments,
    functional_form,
    implicit_arguments,
    overload_named,
)
from monograph.frontends.torch.types import (
    SymbolTable,
    array_from_torch,
    dtype_from_torch,
)
from monograph.ir.build import constant
from monograph.ir.dims import SymbolicDim, provably_different
from monograph.ir.graph import Graph, Value, current_graph
from monograph.ir.types import TensorType, u32

IGNORED = frozenset(
    {
        "aten._assert_tensor_metadata.default",
        "aten._make_dep_token.default",
        "prims._sink_tokens.default",
        "aten.sym_constrain_range.default",
        "aten.sym_constrain_range_for_size.default",
        "aten._functional_sym_constrain_range.default",
        "aten._functional_sym_constrain_range_for_size.default",
    }
)
"""Checks of what types and symbols' ranges already say."""

CHECKS = frozenset(
    {
        "aten._assert_async.default",
        "aten._assert_async.msg",
        "aten._assert_scalar.default",
        "aten._functional_assert_async.msg",
        "aten._functional_assert_scalar.default",
    }
)
"""Checks of data, which the graph makes when it runs."""


RESIZES = frozenset({"aten.resize_.default", "aten.resize_as_.default"})

MAX_INLINE_ELEMENTS = 16
"""Tensors in the program's text of up to this many elements are constants, printed in full."""


class _DrawsNumbers(Exception):
    """A call of torch's that draws random numbers, where such calls stay as they are."""


class Importer:
    """Reads torch graphs into one graph of ours.

    ``opaque`` says which ops besides custom ones become opaque calls of torch: if it is true, those
    that have neither a converter nor a decomposition; if it is a function, also those that would
    become nodes of which it says no. ``opaque_calls`` names those that were made.
    """

    def __init__(self, graph: Graph, symbols: SymbolTable, *, opaque: Opaque = False) -> None:
        self.graph = graph
        self.symbols = symbols
        self.opaque = opaque
        self.opaque_calls: list[str] = []
        self.numbers: set[Value] = set()  # 0-d values that are numbers to torch
        self.key: Value | None = None
        self.memories: dict[Any, Value] = {}  # by placeholder
        self._keys = 0
        self._frames: list[Frame] = []

    @property
    def frame(self) -> Frame:
        """The torch graph that is being read."""
        return self._frames[-1]

    # Reading a graph.

    def run(self, module: Any, arguments: Sequence[Any]) -> tuple[Any, Frame]:
        """Read a torch graph on these arguments: what it returns, in its structure, and the frame.

        The arguments stand for the placeholders, in order.
        """
        frame = Frame(module)
        live = live_nodes(module.graph)
        remaining = iter(arguments)
        self._frames.append(frame)
        try:
            for node in module.graph.nodes:
                if node.op == "placeholder":
                    frame.values[node] = next(remaining)
                elif node.op == "output":
                    return self.argument(node.args[0]), frame
                elif node in live:
                    with current_graph().inserting_before(None, location_of(node)):
                        frame.values[node] = self.convert(node)
        finally:
            self._frames.pop()
        raise GraphError("a torch graph without an output node")

    def convert(self, node: Any) -> Any:
        """What one torch node becomes: values, dimensions, numbers, or tuples of them."""
        try:
            if node.op == "get_attr":
                return self._attribute(node)
            if node.op != "call_function":
                raise UnsupportedError(f"a {node.op} node is not at the level of ATen")
            if node.target is operator.getitem:
                return self._item(node)
            if scalars.is_scalar(node):
                number = scalars.convert(self, node)
                if isinstance(number, Value):
                    self.numbers.add(number)
                return number
            return self.checked(node, self._call(node))
        except MonographError as error:
            where = f"{node.name} = {node.target}"
            raise error.with_context(where=where, source=str(location_of(node))) from error

    def argument(self, given: Any) -> Any:
        """An argument of a torch node, as a converter sees it."""
        if isinstance(given, torch.fx.Node):
            return self.frame.read(given)
        if isinstance(given, list | tuple):
            return [self.argument(item) for item in given]
        if isinstance(given, dict):
            return {key: self.argument(item) for key, item in given.items()}
        if isinstance(given, torch.dtype):
            return dtype_from_torch(given)
        if isinstance(given, torch.SymInt):
            return self.symbols.dim(given)
        if isinstance(given, torch.Tensor):
            return constant(array_from_torch(given), graph=current_graph())
        return given

    def result_types(self, node: Any) -> list[TensorType | None]:
        """The types that torch has recorded for a node's results."""
        recorded = node.meta.get("val")
        results = recorded if isinstance(recorded, list | tuple) else [recorded]
        return [
            self.symbols.tensor_type(result) if isinstance(result, torch.Tensor) else None
            for result in results
        ]

    # Services that converters use.

    def random_key(self) -> Value:
        """A key of its own for one random op, made of the graph's key input."""
        if callable(self.opaque):
            raise _DrawsNumbers
        if self.key is None:
            self.key = self.graph.add_input("random_key", TensorType(u32, (2,)))
        self._keys += 1
        return F.fold_in(self.key, self._keys - 1)

    def memory_behind(self, node: Any) -> Value | None:
        """All of the memory that the program's argument behind a node is a view of.

        It is an input of its own, one-dimensional. None if no argument is that memory, or if the
        program has written to it.
        """
        if len(self._frames) > 1:
            return None
        (type_,) = self.result_types(node)
        for other in self.frame.values:
            if other.op != "placeholder" or not shares_memory(other, node) or type_ is None:
                continue
            if other in self.frame.written:
                return None
            if other not in self.memories:
                recorded = node.meta["val"]
                count = recorded.untyped_storage().nbytes() // recorded.itemsize
                memory = self.graph.add_input(f"{other.name}_memory", type_.with_shape((count,)))
                self.memories[other] = memory
            return self.memories[other]
        return None

    def call(
        self,
        node: Any,
        name: str,
        arguments: Mapping[str, Any],
        results: Sequence[TensorType] | None = None,
    ) -> Any:
        """Apply another op's converter in place of a node's own."""
        found = find_converter(name)
        if found is None:
            raise UnsupportedError(f"{name} has no converter")
        defaults = {
            each.name: self.argument(each.default_value)
            for each in overload_named(name)._schema.arguments
        }
        return found(TorchNode(node, name, {**defaults, **arguments}, self, results))

    def write_argument(self, node: Any, name: str, value: Value) -> None:
        """Overwrite the tensor that a node was given as argument ``name``."""
        target = bind(node, node.target._schema)[name]
        if target is None:
            return
        # Only resize_ gives its argument another type.
        (type_,) = self.result_types(node if str(node.target) in RESIZES else target)
        fitted = value if type_ is None else self._fit_to_type(node, value, type_)
        is_half = half_complex.is_half_complex(target)
        self.frame.write(target, half_complex.round_parts(fitted) if is_half else fitted)

    def write_results(self, node: Any, results: Sequence[Any]) -> Any:
        """Write what an in-place op computed to its arguments; what the op returns.

        ``results`` are those that the op only returns, then those that it writes, in order.
        """
        names = find_mutated_arguments(node.target)
        written = dict(zip(names, results[len(results) - len(names) :], strict=True))
        out_arguments.check_dtypes(node, written)
        for name, value in written.items():
            self.write_argument(node, name, _as_value(value))
        fresh = iter(results[: len(results) - len(names)])
        bound = bind(node, node.target._schema)
        aliases = iter(names)
        returned = [
            next(fresh) if each.alias_info is None else self.frame.values[bound[next(aliases)]]
            for each in node.target._schema.returns
        ]
        return returned[0] if len(returned) == 1 else tuple(returned)

    def checked(self, node: Any, result: Any) -> Any:
        """A result in exactly the type that torch has recorded for it."""
        recorded = node.meta.get("val")
        if recorded is None or _is_misrecorded(node):
            return result
        return self._check_result(node, result, recorded)

    # Inside.

    def _check_result(self, node: Any, result: Any, recorded: Any) -> Any:
        if isinstance(recorded, torch.Tensor):
            value = _as_value(result)
            type_ = self.symbols.tensor_type(recorded)
            if value.rank == type_.rank:
                self.symbols.measure(type_.shape, value.shape)
            fitted = self._fit_to_type(node, value, self.symbols.tensor_type(recorded))
            return half_complex.round_parts(fitted) if recorded.dtype is torch.complex32 else fitted
        if isinstance(recorded, list | tuple):
            if not isinstance(result, list | tuple) or len(result) != len(recorded):
                raise GraphError(
                    f"the converter of {node.target} gives the wrong number of results",
                    expected=str(len(recorded)),
                    found=str(len(result)) if isinstance(result, list | tuple) else "one",
                )
            pairs = zip(result, recorded, strict=True)
            return tuple(self._check_result(node, *pair) for pair in pairs)
        return result

    def _fit_to_type(self, node: Any, value: Value, type_: TensorType) -> Value:
        """A value cast to a dtype, and in the spelling of its shape, that torch has recorded."""
        wrong = value.rank != type_.rank or any(
            provably_different(*pair) for pair in zip(value.shape, type_.shape, strict=True)
        )
        if wrong:
            raise GraphError(
                f"the converter of {node.target} gives the wrong shape",
                expected=str(type_),
                found=str(value.type),
                hint="this is a fault of Monograph, not of your model: please report it",
            )
        return F.reshape(to_dtype(value, type_.dtype), type_.shape)

    def _attribute(self, node: Any) -> Any:
        found = self.frame.module
        for part in str(node.target).split("."):
            found = getattr(found, part)
        if not isinstance(found, torch.Tensor):
            return found
        return tensor_data(current_graph(), str(node.target), found)

    def _item(self, node: Any) -> Any:
        container, index = (self.argument(argument) for argument in node.args)
        return container[index]

    def _call(self, node: Any) -> Any:
        target = node.target
        if isinstance(target, torch._ops.HigherOrderOperator):
            return higher_order.convert(self, node)
        if not isinstance(target, torch._ops.OpOverload):
            raise UnsupportedError(f"{target} is not an op of ATen")
        if str(target) in IGNORED:
            return None
        if str(target) in CHECKS:
            return self._check(node)
        if reason := half_complex.refusal(node):
            raise UnsupportedError(f"{target}: {reason}")
        if target._schema.is_mutable:
            return self._call_in_place(node)
        return self._apply(node, target)

    def _check(self, node: Any) -> None:
        condition, *message = node.args
        value = self.argument(condition)
        if value is not True:
            check(scalars.as_value(value), str(message[0]) if message else "an assertion failed")

    def _call_in_place(self, node: Any) -> Any:
        """An op that writes to its arguments: compute what it writes, then write it."""
        target = node.target
        out_arguments.check_memory(node)
        form = target if find_converter(str(target)) else functional_form(target)
        if form is None:
            return custom_ops.call_in_place(self, node)
        result = self._apply(node, form)
        if torch.Tag.inplace_view in target.tags and str(target) not in RESIZES:
            # `squeeze_` and its like write nothing: the tensor is another view of its memory now.
            if str(target) != "aten.detach_.default":
                self._check_ownership(node)
            self.frame.values[node.args[0]] = result
            return result
        return self.write_results(node, result if isinstance(result, list | tuple) else [result])

    def _check_ownership(self, node: Any) -> None:
        """Refuse to give a tensor of the caller's, or of the module's, another shape in place."""
        changed = node.args[0]
        if changed.op in ("placeholder", "get_attr"):
            raise UnsupportedError(
                f"{node.target} gives another shape to {changed.name}, which the program was given",
                hint="make a view of it: x.t() for x.t_(), x.squeeze() for x.squeeze_()",
            )

    def _apply(self, node: Any, target: Any) -> Any:
        found = find_converter(str(target))
        if found is not None:
            return self._read(node, target, found)
        if needs_only_numbers(node, target):
            here = {"device": "cpu"} if "device" in node.kwargs else {}
            return tensor_data(self.graph, node.name, target(*node.args, **{**node.kwargs, **here}))
        may_be_opaque = bool(self.opaque) or custom_ops.is_custom(target)
        if may_be_opaque and not decompose.can_decompose(target):
            return custom_ops.call(self, node, target)
        parts = decompose.decompose_node(node, target)
        values = [self.argument(each) for each in parts.operands]
        return parts.unflatten(self.run(parts.module, values)[0])

    def _read(self, node: Any, target: Any, converter: Callable[[TorchNode], Any]) -> Any:
        """What a converter makes of a call, or the call as it is where that may not be."""
        call = TorchNode(node, str(target), self._arguments(node, target), self)
        if not callable(self.opaque):
            return converter(call)
        graph = current_graph()
        last = next(reversed(graph.nodes), None)
        result: Any = None
        with suppress(_DrawsNumbers):
            result = converter(call)
        made = list(takewhile(lambda each: each is not last, reversed(graph.nodes)))
        if result is not None and all(map(self.opaque, made)):
            return result
        for each in made:
            graph.erase(each)
        return custom_ops.call(self, node, target)

    def _arguments(self, node: Any, target: Any) -> dict[str, Any]:
        """A node's arguments by the names that ``target``, its functional form, gives them.

        A default may be the node's own op's alone: ``bernoulli_`` has one for its chance,
        ``bernoulli.p`` has none.
        """
        bound = bind(node, target._schema)
        own = bound if target is node.target else bind(node, node.target._schema)
        return {
            name: self.argument(own.get(name) if given is None else given)
            for name, given in bound.items()
        }


def needs_only_numbers(node: Any, target: Any) -> bool:
    """Whether an op of torch's own makes a tensor, always the same, of what stands in the program.

    Such are the windows of signal processing: torch may as well be asked for them now.
    """
    if custom_ops.is_custom(target) or decompose.can_decompose(target):
        return False
    returns = [str(each.type) for each in target._schema.returns]
    is_random = torch.Tag.nondeterministic_seeded in target.tags
    return returns == ["Tensor"] and not is_random and not node.all_input_nodes


def tensor_data(graph: Graph, name: str, tensor: Any) -> Value:
    """A tensor that the program brings with it: a constant if it is small, else a weight."""
    array = array_from_torch(tensor)
    if array.size <= MAX_INLINE_ELEMENTS:
        return constant(array, graph=graph)
    return graph.add_weight(name, array)


STATE_RANK = 3
"""Dimensions of the states of a recurrent layer: layers and directions, examples, features."""


def _is_misrecorded(node: Any) -> bool:
    """Whether torch itself records wrong shapes.

    It does for runs along a ``dim`` that counts from the end; and before 2.13 the last states of an
    LSTM had one dimension more (https://github.com/pytorch/pytorch/pull/185716), which whoever
    takes one of them out records as well.
    """
    name = str(node.target)
    if name == "aten.unique_consecutive.default":
        dim = bind(node, node.target._schema)["dim"]
        return dim is not None and dim < 0
    if node.target is operator.getitem:
        return isinstance(node.args[0], torch.fx.Node) and _is_misrecorded(node.args[0])
    is_lstm = name in ("aten.lstm.input", "aten.lstm.data")
    return is_lstm and any(state.dim() != STATE_RANK for state in node.meta["val"][1:])


def _as_value(result: Any) -> Value:
    """A tensor result that a converter may give as a number or a dimension."""
    if isinstance(result, Value):
        return result
    if isinstance(result, SymbolicDim):
        return F.dim(result)
    if isinstance(result, bool | int | float | complex):
        return constant(result, natural_dtype(result), current_graph())
    raise GraphError(f"a converter gives {type(result).__name__} where a tensor is expected")


def live_nodes(graph: Any) -> set[Any]:
    """The nodes that matter: those that the outputs need, and those that write in place."""
    live: set[Any] = set()
    for node in reversed(graph.nodes):
        if node.op == "output" or node in live or _writes(node):
            live.add(node)
            live.update(node.all_input_nodes)
    return live


def _writes(node: Any) -> bool:
    target = node.target
    if node.op != "call_function" or str(target) in IGNORED:
        return False
    if str(target) in CHECKS:
        return not scalars.is_bound(node.args[0])
    if isinstance(target, torch._ops.OpOverload):
        return bool(find_mutated_arguments(target)) or bool(implicit_arguments(node))
    return isinstance(target, torch._ops.HigherOrderOperator)
