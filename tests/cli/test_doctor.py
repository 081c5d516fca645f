"""``monograph doctor``: facts about the installation, and what is wrong with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monograph.inspect import doctor
from tests.cli.running import invoke, output_of


def test_a_sound_installation_is_well() -> None:
    told = json.loads(output_of("doctor", "--no-measure", "--json"))
    assert told["is_well"]
    assert told["facts"]["packages"].startswith("llvmlite ")
    assert "error" in told["facts"]["self-test"]
    assert "measured" not in told["facts"]
    assert {each["what"] for each in told["ailments"]} >= {"the disk cache is off"}


def test_pages_fit_a_terminal() -> None:
    printed = output_of("doctor", "--no-measure")
    paths = ("monograph    ", "python       ", "cache        ")
    lines = [line for line in printed.splitlines() if not line.startswith(paths, 2)]
    assert max(map(len, lines)) <= 80
    assert "everything works" in lines[-1]


def test_a_wrong_answer_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    right = doctor.interpret
    monkeypatch.setattr(
        doctor, "interpret", lambda *given: [np.asarray(each) * 1.01 for each in right(*given)]
    )
    done = invoke("doctor", "--no-measure")
    assert done.exit_code == 3
    assert "problem: the self-test's answer is wrong" in done.stdout


def test_a_cache_that_others_may_write_to_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setenv("MONOGRAPH_CACHE", "1")
    monkeypatch.setenv("MONOGRAPH_CACHE_DIR", str(tmp_path))
    found = doctor.Examination()
    doctor._cache(found)
    assert not found.is_well
    assert "others may write to it" in found.ailments[0].what


def test_old_packages_are_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"numpy": "1.26.4", "torch": "2.13.0+cpu", "onnx": "1.18.0"}
    monkeypatch.setattr(doctor, "_version", versions.get)
    found = doctor.Examination()
    doctor._packages(found)
    problems = [each.what for each in found.ailments if each.is_problem]
    assert problems == ["numpy 1.26.4 is too old"]


def test_more_threads_than_processors_are_remarked_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONOGRAPH_THREADS", "1000")
    found = doctor.Examination()
    doctor._processor(found)
    assert any(each.what.startswith("1000 threads share") for each in found.ailments)
    assert found.is_well


def test_a_wrong_setting_does_not_end_the_examination(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(found: Any) -> None:
        raise doctor.MonographError("it broke", hint="mend it")

    monkeypatch.setattr(doctor, "_gpu", broken)
    done = invoke("doctor", "--no-measure")
    assert done.exit_code == 3
    assert "problem: GPU: it broke" in done.stdout
    assert "self-test" in done.stdout
