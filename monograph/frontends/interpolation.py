"""Interpolation by weights that are computed while a model is read: antialiased and cropped images.

The op ``resize`` looks at two or four neighbours. Where an image becomes smaller without aliasing,
every element of it counts, and how much is a matrix that the sizes alone decide.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from monograph import functional as F
from monograph.ir.graph import Value
from monograph.ir.types import Array
from monograph.ops.resize import keys_kernel

Weights: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def interpolation_weights(
    centres: Array,
    size: int,
    mode: Literal["linear", "cubic"],
    stretch: float,
    cubic_coefficient: float,
    *,
    exclude_outside: bool,
) -> Weights:
    """How much of each of ``size`` elements (a column) each result (a row) takes along an axis.

    Element k covers k to k + 1, and results look at ``centres``. The kernel is ``stretch`` times as
    wide as an element's. What would lie outside is the element at the edge, or is left out.
    """
    reach = int(np.ceil((2 if mode == "cubic" else 1) * stretch))
    places = np.floor(centres - 0.5)[:, None] + np.arange(-reach, reach + 2)
    distance = np.abs(places - centres[:, None] + 0.5) / stretch
    if mode == "cubic":
        kernel = keys_kernel(distance, cubic_coefficient)
    else:
        kernel = np.clip(1.0 - distance, 0.0, 1.0)
    if exclude_outside:
        kernel = np.where((places < 0) | (places >= size), 0.0, kernel)
    total = kernel.sum(axis=1, keepdims=True)
    kernel = kernel / np.where(total == 0, 1.0, total)
    weights = np.zeros((len(centres), size))
    columns = np.clip(places, 0, size - 1).astype(np.int64)
    np.add.at(weights, (np.arange(len(centres))[:, None], columns), kernel)
    return weights


def interpolate(x: Value, axis: int, weights: Weights) -> Value:
    """Each row of weights applied along an axis: a sum over the stretch that has any.

    The stretches are equally long, so those at the far end begin a little early.
    """
    wanted, given = weights.shape
    taken = weights != 0
    first = np.argmax(taken, 1)
    last = given - 1 - np.argmax(taken[:, ::-1], 1)
    length = int(np.max(np.where(taken.any(1), last - first + 1, 1), initial=1))
    first = np.minimum(first, given - length)
    places = np.arange(length)[:, None] + first
    chosen = np.take_along_axis(weights.T, places, 0)
    beside = (1,) * (x.rank - 1 - axis)
    factors = F.cast(chosen.reshape(length, wanted, *beside), x.dtype)
    return F.sum(F.take(x, places, axis) * factors, axis)
