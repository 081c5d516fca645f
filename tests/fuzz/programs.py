"""A program as a value: what it reads, what it computes, what it returns; printed as Python.

A statement is a line of Python with numbered operands. So a program prints itself, is built by
executing what it prints, and can be taken apart by a shrinker that knows nothing of ops. Printed
*wide*, it computes in float64 throughout: that is the reference.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tests.fuzz.definitions import masked_attention
from tests.fuzz.values import Source, make

Model = Callable[..., Any]
"""A program to call with tensors: a function or a module, of torch's or compiled."""

Watch = Callable[[str, Tensor], Tensor]
"""Is told name and value of each source and statement, and gives the value to go on with.

Or of each operand, and gives the value that is used there.
"""


@dataclass(frozen=True)
class Statement:
    """``result`` = ``text`` with the names of the operands in it.

    ``text`` is an expression, or lines that assign to ``{r}``. ``keeps_zeros`` says that what it
    gives is exact, the sign of a zero included.
    """

    result: str
    text: str
    operands: tuple[str, ...]
    keeps_zeros: bool = False

    @property
    def is_expression(self) -> bool:
        """Whether it only reads its operands; else its lines may change them in place."""
        return "{r}" not in self.text

    def lines(self, operand: str = "{0}") -> list[str]:
        """The statement as lines of Python; ``operand`` says how the name of one is written."""
        text = "{r} = " + self.text if self.is_expression else self.text
        return text.format(*map(operand.format, self.operands), r=self.result).split("\n")

    def op(self) -> str:
        """The name of what it computes: what stands before the first bracket of its last line."""
        bare = re.sub(r"\{\w+\}", "", self.text.split("\n")[-1])
        names = re.findall(r"[A-Za-z_]\w*(?=\()", bare)
        return names[0] if names else bare.replace(" ", "")


