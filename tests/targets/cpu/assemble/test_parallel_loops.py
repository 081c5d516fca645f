"""Loops that do not wait for each other run side by side, and give what they give one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.errors import TimeLimitError
from monograph.ir.interpret import interpret
from monograph.program.code import ForLoop, Launch, Sections, Step, walk_steps
from tests.targets.cpu.stepping import steps_of

GENERATOR = np.random.default_rng(3)
TIME, BATCH, SIZE = 7, 3, 16


def draw(*shape: int) -> np.ndarray:
    return GENERATOR.standard_normal(shape).astype(np.float32) * 0.3


WEIGHTS = [draw(2, 4 * SIZE, SIZE), draw(2, 4 * SIZE, SIZE), draw(2, 8 * SIZE)]


def both_directions(x: Any) -> Any:
    return F.lstm(x, *WEIGHTS, direction="bidirectional")


def one_after_the_other(x: Any) -> Any:
    """Two loops of which the second one reads what the first one stacks."""
    for _ in range(2):
        x = F.scan(lambda total, v: (total + v, F.tanh(total)), x[0], x)[1]
    return x


def endless(x: Any) -> Any:
    def counted(start: Any) -> Any:
        return F.scan(lambda c, _: (c + 1.0, ()), start, length=2**40)[0]

    return counted(x), counted(x * 2.0)


def sections(steps: list[Step]) -> list[Sections]:
    return [step for step in steps if isinstance(step, Sections)]


@pytest.mark.parametrize("batch", [str(BATCH), "batch"])
def test_the_directions_of_a_layer_are_sections(batch: str) -> None:
    steps = steps_of(both_directions, f"f32[time, {batch}, {SIZE}]").steps
    (found,) = sections(steps)
    assert [[type(step) for step in part] for part in found.parts] == [[ForLoop], [ForLoop]]
    assert not any(isinstance(step, ForLoop) for step in steps)


def test_a_loop_that_reads_what_another_one_made_waits_for_it() -> None:
    steps = steps_of(one_after_the_other, "f32[9, 4]").steps
    assert [type(step) for step in steps if not isinstance(step, Launch)].count(ForLoop) == 2
    assert sections(steps) == []


def test_steps_are_counted_as_before() -> None:
    builder = steps_of(both_directions, f"f32[{TIME}, {BATCH}, {SIZE}]")
    assert builder.ends == sorted(builder.ends)
    assert builder.ends[-1] == len(builder.steps)


@pytest.mark.parametrize("sizes", [f"{TIME}, {BATCH}", "time, batch"])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_sections_give_what_the_interpreter_gives(sizes: str, threads: int) -> None:
    graph = monograph.trace(both_directions, f"f32[{sizes}, {SIZE}]")
    program = monograph.compile(graph, threads=threads, variants=0)
    for _ in range(20):
        x = draw(TIME, BATCH, SIZE)
        for got, want in zip(program(x), interpret(graph, [x]), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_large_steps_are_shared_among_many_threads_instead() -> None:
    size = 256
    weights = [draw(2, 4 * size, 8), draw(2, 4 * size, size), draw(2, 8 * size)]

    def layer(x: Any) -> Any:
        return F.lstm(x, *weights, direction="bidirectional")

    x = draw(3, 24, 8)
    graph = monograph.trace(layer, "f32[3, 24, 8]")
    expected = interpret(graph, [x])
    for threads in (2, 4):
        for got, want in zip(monograph.compile(graph, threads=threads)(x), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_sections_are_saved(tmp_path: Path) -> None:
    x = draw(TIME, BATCH, SIZE)
    program = monograph.compile(both_directions, f"f32[time, batch, {SIZE}]", variants=0)
    program.save(tmp_path / "layer.mono")
    loaded = monograph.load(tmp_path / "layer.mono")
    for got, want in zip(loaded(x), program(x), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("threads", [1, 2])
def test_sections_are_broken_off(threads: int) -> None:
    assert len(sections(steps_of(endless, "f32[4]").steps)) == 1
    program = monograph.compile(endless, "f32[4]", threads=threads)
    with pytest.raises(TimeLimitError):
        program(np.ones(4, np.float32), timeout=0.05)


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("sizes", ["5, 3", "time, batch"])
def test_input_products_are_made_before_the_loops(kind: str, sizes: str) -> None:
    gates = {"rnn": 1, "gru": 3, "lstm": 4}[kind]
    options = {"linear_before_reset": True} if kind == "gru" else {}
    # Of a width by which these products are told from those with the state.
    weights = [draw(2, gates * SIZE, 24), draw(2, gates * SIZE, SIZE), draw(2, 2 * gates * SIZE)]

    def layer(x: Any) -> Any:
        return getattr(F, kind)(x, *weights, direction="bidirectional", **options)

    builder = steps_of(layer, f"f32[{sizes}, 24]")
    bodies = [step.body for step in walk_steps(tuple(builder.steps)) if isinstance(step, ForLoop)]
    assert len(bodies) == 2
    for body in bodies:
        launches = [step for step in body if isinstance(step, Launch)]
        assert len(launches) == (1 if kind == "rnn" else 2)
        read = {slot for step in launches for slot in step.slots[: -step.outputs]}
        assert all(24 not in builder.slots[slot].shape for slot in read)
