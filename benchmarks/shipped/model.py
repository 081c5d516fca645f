"""What a shipped model is: an ONNX file with free sizes, the inputs of a call, and the registry.

A model is registered by a function that makes the file, small for tests or large for measuring,
beside the function that draws the inputs of a call from sizes:

    @shipped("crnn", "images", "torch 14", sizes={"width": 320}, small={"width": 40}, feed=lines)
    def crnn(small: bool) -> ModelProto: ...

Weights are random and seeded, so that the same file is made every time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import torch
from onnx import ModelProto

SEED = 0

Array = np.ndarray[Any, Any]
Feed = dict[str, Array]
Sizes = Mapping[str, int]
Make = Callable[[bool], ModelProto]
MakeFeed = Callable[[Sizes, np.random.Generator], Feed]
Decide = Callable[[Sequence[Array]], Sequence[Array]]


@dataclass(frozen=True)
class Shipped:
    """A model as somebody would ship it, and how it is called.

    ``sizes`` are those of a usual call, ``small_sizes`` those of a call of the small form, and
    ``feed`` draws the inputs for sizes. ``exporter`` says who wrote the file. ``tolerance`` is the
    largest error of a right answer: quantized models round to another step now and then. ``decide``
    gives the outputs again, with the whole numbers that follow from the floats among them: which
    boxes are kept hangs on last bits, and is right if it is so for these very scores.
    """

    name: str
    family: str
    exporter: str
    make: Make
    feed: MakeFeed
    sizes: Sizes
    small_sizes: Sizes
    tolerance: float = 1e-4
    decide: Decide | None = None

    def build(self, small: bool = False) -> bytes:
        """The file; the same bytes in every process."""
        torch.manual_seed(SEED)
        with torch.no_grad():
            return self.make(small).SerializeToString()

    def inputs(self, sizes: Sizes | None = None, small: bool = False, seed: int = SEED) -> Feed:
        """The inputs of a call of these sizes; of the usual ones without."""
        usual = self.small_sizes if small else self.sizes
        return self.feed({**usual, **(sizes or {})}, np.random.default_rng(seed))


_REGISTRY: dict[str, Shipped] = {}


def shipped(
    name: str,
    family: str,
    exporter: str,
    *,
    feed: MakeFeed,
    sizes: Sizes,
    small: Sizes,
    tolerance: float = 1e-4,
    decide: Decide | None = None,
) -> Callable[[Make], Make]:
    """Register a function that makes a model."""

    def register(make: Make) -> Make:
        if name in _REGISTRY:
            raise ValueError(f"there are two shipped models called {name}")
        _REGISTRY[name] = Shipped(
            name, family, exporter, make, feed, sizes, small, tolerance, decide
        )
        return make

    return register


def select(patterns: Sequence[str] = ()) -> list[Shipped]:
    """The models of these names, families or exporters, or that contain such a text in them."""
    if not patterns:
        return list(_REGISTRY.values())
    return [each for each in _REGISTRY.values() if any(_matches(each, text) for text in patterns)]


def _matches(model: Shipped, pattern: str) -> bool:
    if pattern in _REGISTRY:
        return model.name == pattern
    texts = (model.name, model.family, model.exporter)
    return any(pattern in text or fnmatchcase(text, pattern) for text in texts)


def normal(generator: np.random.Generator, *shape: int) -> Array:
    """Floats around zero."""
    return generator.standard_normal(shape, dtype=np.float32)
