"""Reading kernels from their text: ``parse_kernel(str(kernel)) == kernel``.

    kernel scale(b0: f32[n], b1: f32[1]) -> (o0: f32[n]) where 1 <= n:
      for i0 < n:
        v0 = (b0[i0] * b1[0])
        o0[i0] = (v0 + exp(v0))

What stands between spaces is an operator on elements; index arithmetic is written without any. A
definition is read where it is used, since it may speak of the loop variables of a reduction there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NoReturn

from monograph.errors import ParseError
from monograph.ir.dims import Dim, Symbol
from monograph.ir.dims.text import parse_dim
from monograph.ir.types import DType, dtype_of
from monograph.kernel import expr as e
from monograph.kernel.expr import Axis, Buffer, Expr
from monograph.kernel.kernel import Kernel, Store
from monograph.kernel.layout import MemoryLayout
from monograph.kernel.text import INFIX, usual_dtype

_HEADER = re.compile(r"kernel (\S+?)\((.*)\) -> \((.*?)\)(?: where (.*))?:")
_BUFFER = re.compile(r"(\w+): (\w+)\[(.*?)\](?: (strides .*))?")
_LAYOUT = re.compile(
    r"strides \((?P<strides>.*?)\)(?: from (?P<offset>\S+))?(?: span (?P<span>\S+))?"
    r"(?: border \((?P<border>.*?)\) order \((?P<order>.*?)\))?"
)
_RANGE = re.compile(r"(?:(\d+) <= )?([A-Za-z_]\w*)(?: <= (\d+))?")
_LITERAL = re.compile(r"(True|False|-?(?:\d+|\d+\.\d*(?:e[+-]\d+)?|\d+e[+-]\d+|inf|nan)):(\w+)$")
_NAME = re.compile(r"[A-Za-z_]\w*")
_FUNCTIONS = {sign: name for name, sign in INFIX.items()}
_OF_DIMS = ("max", "min", "opaque", "let")
"""Functions of index arithmetic; ``max`` is a reduction's name too, where it has axes."""


def parse_kernel(text: str) -> Kernel:
    """The kernel that prints as this text; an error says what of it is not understood."""
    lines = text.strip("\n").split("\n")
    if len(lines) < 2:
        _fail("a kernel has a signature and loops", text)
    return _Reader(lines[0]).kernel(lines[1], lines[2:])


def parse_kernels(text: str) -> list[Kernel]:
    """Every kernel in a text, such as the listings that ``MONOGRAPH_DUMP`` writes."""
    lines, found = text.split("\n"), []
    for number, line in enumerate(lines):
        if line.startswith("kernel "):
            body = next((k for k in range(number + 1, len(lines)) if lines[k][:2] != "  "), None)
            found.append(parse_kernel("\n".join(lines[number:body])))
    return found


