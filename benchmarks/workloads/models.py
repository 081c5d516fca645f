"""Whole models at batch 1 and 8, with random weights under which activations keep their size.

Weights of zero mean whose results shrink from layer to layer would end in denormal numbers, which
are slow to multiply: convolutions get weights scaled by the size of their window, and batch norms
the statistics of what really reaches them. ``magnitudes`` shows what comes of it.

Decoders have two forms: ``prefill`` reads a prompt of 128 tokens and gives the next one's scores
and the keys and values of all; ``decode`` reads one token and those of 128 earlier ones, and gives
the same. Names are batch × tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.workloads.case import Inputs, module_workload

PROMPT = 128
SIDE = 224
BATCHES = (1, 8)


class Logits(nn.Module):
    """A classifier of images as a function of tensors."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        """The scores of every class."""
        scores: Tensor = self.model(pixel_values=images).logits
        return scores


class Encoder(nn.Module):
    """BERT from tokens to its last hidden states, as tensors."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        config = BertConfig(num_hidden_layers=layers)
        self.model = BertModel(config)  # type: ignore[no-untyped-call]

    def forward(self, tokens: Tensor) -> Tensor:
        """The last hidden states."""
        states: Tensor = self.model(input_ids=tokens).last_hidden_state
        return states


class Decoder(nn.Module):
    """A language model with its keys and values as tensors: those of each layer in turn."""

    def __init__(self, model: nn.Module, layers: int) -> None:
        super().__init__()
        self.model = model
        self.layers = layers

    def forward(self, tokens: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        """The scores of the next token, then all keys and values."""
        from transformers import DynamicCache

        cache = DynamicCache()
        for layer, start in enumerate(range(0, len(past), 2)):
            cache.update(past[start], past[start + 1], layer)
        made = self.model(input_ids=tokens, past_key_values=cache, use_cache=True, logits_to_keep=1)
        kept = (made.past_key_values.layers[layer] for layer in range(self.layers))
        return (made.logits, *(tensor for each in kept for tensor in (each.keys, each.values)))


@module_workload(
    "models",
    {f"resnet50-{batch}": {"batch": batch} for batch in BATCHES},
    telling=("resnet50-1",),
)
def resnet(batch: int) -> tuple[nn.Module, Inputs]:
    """ResNet-50."""
    from transformers import ResNetConfig, ResNetForImageClassification

    return _vision(ResNetForImageClassification(ResNetConfig(num_labels=1000)), batch)


@module_workload(
    "models",
    {f"mobilenet-v2-{batch}": {"batch": batch} for batch in BATCHES},
    telling=("mobilenet-v2-1",),
)
def mobilenet(batch: int) -> tuple[nn.Module, Inputs]:
    """MobileNetV2, padded as PyTorch's own is."""
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    config = MobileNetV2Config(num_labels=1000, tf_padding=False)
    return _vision(MobileNetV2ForImageClassification(config), batch)


@module_workload(
    "models", {f"vit-b16-{batch}": {"batch": batch} for batch in BATCHES}, telling=("vit-b16-1",)
)
def vit(batch: int) -> tuple[nn.Module, Inputs]:
    """ViT-B/16."""
    from transformers import ViTConfig, ViTForImageClassification

    return _vision(ViTForImageClassification(ViTConfig(num_labels=1000)), batch)


@module_workload(
    "models",
    {
        f"bert-base-{batch}x{tokens}": {"batch": batch, "tokens": tokens}
        for tokens in (128, 512)
        for batch in BATCHES
    },
    telling=("bert-base-1x128",),
)
def bert(batch: int, tokens: int, layers: int = 12) -> tuple[nn.Module, Inputs]:
    """BERT-base."""
    return Encoder(layers), (torch.randint(0, 30000, (batch, tokens)),)


def _decoder_cases(name: str) -> dict[str, dict[str, Any]]:
    forms = {"prefill": False, "decode": True}
    return {
        f"{name}-{form}-{batch}x{PROMPT}": {"batch": batch, "decode": decode}
        for form, decode in forms.items()
        for batch in BATCHES
    }


@module_workload(
    "models",
    _decoder_cases("gpt2"),
    telling=("gpt2-prefill-1x128", "gpt2-decode-1x128"),
)
def gpt2(batch: int, decode: bool, layers: int = 12) -> tuple[nn.Module, Inputs]:
    """GPT-2 with 124 million weights."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=layers)
    model = Decoder(GPT2LMHeadModel(config), layers)  # type: ignore[no-untyped-call]
    return model, _decoder_inputs(batch, decode, layers)


@module_workload(
    "models",
    _decoder_cases("llama-160m"),
    telling=("llama-160m-prefill-1x128", "llama-160m-decode-1x128"),
)
def llama(batch: int, decode: bool, layers: int = 12) -> tuple[nn.Module, Inputs]:
    """A Llama with 162 million weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=layers,
        num_attention_heads=12,
        vocab_size=32000,
    )
    return Decoder(LlamaForCausalLM(config), layers), _decoder_inputs(batch, decode, layers)


def _decoder_inputs(batch: int, decode: bool, layers: int) -> Inputs:
    tokens = torch.randint(0, 30000, (batch, 1 if decode else PROMPT))
    if not decode:
        return (tokens,)
    return (tokens, *(torch.randn(batch, 12, PROMPT, 64) for _ in range(2 * layers)))


def _vision(model: nn.Module, batch: int) -> tuple[nn.Module, Inputs]:
    images = torch.randn(batch, 3, SIDE, SIDE)
    return Logits(settled(model, {"pixel_values": images})), (images,)


def settled(model: nn.Module, inputs: Mapping[str, Tensor]) -> nn.Module:
    """The model with weights and statistics under which activations keep their size."""
    model.eval()
    _scale_convolutions(model)
    _settle_norms(model, inputs)
    return model


def _scale_convolutions(model: nn.Module) -> None:
    """Weights under which a convolution keeps the size of what it is given, if relu halves it."""
    for part in model.modules():
        if isinstance(part, nn.Conv2d):
            inner = part.weight[0].numel()
            nn.init.normal_(part.weight, std=math.sqrt(2 / inner))


def _settle_norms(model: nn.Module, inputs: Mapping[str, Tensor]) -> None:
    """Give batch norms the statistics of these inputs, as training would."""
    norms = [part for part in model.modules() if isinstance(part, nn.BatchNorm2d)]
    if not norms:
        return
    for norm in norms:
        norm.reset_parameters()
        norm.momentum = 1.0
        norm.train()
    with torch.no_grad():
        model(**inputs)


def magnitudes(module: nn.Module, inputs: Inputs) -> dict[str, float]:
    """The root mean square of what each part of a module gives, by the part's name."""
    found: dict[str, float] = {}
    with torch.no_grad(), _watched(module, found):
        module(*inputs)
    return found


@contextmanager
def _watched(module: nn.Module, found: dict[str, float]) -> Iterator[None]:
    def note(name: str) -> Any:
        def hook(_: nn.Module, __: Any, result: Any) -> None:
            if isinstance(result, Tensor) and result.is_floating_point():
                found[name] = float(result.square().mean().sqrt())

        return hook

    hooks = [part.register_forward_hook(note(name)) for name, part in module.named_modules()]
    try:
        yield
    finally:
        for each in hooks:
            each.remove()
