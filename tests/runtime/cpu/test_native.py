"""Calling a compiled graph: what it takes, what it refuses, and what it leaves behind."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monograph.compiler import Options, compile_graph
from monograph.errors import EvaluationError, InputError, MonographError
from monograph.frontends.trace import trace
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from monograph.ops import (
    control,
    data,
    elementwise,
    index,
    linalg,
    math,
    reduce,
    shape,
    slicing,
)
from monograph.program.layouts import MAX_LAYOUTS
from monograph.runtime.compiled import Executable
from monograph.runtime.cpu import interrupts
from monograph.runtime.cpu import native as executable_module
from monograph.runtime.cpu.quick_calls import MOST_KNOWN
from tests.ops.opaque import opaque
from tests.runtime.together import on_threads

Array = np.ndarray[Any, Any]
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def compiled(function: Callable[..., Any], *examples: Any, **options: Any) -> Executable:
    graph = function if isinstance(function, Graph) else trace(function, *examples)
    return compile_graph(graph, Options(cache=False, **options))


def assert_as_interpreted(function: Callable[..., Any], *arrays: Any, **options: Any) -> None:
    """Compiled and interpreted, a function gives the same bits."""
    graph = trace(function, *arrays)
    for fusion in (True, False):
        got = compiled(graph, fusion=fusion, **options).run(list(arrays))
        for ours, expected in zip(got, interpret(graph, list(arrays)), strict=True):
            assert ours.dtype == expected.dtype and ours.shape == expected.shape
            np.testing.assert_array_equal(ours, expected)


# Inputs and outputs.


def test_inputs_may_be_strided_reversed_or_read_only() -> None:
    run = compiled(lambda x: x * 2.0, "f32[3, 4]")
    wide = np.arange(48, dtype=np.float32).reshape(6, 8)
    for x in (wide[::2, ::2], wide[:3, :4][::-1], np.asfortranarray(X), X.T.copy().T):
        np.testing.assert_array_equal(run(x)[0], x * 2)
    frozen = X.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(run(frozen)[0], X * 2)


def test_inputs_of_another_byte_order_are_converted() -> None:
    run = compiled(lambda x: x + 1.0, "f32[3]")
    swapped = np.array([1.0, 2.0, 3.0], np.dtype(np.float32).newbyteorder())
    np.testing.assert_array_equal(run(swapped)[0], [2.0, 3.0, 4.0])


def test_inputs_may_be_given_by_name() -> None:
    graph = trace(lambda x, y: x - y, "f32[2]", "f32[2]")
    first, second = (value.name for value in graph.inputs)
    a, b = np.float32([5, 6]), np.float32([1, 2])
    np.testing.assert_array_equal(compiled(graph)(**{second: b, first: a})[0], a - b)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "takes 1 inputs; 0 were given"),
        ([X, X], "takes 1 inputs; 2 were given"),
        ([X.astype(np.float64)], "wrong dtype"),
        ([X[0]], "wrong rank"),
        ([X[:2]], "wrong size in dimension 0"),
    ],
)
def test_an_input_that_does_not_fit_is_named(given: list[Array], words: str) -> None:
    run = compiled(lambda x: x + 1.0, "f32[3, 4]")
    with pytest.raises(InputError, match=words) as caught:
        run(*given)
    assert "%x" in str(caught.value)


def test_outputs_may_be_inputs_constants_and_one_value_twice() -> None:
    def function(x: Any, y: Any) -> Any:
        total = x + y
        return [x, total, total, data.ones((2,)), y, shape.reshape(total, (4, 3))]

    assert_as_interpreted(function, X, X + 1)


def test_outputs_do_not_share_memory_with_inputs_or_each_other() -> None:
    run = compiled(lambda x: [x, x, shape.reshape(x, (12,))], X)
    x = X.copy()
    outputs = run(x)
    x[...] = -1
    outputs[0][...] = 7
    np.testing.assert_array_equal(outputs[1], X)
    np.testing.assert_array_equal(outputs[2], X.reshape(-1))


def test_an_output_that_is_still_held_is_not_overwritten() -> None:
    run = compiled(lambda x: x + 1.0, X)
    held = [run(X * k)[0] for k in range(5)]
    for k, output in enumerate(held):
        np.testing.assert_array_equal(output, X * k + 1)


def test_graphs_without_inputs_and_with_unused_ones() -> None:
    assert_as_interpreted(lambda: data.iota((5,)) + 1)
    assert_as_interpreted(lambda x, unused: x + 1.0, X, np.int64(3))


def test_views_of_views_read_the_right_elements() -> None:
    def function(x: Any) -> Any:
        turned = shape.transpose(shape.reshape(x, (2, 6)), (1, 0))
        cut = slicing.slice(turned, [1], [5], axes=[0])
        again = shape.reshape(shape.transpose(cut, (1, 0)), (8,))
        return [again, slicing.flip(again, 0), shape.reshape(slicing.flip(turned, 0), (3, 4))]

    assert_as_interpreted(function, X)


def test_a_buffer_is_not_overwritten_while_others_of_its_elements_are_needed() -> None:
    """Each step reads another place than it writes, so none may work in place."""

    def function(x: Any) -> Any:
        for _ in range(6):
            x = slicing.flip(x, 0) + slicing.flip(x, 1) * 0.5
            x = shape.reshape(shape.transpose(x, (1, 0)), (3, 4)) - 1.0
        return x

    assert_as_interpreted(function, X)
    assert_as_interpreted(function, X, threads=2)


# Edges.


@pytest.mark.parametrize("size", [(0, 4), (3, 0), (0, 0)])
def test_empty_tensors(size: tuple[int, int]) -> None:
    x = np.zeros(size, np.float32)

    def function(x: Any) -> Any:
        return [
            math.exp(x) + 1.0,
            reduce.sum(x, axis=0),
            reduce.sum(x, axis=1),
            reduce.prod(x),
            shape.transpose(x, (1, 0)),
            linalg.matmul(x, shape.transpose(x, (1, 0))),
            linalg.matmul(shape.transpose(x, (1, 0)), x),
            x - reduce.sum(x, axis=1, keepdims=True),
        ]

    assert_as_interpreted(function, x)


def test_a_sum_and_an_empty_result_can_share_a_kernel() -> None:
    def function(x: Any) -> Any:
        total = reduce.sum(x, axis=1, keepdims=True)
        return [total, x * total]

    assert_as_interpreted(function, np.zeros((3, 0), np.float32))


def test_reductions_of_one_element_beside_others() -> None:
    def function(x: Any) -> Any:
        any_of_one = reduce.any(elementwise.less(x, 2.0))
        row = shape.expand(x, (1, 5))
        return [any_of_one, reduce.sum(row), reduce.argmax(x, 0), reduce.max(x), row * 2.0]

    assert_as_interpreted(function, np.float32([[1.5]]))


def test_transposes_may_count_axes_from_the_end() -> None:
    assert_as_interpreted(lambda x: shape.Transpose((-1, -2))(x) + 1.0, X)


def test_a_node_for_the_interpreter_sees_a_view_in_its_own_shape() -> None:
    def function(x: Any) -> Any:
        return opaque(shape.unsqueeze(x * 2.0, [0]))

    executable = compiled(function, X)
    assert executable.report.fallbacks
    assert_as_interpreted(function, X)


# Errors while running.


def test_an_index_out_of_range_is_an_error_and_the_next_call_is_right() -> None:
    run = compiled(lambda x, i: index.take(x, i, axis=0), X, np.array([0]))
    for wrong in (3, -4, 2**40):
        with pytest.raises(EvaluationError, match="out of range"):
            run(X, np.array([wrong]))
        np.testing.assert_array_equal(run(X, np.array([-1]))[0], X[-1:])


def test_a_loop_that_goes_on_beyond_its_limit_is_an_error_that_says_so() -> None:
    def function(bound: Any) -> Any:
        return control.while_loop(
            lambda i: elementwise.less(i, bound),
            lambda i: i + 1,
            data.zeros((), "i64"),
            limit=9,
        )

    run = compiled(function, np.int64(4))
    assert run(np.int64(9))[0] == 9
    with pytest.raises(EvaluationError, match="while"):
        run(np.int64(10))


def test_control_flow_inside_control_flow() -> None:
    def function(x: Any, n: Any) -> Any:
        def body(carry: Any) -> Any:
            i, total = carry
            even = elementwise.equal(elementwise.remainder(i, 2), 0)
            changed = control.cond(
                even,
                lambda: control.while_loop(
                    lambda c: elementwise.less(c[0], i),
                    lambda c: (c[0] + 1, c[1] * 1.5),
                    (data.zeros((), "i64"), total),
                )[1],
                lambda: total - x,
            )
            return i + 1, changed

        start = (data.zeros((), "i64"), x + 1.0)
        return control.while_loop(lambda c: elementwise.less(c[0], n), body, start)[1]

    for count in (0, 1, 5):
        assert_as_interpreted(function, X, np.int64(count))


# Threads and memory.


def test_eight_threads_call_one_executable() -> None:
    run = compiled(lambda x: reduce.sum(math.tanh(x) * x, axis=1) + reduce.max(x), "f32[64, 257]")
    inputs = [np.random.default_rng(k).normal(size=(64, 257)).astype(np.float32) for k in range(8)]
    expected = [run(x)[0].copy() for x in inputs]
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(60):
            if not np.array_equal(run(inputs[number])[0], expected[number]):
                wrong.append(number)

    on_threads(work, range(8))
    assert wrong == []


def test_errors_of_one_thread_do_not_reach_another() -> None:
    run = compiled(lambda x, i: index.take(x, i, axis=0), X, np.array([0, 0]))
    problems: list[str] = []

    def work(number: int) -> None:
        bad = number % 2 == 1
        for _ in range(100):
            try:
                run(X, np.array([0, 7 if bad else 1]))
                if bad:
                    problems.append("no error")
            except MonographError:
                if not bad:
                    problems.append("an error of another")

    on_threads(work, range(4))
    assert problems == []


def test_nothing_is_left_of_an_executable_that_is_deleted() -> None:
    x = X.astype(np.complex64)
    run = compiled(lambda x: reduce.prod(x, 0), x)
    run(x)
    assert run.native is not None
    held = [weakref.ref(run), weakref.ref(run.native), weakref.ref(run.native.library)]
    del run
    gc.collect()
    assert [each() for each in held] == [None, None, None]


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


@pytest.mark.slow
def test_compiling_and_deleting_many_times_does_not_grow() -> None:
    graph = trace(lambda x: reduce.sum(math.exp(x), axis=1), "f32[64, 64]")
    x = np.ones((64, 64), np.float32)
    sizes = []
    for _ in range(200):
        compiled(graph, level="O0").run([x])
        gc.collect()
        sizes.append(_resident())
    assert sizes[-1] - sizes[60] < 16 << 20, [size >> 20 for size in sizes[::20]]


def test_only_the_latest_sizes_keep_their_memory() -> None:
    run = compiled(lambda x: reduce.sum(math.exp(x) * x, axis=0), "f32[n, 64]")
    assert run.native is not None
    for n in range(1, 40):
        x = np.ones((n, 64), np.float32)
        np.testing.assert_allclose(run(x)[0], n * np.e, rtol=1e-5)
    assert len(run.native.frames) <= MAX_LAYOUTS
    gc.collect()
    frames = [
        each
        for each in interrupts.receivers.values()
        if isinstance(each, executable_module.Frame) and each.native() is run.native
    ]
    assert len(frames) <= MAX_LAYOUTS + MOST_KNOWN  # those that built-in functions have


def test_it_says_in_a_line_what_it_is() -> None:
    assert repr(compiled(lambda x: x + 1, X)) == "Executable(%x: f32[3, 4]; kernels: 1)"
    partly = compiled(lambda x: opaque(x) + 1, X)
    assert "in the interpreter: 1" in repr(partly)
