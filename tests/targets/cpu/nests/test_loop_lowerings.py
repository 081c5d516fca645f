"""Ops that state the loops which fill their results, compiled and held against the interpreter.

Some samples run in every dtype, and all of them with a symbol for every size; larger random
operands are held against NumPy on one thread and on four, whose answers must be the same bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from monograph.compiler import Options, compile_graph
from monograph.errors import EvaluationError, MonographError
from monograph.frontends.trace import trace
from monograph.ir.dims import Symbol
from monograph.ir.graph import Graph, Value
from monograph.ir.interpret import interpret
from monograph.ir.lower import LoopBuilder
from monograph.ir.op import Op, Sample, op, registry
from monograph.ir.types import Array, TensorType, f32, i64, type_of_array
from monograph.ops import cumulative, factorize, index, solve, sorting, statistics
from monograph.ops.factorize import LuFactor
from monograph.targets.cpu.nests.loop_nest import LoopNest
from monograph.targets.cpu.nests.lower_loops import has_loops, lower_node
from monograph.targets.cpu.nests.verify import verify_nest
from tests.ops.harness import assert_close, samples_by_op
from tests.targets.cpu.samples import Case, cases, check, comparable

SAMPLES = samples_by_op()
STATED = sorted(
    name
    for name, each in registry().items()
    if each.lower_loops is not Op.lower_loops
    and "." not in name  # not those of frontends and tests
)
IN_OTHER_DTYPES = 1
"""Samples of an op that run in each dtype that is not their own: ``test_apart`` has others."""


def _options(threads: int = 1) -> Options:
    return Options(level="O0", threads=threads, cache=False)


def _native(graph: Graph, arrays: Sequence[Array], threads: int = 1) -> list[Array]:
    """The outputs as native code computes all of them."""
    executable = compile_graph(graph, _options(threads))
    assert executable.native is not None
    assert executable.report.fallbacks == ()
    return list(executable.run(list(arrays)))


def _call(function: Callable[..., Any], *arrays: Array) -> list[Array]:
    """The outputs of a function, which are the same bits on one thread and on four."""
    graph = trace(function, *map(type_of_array, arrays), name="call")
    alone, together = _native(graph, arrays), _native(graph, arrays, threads=4)
    for one, four in zip(alone, together, strict=True):
        assert one.tobytes() == four.tobytes()
    return alone


# Samples ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STATED)
def test_samples_in_other_dtypes_are_right(name: str) -> None:
    """The dtypes that samples come in, and all samples in all of them, are for ``test_samples``."""
    outcomes = check(list(_in_other_dtypes(name)), _options())
    wrong = [f"{each.name}: {each.problem}" for each in outcomes if each.problem]
    assert not wrong, "\n".join(wrong)


def _in_other_dtypes(name: str) -> Iterator[Case]:
    """The first samples of an op in each dtype that is not their own."""
    taken = Counter[str]()
    for case in cases(SAMPLES[name]):
        dtype = case.name.rpartition("@")[2]
        if dtype != "own" and taken[dtype] < IN_OTHER_DTYPES:
            taken[dtype] += 1
            yield case


@pytest.mark.parametrize("name", STATED)
def test_the_samples_are_right_with_a_symbol_for_every_size(name: str) -> None:
    chosen = [sample for _, sample in SAMPLES[name] if _takes_symbols(sample)]
    arrays = [np.asarray(array) for sample in chosen for array in sample.operands]
    graph = trace(_all_of(chosen), *map(_symbolic, arrays), name="samples")
    results, expected = _native(graph, arrays), interpret(graph, arrays)
    for sample in chosen:
        count = len(trace(sample.apply, *sample.operands, name="sample").outputs)
        own, wanted = results[:count], expected[:count]
        results, expected = results[count:], expected[count:]
        for got, right in zip(comparable(sample, own, wanted), wanted, strict=True):
            assert got.dtype == right.dtype
            assert_close(got, right, special=True)


def _symbolic(array: Array) -> TensorType:
    """The array's type with a symbol for each size, the same for equal ones."""
    shape = tuple(1 if n == 1 else Symbol(f"n{n}", 0) for n in array.shape)
    return TensorType(type_of_array(array).dtype, shape)


