"""Models that benchmarks and tests on a GPU run, written out in plain torch with random weights.

Sizes are arguments: the benchmarks take those of the models that people know, the tests small ones.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as T

Tensor = torch.Tensor


class Mlp(nn.Module):
    """Two linear layers with GELU between."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(T.gelu(self.up(x), approximate="tanh"))


class GatedMlp(nn.Module):
    """Llama's MLP: one product gates the other."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(T.silu(self.gate(x)) * self.up(x))


class Attention(nn.Module):
    """Self-attention with biases, of all tokens or of those before."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.causal = heads, causal

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        parts = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = T.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))


class Block(nn.Module):
    """A transformer's layer, normed before (GPT-2, ViT) or after (BERT)."""

    def __init__(self, width: int, heads: int, *, causal: bool, before: bool) -> None:
        super().__init__()
        self.attention, self.mlp = Attention(width, heads, causal), Mlp(width, 4 * width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.before = before

    def forward(self, x: Tensor) -> Tensor:
        if self.before:
            x = x + self.attention(self.first(x))
            return x + self.mlp(self.second(x))
        x = self.first(x + self.attention(x))
        return self.second(x + self.mlp(x))


class Bert(nn.Module):
    """BERT's encoder: 12 layers of 768."""

    def __init__(self, layers: int = 12, width: int = 768, heads: int = 12, words: int = 30522):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(512, width)
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.Sequential(
            *(Block(width, heads, causal=False, before=False) for _ in range(layers))
        )

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.blocks(self.norm(self.words(tokens) + self.places(places)))


class Gpt(nn.Module):
    """GPT-2: 12 layers of 768, with the scores of all words or the last layer's result."""

    def __init__(
        self, layers: int = 12, width: int = 768, heads: int = 12, words: int = 50257,
        scores: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.scores = scores
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(1024, width)
        self.blocks = nn.Sequential(
            *(Block(width, heads, causal=True, before=True) for _ in range(layers))
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.norm(self.blocks(self.words(tokens) + self.places(places)))
        return T.linear(x, self.words.weight) if self.scores else x


class Vit(nn.Module):
    """ViT-B/16."""

    def __init__(self, layers: int = 12, width: int = 768, heads: int = 12, side: int = 224):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, stride=16)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (side // 16) ** 2 + 1, width) * 0.02)
        self.blocks = nn.Sequential(
            *(Block(width, heads, causal=False, before=True) for _ in range(layers))
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x)[:, 0]))


class Bottleneck(nn.Module):
    """ResNet's block of three convolutions."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.a = _convolution(channels, width, 1)
        self.b = _convolution(width, width, 3, stride)
        self.c = _convolution(width, 4 * width, 1)
        self.skip: nn.Module = nn.Identity()
        if stride != 1 or channels != 4 * width:
            self.skip = _convolution(channels, 4 * width, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.c(torch.relu(self.b(torch.relu(self.a(x)))))
        return torch.relu(y + self.skip(x))


def _convolution(channels: int, outputs: int, size: int, stride: int = 1) -> nn.Module:
    conv = nn.Conv2d(channels, outputs, size, stride, padding=size // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class ResNet(nn.Module):
    """ResNet-50."""

    def __init__(self, depths: tuple[int, ...] = (3, 4, 6, 3), width: int = 64) -> None:
        super().__init__()
        self.stem = _convolution(3, width, 7, 2)
        blocks, channels = [], width
        for stage, depth in enumerate(depths):
            for k in range(depth):
                stride = 2 if stage and k == 0 else 1
                blocks.append(Bottleneck(channels, width << stage, stride))
                channels = 4 * width << stage
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(channels, 1000)

    def forward(self, images: Tensor) -> Tensor:
        x = T.max_pool2d(torch.relu(self.stem(images)), 3, 2, 1)
        return self.head(self.blocks(x).mean((2, 3)))


class LlamaLayer(nn.Module):
    """A layer of Llama: grouped heads, rotary positions, RMS norms, a gated MLP."""

    def __init__(self, width: int, heads: int, shared: int, hidden: int) -> None:
        super().__init__()
        self.heads, self.shared, self.depth = heads, shared, width // heads
        self.first, self.second = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, shared * self.depth, bias=False)
        self.v = nn.Linear(width, shared * self.depth, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.mlp = GatedMlp(width, hidden)

    def forward(self, x: Tensor, turn: Any, past: Any = None) -> tuple[Tensor, Tensor, Tensor]:
        batch, tokens, width = x.shape
        y = self.first(x)
        q = self.q(y).view(batch, tokens, self.heads, self.depth).transpose(1, 2)
        k = self.k(y).view(batch, tokens, self.shared, self.depth).transpose(1, 2)
        v = self.v(y).view(batch, tokens, self.shared, self.depth).transpose(1, 2)
        q, k = rotated(q, *turn), rotated(k, *turn)
        keys, values = k, v
        if past is not None:
            keys, values = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        mixed = T.scaled_dot_product_attention(
            q, keys, values, is_causal=past is None, enable_gqa=True
        )
        x = x + self.o(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.mlp(self.second(x)), k, v


def rotated(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotary positions: halves of each head turn by an angle that grows with the position."""
    left, right = x.chunk(2, -1)
    return torch.cat([left * cosines - right * sines, right * cosines + left * sines], -1)


class Llama(nn.Module):
    """Llama 3.2 with 1 B parameters: all tokens at once, or one beside a cache of keys and values.

    A call with a cache (``[2 * layers, batch, heads, tokens, depth]``) returns what to append.
    """

    def __init__(
        self, layers: int = 16, width: int = 2048, heads: int = 32, shared: int = 8,
        hidden: int = 8192, words: int = 128256,
    ) -> None:  # fmt: skip
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList(LlamaLayer(width, heads, shared, hidden) for _ in range(layers))
        self.norm, self.depth = nn.RMSNorm(width, 1e-5), width // heads

    def forward(self, tokens: Tensor, place: Tensor, cache: Any = None) -> Any:
        x = self.words(tokens)
        half = self.depth // 2
        steps = torch.arange(half, device=x.device, dtype=torch.float32)
        angles = place.float()[:, None] * torch.exp(steps * (-math.log(500000.0) / half))
        turn = (angles.cos().to(x.dtype), angles.sin().to(x.dtype))
        appended = []
        for k, layer in enumerate(self.layers):
            past = None if cache is None else (cache[2 * k], cache[2 * k + 1])
            x, *new = layer(x, turn, past)
            appended += new
        scores = T.linear(self.norm(x[:, -1:]), self.words.weight)
        return scores if cache is None else (scores, *appended)
