"""Runs that need not wait for each other: who has which memory, and that all of them are made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.ir.interpret import interpret
from monograph.program.code import ParallelFor
from monograph.program.liveness import arena_requests, copies_of
from monograph.runtime.compiled import Executable

Array = np.ndarray[Any, Any]


def each_row(x: Any, y: Any) -> Any:
    """For every matrix of ``x`` two products, one after the other: a value lies between them."""

    def step(matrix: Any) -> Any:
        return F.exp(F.matmul(F.matmul(matrix, y), y) * 0.01)

    return F.scan(lambda carry, matrix: (carry, step(matrix)), (), x)[1]


def compiled(times: int | str, threads: int) -> tuple[Executable, Any]:
    graph = monograph.trace(each_row, f"f32[{times}, 24, 24]", "f32[24, 24]")
    return compile_graph(graph, Options(cache=False, threads=threads)), graph


def draw(times: int) -> list[Array]:
    generator = np.random.default_rng(times)
    return [generator.normal(size=s).astype(np.float32) for s in ((times, 24, 24), (24, 24))]


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("times", [1, 2, 5, 9])
def test_every_run_is_made_once_on_any_number_of_threads(times: int, threads: int) -> None:
    run, graph = compiled(times, threads)
    for _ in range(3):
        (got,), (want,) = run.run(draw(times)), interpret(graph, draw(times))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_any_number_of_runs_may_be_asked_for() -> None:
    run, graph = compiled("times", 2)
    for times in (1, 4, 7, 2, 30):
        (got,), (want,) = run.run(draw(times)), interpret(graph, draw(times))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_the_same_bits_on_any_number_of_threads() -> None:
    one, many = compiled(5, 1)[0], compiled(5, 3)[0]
    np.testing.assert_array_equal(one.run(draw(5))[0], many.run(draw(5))[0])


def test_what_only_a_run_uses_is_there_once_a_thread() -> None:
    run, _ = compiled(5, 3)
    assert run.program is not None
    (step,) = [each for each in run.program.steps if isinstance(each, ParallelFor)]
    assert step.own
    outside = {request.slot for request in arena_requests(run.program)}
    assert step.memory in outside and not outside & set(step.own)
    (copies,) = copies_of(run.program, {}, 3).values()
    assert copies.count == 3
    assert copies.nbytes >= 3 * copies.plan.peak > 0
    assert copies_of(run.program, {}, 64)[step.memory].count == 5


def test_values_of_one_run_take_turns_in_its_memory() -> None:
    def deep(x: Any, y: Any) -> Any:
        def step(matrix: Any) -> Any:
            for _ in range(8):
                matrix = F.matmul(matrix, y) * 0.1
            return matrix

        return F.scan(lambda carry, matrix: (carry, step(matrix)), (), x)[1]

    graph = monograph.trace(deep, "f32[4, 24, 24]", "f32[24, 24]")
    run = compile_graph(graph, Options(cache=False, threads=1))
    assert run.program is not None
    (copies,) = copies_of(run.program, {}, 1).values()
    assert copies.plan.peak < copies.plan.requested
    (got,), (want,) = run.run(draw(4)), interpret(graph, draw(4))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_run_that_may_fail_waits_for_the_one_before() -> None:
    def pick(x: Any, at: Any) -> Any:
        return F.scan(lambda carry, k: (carry, F.take(x, k, axis=0)), (), at)[1]

    graph = monograph.trace(pick, "f32[4, 8]", "i64[3, 2]")
    run = compile_graph(graph, Options(cache=False))
    assert run.program is not None
    assert not any(isinstance(step, ParallelFor) for step in run.program.steps)
