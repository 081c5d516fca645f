"""The errors that Monograph raises.

Every error says what was expected and what was found, where (the node, and the line of the user's
program that made it), in which pass, and what to do next. The parts are fields, so that tools can
show them their own way; ``str(error)`` lays them out for a terminal.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence

from monograph.dataclass import dataclass

LONGEST_LINE = 800


def _cut(line: str) -> str:
    """A line short enough to read: a hostile file may hold names of many megabytes."""
    if len(line) <= LONGEST_LINE:
        return line
    return f"{line[:LONGEST_LINE]}… and {len(line) - LONGEST_LINE:,} characters more"


class MonographError(Exception):
    """Base of every error that Monograph raises on purpose.

    ``message`` is one line that can stand alone; the other parts are printed beneath it, one a
    line, where they are known.
    """

    def __init__(
        self,
        message: str,
        *,
        expected: str | None = None,
        found: str | None = None,
        where: str | None = None,
        source: str | None = None,
        during: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.expected = expected
        self.found = found
        self.where = where
        self.source = source
        self.during = during
        self.hint = hint

    def __str__(self) -> str:
        parts = (
            ("expected", self.expected),
            ("found", self.found),
            ("at", self.where),
            ("source", self.source),
            ("pass", self.during),
            ("hint", self.hint),
        )
        lines = [_cut(self.message)]
        for label, text in parts:
            if text is not None:
                lines.append(f"  {label:<9}" + ("\n" + " " * 11).join(map(_cut, text.split("\n"))))
        return "\n".join(lines)

    def with_context(
        self, *, where: str | None = None, source: str | None = None, during: str | None = None
    ) -> MonographError:
        """Fill in the parts that the raiser did not know; what is already said stays."""
        self.where = self.where or where
        self.source = self.source or source
        self.during = self.during or during
        return self


class GraphError(MonographError):
    """A graph that is not well formed: found by ``verify`` or refused by a mutation."""


class TypeRuleError(MonographError):
    """Operands or attributes that an op's type rule refuses."""


class ParseError(MonographError):
    """Text that is not a graph; ``where`` holds line and column."""


class InputError(MonographError):
    """Wrong arguments from the caller: a count, a shape, a dtype, a name, an option."""


class DimensionError(MonographError, ValueError):
    """A symbolic size so long or so deep that nothing sensible needs it."""


class ZeroDivisorError(DimensionError, ZeroDivisionError):
    """A symbolic size divided by one that is zero."""


class EvaluationError(MonographError):
    """A value that a graph cannot compute from the inputs that it was given."""


class TimeLimitError(MonographError, TimeoutError):
    """A call that took longer than it may: see :func:`monograph.time_limit`."""


class DifferentiationError(MonographError):
    """A gradient that does not exist or cannot be built."""


class PassError(MonographError):
    """A pass that broke its contract: a bad graph, a changed meaning, an endless rewrite."""


SHOWN_PROBLEMS = 20
"""How many problems the text of an ``UnsupportedError`` lists."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One op that a frontend cannot bring in: where it first stands, how often, and why."""

    op: str
    where: str
    count: int
    reason: str
    nearest: str | None = None

    def __str__(self) -> str:
        times = "once" if self.count == 1 else f"{self.count} times"
        text = f"{self.op}, {times}, first at {self.where}: {self.reason}"
        return text if self.nearest is None else f"{text}; nearest: {self.nearest}"


class UnsupportedError(MonographError):
    """A model with ops that have no meaning here; ``problems`` lists every one of them."""

    def __init__(
        self, message: str, problems: Sequence[Problem] = (), *, hint: str | None = None
    ) -> None:
        lines = [str(problem) for problem in problems[:SHOWN_PROBLEMS]]
        if len(problems) > SHOWN_PROBLEMS:
            lines.append(f"and {len(problems) - SHOWN_PROBLEMS} more, all in `problems`")
        super().__init__(message, found="\n".join(lines) or None, hint=hint)
        self.problems = tuple(problems)


class GpuError(MonographError):
    """What the driver of a GPU reports: no memory, a broken kernel, a lost device."""


class ArtifactError(MonographError):
    """A file that is not an artifact, not a whole one, or not one for this machine."""


def describe_error(error: Exception) -> MonographError:
    """Another's error as one of ours, for a person to read.

    What the system refuses (a name that is too long, a disk that is full) is about what was given.
    Any other error is one that nobody foresaw: its kind, where it was raised, and what to do.
    """
    if isinstance(error, OSError) and error.strerror is not None:
        file = "" if error.filename is None else f"{str(error.filename)!r:.200}: "
        return InputError(f"{file}{error.strerror}")
    frames = traceback.extract_tb(error.__traceback__)
    return MonographError(
        f"{type(error).__name__}: {error}".rstrip(": "),
        where=f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None,
        hint="this is a fault of Monograph's own: please report it with what --debug prints",
    )
