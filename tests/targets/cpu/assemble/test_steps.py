"""The steps of a program: where values lie, which kernels are launched, and what is made once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.frontends.trace import trace
from monograph.ir.interpret import interpret
from monograph.program.code import (
    Alternate,
    Copy,
    ForLoop,
    Interpret,
    Launch,
    ParallelFor,
    SlotKind,
    Step,
    WhileLoop,
)
from monograph.targets.cpu.assemble.steps import StepBuilder
from tests.targets.cpu.stepping import steps_of

WEIGHT = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)


def launches(steps: list[Step]) -> list[Launch]:
    return [step for step in steps if isinstance(step, Launch)]


def kinds(builder: StepBuilder) -> list[SlotKind]:
    return [slot.kind for slot in builder.slots]


# Slots.


def test_a_result_is_written_where_it_is_wanted() -> None:
    builder = steps_of(lambda x: F.exp(x) + 1.0, "f32[8]")
    assert kinds(builder) == [SlotKind.INPUT, SlotKind.OUTPUT]
    (launch,) = launches(builder.steps)
    assert launch.slots == (0, 1)


def test_a_view_shares_the_slot_of_what_it_is_a_view_of() -> None:
    def viewed(x: Any, i: Any) -> Any:
        made = F.softmax(x, -1)
        return F.take(F.reshape(made, (32,)), i, axis=0) + F.sum(made)

    builder = steps_of(viewed, "f32[4, 8]", "i64[4]", fusion=False)
    views = [value for value in builder.slot_of if value.shape == (32,)]
    assert views
    for view in views:
        assert view.producer is not None
        assert builder.slot_of[view] == builder.slot_of[view.producer.operands[0]]


def test_an_output_that_is_an_input_is_copied() -> None:
    builder = steps_of(lambda x: (x, x), "f32[8]")
    assert builder.steps == [Copy(0, 1, 32), Copy(0, 2, 32)]


def test_a_value_that_is_given_twice_is_computed_once() -> None:
    def twice(x: Any) -> Any:
        made = F.exp(x)
        return made, made

    builder = steps_of(twice, "f32[8]")
    assert len(launches(builder.steps)) == 1
    assert builder.steps[-1] == Copy(1, 2, 32)


def test_a_view_of_a_result_is_copied_to_its_own_output() -> None:
    def both(x: Any) -> Any:
        made = F.exp(x)
        return made, F.reshape(made, (8,))

    builder = steps_of(both, "f32[2, 4]")
    assert [slot.kind for slot in builder.slots] == [
        SlotKind.INPUT,
        SlotKind.OUTPUT,
        SlotKind.OUTPUT,
    ]
    outputs = {slot for step in launches(builder.steps) for slot in step.slots[-step.outputs :]}
    outputs |= {step.target for step in builder.steps if isinstance(step, Copy)}
    assert outputs == {1, 2}


def test_what_may_be_overwritten_is_said() -> None:
    builder = steps_of(lambda x: F.exp(F.flip(x, 0)) @ x, "f32[8, 8]")
    assert launches(builder.steps)[0].in_place == ()
    builder = steps_of(lambda x, y: x * y + 1.0, "f32[8, 8]", "f32[8, 8]")
    assert launches(builder.steps)[0].in_place == (0, 1)


def test_an_input_that_is_read_in_another_place_may_not_be_overwritten() -> None:
    builder = steps_of(lambda x, y: x + F.transpose(x, (1, 0)) + y, "f32[8, 8]", "f32[8, 8]")
    (launch,) = launches(builder.steps)
    assert launch.in_place == (1,)


# Kernels.


def test_equal_layers_share_their_kernels() -> None:
    def layers(x: Any) -> Any:
        for _ in range(6):
            x = F.softmax(F.softmax(x, 1), 0)
        return x

    builder = steps_of(layers, "f32[32, 32]")
    assert len(launches(builder.steps)) == 12
    assert len(builder.kernels) == 2


def test_layers_of_other_sizes_do_not() -> None:
    def layers(x: Any, y: Any) -> Any:
        return F.softmax(x, -1), F.softmax(y, -1)

    assert len(steps_of(layers, "f32[32, 32]", "f32[32, 33]").kernels) == 2


def test_without_fusion_every_node_is_launched() -> None:
    def function(x: Any) -> Any:
        return F.tanh(F.exp(x) + x)

    assert len(launches(steps_of(function, "f32[8]", fusion=False).steps)) == 3
    assert len(launches(steps_of(function, "f32[8]").steps)) == 1


def test_a_long_row_takes_two_launches() -> None:
    first, second = launches(steps_of(lambda x: F.sum(x) * 2.0, "f32[1000000]").steps)
    assert first.slots[-1] == second.slots[0]
    assert first.extent == 62
    assert second.extent == 1


# Weights.


def test_packed_weights_are_prepared_once() -> None:
    builder = steps_of(lambda x: F.relu(x @ WEIGHT), "f32[64, 64]")
    (pack,) = launches(builder.prepare)
    assert builder.slots[pack.slots[-1]].kind is SlotKind.PREPARED
    assert [builder.slots[slot].kind for slot in pack.slots[:-1]] == [SlotKind.WEIGHT]
    assert all(SlotKind.WEIGHT not in _kinds_of(builder, step) for step in launches(builder.steps))


def _kinds_of(builder: StepBuilder, launch: Launch) -> set[SlotKind]:
    return {builder.slots[slot].kind for slot in launch.slots}


def test_a_weight_that_is_used_twice_is_packed_once() -> None:
    def twice(x: Any) -> Any:
        return F.relu(F.relu(x @ WEIGHT) @ WEIGHT)

    builder = steps_of(twice, "f32[64, 64]")
    assert len(builder.prepare) == 1
    assert kinds(builder).count(SlotKind.PREPARED) == 1


def test_what_is_not_a_weight_is_packed_within_the_product() -> None:
    builder = steps_of(lambda x, w: F.relu(x @ w), "f32[64, 512]", "f32[512, 64]")
    assert builder.prepare == []
    assert len(launches(builder.steps)) == 1


def test_what_many_rows_read_is_packed_once_in_each_call() -> None:
    builder = steps_of(lambda x, w: F.relu(x @ w), "f32[640, 512]", "f32[512, 64]")
    assert builder.prepare == []
    assert len(launches(builder.steps)) == 2


# Control flow and the interpreter.


def test_a_loop_keeps_its_carry_in_its_result() -> None:
    def loop(x: Any) -> Any:
        return F.while_loop(lambda v: F.sum(v) < 100.0, lambda v: v * 2.0, x)

    builder = steps_of(loop, "f32[8]")
    first, repeat = builder.steps
    assert first == Copy(0, 1, 32)
    assert isinstance(repeat, WhileLoop)
    handed_on = repeat.body[-1]
    assert isinstance(handed_on, Copy) and handed_on.target == 1


def test_what_a_scan_stacks_is_written_in_its_place() -> None:
    def running(x: Any) -> Any:
        return F.scan(lambda c, v: (c + v, c * v), F.zeros(()), x)

    builder = steps_of(running, "f32[8]")
    (count,) = [step for step in builder.steps if isinstance(step, ForLoop)]
    assert count.times == 8
    assert SlotKind.VIEW in kinds(builder)


def test_runs_that_carry_nothing_are_spread_over_threads() -> None:
    def rows(x: Any) -> Any:
        return F.scan(lambda c, v: (c, v - F.max(F.cumsum(v, 0), 0)), (), x)[1]

    builder = steps_of(rows, "f32[8, 30]")
    (spread,) = [step for step in builder.steps if isinstance(step, ParallelFor)]
    assert spread.times == 8
    assert {builder.slots[slot].kind for slot in spread.own} == {SlotKind.ARENA}


def test_a_counted_loop_hands_its_states_on_without_a_copy() -> None:
    def decayed(start: Any, xs: Any) -> Any:
        return F.scan(lambda c, v: (c * 0.5 + v, ()), start, xs)[0]

    builder = steps_of(decayed, "f32[100]", "f32[time, 100]")
    (loop,) = [step for step in builder.steps if isinstance(step, ForLoop)]
    kinds = [type(step) for step in loop.body]
    assert kinds.count(Alternate) == 2
    assert Copy not in kinds


@pytest.mark.parametrize("size", ["0", "1", "2", "3", "time"])
def test_the_last_state_is_where_it_is_wanted(size: str) -> None:
    def exchanged(first: Any, second: Any, xs: Any) -> Any:
        return F.scan(lambda c, v: ((c[1], c[0] * 0.5 + v), c[0]), (first, second), xs)

    graph = trace(exchanged, "f32[100]", "f32[100]", f"f32[{size}, 100]")
    program = monograph.compile(graph, variants=0)
    start = [np.full(100, value, np.float32) for value in (1.0, 3.0)]
    for steps in (1, 2, 3, 4) if size == "time" else (int(size),):
        arrays = [*start, np.arange(100 * steps, dtype=np.float32).reshape(steps, 100)]
        for got, want in zip(program(*arrays), interpret(graph, arrays), strict=True):
            np.testing.assert_array_equal(got, want)


def test_what_has_no_kernel_runs_in_the_interpreter() -> None:
    builder = steps_of(lambda x: F.exp(F.prod(x, 0)), "c64[3, 3]")
    steps = [step for step in builder.steps if isinstance(step, Interpret)]
    assert [builder.fallbacks[step.call].op.name for step in steps] == ["prod"]


def test_nothing_is_launched_for_an_empty_result() -> None:
    assert steps_of(lambda x: F.exp(x), "f32[0, 4]").steps == []


def test_nothing_is_launched_for_the_order_of_no_columns() -> None:
    assert steps_of(lambda x: F.argsort(x, 0), "i64[m, 0]").steps == []


def test_a_result_in_another_shape_is_written_where_it_is_wanted() -> None:
    builder = steps_of(lambda x: F.reshape(F.transpose(x, (1, 0, 2)), (12, 4)), "f32[3, 4, 4]")
    assert [type(step) for step in builder.steps] == [Launch]


def test_a_result_that_is_wanted_in_two_shapes_is_copied_once() -> None:
    def both(x: Any) -> Any:
        found = F.exp(x)
        return F.reshape(found, (12,)), F.reshape(found, (4, 3))

    builder = steps_of(both, "f32[3, 4]")
    assert [type(step) for step in builder.steps] == [Launch, Copy]
