"""Rounds groups of weights to a few bits, as a graph: interpreted for few weights, else compiled.

    low, high = min(group, 0), max(group, 0)           the range of each group
    share = argmin of sum((restored - group) ** 2)     of shrunken ranges, for fewer than 8 bits
    stored = clip(round(group / scale) + point)        with the range that is left

Trying every share of a range costs some hundred operations a weight. Compiled, a billion weights
take seconds.
"""

from __future__ import annotations

from functools import cache
from typing import TypeAlias

import numpy as np

from monograph import functional as F
from monograph.api import compile
from monograph.dataclass import dataclass
from monograph.frontends.trace import trace
from monograph.ir.graph import Graph, Value
from monograph.ir.interpret import interpret
from monograph.ir.types import Array
from monograph.quantization.calibrate import LEAST_SCALE
from monograph.runtime.compiled import CompiledModel

SHARES = tuple(float(share) for share in np.linspace(1.0, 0.6, 17, dtype=np.float32))
"""The shares of a group's range that are tried where a few bits have to hold it."""
MIN_UNIT = 2.0**-100
"""What numbers of a group are divided by at least, which may all be zero."""

Rounded: TypeAlias = tuple[Value, Value, Value | None]
"""Whole numbers, scales, and zero points unless they are all 0."""


@dataclass(frozen=True)
class GroupRounding:
    """How groups are rounded: to how many bits, around zero or not, and how large groups are.

    Without a ``size``, a program serves groups of every size.
    """

    bits: int
    symmetric: bool
    size: int | None = None

    def round(self, groups: Array, compiled: bool) -> tuple[Array, ...]:
        """Whole numbers of groups f32[groups, size], their scales and, if any, zero points."""
        if compiled:
            return tuple(_compile(self)(groups))
        return tuple(interpret(_trace(self), [groups]))

    def rounded(self, groups: Value) -> tuple[Value, ...]:
        """The same of values of a graph."""
        low, high = F.minimum(F.min(groups, (1,)), 0.0), F.maximum(F.max(groups, (1,)), 0.0)
        if self.bits < 8:
            share = self._find_share(groups, low, high)
            low, high = F.multiply(low, share), F.multiply(high, share)
        stored, scale, point = self._store(groups, low, high)
        dtype = "i8" if self.symmetric else "u8"
        points = () if point is None else (F.cast(point, dtype),)
        return F.cast(stored, dtype), scale, *points

    def _find_share(self, groups: Value, low: Value, high: Value) -> Value:
        """The share of each range that loses least, in units of its group's largest number."""
        unit = F.maximum(F.maximum(F.negate(low), high), MIN_UNIT)
        groups = F.divide(groups, _spread(unit))
        low, high = F.divide(low, unit), F.divide(high, unit)
        share, least = F.ones_like(unit), F.full_like(unit, float("inf"))
        for tried in SHARES:
            ends = F.multiply(low, tried), F.multiply(high, tried)
            stored, scale, point = self._store(groups, *ends)
            steps = stored if point is None else F.subtract(stored, _spread(point))
            lost = F.subtract(F.multiply(steps, _spread(scale)), groups)
            error = F.sum(F.multiply(lost, lost), (1,))
            better = F.less(error, least)
            share, least = F.where(better, tried, share), F.where(better, error, least)
        return share

    def _store(self, groups: Value, low: Value, high: Value) -> Rounded:
        """Groups in ranges of theirs, whole numbers still as floats."""
        if self.symmetric:
            most = float((1 << (self.bits - 1)) - 1)
            scale = _choose_scale(F.divide(F.maximum(F.negate(low), high), most))
            return F.clip(F.round(F.divide(groups, _spread(scale))), -most - 1, most), scale, None
        most = float((1 << self.bits) - 1)
        scale = _choose_scale(F.subtract(F.divide(high, most), F.divide(low, most)))
        point = F.clip(F.round(F.divide(F.negate(low), scale)), 0.0, most)
        whole = F.add(F.round(F.divide(groups, _spread(scale))), _spread(point))
        return F.clip(whole, 0.0, most), scale, point


def _choose_scale(step: Value) -> Value:
    """Scales of at least the least; 1 where there is nothing but zeros."""
    return F.where(F.greater(step, 0.0), F.maximum(step, LEAST_SCALE), 1.0)


def _spread(parameters: Value) -> Value:
    """Parameters of groups beside every number of theirs."""
    return F.unsqueeze(parameters, (1,))


@cache
def _trace(rounding: GroupRounding) -> Graph:
    return trace(rounding.rounded, f"f32[groups, {rounding.size or 'size'}]", name="round_groups")


@cache
def _compile(rounding: GroupRounding) -> CompiledModel:
    return compile(_trace(rounding))