def _takes_symbols(sample: Sample) -> bool:
    """Whether the sample's op takes symbols there, of a dtype that kernels hold."""
    try:
        graph = trace(sample.apply, *map(_symbolic, sample.operands), name="sample")
    except MonographError:
        return False
    return all(has_loops(node) for node in graph.nodes)


def _all_of(samples: Iterable[Sample]) -> Callable[..., list[Value]]:
    def everything(*values: Value) -> list[Value]:
        given, results = list(values), []
        for sample in samples:
            operands = [given.pop(0) for _ in sample.operands]
            result = sample.apply(*operands)
            results += result if isinstance(result, tuple) else [result]
        return results

    return everything


@pytest.mark.parametrize("name", STATED)
def test_the_nests_of_the_samples_stay_inside_their_buffers_and_do_not_race(name: str) -> None:
    for _, sample in SAMPLES[name]:
        graph = trace(sample.apply, *map(type_of_array, sample.operands), name="sample")
        for node in filter(has_loops, graph.nodes):
            for stage in lower_node(node).stages:
                if isinstance(stage, LoopNest):
                    verify_nest(stage)


# Larger operands ----------------------------------------------------------------------------------


def _normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(1, 1000), (37, 129), (5, 64, 3), (3, 70, 65), (2, 33, 2, 9)])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_running_results_have_the_bits_of_float64_rounded(
    shape: tuple[int, ...], axis: int
) -> None:
    x = _normal(*shape)

    def all_three(x: Value) -> list[Value]:
        return [
            cumulative.cumsum(x, axis),
            cumulative.cumprod(x, axis, reverse=True),
            cumulative.cummax(x, axis),
        ]

    total, product, largest = _call(all_three, x)
    wide = x.astype(np.float64)
    np.testing.assert_array_equal(total, np.cumsum(wide, axis).astype(x.dtype))
    backwards = np.flip(np.cumprod(np.flip(wide, axis), axis), axis)
    np.testing.assert_array_equal(product, backwards.astype(x.dtype))
    np.testing.assert_array_equal(largest, np.maximum.accumulate(x, axis))


def test_a_running_sum_of_narrow_floats_is_rounded_once_an_element() -> None:
    x = _normal(6, 500).astype(np.float16)
    (total,) = _call(lambda x: cumulative.cumsum(x, 1), x)
    expected = np.cumsum(x.astype(np.float32), 1).astype(np.float16)
    np.testing.assert_array_equal(total, expected)


@pytest.mark.parametrize("columns", [1, 3, 130, 1000])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_updates_that_meet_are_added_in_order(columns: int, dtype: type) -> None:
    generator = np.random.default_rng(1)
    x, updates = _normal(9, columns).astype(dtype), _normal(300, columns, seed=2).astype(dtype)
    rows = generator.integers(-9, 9, size=(300, 1))
    (got,) = _call(lambda x, i, u: index.scatter(x, i, u, "add"), x, rows, updates)
    expected = x.astype(np.float32)
    np.add.at(expected, rows[:, 0], updates.astype(np.float32))
    np.testing.assert_array_equal(got, expected.astype(dtype))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("mode", ["set", "add", "multiply", "max", "min"])
def test_values_put_along_an_axis_join_in_order(axis: int, mode: str) -> None:
    generator = np.random.default_rng(3)
    x, values = _normal(7, 40, 150), _normal(5, 30, 140, seed=4)
    places = generator.integers(-x.shape[axis], x.shape[axis], size=values.shape)

    def put(x: Value, places: Value, values: Value) -> Value:
        return index.put_along_axis(x, places, values, axis, mode)

    (got,) = _call(put, x, places, values)
    (expected,) = interpret(trace(put, x, places, values), [x, places, values])
    np.testing.assert_array_equal(got, expected)


