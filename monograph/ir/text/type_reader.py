"""Reading types: ``f32[batch, 4]``, ``i8[64, 3]<1,0>@gpu:0!q(0.5; 0)``, ``sequence<f32[*]>``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NoReturn

from monograph.ir.dims import Dim, Shape, Symbol, parse_dim
from monograph.ir.text.lexer import MAX_NESTING, Lexer, nearest, shorten
from monograph.ir.types import (
    DTYPES,
    Device,
    Layout,
    OptionalType,
    Quantization,
    SequenceType,
    TensorType,
    UnrankedType,
    ValueType,
)

MAX_SIZE = 2**63 - 1
_WRAPPERS = ("sequence", "optional")
_PLAIN_TYPE = re.compile(r"[a-z0-9]++\[[^\[\]{}\"\n#=]*+\](?![<@!])")
_DIM_STOP = re.compile(r"[(),\[\]{}:\n#\"=]")
_UNRANKED = re.compile(r"\[[ \t]*\*[ \t]*\]")
_DIM_PROBLEM = re.compile(r"dimension .*, column ([0-9]+): (.*)", re.DOTALL)


class SymbolTable(dict[str, Symbol]):
    """Symbols by name. One that no ``where`` declares comes to be when it is first named."""

    def __init__(self, known: Mapping[str, Symbol]) -> None:
        super().__init__(known)
        self.used: set[str] = set()

    def __contains__(self, name: object) -> bool:
        return True

    def __getitem__(self, name: str) -> Symbol:
        self.used.add(name)
        return super().__getitem__(name)

    def __missing__(self, name: str) -> Symbol:
        self[name] = symbol = Symbol(name)
        return symbol


class TypeReader(Lexer):
    """A lexer that reads types and dimensions."""

    def __init__(self, text: str, source: str, symbols: Mapping[str, Symbol]) -> None:
        self.symbols = SymbolTable(symbols)
        self._plain_types: dict[str, ValueType] = {}
        self._depth = 0
        super().__init__(text, source)

    def type(self, context: str) -> ValueType:
        """A type. Plain ones are remembered by their text: a graph repeats a few all over."""
        if self.kind != "word":
            raise self.unexpected("a type such as f32[4]", context)
        plain = _PLAIN_TYPE.match(self.text, self.start)
        if plain is None:
            return self._any_type(context)
        found = self._plain_types.get(plain[0])
        if found is not None:
            self.move_to(plain.end())
            return found
        read = self._any_type(context)
        self._plain_types[plain[0]] = read
        return read

    def _any_type(self, context: str) -> ValueType:
        name = self.token
        if name not in _WRAPPERS:
            return self._tensor_type(context)
        self.nest(f"`{name}<...>`")
        self.advance()
        self.expect("<", f"the type `{name}<...>`")
        element = self.type(f"the type `{name}<...>`")
        self.expect(">", f"the type `{name}<...>`")
        self._depth -= 1
        return SequenceType(element) if name == "sequence" else OptionalType(element)

    def _tensor_type(self, context: str) -> TensorType | UnrankedType:
        dtype = DTYPES.get(self.token)
        if dtype is None:
            self.fail_unknown_dtype(self.token, self.start)
        unranked = _UNRANKED.match(self.text, self.end)
        if unranked is not None:
            self.move_to(unranked.end())
            return UnrankedType(dtype)
        self.advance()
        if self.token != "[":
            raise self.unexpected("`[` and a shape", context)
        shape = self._shape()
        layout = self.layout() if self.token == "<" else None
        device = self.device() if self.kind == "at" else None
        quantization = self.quantization() if self.token == "!" else None
        return TensorType(dtype, shape, layout, device, quantization)

    def fail_unknown_dtype(self, name: str, at: int) -> NoReturn:
        """Raise the error for a word that stands where a dtype should, and is none."""
        near = nearest(name, [*DTYPES, *_WRAPPERS])
        raise self.error(
            f"there is no dtype called `{shorten(name)}`",
            at=at,
            expected="one of " + ", ".join(DTYPES),
            found=f"`{shorten(name)}`",
            hint=near and f"did you mean {near}?",
        )

    def _shape(self) -> Shape:
        """Dimensions up to the closing bracket; the current token is the opening one."""
        if self.text[self.end : self.end + 1] == "]":
            self.move_to(self.end + 1)
            return ()
        dims: list[Dim] = []
        while True:
            begin = self.end
            stop = self._dim_end(begin)
            dims.append(self._size(begin, stop))
            self.move_to(stop)
            if self.token == "]":
                break
            if self.token != ",":
                raise self.unexpected("`,` or `]`", "a shape")
        self.advance()
        return tuple(dims)

    def _size(self, begin: int, stop: int) -> Dim:
        dim = self._dim_between(begin, stop)
        if isinstance(dim, int) and not 0 <= dim <= MAX_SIZE:
            problem = "is negative" if dim < 0 else "is too large"
            text = self.text[begin:stop]
            raise self.error(
                f"the dimension {shorten(text.strip())} {problem}",
                at=begin + len(text) - len(text.lstrip()),
                expected=f"0 to {MAX_SIZE}",
            )
        return dim

    def dim(self) -> Dim:
        """A dimension expression that starts at the current token."""
        begin = self.start
        stop = self._dim_end(begin)
        dim = self._dim_between(begin, stop)
        self.move_to(stop)
        return dim

    def _dim_end(self, begin: int) -> int:
        """Where an expression ends: at a comma or bracket outside of its own parentheses."""
        depth = 0
        position = begin
        while True:
            stop = _DIM_STOP.search(self.text, position)
            if stop is None:
                return len(self.text)
            mark = stop[0]
            if mark == "(":
                depth += 1
            elif mark == ")" and depth:
                depth -= 1
            elif mark != "," or not depth:
                return stop.start()
            if depth > MAX_NESTING:
                raise self.too_deep("parentheses", stop.start())
            position = stop.end()

    def _dim_between(self, begin: int, stop: int) -> Dim:
        text = self.text[begin:stop].strip(" \t\r")
        if text.isdecimal() and text.isascii() and len(text) <= 19:
            return int(text)
        offset = begin + self.text[begin:stop].index(text)
        if not text:
            raise self.error(
                "a dimension is missing", at=stop, expected="a size such as 4 or batch"
            )
        try:
            return parse_dim(text, self.symbols)
        except (ValueError, ArithmeticError) as problem:
            located = _DIM_PROBLEM.fullmatch(str(problem))
            at = offset if located is None else offset + int(located[1]) - 1
            reason = str(problem) if located is None else located[2]
            raise self.error(
                f"`{shorten(text)}` is not a dimension: {shorten(reason, 100)}", at=at
            ) from None

    def layout(self) -> Layout:
        """``<0,2,3,1;1:16>``: the order of the dimensions, then blocks."""
        self.expect("<", "a layout")
        order = []
        if self.token not in (">", ";"):
            order.append(self.expect_integer("a layout"))
        while self.accept(","):
            order.append(self.expect_integer("a layout"))
        blocks = []
        if self.accept(";"):
            blocks.append(self._block())
            while self.accept(","):
                blocks.append(self._block())
        self.expect(">", "a layout")
        return Layout(tuple(order), tuple(blocks))

    def _block(self) -> tuple[int, int]:
        axis = self.expect_integer("a layout")
        self.expect(":", "a layout")
        return axis, self.expect_integer("a layout")

    def device(self) -> Device:
        """``@gpu:0``; the first of its kind if no number is given."""
        at = self.start
        name = self.expect_name("at", "@gpu:0", "a device")
        kind, colon, index = name.rpartition(":")
        if not colon:
            return Device(name)
        if not kind or not index.isdecimal() or len(index) > 9:
            raise self.error(f"`@{shorten(name)}` is not a device", at=at, expected="@gpu:0")
        return Device(kind, int(index))

    def quantization(self) -> Quantization:
        """``!q(scales; zero points; axis)``."""
        context = "a quantization"
        self.expect("!", context)
        self.expect("q", context)
        self.expect("(", context)
        scales = [self._scale()]
        while self.accept(","):
            scales.append(self._scale())
        self.expect(";", context)
        zero_points = [self.expect_integer(context)]
        while self.accept(","):
            zero_points.append(self.expect_integer(context))
        axis = self.expect_integer(context) if self.accept(";") else None
        self.expect(")", context)
        return Quantization(tuple(scales), tuple(zero_points), axis)

    def _scale(self) -> float:
        if self.kind != "number":
            raise self.unexpected("a scale such as 0.5", "a quantization")
        self.check_length(self.token, self.start)
        scale = float(self.token)
        self.advance()
        return scale

    def nest(self, what: str) -> None:
        """Enter a nested construct; undone by ``self._depth -= 1``."""
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise self.too_deep(what, self.start)

    def too_deep(self, what: str, at: int) -> Exception:
        """The error for nesting beyond the limit."""
        return self.error(
            f"{what} nest too deeply", at=at, expected=f"at most {MAX_NESTING} levels"
        )
