"""``monograph validate``: a verdict for a person, one for a program, and an exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from monograph.cli.exit_codes import FINDING
from tests.cli.running import invoke, output_of, write_perceptron

pytestmark = pytest.mark.usefixtures("registries_of_its_own")
WRONG = """\
from monograph.dataclass import dataclass
from monograph.passes.base import Pass, PassResult


@dataclass(frozen=True)
class Doubled(Pass):
    name = "doubled_for_a_test"

    def run(self, graph):
        graph.set_outputs([graph.outputs[0] * 2.0])
        return PassResult(True)
"""
REFUSES = """\
graph @main(%table: f32[1, 4], %i: i64[3]) -> (f32[3, 4]) {
  %one = constant(1) : i64[]
  %next = add(%i, %one) : i64[3]
  %rows = take(%table, %next) {axis = 0} : f32[3, 4]
  return %rows
}
"""


def test_a_page_says_the_verdict_and_fits_the_terminal(tmp_path: Path) -> None:
    text = output_of("validate", write_perceptron(tmp_path))
    assert "verdict" in text
    assert "compiled program" in text
    assert max(map(len, text.splitlines()[1:])) <= 80


def test_a_program_gets_json(tmp_path: Path) -> None:
    figures = json.loads(output_of("validate", write_perceptron(tmp_path), "--json"))
    assert figures["first_wrong"] is None
    assert figures["program"]["word"] in ("exact", "more accurate", "within rounding")


def test_a_wrong_pass_is_named_and_ends_with_a_code_of_its_own(tmp_path: Path) -> None:
    plugin = tmp_path / "doubled.py"
    plugin.write_text(WRONG)
    arguments = ("--plugin", str(plugin), "--passes", "dce,doubled_for_a_test")
    done = invoke("validate", write_perceptron(tmp_path), *arguments)
    assert done.exit_code == FINDING
    assert "first after doubled_for_a_test" in " ".join(done.stdout.split())


def test_nothing_compared_ends_with_the_code_of_a_finding(tmp_path: Path) -> None:
    """A look-up in a table of one row refuses every index that is made up for it."""
    path = tmp_path / "take.ir"
    path.write_text(REFUSES)
    done = invoke("validate", str(path))
    assert done.exit_code == FINDING
    assert "not checked" in done.stdout


MIXED = """\
import torch
from monograph import functional as F

def ours(x):
    return helper(x) + 1.0

def helper(x):
    return F.softmax(x, axis=-1)

def theirs(x):
    return torch.softmax(x, -1) + 1.0

def plain(x):
    return x * 2.0
"""


@pytest.mark.parametrize(
    ("name", "framework"), [("ours", "the interpreter"), ("theirs", "torch"), ("plain", "torch")]
)
def test_a_function_is_of_the_package_that_its_code_names(
    name: str, framework: str, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "mixed.py"
    path.write_text(MIXED)
    told = json.loads(output_of("validate", f"{path}:{name}", "--input", "f32[8, 16]", "--json"))
    assert told["framework"] == framework
