"""Random graphs mean on the processor what they mean in the interpreter.

Each graph is compiled once and run on several inputs, whose symbolic sizes differ. Its outputs have
the interpreter's bits, or are explained by rounding (``noise``). Where the interpreter fails, so
does the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, note, seed, settings
from hypothesis import strategies as st

from monograph.compiler import Options, compile_graph
from monograph.errors import MonographError
from monograph.frontends.trace import trace
from monograph.ir.graph import Graph
from monograph.ir.interpret import bind_inputs, interpret
from monograph.ir.text.printer import print_graph
from monograph.ir.types import Array
from monograph.ops import control, elementwise, math, reduce
from monograph.runtime.compiled import Executable
from monograph.runtime.sizes import check_sizes, guards_of
from tests.properties.draws import seed_of
from tests.properties.graphs import graphs, inputs_for
from tests.properties.meaning import assert_same_bits
from tests.properties.noise import explained
from tests.properties.test_passes import SETTINGS

PARTS = 10
GRAPHS = 200
"""Distinct graphs in each part: 2,000 in all."""
FEW = 60
"""Distinct graphs of the usual run that no pass optimizes."""
SOME = 100
"""Distinct graphs in each half of the usual run that every pass optimizes."""
INPUTS = 2
"""How many inputs, of other sizes, each graph is run on."""


@st.composite
def programs(draw: Any) -> tuple[Graph, list[list[Array]]]:
    graph = draw(graphs())
    return graph, [draw(inputs_for(graph)) for _ in range(INPUTS)]


def check(graph: Graph, inputs: Sequence[Array], executable: Executable) -> None:
    """One run of a compiled graph, held against the interpreter's."""
    try:
        expected = interpret(graph, inputs)
    except MonographError:
        _check_failure(executable, inputs)
        return
    try:
        got = executable.run(inputs)
    except MonographError:
        assert _refuses_what_may_not_run(graph, inputs)
        return
    try:
        assert_same_bits(got, expected)
    except AssertionError:
        problem = explained([graph, executable.lowered], inputs, got)
        assert not problem, problem


def _check_failure(executable: Executable, inputs: Sequence[Array]) -> None:
    """What fails in the interpreter fails here too, if it is still there to fail."""
    try:
        interpret(executable.lowered, inputs)
    except MonographError:
        with pytest.raises(MonographError):
            executable.run(inputs)


def _refuses_what_may_not_run(graph: Graph, inputs: Sequence[Array]) -> bool:
    """Sizes that a branch or the body of a ``while`` cannot take are refused at once."""
    _, bindings = bind_inputs(graph, inputs)
    for node in graph.walk():
        if isinstance(node.op, control.If | control.While):
            try:
                for region in node.regions:
                    check_sizes(guards_of(region), bindings)
            except MonographError:
                return True
    return False


def check_many(number: int, count: int, **options: Any) -> int:
    """Draw graphs, some more than ``count``, and check them; how many were distinct."""
    seen: set[str] = set()

    @seed(seed_of(number))
    @settings(SETTINGS, max_examples=count * 8 // 5)
    @given(programs())
    def run(drawn: tuple[Graph, list[list[Array]]]) -> None:
        graph, several = drawn
        text = print_graph(graph)
        note(text)
        executable = compile_graph(graph, Options(**{"level": "O0", "cache": False} | options))
        for inputs in several:
            check(graph, inputs, executable)
        seen.add(text)

    run()
    return len(seen)


def test_some_random_graphs_mean_the_same() -> None:
    assert check_many(100, FEW) >= FEW


@pytest.mark.parametrize("number", [101, 102])
def test_some_optimized_random_graphs_mean_the_same(number: int) -> None:
    assert check_many(number, SOME, level="O2") >= SOME


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_two_thousand_random_graphs_mean_the_same(part: int) -> None:
    assert check_many(part, GRAPHS) >= GRAPHS


@pytest.mark.slow
def test_random_graphs_mean_the_same_without_fusion() -> None:
    assert check_many(PARTS, GRAPHS, fusion=False) >= GRAPHS


@pytest.mark.slow
def test_random_graphs_have_the_same_bits_on_one_thread_and_on_four() -> None:
    seen: set[str] = set()

    @seed(seed_of(PARTS + 1))
    @settings(SETTINGS, max_examples=GRAPHS)
    @given(programs())
    def run(drawn: tuple[Graph, list[list[Array]]]) -> None:
        graph, (inputs, *_) = drawn
        note(print_graph(graph))
        assert_same_on_threads(graph, inputs)
        seen.add(print_graph(graph))

    run()
    assert len(seen) >= GRAPHS // 2


def assert_same_on_threads(graph: Graph, inputs: Sequence[Array]) -> None:
    """The number of threads never shows in the result."""
    results = []
    for threads in (1, 4):
        executable = compile_graph(graph, Options(threads=threads, cache=False))
        try:
            results.append(executable.run(inputs))
        except MonographError:
            results.append([])
    assert_same_bits(results[1], results[0])


@pytest.mark.parametrize("shape", [(3, 50_021), (4_099, 67), (1_000_003,), (7, 64, 513)])
def test_large_tensors_have_the_same_bits_on_any_number_of_threads(shape: tuple[int, ...]) -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=shape).astype(np.float32)

    def work(value: Any) -> Any:
        row = reduce.sum(math.exp(value), axis=-1, keepdims=True)
        return [
            math.tanh(value) * 2.0 + 1.0,
            math.exp(value) / row,
            reduce.sum(value),
            reduce.max(value, axis=0),
            reduce.sum(value, axis=0),
            reduce.argmax(value, axis=-1),
        ]

    assert_same_on_threads(trace(work, x), [x])


def test_noise_explains_roundings_and_nothing_else() -> None:
    x = np.array([1.0, 2.0, 3.0], np.float32)

    def work(value: Any) -> Any:
        return elementwise.cast(math.exp(value) * 1000.0, "i32")

    graph = trace(work, x)
    (expected,) = interpret(graph, [x])
    assert not explained([graph], [x], [expected])
    assert explained([graph], [x], [expected + np.int32(5)])
    near = np.array([1e4, 1.0, -1e4, 1e-3], np.float32)
    total = trace(lambda value: reduce.sum(value), near)
    backwards = np.float32(0.0)
    for term in near[::-1]:
        backwards += term
    assert not explained([total], [near], [np.asarray(backwards)])
    assert explained([total], [near], [np.asarray(backwards + np.float32(0.5))])
    smooth = trace(lambda value: math.exp(value), x)
    (exponential,) = interpret(smooth, [x])
    assert not explained([smooth], [x], [np.nextafter(exponential, np.float32(0))])
    assert explained([smooth], [x], [exponential * np.float32(1.001)])


def test_noise_reaches_into_loops() -> None:
    """A kernel rounds bf16 at its end, inside a loop too: 64 + x - 64 keeps x or loses it."""
    x = np.array([[0.1, 3.0], [0.2, -0.3]], ml_dtypes.bfloat16)

    def work(values: Any) -> Any:
        start = np.zeros(2, ml_dtypes.bfloat16)
        _, stacked = control.scan(lambda carry, row: (carry, (row + 64.0) - 64.0), start, values)
        return reduce.prod(stacked, axis=0)

    graph = trace(work, x)
    (expected,) = interpret(graph, [x])
    wide = x.astype(np.float32).prod(axis=0)
    assert expected[0] == 0.0 and wide[0] > 0.0
    assert not explained([graph], [x], [wide.astype(x.dtype)])
    assert explained([graph], [x], [(wide + 1e4).astype(x.dtype)])
