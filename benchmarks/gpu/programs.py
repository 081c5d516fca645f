"""The programs and models that are timed on a GPU, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as T

from benchmarks.gpu import models as m

MIB = 1 << 20


@dataclass(frozen=True)
class Row:
    """A program: what makes its module and inputs on the current device, and its dtype."""

    name: str
    make: Callable[[], tuple[nn.Module, tuple[Any, ...]]]
    dtype: torch.dtype = torch.bfloat16
    copied: int = 0
    """Bytes that it reads and writes at least, for a plain copy of as many."""
    is_checked: bool = True
    """Whether it fits into memory in float64."""


class Function(nn.Module):
    """A function as a module, with tensors that are its parameters."""

    def __init__(self, function: Callable[..., Any], *parameters: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        self.names = tuple(f"given{k}" for k in range(len(parameters)))
        for name, each in zip(self.names, parameters, strict=True):
            self.register_parameter(name, nn.Parameter(each))

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs, *(getattr(self, name) for name in self.names))


class Gated(nn.Module):
    """The half of a gated MLP that has two products."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)

    def forward(self, x: Any) -> Any:
        return T.silu(self.gate(x)) * self.up(x)


class ConvBlock(nn.Module):
    """A convolution, batch norm and ReLU."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.norm(self.conv(x)))


def _chain(x: Any) -> Any:
    return torch.relu(torch.tanh(x * 2.0 + 1.0) * x - 0.5)


def _draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def _norm(x: Any, y: Any, w: Any, b: Any) -> Any:
    return T.layer_norm(x + y, (x.shape[-1],), w, b)


def _heads() -> tuple[torch.Tensor, ...]:
    return tuple(_draw(4, 16, 2048, 64) for _ in range(3))


def _words(count: int, batch: int, words: int) -> torch.Tensor:
    return torch.randint(0, words, (batch, count))


def _decode() -> tuple[nn.Module, tuple[Any, ...]]:
    cache = _draw(32, 1, 8, 512, 64)
    return m.Llama(), (_words(1, 1, 128256), torch.tensor([512]), cache)


_ALL = (
    Row("chain of 5, 4096² f32", lambda: (Function(_chain), (_draw(4096, 4096),)),
        torch.float32, 128 * MIB),
    Row("GELU, 8192² bf16",
        lambda: (Function(lambda x: T.gelu(x, approximate="tanh")), (_draw(8192, 8192),)),
        copied=256 * MIB),
    Row("softmax, 8192² f32",
        lambda: (Function(lambda x: torch.softmax(x, -1)), (_draw(8192, 8192),)),
        torch.float32, 512 * MIB),
    Row("rms norm, 8192² bf16",
        lambda: (
            Function(lambda x, w: T.rms_norm(x, (8192,), w, 1e-6), torch.ones(8192)),
            (_draw(8192, 8192),),
        ),
        copied=256 * MIB),
    Row("add + layer norm, 16384×4096 bf16",
        lambda: (
            Function(_norm, torch.ones(4096), torch.zeros(4096)),
            (_draw(16384, 4096), _draw(16384, 4096)),
        ),
        copied=384 * MIB),
    Row("attention, 4×16×2048×64 bf16",
        lambda: (Function(T.scaled_dot_product_attention), _heads())),
    Row("MLP, 4096×4096×16384 bf16", lambda: (m.Mlp(4096, 16384), (_draw(4096, 4096),))),
    Row("gated MLP, 4096×4096×11008 bf16",
        lambda: (Gated(4096, 11008), (_draw(4096, 4096),))),
    Row("gated MLP, batch 1, bf16", lambda: (Gated(4096, 11008), (_draw(1, 4096),)),
        copied=180 * MIB),
    Row("conv + bn + relu, 32×64×56×56 bf16", lambda: (ConvBlock(64), (_draw(32, 64, 56, 56),))),
    Row("conv + bn + relu, 32×64×56×56 f32", lambda: (ConvBlock(64), (_draw(32, 64, 56, 56),)),
        torch.float32),
    Row("BERT-base, 8×512", lambda: (m.Bert(), (_words(512, 8, 30522),))),
    Row("GPT-2, 8×512", lambda: (m.Gpt(scores=False), (_words(512, 8, 50257),))),
    Row("GPT-2, 8×512, all scores", lambda: (m.Gpt(), (_words(512, 8, 50257),))),
    Row("Llama 1 B, prefill 2048",
        lambda: (m.Llama(), (_words(2048, 1, 128256), torch.arange(2048)))),
    Row("Llama 1 B, one token", _decode),
    Row("ResNet-50, 32", lambda: (m.ResNet(), (_draw(32, 3, 224, 224),))),
    Row("ViT-B/16, 32", lambda: (m.Vit(), (_draw(32, 3, 224, 224),))),
)  # fmt: skip
ROWS: dict[str, Row] = {row.name: row for row in _ALL}
