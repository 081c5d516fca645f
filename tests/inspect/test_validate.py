"""Validation: every pass before and after, the program, and the words for what was found."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options
from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.inspect import evaluate
from monograph.inspect.bisect import bisect
from monograph.inspect.evaluate import Evaluator
from monograph.inspect.samples import draw_samples
from monograph.inspect.validate import validate
from monograph.ir.dims import Symbol
from monograph.ir.graph import Graph, Value
from monograph.ir.interpret import interpret
from monograph.ir.types import TensorType, f32
from monograph.passes import simplify
from monograph.passes.base import Pass, PassResult
from monograph.passes.dce import DeadCodeElimination
from monograph.rewrite.rule import Rule


@dataclass(frozen=True)
class ScaleOutput(Pass):
    """Multiplies the first output: a pass that is wrong by that factor."""

    factor: float = 1.0

    def run(self, graph: Graph) -> PassResult:
        first = graph.outputs[0]
        graph.set_outputs([first * self.factor, *graph.outputs[1:]])
        return PassResult(True)


ScaleOutput.name = "scale_output"  # afterwards, so that the registry of passes does not know it


def program(x: Value) -> Value:
    return F.softmax(F.gelu(x * 1.0) + 0.5, axis=-1)


GRAPH = monograph.trace(program, "f32[batch, 40]")


def test_a_model_that_is_compiled_well_is_right_on_every_sample() -> None:
    found = validate(GRAPH)
    assert found.is_right
    assert found.first_wrong is None
    assert found.program is not None
    assert {each.name for each in found.steps} >= {"simplify"}
    assert any("batch=1)" in sample for sample in found.samples)
    assert any("specials" in sample for sample in found.samples)


@pytest.mark.parametrize(
    ("factor", "word"), [(1.0, "exact"), (1 + 1e-7, "within rounding"), (1.001, "wrong")]
)
def test_a_pass_has_the_word_that_its_change_deserves(factor: float, word: str) -> None:
    options = Options(passes=(DeadCodeElimination(), ScaleOutput(factor)))
    found = validate(GRAPH, options=options, sizes={"batch": 30})
    (step,) = (each for each in found.steps if "scale_output" in each.name)
    allowed = {word} | ({"more accurate"} if word == "within rounding" else set())
    assert step.word in allowed
    assert ("scale_output" in str(found.first_wrong)) == (word == "wrong")


def test_a_change_that_only_double_precision_shows_is_found() -> None:
    """Rounding to whole numbers hides what is added before it, unless a number is on the edge."""
    graph = monograph.trace(lambda x: F.cast(F.cast(x, "bf16"), "f32"), "f32[500]")
    found = validate(graph, options=Options(passes=(ScaleOutput(1.5),)))
    assert found.steps[0].drift is not None
    assert found.steps[0].drift > 0.1


def test_cancellation_is_not_called_wrong() -> None:
    """What remains of a difference of nearly equal sums is rounding, in any order of them."""

    def difference(x: Value) -> Value:
        return F.sum(x * x, axis=-1) - F.sum(F.exp(F.log(x * x)), axis=-1)

    assert validate(monograph.trace(difference, "f32[8, 500]"), np.ones((8, 500), "f4")).is_right


def test_a_pass_that_fails_is_a_finding_not_a_crash() -> None:
    class Breaks(ScaleOutput):
        def run(self, graph: Graph) -> PassResult:
            raise RuntimeError("out of order")

    found = validate(GRAPH, options=Options(passes=(Breaks(),)))
    assert not found.is_right
    assert found.program is not None
    assert "out of order" in found.program.remark


def test_torch_is_the_framework_of_its_own_models() -> None:
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.GELU(), torch.nn.LayerNorm(8))
    found = monograph.validate(net, torch.randn(4, 16))
    assert found.framework == "torch"
    assert found.samples[0] == "given"
    assert found.is_right


def test_a_sample_that_the_graph_refuses_is_skipped_and_named() -> None:
    graph = monograph.trace(lambda t, i: F.take(t, i + 1, 0), "f32[1, 4]", "i64[3]")
    found = validate(graph)
    assert not found.samples
    assert found.skipped


def test_nothing_compared_is_a_verdict_of_its_own() -> None:
    graph = monograph.trace(lambda t, i: F.take(t, i + 1, 0), "f32[1, 4]", "i64[3]")
    found = validate(graph)
    assert found.word == "not checked"
    assert not found.is_right
    assert found.first_wrong is None
    assert "the same bits" not in str(found)
    assert {each.word for each in found.steps} <= {"not checked"}


def test_sizes_that_are_too_large_to_be_made_up_are_named() -> None:
    size = Symbol("n", 1, 1 << 30)
    graph = monograph.trace(lambda x: F.exp(x), TensorType(f32, (size, 2)))
    found = validate(graph)
    assert "normal (n=1073741824): too large to be made up" in found.skipped
    assert any("n=1)" in sample for sample in found.samples)


def test_results_are_json() -> None:
    told = json.loads(json.dumps(validate(GRAPH).as_json()))
    assert told["word"] in ("exact", "more accurate", "within rounding")
    assert told["steps"][0]["name"]


def test_remembered_results_are_the_interpreters_and_follow_the_inputs() -> None:
    evaluator = Evaluator()
    for seed in (0, 1, 0):
        x = np.random.default_rng(seed).normal(size=(3, 40)).astype("f4")
        for graph in (GRAPH, monograph.optimize(GRAPH)):
            assert np.array_equal(evaluator.run(graph, [x])[0], interpret(graph, [x])[0])


def test_weights_are_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[int] = []
    right = evaluate._item

    def item(value: Any) -> Any:
        hashed.append(value.size)
        return right(value)

    monkeypatch.setattr(evaluate, "_item", item)
    weight = np.random.default_rng(0).normal(size=(7, 11)).astype("f4")
    graph = monograph.trace(lambda x: x @ x.graph.add_weight("w", weight) * 1.0, "f32[3, 7]")
    evaluator = Evaluator()
    for form in (graph, monograph.optimize(graph)):
        evaluator.run(form, [np.ones((3, 7), "f4")])
        evaluator.run_wide(form, [np.ones((3, 7), "f4")])
    assert hashed.count(weight.size) == 2, "once in either precision"


def test_values_of_every_kind_are_remembered() -> None:
    """Strings, 16-bit floats, single numbers, transposed and empty arrays have digests, too."""
    values = [
        np.array(["a", "b"], object), np.ones(3, ml_dtypes.bfloat16), np.array(1, "f4"),
        np.arange(6.0).reshape(2, 3).T, np.zeros((0, 2), "f4"),
    ]  # fmt: skip
    digests = [evaluate._item(value).digest for value in values]
    assert len(set(digests)) == len(values) and None not in digests
    assert evaluate._item(values[3].copy()).digest == digests[3]


def test_indices_stay_inside_the_table_that_they_are_looked_up_in() -> None:
    graph = monograph.trace(
        lambda table, i: F.take(table, F.reshape(i, (6,)), 0), "f32[5, 2]", "i64[2, 3]"
    )
    for sample in draw_samples(graph):
        indices = sample.arrays[1]
        assert indices.min() == 0
        assert indices.max() == 4


def test_integers_are_small_ones_and_the_ends_of_their_range_too() -> None:
    graph = monograph.trace(lambda x, n: x * F.cast(n, "f32"), "f32[4, 9]", "i8[4, 9]")
    drawn = {sample.name: sample.arrays[1] for sample in draw_samples(graph)}
    assert set(drawn["normal"].flat) == {0, 1}
    assert drawn["integers"].min() < 0 and drawn["integers"].max() > 1
    assert {-128, 127} & set(drawn["ends"].flat)


def test_a_rule_that_holds_for_0_and_1_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Rule("planted", pattern=lambda x: x * x, replacement=lambda x: x * 1, floats="none")
    monkeypatch.setattr(simplify, "EXACT", (wrong, *simplify.EXACT))
    found = monograph.validate(monograph.trace(lambda x: x * x, "i32[4, 4]"))
    assert found.first_wrong == "simplify"


def test_indices_are_drawn_beside_those_that_were_given() -> None:
    graph = monograph.trace(lambda table, i: F.take(table, i, 0), "f32[50, 2]", "i64[8]")
    given = (np.ones((50, 2), "f4"), np.zeros(8, "i8"))
    names = [sample.name for sample in draw_samples(graph, given, state={0: given[0]})]
    assert names == ["normal", "given"], "ones that are all zero tell little"
    told = (given[0], np.arange(8))
    names = [sample.name for sample in draw_samples(graph, told, state={0: given[0]})]
    assert names == ["given", "normal"]


@pytest.mark.parametrize("tool", [validate, bisect])
def test_a_size_that_no_model_has_is_refused(tool: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match="batch is outside its declared range"):
        tool(GRAPH, sizes={"batch": 0})


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_numbers_beyond_the_range_are_infinite_without_a_warning(dtype: str) -> None:
    def function(x: Value) -> Value:
        return F.where(x > 0.0, x * 1e300, F.full((4,), -1e50, x.dtype)) + F.sum(x) ** 9.0

    found = validate(monograph.trace(function, f"{dtype}[batch, 4]"))
    assert found.is_right, str(found)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0, 5)])
def test_given_inputs_may_be_empty(shape: tuple[int, ...]) -> None:
    found = validate(lambda x: F.sum(F.exp(x)), np.zeros(shape, "f4"))
    assert found.word == "exact"
    assert found.samples
