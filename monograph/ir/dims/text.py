"""The parser of dimension expressions: ``2*seq+1``, ``(a+b)//2``, ``max(a, 4)``.

It reads integers, names, ``+ - * // %``, unary minus, parentheses and named functions, with
Python's precedence, and computes as it goes with the arithmetic of whatever the names stand for.
``let(x, a*b, y, x+1, x*y)`` is ``x*y`` with the definitions in front of it.
The text may come from an untrusted file, so length, nesting and the size of integers are limited.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NoReturn

from monograph.ir.dims.operations import as_opaque, dim_max, dim_min
from monograph.ir.dims.polynomial import Dim, Symbol, dim_sum

MAX_NESTING = 64
MAX_DIGITS = 19
MAX_TOKENS = 2**17

_TOKEN = re.compile(r"\s*(?:([0-9]+|[A-Za-z_][A-Za-z0-9_]*|//|[-+*%(),])|$)", re.ASCII)
_EXCERPT = 60
_FUNCTIONS: dict[str, Callable[..., Dim]] = {
    "max": dim_max,
    "min": dim_min,
    "opaque": as_opaque,
}


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
        self.symbols = symbols  # which may know a name as soon as it is asked for it
        self.local: dict[str, Dim] = {}
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

    def next_token(self) -> str:
        """The token after this one, which stays the current one."""
        match = _TOKEN.match(self.text, self.end)
        return (match[1] or "") if match is not None else ""

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
        terms = [self.product()]
        while sign := self.accept("+", "-"):
            term = self.product()
            terms.append(term if sign == "+" else -term)
        return terms[0] if len(terms) == 1 else dim_sum(terms)

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
        if name == "let" and self.token == "(":
            return self.let()
        if name in self.local and self.token != "(":
            return self.local[name]
        known: Mapping[str, object] = _FUNCTIONS if self.token == "(" else self.symbols
        if name not in known:
            self.start = start
            kind = "function" if self.token == "(" else "symbol"
            self.fail(f"unknown {kind} {name!r}; known: {', '.join(sorted(known)) or 'none'}")
        if self.token == "(":
            return _FUNCTIONS[name](*self.arguments(at_most=1 if name == "opaque" else MAX_TOKENS))
        return self.symbols[name]

    def let(self) -> Dim:
        """Names with what they stand for from there on, then the expression that uses them."""
        outside, self.local = self.local, dict(self.local)
        self.open()
        while self.token.isidentifier() and self.next_token() == ",":
            name = self.token
            if name in self.local:
                self.fail(f"{name!r} has a meaning already; choose another name")
            self.advance()
            self.expect(",")
            self.local[name] = self.sum()
            self.expect(",")
        value = self.sum()
        self.close()
        self.local = outside
        return value

    def arguments(self, at_most: int = MAX_TOKENS) -> list[Dim]:
        """A parenthesized, comma-separated list of at least one expression."""
        self.open()
        values = [self.sum()]
        while len(values) < at_most and self.accept(","):
            values.append(self.sum())
        self.close()
        return values

    def open(self) -> None:
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            self.fail(f"nested too deeply (more than {MAX_NESTING} parentheses)")
        self.expect("(")

    def close(self) -> None:
        self.expect(")")
        self.nesting -= 1
