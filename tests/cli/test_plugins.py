"""Ops and passes of a user's own on the command line: ``--plugin FILE.py`` and ``-p``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from monograph.errors import InputError
from monograph.ir.op import Trait, lookup, op
from monograph.ops.elementwise.base import Unary
from tests.cli.running import invoke, output_of

PLUGIN = '''\
from dataclasses import dataclass

import numpy as np

from monograph import functional as F
from monograph.ir.op import Trait, op
from monograph.ops.elementwise.base import Unary
from monograph.passes.base import Pass, PassResult
from monograph.rewrite import Rule, rewrite_graph


@op("plugged_shrink", traits=Trait.ELEMENTWISE)
class Shrink(Unary):
    """x moved towards 0 by ``amount``."""

    amount: float = 0.5

    def evaluate(self, x):
        return np.sign(x) * np.maximum(np.abs(x) - self.amount, 0)

    def decompose(self, x):
        return F.sign(x) * F.maximum(F.abs(x) - self.amount, 0.0)


TWICE = Rule("twice", pattern=lambda x: x + x, replacement=lambda x: x * 2.0, floats="exact")


@dataclass(frozen=True)
class Doubles(Pass):
    """x + x as x * 2."""

    name = "plugged_doubles"

    def run(self, graph):
        done = rewrite_graph(graph, [TWICE], during=self.name)
        return PassResult(done.changed, done.counters, done.rules)
'''

GRAPH = """\
graph @main(%x: f32[4, 4]) -> (f32[4, 4]) {
  %e = plugged_shrink(%x) {amount = 0.25} : f32[4, 4]
  %y = add(%e, %e) : f32[4, 4]
  return %y
}
"""


pytestmark = pytest.mark.usefixtures("registries_of_its_own")


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    plugin, graph = tmp_path / "plugged.py", tmp_path / "plugged.ir"
    plugin.write_text(PLUGIN)
    graph.write_text(GRAPH)
    return str(plugin), str(graph)


def test_opt_runs_a_pass_of_ones_own(files: tuple[str, str]) -> None:
    plugin, graph = files
    shown = output_of("opt", graph, "--plugin", plugin, "-p", "plugged_doubles")
    assert "multiply(%e, %c)" in shown
    assert "plugged_doubles" in output_of("opt", "--plugin", plugin, "--list")


def test_compile_takes_passes_and_ops_of_ones_own(files: tuple[str, str]) -> None:
    plugin, graph = files
    given = (graph, "--plugin", plugin, "-p", "plugged_doubles,dce")
    shown = output_of("compile", *given, "--emit", "ir")
    assert "constant(2.0)" in shown
    assert "plugged_shrink" not in shown  # decomposed, and so native
    assert "exact" in output_of("run", *given, "--compare", "interpreter")
    told = json.loads(output_of("explain", *given, "--json"))
    names = [each["name"] for each in told["passes"]]
    assert names == ["plugged_doubles", "lower_composites"]  # the target's lowering comes after


def test_other_subcommands_know_the_ops(files: tuple[str, str]) -> None:
    plugin, graph = files
    assert "every op is supported" in output_of("check", graph, "--plugin", plugin)
    assert "towards 0" in output_of("ops", "plugged_shrink", "--plugin", plugin)


def test_a_plugin_may_be_a_module(files: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    plugin, _ = files
    monkeypatch.chdir(Path(plugin).parent)
    (Path(plugin).parent / "plugged_module.py").write_text(PLUGIN.replace("plugged_", "other_"))
    assert "towards 0" in output_of("ops", "other_shrink", "--plugin", "plugged_module")


def test_the_same_op_may_be_defined_again_and_another_of_its_name_may_not() -> None:
    def define() -> type:
        @op("defined_again", traits=Trait.ELEMENTWISE)
        class Again(Unary):
            """x."""

            def evaluate(self, x: Any) -> Any:
                return x

        return Again

    define()
    again = define()
    assert lookup("defined_again") is again
    with pytest.raises(ValueError, match="two ops are called 'defined_again'"):

        @op("defined_again")
        class Another(Unary):
            """y."""


@pytest.mark.parametrize(
    ("content", "name", "problem"),
    [
        (None, "missing.py", "no file"),
        (None, "missing_module", "cannot be imported"),
        (None, "a-b", "not a plugin"),
        ("1 / 0\n", "broken.py", "broken.py:1"),
    ],
)
def test_a_plugin_that_cannot_be_imported_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, name: str, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / name).write_text(content)
    done = invoke("opt", "--plugin", name, "--list")
    assert isinstance(done.exception, InputError)
    assert problem in str(done.exception)


def test_a_pass_that_nobody_brought_is_told(files: tuple[str, str]) -> None:
    _, graph = files
    done = invoke("compile", graph, "-p", "no_such_pass")
    assert isinstance(done.exception, InputError)
    assert "no_such_pass" in str(done.exception)
