"""Models of text, through torch's exporters: an encoder in four forms, and a decoder in two."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from onnx import ModelProto
from torch import Tensor, nn

from benchmarks.shipped.exporters import by_dynamo, by_torchscript, optimized, quantized_dynamically
from benchmarks.shipped.model import Feed, Sizes, normal, shipped

VOCABULARY = 1000
ENCODER = {"batch_size": 1, "sequence_length": 128}
SMALL_ENCODER = {"batch_size": 2, "sequence_length": 9}
TOKENS = ("input_ids", "attention_mask", "token_type_ids")


class Encoder(nn.Module):
    """BERT as it is exported for search and classification: three inputs, two outputs."""

    def __init__(self, hidden: int, layers: int, heads: int) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        config = BertConfig(
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=4 * hidden,
            vocab_size=VOCABULARY,
        )
        self.model = BertModel(config)  # type: ignore[no-untyped-call]

    def forward(self, tokens: Tensor, mask: Tensor, kinds: Tensor) -> Any:
        """The last hidden states, and the pooled first one."""
        return self.model(
            input_ids=tokens, attention_mask=mask, token_type_ids=kinds, return_dict=False
        )


def sentences(sizes: Sizes, generator: np.random.Generator) -> Feed:
    """Tokens; of a batch, all but the first are shorter and padded."""
    batch, length = sizes["batch_size"], sizes["sequence_length"]
    mask = np.ones((batch, length), np.int64)
    for row in range(1, batch):
        mask[row, max(1, length - row - length // 4) :] = 0
    return {
        "input_ids": generator.integers(0, VOCABULARY, (batch, length)),
        "attention_mask": mask,
        "token_type_ids": np.zeros((batch, length), np.int64),
    }


def _encoder(small: bool) -> tuple[Encoder, int, int]:
    hidden, layers, heads = (32, 2, 4) if small else (384, 6, 12)
    return Encoder(hidden, layers, heads).eval(), hidden, heads


def _tokens() -> tuple[Tensor, ...]:
    ones = torch.ones(2, 8, dtype=torch.int64)
    return torch.randint(0, VOCABULARY, (2, 8)), ones, 0 * ones


FREE_TOKENS = {0: "batch_size", 1: "sequence_length"}
RESULTS = ("last_hidden_state", "pooler_output")


@shipped(
    "bert", "texts", "torchscript 14", feed=sentences, sizes=ENCODER, small=SMALL_ENCODER
)  # fmt: skip
def encoder(small: bool) -> ModelProto:
    """BERT with a free batch and length, as Hugging Face's exporter writes it."""
    axes = {name: FREE_TOKENS for name in (*TOKENS, RESULTS[0])}
    axes[RESULTS[1]] = {0: "batch_size"}
    return by_torchscript(_encoder(small)[0], _tokens(), TOKENS, RESULTS, axes, 14)


@shipped(
    "bert-dynamo", "texts", "dynamo 20", feed=sentences, sizes=ENCODER, small=SMALL_ENCODER
)  # fmt: skip
def encoder_by_dynamo(small: bool) -> ModelProto:
    """The same through torch's newer exporter."""
    return by_dynamo(_encoder(small)[0], _tokens(), TOKENS, RESULTS, [FREE_TOKENS] * 3, 20)


@shipped(
    "bert-fused",
    "texts",
    "torchscript 14 + onnxruntime.transformers",
    feed=sentences,
    sizes=ENCODER,
    small=SMALL_ENCODER,
)
def encoder_optimized(small: bool) -> ModelProto:
    """BERT of com.microsoft's fused ops."""
    _, hidden, heads = _encoder(small)
    return optimized(encoder(small), "bert", heads, hidden)


@shipped(
    "bert-int8",
    "texts",
    "torchscript 14 + quantize_dynamic",
    feed=sentences,
    sizes=ENCODER,
    small=SMALL_ENCODER,
    tolerance=0.1,
)
def encoder_quantized(small: bool) -> ModelProto:
    """BERT with weights of bytes."""
    return quantized_dynamically(encoder(small))


