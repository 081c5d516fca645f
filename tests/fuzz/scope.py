"""Drawing a program: a scope of values that exist so far, and statements tried on them.

A statement is kept only if torch runs it, and if what it gives is small enough to be cheap and tame
enough to be compared. So everything that is drawn is valid, and drawing needs no type rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tests.fuzz.programs import Program, Statement
from tests.fuzz.values import COMPLEX, FLOATS, INTEGERS, Source, make

SIZES = (0, 1, 1, 2, 2, 3, 3, 5, 5, 7, 7, 8, 11, 13, 16, 17, 31, 32, 33, 64, 67, 129, 257, 1025)
"""Sizes that are drawn: empty, one, primes, and the neighbours of powers of two."""

MAX_ELEMENTS = 20_000
"""The most elements of any value: compiling is what should take the time, not running."""

MAX_MAGNITUDE = {"float16": 2e3, "complex64": 1e6}
"""Values beyond these are dropped: what follows would be infinities alone."""


@dataclass(frozen=True)
class Drawn:
    """What a family draws: the text of a statement and the names of its operands."""

    text: str
    operands: tuple[str, ...]
    keeps_zeros: bool = False


class Scope:
    """The values of a program that is being drawn."""

    def __init__(self, random: Random, dtype: str) -> None:
        self.random = random
        self.dtype = dtype
        self.sizes = [random.choice(SIZES) for _ in range(random.choice((2, 3, 3, 4)))]
        if not any(size > 1 for size in self.sizes):
            self.sizes.append(random.choice((5, 7, 33)))
        self.contents = random.choice(("normal",) * 6 + ("positive", "whole", "special", "special"))
        self.layouts = random.choice((("contiguous",), ("contiguous",), _LAYOUTS))
        self.sources: list[Source] = []
        self.statements: list[Statement] = []
        self.values: dict[str, Tensor] = {}

    # What there is

    def names(self, accepts: Callable[[Tensor], bool] = lambda _: True) -> list[str]:
        """The values that are accepted."""
        return [name for name, value in self.values.items() if accepts(value)]

    def pick(self, accepts: Callable[[Tensor], bool] = lambda _: True) -> str | None:
        """A value, a recent one rather than an old one; None if there is none."""
        found = self.names(accepts)
        if not found:
            return None
        return self.random.choice(found[-2:] if self.random.random() < 0.6 else found)

    def axis(self, name: str) -> int | None:
        """An axis of a value, often counted from the end; None if it has none."""
        rank = self.values[name].dim()
        return self.random.randrange(-rank, rank) if rank else None

    # What is added

    def add_source(
        self,
        shape: Sequence[int],
        dtype: str | None = None,
        *,
        contents: str | None = None,
        bound: int = 1,
        is_parameter: bool = False,
    ) -> str:
        """A new input or weight, and its name."""
        name = f"{'w' if is_parameter else 'x'}{len(self.sources)}"
        source = Source(
            name,
            tuple(shape),
            dtype or self.dtype,
            "contiguous" if is_parameter else self.random.choice(self.layouts),
            contents or self.contents,
            self.random.randrange(1000),
            bound,
            is_parameter,
        )
        self.sources.append(source)
        self.values[name] = make(source)
        return name

    def weight(self, shape: Sequence[int], dtype: torch.dtype) -> str:
        """A weight, or an input, for a value of a dtype."""
        is_parameter = self.random.random() < 0.7
        contents = "normal" if is_parameter or self.contents == "special" else None
        return self.add_source(shape, name_of(dtype), contents=contents, is_parameter=is_parameter)

    def indices(self, shape: Sequence[int], bound: int) -> str:
        """Numbers below ``bound``: an input, or a weight whose values are known."""
        return self.add_source(
            shape,
            "int64",
            contents="index",
            bound=bound,
            is_parameter=self.random.random() < 0.5,
        )

    def forget_sources(self, count: int) -> None:
        """Take back the sources after the first ``count``: their statement was not valid."""
        for source in self.sources[count:]:
            del self.values[source.name]
        del self.sources[count:]

    def shape(self, ranks: Sequence[int] = (1, 2, 2, 3, 3, 4)) -> tuple[int, ...]:
        """A shape of this program's sizes, small enough."""
        for _ in range(20):
            drawn = tuple(self.random.choice(self.sizes) for _ in range(self.random.choice(ranks)))
            if torch.Size(drawn).numel() <= MAX_ELEMENTS // 4:
                return drawn
        return (self.sizes[0],)

    def attempt(self, drawn: Drawn | None) -> bool:
        """Run a statement and keep it, if it is valid, small and tame."""
        if drawn is None:
            return False
        named = [int(each) for each in re.findall(r"\{(\d)\}", drawn.text)]
        operands = drawn.operands[: max(named) + 1]
        statement = Statement(f"v{len(self.statements)}", drawn.text, operands, drawn.keeps_zeros)
        namespace: dict[str, Any] = {"torch": torch, "F": functional}
        namespace.update({name: value for name, value in self.values.items()})
        saved = (
            {name: self.values[name].clone() for name in drawn.operands}
            if "{r}" in drawn.text
            else {}
        )
        try:
            exec("\n".join(statement.lines()), namespace)
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
            self._restore(saved)
            return False
        result = namespace[statement.result]
        if not isinstance(result, Tensor) or not self._is_tame(result):
            self._restore(saved)
            return False
        self.values[statement.result] = result
        self.statements.append(statement)
        return True

    def _restore(self, saved: dict[str, Tensor]) -> None:
        for name, value in saved.items():
            if self._may_change(name) and not _overlaps(self.values[name]):
                self.values[name].copy_(value)

    def _may_change(self, name: str) -> bool:
        return name.startswith("v")

    def _is_tame(self, result: Tensor) -> bool:
        if result.numel() > MAX_ELEMENTS or result.dim() > 6:
            return False
        if not (result.is_floating_point() or result.is_complex()):
            return True
        values = torch.view_as_real(result.resolve_conj()) if result.is_complex() else result
        finite = values[torch.isfinite(values)].double()
        if values.numel() and finite.numel() < values.numel() / 4 and self.contents != "special":
            return False
        limit = MAX_MAGNITUDE.get(name_of(result.dtype), 1e5)
        return not finite.numel() or float(finite.abs().median()) < limit

    def program(self) -> Program:
        """What was drawn: it returns what nothing reads, now and then more."""
        used = {name for each in self.statements for name in each.operands}
        drawn = [each.result for each in self.statements]
        outputs = [name for name in drawn if name not in used][-3:]
        if self.random.random() < 0.4:
            outputs.append(self.random.choice(drawn))
        if self.random.random() < 0.05:
            outputs.append(self.random.choice(self.sources).name)
        unique = tuple(dict.fromkeys(outputs))
        program = Program(tuple(self.sources), tuple(self.statements), unique).live()
        return program if self.random.random() < 0.05 else program.without_unused_inputs()


_LAYOUTS = (
    *("contiguous", "contiguous", "transposed", "stepped", "offset"),
    *("padded", "expanded", "overlapping"),
)


def texts(table: str) -> tuple[str, ...]:
    """The statements of a table, which stand on its lines with semicolons between them."""
    return tuple(part.strip() for line in table.strip().split("\n") for part in line.split(" ; "))


def name_of(dtype: torch.dtype) -> str:
    """``float32`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def is_float(value: Tensor) -> bool:
    """Whether a value holds real floats."""
    return name_of(value.dtype) in FLOATS


def is_integer(value: Tensor) -> bool:
    """Whether a value holds integers, bool aside."""
    return name_of(value.dtype) in INTEGERS


def is_complex(value: Tensor) -> bool:
    """Whether a value holds complex numbers."""
    return name_of(value.dtype) in COMPLEX


def _overlaps(tensor: Tensor) -> bool:
    """Whether elements share memory: torch refuses to write to such a tensor, and did not."""
    return bool(torch._debug_has_internal_overlap(tensor) == 1)
