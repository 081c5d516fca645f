"""Triton source as it is written: a module with helper functions and one kernel.

A ``TritonKernel`` is what a launch needs: the source, which can be imported on its own, and how
many programs of which block sizes it wants.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Symbol
from monograph.kernel.kernel import Kernel

ERROR_PARAMETER = "error"
"""A kernel with checked indices takes one more pointer: to a number that a bad index overwrites."""


@dataclass(frozen=True)
class TritonKernel:
    """A kernel as source, and how to launch it."""

    name: str
    family: str
    source: str
    kernel: Kernel
    grid: tuple[Dim, ...]
    """How many programs there are along each axis of the grid."""
    blocks: Mapping[str, int]
    """The kernel's constants: the sizes of its blocks."""
    warps: int
    stages: int = 2
    """How many iterations of a loop have their loads under way at a time."""
    checks: bool = False
    """Whether it has the parameter ``error``, and writes 1 there if an index is out of range."""

    @property
    def sizes(self) -> tuple[Symbol, ...]:
        """The symbolic dimensions that it takes after its buffers."""
        return self.kernel.sizes

    @property
    def parameters(self) -> tuple[str, ...]:
        """Its parameters in order, the constants left out."""
        return parameter_names(self.kernel, self.checks)


def parameter_names(kernel: Kernel, checks: bool) -> tuple[str, ...]:
    """The parameters of a kernel in order, the constants left out."""
    names = [buffer.name for buffer in kernel.buffers]
    names += [ERROR_PARAMETER] if checks else []
    return (*names, *(size_name(symbol) for symbol in kernel.sizes))


def size_name(symbol: Symbol) -> str:
    """The parameter that holds a symbolic dimension."""
    return f"size_{symbol.name.lstrip('_')}"


HELPERS: dict[str, str] = {
    "floor_divide": """\
@triton.jit
def floor_divide(a, b):
    # Triton's // truncates; positions are divided towards minus infinity.
    quotient = a // b
    return tl.where(a - quotient * b < 0, quotient - 1, quotient)
""",
    "floor_remainder": """\
@triton.jit
def floor_remainder(a, b):
    remainder = a % b
    return tl.where(remainder < 0, remainder + b, remainder)
""",
    "remainder_f32": """\
@triton.jit
def remainder_f32(x, y):
    # Triton's % loses digits of large quotients. Here each step takes 52 digits off the quotient,
    # exactly: its halves times the divisor have no more digits than f64.
    rest, divisor = tl.abs(x).to(tl.float64), tl.abs(y).to(tl.float64)
    for _ in tl.static_range(6):
        quotient = tl.floor(rest / divisor)
        high = quotient * 134217729.0
        high = high - (high - quotient)
        rest = (rest - high * divisor) - (quotient - high) * divisor
    rest = tl.where(rest < 0, rest + divisor, rest)
    rest = tl.where(rest >= divisor, rest - divisor, rest).to(tl.float32)
    rest = tl.where((tl.abs(y) == float('inf')) & (tl.abs(x) < float('inf')), tl.abs(x), rest)
    return tl.where(x.to(tl.int32, bitcast=True) < 0, rest * -1.0, rest)
""",
    "remainder_f64": """\
@triton.jit
def remainder_f64(x, y):
    rest = tl.abs(x) % tl.abs(y)
    rest = tl.where(tl.abs(x) < float('inf'), rest, float('nan'))
    rest = tl.where((tl.abs(y) == float('inf')) & (tl.abs(x) < float('inf')), tl.abs(x), rest)
    return tl.where(x.to(tl.int64, bitcast=True) < 0, rest * -1.0, rest)
""",
    "tanh_f32": """\
@triton.jit
def tanh_f32(x):
    # Further out, the unit for powers and a division of two roundings lose at most a last digit:
    # what they give is taken from 1.
    size = tl.abs(x)
    square = x * x
    near = tl.fma(-0.0057154991663992405, square, 0.020649103447794914)
    near = tl.fma(near, square, -0.05374300479888916)
    near = tl.fma(near, square, 0.133314847946167)
    near = tl.fma(near, square, -0.3333328366279602)
    near = tl.fma(square * near, size, size)
    far = 1.0 - 2.0 / (tl.exp(2.0 * size) + 1.0)
    result = tl.where(size < 0.625, near, far)
    return tl.where(x.to(tl.int32, bitcast=True) < 0, result * -1.0, result)
""",
    "nan_maximum": """\
@triton.jit
def nan_maximum(a, b):
    # tl.max drops NaN.
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
""",
    "nan_minimum": """\
@triton.jit
def nan_minimum(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
""",
    "multiply": """\
@triton.jit
def multiply(a, b):
    return a * b
""",
    "first_maximum": """\
@triton.jit
def first_maximum(a, i, b, j):
    # The first NaN wins, else the first of the largest.
    same = (a == b) | ((a != a) & (b != b))
    ahead = (b > a) | ((b != b) & (a == a)) | (same & (j < i))
    return tl.where(ahead, b, a), tl.where(ahead, j, i)
""",
    "first_minimum": """\
@triton.jit
def first_minimum(a, i, b, j):
    same = (a == b) | ((a != a) & (b != b))
    ahead = (b < a) | ((b != b) & (a == a)) | (same & (j < i))
    return tl.where(ahead, b, a), tl.where(ahead, j, i)
""",
}
"""Functions that kernels call beside those of formulas; a module has those that it needs."""


class SourceWriter:
    """The lines of a kernel's body, at the depth of the loops around them."""

    def __init__(self, module: SourceWriter | None = None) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.functions: dict[str, str] = {} if module is None else module.functions
        """The helper functions of the module, each after those that it calls."""

    def line(self, text: str) -> None:
        """Add a line."""
        self.lines.append("    " * self.depth + text if text else "")

    def helper(self, name: str) -> str:
        """The name of a helper function, which the module will have."""
        self.functions[name] = HELPERS[name]
        return name

    @contextmanager
    def loop(self, header: str) -> Iterator[None]:
        """Lines inside a loop."""
        self.line(header)
        self.depth += 1
        yield
        self.depth -= 1

    def module(
        self,
        name: str,
        parameters: Sequence[str],
        constants: Sequence[str],
        comment: Sequence[str],
    ) -> str:
        """The whole module: imports, helpers, and the kernel with a comment on what it computes."""
        head = ["import triton", "import triton.language as tl", ""]
        for function in self.functions.values():
            head += ["", *function.splitlines(), ""]
        signature = [*parameters, *(f"{each}: tl.constexpr" for each in constants)]
        lines = [*head, "", "@triton.jit", *_signature(name, signature)]
        lines += [f"    # {each}" for each in comment]
        return "\n".join([*lines, *self.lines, ""])


def _signature(name: str, parameters: Sequence[str]) -> list[str]:
    """The line that opens a function, or several where it is long."""
    line = f"def {name}({', '.join(parameters)}):"
    if len(line) <= 100:
        return [line]
    return [f"def {name}(", *(f"    {each}," for each in parameters), "):"]