@dataclass(frozen=True)
class Program:
    """Sources, statements in order, and the names of what is returned."""

    sources: tuple[Source, ...]
    statements: tuple[Statement, ...]
    outputs: tuple[str, ...]

    @property
    def inputs(self) -> tuple[Source, ...]:
        """What a call passes: every source that is not a weight."""
        return tuple(each for each in self.sources if not each.is_parameter)

    @property
    def parameters(self) -> tuple[Source, ...]:
        """The weights."""
        return tuple(each for each in self.sources if each.is_parameter)

    def live(self) -> Program:
        """Without the statements and the weights that no output needs; inputs stay."""
        needed = set(self.outputs)
        kept: list[Statement] = []
        for statement in reversed(self.statements):
            # Lines that change an operand in place matter to those who read it afterwards.
            changes = mutates(statement) and needed.intersection(statement.operands)
            if statement.result in needed or changes:
                kept.append(statement)
                needed.update(statement.operands)
        sources = tuple(
            each for each in self.sources if not each.is_parameter or each.name in needed
        )
        return Program(sources, tuple(reversed(kept)), self.outputs)

    def without_unused_inputs(self) -> Program:
        """Without the inputs that no statement reads and that are not returned."""
        used = {name for each in self.statements for name in each.operands} | set(self.outputs)
        return replace(self, sources=tuple(each for each in self.sources if each.name in used))

    def upstream(self, output: str) -> tuple[Statement, ...]:
        """The statements that one output depends on."""
        return replace(self, outputs=(output,)).live().statements

    def source(self, *, wide: bool = False, watch: bool = False, use: bool = False) -> str:
        """A definition of ``model``: a function, or a module where there are weights."""
        arguments = [each.name for each in self.inputs]
        body = [line for each in self._steps(watch, use) for line in each]
        body.append(f"return {', '.join(self.outputs)}" + ("," if len(self.outputs) == 1 else ""))
        if not self.parameters:
            lines = [f"def model({', '.join(arguments)}):", *_indent(body)]
        else:
            weights = [f"{each.name} = self.{each.name}" for each in self.parameters]
            lines = [
                *("class Program(torch.nn.Module):", "    def __init__(self):"),
                *_indent(["super().__init__()", *map(_register, self.parameters)], 2),
                *_indent([f"def forward({', '.join(['self', *arguments])}):"]),
                *_indent([*weights, *body], 2),
                "model = Program()",
            ]
        text = "\n".join(lines) + "\n"
        return widen(text) if wide else text

    def _steps(self, watch: bool, use: bool) -> Iterator[list[str]]:
        # Where something is changed in place, a copy of an operand is another program.
        use = use and all(each.is_expression for each in self.statements)
        operand = "use({0!r}, {0})" if use else "{0}"
        if watch:
            yield [f"{each.name} = watch({each.name!r}, {each.name})" for each in self.sources]
        for each in self.statements:
            yield each.lines(operand)
            if watch:
                yield [f"{each.result} = watch({each.result!r}, {each.result})"]

    def build(
        self,
        weights: Mapping[str, Tensor],
        *,
        wide: bool = False,
        watch: Watch | None = None,
        use: Watch | None = None,
    ) -> Model:
        """The model, executed from its own text."""
        functions = ExactActivations() if wide else functional
        library = ExactMoments() if wide else torch
        namespace: dict[str, Any] = {"torch": library, "F": functions, **weights}
        watchers = {"watch": watch, "use": use}
        namespace |= watchers
        asked = {name: each is not None for name, each in watchers.items()}
        exec(compile(self.source(wide=wide, **asked), "<program>", "exec"), namespace)
        model = namespace["model"]
        built: Model = model.eval() if isinstance(model, torch.nn.Module) else model
        return built

    def arguments(self, sizes: Mapping[int, int] | None = None) -> list[Tensor]:
        """What to call it with; ``sizes`` gives other sizes for symbolic ones."""
        return [make(each, resized(each.shape, sizes or {})) for each in self.inputs]

    def weights(self) -> dict[str, Tensor]:
        """The weights, by name."""
        return {each.name: make(each) for each in self.parameters}

    def to_json(self) -> dict[str, Any]:
        """A form that ``from_json`` reads."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Program:
        """What ``to_json`` wrote."""
        return Program(
            tuple(Source(**{**each, "shape": tuple(each["shape"])}) for each in data["sources"]),
            tuple(
                Statement(**{**each, "operands": tuple(each["operands"])})
                for each in data["statements"]
            ),
            tuple(data["outputs"]),
        )


class ExactActivations:
    """``torch.nn.functional``, with activations as exact as float64 can be, infinities included.

    At infinities torch multiplies −∞ by 0, or divides ∞ by ∞, and says NaN or not by the processor
    that it runs on; here they are what they tend to. Its gelu cancels for negative numbers: at −8
    all digits are lost, in float64 as well. With this in the reference and torch's own in eager,
    either is right.
    """

    GATED = frozenset(("silu", "mish", "hardswish"))

    def gelu(self, x: Tensor, approximate: str = "none") -> Tensor:
        """0 at −∞, and as many digits far below 0 as above it."""
        if approximate != "none":
            return self._gated(functional.gelu, x, approximate=approximate)
        tail = torch.erfc(x * -math.sqrt(0.5))
        return torch.where(x.isneginf(), -0.0, 0.5 * x * tail)

    scaled_dot_product_attention = staticmethod(masked_attention)

    def __getattr__(self, name: str) -> Any:
        function = getattr(functional, name)
        return partial(self._gated, function) if name in self.GATED else function

    @staticmethod
    def _gated(function: Callable[..., Tensor], x: Tensor, *rest: Any, **options: Any) -> Tensor:
        return torch.where(x.isneginf(), -0.0, function(x, *rest, **options))

    @staticmethod
    def hardsigmoid(x: Tensor) -> Tensor:
        """Its gradient is 1/6; torch's is 1/6 rounded to float32, in float64 as well."""
        inside = (x > -3) & (x < 3)
        return torch.where(inside, x / 6 + 0.5, functional.hardsigmoid(x.detach()))

    @staticmethod
    def softsign(x: Tensor) -> Tensor:
        """±1 at the infinities."""
        return torch.where(x.isinf(), x.sign(), functional.softsign(x))


class ExactMoments:
    """``torch``, whose mean beside a variance is a mean: torch's own is NaN beside infinities."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def var_mean(x: Tensor, *rest: Any, **options: Any) -> tuple[Tensor, Tensor]:
        """The variance, and the mean over the same axes."""
        return torch.var(x, *rest, **options), x.mean(*rest, **options)


def mutates(statement: Statement) -> bool:
    """Whether it may change an operand in place: a method that ends in ``_``, or an assignment."""
    return "{r}" in statement.text


def resized(shape: Sequence[int], sizes: Mapping[int, int]) -> tuple[int, ...]:
    """A shape in which sizes are replaced by others."""
    return tuple(sizes.get(size, size) for size in shape)


def widen(text: str) -> str:
    """A program that says float64 wherever it said a narrower float."""
    text = re.sub(r"torch\.(float32|float16|bfloat16)\b", "torch.float64", text)
    return re.sub(r"torch\.complex64\b", "torch.complex128", text)


def _register(source: Source) -> str:
    if source.dtype.startswith(("float", "bfloat", "complex")):
        return f"self.{source.name} = torch.nn.Parameter({source.name})"
    return f"self.register_buffer({source.name!r}, {source.name})"


def _indent(lines: Sequence[str], depth: int = 1) -> list[str]:
    return ["    " * depth + line for line in lines]
