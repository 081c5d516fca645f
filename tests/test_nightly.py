"""The nightly table: what a suite printed is counted, and no suite is right by saying nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import nightly
from tests.nightly import SUITES, Suite, chosen, is_right, row, run
from tests.properties.draws import VARIABLE, seed_of
from tests.targets.running import TARGETS

PRINTED = {
    "tests": "==== 23198 passed, 1 skipped, 48 warnings in 1014.04s (0:16:54) ====",
    "slow tests": "1 failed, 310 passed in 42.00s",
    "programs": "seed 7: 10000 programs in 93.1 minutes, 2 findings",
    "op samples": "20451 runs, 3 wrong",
    "widths and fences": "16 bytes, 16 registers: 0 not right",
    "exporters": "ONNX Runtime: 240 of 262 ops claimed, 2011 samples equal, 3 differ, 9 refused",
    "ONNX": "passed 2023 / 2033",
    "OpInfo": "677 entries, 12034 samples; 650 entries whole",
    "OpInfo's wrong inputs": "120 entries, 800 samples; 118 entries whole",
    "JAX": "7300 of 7526 agree with JAX (97.00%), on cpu",
    "models": "torch: 61 of 62 right (40 within rounding, 21 more accurate, 1 wrong)",
    "GPU kernels": "all agree",
    "GPU op samples": "2148 samples, 0 wrong, kernels: {'rows': 12}",
    "GPU models": "0 wrong",
}


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_the_line_that_counts_is_found(suite: Suite) -> None:
    (found,) = re.findall(suite.counts, PRINTED[suite.name], re.MULTILINE)
    assert found in PRINTED[suite.name]


def test_suites_with_a_target_run_on_each() -> None:
    names = [suite.name for suite in chosen(["ONNX", "exporters"], 7, 10, gpu=False)]
    assert names == ["exporters", *(f"ONNX {target}" for target in TARGETS)]
    (programs,) = chosen(["programs"], 7, 10, gpu=False)
    assert programs.command == "tests.fuzz --seed 7 --programs 10"
    assert not chosen(["GPU models"], 7, 10, gpu=False)
    with pytest.raises(SystemExit, match="no such suite: onnx; there are"):
        chosen(["onnx"], 7, 10, gpu=True)


@pytest.mark.parametrize(
    ("command", "counts", "word", "right"),
    [
        ("calendar 2024 1", r"(January \d+)", "right", True),
        ("calendar 2024 1", r"(February \d+)", "right", False),
        ("calendar never", r"(January \d+)", "exit", False),
        ("timeit -n 1 -r 1 'import time; time.sleep(60)'", r"(.*)", "too long", False),
    ],
)
def test_a_suite_is_right_if_it_exits_with_0_and_counted_something(
    command: str, counts: str, word: str, right: bool, tmp_path: Path
) -> None:
    outcome = run(Suite("A suite", command, counts), 7, tmp_path, seconds=20 if right else 5)
    assert is_right(outcome) is right
    assert word in row(outcome)
    assert all(len(line) <= nightly.WIDTH for line in row(outcome).splitlines())
    assert (tmp_path / "a-suite.log").exists()


def test_the_seed_moves_what_random_tests_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert seed_of(3) == 3
    monkeypatch.setenv(VARIABLE, "5000")
    assert seed_of(3) == 5003
