"""Walking a model: graphs, bodies and calls of functions, node by node, into one graph of ours."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

from onnx import FunctionProto, GraphProto, ModelProto

from monograph.errors import InputError, MonographError, UnsupportedError
from monograph.frontends.onnx import functions
from monograph.frontends.onnx.blobs import Blob
from monograph.frontends.onnx.check import check_model, check_node
from monograph.frontends.onnx.deferred import defer
from monograph.frontends.onnx.external import Files
from monograph.frontends.onnx.habits import warn
from monograph.frontends.onnx.known_values import KnownValues
from monograph.frontends.onnx.mixed_opsets import version_of
from monograph.frontends.onnx.model import (
    UNNAMED,
    FunctionKey,
    LoadedModel,
    canonical_domain,
    load_model,
    opset_versions,
)
from monograph.frontends.onnx.node import NotStatic, OnnxNode
from monograph.frontends.onnx.order import (
    NodeFacts,
    describe_node,
    facts_of,
    free_names,
    shorten,
    sort_nodes,
    subgraphs,
)
from monograph.frontends.onnx.registry import Converter, Results, find_converter
from monograph.frontends.onnx.scope import Scope
from monograph.frontends.onnx.support import STANDARD, find_unsupported_ops
from monograph.frontends.onnx.tensors import data_of, data_of_sparse
from monograph.frontends.onnx.types import Symbols, TypeWriter, contradicts, value_type
from monograph.ir.data import Data
from monograph.ir.deferred import Undecided
from monograph.ir.graph import Graph, Value, current_graph
from monograph.ir.location import Location
from monograph.ir.region import capture
from monograph.ir.types import (
    Array,
    TensorType,
    UnrankedType,
    ValueType,
    string,
    symbols_of,
)
from monograph.ops.data import Constant

LARGEST_TENSOR = 2**40
"""Bytes that one value of a model may have: beyond it, a size is a mistake or an attack."""

MAX_INLINE_ELEMENTS = 16
"""Initializers of at most so many elements print in full: they are constants, not weights."""

_NONE: Mapping[int, Blob] = {}
_MISTAKES = (
    ValueError, TypeError, IndexError, KeyError, ArithmeticError, AttributeError, MemoryError,
)  # fmt: skip


def import_model(model: LoadedModel) -> Graph:
    """The graph of a model; every op that has no meaning here is reported at once."""
    check_model(model)
    functions.check_expansion(model)
    problems = find_unsupported_ops(model)
    if problems:
        ops = "1 op that is" if len(problems) == 1 else f"{len(problems)} ops that are"
        raise UnsupportedError(
            f"{model.file} has {ops} not supported",
            problems,
            hint=_hint(model.file),
        )
    importer = Importer(model.file, model.functions, model.files)
    return importer.run(model)


def _hint(file: str) -> str:
    """What to do about unsupported ops, with the command that lists them again."""
    advice = "export it without them, or define them as functions of the model"
    if file == UNNAMED:
        return advice
    return f"{advice}; then run: {shlex.join(['monograph', 'check', file])}"


def import_deferred(
    proto: ModelProto, types: Sequence[ValueType], constants: Mapping[int, Array]
) -> Graph:
    """The graph of a model's only node, on inputs of these types; ``constants`` are known."""
    model = load_model(proto)
    importer = Importer(model.file, model.functions, model.files)
    return importer.run_one(model.proto.graph, model.opsets, types, constants)


def resolve_deferred(proto: ModelProto, operands: Sequence[Value]) -> tuple[Value, ...]:
    """Convert a model's only node, on these values, into the graph being built; its results.

    ``Undecided`` says whose contents are missing, if it is still not static.
    """
    model = load_model(proto)
    importer = Importer(model.file, model.functions, model.files)
    return importer.resolve(model.proto.graph, model.opsets, operands)


