"""For tests of the command line that bring ops and passes of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.registries import forgetting


@pytest.fixture
def registries_of_its_own() -> Iterator[None]:
    """What a test registers is gone after it."""
    with forgetting():
        yield
