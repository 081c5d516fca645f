"""Tracing Python functions into graphs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.errors import InputError, MonographError
from monograph.ir.interpret import interpret
from monograph.ir.operators import functions
from monograph.ir.types import TensorType, f32
from monograph.ops import load_all


def test_inputs_take_the_names_of_the_parameters() -> None:
    graph = monograph.trace(lambda hidden, weight: hidden @ weight, "f32[n, 4]", "f32[4, 2]")
    assert [value.name for value in graph.inputs] == ["hidden", "weight"]
    assert str(graph.outputs[0].type) == "f32[n, 2]"


def test_specs_may_be_types_texts_arrays_and_numbers() -> None:
    graph = monograph.trace(
        lambda a, b, c, d: (a, b, c, d), TensorType(f32, (2,)), "i64[]", np.zeros(3), 1.0
    )
    assert [str(value.type) for value in graph.inputs] == ["f32[2]", "i64[]", "f64[3]", "f64[]"]


def test_a_wrong_spec_is_an_error_that_says_what_to_pass() -> None:
    with pytest.raises(InputError, match="trace needs a type for each argument"):
        monograph.trace(lambda x: x, object())
    with pytest.raises(MonographError):
        monograph.trace(lambda x: x, "f32[")


def test_arguments_and_results_may_be_nested() -> None:
    def layer(x: Any, parameters: Any) -> Any:
        return {"y": x @ parameters["w"] + parameters["b"], "x": (x, [x])}

    graph = monograph.trace(layer, "f32[2, 4]", {"w": "f32[4, 3]", "b": "f32[3]"})
    assert len(graph.inputs) == 3
    assert len(graph.outputs) == 3


def test_numbers_and_arrays_that_are_returned_become_constants() -> None:
    graph = monograph.trace(lambda x: (x, 2.0, np.arange(3)), "f32[2]")
    results = interpret(graph, [np.zeros(2, np.float32)])
    assert float(results[1]) == 2.0
    np.testing.assert_array_equal(results[2], np.arange(3))


def test_python_numbers_take_the_tensors_dtype_unless_their_kind_is_higher() -> None:
    graph = monograph.trace(lambda h, i: (h * 2, i + 1, i * 0.5, h + i), "f16[2]", "i32[2]")
    assert [str(v.dtype) for v in graph.outputs] == ["f16", "i32", "f32", "f16"]


def test_arrays_on_the_left_work() -> None:
    graph = monograph.trace(lambda x: np.ones(3, np.float32) - x, "f32[3]")
    np.testing.assert_array_equal(interpret(graph, [np.ones(3, np.float32)])[0], np.zeros(3))


def test_a_value_has_no_truth_and_only_a_known_number_of_rows() -> None:
    def branches(x: Any) -> Any:
        return x if x > 0 else -x

    with pytest.raises(TypeError, match="cond or where"):
        monograph.trace(branches, "f32[]")
    assert len(monograph.trace(lambda x: list(x), "f32[3, n]").outputs) == 3
    for type_ in ("f32[n]", "f32[]"):
        with pytest.raises(TypeError, match=r"cannot be iterated.*functional\.scan"):
            monograph.trace(lambda x: list(x), type_)


def test_ops_without_operands_need_a_graph() -> None:
    with pytest.raises(InputError, match="no graph is being built here"):
        F.iota((3,))
    graph = monograph.trace(lambda: F.iota((3,)))
    np.testing.assert_array_equal(interpret(graph)[0], np.arange(3))


def test_a_captured_value_of_another_trace_is_refused() -> None:
    kept: list[Any] = []
    monograph.trace(lambda x: kept.append(x) or x, "f32[2]")
    with pytest.raises(MonographError, match="another graph"):
        monograph.trace(lambda y: y + kept[0], "f32[2]")


def test_control_flow_may_use_outer_values() -> None:
    def program(x: Any, scale: Any) -> Any:
        grown = F.while_loop(lambda v: F.sum(v) < 100.0, lambda v: v * scale, x)
        return F.cond(F.sum(grown) > 150.0, lambda: grown - scale, lambda: grown + scale)

    graph = monograph.trace(program, "f32[2]", "f32[]")
    (result,) = interpret(graph, [np.array([1.0, 2.0], np.float32), np.float32(3.0)])
    expected = np.array([1.0, 2.0])
    while expected.sum() < 100:
        expected = expected * 3
    expected = expected - 3 if expected.sum() > 150 else expected + 3
    np.testing.assert_array_equal(result, expected)


def test_functional_has_every_registered_function() -> None:
    load_all()
    assert {name: getattr(F, name) for name in F.__all__} == functions()


def test_functional_lists_every_function_that_type_checkers_see() -> None:
    stub = ast.parse(Path(F.__file__).with_suffix(".pyi").read_text())
    imports = [each for each in stub.body if isinstance(each, ast.ImportFrom)]
    assert sorted(alias.name for each in imports for alias in each.names) == F.__all__


def test_a_function_loads_its_own_family_alone() -> None:
    program = "from monograph.functional import relu; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    loaded = done.stdout.decode().split()
    assert "monograph.ops.rectifier" in loaded
    assert "monograph.ops.spectral" not in loaded


@pytest.mark.parametrize("examples", [("f32[2]",), ("f32[2]",) * 3])
def test_an_example_is_needed_for_each_argument(examples: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="is not called with") as caught:
        monograph.trace(lambda x, y: x + y, *examples)
    assert caught.value.expected == "an example for each of (x, y)"


@pytest.mark.parametrize("use", [monograph.grad, monograph.optimize, monograph.interpret])
def test_a_function_is_not_taken_for_a_graph(use: Any) -> None:
    with pytest.raises(InputError, match="not a graph") as caught:
        use(lambda x: x)
    assert caught.value.hint is not None and "monograph.trace" in caught.value.hint


@pytest.mark.parametrize("convert", [float, int, complex])
def test_a_number_of_a_traced_value_is_refused_with_a_way_out(convert: Any) -> None:
    with pytest.raises(TypeError, match="leave float"):
        monograph.trace(lambda x: convert(F.sum(x)), "f32[3]")
