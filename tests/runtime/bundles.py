"""Bundles for the tests of cache and artifacts, and what it means that two are equal."""

from __future__ import annotations

import numpy as np

from monograph.ir.data import raw_bytes
from monograph.ir.types import DTYPES, Array, string
from monograph.runtime.bundle import Bundle


def small_bundle(text: str = "graph") -> Bundle:
    """A bundle of a kilobyte with one of everything."""
    return Bundle(
        {"entry": "main", "inputs": [["x", "f32[4]"]], "level": 2, "exact": True, "scale": 0.5},
        {"program.o": b"\x7fELF" + bytes(range(40)), "text/graph.ir": text.encode()},
        {"w": np.arange(5, dtype=np.float32), "b": np.array([True, False, True])},
    )


def array_of_every_dtype() -> dict[str, Array]:
    """By the dtype's name, an array of six elements whose bytes differ."""
    numbers = np.array([[0, 1, 2], [3, 1, 0]])
    arrays: dict[str, Array] = {
        name: numbers.astype(dtype.numpy) for name, dtype in DTYPES.items() if dtype is not string
    }
    arrays["string"] = np.array([["a", "", "größer"], ["\0", "b" * 300, " "]], np.object_)
    return arrays


def equal(one: Bundle, other: Bundle) -> bool:
    """Whether two bundles hold the same, to the bit, under the same names in the same order."""
    return (
        one.manifest == other.manifest
        and list(one.blobs.items()) == list(other.blobs.items())
        and list(one.arrays) == list(other.arrays)
        and all(_equal(one.arrays[name], other.arrays[name]) for name in one.arrays)
    )


def _equal(one: Array, other: Array) -> bool:
    same_type = one.dtype == other.dtype and one.shape == other.shape
    return same_type and raw_bytes(one) == raw_bytes(other)
