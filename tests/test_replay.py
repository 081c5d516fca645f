"""Replays are the same in every process, and name what differs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.replay import MACHINES, ROOT, differences, programs, replay


def table(tmp_path: Path, seed: str) -> dict[str, str]:
    out = tmp_path / f"{seed}.json"
    command = [sys.executable, "-m", "tests.replay", "--quick", "--workers", "1"]
    command += ["--only", "sample/(softmax|sort|conv)@", "--out", str(out)]
    environment = os.environ | {"PYTHONHASHSEED": seed}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    return dict(json.loads(out.read_text()))


def test_code_does_not_depend_on_the_order_of_hashes(tmp_path: Path) -> None:
    first, second = table(tmp_path, "1"), table(tmp_path, "2")
    assert len(first) == 3
    assert first == second


def test_another_machine_has_other_code() -> None:
    found = [each for each in programs(quick=False) if each.name == "sample/softmax"]
    assert {each.machine for each in found} == set(MACHINES)
    assert len({replay(each)[1] for each in found}) == len(MACHINES)


@pytest.mark.parametrize(
    "machine, instruction",
    [("vnni", "vpdpbusd"), ("avx2-bytes", "mul <32 x i32>"), ("dotprod", "sdot")],
)
def test_products_of_bytes_are_replayed_by_each_instruction(
    machine: str, instruction: str, tmp_path: Path
) -> None:
    (found,) = (x for x in programs(quick=True) if x.key == f"product/u8-i8@{machine}")
    replay(found, tmp_path)
    assert instruction in (tmp_path / f"{found.key}.ll").read_text()


def test_what_both_tables_have_is_compared() -> None:
    assert differences({"a": "1", "b": "2", "c": "3"}, {"b": "2", "c": "4", "d": "5"}) == ["c"]
