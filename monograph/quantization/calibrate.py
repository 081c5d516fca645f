"""Calibration: which range of an activation to store, from what a profile saw of it.

``minmax`` keeps everything. ``percentile`` lets a share of the largest numbers saturate. ``mse``
minimizes the expected squared error, and ``entropy`` the divergence between the distribution and
its quantized form, both by search over the histogram.
"""

from __future__ import annotations

import math

import numpy as np

from monograph.dataclass import dataclass
from monograph.ir.types import Array, DType, integer_limits
from monograph.quantization.histogram import Histogram
from monograph.quantization.profile import Activation
from monograph.quantization.scheme import Scheme

LEAST_SCALE = 2.0**-100
"""Scales are at least this, so that dividing by one stays finite."""
SHRINKS = np.linspace(1.0, 0.2, 65)
"""The fractions of a range that a search tries."""
KL_COUNT = 8
"""Numbers that a bin holds on average, at least: fewer say nothing of a distribution."""
F8_LARGEST = {"f8e4m3fn": 448.0, "f8e5m2": 57344.0}


@dataclass(frozen=True)
class Parameters:
    """How real numbers are stored: ``real = (stored - zero_point) * scale``."""

    dtype: DType
    scale: float
    zero_point: int = 0


def choose_range(seen: Activation, scheme: Scheme) -> tuple[float, float]:
    """The range of an activation that is worth storing; it holds 0."""
    low, high = min(seen.low, 0.0), max(seen.high, 0.0)
    if high - low <= 0.0 or scheme.calibration == "minmax" or not seen.count:
        return low, high
    if scheme.calibration == "percentile":
        return _percentile(seen.histogram, scheme.percentile, low, high)
    if scheme.calibration == "entropy":
        levels = 1 << (scheme.activation_dtype.bits - 1)
        limit = _entropy_limit(seen.histogram, max(-low, high), levels)
        return max(low, -limit), min(high, limit)
    return _least_error(seen.histogram, low, high, scheme)


def parameters_for(low: float, high: float, scheme: Scheme) -> Parameters:
    """The scale and zero point that store a range in the scheme's dtype."""
    dtype = scheme.activation_dtype
    low, high = min(low, 0.0), max(high, 0.0)
    largest = max(-low, high)
    if largest == 0.0:
        return Parameters(dtype, 1.0, _middle(dtype) if scheme.symmetric else 0)
    if dtype.is_float:
        return Parameters(dtype, _f32(largest / F8_LARGEST[dtype.name]))
    least, most = integer_limits(dtype)
    if scheme.symmetric:
        middle = _middle(dtype)
        return Parameters(dtype, _f32(largest / (most - middle)), middle)
    scale = _f32((high - low) / (most - least))
    point = round(least - low / scale)
    return Parameters(dtype, scale, max(least, min(most, point)))


def _middle(dtype: DType) -> int:
    """What stands for 0 in a symmetric range."""
    if dtype.is_float:
        return 0
    least, most = integer_limits(dtype)
    return (least + most + 1) // 2


def _f32(scale: float) -> float:
    """A scale as f32 holds it."""
    return float(np.float32(max(scale, LEAST_SCALE)))


def _percentile(
    histogram: Histogram, percentile: float, low: float, high: float
) -> tuple[float, float]:
    """The range that leaves half of the rest on each side."""
    cumulative = np.cumsum(histogram.counts)
    rest = cumulative[-1] * (1 - percentile / 100) / 2
    edges = histogram.edges
    first = int(np.searchsorted(cumulative, rest, side="right"))
    last = int(np.searchsorted(cumulative, cumulative[-1] - rest, side="left"))
    return max(low, min(0.0, float(edges[first]))), min(high, max(0.0, float(edges[last + 1])))


def _least_error(
    histogram: Histogram, low: float, high: float, scheme: Scheme
) -> tuple[float, float]:
    """The range whose expected squared error is least: both ends together, then each alone."""
    best = min(((low * s, high * s) for s in SHRINKS), key=lambda r: _error(histogram, r, scheme))
    for _ in range(2):
        ends = [(best[0] * s, best[1]) for s in SHRINKS] + [(best[0], best[1] * s) for s in SHRINKS]
        best = min(ends, key=lambda r: _error(histogram, r, scheme))
    return best


def _error(histogram: Histogram, bounds: tuple[float, float], scheme: Scheme) -> float:
    """The expected squared error of numbers as they are stored."""
    chosen = parameters_for(*bounds, scheme)
    filled = histogram.counts > 0
    x, counts = histogram.centres[filled], histogram.counts[filled]
    if chosen.dtype.is_float:
        largest = F8_LARGEST[chosen.dtype.name]
        stored = np.clip(x / chosen.scale, -largest, largest).astype(chosen.dtype.numpy)
        real = stored.astype(np.float64) * chosen.scale
    else:
        least, most = integer_limits(chosen.dtype)
        stored = np.clip(np.round(x / chosen.scale) + chosen.zero_point, least, most)
        real = (stored - chosen.zero_point) * chosen.scale
    return float(((real - x) ** 2 * counts).sum())


def _entropy_limit(histogram: Histogram, largest: float, levels: int) -> float:
    """The limit of magnitudes at which the distribution in so many levels diverges least."""
    half = histogram.counts.size // 2
    magnitudes = (histogram.counts[half:] + histogram.counts[:half][::-1]).astype(np.float64)
    magnitudes[0] = magnitudes[1]  # zeros cost nothing in any range, and may be most of them
    width = histogram.limit / half
    used = min(half, max(1, math.ceil(largest / width)))
    while used and magnitudes[:used].sum() < KL_COUNT * used and magnitudes.size % 2 == 0:
        magnitudes, width = magnitudes.reshape(-1, 2).sum(1), width * 2
        used = min(magnitudes.size, math.ceil(largest / width))
    if used <= levels:
        return largest
    stops = np.unique(np.linspace(levels, used, 64).astype(int))
    divergences = [_divergence(magnitudes[:used], int(stop), levels) for stop in stops]
    best = int(stops[int(np.argmin(divergences))])
    return min(largest, best * width)


def _divergence(counts: Array, stop: int, count: int) -> float:
    """Kullback-Leibler divergence of a distribution from its first bins in ``count`` levels."""
    expected = counts[:stop].copy()
    expected[-1] += counts[stop:].sum()
    levels = np.minimum((np.arange(stop) * count) // stop, count - 1)
    filled = counts[:stop] > 0
    sums = np.bincount(levels, counts[:stop], count)
    sizes = np.bincount(levels, filled, count)
    stored = np.where(filled, sums[levels] / np.maximum(sizes[levels], 1), 0.0)
    p, q = expected / expected.sum(), stored / max(stored.sum(), 1e-12)
    present = p > 0
    return float((p[present] * np.log(p[present] / np.maximum(q[present], 1e-9))).sum())
