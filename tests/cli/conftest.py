"""For tests of the command line that bring ops and passes of their own."""

from __future__ import annotations

import pytest

from monograph.ir import op as ops
from monograph.ir.op import registry
from monograph.passes import base as passes
from monograph.passes.base import all_passes


@pytest.fixture
def registries_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    registry(), all_passes()
    monkeypatch.setattr(ops, "_REGISTRY", dict(ops._REGISTRY))
    monkeypatch.setattr(passes, "_REGISTRY", dict(passes._REGISTRY))
