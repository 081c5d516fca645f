"""Targets by name: what is compiled for another chip says so, is saved, and is not run here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.config import Config
from monograph.errors import MonographError
from monograph.targets.names import host_record, resolve_target

X = np.linspace(-2, 2, 64, dtype=np.float32).reshape(8, 8)
OTHER = "cpu:riscv64"
"""A chip that no test runs on."""


def function(x: Any) -> Any:
    return F.softmax(F.matmul(x, np.eye(8, dtype=np.float32)), -1)


def test_names_are_resolved_in_one_place() -> None:
    assert resolve_target("cpu").record == host_record()
    assert resolve_target("host").record == host_record()
    assert "aarch64" in resolve_target("cpu:aarch64").record.triple
    assert "+avx2" in resolve_target("cpu:x86-64-v3").record.features


@pytest.mark.parametrize("name", ["tpu", "cpu:", "cpu:z80", "", 3])
def test_what_is_no_target_is_an_error_that_lists_them(name: Any) -> None:
    with pytest.raises(MonographError, match=r"cpu|processor"):
        monograph.compile(function, "f32[8, 8]", target=name)


def test_the_environment_names_a_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONOGRAPH_TARGET", OTHER)
    assert Config.from_environment().target == OTHER
    assert resolve_target().name == OTHER


@pytest.mark.parametrize("cache", [False, True])
def test_code_for_another_chip_is_saved_and_neither_called_nor_loaded(
    cache: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MONOGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("MONOGRAPH_VERIFY", "0")  # which compiles afresh
    for _ in range(2):  # the second time from the cache, if there is one
        compiled = monograph.compile(function, "f32[8, 8]", target=OTHER, cache=cache)
        with pytest.raises(MonographError, match="another target") as called:
            compiled(X)
        assert "riscv64" in str(called.value) and host_record().triple in str(called.value)
    path = compiled.save(tmp_path / "model.mono")
    with pytest.raises(MonographError, match="another system") as loaded:
        monograph.load(path)
    assert "riscv64" in str(loaded.value) and host_record().triple in str(loaded.value)


def test_targets_do_not_share_cached_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MONOGRAPH_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("MONOGRAPH_VERIFY", "0")  # which compiles afresh
    first = monograph.compile(function, "f32[8, 8]", target=OTHER, cache=True)
    second = monograph.compile(function, "f32[8, 8]", cache=True)
    assert first.executable.report.cache == second.executable.report.cache == "miss"
    assert np.allclose(second(X).sum(-1), 1)
