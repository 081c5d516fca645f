"""What a listing defines (an op, a pass, a function) is gone again when its page is done."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.registries import forgetting


@pytest.fixture(autouse=True)
def registries_as_they_were() -> Iterator[None]:
    with forgetting():
        yield
