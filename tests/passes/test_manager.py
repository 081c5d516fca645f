"""Pipelines, fixed points, instruments, and the public optimize."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.api import split_passes
from monograph.errors import InputError, MonographError, PassError
from monograph.ir.graph import Graph
from monograph.passes.base import Pass, PassResult, all_passes, make_pass
from monograph.passes.dce import DeadCodeElimination
from monograph.passes.instruments import Dump, Validate, Verify, relative_error
from monograph.passes.lower_composites import LowerComposites
from monograph.passes.manager import FixedPoint, passes_of, run_pipeline
from monograph.passes.pipeline import LEVELS


@dataclass(frozen=True)
class NegateOutput(Pass):
    """Changes the meaning, always."""

    def run(self, graph: Graph) -> PassResult:
        graph.set_outputs([-graph.outputs[0]])
        return PassResult(True)


@dataclass(frozen=True)
class BreakTypes(Pass):
    """Leaves a graph that does not verify."""

    def run(self, graph: Graph) -> PassResult:
        graph.outputs[0].type = graph.inputs[0].tensor.with_shape((99,))
        return PassResult(True)


# Named after they are made, so that the registry of passes does not know them.
NegateOutput.name = "negate_output"
BreakTypes.name = "break_types"


def program() -> Graph:
    def function(x):  # type: ignore[no-untyped-def]
        F.exp(x)
        return F.silu(x) * 1.0

    return monograph.trace(function, "f32[4]")


def test_optimize_leaves_its_argument_alone() -> None:
    graph = program()
    before = str(graph)
    for level in LEVELS:
        monograph.optimize(graph, level)
    assert str(graph) == before


def test_level_zero_changes_nothing() -> None:
    graph = program()
    assert str(monograph.optimize(graph, "O0")) == str(graph)


def test_an_unknown_level_lists_the_levels() -> None:
    with pytest.raises(InputError, match="'O9' is not an optimisation level") as caught:
        monograph.optimize(program(), "O9")
    assert "O0, O1, O2, O3" in str(caught.value)


def test_passes_may_be_named_or_given() -> None:
    by_text = monograph.optimize(program(), passes="dce,lower_composites{keep=('silu',)}")
    by_list = monograph.optimize(program(), passes=[DeadCodeElimination(), "lower_composites"])
    assert [n.op.name for n in by_text.nodes] == ["silu", "constant", "multiply"]
    assert "silu" not in [n.op.name for n in by_list.nodes]


def test_an_unknown_pass_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="there is no pass called 'dcee'") as caught:
        monograph.optimize(program(), passes="dcee")
    assert "did you mean" in str(caught.value)


@pytest.mark.parametrize(
    ("spelling", "problem"),
    [
        ("fold_constants{limit=x}", "wrong type"),
        ("fold_constants{size=3}", "has no option 'size'"),
        ("fold_constants{3}", "is not an option"),
        ("fold constants", "does not name a pass"),
    ],
)
def test_wrong_options_are_refused(spelling: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        make_pass(spelling)


def test_commas_inside_braces_do_not_separate() -> None:
    assert split_passes("a{x=1,y=2}, b,") == ["a{x=1,y=2}", "b"]


def test_every_pass_prints_as_it_is_spelled() -> None:
    for name, cls in all_passes().items():
        assert str(make_pass(str(cls()))) == name


def test_the_report_tells_of_every_step() -> None:
    _, report = monograph.optimize_with_report(program(), passes="dce,cse")
    assert [step.name for step in report.steps] == ["dce", "cse"]
    assert (report.steps[0].nodes_before, report.steps[0].nodes_after) == (4, 3)
    assert report.totals() == {"dce.removed": 1}
    assert report.seconds > 0


def test_a_fixed_point_that_never_comes_to_rest_is_an_error() -> None:
    with pytest.raises(PassError, match="no fixed point after 3 rounds"):
        run_pipeline(program(), [FixedPoint((NegateOutput(),), limit=3)])


def test_validate_names_the_pass_that_changed_the_meaning() -> None:
    inputs = [np.ones(4, np.float32)]
    with pytest.raises(PassError) as caught:
        run_pipeline(program(), [DeadCodeElimination(), NegateOutput()], [Validate(inputs)])
    assert "the meaning of output 0" in str(caught.value)
    assert "negate_output" in str(caught.value)


def test_verify_names_the_pass_that_broke_the_graph() -> None:
    with pytest.raises(MonographError) as caught:
        run_pipeline(program(), [BreakTypes()], [Verify()])
    assert "pass     break_types" in str(caught.value)


def test_dump_writes_numbered_files_that_parse(tmp_path: Path) -> None:
    monograph.optimize_with_report(program(), passes="dce,cse", instruments=[Dump(tmp_path)])
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["00_start.ir", "01_dce.ir", "02_cse.ir"]
    text = (tmp_path / "01_dce.ir").read_text()
    assert text.startswith("# after dce: changed, ")
    assert len(monograph.parse(text)) == 3


def test_the_environment_turns_instruments_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MONOGRAPH_DUMP", str(tmp_path / "dump"))
    monkeypatch.setenv("MONOGRAPH_VERIFY", "1")
    monograph.optimize(program(), passes="dce")
    assert (tmp_path / "dump" / "01_dce.ir").exists()
    monkeypatch.setenv("MONOGRAPH_VERIFY", "perhaps")
    with pytest.raises(InputError, match="MONOGRAPH_VERIFY is not a yes or no"):
        monograph.optimize(program())
    monkeypatch.setenv("MONOGRAPH_VERIFY", "0")
    monkeypatch.setenv("MONOGRAPH_VERFIY", "1")
    with pytest.raises(InputError, match="MONOGRAPH_VERFIY is not a setting"):
        monograph.optimize(program())


def test_levels_only_hold_known_passes() -> None:
    for pipeline in LEVELS.values():
        assert {each.name for each in passes_of(pipeline)} <= set(all_passes())


def test_lowering_leaves_only_primitives() -> None:
    def function(x):  # type: ignore[no-untyped-def]
        return F.layer_norm(F.gelu(x)) + F.softmax(x, axis=-1)

    graph = monograph.trace(function, "f32[2, 8]")
    result = LowerComposites().run(graph)
    assert result.changed
    assert not any(node.op.is_composite() for node in graph.nodes)
    assert not LowerComposites().run(graph).changed


@pytest.mark.parametrize(
    ("got", "expected", "error"),
    [
        (np.array([1.0, 2.0]), np.array([1.0, 2.0]), 0.0),
        (np.array([1.0, np.nan]), np.array([1.0, np.nan]), 0.0),
        (np.array([1.0, np.nan]), np.array([1.0, 2.0]), np.inf),
        (np.array([np.inf]), np.array([-np.inf]), np.inf),
        (np.array([1]), np.array([2]), np.inf),
        (np.array([0.0]), np.array([0.0]), 0.0),
        (np.array([0.1]), np.array([0.0]), np.inf),
        (np.array([3.0, 4.0]), np.array([3.0, 5.0]), 1 / np.sqrt(34)),
        (np.zeros(2), np.zeros(3), np.inf),
    ],
)
def test_relative_error(got: np.ndarray, expected: np.ndarray, error: float) -> None:
    assert relative_error(got, expected) == pytest.approx(error)
