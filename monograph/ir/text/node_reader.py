"""Reading nodes: results, op, operands, attributes, types, and the contents of constants."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

from monograph.errors import InputError, MonographError, ParseError
from monograph.ir.data import Data, MissingData
from monograph.ir.dims import Symbol
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.location import Location
from monograph.ir.op import Op, find_op, make, registry
from monograph.ir.text.attributes import attribute_types, convert, spell, spell_type
from monograph.ir.text.constants import Payload, PayloadError, read_contents
from monograph.ir.text.lexer import nearest, shorten, shorten_name, spell_name
from monograph.ir.text.literals import LiteralReader
from monograph.ir.types import DType, TensorType, ValueType

FindWeight = Callable[[str, str, TensorType], Data | None]
"""Finds the contents of a weight by name, digest and type; None if they are not at hand."""

_PLAIN_NODE = re.compile(
    r"%([A-Za-z0-9_.]++) = ([a-z_][a-z0-9_.]*+)\((%[A-Za-z0-9_.]++(?:, %[A-Za-z0-9_.]++)*+)\)"
    r" : ([a-z0-9]++\[[^\[\]\n]*+\])(?=\n)"
)
_REGIONS = re.compile(r"\{\s*(?:#[^\n]*\s*)*graph\s*@")


class Scope:
    """The values of one graph by name, and where in the text each is defined."""

    def __init__(self, graph: Graph, outer: Scope | None) -> None:
        self.graph = graph
        self.outer = outer
        self.values: dict[str, Value] = {}
        self.positions: dict[str, int] = {}


class _Parts(NamedTuple):
    """A node as read, before the graph has it; ``at`` is where its op stands."""

    names: dict[str, int]
    op: Op
    operands: list[Value]
    types: list[ValueType]
    type_starts: list[int]
    location: Location | None
    regions: list[Graph]
    at: int


class NodeReader(LiteralReader):
    """A lexer that reads nodes into the graph of a scope."""

    def __init__(
        self, text: str, source: str, symbols: Mapping[str, Symbol], find_weight: FindWeight
    ) -> None:
        super().__init__(text, source, symbols)
        self._find_weight = find_weight

    @abstractmethod
    def regions(self, scope: Scope) -> list[Graph]:
        """The graphs between the braces behind a node."""

    def node(self, scope: Scope) -> None:
        """``%results = op(operands) {attributes} : types loc(...) {regions}``."""
        parts = self._plain_parts(scope) or self._parts(scope)
        op, at, location = parts.op, parts.at, parts.location
        try:
            node = scope.graph.create(
                op,
                parts.operands,
                regions=parts.regions,
                names=tuple(parts.names),
                location=location,
            )
        except MonographError as error:
            raise self.located(error, at) from None
        except Exception as error:  # a rule that did not foresee these attributes
            raise self.error(f"{op.name}: its type rule failed: {error}", at=at) from error
        node.location = location
        self._check_types(node, parts.types, parts.type_starts, at)
        for value, start in zip(node.results, parts.names.values(), strict=True):
            self.define(value, start, scope)

    def _parts(self, scope: Scope) -> _Parts:
        statement = self.start
        line = self.current_line()
        names = self._result_names(scope)
        at = self.start
        cls = self._op_class()
        if cls.name in ("constant", "weight"):
            op, types, type_starts = self._data_op(cls.name)
            operands: list[Value] = []
        else:
            operands = self._operands(cls.name, scope, statement)
            op = self._attributes(cls, at)
            types, type_starts = self._types(cls.name, needed=bool(names))
        location = self._location() if self.token == "loc" else Location(self.source, line)
        regions = self.regions(scope) if self.token == "{" else []
        return _Parts(names, op, operands, types, type_starts, location, regions, at)

    def _plain_parts(self, scope: Scope) -> _Parts | None:
        """The parts of a node of the commonest form, read in one step.

        Large graphs consist of such nodes. Anything out of the ordinary, errors included, is left
        to ``_parts``.
        """
        match = _PLAIN_NODE.match(self.text, self.start)
        if match is None:
            return None
        name, op_name, operand_names, type_text = match.groups()
        cls = registry().get(op_name)
        type_ = self._plain_types.get(type_text)
        values = scope.values
        if cls is None or cls.attribute_names or type_ is None or name in values:
            return None
        operands = [values[key] for key in operand_names[1:].split(", %") if key in values]
        if len(operands) != operand_names.count("%"):
            return None
        location = Location(self.source, self.current_line())
        start, at, type_start = self.start, match.start(2), match.start(4)
        self.move_to(match.end())
        return _Parts({name: start}, cls(), operands, [type_], [type_start], location, [], at)

    def _result_names(self, scope: Scope) -> dict[str, int]:
        """The names in front of ``=``, and where each stands."""
        names: dict[str, int] = {}
        while self.kind == "value":
            at = self.start
            name = self.expect_name("value", "%name", "the results of a node")
            self.check_new(name, at, scope)
            if name in names:
                raise self.error(f"two results of one node are called %{shorten_name(name)}", at=at)
            names[name] = at
            if not self.accept(","):
                break
        if names:
            self.expect("=", "the results of a node")
        return names

    def _op_class(self) -> type[Op]:
        if self.kind != "word":
            raise self.unexpected("the name of an op", "a node")
        try:
            cls = find_op(self.token)
        except InputError as error:  # a frontend whose package is not installed
            raise self.error(error.message, hint=error.hint) from error
        if cls is None:
            near = nearest(self.token, registry())
            raise self.error(
                f"there is no op called `{shorten(self.token)}`",
                hint=f"did you mean {near}?" if near else "`monograph ops` lists them all",
            )
        self.advance()
        return cls

    def _operands(self, op: str, scope: Scope, statement: int) -> list[Value]:
        self.expect("(", f"the operands of {op}")
        operands = []
        while self.token != ")":
            if self.kind != "value":
                raise self.unexpected("%name or `)`", f"the operands of {op}")
            operands.append(self.operand(scope, statement))
            if self.token != ")" and not self.accept(","):
                raise self.unexpected("`,` or `)`", f"the operands of {op}")
        self.advance()
        return operands

    def operand(self, scope: Scope, statement: int) -> Value:
        at = self.start
        name = self.expect_name("value", "%name", "operands")
        value = scope.values.get(name)
        if value is None:
            self._fail_undefined(name, at, scope, statement)
        return value

    def _fail_undefined(self, name: str, at: int, scope: Scope, statement: int) -> NoReturn:
        shown_name = "%" + shorten_name(name)
        outer = scope.outer
        while outer is not None:
            if name in outer.values:
                owner = shorten_name(outer.graph.name)
                raise self.error(
                    f"{shown_name} belongs to @{owner}, outside of this region",
                    at=at,
                    expected=f"a value of @{shorten_name(scope.graph.name)}",
                    hint="regions are closed: pass outer values to them as operands",
                )
            outer = outer.outer
        line = self._find_later_definition(name, statement)
        if line is not None:
            raise self.error(
                f"{shown_name} is used before it is defined",
                at=at,
                hint=f"it is defined in line {line}",
            )
        near = nearest(name, scope.values)
        raise self.error(
            f"{shown_name} is not defined",
            at=at,
            hint=near and f"did you mean %{shorten_name(near)}?",
        )

    def _find_later_definition(self, name: str, statement: int) -> int | None:
        """The first line from a statement on that defines a name."""
        if len(name) > 200:
            return None
        pattern = rf"^[ \t]*(?=%)[^=(\n]*%{re.escape(spell_name(name))}[ \t]*[,=]"
        begin = self.text.rfind("\n", 0, statement) + 1
        definition = re.compile(pattern, re.MULTILINE).search(self.text, begin)
        return None if definition is None else self.line_at(definition.start())

    def _attributes(self, cls: type[Op], at: int) -> Op:
        """``{axis = -1, mode = "constant"}``, and the op with them."""
        given: dict[str, Any] = {}
        if self.token == "{" and not self._at_regions():
            self.advance()
            while self.token != "}":
                self._attribute(cls, given)
                if self.token != "}" and not self.accept(","):
                    raise self.unexpected("`,` or `}`", f"the attributes of {cls.name}")
            self.advance()
        if not cls.attribute_names:
            return cls()
        try:
            return make(cls.name, **given)
        except MonographError as error:
            raise self.located(error, at) from None
        except Exception as error:  # a rule that did not foresee these attributes
            raise self.error(f"{cls.name} refuses its attributes: {error}", at=at) from error

    def _at_regions(self) -> bool:
        return _REGIONS.match(self.text, self.start) is not None

    def _attribute(self, cls: type[Op], given: dict[str, Any]) -> None:
        name, at = self.token, self.start
        if self.kind != "word":
            raise self.unexpected("the name of an attribute", f"the attributes of {cls.name}")
        if name not in cls.attribute_names:
            near = nearest(name, cls.attribute_names)
            raise self.error(
                f"{cls.name} has no attribute `{shorten(name)}`",
                expected=", ".join(cls.attribute_names) or "no attributes",
                hint=near and f"did you mean {near}?",
            )
        if name in given:
            raise self.error(f"the attribute {name} is given twice", at=at)
        self.advance()
        self.expect("=", f"the attributes of {cls.name}")
        at = self.start
        value = self.literal(f"the attribute {name} of {cls.name}")
        given[name] = self._convert(value, cls, name, at)

    def _convert(self, value: Any, cls: type[Op], name: str, at: int) -> Any:
        hint = attribute_types(cls)[name]
        try:
            return convert(value, hint)
        except (TypeError, OverflowError):
            if hint is DType and isinstance(value, Symbol):
                self.fail_unknown_dtype(value.name, at)
            raise self.error(
                f"the attribute {name} of {cls.name} cannot be {shorten(spell(value))}",
                at=at,
                expected=spell_type(hint),
                hint="strings are quoted" if isinstance(value, Symbol) else None,
            ) from None

    def _types(self, op: str, *, needed: bool) -> tuple[list[ValueType], list[int]]:
        types: list[ValueType] = []
        starts: list[int] = []
        if needed and self.token != ":":
            raise self.error(
                f"the type of {op} is missing",
                at=self.previous_end,
                expected="`:` and a type",
                found=self.described(),
            )
        if self.accept(":"):
            while True:
                starts.append(self.start)
                types.append(self.type(f"the types of {op}"))
                if not self.accept(","):
                    break
        return types, starts

    def _check_types(self, node: Node, types: list[ValueType], starts: list[int], at: int) -> None:
        results = node.results
        if len(types) != len(results):
            raise self.error(
                f"{node.op.name}: wrong number of types",
                at=starts[0] if starts else at,
                expected=", ".join(str(result.type) for result in results) or "no types",
                found=", ".join(map(str, types)) or "no types",
            )
        for result, type_, start in zip(results, types, starts, strict=True):
            if result.type != type_:
                name = shorten_name(result.name)
                raise self.error(
                    f"{node.op.name} gives %{name} another type than the text says",
                    at=start,
                    expected=str(result.type),
                    found=str(type_),
                )

    # Constants and weights: their type stands behind contents that cannot be read without it.

    def _data_op(self, name: str) -> tuple[Op, list[ValueType], list[int]]:
        at = self.start
        self.expect("(", f"a {name}")
        contents = self.payload() if name == "constant" else self._weight_names()
        self.expect(")", f"a {name}")
        types, starts = self._types(name, needed=True)
        if len(types) != 1 or not isinstance(types[0], TensorType):
            raise self.error(
                f"a {name} has one type, that of a tensor",
                at=starts[0],
                expected="a type such as f32[4]",
                found=", ".join(map(str, types)),
            )
        try:
            if isinstance(contents, Payload):
                op = make("constant", data=read_contents(contents, types[0]))
            else:
                op = make("weight", label=contents[0], data=self._weight(*contents, types[0], at))
        except PayloadError as error:
            assert isinstance(contents, Payload)
            raise self.error(
                error.message,
                at=contents.begin if error.element is None else contents.starts[error.element],
                expected=error.expected,
                found=error.found,
            ) from None
        except ParseError:
            raise
        except MonographError as error:
            raise self.located(error, starts[0]) from None
        return op, types, starts

    def _weight_names(self) -> tuple[str, str]:
        label = self.expect_string("a weight")
        self.expect(",", "a weight")
        return label, self.expect_string("a weight")

    def _weight(self, label: str, digest: str, type_: TensorType, at: int) -> Data:
        data = self._find_weight(label, digest, type_)
        if data is None:
            return MissingData(type_, digest)
        if data.type != type_ or data.digest != digest:
            difference = "type is" if data.type != type_ else "contents are"
            raise self.error(
                f"the given {difference} not that of the weight {shorten(label)}",
                at=at,
                expected=f"{type_} with digest {shorten(digest)}",
                found=f"{data.type} with digest {data.digest}",
            )
        return data

    # Locations.

    def _location(self) -> Location | None:
        """``loc("file.py":12 in "forward" scope "encoder.0")`` or ``loc(unknown)``."""
        context = "a location"
        self.expect("loc", context)
        self.expect("(", context)
        if self.accept("unknown"):
            self.expect(")", context)
            return None
        file = self.expect_string(context)
        self.expect(":", context)
        line = self.expect_integer(context)
        function = self.expect_string(context) if self.accept("in") else ""
        scope = self.expect_string(context) if self.accept("scope") else ""
        self.expect(")", context)
        return Location(file, line, function, scope)

    # Names.

    def check_new(self, name: str, at: int, scope: Scope) -> None:
        if name in scope.values:
            line = self.line_at(scope.positions[name])
            raise self.error(
                f"%{shorten_name(name)} is defined twice",
                at=at,
                hint=f"the first definition is in line {line}",
            )

    def define(self, value: Value, at: int, scope: Scope) -> None:
        scope.values[value.name] = value
        scope.positions[value.name] = at

    def located(self, error: MonographError, at: int) -> ParseError:
        """An error of the graph's own, as one that points into the text."""
        return self.error(
            error.message, at=at, expected=error.expected, found=error.found, hint=error.hint
        )
