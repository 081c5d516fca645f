"""Models of other kinds, as they are run in practice: they show what the usual ones do not.

A line gives a name, a class of transformers, what differs from its config's defaults, and the
example inputs. Weights are random and, as in ``models``, scaled so that activations keep their
size. Nets that transformers does not have, or that are not models of it, are written out below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.workloads.case import Inputs, module_workload
from benchmarks.workloads.models import settled

Named = dict[str, Tensor]


class First(nn.Module):
    """The first result of a transformers model, of inputs by position."""

    def __init__(self, model: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self.names = names

    def forward(self, *inputs: Tensor) -> Tensor:
        """The hidden states or the scores."""
        made = self.model(**dict(zip(self.names, inputs, strict=True)), return_dict=True)
        result: Tensor = made[0]
        return result


@dataclass(frozen=True)
class Line:
    """One model: its class, its config, and what it is called with."""

    class_name: str
    inputs: Callable[[], Named]
    config: Mapping[str, Any] = field(default_factory=dict)


def _image(side: int = 224, batch: int = 1) -> Callable[[], Named]:
    return lambda: {"pixel_values": torch.randn(batch, 3, side, side)}


def _text(batch: int, tokens: int, **more: bool) -> Callable[[], Named]:
    """Tokens, and with ``attention_mask=True`` a mask under which sentences differ in length."""

    def make() -> Named:
        named = {"input_ids": torch.randint(0, 30000, (batch, tokens))}
        if more.get("attention_mask"):
            lengths = torch.randint(tokens // 2, tokens + 1, (batch, 1))
            named["attention_mask"] = (torch.arange(tokens) < lengths).long()
        return named

    return make


CLASSES = {"num_labels": 1000}
SMALL = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536}
LINES = {
    "convnext-t-1": Line("ConvNextForImageClassification", _image(), CLASSES),
    "swin-t-1": Line("SwinForImageClassification", _image(), CLASSES),
    "efficientnet-b0-1": Line(
        "EfficientNetForImageClassification",
        _image(),
        CLASSES | {"width_coefficient": 1.0, "depth_coefficient": 1.0, "hidden_dim": 1280},
    ),
    "regnet-y-1": Line("RegNetForImageClassification", _image(), CLASSES),
    "bit-1": Line("BitForImageClassification", _image(), CLASSES),
    "resnet18-16": Line(
        "ResNetForImageClassification",
        _image(batch=16),
        CLASSES | {"depths": [2] * 4, "hidden_sizes": [64, 128, 256, 512], "layer_type": "basic"},
    ),
    "deit-s-4": Line("DeiTForImageClassification", _image(batch=4), CLASSES | SMALL),
    "mobilevit-s-1": Line("MobileViTForImageClassification", _image(256), CLASSES),
    "segformer-b0-1": Line("SegformerForSemanticSegmentation", _image(512), {"num_labels": 150}),
    "distilbert-1x32": Line("DistilBertModel", _text(1, 32)),
    "minilm-8x64": Line(
        "BertModel", _text(8, 64, attention_mask=True), SMALL | {"num_hidden_layers": 6}
    ),
    "albert-base-1x100": Line(
        "AlbertModel",
        _text(1, 100),
        {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
    ),
    "deberta-v2-1x128": Line(
        "DebertaV2Model",
        _text(1, 128),
        SMALL | {"num_hidden_layers": 6, "relative_attention": True, "pos_att_type": "p2c|c2p"},
    ),
    "t5-small-1x64": Line("T5EncoderModel", _text(1, 64)),
    "qwen2-1x77": Line(
        "Qwen2Model",
        _text(1, 77),
        {
            "hidden_size": 896,
            "intermediate_size": 4864,
            "num_hidden_layers": 6,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
            "vocab_size": 32000,
            "use_cache": False,
        },
    ),
    "whisper-tiny-encoder-1": Line(
        "WhisperForAudioClassification",
        lambda: {"input_features": torch.randn(1, 80, 3000)},
        {"d_model": 384, "encoder_layers": 4, "encoder_attention_heads": 6},
    ),
    "wav2vec2-base-1": Line("Wav2Vec2Model", lambda: {"input_values": torch.randn(1, 16000)}),
    "mamba-1x32": Line(
        "MambaModel",
        _text(1, 32),
        {"hidden_size": 768, "num_hidden_layers": 4, "vocab_size": 32000, "use_cache": False},
    ),
}


@module_workload(
    "others",
    {name: {"line": line} for name, line in LINES.items()},
    telling=("convnext-t-1", "swin-t-1", "minilm-8x64", "qwen2-1x77", "whisper-tiny-encoder-1"),
)
def other(line: Line) -> tuple[nn.Module, Inputs]:
    """One of the models above."""
    import transformers

    module_class = getattr(transformers, line.class_name)
    named = line.inputs()
    model = module_class(module_class.config_class(**line.config))
    return First(settled(model, named), tuple(named)), tuple(named.values())


@module_workload("others", {"lstm-4x64": {"batch": 4, "steps": 64}})
def lstm(batch: int, steps: int) -> tuple[nn.Module, Inputs]:
    """Two layers of an LSTM over a sequence."""

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.LSTM(256, 512, num_layers=2, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            states: Tensor = self.layers(x)[0]
            return states

    return Last(), (torch.randn(batch, steps, 256),)


class Block(nn.Module):
    """A residual block of a diffusion model: group norm, silu and convolution, twice."""

    def __init__(self, channels: int, results: int) -> None:
        super().__init__()
        self.before, self.after = nn.GroupNorm(32, channels), nn.GroupNorm(32, results)
        self.first = nn.Conv2d(channels, results, 3, padding=1)
        self.second = nn.Conv2d(results, results, 3, padding=1)
        self.beside = nn.Conv2d(channels, results, 1) if channels != results else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """The block of ``x``, beside it."""
        silu = nn.functional.silu
        inner = self.second(silu(self.after(self.first(silu(self.before(x))))))
        total: Tensor = self.beside(x) + inner
        return total


class UNet(nn.Module):
    """Down to a quarter of the side and up again, with attention at the bottom."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(4, width, 3, padding=1)
        self.down = nn.ModuleList([Block(width, width), Block(width, 2 * width)])
        self.norm = nn.GroupNorm(32, 2 * width)
        self.attention = nn.MultiheadAttention(2 * width, 8, batch_first=True)
        self.up = nn.ModuleList([Block(4 * width, 2 * width), Block(3 * width, width)])
        self.leave = nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """What a step of diffusion takes away."""
        x = self.enter(x)
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
            x = nn.functional.avg_pool2d(x, 2)
        tokens = self.norm(x).flatten(2).transpose(1, 2)
        seen = self.attention(tokens, tokens, tokens, need_weights=False)[0]
        x = x + seen.transpose(1, 2).reshape(x.shape)
        for block in self.up:
            x = nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")
            x = block(torch.cat([x, kept.pop()], dim=1))
        result: Tensor = self.leave(x)
        return result


@module_workload("others", {"unet-64x64-1": {"batch": 1}})
def unet(batch: int) -> tuple[nn.Module, Inputs]:
    """A small net as diffusion models have them."""
    return UNet(128), (torch.randn(batch, 4, 64, 64),)


@module_workload("others", {f"mlp-{batch}": {"batch": batch} for batch in (1, 100)})
def mlp(batch: int) -> tuple[nn.Module, Inputs]:
    """A net for rows of a table: five layers with batch norms."""
    widths = (200, 1000, 1000, 500, 100, 10)
    layers: list[nn.Module] = []
    for width, results in pairwise(widths):
        layers += [nn.Linear(width, results), nn.BatchNorm1d(results), nn.ReLU()]
    return nn.Sequential(*layers[:-2]), (torch.randn(batch, 200),)
