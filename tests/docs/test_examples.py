"""Every example runs, ends by itself, and says what it is there to say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SAYS = {
    "classifier": r"native code agrees: True",
    "digits": r"16 images: native code agrees with the interpreter: True",
    "inspect_irs": r"leaky_relu in FX agrees: True",
    "inspect_passes": r"O2: 30 → \d nodes, \d+ steps, checked",
    "jax_transformer": r"gradient: agrees with jax.jit",
    "own_op": r"not 0 are \{3: 1\.5, 17: -2\.0, 29: 1\.0\}",
    "own_rule": r"tried 2 times, fired 2 times: 16 → 4",
    "train_mlp": r"accuracy on new points: (9\d\.\d|100\.0)%",
}
"""A line of each example's output."""


def run(name: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{name}.py")],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", SAYS)
def test_example_says_what_it_shows(name: str, tmp_path: Path) -> None:
    if name.startswith("jax"):
        pytest.importorskip("jax")
    output = run(name, tmp_path)
    assert any(re.search(SAYS[name], line) for line in output.splitlines()), output
    if name == "train_mlp":
        losses = [float(found) for found in re.findall(r"loss (\d\.\d+)", output)]
        assert len(losses) >= 5
        assert losses[-1] < 0.2 * losses[0]


def test_no_example_is_left_out() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(SAYS)