class Importer:
    """One import: what is known of values, the symbols in use, and the walk itself."""

    def __init__(
        self, file: str, functions: Mapping[FunctionKey, FunctionProto], files: Files
    ) -> None:
        self.file = file
        self.functions = functions
        self.files = files
        self.symbols = Symbols()
        self.contents = KnownValues()
        self._named: set[Value] = set()
        self._local: dict[tuple[Graph, Value], Value] = {}
        self._may_defer = True
        self._contradictions: list[str] = []

    def run(self, model: LoadedModel) -> Graph:
        """The graph of a whole model."""
        proto = model.proto.graph
        graph = Graph(proto.name or "main")
        declared = {value.name: value.type for value in proto.value_info}
        scope = Scope(model.opsets, declared=declared)
        self._add_inputs(proto, graph, scope)
        with graph.as_current():
            outputs = self.run_body(proto, scope, "the model", model.blobs)
            graph.set_outputs([self.in_graph(value, graph) for value in outputs])
        for value, output in zip(outputs, proto.output, strict=True):
            self._check_declared(f"the output {shorten(output.name)!r}", output.type, value.type)
        self._warn_of_contradictions()
        self._name_outputs(graph, [value.name for value in proto.output])
        remove_unused(graph)
        return graph

    def _add_inputs(self, proto: GraphProto, graph: Graph, scope: Scope) -> None:
        """Declare the inputs; those that are initializers too are weights, not inputs."""
        given = {tensor.name for tensor in proto.initializer}
        given.update(tensor.values.name for tensor in proto.sparse_initializer)
        self.symbols.declare(_parameters(proto.input))
        seen: set[str] = set()
        for value in proto.input:
            name = shorten(value.name)
            if not value.name:
                raise InputError("an input of the model has no name")
            if value.name in seen:
                raise InputError(f"two inputs of the model are called {name!r}")
            seen.add(value.name)
            type_ = value_type(value.type, self.symbols, f"input {name!r}")
            if _is_too_large(type_):
                raise _too_large(f"input {name!r}", type_)
            if value.name not in given:
                scope.values[value.name] = made = graph.add_input(value.name, type_)
                self._named.add(made)

    def run_one(
        self,
        proto: GraphProto,
        opsets: Mapping[str, int],
        types: Sequence[ValueType],
        constants: Mapping[int, Array],
    ) -> Graph:
        """The graph of a deferred node; what is still not static in it is an error now."""
        graph = Graph("deferred")
        scope = Scope(opsets)
        with graph.as_current():
            for position, (value, type_) in enumerate(zip(proto.input, types, strict=True)):
                if position in constants:
                    assert isinstance(type_, TensorType)
                    made = graph.add_constant(constants[position], type_.dtype)
                else:
                    made = graph.add_input(f"operand{position}", type_)
                    self.symbols.take(symbol.name for symbol in symbols_of(type_))
                scope.values[value.name] = made
            (node,) = facts_of(proto.node)
            self._may_defer = False
            self.convert_node(node, scope, set(node.outputs))
            outputs = [self._output(name, scope, "the node") for name in node.outputs if name]
            graph.set_outputs([self.in_graph(value, graph) for value in outputs])
        return graph

    def resolve(
        self, proto: GraphProto, opsets: Mapping[str, int], operands: Sequence[Value]
    ) -> tuple[Value, ...]:
        """Convert a deferred node again, on values of the current graph."""
        graph = current_graph()
        self.symbols.take(graph.symbols())
        scope = Scope(opsets)
        scope.values.update(
            (value.name, operand) for value, operand in zip(proto.input, operands, strict=True)
        )
        self._named.update(operands)
        (node,) = facts_of(proto.node)
        self._may_defer = False
        try:
            self.convert_node(node, scope, set(node.outputs))
        except NotStatic as error:
            asked = self.contents.missed if error.contents is None else (error.contents,)
            missing = dict.fromkeys(self.contents.origin(value) for value in asked)
            known = [value for value in missing if value.graph is graph]
            raise Undecided(error.message, known) from None
        outputs = [self._output(name, scope, "the node") for name in node.outputs if name]
        return tuple(self.in_graph(value, graph) for value in outputs)

    # Bodies.

    def run_body(
        self, proto: GraphProto, scope: Scope, where: str, blobs: Mapping[int, Blob] = _NONE
    ) -> list[Value]:
        """Convert a graph's nodes into the current graph; its outputs.

        ``blobs`` is the raw data of initializers that were taken out of it, by position.
        """
        facts = facts_of(proto.node)
        used = {name for node in facts for name in node.reads}
        used.update(value.name for value in proto.output)
        self._add_initializers(proto, scope, used, blobs)
        # A body may make a name again; what it stood for outside is hidden from there on.
        for node in sort_nodes(facts, scope.values, scope, where):
            self.convert_node(node, scope, used)
        return [self._output(value.name, scope, where) for value in proto.output]

    def _output(self, name: str, scope: Scope, where: str) -> Value:
        value = scope.find(name) if name in scope else None
        if value is None:
            raise InputError(
                f"{where} has an output {shorten(name)!r} that nothing makes",
                expected="an input, an initializer or a result of a node",
            )
        return value

    def _add_initializers(
        self, proto: GraphProto, scope: Scope, used: set[str], blobs: Mapping[int, Blob]
    ) -> None:
        seen: dict[str, Data] = {}
        for position, tensor in enumerate(proto.initializer):
            data = data_of(tensor, self.files, blobs.get(position))
            self._add_initializer(tensor.name, data, scope, used, seen)
        for sparse in proto.sparse_initializer:
            data = data_of_sparse(sparse, self.files)
            self._add_initializer(sparse.values.name, data, scope, used, seen)

    def _add_initializer(
        self, name: str, data: Data, scope: Scope, used: set[str], seen: dict[str, Data]
    ) -> None:
        if not name:
            raise InputError("an initializer has no name")
        if seen.setdefault(name, data) is not data:
            if not _same_contents(seen[name], data):
                raise InputError(f"two initializers are called {shorten(name)!r}")
            warn(f"the initializer {shorten(name)!r} is stored twice")
            return
        if name in used:
            scope.values[name] = self._store(f"{scope.prefix}{name}", data)

    def _store(self, name: str, data: Data) -> Value:
        graph = current_graph()
        if data.size <= MAX_INLINE_ELEMENTS or data.dtype is string:
            value = graph.add_constant(data, name=name)
        else:
            value = graph.add_weight(name, data)
        self._named.add(value)
        return value

    # Nodes.

    def convert_node(self, facts: NodeFacts, scope: Scope, used: set[str]) -> None:
        """Convert one node and give its outputs their names."""
        where = describe_node(facts.proto, facts.position)
        location = Location(self.file, facts.position + 1, scope=where)
        with current_graph().inserting_before(None, location):
            try:
                node = self._node(facts, scope, used)
                self._bind(node, facts.outputs, self._convert(node))
            except MonographError as error:
                if not isinstance(error, NotStatic):
                    error.source = str(location)
                raise error.with_context(where=where, source=str(location)) from None
            except RecursionError:
                raise InputError("the model nests too deeply", where=where) from None
            except _MISTAKES as error:
                raise InputError(
                    f"{where} cannot be converted",
                    found=f"{type(error).__name__}: {error}"[:300],
                    source=str(location),
                ) from error

    def _node(self, facts: NodeFacts, scope: Scope, used: set[str]) -> OnnxNode:
        inputs = tuple(self.find(name, scope) if name else None for name in facts.inputs)
        wanted = tuple(bool(name) and name in used for name in facts.outputs)
        domain = canonical_domain(facts.proto.domain)
        opset = scope.opsets.get(domain, 1)
        if domain in STANDARD and functions.function_key(facts.proto) not in self.functions:
            opset = version_of(facts.proto, domain, opset)
        return OnnxNode(facts.proto, inputs, opset, wanted, self, scope)

    def find(self, name: str, scope: Scope) -> Value | None:
        """What a name stands for, as a value of the graph being built; None if it was omitted."""
        try:
            value = scope.find(name)
        except KeyError:
            raise InputError(
                f"{shorten(name)!r} is not there",
                expected="the name of an input, an initializer or a result made before",
            ) from None
        return None if value is None else self.in_graph(value, current_graph())

    def in_graph(self, value: Value, graph: Graph) -> Value:
        """A value as one of the graph being built: captured from the graphs around it.

        Constants are not captured but made again, so that they stay constants inside.
        """
        if value.graph is graph:
            return value
        found = self._local.get((graph, value))
        if found is not None:
            return found
        if isinstance(value.op, Constant):
            found = graph.add_constant(value.op.data, name=value.name)
        else:
            found = capture(value, graph)
        self._local[graph, value] = found
        if found is not value:
            self.contents.outer[found] = value
        return found

    def _convert(self, node: OnnxNode) -> Results:
        proto = node.proto
        if self.functions:
            function = self.functions.get(functions.function_key(proto))
            if function is not None:
                return self.call(function, node)
        domain = canonical_domain(proto.domain)
        found = find_converter(domain, node.op_type, node.opset)
        schema = functions.schema_of(domain, node.op_type, node.opset)
        if schema is not None:
            check_node(proto, schema)
        ranked = all(value is None or isinstance(value.type, TensorType) for value in node.inputs)
        may_defer, self._may_defer = self._may_defer, True
        if found is None:
            return self.expand(node, may_defer)
        if ranked or found.any_types:
            return self._try(found, node, may_defer)
        if not may_defer:
            raise NotStatic(f"{node.name}: an operand has no rank, even as it runs")
        return defer(node, None)

    def _try(self, found: Converter, node: OnnxNode, may_defer: bool) -> Results:
        try:
            return found.convert(node)
        except NotStatic as error:
            if not may_defer:
                raise
            return defer(node, error)

    def expand(self, node: OnnxNode, may_defer: bool = True) -> Results:
        """Convert the body that ONNX gives for an op which has no converter, or none that fits."""
        schema = functions.schema_of(canonical_domain(node.proto.domain), node.op_type, node.opset)
        if schema is None or not functions.has_body(schema):
            raise InputError(f"{node.name} is not supported")
        unranked = any(
            value is not None and isinstance(value.type, UnrankedType) for value in node.inputs
        )
        if unranked and may_defer and schema.has_context_dependent_function:
            return defer(node, None)
        writer = TypeWriter()
        types = [
            b"" if value is None else writer.write(value.type).SerializeToString()
            for value in node.inputs
        ]
        body = functions.schema_body(schema, node.proto, types, node.opset)
        if body is None:
            raise InputError(f"{node.name}: ONNX gives no body for these operands")
        return self.call(body, node)

    def call(self, function: FunctionProto, node: OnnxNode) -> Results:
        """Convert a function's body in the place of a node that calls it."""
        scope = self._call_scope(function, node)
        bound = functions.bind_attributes(function, node.proto)
        outputs = list(function.output)[: len(node.outputs_wanted)]
        wanted = {name for name, want in zip(outputs, node.outputs_wanted, strict=True) if want}
        facts = facts_of(function.node)
        used = {name for each in facts for name in each.reads} | wanted
        where = f"the function {shorten(function.name)!r}"
        for each in sort_nodes(facts, scope.values, (), where):
            proto = functions.instantiate(each.proto, bound)
            self.convert_node(each._replace(proto=proto), scope, used)
        return [self._output(name, scope, where) if name in wanted else None for name in outputs]

    def _call_scope(self, function: FunctionProto, node: OnnxNode) -> Scope:
        depth = node.scope.depth + 1
        if depth > 2 * functions.DEEPEST_CALLS:
            raise InputError("functions call each other too deeply")
        outputs = len(node.outputs_wanted)
        if len(node.inputs) > len(function.input) or outputs > len(function.output):
            raise InputError(
                f"{node.name} does not fit the function that it calls",
                expected=f"at most {len(function.input)} inputs, {len(function.output)} outputs",
                found=f"{len(node.inputs)} and {outputs}",
            )
        label = node.proto.name or next((name for name in node.proto.output if name), node.op_type)
        opsets = {**node.scope.opsets, **opset_versions(function.opset_import, function.name)}
        scope = Scope(opsets, None, f"{node.scope.prefix}{label}/", depth)
        # A body that the call hands over is inlined with the names that it reads around the call.
        captured = (name for graph in subgraphs(node.proto) for name in free_names(graph))
        scope.values.update({name: self.find(name, node.scope) for name in captured})
        given = [*node.inputs, *[None] * (len(function.input) - len(node.inputs))]
        scope.values.update(zip(function.input, given, strict=True))
        return scope

    # Results.

    def _bind(self, node: OnnxNode, names: Sequence[str], results: Results) -> None:
        values = [results] if isinstance(results, Value) else list(results)
        for position, name in enumerate(names):
            value = values[position] if position < len(values) else None
            if not name:
                continue
            if value is None:
                if node.outputs_wanted[position]:
                    raise InputError(f"{node.name}: output {position} is not supported")
                continue
            if _is_too_large(value.type):
                raise _too_large(f"the result {shorten(name)!r} of {node.name}", value.type)
            declared = node.scope.declared.get(name)
            if declared is not None:
                self._check_declared(repr(shorten(name)), declared, value.type)
            if value not in self._named and value.producer is not None:
                value.graph.rename(value, f"{node.scope.prefix}{name}")
            self._named.add(value)
            node.scope.values[name] = value

    def _check_declared(self, what: str, declared: object, actual: ValueType) -> None:
        said = contradicts(declared, actual)
        if said is not None:
            self._contradictions.append(
                f"{what} is declared to be another type than it is: {said}, and not {actual}"
            )

    def _warn_of_contradictions(self) -> None:
        """Warn once of all declared types that are wrong: a stale file may have one a node."""
        if not self._contradictions:
            return
        first, *others = self._contradictions
        more = f" (and {len(others)} more like it)" if others else ""
        warn(f"{first}{more}")

    def _name_outputs(self, graph: Graph, names: Sequence[str]) -> None:
        """Give the outputs the names that the model gives them, whoever has them now."""
        holders = {value.name: value for node in graph.nodes for value in node.results}
        for value, name in zip(graph.outputs, names, strict=True):
            if value.name == name or value.producer is None or value.name in names:
                continue
            holder = holders.get(name)
            if holder is not None:
                graph.rename(holder, f"{name}_inner")
            graph.rename(value, name)


def _is_too_large(type_: ValueType) -> bool:
    size = type_.nbytes if isinstance(type_, TensorType) else 0
    return isinstance(size, int) and size > LARGEST_TENSOR


def _too_large(what: str, type_: ValueType) -> InputError:
    return InputError(
        f"{what} is too large", expected=f"at most {LARGEST_TENSOR} bytes", found=str(type_)
    )


def _same_contents(one: Data, other: Data) -> bool:
    return one.type == other.type and one.array().tobytes() == other.array().tobytes()


def remove_unused(graph: Graph) -> None:
    """Erase nodes that nothing needs: shapes that were only computed with while importing."""
    for node in reversed(graph.nodes):
        if node.is_removable:
            graph.erase(node)
        else:
            for region in node.regions:
                remove_unused(region)


def _parameters(values: Iterable[object]) -> Iterable[str]:
    for value in values:
        proto = value.type  # type: ignore[attr-defined]  # a ValueInfoProto
        if proto.HasField("tensor_type"):
            for dim in proto.tensor_type.shape.dim:
                if dim.HasField("dim_param") and dim.dim_param:
                    yield dim.dim_param