def _sorted_operands() -> Iterable[Array]:
    generator = np.random.default_rng(5)
    for size in (1, 2, 31, 32, 33, 255, 256, 1000):
        few = generator.integers(-4, 4, size=(3, size))
        yield few.astype(np.int8)
        yield few.astype(np.uint64)
        special = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0, -np.nan])
        yield special[few + 4].astype(np.float32)
        yield generator.normal(size=(3, size))
        yield generator.integers(-(1 << 62), 1 << 62, size=(3, size))
    yield generator.normal(size=(1, 100_000)).astype(np.float32)


@pytest.mark.parametrize("x", list(_sorted_operands()), ids=lambda x: f"{x.dtype}-{x.shape[1]}")
def test_an_order_is_stable_with_every_nan_last(x: Array) -> None:
    up, down = _call(lambda x: [sorting.argsort(x, 1), sorting.argsort(x, 1, True)], x)
    np.testing.assert_array_equal(up, np.argsort(x, 1, kind="stable"))
    (expected,) = interpret(trace(lambda x: sorting.argsort(x, 1, True), x), [x])
    np.testing.assert_array_equal(down, expected)


def test_an_order_along_the_first_axis() -> None:
    x = _normal(50, 3, 4).round(1)
    (got,) = _call(lambda x: sorting.argsort(x, 0), x)
    np.testing.assert_array_equal(got, np.argsort(x, 0, kind="stable"))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint64, np.int16])
