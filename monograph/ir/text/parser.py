"""Reading graphs from text: recursive descent, one token of lookahead, linear time.

Every node goes through ``Graph.create``, so that parsing runs the same type rules as building; the
types in the text are held against what the rules give. Any text ends in a graph or a ``ParseError``
that points at the place, never in another exception.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy.typing as npt

from monograph.errors import InputError, MonographError
from monograph.ir.data import ArrayData, Data
from monograph.ir.dims import Symbol
from monograph.ir.graph import Graph
from monograph.ir.text.lexer import STRING, nearest, shorten_name
from monograph.ir.text.node_reader import FindWeight, NodeReader, Scope
from monograph.ir.types import TensorType, ValueType

# Parentheses, and what may hide them: strings and comments.
_PARENTHESES = re.compile(rf"[()]|{STRING}|\#[^\n]*+")


def parse(
    text: str,
    *,
    weights: Mapping[str, npt.ArrayLike | Data] | None = None,
    source: str = "<text>",
) -> Graph:
    """The graph that a text describes.

    ``weights`` gives the arrays of weights by name; those it does not name are known by digest
    alone. ``source`` is what errors and locations call the text.
    """
    if not isinstance(text, str):
        raise InputError(
            "this is not a text", expected="a graph in text form", found=type(text).__name__
        )
    given = {} if weights is None else weights

    def find(label: str, digest: str, type_: TensorType) -> Data | None:
        if label not in given:
            return None
        weight = given[label]
        return weight if isinstance(weight, Data) else ArrayData(weight)

    return parse_with(text, find, source)


def parse_with(text: str, find_weight: FindWeight, source: str) -> Graph:
    """``parse`` with weights from wherever ``find_weight`` looks."""
    parser = GraphParser(text, source, {}, find_weight)
    graph = parser.graph(None)
    if parser.kind != "end":
        raise parser.error(
            f"text follows the graph: {parser.described()}", expected="the end of the text"
        )
    parser.check_symbols()
    return graph


def parse_type(text: str, symbols: Mapping[str, Symbol] | None = None) -> ValueType:
    """The type that a text describes. Symbols that are not given get the usual range."""
    parser = GraphParser(text, "<type>", symbols or {}, lambda *_: None)
    type_ = parser.type("a type")
    if parser.kind != "end":
        raise parser.error(
            f"text follows the type: {parser.described()}", expected="the end of the text"
        )
    return type_


class GraphParser(NodeReader):
    """A lexer that reads graphs."""

    def __init__(
        self, text: str, source: str, symbols: Mapping[str, Symbol], find_weight: FindWeight
    ) -> None:
        super().__init__(text, source, symbols, find_weight)
        self._declared: dict[str, int] = {}

    # Graphs.

    def graph(self, outer: Scope | None) -> Graph:
        """``graph @name(inputs) -> (types) where ... updates (...) { nodes return }``."""
        if not self.accept("graph"):
            raise self.error(
                "the text does not begin with a graph",
                expected="graph @name(...) -> (...) {",
                found=self.described(),
            )
        graph = Graph(self.expect_name("at", "@name", "the name of a graph"))
        scope = Scope(graph, outer)
        if outer is None:
            self._read_ranges_ahead()
        self._inputs(scope)
        output_types, output_starts = self._output_types()
        if self.token == "where":
            self._ranges(outer)
        updates_at = self.start
        if self.accept("updates"):
            graph.updates = self._updates()
        self.expect("{", f"the header of @{shorten_name(graph.name)}")
        while self.token not in ("return", "}") and self.kind != "end":
            self.node(scope)
        self._return(scope, output_types, output_starts)
        self._check_updates(graph, updates_at)
        return graph

    def _inputs(self, scope: Scope) -> None:
        graph = scope.graph
        context = f"the inputs of @{shorten_name(graph.name)}"
        self.expect("(", context)
        while self.token != ")":
            at = self.start
            name = self.expect_name("value", "%name or `)`", context)
            self.check_new(name, at, scope)
            self.expect(":", context)
            value = graph.add_input(name, self.type(context), donate=self.accept("donated"))
            self.define(value, at, scope)
            if self.token != ")" and not self.accept(","):
                raise self.unexpected("`,` or `)`", context)
        self.advance()

    def _output_types(self) -> tuple[list[ValueType], list[int]]:
        context = "the types of the outputs"
        self.expect("->", context)
        self.expect("(", context)
        types, starts = [], []
        while self.token != ")":
            starts.append(self.start)
            types.append(self.type(context))
            if self.token != ")" and not self.accept(","):
                raise self.unexpected("`,` or `)`", context)
        starts.append(self.start)
        self.advance()
        return types, starts

    def _read_ranges_ahead(self) -> None:
        """Read the ``where`` clause, which stands behind the types that need it, then go back."""
        start = self.start
        if self.token == "(":
            self._skip_parentheses()
        if self.accept("->") and self.token == "(":
            self._skip_parentheses()
            if self.token == "where":
                self._ranges(None)
        self.move_to(start)

    def _skip_parentheses(self) -> None:
        """Step over a parenthesized list, looking at nothing but parentheses."""
        depth = 0
        for mark in _PARENTHESES.finditer(self.text, self.start):
            depth += {"(": 1, ")": -1}.get(mark[0], 0)
            if depth <= 0:
                self.move_to(mark.end())
                return

    def _ranges(self, outer: Scope | None) -> None:
        """``where 1 <= batch <= 64, seq <= 512``."""
        if outer is not None:
            raise self.error(
                "a region declares no ranges",
                expected="`{`",
                found="`where`",
                hint="the outermost graph declares them for all",
            )
        again = bool(self._declared)
        self.expect("where", "the ranges")
        self._range(again)
        while self.accept(","):
            self._range(again)

    def _range(self, again: bool) -> None:
        context = "the ranges behind `where`"
        lower, upper = 1, None
        if self.kind == "number":
            lower = self.expect_integer(context)
            self.expect("<=", context)
        at, name = self.start, self.token
        if not name.isidentifier():
            raise self.unexpected("the name of a symbol", context)
        self.advance()
        if self.accept("<="):
            upper = self.expect_integer(context)
        if again:
            return
        if name in self._declared:
            raise self.error(f"{name} is given two ranges", at=at)
        try:
            self.symbols[name] = Symbol(name, lower, upper)
        except ValueError as problem:
            raise self.error(str(problem), at=at) from None
        self._declared[name] = at

    def check_symbols(self) -> None:
        """Every declared symbol must be in some type: one that is in none is misspelt."""
        for name, at in self._declared.items():
            if name not in self.symbols.used:
                near = nearest(name, self.symbols.used)
                raise self.error(
                    f"{name} is declared, but no type mentions it",
                    at=at,
                    hint=f"did you mean {near}?" if near else "leave its range out",
                )

    def _updates(self) -> dict[int, int]:
        context = "the updates"
        updates: dict[int, int] = {}
        self.expect("(", context)
        while self.token != ")":
            at = self.start
            output = self.expect_integer(context)
            if output in updates:
                raise self.error(f"output {output} updates two inputs", at=at)
            self.expect(":", context)
            updates[output] = self.expect_integer(context)
            if self.token != ")" and not self.accept(","):
                raise self.unexpected("`,` or `)`", context)
        self.advance()
        return updates

    def _check_updates(self, graph: Graph, at: int) -> None:
        from monograph.ir.verify import check_updates

        try:
            check_updates(graph)
        except MonographError as error:
            raise self.located(error, at) from None

    def _return(self, scope: Scope, types: list[ValueType], starts: list[int]) -> None:
        graph = scope.graph
        name = shorten_name(graph.name)
        if self.token != "return":
            raise self.error(
                f"@{name} has no return", expected="`return` before `}`", found=self.described()
            )
        at = self.start
        self.advance()
        outputs = []
        while self.kind == "value":
            outputs.append(self.operand(scope, at))
            if not self.accept(","):
                break
        if not self.accept("}"):
            raise self.unexpected("`}`", f"the return of @{name}", "it is the last line of a graph")
        if len(outputs) != len(types):
            raise self.error(
                f"@{name} returns another number of values than it declares",
                at=at,
                expected=", ".join(map(str, types)) or "no values",
                found=", ".join(map(repr, outputs)) or "no values",
            )
        for index, (value, type_) in enumerate(zip(outputs, types, strict=True)):
            if value.type != type_:
                raise self.error(
                    f"output {index} of @{name} is not declared with the type of %{value.name}",
                    at=starts[index],
                    expected=str(value.type),
                    found=str(type_),
                )
        graph.set_outputs(outputs)

    def regions(self, scope: Scope) -> list[Graph]:
        self.nest("regions")
        self.expect("{", "the regions of a node")
        regions = []
        while self.token != "}":
            if self.token != "graph":
                raise self.unexpected("`graph` or `}`", "the regions of a node")
            regions.append(self.graph(scope))
        self.advance()
        self._depth -= 1
        return regions
