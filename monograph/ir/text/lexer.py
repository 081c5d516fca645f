"""Tokens of the text form, one at a time, and errors that point at them.

One regular expression recognises every token; the text is never split up front, so that an error in
the first line of a large file costs nothing. Its repetitions are possessive: no input, however
hostile, makes it backtrack. ``#`` or ``//`` starts a comment.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable

from monograph.errors import ParseError

MAX_NESTING = 64
"""How deep regions, lists and types may nest in the text form."""

MAX_NUMBER = 400
"""How many characters a number may have: more than any exact float needs."""

REAL = r"(?:(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]++)?|inf|nan)"
"""A regular expression for an unsigned real number."""

STRING = r'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"'
"""A regular expression for a quoted string."""

_NAME = r"(?:[A-Za-z0-9_./]|-(?!>)|:(?=[A-Za-z0-9_./:-]))++"
_END = r"(?![A-Za-z0-9_.])"

# The alternatives in the order in which they are tried, the frequent ones first.
_TOKENS = (
    ("value", rf"%(?:{_NAME}|{STRING})"),
    ("mark", r"[()\[\]{},:;=>!*]"),
    ("word", rf"(?!(?:inf|nan){_END})[A-Za-z_][A-Za-z0-9_.]*+"),
    ("string", STRING),
    ("at", rf"@(?:{_NAME}|{STRING})"),
    ("mark", r"->|<=|<"),
    ("complex", rf"[-+]?{REAL}[-+]{REAL}j{_END}"),
    ("number", rf"[-+]?{REAL}{_END}"),
    ("mark", r"-(?![0-9.])"),
    ("end", r"\Z"),
    ("bad string", r'"[^\n]*+'),
    ("bad number", r"[-+]?[0-9.][A-Za-z0-9_.]*+"),
    ("bad", r"[\s\S]"),
)
_KINDS = ("", *(kind for kind, _ in _TOKENS))
_LAST = _KINDS.index("end")
_SPACE = r"(?:[ \t\r\n]++|(?:\#|//)[^\n]*+)*+"
_match = re.compile(f"{_SPACE}(?:{'|'.join(f'({pattern})' for _, pattern in _TOKENS)})").match
_BARE = re.compile(r"(?:[A-Za-z0-9_./-]|:(?=[A-Za-z0-9_./:-]))*[A-Za-z0-9_./]")
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff]")


def quote(text: str) -> str:
    """A string as the text form writes it: in double quotes, with JSON's escapes."""
    plain = json.dumps(text, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", plain)


def spell_name(name: str) -> str:
    """The name of a value or graph, quoted if it has characters that a bare name may not have."""
    return name if _BARE.fullmatch(name) else quote(name)


def shorten(text: str, limit: int = 60) -> str:
    """Text that may be of any length, cut to what fits in a line."""
    return text if len(text) <= limit else text[: limit - 3] + "..."


def shorten_name(name: str) -> str:
    """A name for a message: as the text form writes it, cut if it is endless."""
    return shorten(spell_name(name))


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that ``name`` may have been meant for, found in bounded time."""
    if not 0 < len(name) <= 64:
        return None
    close = [other for other in candidates if abs(len(other) - len(name)) <= 3]
    found = difflib.get_close_matches(name, close[-2000:], n=1, cutoff=0.6)
    return found[0] if found else None


class Lexer:
    """A place in a text: ``token`` and its ``kind`` are what stands there.

    ``start`` and ``end`` are the token's, ``previous_end`` that of the one before.
    """

    def __init__(self, text: str, source: str) -> None:
        self.text = text
        self.source = source
        self.kind = ""
        self.token = ""
        self.start = 0
        self.end = 0
        self.previous_end = 0
        self._line = 1
        self._counted = 0
        self.advance()

    def advance(self) -> None:
        """Move to the next token."""
        self.previous_end = self.end
        match = _match(self.text, self.end)
        assert match is not None  # the last alternative takes any character
        group = match.lastindex or 0
        self.kind = _KINDS[group]
        self.token = match[group]
        self.start, self.end = match.span(group)
        if group >= _LAST:
            self._finish(group)

    def _finish(self, group: int) -> None:
        """The text has ended, or cannot be read further."""
        if group > _LAST:
            raise self._bad_token()
        self.start = self.previous_end  # errors point behind the last token

    def move_to(self, position: int) -> None:
        """Go on from a position of the text."""
        self.end = position
        self.advance()

    def accept(self, token: str) -> bool:
        """Step over the token if it is this one."""
        if self.token != token:
            return False
        self.advance()
        return True

    def expect(self, token: str, context: str) -> None:
        """Step over this token; an error if another stands here."""
        if not self.accept(token):
            raise self.unexpected(f"`{token}`", context)

    def expect_name(self, kind: str, expected: str, context: str) -> str:
        """Step over a ``%value`` or ``@graph`` and return its name."""
        if self.kind != kind:
            raise self.unexpected(expected, context)
        name = self.token[1:]
        if name.startswith('"'):
            name = self.unquote(name, self.start + 1)
        self.advance()
        return name

    def expect_string(self, context: str) -> str:
        """Step over a quoted string and return what it stands for."""
        if self.kind != "string":
            raise self.unexpected("a quoted string", context)
        text = self.unquote(self.token, self.start)
        self.advance()
        return text

    def expect_integer(self, context: str) -> int:
        """Step over an integer and return it."""
        if self.kind != "number":
            raise self.unexpected("an integer", context)
        value = self.integer(self.token, self.start)
        self.advance()
        return value

    def integer(self, text: str, at: int) -> int:
        """The integer that a number token spells."""
        self.check_length(text, at)
        if not text.lstrip("+-").isdigit():
            raise self.error(f"`{text}` is not an integer", at=at, expected="an integer")
        return int(text)

    def check_length(self, text: str, at: int) -> None:
        """Refuse numbers too long to be meant: reading them takes more than linear time."""
        if len(text) > MAX_NUMBER:
            raise self.error(
                "a number is too long",
                at=at,
                expected=f"at most {MAX_NUMBER} characters",
                found=f"{len(text)} characters",
            )

    def unquote(self, quoted: str, at: int) -> str:
        """What a string token stands for."""
        try:
            text: str = json.loads(quoted, strict=False)
        except json.JSONDecodeError as problem:
            raise self.error(
                "a string has an escape that is not known",
                at=at + problem.pos,
                expected=r"\" \\ \/ \b \f \n \r \t or \u and four hexadecimal digits",
                found=shorten(quoted[problem.pos : problem.pos + 6]),
            ) from None
        return text

    # Errors.

    def described(self) -> str:
        """The current token, for a message."""
        return "the end of the text" if self.kind == "end" else f"`{shorten(self.token)}`"

    def unexpected(self, expected: str, context: str, hint: str | None = None) -> ParseError:
        """The error for a token that does not belong here."""
        found = self.described()
        ended = self.kind == "end"
        message = f"the text ends inside {context}" if ended else f"unexpected {found} in {context}"
        return self.error(message, expected=expected, found=found, hint=hint)

    def error(
        self,
        message: str,
        *,
        at: int | None = None,
        expected: str | None = None,
        found: str | None = None,
        hint: str | None = None,
    ) -> ParseError:
        """An error that shows where: line, column, and the line with a caret under it."""
        position = self.start if at is None else at
        return ParseError(
            message, expected=expected, found=found, where=self._excerpt(position), hint=hint
        )

    def line_at(self, position: int) -> int:
        """The number of the line that a position lies in."""
        return self.text.count("\n", 0, position) + 1

    def current_line(self) -> int:
        """The number of the current token's line; all calls together take linear time."""
        self._line += self.text.count("\n", self._counted, self.start)
        self._counted = self.start
        return self._line

    def _excerpt(self, position: int) -> str:
        begin = self.text.rfind("\n", 0, position) + 1
        end = self.text.find("\n", position)
        end = len(self.text) if end < 0 else end
        column = position - begin
        first = max(begin, position - 60)
        shown = self.text[first : min(end, first + 100)].rstrip("\r")
        before = "..." if first > begin else ""
        after = "..." if first + 100 < end else ""
        pad = re.sub(r"[^\t]", " ", before + self.text[first:position])
        heading = f"{self.source}:{self.line_at(position)}:{column + 1}"
        if not shown.strip():
            return heading
        return f"{heading}\n{before}{shown}{after}\n{pad}^"

    def _bad_token(self) -> ParseError:
        if self.kind == "bad string":
            return self.error("a string is not closed", expected='`"` before the end of the line')
        if self.kind == "bad number":
            return self.error(f"`{shorten(self.token)}` is not a number", expected="a number")
        if self.token in "%@":
            return self.error(
                f"no name follows `{self.token}`",
                expected=f'{self.token}name or {self.token}"a name"',
            )
        shown = self.token if self.token.isprintable() else f"U+{ord(self.token):04X}"
        return self.error(f"unexpected character `{shown}`")
