"""For the whole suite: nobody's own cache is read or written, and a test draws the same each time.

Compiling stores nothing unless a test asks for it (``cache=True``, or a ``MONOGRAPH_CACHE`` of its
own); what it then stores goes to a folder that is removed when the tests have ended. Graphs, memory
plans and accesses are verified, and nothing is compiled in the background unless a test wants it.

Random graphs and the like are the same in every run, so that a failure comes from the change and
not from the day: ``pytest --hypothesis-profile=explore`` draws others. Hypothesis also mixes in the
numbers that it finds in modules imported so far, which differ from worker to worker: it is given
none.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

settings.register_profile("repeatable", derandomize=True, database=None)
settings.register_profile("explore", derandomize=False)
settings.load_profile("repeatable")
providers._get_local_constants = lambda: Constants()

_folder = pytest.StashKey["TemporaryDirectory[str]"]()


def pytest_configure(config: pytest.Config) -> None:
    """Before anything is imported or collected."""
    folder = TemporaryDirectory(prefix="monograph-tests-")
    config.stash[_folder] = folder
    os.environ["MONOGRAPH_CACHE_DIR"] = folder.name
    os.environ["MONOGRAPH_CACHE"] = "0"
    os.environ["MONOGRAPH_VARIANTS"] = "0"
    os.environ["MONOGRAPH_VERIFY"] = "1"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Garbage is not looked for while tests are, and not among what was imported for them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture
def unfenced(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what fences turn off: memory that is used again, lies together or is shared."""
    monkeypatch.delenv("MONOGRAPH_FENCES", raising=False)


@pytest.fixture
def unverified(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of the disk cache, and of what is loaded: what is verified is compiled afresh."""
    monkeypatch.delenv("MONOGRAPH_VERIFY", raising=False)


def pytest_unconfigure(config: pytest.Config) -> None:
    """After the last test."""
    config.stash[_folder].cleanup()
