"""What the environment may say, and what it may not."""

from __future__ import annotations

import os

import pytest

from monograph.config import MOST_THREADS, Config, processor_count
from monograph.errors import InputError


def test_defaults() -> None:
    assert Config.from_environment({}) == Config()
    assert Config.from_environment({}).threads == processor_count()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_only_processors_that_the_process_may_use_are_counted() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert processor_count() == 1
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.mark.parametrize("text, threads", [("1", 1), (" 12 ", 12), (str(MOST_THREADS), 1024)])
def test_threads_are_read(text: str, threads: int) -> None:
    assert Config.from_environment({"MONOGRAPH_THREADS": text}).threads == threads


@pytest.mark.parametrize(
    "text", ["0", "-1", "two", "1.5", "1e2", "1025", "00102400000", "9" * 5000]
)
def test_what_is_not_a_number_of_threads_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="MONOGRAPH_THREADS is not a number of threads") as caught:
        Config.from_environment({"MONOGRAPH_THREADS": text})
    assert caught.value.expected == "a whole number from 1 to 1024"


@pytest.mark.parametrize("text, threads", [("3", 3), ("3,2", 3), (" 4 ", 4), ("9999", 1024)])
def test_openmp_says_how_many_threads_where_nothing_else_does(text: str, threads: int) -> None:
    assert Config.from_environment({"OMP_NUM_THREADS": text}).threads == threads
    both = {"OMP_NUM_THREADS": text, "MONOGRAPH_THREADS": "5"}
    assert Config.from_environment(both).threads == 5


@pytest.mark.parametrize("text", ["", "0", "many", "-1"])
def test_what_openmp_would_not_heed_is_ignored(text: str) -> None:
    assert Config.from_environment({"OMP_NUM_THREADS": text}).threads == processor_count()


def test_a_quota_limits_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monograph.config.cpu_quota", lambda: 1)
    assert processor_count() == 1


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(InputError, match="MONOGRAPH_THREAD is not a setting"):
        Config.from_environment({"MONOGRAPH_THREAD": "2"})


@pytest.mark.parametrize("name", ["MONOGRAPH_VECTOR_BYTES", "MONOGRAPH_VECTOR_REGISTERS"])
@pytest.mark.parametrize("text", ["8", "31", "48", "128", "-16", "0x10", "wide"])
def test_vectors_that_no_processor_has_are_refused(name: str, text: str) -> None:
    with pytest.raises(InputError, match=f"{name} is not one of its values") as caught:
        Config.from_environment({name: text})
    assert caught.value.expected in ("16, 32 or 64", "16 or 32")
    assert caught.value.found == repr(text)


def test_vectors_are_described_by_the_environment() -> None:
    described = {"MONOGRAPH_VECTOR_BYTES": " 64", "MONOGRAPH_VECTOR_REGISTERS": "16"}
    config = Config.from_environment(described)
    assert (config.vector_bytes, config.vector_registers) == (64, 16)
    empty = Config.from_environment(dict.fromkeys(described, ""))
    assert (empty.vector_bytes, empty.vector_registers) == (None, None)


def test_fences_stand_at_one_side_or_the_other() -> None:
    assert Config.from_environment({}).fences is None
    assert Config.from_environment({"MONOGRAPH_FENCES": "begin"}).fences == "begin"
    with pytest.raises(InputError, match="MONOGRAPH_FENCES is not one of its values") as caught:
        Config.from_environment({"MONOGRAPH_FENCES": "both"})
    assert caught.value.expected == "begin or end"


def test_a_matrix_unit_is_described_by_the_environment() -> None:
    assert Config.from_environment({}).matrix_tiles is None
    for text in ("off", "emulated"):
        assert Config.from_environment({"MONOGRAPH_MATRIX_TILES": text}).matrix_tiles == text
    with pytest.raises(InputError, match="MONOGRAPH_MATRIX_TILES is not one of its values"):
        Config.from_environment({"MONOGRAPH_MATRIX_TILES": "on"})
