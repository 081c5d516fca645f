"""What a listing defines (an op, a pass, a function) is gone again when its page is done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from monograph import ops
from monograph.ir import op, operators
from monograph.passes import base

REGISTRIES: tuple[dict[str, Any], ...] = (op._REGISTRY, operators._FUNCTIONS, base._REGISTRY)


@pytest.fixture(autouse=True)
def registries_as_they_were() -> Iterator[None]:
    ops.load_all()  # ops and passes are otherwise registered when they are first asked for
    base.all_passes()
    before = [dict(registry) for registry in REGISTRIES]
    yield
    for registry, known in zip(REGISTRIES, before, strict=True):
        for name in registry.keys() - known.keys():
            del registry[name]
