"""Models of transformers: compiled in place, with their own call signature and ``generate``.

    compiled = monograph.compile(GPT2LMHeadModel(config))
    compiled(input_ids=ids).logits
    compiled.generate(ids, max_new_tokens=20)

A model like these is called in several ways (a prompt, one token and a cache, with a mask or
without), so there is a program for each: the first for the model's dummy inputs, others when such a
call is first made. A size that changes between calls becomes symbolic; those of a growing cache of
keys and values are from the start.
"""

from __future__ import annotations

import copy
import functools
import inspect
import sys
from typing import Any

import torch

from monograph.errors import InputError
from monograph.runtime.pretrained_calls import Compile, CompiledForward, CompiledPretrained

IMAGE_SIDE = 224
"""Of dummy images for a network that takes them of any size: what ImageNet's are cut to."""


def is_pretrained(model: object) -> bool:
    """Whether it is a model of transformers, which somebody must have imported to have one."""
    module = sys.modules.get("transformers.modeling_utils")
    return module is not None and isinstance(model, module.PreTrainedModel)


def compile_pretrained(model: Any, compile: Compile) -> CompiledPretrained:
    """A model of transformers, compiled for its dummy inputs; other calls compile as they come."""
    forward = CompiledForward(model, compile)
    first = forward.program(dummy_inputs(model))
    twin = _with_forward(model, forward)
    encoder = model.get_encoder() if model.config.is_encoder_decoder else model
    if encoder is not model:
        own = _with_forward(encoder, CompiledForward(encoder, compile))
        twin.get_encoder = functools.partial(_encoder, model, own)
    return CompiledPretrained(twin, forward, first.executable)


def _with_forward(module: Any, forward: CompiledForward) -> Any:
    """A shallow copy of a module, with the same parameters, that computes by its programs."""
    twin = copy.copy(module)
    twin.forward = functools.wraps(module.forward)(forward)
    return twin


def _encoder(model: Any, own: Any, modality: str | None = None) -> Any:
    return own if modality is None else model.get_encoder(modality)


# Dummy inputs -------------------------------------------------------------------------------------


def dummy_inputs(model: Any) -> dict[str, Any]:
    """Arguments that the model can be called with: its own, or zeros as its configuration says."""
    config, name = model.config, model.main_input_name
    with_decoder: dict[str, Any] = {}
    if config.is_encoder_decoder and name != "input_ids":
        start = getattr(config, "decoder_start_token_id", None) or 0
        with_decoder = {"decoder_input_ids": torch.full((1, 2), start)}
    if name == "pixel_values":
        vision = getattr(config, "vision_config", config)
        size = getattr(vision, "image_size", IMAGE_SIDE)
        height, width = (size, size) if isinstance(size, int) else size
        return {name: torch.zeros(1, vision.num_channels, height, width), **with_decoder}
    if name == "input_features":
        frames = 2 * config.max_source_positions
        return {name: torch.zeros(1, config.num_mel_bins, frames), **with_decoder}
    if name != "input_ids":
        raise InputError(
            f"{type(model).__name__} takes {name!r}, and nothing says of what size",
            hint="compile it for one call: monograph.compile(model, kwargs=inputs)",
        )
    return dict(model.dummy_inputs)


def dummy_examples(model: object) -> tuple[Any, ...] | None:
    """The dummy inputs by position; None of another model, or where others stand between them."""
    if not is_pretrained(model):
        return None
    given = dummy_inputs(model)
    first = tuple(inspect.signature(model.forward).parameters)[: len(given)]  # type: ignore[attr-defined]
    return tuple(given[name] for name in first) if set(first) == set(given) else None
