"""Reading attribute values and the contents of constants."""

from __future__ import annotations

import re
from typing import Any

from monograph.ir.text.attributes import WORDS
from monograph.ir.text.constants import Payload
from monograph.ir.text.type_reader import TypeReader

# What may follow a number or a word that is a whole value; an operator makes it a dimension.
_VALUE_END = re.compile(r"[ \t\r]*(?:[,\]}:=)\n#]|\Z)")
_TYPE_START = re.compile(r"[\[<]")


class LiteralReader(TypeReader):
    """A lexer that reads literals. Their syntax alone says what they are."""

    def literal(self, context: str) -> Any:
        """An attribute value: a number, word, string, list, type, device or dimension."""
        if self.token == "[":
            return self._list(context)
        if self.kind == "string":
            return self.expect_string(context)
        if self.kind == "at":
            return self.device()
        if self.token == "<":
            return self.layout()
        if self.token == "!":
            return self.quantization()
        if self.kind == "complex":
            return self._complex()
        if self.kind == "word" and _TYPE_START.match(self.text, self.end):
            return self.type(context)
        if self.token == "opaque":
            raise self.error(
                "an opaque value cannot be read back",
                expected='a value such as 1, 0.5, true, "text", f32 or [1, 2]',
                hint="the op has an attribute that the text form has no syntax for",
            )
        if self.kind in ("number", "word") and _VALUE_END.match(self.text, self.end):
            return self._plain()
        if self.kind in ("number", "word") or self.token in ("(", "-"):
            return self.dim()
        raise self.unexpected('a value such as 1, 0.5, true, "text", f32 or [1, 2]', context)

    def _plain(self) -> Any:
        """A number or word that stands alone."""
        if self.token in WORDS:
            value = WORDS[self.token]
        elif self.kind == "word":
            return self.dim()
        else:
            value = self._number()
        self.advance()
        return value

    def _number(self) -> int | float:
        text = self.token
        if text.lstrip("+-").isdigit():
            return self.integer(text, self.start)
        self.check_length(text, self.start)
        value = float(text)
        if value in (float("inf"), float("-inf")) and "inf" not in text:
            raise self.error(f"{text} does not fit in a float", expected="a number up to 1.8e308")
        return value

    def _complex(self) -> complex:
        self.check_length(self.token, self.start)
        value = complex(self.token)
        self.advance()
        return value

    def _list(self, context: str) -> tuple[Any, ...]:
        self.nest("lists")
        self.expect("[", context)
        items = []
        while self.token != "]":
            items.append(self.literal(context))
            if self.token != "]" and not self.accept(","):
                raise self.unexpected("`,` or `]`", context)
        self.advance()
        self._depth -= 1
        return tuple(items)

    # Contents of constants.

    def payload(self) -> Payload:
        """What stands between the parentheses of a constant."""
        begin = self.start
        if self.accept("splat"):
            if self.accept("base64"):
                return Payload("splat", begin, *self._read_quoted(), (1,))
            return Payload("splat", begin, *self._one_element())
        if self.accept("base64"):
            return Payload("base64", begin, *self._read_quoted())
        if self.token != "[":
            return Payload("list", begin, *self._one_element())
        texts: list[str] = []
        starts: list[int] = []
        shape = self._elements(texts, starts)
        return Payload("list", begin, texts, starts, shape)

    def _read_quoted(self) -> tuple[list[str], list[int]]:
        start = self.start
        return [self.expect_string("a constant")], [start]

    def _one_element(self) -> tuple[list[str], list[int]]:
        texts: list[str] = []
        starts: list[int] = []
        self._element(texts, starts)
        return texts, starts

    def _elements(self, texts: list[str], starts: list[int]) -> tuple[int, ...]:
        """A list, nested or not: its elements go to ``texts``; its shape is returned."""
        self.nest("lists")
        self.advance()
        count = 0
        inner: tuple[int, ...] = ()
        while self.token != "]":
            start = self.start
            nested = self.token == "["
            shape = self._elements(texts, starts) if nested else self._element(texts, starts)
            if count and shape != inner:
                raise self.error(
                    "the rows of a constant differ in length",
                    at=start,
                    expected=_spell_row(inner),
                    found=_spell_row(shape),
                )
            inner = shape
            count += 1
            if self.token != "]" and not self.accept(","):
                raise self.unexpected("`,` or `]`", "a constant")
        self.advance()
        self._depth -= 1
        return (count, *inner)

    def _element(self, texts: list[str], starts: list[int]) -> tuple[int, ...]:
        """One element: a number, ``true``, ``false`` or a string (kept behind a quotation mark)."""
        if self.kind == "string":
            text = '"' + self.unquote(self.token, self.start)
        elif self.kind in ("number", "complex") or self.token in ("true", "false"):
            self.check_length(self.token, self.start)
            text = self.token
        else:
            raise self.unexpected("a number, true, false or a quoted string", "a constant")
        texts.append(text)
        starts.append(self.start)
        self.advance()
        return ()


def _spell_row(shape: tuple[int, ...]) -> str:
    return f"a row of shape {list(shape)}" if shape else "one element"
