"""How many threads a program may use: what is asked for, what the environment says, torch's own."""

from __future__ import annotations

import os

from monograph.config import MOST_THREADS, Config, processor_count
from monograph.errors import InputError


def thread_count() -> int:
    """How many threads a program uses unless it is told otherwise: ``MONOGRAPH_THREADS``."""
    return Config.from_environment().threads


def torch_threads(threads: int | None) -> int | None:
    """How many threads a model from torch uses: as many as torch, unless it is told otherwise.

    ``threads`` is what whoever compiles it says, and ``MONOGRAPH_THREADS`` comes before torch too.
    """
    if threads is not None or os.environ.get("MONOGRAPH_THREADS", "").strip():
        return threads
    import torch

    return min(torch.get_num_threads(), processor_count())


def check_threads(threads: object) -> None:
    """Refuse what is no number of threads; None is as many as ``thread_count`` says."""
    if threads is None or (type(threads) is int and 1 <= threads <= MOST_THREADS):
        return
    raise InputError(
        "threads is not a number of threads",
        expected=f"a whole number from 1 to {MOST_THREADS}, or None",
        found=repr(threads),
    )
