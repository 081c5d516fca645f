"""Chooses the target from the device that a model's tensors are on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from monograph.config import Config


def target_of_tensors(tensors: Iterable[Any]) -> str | None:
    """``gpu`` if one of these is on a GPU and the environment names no target; else None."""
    if Config.from_environment().target is not None:
        return None
    return "gpu" if any(getattr(each, "is_cuda", False) for each in tensors) else None
