"""The parser of dimension expressions: ``2*seq+1``, ``(a+b)//2``, ``max(a, 4)``.

It reads integers, names, ``+ - * // %``, unary minus, parentheses and named functions, with
Python's precedence, and computes as it goes with the arithmetic of whatever the names stand for.
The text may come from an untrusted file, so length, nesting and the size of integers are limited.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NoReturn

from monograph.ir.dims.operations import dim_max, dim_min
from monograph.ir.dims.polynomial import Dim, Symbol

MAX_NESTING = 64
MAX_DIGITS = 19
MAX_TOKENS = 16_384

_TOKEN = re.compile(r"\s*(?:([0-9]+|[A-Za-z_][A-Za-z0-9_]*|//|[-+*%(),])|$)", re.ASCII)
_EXCERPT = 60
_FUNCTIONS: dict[str, Callable[..., Dim]] = {"max": dim_max, "min": dim_min}


def parse_dim(text: str, symbols: Mapping[str, Symbol]) -> Dim:
    """Parse what `str` prints. Anything else is a ValueError: what is wrong, at which column."""
    parser = _Parser(text, symbols)
    value = parser.sum()
    if parser.token:
        parser.fail(f"expected an operator or the end, found {parser.token!r}")
    return value


class _Parser:
    """Recursive descent with one token of lookahead; ``token`` is empty at the end of the text."""

    def __init__(self, text: str, symbols: Mapping[str, Symbol]) -> None:
        self.text = text
        self.symbols = symbols
        self.token = ""
        self.start = 0
        self.end = 0
        self.count = 0
        self.nesting = 0
        self.advance()

    def fail(self, problem: str) -> NoReturn:
        excerpt = self.text if len(self.text) <= _EXCERPT else self.text[:_EXCERPT] + "..."
        raise ValueError(f"dimension {excerpt!r}, column {self.start + 1}: {problem}")

    def advance(self) -> None:
        """Move to the next token."""
        match = _TOKEN.match(self.text, self.end)
        if match is None:
            self.start = self.end
            self.fail("expected an integer, a name or an operator")
        self.count += 1
        self.token = match[1] or ""
        self.start, self.end = match.start(1) if self.token else match.end(), match.end()
        if self.count > MAX_TOKENS:
            self.fail(f"expression too long (more than {MAX_TOKENS} tokens)")

    def accept(self, *tokens: str) -> str:
        """Consume the token if it is one of these; return it, or "" if it is not."""
        token = self.token
        if token not in tokens:
            return ""
        self.advance()
        return token

    def expect(self, token: str) -> None:
        if not self.accept(token):
            self.fail(f"expected {token!r}, found {self.token or 'the end'!r}")

    def sum(self) -> Dim:
        value = self.product()
        while sign := self.accept("+", "-"):
            right = self.product()
            value = value + right if sign == "+" else value - right
        return value

    def product(self) -> Dim:
        value = self.factor()
        while sign := self.accept("*", "//", "%"):
            value = self.combine(value, sign, self.factor())
        return value

    def combine(self, left: Dim, sign: str, right: Dim) -> Dim:
        if sign == "*":
            return left * right
        if isinstance(right, int) and right == 0:
            self.fail("division by zero")
        return left // right if sign == "//" else left % right

    def factor(self) -> Dim:
        negative = False
        while self.accept("-"):
            negative = not negative
        value = self.primary()
        return -value if negative else value

    def primary(self) -> Dim:
        token = self.token
        if token.isdigit():
            return self.integer()
        if token == "(":
            (value,) = self.arguments(at_most=1)
            return value
        if not token.isidentifier():
            self.fail(f"expected an integer, a name or '(', found {token or 'the end'!r}")
        return self.name()

    def integer(self) -> int:
        if len(self.token) > MAX_DIGITS:
            self.fail(f"integer too large (more than {MAX_DIGITS} digits)")
        value = int(self.token)
        self.advance()
        return value

    def name(self) -> Dim:
        name = self.token
        start = self.start
        self.advance()
        known = _FUNCTIONS if self.token == "(" else self.symbols
        if name not in known:
            self.start = start
            kind = "function" if self.token == "(" else "symbol"
            self.fail(f"unknown {kind} {name!r}; known: {', '.join(sorted(known)) or 'none'}")
        if self.token == "(":
            return _FUNCTIONS[name](*self.arguments())
        return self.symbols[name]

    def arguments(self, at_most: int = MAX_TOKENS) -> list[Dim]:
        """A parenthesized, comma-separated list of at least one expression."""
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            self.fail(f"nested too deeply (more than {MAX_NESTING} parentheses)")
        self.expect("(")
        values = [self.sum()]
        while len(values) < at_most and self.accept(","):
            values.append(self.sum())
        self.expect(")")
        self.nesting -= 1
        return values
