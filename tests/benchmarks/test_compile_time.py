"""Compile time and memory of a process of its own."""

from __future__ import annotations

import pytest

from benchmarks import compile_time
from benchmarks.peers import Eager, Monograph, Peer


class Missing(Peer):
    name, form, needs = "missing", "–", ("no_such_package",)

    def prepare(self, case: object) -> object:
        raise AssertionError


def test_a_missing_contender_is_a_reason() -> None:
    found = compile_time.measure("sum-64", Missing())
    assert found.cold is None and "no_such_package" in (found.reason or "")


@pytest.mark.slow
@pytest.mark.parametrize("peer", [Eager(), Monograph()], ids=lambda peer: peer.name)
def test_seconds_and_memory_are_found(peer: Peer) -> None:
    found = compile_time.measure("sum-4096x4096", peer)
    assert found.reason is None
    assert found.cold and found.warm and found.compiling
    # The input alone is 64 MiB.
    assert found.running is None or 2**26 <= found.running < 2**29


@pytest.mark.slow
def test_one_that_takes_too_long_is_a_reason() -> None:
    found = compile_time.measure("sum-64", Eager(), longest=0.05)
    assert found.reason == "took more than 0 s"


def test_names_and_families_are_found() -> None:
    assert compile_time._names(["sum-64"]) == ["sum-64"]
    assert "bert-base-1x128" in compile_time._names(["models"])
    with pytest.raises(SystemExit, match="nothing"):
        compile_time._names(["nothing"])
