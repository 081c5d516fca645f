"""``monograph bisect``: what is at fault, a repro in a file, and an exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from monograph.cli.exit_codes import FINDING
from tests.cli.running import invoke, output_of, write_graph, write_perceptron
from tests.cli.test_validate import WRONG

pytestmark = pytest.mark.usefixtures("registries_of_its_own")


def test_a_sound_model_has_no_fault(tmp_path: Path) -> None:
    assert "no fault was found" in output_of("bisect", write_graph(tmp_path))


def test_a_wrong_pass_is_named_with_a_repro(tmp_path: Path) -> None:
    plugin = tmp_path / "doubled.py"
    plugin.write_text(WRONG)
    repro = tmp_path / "fault.py"
    done = invoke(
        *("bisect", write_perceptron(tmp_path), "--plugin", str(plugin)),
        *("--passes", "dce,doubled_for_a_test", "-o", str(repro)),
    )
    assert done.exit_code == FINDING
    assert "at fault     doubled_for_a_test" in done.stdout
    assert "monograph.parse" in repro.read_text()
    assert f'load_plugin("{plugin}")' in repro.read_text(), "the fault is in it"
