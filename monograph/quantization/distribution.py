"""Histograms for reports: how often numbers of each size occur, in as many bins as can be drawn."""

from __future__ import annotations

from typing import Any

import numpy as np

from monograph.dataclass import dataclass
from monograph.ir.types import Array, integer_limits
from monograph.quantization.calibrate import (
    F8_LARGEST,
    Parameters,
    choose_range,
    parameters_for,
)
from monograph.quantization.profile import Activation
from monograph.quantization.scheme import Scheme

DRAWN_BINS = 32
"""Bars of a drawing."""
BLOCKS = " ▁▂▃▄▅▆▇█"
"""What a bar is in text, by its height."""


@dataclass(frozen=True)
class Distribution:
    """Counts of the numbers between two bounds, in equal bins, and which range is stored."""

    name: str
    kind: str
    """``activation`` or ``weight``."""
    low: float
    high: float
    counts: tuple[int, ...]
    stored_low: float
    stored_high: float
    """What the integers can stand for; numbers beyond become the nearest of them."""

    @property
    def heights(self) -> tuple[float, ...]:
        """Bars between 0 and 1: logarithms, so that what is rare is seen beside what is usual."""
        most = np.log1p(max(self.counts, default=0))
        return tuple(float(np.log1p(count) / most) if count else 0.0 for count in self.counts)

    @property
    def is_cut(self) -> bool:
        """Whether numbers lie more than half a bar outside of what is stored."""
        bar = (self.high - self.low) / len(self.counts)
        return max(self.stored_low - self.low, self.high - self.stored_high) > bar / 2

    def text(self) -> str:
        """The bars in one line, between the bounds."""
        steps = len(BLOCKS) - 1
        bars = "".join(BLOCKS[int(np.ceil(height * steps))] for height in self.heights)
        shown = f"{self.low:.3g} ▕{bars}▏ {self.high:.3g}"
        if not self.is_cut:
            return shown
        return f"{shown}, stored {self.stored_low:.3g} to {self.stored_high:.3g}"

    def to_json(self) -> dict[str, Any]:
        """For a program to read."""
        return {
            "name": self.name,
            "kind": self.kind,
            "low": self.low,
            "high": self.high,
            "counts": list(self.counts),
            "stored_low": self.stored_low,
            "stored_high": self.stored_high,
        }


def summarize_activation(name: str, seen: Activation, scheme: Scheme) -> Distribution:
    """An activation, as a profile saw it, and the range that a scheme stores of it."""
    histogram = seen.histogram
    bounds = _bounds(seen.low, seen.high)
    inside = np.clip(histogram.centres, *bounds)
    counts, _ = np.histogram(inside, DRAWN_BINS, bounds, weights=histogram.counts)
    stored = _find_stored_range(parameters_for(*choose_range(seen, scheme), scheme))
    return Distribution(name, "activation", *bounds, tuple(map(int, counts)), *stored)


def summarize_weight(name: str, numbers: Array) -> Distribution:
    """A weight: its scales are chosen so that all of it is stored, or nearly."""
    flat = np.asarray(numbers, np.float64).reshape(-1)
    bounds = _bounds(float(flat.min(initial=0.0)), float(flat.max(initial=0.0)))
    counts, _ = np.histogram(flat, DRAWN_BINS, bounds)
    return Distribution(name, "weight", *bounds, tuple(map(int, counts)), *bounds)


def _bounds(low: float, high: float) -> tuple[float, float]:
    """Bounds that are apart, for numbers that may all be equal."""
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def _find_stored_range(chosen: Parameters) -> tuple[float, float]:
    """The numbers that the least and the greatest stored ones stand for."""
    if chosen.dtype.is_float:
        largest = F8_LARGEST[chosen.dtype.name] * chosen.scale
        return -largest, largest
    least, most = integer_limits(chosen.dtype)
    return (least - chosen.zero_point) * chosen.scale, (most - chosen.zero_point) * chosen.scale
