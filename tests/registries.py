"""Registries of ops and passes around a test that brings some of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from monograph import ops
from monograph.ir import op, operators
from monograph.passes import base

REGISTRIES: tuple[dict[str, Any], ...] = (op._REGISTRY, operators._FUNCTIONS, base._REGISTRY)


@contextmanager
def forgetting() -> Iterator[None]:
    """What is registered meanwhile is gone afterwards, but for what a frontend's import brings.

    A frontend is imported once in a process: nothing would register its ops again.
    """
    ops.load_all()  # ops and passes are otherwise registered when they are first asked for
    base.all_passes()
    before = [dict(registry) for registry in REGISTRIES]
    yield
    for registry, known in zip(REGISTRIES, before, strict=True):
        for name in registry.keys() - known.keys():
            if not registry[name].__module__.startswith("monograph."):
                del registry[name]
