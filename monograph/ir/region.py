"""Ops with regions: how a Python callable becomes a region, and how a region asks to be run.

A region is a closed graph: it sees its own inputs and nothing else. The callable that describes it
is free to use values of the graph around it all the same. While a region is traced, such a value is
*captured* where an op first reads it (``build.as_operands``): the region gets one more input, the
node one more operand. From an inner region it is captured outwards, level by level.

    def step(carry, x):            %y = scan(%start, %xs, %w) {        # %w was captured
        return carry + x * w, ()     body(%carry, %x, %w) { … }
                                   }

All regions of a node take the same captured values, in the same order, as their last inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextvars import ContextVar
from typing import Any, TypeAlias

from monograph.errors import GraphError
from monograph.ir.dims import Shape
from monograph.ir.graph import Graph, Value
from monograph.ir.op import Op
from monograph.ir.types import ValueType

Pullback: TypeAlias = Callable[[Graph, Sequence[int]], Graph]
"""What autodiff hands to the ``vjp`` of an op with regions; see ``autodiff.vjp.pullback``."""

Sizes: TypeAlias = Callable[[Shape], tuple[int, ...]]
"""Puts the actual sizes in place of the symbols of a shape."""

Steps: TypeAlias = Generator[tuple[Graph, list[Any]], list[Any], tuple[Any, ...]]
"""Yields a region with its arguments, is sent the outputs, and returns the node's results."""


class RegionOp(Op):
    """An op that decides which of its regions run, on what, and how often.

    ``steps`` makes these decisions one at a time, so that an interpreter of many devices can take
    them in lock-step.
    """

    def steps(self, regions: Sequence[Graph], sizes: Sizes, *operands: Any) -> Steps:
        """The meaning of the op, as a sequence of runs of its regions."""
        raise NotImplementedError(f"{self.name} has no evaluation")

    def evaluate(self, regions: Sequence[Graph], run: Any, *operands: Any) -> tuple[Any, ...]:
        """Run the regions as ``steps`` asks for them."""
        steps = self.steps(regions, run.sizes, *operands)
        reply: list[Any] | None = None
        while True:
            try:
                region, arguments = next(steps) if reply is None else steps.send(reply)
            except StopIteration as done:
                results: tuple[Any, ...] = done.value
                return results
            reply = run(region, arguments)


class RegionTracer:
    """Traces the regions of one node that is about to be added to ``enclosing``.

    Trace the regions one after another, then ``close``: what they captured comes back, to be the
    node's last operands.
    """

    def __init__(self, enclosing: Graph) -> None:
        active = _ACTIVE.get()
        self.enclosing = enclosing
        self.outer = active if active is not None and active.graph is enclosing else None
        self.captured: dict[Value, None] = {}
        self._scopes: list[_Scope] = []

    def trace(
        self,
        name: str,
        function: Callable[..., Iterable[Value]],
        inputs: Sequence[tuple[str, ValueType]],
    ) -> Graph:
        """The graph of ``function`` on inputs of these names (made unique) and types."""
        scope = _Scope(Graph(name), self)
        self._scopes.append(scope)
        arguments = [declare_input(scope.graph, hint, type_) for hint, type_ in inputs]
        scope.complete()
        token = _ACTIVE.set(scope)
        try:
            with scope.graph.as_current():
                scope.graph.set_outputs(function(*arguments))
        finally:
            _ACTIVE.reset(token)
        return scope.graph

    def close(self) -> tuple[Value, ...]:
        """Give every region an input for what any of them captured; the captured values."""
        for scope in self._scopes:
            scope.complete()
        return tuple(self.captured)


class _Scope:
    """One region while it is traced, and what it has captured: enclosing value → own input."""

    def __init__(self, graph: Graph, tracer: RegionTracer) -> None:
        self.graph = graph
        self.tracer = tracer
        self.inputs: dict[Value, Value] = {}

    def encloses(self, graph: Graph) -> bool:
        """Whether values of ``graph`` can be read here: it is this region or around it."""
        if graph is self.graph or graph is self.tracer.enclosing:
            return True
        return self.tracer.outer is not None and self.tracer.outer.encloses(graph)

    def capture(self, value: Value) -> Value:
        """The region's own input that stands for a value of a graph around it."""
        if value.graph is self.graph:
            return value
        if value.graph is not self.tracer.enclosing:
            if self.tracer.outer is None:
                raise GraphError(f"%{value.name} is not in a graph around @{self.graph.name}")
            value = self.tracer.outer.capture(value)
        self.tracer.captured[value] = None
        self.complete()
        return self.inputs[value]

    def complete(self) -> None:
        """Declare inputs for captured values that the region has none for yet, in their order."""
        for value in self.tracer.captured:
            if value not in self.inputs:
                self.inputs[value] = declare_input(self.graph, value.name, value.type)


_ACTIVE: ContextVar[_Scope | None] = ContextVar("region being traced", default=None)


def innermost(graph: Graph) -> Graph:
    """The graph in which values of ``graph`` are computed with: the region being traced inside it.

    Itself if no region is, or one of another graph.
    """
    scope = _ACTIVE.get()
    return scope.graph if scope is not None and scope.encloses(graph) else graph


def capture(value: Value, graph: Graph) -> Value:
    """``value`` as a value of ``graph``, if that is a region being traced in ``value``'s graph."""
    scope = _ACTIVE.get()
    if value.graph is graph or scope is None or scope.graph is not graph:
        return value
    return scope.capture(value) if scope.encloses(value.graph) else value


def declare_input(graph: Graph, hint: str, type_: ValueType) -> Value:
    """An input called ``hint``, or numbered if a value has that name already."""
    value = graph.add_input(f"{hint} (input {len(graph.inputs)})", type_)
    graph.rename(value, hint)
    return value
