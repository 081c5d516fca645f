"""What a listing defines (an op, a pass, a function) is gone again when its page is done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import monograph.functional  # noqa: F401  # registers every op and function
from monograph.ir import op, operators
from monograph.passes import base

REGISTRIES: tuple[dict[str, Any], ...] = (op._REGISTRY, operators._FUNCTIONS, base._REGISTRY)


@pytest.fixture(autouse=True)
def registries_as_they_were() -> Iterator[None]:
    base.all_passes()  # a pass is otherwise registered when it is first asked for
    before = [dict(registry) for registry in REGISTRIES]
    yield
    for registry, known in zip(REGISTRIES, before, strict=True):
        for name in registry.keys() - known.keys():
            del registry[name]
