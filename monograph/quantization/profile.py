"""Profiles: the ranges that a model's activations had on real inputs, in a file for people to read.

A profile belongs to one model, by digest. Profiles of the same model merge into that of all of
their batches. The file is JSON: for each activation its range, mean and histogram, and the range
and mean of every channel where that was asked for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import numpy as np

from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.ir.types import Array
from monograph.quantization.histogram import Histogram

FORMAT = "monograph profile"
VERSION = 1
LARGEST_NUMBER = float(np.finfo(np.float32).max)
"""What an activation in f32 may be at most."""


@dataclass(frozen=True, eq=False)
class ChannelRanges:
    """The range and mean of each index of an axis."""

    axis: int
    low: Array
    high: Array
    mean: Array

    def merged(self, other: ChannelRanges, weight: float) -> ChannelRanges:
        """Both; ``weight`` is the share of the numbers that this one has seen."""
        if self.axis != other.axis or self.low.shape != other.low.shape:
            raise InputError("these profiles were taken along different channels")
        mean = self.mean * weight + other.mean * (1 - weight)
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        return ChannelRanges(self.axis, low, high, mean)


@dataclass(frozen=True, eq=False)
class Activation:
    """What was seen of one activation."""

    type: str
    low: float
    high: float
    mean: float
    histogram: Histogram
    channels: ChannelRanges | None = None
    infinite: int = 0
    """How many infinities there were, which neither range nor histogram holds."""

    @property
    def count(self) -> int:
        """How many finite numbers were seen."""
        return int(self.histogram.counts.sum())

    def merged(self, other: Activation) -> Activation:
        """What was seen by both."""
        total = self.count + other.count
        weight = self.count / total if total else 0.5
        channels = None
        if self.channels is not None and other.channels is not None:
            channels = self.channels.merged(other.channels, weight)
        return Activation(
            self.type,
            min(self.low, other.low),
            max(self.high, other.high),
            self.mean * weight + other.mean * (1 - weight),
            self.histogram.merged(other.histogram),
            channels,
            self.infinite + other.infinite,
        )


@dataclass(frozen=True, eq=False)
class Profile:
    """What was seen of a model's activations, by name, on so many batches."""

    model: str
    batches: int
    activations: Mapping[str, Activation]
    equalized: bool = False
    """Whether the ranges are those of the model after cross-layer equalization."""
    smoothing: Mapping[str, Array] = field(default_factory=dict)
    """By which each channel of a layer's input was divided before its range was taken, by layer."""

    def merge(self, other: Profile) -> Profile:
        """The profile of both profiles' batches; they must be of one model."""
        if self.model != other.model or set(self.activations) != set(other.activations):
            raise InputError(
                "these profiles are of different models", expected=self.model, found=other.model
            )
        same = self.smoothing.keys() == other.smoothing.keys() and all(
            np.array_equal(self.smoothing[name], other.smoothing[name]) for name in self.smoothing
        )
        if self.equalized != other.equalized or not same:
            raise InputError(
                "these profiles were taken after different equalization or smoothing",
                hint="profile both sets of batches with the same options",
            )
        merged = {n: a.merged(other.activations[n]) for n, a in self.activations.items()}
        return replace(self, batches=self.batches + other.batches, activations=merged)

    def to_json(self) -> str:
        """The text of the file, an activation a line."""
        lines = [
            f"    {json.dumps(name)}: {json.dumps(_describe(each))}"
            for name, each in self.activations.items()
        ]
        smoothing = {name: each.tolist() for name, each in self.smoothing.items()}
        head = {
            "format": FORMAT,
            "version": VERSION,
            "model": self.model,
            "batches": self.batches,
            "equalized": self.equalized,
            "smoothing": smoothing,
        }
        fields = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
        listed = ",\n".join(lines)
        return "{\n" + ",\n".join(fields) + ',\n  "activations": {\n' + listed + "\n  }\n}\n"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the file."""
        where = Path(path)
        where.write_text(self.to_json())
        return where

    @classmethod
    def from_json(cls, text: str) -> Profile:
        """What ``to_json`` wrote; anything else is an error."""
        try:
            given = json.loads(text)
        except (ValueError, RecursionError) as problem:
            raise InputError("this is not a profile", found=f"no JSON: {problem}") from None
        if not isinstance(given, dict) or given.get("format") != FORMAT:
            raise InputError(
                "this is not a profile",
                expected=f'a JSON object with "format": "{FORMAT}"',
                hint="monograph.quantize.profile(model, batches).save(path) writes one",
            )
        if given.get("version") != VERSION:
            raise InputError(
                "a profile of another version",
                expected=str(VERSION),
                found=repr(given.get("version"))[:40],
            )
        listed, smoothing = _object(given, "activations"), _object(given, "smoothing")
        batches = _require_type(given, "batches", int)
        if batches < 0:
            raise InputError(
                "this profile's 'batches' is damaged", expected="0 or more", found=str(batches)
            )
        return cls(
            _require_type(given, "model", str),
            batches,
            {name: _read(each, name) for name, each in listed.items()},
            _require_type(given, "equalized", bool),
            {name: _numbers(each, name) for name, each in smoothing.items()},
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Profile:
        """Read a file."""
        try:
            text = Path(path).read_text()
        except (OSError, ValueError) as problem:
            raise InputError(f"the profile {str(path)!r:.200} cannot be read: {problem}") from None
        return cls.from_json(text)


def _describe(each: Activation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "type": each.type,
        "min": each.low,
        "max": each.high,
        "mean": each.mean,
    }
    if each.infinite:
        described["infinite"] = each.infinite
    described["histogram"] = each.histogram.to_json()
    if each.channels is not None:
        ranges = {"min": each.channels.low, "max": each.channels.high, "mean": each.channels.mean}
        lists = {key: array.tolist() for key, array in ranges.items()}
        described["channels"] = {"axis": each.channels.axis, **lists}
    return described


def _read(given: Any, name: str) -> Activation:
    if not isinstance(given, dict):
        raise _damage_error(name, given)
    channels = None
    if "channels" in given:
        listed = _object(given, "channels")
        arrays = [_numbers(listed.get(key), name) for key in ("min", "max", "mean")]
        if len({array.shape for array in arrays}) != 1:
            raise _damage_error(name, "channels of different lengths")
        channels = ChannelRanges(_require_type(listed, "axis", int), *arrays)
    low, high, mean = (_finite(given.get(key), name) for key in ("min", "max", "mean"))
    if low > high:
        raise _damage_error(name, f"min {low} above max {high}")
    infinite = given.get("infinite", 0)
    if type(infinite) is not int or infinite < 0:
        raise _damage_error(name, infinite)
    histogram = Histogram.from_json(given.get("histogram"))
    return Activation(
        _require_type(given, "type", str), low, high, mean, histogram, channels, infinite
    )


def _object(given: Mapping[str, Any], key: str) -> dict[str, Any]:
    found: dict[str, Any] = _require_type(given, key, dict)
    return found


def _require_type(given: Mapping[str, Any], key: str, kind: type) -> Any:
    found = given.get(key)
    if type(found) is not kind:
        raise InputError(
            f"this profile's {key!r} is damaged", expected=kind.__name__, found=repr(found)[:80]
        )
    return found


def _finite(found: Any, name: str) -> float:
    if type(found) not in (int, float) or not abs(found) <= LARGEST_NUMBER:
        raise _damage_error(name, found)
    return float(found)


def _numbers(found: Any, name: str) -> Array:
    if not isinstance(found, list):
        raise _damage_error(name, found)
    return np.array([_finite(each, name) for each in found], np.float64)


def _damage_error(name: str, found: object) -> InputError:
    return InputError(
        f"this profile's activation {name!r:.80} is damaged",
        expected="finite numbers: min, max, mean and a histogram",
        found=repr(found)[:80],
    )
