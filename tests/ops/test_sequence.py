"""Sequences and optionals: what their type rules and evaluations refuse, and how types join."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monograph.errors import EvaluationError, MonographError, TypeRuleError
from monograph.frontends.trace import trace
from monograph.ir.build import apply
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from monograph.ir.types import SequenceType, TensorType, UnrankedType, f32, i64
from monograph.ops import sequence as ops

PAIR = (np.zeros(2, np.float32), np.ones(3, np.float32))


def pair(a: Any, b: Any) -> Any:
    return ops.sequence_of([a, b])


def test_elements_of_different_shapes_share_their_dtype() -> None:
    graph = Graph()
    a, b = graph.add_input("a", "f32[2]"), graph.add_input("b", "f32[3]")
    with graph.as_current():
        assert pair(a, a).type == SequenceType(TensorType(f32, (2,)))
        assert pair(a, b).type == SequenceType(UnrankedType(f32))


def test_elements_of_two_dtypes_are_refused() -> None:
    with pytest.raises(TypeRuleError, match="no type in common"):
        trace(pair, "f32[2]", "i64[2]")


@pytest.mark.parametrize("position", [2, -3])
@pytest.mark.parametrize("op", [ops.SequenceAt(), ops.SequenceErase()])
def test_a_position_outside_is_an_error(op: Any, position: int) -> None:
    def program(a: Any, b: Any, position: Any) -> Any:
        made = apply(op, pair(a, b), position)
        return made if op.name == "sequence_at" else apply(ops.SequenceLength(), made)

    graph = trace(program, "f32[2]", "f32[2]", "i64[]")
    with pytest.raises(EvaluationError, match="the position is outside the sequence"):
        interpret(graph, [PAIR[0], PAIR[0], np.array(position)])


def test_an_element_may_be_inserted_at_the_very_end() -> None:
    def program(a: Any, b: Any) -> Any:
        return apply(ops.SequenceAt(), apply(ops.SequenceInsert(), pair(a, a), b, 2), 2)

    assert interpret(trace(program, "f32[2]", "f32[2]"), [PAIR[0], PAIR[0] + 5])[0][0] == 5


def test_a_tensor_is_no_sequence() -> None:
    with pytest.raises(TypeRuleError, match="the operand is no sequence"):
        trace(lambda x: apply(ops.SequenceLength(), x), "f32[2]")


def test_a_declared_type_is_held_against_the_value() -> None:
    def program(a: Any, b: Any, position: Any) -> Any:
        element = apply(ops.SequenceAt(), pair(a, b), position)
        return ops.declare(element, TensorType(f32, (3,)))

    graph = trace(program, "f32[2]", "f32[3]", "i64[]")
    assert interpret(graph, [*PAIR, np.array(1)])[0].shape == (3,)
    with pytest.raises(MonographError, match="wrong size"):
        interpret(graph, [*PAIR, np.array(0)])


def test_a_type_that_cannot_be_is_refused() -> None:
    for type_ in (TensorType(i64, (2,)), TensorType(f32, (3,)), TensorType(f32, (2, 1))):
        with pytest.raises(TypeRuleError, match="cannot have that type"):
            trace(lambda x, type_=type_: ops.declare(x, type_), "f32[2]")


def test_an_empty_sequence_is_joined_only_if_its_elements_are_known() -> None:
    def join(operation: ops.ConcatFromSequence) -> Any:
        return lambda: apply(operation, apply(ops.SequenceEmpty(f32)))

    with pytest.raises(EvaluationError, match="the sequence is empty"):
        interpret(trace(join(ops.ConcatFromSequence(0, 0))))
    known = ops.ConcatFromSequence(1, 0, True, (4, 5), f32)
    assert interpret(trace(join(known)))[0].shape == (4, 0, 5)


def test_nothing_comes_out_of_an_empty_optional() -> None:
    def program(op: Any) -> Any:
        return lambda: apply(op, apply(ops.Optional(TensorType(f32, (2,)))))

    assert not interpret(trace(program(ops.OptionalHasElement())))[0]
    with pytest.raises(EvaluationError, match="the optional is empty"):
        interpret(trace(program(ops.OptionalGetElement())))


def test_parts_must_add_up() -> None:
    graph = Graph()
    x, split = graph.add_input("x", "f32[5]"), graph.add_input("split", "i64[2]")
    graph.set_outputs([apply(ops.SplitToSequence(), x, split)])
    assert [len(part) for part in interpret(graph, [np.zeros(5, np.float32), [2, 3]])[0]] == [2, 3]
    with pytest.raises(EvaluationError, match="do not add up"):
        interpret(graph, [np.zeros(5, np.float32), [2, 2]])