class _Reader:
    """Reads one kernel: its names are buffers, sizes, definitions, and loop variables in scope."""

    def __init__(self, header: str) -> None:
        match = _HEADER.fullmatch(header)
        if match is None:
            _fail("expected `kernel name(inputs) -> (outputs):`", header)
        self.name, inputs, outputs, ranges = match.groups()
        self.sizes: dict[str, Symbol] = {}
        for each in _split(ranges or ""):
            found = _RANGE.fullmatch(each) or _fail("expected a range, such as 1 <= n <= 64", each)
            lower, name, upper = found.groups()
            self.sizes[name] = Symbol(name, int(lower or 1), int(upper) if upper else None)
        self.inputs = tuple(self.buffer(each) for each in _split(inputs))
        self.outputs = tuple(self.buffer(each) for each in _split(outputs))
        self.buffers = {each.name: each for each in self.inputs + self.outputs}
        self.definitions: dict[str, str] = {}
        self.read: dict[tuple[str, frozenset[Symbol]], Expr] = {}

    def kernel(self, loops: str, lines: list[str]) -> Kernel:
        """The whole kernel, of the line with its loops and those after it."""
        head = loops.strip().removeprefix("for ").removesuffix(":")
        axes = self.axes(head, self.sizes) if head != "once" else ()
        scope = {**self.sizes, **self.names(axes)}
        stores = []
        for line in lines:
            place, sign, value = line.strip().partition(" = ")
            if not sign:
                _fail("expected `buffer[position] = value`", line)
            if _NAME.fullmatch(place):
                self.definitions[place] = value
            else:
                stores.append(self.store(place, value, scope))
        return Kernel(self.name, self.inputs, self.outputs, axes, tuple(stores))

    def store(self, place: str, value: str, scope: Mapping[str, Symbol]) -> Store:
        """``o0[i0] = value if guard``."""
        target = self.expr(place, scope)
        if not isinstance(target, e.Load):
            _fail("a store writes an element of a buffer", place)
        value, _, condition = value.partition(" if ")
        guard = self.expr(condition, scope) if condition else None
        return Store(target.buffer, target.operands, self.expr(value, scope), guard)

    # Types ----------------------------------------------------------------------------------------

    def buffer(self, text: str) -> Buffer:
        """``b0: f32[4, 8] strides (16, 2)``."""
        match = _BUFFER.fullmatch(text) or _fail("expected a buffer, such as b0: f32[4, 8]", text)
        name, dtype, shape, layout = match.groups()
        dims = tuple(self.dim(each, self.sizes) for each in _split(shape))
        return Buffer(name, dtype_of(dtype), dims, self.layout(layout, self.sizes))

    def layout(self, text: str | None, scope: Mapping[str, Symbol]) -> MemoryLayout | None:
        """``strides (16, 2) from 5 span 64``."""
        if text is None:
            return None
        match = _LAYOUT.fullmatch(text) or _fail("expected a layout, such as strides (16, 2)", text)
        strides = tuple(self.dim(each, scope) for each in _split(match["strides"]))
        offset = self.dim(match["offset"] or "0", scope)
        span = None if match["span"] is None else self.dim(match["span"], scope)
        border, order = (tuple(map(int, _split(match[name] or ""))) for name in ("border", "order"))
        return MemoryLayout(strides, offset, span, border, order)

    def axes(self, text: str, scope: Mapping[str, Symbol]) -> tuple[Axis, ...]:
        """``i0 < 64, i1 < n``; an extent may speak of loop variables before it."""
        known, found = dict(scope), []
        for each in _split(text):
            name, sign, extent = each.partition(" < ")
            if not sign or not _NAME.fullmatch(name):
                _fail("expected a loop, such as i0 < 64", each)
            marked = name if name.startswith("_") else f"_{name}"
            extent, _, bounds = extent.partition(" in ")
            usual = e.axis(marked, self.dim(extent, known))
            found.append(
                replace(usual, symbol=_make_bounded_symbol(marked, bounds)) if bounds else usual
            )
            known |= self.names((found[-1],))
        return tuple(found)

    def names(self, axes: tuple[Axis, ...]) -> dict[str, Symbol]:
        """Loop variables as the text calls them: without their mark, unless a size is called so."""
        bare = {re.sub(r"^_(?=[irt])", "", each.symbol.name): each.symbol for each in axes}
        return {x.name if name in self.sizes else name: x for name, x in bare.items()}

    def dim(self, text: str, scope: Mapping[str, Symbol]) -> Dim:
        """Index arithmetic."""
        try:
            return parse_dim(text, scope)
        except ValueError as problem:
            raise ParseError(str(problem)) from problem

    # Expressions ----------------------------------------------------------------------------------

    def expr(self, text: str, scope: Mapping[str, Symbol]) -> Expr:
        """An expression in the scope of some loop variables."""
        literal = _LITERAL.match(text)
        if literal is not None:
            return _literal(literal[1], dtype_of(literal[2]))
        name = _NAME.match(text)
        rest = text[name.end() :] if name is not None else text
        if name is None:
            parts = list(_split(text[1:-1], " ")) if text.startswith("(") else []
            if len(parts) == 3 and text.endswith(")"):
                return self.applied(_FUNCTIONS.get(parts[1], parts[1]), parts[::2], None, scope)
        elif not rest and text in self.definitions:
            return self.defined(text, scope)
        elif rest[:1] in ("[", "{"):
            return self.loaded(name[0], rest, scope)
        elif rest[:1] in ("(", "<") and rest.endswith(")"):
            dtype, _, inner = ("", "", rest[1:-1]) if rest[0] == "(" else rest[1:-1].partition(">(")
            axes, colon, body = _partition(inner, ": ")
            if colon and not dtype and " < " in axes:
                return self.reduced(name[0], axes, body, scope)
            if name[0] not in _OF_DIMS:
                operands = list(_split(inner))
                given = dtype_of(dtype) if dtype else None
                return self.applied(name[0], operands, given, scope)
        return e.index(self.dim(text, scope))

    def applied(
        self, function: str, operands: list[str], dtype: DType | None, scope: Mapping[str, Symbol]
    ) -> Expr:
        """A function of some operands."""
        given = tuple(self.expr(each, scope) for each in operands)
        result = dtype or usual_dtype(function, given)
        if result is None:
            _fail(f"{function} does not say of which dtype its result is", str(operands))
        return e.apply(function, *given, dtype=result)

    def reduced(self, kind: str, axes: str, body: str, scope: Mapping[str, Symbol]) -> Expr:
        """``sum(r0 < 8: body)``."""
        own = self.axes(axes, scope)
        return e.reduce(kind, own, self.expr(body, {**scope, **self.names(own)}))

    def loaded(self, name: str, rest: str, scope: Mapping[str, Symbol]) -> Expr:
        """``b0[i0]``, or ``b0{4, 8}[i0, i1]`` where it is seen in another shape."""
        if name not in self.buffers:
            _fail(f"it has no buffer {name}", name + rest)
        buffer = self.buffers[name]
        if rest[0] == "{":
            shape, _, rest = rest[1:].partition("}[")
            dims, _, layout = shape.partition(" strides ")
            sizes = tuple(self.dim(each, scope) for each in _split(dims))
            where = self.layout(f"strides {layout}" if layout else None, scope)
            buffer = Buffer(name, buffer.dtype, sizes, where)
        else:
            rest = rest[1:]
        if not rest.endswith("]"):
            _fail("expected the end of a position", rest)
        return e.load(buffer, tuple(self.expr(each, scope) for each in _split(rest[:-1])))

    def defined(self, name: str, scope: Mapping[str, Symbol]) -> Expr:
        """What a name stands for here."""
        key = (name, frozenset(scope.values()))
        if key not in self.read:
            self.read[key] = self.expr(self.definitions[name], scope)
        return self.read[key]


def _make_bounded_symbol(name: str, bounds: str) -> Symbol:
    """A loop variable whose range is written: ``0..63``, or ``0..``."""
    lower, _, upper = bounds.partition("..")
    return Symbol(name, int(lower), int(upper) if upper else None)


def _literal(text: str, dtype: DType) -> Expr:
    if text in ("True", "False"):
        return e.literal(text == "True", dtype)
    return e.literal(float(text) if dtype.is_float else int(text), dtype)


def _split(text: str, separator: str = ", ") -> Iterator[str]:
    """The parts of a text between separators that no bracket encloses."""
    while text:
        part, _, text = _partition(text, separator)
        yield part


def _partition(text: str, separator: str) -> tuple[str, str, str]:
    """What is in front of the first separator that no bracket encloses, and what is after it."""
    depth = 0
    for place, character in enumerate(text):
        if depth == 0 and text.startswith(separator, place):
            return text[:place], separator, text[place + len(separator) :]
        depth += (character in "([{") - (character in ")]}")
    return text, "", ""


def _fail(problem: str, found: str) -> NoReturn:
    excerpt = found if len(found) <= 80 else found[:80] + "…"
    raise ParseError(f"this is no kernel: {problem}", found=excerpt)