class RmsNorm(nn.Module):
    """RMS norm as models spell it that were exported before it was an op."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x: Tensor) -> Tensor:
        """The rows, each of size one, scaled."""
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Decoder(nn.Module):
    """A language model of Llama's kind, with a cache: the past comes in, the present goes out."""

    def __init__(self, hidden: int, layers: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, hidden // heads
        self.table = nn.Embedding(VOCABULARY, hidden)
        self.layers = nn.ModuleList(DecoderLayer(hidden, heads, groups) for _ in range(layers))
        self.norm = RmsNorm(hidden)
        self.scores = nn.Linear(hidden, VOCABULARY, bias=False)
        steps = torch.arange(0, self.size, 2, dtype=torch.float32) / self.size
        self.register_buffer("frequencies", 10000.0**-steps)

    def forward(self, tokens: Tensor, mask: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        """The scores of the next token after each, then keys and values of every layer."""
        positions = (mask.cumsum(1) - 1).masked_fill(mask == 0, 1)[:, -tokens.shape[1] :]
        angles = positions[..., None].float() * self.frequencies  # type: ignore[operator]
        angles = torch.cat([angles, angles], -1)[:, None]
        turns = angles.cos(), angles.sin()
        length, whole = tokens.shape[1], mask.shape[1]
        ahead = torch.ones(length, whole, dtype=torch.bool).triu(whole - length + 1)
        hidden = ahead[None, None] | (mask == 0)[:, None, None]
        bias = torch.zeros(hidden.shape).masked_fill(hidden, torch.finfo(torch.float32).min)
        x, present = self.table(tokens), []
        for number, layer in enumerate(self.layers):
            x, keys, values = layer(x, past[2 * number], past[2 * number + 1], turns, bias)
            present += [keys, values]
        return (self.scores(self.norm(x)), *present)


class DecoderLayer(nn.Module):
    """Attention whose keys are shared by several queries, and a gated product."""

    def __init__(self, hidden: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, hidden // heads
        shared = groups * self.size
        self.before, self.between = RmsNorm(hidden), RmsNorm(hidden)
        self.query, self.out = (nn.Linear(hidden, hidden, bias=False) for _ in range(2))
        self.key, self.value = (nn.Linear(hidden, shared, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(hidden, 3 * hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * hidden, hidden, bias=False)

    def forward(
        self, x: Tensor, keys: Tensor, values: Tensor, turns: tuple[Tensor, Tensor], bias: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The next features, and all keys and values."""
        y = self.before(x)
        query = _turn(self._heads(self.query(y), self.heads), *turns)
        keys = torch.cat([keys, _turn(self._heads(self.key(y), self.groups), *turns)], 2)
        values = torch.cat([values, self._heads(self.value(y), self.groups)], 2)
        scores = query @ self._repeat(keys).transpose(2, 3) / self.size**0.5 + bias
        read = scores.softmax(-1) @ self._repeat(values)
        x = x + self.out(read.transpose(1, 2).reshape(x.shape))
        y = self.between(x)
        x = x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))
        return x, keys, values

    def _heads(self, x: Tensor, heads: int) -> Tensor:
        batch, length, _ = x.shape
        return x.view(batch, length, heads, self.size).transpose(1, 2)

    def _repeat(self, x: Tensor) -> Tensor:
        """Keys and values once for every query that shares them."""
        batch, groups, length, size = x.shape
        times = self.heads // self.groups
        spread = x[:, :, None].expand(batch, groups, times, length, size)
        return spread.reshape(batch, self.heads, length, size)


def _turn(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotary positions."""
    first, second = x.chunk(2, -1)
    return x * cosines + torch.cat([-second, first], -1) * sines


def _shape(small: bool) -> tuple[int, int, int, int]:
    """Hidden size, layers, heads and groups."""
    return (32, 2, 4, 2) if small else (512, 4, 8, 2)


def _cached(sizes: Sizes, generator: np.random.Generator) -> Feed:
    """Tokens after a past; ``small`` is a size, too, of how large the model is."""
    hidden, layers, heads, groups = _shape(bool(sizes["small"]))
    batch, length, past = (sizes[name] for name in ("batch_size", "sequence_length", "past"))
    feed = {
        "input_ids": generator.integers(0, VOCABULARY, (batch, length)),
        "attention_mask": np.ones((batch, past + length), np.int64),
    }
    for layer in range(layers):
        for part in ("key", "value"):
            shape = batch, groups, past, hidden // heads
            feed[f"past_key_values.{layer}.{part}"] = normal(generator, *shape)
    return feed


def _cache_names(layers: int, prefix: str) -> list[str]:
    return [f"{prefix}.{layer}.{part}" for layer in range(layers) for part in ("key", "value")]


def _decoder(small: bool) -> tuple[nn.Module, tuple[Tensor, ...], list[str], list[str]]:
    hidden, layers, heads, groups = _shape(small)
    past = tuple(torch.randn(2, groups, 5, hidden // heads) for _ in range(2 * layers))
    examples = torch.randint(0, VOCABULARY, (2, 3)), torch.ones(2, 8, dtype=torch.int64), *past
    inputs = ["input_ids", "attention_mask", *_cache_names(layers, "past_key_values")]
    outputs = ["logits", *_cache_names(layers, "present")]
    return Decoder(hidden, layers, heads, groups).eval(), examples, inputs, outputs


PAST = "past_sequence_length"
WHOLE = "past_sequence_length + sequence_length"
STEP = {"batch_size": 1, "sequence_length": 1, "past": 128, "small": 0}
SMALL_STEP = {"batch_size": 2, "sequence_length": 1, "past": 6, "small": 1}


@shipped("decoder", "texts", "torchscript 17", feed=_cached, sizes=STEP, small=SMALL_STEP)
def decoder(small: bool) -> ModelProto:
    """A step of generation, its sizes named as Hugging Face's exporter names them."""
    model, examples, inputs, outputs = _decoder(small)
    axes: dict[str, dict[int, str]] = {
        "input_ids": {0: "batch_size", 1: "sequence_length"},
        "attention_mask": {0: "batch_size", 1: WHOLE},
        "logits": {0: "batch_size", 1: "sequence_length"},
    }
    axes |= {name: {0: "batch_size", 2: PAST} for name in inputs[2:]}
    axes |= {name: {0: "batch_size", 2: WHOLE} for name in outputs[1:]}
    return by_torchscript(model, examples, inputs, outputs, axes, 17)


@shipped(
    "decoder-int8",
    "texts",
    "torchscript 17 + quantize_dynamic",
    feed=_cached,
    sizes=STEP,
    small=SMALL_STEP,
    tolerance=0.1,
)
def decoder_quantized(small: bool) -> ModelProto:
    """The same with weights of bytes."""
    return quantized_dynamically(decoder(small))
