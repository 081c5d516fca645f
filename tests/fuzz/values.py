"""Inputs and weights: a tensor as a description that can be printed, shrunk and made again."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

FLOATS = ("float64", "float32", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
COMPLEX = ("complex64", "complex128")
DTYPES = (*FLOATS, *INTEGERS, "bool", *COMPLEX)

LAYOUTS = ("contiguous", "transposed", "stepped", "offset", "padded", "expanded", "overlapping")
"""How a tensor may lie in memory; ``expanded`` and ``overlapping`` hold elements twice."""

CONTENTS = ("normal", "positive", "whole", "special", "index")
"""What a tensor may hold; ``index`` are the numbers from 0 below ``bound``."""


@dataclass(frozen=True)
class Source:
    """An input or a weight of a program."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    layout: str = "contiguous"
    contents: str = "normal"
    seed: int = 0
    bound: int = 1
    is_parameter: bool = False

    def expression(self) -> str:
        """Python that makes the tensor, without the fuzzer where the tensor is an ordinary one."""
        plain = self.contents == "normal" and self.layout == "contiguous"
        if plain and self.dtype in FLOATS:
            drawn = (
                f"torch.randn({self.shape}, generator=torch.Generator().manual_seed({self.seed}))"
            )
            return drawn if self.dtype == "float32" else f"{drawn}.to(torch.{self.dtype})"
        return f"make({self!r})"


def make(source: Source, shape: tuple[int, ...] | None = None) -> Tensor:
    """The tensor that a source describes, perhaps in another shape of the same rank."""
    wanted = source.shape if shape is None else shape
    return _lay_out(source, wanted)


def _fill(source: Source, shape: tuple[int, ...]) -> Tensor:
    generator = torch.Generator().manual_seed(source.seed)
    dtype = getattr(torch, source.dtype)
    if source.contents == "index":
        return torch.randint(0, max(source.bound, 1), shape, generator=generator).to(dtype)
    if source.dtype == "bool":
        return torch.rand(shape, generator=generator, dtype=torch.float32) < 0.5
    if source.dtype in INTEGERS:
        low = 0 if source.dtype == "uint8" else -9
        return torch.randint(low, 10, shape, generator=generator).to(dtype)
    if source.dtype in COMPLEX:
        parts = torch.randn((*shape, 2), generator=generator, dtype=torch.float32)
        return torch.view_as_complex(parts).to(dtype)
    values = torch.randn(shape, generator=generator, dtype=torch.float32)
    if source.contents == "positive":
        values = values.abs() + 0.25
    if source.contents == "whole":
        values = values.mul(2).round()
    values = values.to(dtype)
    return _sprinkle(values, generator) if source.contents == "special" else values


def _sprinkle(values: Tensor, generator: torch.Generator) -> Tensor:
    """Put awkward numbers in a quarter of the places.

    The largest is such that a few may be added: where sums overflow depends on their order.
    """
    info = torch.finfo(values.dtype)
    awkward = torch.tensor(
        [
            *(float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1.0, -1.0),
            *(info.max / 1024, info.tiny, -info.tiny / 4, info.eps),
        ],
        dtype=values.dtype,
    )
    chosen = torch.randint(0, len(awkward), values.shape, generator=generator)
    places = torch.rand(values.shape, generator=generator, dtype=torch.float32) < 0.25
    return torch.where(places, awkward[chosen], values)


def _lay_out(source: Source, shape: tuple[int, ...]) -> Tensor:
    """Fill memory so that a view of it has the shape and the layout."""
    layout = source.layout
    if layout == "transposed" and len(shape) > 1:
        return _fill(source, shape[::-1]).permute(*reversed(range(len(shape))))
    if layout == "stepped" and shape:
        return _fill(source, (*shape[:-1], 2 * shape[-1]))[..., ::2]
    if layout == "padded" and shape:
        return _fill(source, (*shape[:-1], shape[-1] + 3))[..., : shape[-1]]
    if layout == "offset":
        count = torch.Size(shape).numel()
        return _fill(source, (count + 1,))[1:].view(shape)
    if layout == "expanded" and shape:
        return _fill(source, (1, *shape[1:])).expand(shape)
    if layout == "overlapping" and shape and min(shape) > 0:
        count = sum(size - 1 for size in shape) + 1
        return _fill(source, (count,)).as_strided(shape, (1,) * len(shape))
    return _fill(source, shape)
