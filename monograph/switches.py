"""Switches that turn parts of the compiler off, to measure what they buy or to find a fault.

A switch turns off one optimisation whose results must be the same without it: a family of kernels
(something slower then computes the same), a kind of fusion, or the reuse of memory. Switches hold
for a block on one thread, and what is compiled meanwhile stays out of the disk cache.

    with switched_off("tiled_products"):
        slow = monograph.compile(model, x)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from monograph.errors import InputError

SWITCHES: Mapping[str, str] = {
    "prologue_fusion": "producers that a matrix product recomputes while it packs its operands",
    "sibling_fusion": "kernels that read the same data and become one",
    "tiled_products": "products and convolutions over packed, register-tiled operands",
    "depthwise_convolutions": "convolutions of each channel by itself over register tiles",
    "patch_convolutions": "convolutions that gather windows which do not overlap, then multiply",
    "window_convolutions": "convolutions over rows of a picture, laid out as windows read them",
    "winograd": "3×3 convolutions by Winograd's transform",
    "matrix_tiles": "products of bytes over the tiles of a matrix unit",
    "streaming_attention": "attention that never stores its scores",
    "transposed_operands": "operands transposed so that neighbouring results share a vector",
    "vector_loops": "loops over several elements at a time, their tails, and rows in parts",
    "channels_last": "images with their channels last in memory",
    "split_reductions": "long sums in pieces, one for each thread",
    "overlapped_launches": "kernels of a GPU that load weights before the one before has ended",
    "in_place": "results that are written over an operand",
    "arena_reuse": "intermediates that share memory when they are not alive together",
}
"""Every switch, and what it turns off."""

_OFF: ContextVar[frozenset[str]] = ContextVar("switched off", default=frozenset())


def is_on(name: str) -> bool:
    """Whether an optimisation is to be used."""
    assert name in SWITCHES, f"there is no switch {name!r}"
    return name not in _OFF.get()


def any_off() -> bool:
    """Whether anything is switched off."""
    return bool(_OFF.get())


@contextmanager
def switch_off(*names: str) -> Iterator[None]:
    """Do without some optimisations in this block."""
    unknown = [name for name in names if name not in SWITCHES]
    if unknown:
        raise InputError(f"there is no switch {unknown[0]!r}", expected=", ".join(SWITCHES))
    token = _OFF.set(_OFF.get() | set(names))
    try:
        yield
    finally:
        _OFF.reset(token)
