"""A program that was stored and read runs as the one that was compiled, without the compiler."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

from monograph.compiler import Options, compile_graph
from monograph.errors import InputError
from monograph.frontends.trace import trace
from monograph.ir.contents import snapshot
from monograph.ir.dims import Symbol
from monograph.ir.graph import Graph
from monograph.ir.tree import flatten, unflatten
from monograph.ops import shape
from monograph.program.code import Code, SlotKind, Step, walk_steps
from monograph.runtime.bundle import Bundle
from monograph.runtime.container import ArtifactError
from monograph.runtime.cpu.native import Native
from monograph.runtime.storage import (
    PROGRAM,
    read_code,
    read_outputs,
    read_signature,
    read_structure,
    write_code,
    write_signature,
    write_structure,
)
from tests.runtime.programs import CASES, Case, layered, let_interpret, same, symbolic

NATIVE = {name: case for name, case in CASES.items() if name != "strings"}
cases = pytest.mark.parametrize("case", NATIVE.values(), ids=NATIVE)


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    let_interpret(monkeypatch)


def code_of(graph: Graph) -> Code:
    code = compile_graph(graph, Options(cache=False)).code
    assert code is not None
    return code


def stored(code: Code, model: Graph | None = None) -> Bundle:
    parts = write_code(code, model)
    bundle = Bundle({}, parts.blobs, parts.arrays)
    bundle.check()
    return bundle


def altered(bundle: Bundle, **changes: Any) -> Bundle:
    """The bundle with other values in its program."""
    document = {**json.loads(bundle.blobs[PROGRAM]), **changes}
    return Bundle({}, {**bundle.blobs, PROGRAM: json.dumps(document).encode()}, bundle.arrays)


@cases
def test_a_program_runs_after_storing_as_before(case: Case) -> None:
    graph = case.graph()
    code = code_of(graph)
    again = Native(read_code(stored(code)), graph)
    for inputs in case.inputs:
        assert same(again(inputs), Native(code, graph)(inputs))


@cases
def test_slots_steps_and_result_codes_come_back_equal(case: Case) -> None:
    code = code_of(case.graph())
    again = read_code(stored(code))
    assert again.slots == code.slots
    assert again.steps == code.steps
    assert again.sizes == code.sizes
    assert again.failures == code.failures
    assert again.object == code.object


def test_symbols_keep_their_ranges() -> None:
    again = read_code(stored(code_of(symbolic())))
    assert set(again.sizes) == {Symbol("batch", 2, 64), Symbol("n")}


def test_weights_of_the_model_at_hand_are_not_stored() -> None:
    model = layered()
    snapshot(model.walk())  # or else the program has copies
    code = code_of(model)
    with_model, without = stored(code, model), stored(code)
    own = [each for each in code.weights if each.shape == (5, 8 * 49)]
    assert len(own) == 1
    assert without.nbytes - with_model.nbytes >= own[0].array().nbytes
    assert any(each is own[0] for each in read_code(with_model, model).weights)


def test_a_node_for_the_interpreter_keeps_its_place_in_the_source() -> None:
    model = CASES["interpreted node"].graph()
    code = code_of(model)
    (node,) = code.fallbacks
    assert node.location is not None
    assert read_code(stored(code)).fallbacks[0].location == node.location
    moved = model.clone()
    for each in moved.walk():
        if each.location is not None:
            each.location = replace(each.location, line=each.location.line + 100)
    (again,) = read_code(stored(code, model), moved).fallbacks
    assert again.location == replace(node.location, line=node.location.line + 100)


def test_a_failure_is_told_as_before() -> None:
    graph = trace(lambda x, k: x[k], "f32[4]", "i64[3]")
    again = Native(read_code(stored(code_of(graph))), graph)
    with pytest.raises(Exception, match="out of range") as raised:
        again([np.zeros(4, np.float32), np.array([0, 1, 9])])
    assert "take" in str(raised.value) or "gather" in str(raised.value)


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return stored(code_of(layered()))


class TestUnreadable:
    """A bundle that is whole may still not be a program of this version."""

    @pytest.mark.parametrize(
        "changes",
        [
            {"steps": [{"step": "Jump"}]},
            {"steps": [{"step": "Copy", "source": 0, "target": 1}]},
            {"steps": [{"step": "Copy", "source": 0, "target": True, "nbytes": 4}]},
            {"steps": [{"step": "Copy", "source": 0, "target": 1, "nbytes": "4*unknown"}]},
            {"steps": 5},
            {"failures": [10_000]},
            {"failures": [-1]},
            {"symbols": [["batch", 1]]},
            {"symbols": [["ba tch", 1, None]]},
            {"slots": [{"kind": "input"}]},
            {"weights": [{"array": "elsewhere"}]},
            {"weights": [{"model": 3}]},
            {"weights": [3]},
            {"fallbacks": [{"graph": "graph @f() -> () { return }", "weights": {}}]},
        ],
        ids=str,
    )
    def test_what_does_not_fit_is_an_error(self, bundle: Bundle, changes: dict[str, Any]) -> None:
        with pytest.raises(ArtifactError, match="cannot be read"):
            read_code(altered(bundle, **changes))

    def test_a_missing_part_is_an_error(self, bundle: Bundle) -> None:
        for name in bundle.blobs:
            blobs = {other: blob for other, blob in bundle.blobs.items() if other != name}
            with pytest.raises(ArtifactError, match=r"cannot be read"):
                read_code(Bundle({}, blobs, bundle.arrays))


def test_a_signature_comes_back() -> None:
    graph = CASES["updates"].graph()
    graph.donated = {0}
    outputs = [(value.name, str(value.type)) for value in graph.outputs]
    stored = write_signature(graph, outputs)
    assert read_outputs(stored) == tuple(outputs)
    again = read_signature(stored)
    assert [repr(value) for value in again.inputs] == [repr(value) for value in graph.inputs]
    assert (again.updates, again.donated) == ({1: 1}, {0})


@pytest.mark.parametrize(
    "tree",
    [1, None, (), (1, [2, {"b": 3, "a": None}]), {1: 2, False: 3, "x": (4,), None: 5}, [[], {}]],
    ids=str,
)
def test_a_structure_comes_back(tree: Any) -> None:
    leaves, structure = flatten(tree)
    again = read_structure(json.loads(json.dumps(write_structure(structure))))
    assert again == structure
    assert unflatten(again, leaves) == tree


def test_a_key_that_json_does_not_have_is_refused() -> None:
    with pytest.raises(InputError, match="key of a dict"):
        write_structure(flatten({(1, 2): 3})[1])


def test_a_call_of_a_devices_library_comes_back_equal() -> None:
    code = library_code()
    assert read_code(stored(code)).steps == code.steps


def library_code() -> Code:
    """A product that a GPU's library computes."""
    graph = trace(lambda x, y: x @ y, "f32[64, 64]", "f32[64, 64]")
    program = compile_graph(graph, Options(cache=False, target="gpu:sm_90")).program
    assert program is not None
    return program


def test_every_kind_of_step_is_stored_by_some_case() -> None:
    codes = [*(code_of(case.graph()) for case in NATIVE.values()), library_code()]
    found = {type(step).__name__ for code in codes for step in walk_steps(code.steps)}
    assert found == {each.__name__ for each in get_args(Step)}


def test_every_kind_of_slot_is_stored_by_some_case() -> None:
    kinds = {slot.kind for case in NATIVE.values() for slot in code_of(case.graph()).slots}
    assert kinds == set(SlotKind)


def test_a_weight_computed_of_something_else_is_refused() -> None:
    array = np.ones((200, 300), np.float32)
    model = trace(
        lambda x: x + shape.transpose(x.graph.add_weight("w", array), (1, 0)), "f32[300, 200]"
    )
    snapshot(model.walk())  # or else the program has a copy
    bundle = stored(code_of(model), model)
    (weight,) = json.loads(bundle.blobs[PROGRAM])["weights"]
    assert weight["of"] == [{"model": 0}]
    for of in ([], [{"model": 0}, {"model": 0}], [weight]):
        with pytest.raises(ArtifactError, match="not computed of"):
            read_code(altered(bundle, weights=[weight | {"of": of}]), model)
