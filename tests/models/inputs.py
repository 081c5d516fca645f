"""Example inputs: each function makes one that makes a dictionary of tensors, by keyword."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tests.models.model import Inputs

VOCABULARY = 99
BATCH, LENGTH = 2, 12


def tokens(length: int = LENGTH) -> Tensor:
    """Token numbers, none of them one of the special ones."""
    return torch.randint(5, VOCABULARY, (BATCH, length))


def text(mask: torch.dtype = torch.int64) -> Callable[[], Inputs]:
    """A batch of two sentences, the second padded by a third."""

    def make() -> Inputs:
        seen = torch.ones(BATCH, LENGTH, dtype=mask)
        seen[1, LENGTH - LENGTH // 3 :] = 0
        return {"input_ids": tokens(), "attention_mask": seen}

    return make


def bare_text() -> Callable[[], Inputs]:
    """A batch of two sentences and no mask."""
    return lambda: {"input_ids": tokens()}


def text_pair() -> Callable[[], Inputs]:
    """Sentences for an encoder, and the beginning of those that the decoder is to write."""
    return lambda: {**text()(), "decoder_input_ids": tokens(7)}


def image(size: int) -> Callable[[], Inputs]:
    """Square colour images."""
    return lambda: {"pixel_values": torch.randn(BATCH, 3, size, size)}


def image_and_text(size: int = 32) -> Callable[[], Inputs]:
    """Two captions and two images."""
    return lambda: {**text()(), **image(size)()}


def sound(samples: int = 800) -> Callable[[], Inputs]:
    """A waveform."""
    return waves_of(samples)


def waves_of(*shape: int) -> Callable[[], Inputs]:
    """Sounds of this shape: frames by frequencies, say."""
    return lambda: {"input_values": torch.randn(BATCH, *shape)}


def spectrogram() -> Callable[[], Inputs]:
    """Mel features of a short sound, and the beginning of its transcript."""
    return lambda: {"input_features": torch.randn(BATCH, 8, 32), "decoder_input_ids": tokens(6)}