@pytest.mark.parametrize("largest", [True, False])
def test_the_first_few_of_an_order_are_selected(dtype: type, largest: bool) -> None:
    """Many ties, and in floats both zeros and NaN."""
    x = np.random.default_rng(0).integers(0, 60, (5, 400)).astype(dtype)
    if np.issubdtype(dtype, np.floating):
        x[:, ::50], x[:, 1::50], x[:, 2::90] = -0.0, 0.0, np.nan
    graph = trace(lambda x: sorting.top_k(x, 9, 1, largest), x)
    for got, expected in zip(_native(graph, [x]), interpret(graph, [x]), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_elements_are_counted_and_their_weights_added() -> None:
    x = np.random.default_rng(6).integers(0, 50, size=10_000)
    weights = _normal(10_000)
    (counts,) = _call(lambda x: statistics.Bincount(60)(x), x)
    np.testing.assert_array_equal(counts, np.bincount(x, minlength=60))
    (sums,) = _call(lambda x, w: statistics.Bincount(60)(x, w), x, weights)
    expected = np.zeros(60, np.float32)
    np.add.at(expected, x, weights)
    np.testing.assert_array_equal(sums, expected)


@pytest.mark.parametrize(("batch", "size"), [((), 90), ((17,), 12), ((2, 1), 33), ((), 1)])
def test_systems_are_solved_to_the_last_bits(batch: tuple[int, ...], size: int) -> None:
    a, b = _normal(*batch, size, size), _normal(*batch, size, 21, seed=7)
    wide = a.astype(np.float64)
    (x,) = _call(solve.solve, a, b)
    np.testing.assert_allclose(x, np.linalg.solve(wide, b.astype(np.float64)), 1e-6, 1e-6)
    (inverse,) = _call(solve.inverse, a)
    np.testing.assert_allclose(inverse, np.linalg.inv(wide), 1e-6, 1e-6)
    (determinant,) = _call(solve.determinant, a)
    if size < 90:  # whose determinant is larger than an f32
        np.testing.assert_allclose(determinant, np.linalg.det(wide), 1e-6)
    positive = (wide @ np.swapaxes(wide, -1, -2) + np.eye(size)).astype(np.float32)
    (lower,) = _call(factorize.cholesky, positive)
    exact = np.linalg.cholesky(positive.astype(np.float64))
    np.testing.assert_allclose(lower, exact, 1e-5, 1e-6)
    (y,) = _call(solve.triangular_solve, lower, b)
    product = np.tril(lower).astype(np.float64) @ y
    np.testing.assert_allclose(product, b, 1e-4, 1e-4)


@pytest.mark.parametrize("shape", [(3, 20, 31), (40, 17), (1, 64, 64), (7, 7)])
@pytest.mark.parametrize("pivot", [True, False])
def test_factors_have_the_interpreters_bits(shape: tuple[int, ...], pivot: bool) -> None:
    x = _normal(*shape)
    got = _call(lambda x: factorize.lu_factor(x, pivot), x)
    for one, other in zip(got, LuFactor(pivot).evaluate(x), strict=True):
        np.testing.assert_array_equal(one, other.astype(one.dtype))


# Errors -------------------------------------------------------------------------------------------


def _assert_refused(function: Callable[..., Any], words: str, *arrays: Array) -> None:
    graph = trace(function, *map(type_of_array, arrays), name="call")
    with pytest.raises(EvaluationError):
        interpret(graph, arrays)
    with pytest.raises(EvaluationError, match=words):
        _native(graph, arrays)


def test_an_index_out_of_range_is_an_error() -> None:
    x, far = _normal(4, 5), np.array([[4]])
    _assert_refused(index.scatter, "out of range", x, far, x[:1])
    _assert_refused(lambda *o: index.put_along_axis(*o, 0), "out of range", x, far, x[:1, :1])
    _assert_refused(statistics.Bincount(3), "out of range", np.array([0, 3]))
    _assert_refused(statistics.Bincount(3), "out of range", np.array([0, -1]))
    _assert_refused(factorize.PivotsToPermutation(2), "out of range", np.array([0, 1]))


def test_a_matrix_that_cannot_be_solved_with_is_an_error() -> None:
    singular = np.array([[1, 2], [2, 4]], np.float32)
    _assert_refused(solve.solve, "singular", singular, singular)
    _assert_refused(solve.inverse, "singular", singular)
    _assert_refused(factorize.cholesky, "not positive definite", -np.eye(3, dtype=np.float32))


def _put_of_any_sizes() -> Graph:
    """``put_along_axis`` along the last axis, with a symbol of its own for every size."""

    def shape(name: str) -> tuple[Symbol, Symbol]:
        return Symbol(f"{name}0", 0), Symbol(f"{name}1", 0)

    types = [TensorType(f32, shape("x")), TensorType(i64, shape("i")), TensorType(f32, shape("v"))]
    return trace(index.PutAlongAxis(1), *types, name="put")


@pytest.mark.parametrize(
    ("places", "values", "fits"),
    [((2, 3), (2, 3), True), ((2, 3), (2, 2), False), ((5, 1), (5, 1), False)],
)
def test_sizes_that_meet_only_when_it_runs_are_checked_then(
    places: tuple[int, int], values: tuple[int, int], fits: bool
) -> None:
    graph = _put_of_any_sizes()
    arrays = [_normal(3, 4), np.zeros(places, np.int64), _normal(*values, seed=8)]
    if fits:
        np.testing.assert_array_equal(_native(graph, arrays)[0], interpret(graph, arrays)[0])
        return
    with pytest.raises(EvaluationError):
        interpret(graph, arrays)
    with pytest.raises(MonographError, match="put_along_axis"):
        _native(graph, arrays)


# The builder --------------------------------------------------------------------------------------


@op("test.turned_over")
class TurnedOver(Op):
    """A vector with its first element exchanged for its last, while the rest stays."""

    def infer(self, x: TensorType) -> TensorType:
        return x

    def evaluate(self, x: Array) -> Array:
        return np.concatenate([x[-1:], x[1:-1], x[:1]])

    def lower_loops(self, b: LoopBuilder) -> None:
        size = b.operands[0].shape[0]
        b.fill(b.result(), lambda at: b.read(0, at))
        with b.parallel(()):
            first, last = [b.index(0)], [b.index(size - 1)]
            one, other = b.load(b.result(), first), b.load(b.result(), last)
            b.store(b.result(), first, other)
            b.store(b.result(), last, one)


def test_what_was_loaded_stays_when_its_place_is_written() -> None:
    x = np.arange(5, dtype=np.float32)
    (got,) = _call(TurnedOver(), x)
    np.testing.assert_array_equal(got, [4, 1, 2, 3, 0])


@op("test.collatz")
class Collatz(Op):
    """How many steps it takes each number to come down to 1; 0 for one that is not positive."""

    def infer(self, x: TensorType) -> TensorType:
        return x

    def evaluate(self, x: Array) -> Array:
        return np.array([_collatz_steps(int(n)) for n in x])

    def lower_loops(self, b: LoopBuilder) -> None:
        one = b.index(1)
        with b.parallel(b.operands[0].shape) as (k,):
            number, steps = b.variable(b.read(0, [k])), b.variable(b.index(0))
            with b.while_(lambda: b.apply("greater", number.get(), one)):
                before = number.get()
                number.set(before // 2)
                with b.when(b.apply("equal", before % 2, one)):
                    number.set(before * 3 + 1)
                steps.set(steps.get() + 1)
            b.store(b.result(), [k], steps.get())


def _collatz_steps(number: int) -> int:
    steps = 0
    while number > 1:
        number = number * 3 + 1 if number % 2 else number // 2
        steps += 1
    return steps


def test_loops_end_when_their_condition_does() -> None:
    x = np.arange(-3, 200)
    (got,) = _call(Collatz(), x)
    np.testing.assert_array_equal(got, Collatz().evaluate(x))


def test_a_nest_prints_as_it_runs() -> None:
    graph = trace(lambda x: cumulative.cumsum(x, 1), TensorType(f32, (3, 100)))
    (node,) = graph.nodes
    (nest,) = lower_node(node).stages
    assert isinstance(nest, LoopNest)
    assert str(nest) == (
        "nest cumsum(b0: f32[300], o0: f32[300]):\n"
        "  parallel i1 < 3 in steps of 108:\n"
        "    c2: f64 = -0.0:f64\n"
        "    for i3 < 100:\n"
        "      v4 = c2\n"
        "      c2 := (v4 + cast<f64>(b0[100*i1+i3]))\n"
        "      o0[100*i1+i3] = cast<f32>((v4 + cast<f64>(b0[100*i1+i3])))\n"
    )


@pytest.mark.parametrize("rows", [8, 9, 11, 30])
@pytest.mark.parametrize("reverse", [False, True])
def test_rows_are_taken_further_in_turn(rows: int, reverse: bool) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (rows, 7))
    total, product = _call(
        lambda x: (cumulative.cumsum(x, 1, False, reverse), cumulative.cumprod(x, 1, True)), x
    )
    ordered = x[:, ::-1] if reverse else x
    sums = np.cumsum(ordered, 1)
    np.testing.assert_array_equal(total, sums[:, ::-1] if reverse else sums)
    expected = np.cumprod(np.concatenate([np.ones((rows, 1), x.dtype), x[:, :-1]], 1), 1)
    np.testing.assert_array_equal(product, expected)


def test_conditions_print_with_what_is_computed_for_them() -> None:
    graph = trace(Collatz(), TensorType(i64, (5,)), name="collatz")
    (nest,) = lower_node(next(iter(graph.nodes))).stages
    listing = str(nest)
    assert "    while:\n      v4 = c2\n    holds (v4 > 1), do:\n" in listing
    assert "      if ((v5 % 2) == 1):\n        c2 := ((v5 * 3) + 1)\n" in listing
