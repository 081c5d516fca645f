"""Walks a graph and writes its nodes; see the package for how the parts fit together."""

from __future__ import annotations

from collections.abc import Sequence

from monograph.errors import Problem, TypeRuleError
from monograph.exporters.onnx.context import ExportContext
from monograph.exporters.onnx.emitter import Emitter, NoKernelError
from monograph.exporters.onnx.functions import Functions, LocalFunction
from monograph.exporters.onnx.protos import first_opset
from monograph.exporters.onnx.registry import converter_of, expansion_of, is_exported
from monograph.exporters.onnx.scope import DOMAIN, Names, Scope, Term, dtype_in
from monograph.exporters.onnx.sizes import UnknownSizeError
from monograph.ir.data import Data
from monograph.ir.graph import Graph, Node
from monograph.ir.types import TensorType, ValueType, string


class NotWrittenError(Exception):
    """Something could not be written for a reason that has been noted already."""


class ModelWriter:
    """One export: the scope of the model's graph, its weights, functions and problems."""

    def __init__(self, graph: Graph, opset: int, special_values: bool) -> None:
        self.graph = graph
        self.opset = opset
        self.special_values = special_values
        self.main = Scope(Names(_all_names(graph)))
        self.functions = Functions(self)
        self.weights: list[tuple[str, Data]] = []
        self._refused: dict[tuple[str, str, str], int] = {}
        self._user: Node | None = None  # the node of the user's graph that is being written

    def bind_inputs(self) -> list[str]:
        """Declare the inputs under their names; ONNX has no empty one."""
        names = [value.name or self.main.names.fresh("input") for value in self.graph.inputs]
        for value, name in zip(self.graph.inputs, names, strict=True):
            self.main.bind(value, Term(name, dtype_in(value.type)))
        return names

    def write_nodes(self, graph: Graph, scope: Scope) -> None:
        """Write every node that anything needs; an error if an output could not be written."""
        for node in graph.nodes:
            if not node.is_removable:
                self.write_node(node, scope)
        if any(value not in scope.terms for value in graph.outputs):
            raise NotWrittenError

    def write_node(self, node: Node, scope: Scope) -> None:
        """Write one node; what cannot be written is noted, and the others go on."""
        outer = self._user
        if not scope.root.is_function:
            scope.source = None if node.location is None else _as_utf8(str(node.location))
            self._user = node
        scope.hint = node.results[0].name if node.results else node.op.name
        try:
            if all(value in scope.terms for value in node.operands):
                self._check_dtypes(node)
                self._write(node, scope)
        except (UnknownSizeError, NoKernelError) as error:
            self.refuse(node, str(error))
        except TypeRuleError as error:
            self.refuse(node, error.message)
        except NotImplementedError:
            self.refuse(node, _reason(node, declined=True))
        except NotWrittenError:
            pass  # what it is made of is noted
        finally:
            self._user = outer

    def _check_dtypes(self, node: Node) -> None:
        """Refuse results of a dtype that this opset does not have."""
        for value in node.results:
            dtype = dtype_in(value.type)
            if first_opset(dtype) > self.opset:
                self.refuse(node, f"ONNX has {dtype} since opset {first_opset(dtype)}")
                raise NotWrittenError

    def _write(self, node: Node, scope: Scope) -> None:
        if _is_empty(node):
            self._write_nothing(node, scope)
            return
        converter = converter_of(node.op)
        function = None
        if converter is not None and converter.makes_function(node):
            function = self.functions.find(node, converted=True)
        elif converter is not None and self.convert(node, scope):
            return
        if function is None:
            if expansion_of(node.op) is None:
                self.refuse(node, _reason(node, converter is not None))
                return
            function = self.functions.find(node, converted=False)
        assert function is not None
        self._call(node, scope, function)

    def _write_nothing(self, node: Node, scope: Scope) -> None:
        """Tensors without elements hold nothing that would have to be computed.

        ONNX Runtime has kernels that fail on them, and optimizations that do.
        """
        names, since = self._names(node, scope), len(scope.nodes)
        emitter = Emitter(scope, self.opset)
        types = [value.tensor for value in node.results]
        terms = [emitter.filled(type_.shape, 0, type_.dtype) for type_ in types]
        self._bind(node, scope, terms, names, since)

    def convert(self, node: Node, scope: Scope) -> bool:
        """Let the op's converter write the node; False if it declines."""
        converter = converter_of(node.op)
        assert converter is not None
        names, since = self._names(node, scope), len(scope.nodes)
        exported = converter.convert(ExportContext(node, node.op, scope, self))
        if exported is None:
            assert len(scope.nodes) == since, f"{node.op.name}: decline before writing nodes"
            return False
        terms = [exported] if isinstance(exported, Term) else list(exported)
        self._bind(node, scope, terms, names, since)
        return True

    def _call(self, node: Node, scope: Scope, function: LocalFunction) -> None:
        names, since = self._names(node, scope), len(scope.nodes)
        emitter = Emitter(scope, self.opset)
        sizes = [emitter.size(symbol) for symbol in function.sizes]
        operands = [scope.term(node.operands[position]) for position in function.operands]
        dtypes = [dtype_in(value.type) for value in node.results]
        made = emitter.write(function.name, [*operands, *sizes], dtypes, domain=DOMAIN)
        self._bind(node, scope, made, names, since)

    def _names(self, node: Node, scope: Scope) -> list[str]:
        """The names of a node's results: their own in the model's graph, which keeps them free."""
        if scope is self.main and node.graph is self.graph:
            return [value.name or scope.names.fresh("value") for value in node.results]
        return [scope.names.fresh(value.name) for value in node.results]

    def _bind(
        self, node: Node, scope: Scope, terms: Sequence[Term], names: Sequence[str], since: int
    ) -> None:
        """Make the terms the node's results, under these names where its nodes made them."""
        taken: set[str] = set()
        for value, term, name in zip(node.results, terms, names, strict=True):
            own = term
            if term.name not in taken and scope.rename(term.name, name, since):
                own = Term(name, term.dtype)
            taken.add(own.name)
            scope.bind(value, own)

    def add_weight(self, data: Data, name: str) -> Term:
        """An initializer under this name; its elements are read when the model is written."""
        self.weights.append((name, data))
        return Term(name, data.dtype)

    def refuse(self, node: Node, reason: str) -> None:
        """Note that a node cannot be written."""
        user = self._user or node
        inside = "" if user is node else f" (inside {user.op.name})"
        where = repr(user) if user.location is None else str(user.location)
        key = (node.op.name, where, f"{reason}{inside}")
        self._refused[key] = self._refused.get(key, 0) + 1

    def problems(self) -> list[Problem]:
        """What could not be written: each op, with each line of the user's program that has it."""
        return [
            Problem(op, where, count, reason)
            for (op, where, reason), count in self._refused.items()
        ]


def _as_utf8(text: str) -> str:
    """Text that a model can hold: names of files may hold bytes that are none."""
    return text.encode("utf-8", "backslashreplace").decode()


def _is_empty(node: Node) -> bool:
    """Whether every result of an op that can be written is of a known shape without elements."""
    if not node.operands or node.regions or not is_exported(type(node.op)):
        return False
    return bool(node.results) and all(_has_no_elements(value.type) for value in node.results)


def _has_no_elements(type_: ValueType) -> bool:
    if not isinstance(type_, TensorType) or type_.dtype is string:
        return False
    return type_.is_static and type_.size == 0


def _all_names(graph: Graph) -> list[str]:
    values = [*graph.inputs, *(result for node in graph.nodes for result in node.results)]
    return [value.name for value in values]


def _reason(node: Node, declined: bool) -> str:
    if declined:
        types = ", ".join(str(value.type) for value in node.operands)
        return f"ONNX cannot express it on {types}" if types else "ONNX cannot express it"
    return "ONNX has no such op, and it is not made of others"
