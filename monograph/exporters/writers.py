"""Writer tables: what one format says for each op, and the decompositions for what it lacks.

    TABLE: WriterTable[Emitter, str] = WriterTable("StableHLO")

    @TABLE.writes(Transpose)
    def transpose(emitter: Emitter, node: Node, op: Transpose) -> str: ...

    @TABLE.expands(Relu6)
    def relu6(op: Relu6, x: Value) -> Value: ...

A writer gets the node and its op, narrowed to its class, and returns the term of the result, or a
list of them. An op without a writer is rewritten into others: by the table's own expansion of
it, or else by the op's ``decompose``. What is left over is an error that names each node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from monograph.dataclass import dataclass
from monograph.errors import Problem, UnsupportedError
from monograph.ir.decompose import decompose_node, replace_by
from monograph.ir.deferred import DeferredOp
from monograph.ir.graph import Graph, Node
from monograph.ir.op import Op, lookup

EmitterT = TypeVar("EmitterT")
TermT = TypeVar("TermT")
OpT = TypeVar("OpT", bound=Op)

Refuse = Callable[[Node], "str | None"]
"""Why a node cannot be written; None if it can."""


def never(node: Node) -> str | None:
    """Refuse nothing."""
    return None


@dataclass(frozen=True)
class Writer:
    """How one op is written, and which of its nodes are not."""

    write: Callable[[Any, Node, Any], Any]
    unless: Refuse = never


class WriterTable(Generic[EmitterT, TermT]):
    """The ops of a format, in the order in which they were entered.

    ``unless`` holds for every op of the format: a dtype that it does not have, say.
    """

    def __init__(self, format_name: str, unless: Refuse = never) -> None:
        self.format_name = format_name
        self.unless = unless
        self._writers: dict[str, Writer] = {}
        self._expansions: dict[str, Callable[..., Any]] = {}

    def writes(
        self, *ops: type[OpT], unless: Refuse = never
    ) -> Callable[
        [Callable[[EmitterT, Node, OpT], TermT | list[TermT]]],
        Callable[[EmitterT, Node, OpT], TermT | list[TermT]],
    ]:
        """Enter a function as the writer of these ops."""

        def enter(
            write: Callable[[EmitterT, Node, OpT], TermT | list[TermT]],
        ) -> Callable[[EmitterT, Node, OpT], TermT | list[TermT]]:
            for op in ops:
                self._enter(op.name, Writer(write, unless))
            return write

        return enter

    def writes_each(
        self,
        words: Mapping[str, Any],
        write: Callable[[EmitterT, Node, Any], TermT | list[TermT]],
        unless: Refuse = never,
    ) -> None:
        """Enter one writer for the many ops that differ in nothing but the format's word."""
        for name in words:
            self._enter(name, Writer(write, unless))

    def expands(self, *ops: type[OpT]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Enter a function that builds ops from others: ``expand(op, *operands)``."""

        def enter(expand: Callable[..., Any]) -> Callable[..., Any]:
            for op in ops:
                if op.name in self._expansions:
                    raise ValueError(f"two expansions of {op.name} in {self.format_name}")
                self._expansions[op.name] = expand
            return expand

        return enter

    def __iter__(self) -> Iterator[str]:
        """The names of the ops that have a writer."""
        return iter(self._writers)

    def claims(self, op: type[Op]) -> bool:
        """Whether nodes of an op can be written, themselves or made of others."""
        if op.name in self._writers or op.name in self._expansions:
            return True
        return op.is_composite()

    def refusal(self, node: Node) -> str | None:
        """Why a node cannot be written as it stands; None if it can."""
        writer = self._writers.get(node.op.name)
        if writer is None and isinstance(node.op, DeferredOp):
            return "what it stands for depends on contents that only a call brings"
        if writer is None:
            return f"{self.format_name} has no {node.op.name}, and it is not made of other ops"
        return self.unless(node) or writer.unless(node)

    def can_write(self, node: Node) -> bool:
        """Whether a node can be written, itself or as what it is made of."""
        if self.refusal(node) is None:
            return True
        alone = Graph("alone")
        inputs = [alone.add_input(f"x{k}", each.type) for k, each in enumerate(node.operands)]
        regions = [region.clone() for region in node.regions]
        alone.set_outputs(alone.create(node.op, inputs, regions=regions).results)
        problems: dict[str, Problem] = {}
        self._lower(alone, problems)
        return not problems

    def lower(self, graph: Graph) -> Graph:
        """A copy in which every node can be written; an error that names those that cannot."""
        lowered = graph.clone()
        problems: dict[str, Problem] = {}
        self._lower(lowered, problems)
        if problems:
            listed = list(problems.values())
            names = ", ".join(problem.op for problem in listed)
            raise UnsupportedError(
                f"{self.format_name} cannot say {names}", listed, hint=_hint(self.format_name)
            )
        return lowered

    def write(self, emitter: EmitterT, node: Node) -> tuple[TermT, ...]:
        """The terms of a node's results, once the emitter has written it."""
        written = self._writers[node.op.name].write(emitter, node, node.op)
        return tuple(written) if isinstance(written, list) else (written,)

    def _enter(self, name: str, writer: Writer) -> None:
        if name in self._writers:
            raise ValueError(f"two writers of {name} in {self.format_name}")
        lookup(name)
        self._writers[name] = writer

    def _lower(self, graph: Graph, problems: dict[str, Problem]) -> None:
        pending = list(reversed(graph.nodes))
        while pending:
            node = pending.pop()
            reason = self.refusal(node)
            if reason is None:
                for region in node.regions:
                    self._lower(region, problems)
                continue
            made = self._rewrite(node)
            if made is None:
                _note(problems, node, reason)
            else:
                pending.extend(reversed(made))

    def _rewrite(self, node: Node) -> list[Node] | None:
        """The nodes that a node is made of, in its place; None if it is made of no others."""
        expand = self._expansions.get(node.op.name)
        if expand is not None:
            return replace_by(node, lambda *operands: expand(node.op, *operands))
        return decompose_node(node) if node.op.is_composite() else None


def _note(problems: dict[str, Problem], node: Node, reason: str) -> None:
    earlier = problems.get(node.op.name)
    if earlier is not None:
        problems[node.op.name] = Problem(
            earlier.op, earlier.where, earlier.count + 1, earlier.reason
        )
        return
    results = ", ".join(f"%{result.name}" for result in node.results)
    place = "" if node.location is None else f" ({node.location})"
    problems[node.op.name] = Problem(node.op.name, f"{results}{place}", 1, reason)


def _hint(format_name: str) -> str:
    others = "to_onnx writes nearly every op" if format_name != "ONNX" else "`monograph ops` lists"
    return f"{others}; `monograph inspect MODEL` shows which formats can say a model"
