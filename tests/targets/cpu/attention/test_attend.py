"""Attention as native code: every kind and size against the interpreter, in double precision."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.ir.dims import Symbol, evaluate_dim
from monograph.ir.interpret import interpret
from monograph.ir.types import dtype_of
from monograph.ops.attention import Attention
from monograph.runtime.compiled import Executable
from monograph.switches import switch_off
from monograph.targets.cpu import target
from monograph.targets.cpu.attention import attend as family

Array = np.ndarray[Any, Any]
GENERATOR = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _small_attentions_are_streamed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    streamed = replace(family.DECOMPOSE_ATTENTION, scores=0)
    lowering = [
        streamed if each is family.DECOMPOSE_ATTENTION else each for each in target.LOWERING
    ]
    monkeypatch.setattr(family, "DECOMPOSE_ATTENTION", streamed)
    monkeypatch.setattr(target, "LOWERING", tuple(lowering))


def draw(*shape: int, dtype: Any = np.float32) -> Array:
    return GENERATOR.normal(size=shape).astype(dtype)


def operands(
    queries: int, keys: int, depth: int = 8, heads: tuple[int, int] = (2, 2), batch: int = 1
) -> list[Array]:
    many, shared = heads
    return [
        draw(batch, many, queries, depth),
        draw(batch, shared, keys, depth),
        draw(batch, shared, keys, depth),
    ]


def compiled(program: Callable[..., Any], *types: Any, threads: int = 1) -> Executable:
    graph = monograph.trace(program, *types)
    return compile_graph(graph, Options(threads=threads, strict=True, cache=False))


def kernels(executable: Executable) -> list[str]:
    assert executable.program is not None
    return [kernel.name.split("_", 1)[1] for kernel in executable.program.kernels]


def types_of(arrays: list[Array], shapes: list[str] | None = None) -> list[str]:
    given = shapes or [", ".join(map(str, array.shape)) for array in arrays]
    return [f"{dtype_of(array.dtype)}[{s}]" for array, s in zip(arrays, given, strict=True)]


def check(
    arrays: list[Array],
    causal: bool = False,
    scale: float | None = None,
    shapes: list[str] | None = None,
    tolerance: float = 2e-6,
) -> Executable:
    """Compile one attention, and compare it with the interpreter's in double precision."""
    program = compiled(
        lambda *values: F.attention(*values, causal=causal, scale=scale), *types_of(arrays, shapes)
    )
    assert any(name.startswith("attention") for name in kernels(program))
    (got,) = program.run(arrays)
    wide = [a if a.dtype == np.bool_ else a.astype(np.float64) for a in arrays]
    with np.errstate(invalid="ignore"):
        expected = Attention(causal, scale).evaluate(*wide)
    np.testing.assert_allclose(np.asarray(got, np.float64), expected, rtol=0, atol=tolerance)
    return program


# Queries that see nothing.


@pytest.mark.parametrize(
    ("queries", "keys", "causal"),
    [(40, 33, False), (130, 900, False), (130, 900, True), (3, 900, True)],
)
@pytest.mark.parametrize(
    ("kind", "op"),
    [
        ("bools", Attention()),
        ("bools", Attention(fully_masked="nan")),
        ("bools", Attention(fill=-1e9)),
        ("infinite", Attention()),
        ("infinite", Attention(fully_masked="nan")),
        ("lowest", Attention()),
    ],
)
def test_a_query_that_sees_nothing(
    queries: int, keys: int, causal: bool, kind: str, op: Attention
) -> None:
    seen = GENERATOR.random((2, 1, queries, keys)) < 0.7
    seen[0, 0, [0, 2]] = False
    seen[1, 0, 1, :2] = False
    seen[1, :, :, keys // 2 :] = False
    least = -np.inf if kind == "infinite" else np.finfo(np.float32).min
    mask = seen if kind == "bools" else np.where(seen, 0, least).astype(np.float32)
    arrays = [*operands(queries, keys, batch=2), mask]
    op = dataclasses.replace(op, causal=causal)
    attributes = {"causal": causal, "fill": op.fill, "fully_masked": op.fully_masked}
    program = compiled(lambda *values: F.attention(*values, **attributes), *types_of(arrays))
    (got,) = program.run(arrays)
    finite = kind == "lowest" or (kind == "bools" and op.fill != -np.inf)
    row = np.asarray(got)[0, :, 2]
    if finite:
        average = arrays[2][0, :, : 3 if causal else None].mean(1)
        np.testing.assert_allclose(row, average, rtol=0, atol=2e-6)
    else:
        np.testing.assert_array_equal(row, np.nan if op.fully_masked == "nan" else 0.0)
    wide = [a if a.dtype == np.bool_ else a.astype(np.float64) for a in arrays]
    with np.errstate(all="ignore"):
        expected = op.evaluate(*wide)
    np.testing.assert_allclose(got, expected, rtol=0, atol=4e-6)


@pytest.mark.parametrize("op", [Attention(), Attention(fully_masked="nan")], ids=["zeros", "nan"])
@pytest.mark.parametrize(("causal", "masked"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize(
    ("streaming", "queries", "keys"), [(True, 130, 900), (True, 3, 900), (False, 4, 3)]
)
def test_scores_of_minus_infinity_by_infinite_data_are_as_if_hidden(
    streaming: bool, queries: int, keys: int, causal: bool, masked: bool, op: Attention
) -> None:
    arrays = operands(queries, keys)
    arrays[1][..., 0] = -1.0
    arrays[0][0, 0, :3, 0] = [np.inf, -np.inf, np.nan]  # scores of -inf, +inf and NaN
    if masked:
        arrays.append(np.zeros((queries, keys), np.float32))
    op = dataclasses.replace(op, causal=causal)
    attributes = {"causal": causal, "fully_masked": op.fully_masked}
    with switch_off(*() if streaming else ("streaming_attention",)):
        program = compiled(lambda *values: F.attention(*values, **attributes), *types_of(arrays))
    (got,) = program.run(arrays)
    blind = np.nan if op.fully_masked == "nan" else 0.0
    np.testing.assert_array_equal(np.asarray(got)[0, 0, 0], blind)
    np.testing.assert_array_equal(np.asarray(got)[0, 0, 1:3], np.nan)
    with np.errstate(all="ignore"):
        expected = op.evaluate(*(array.astype(np.float64) for array in arrays))
    np.testing.assert_allclose(got, expected, rtol=0, atol=4e-6)


def test_the_score_of_hidden_keys_may_count() -> None:
    arrays = [*operands(70, 300), GENERATOR.random((70, 300)) < 0.2]
    program = compiled(lambda *values: F.attention(*values, fill=-2.0), *types_of(arrays))
    expected = Attention(fill=-2.0).evaluate(*arrays)
    np.testing.assert_allclose(program.run(arrays)[0], expected, rtol=0, atol=4e-6)


# Many queries.


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("queries", "keys", "depth"),
    [(9, 7, 1), (97, 193, 17), (96, 192, 64), (130, 401, 80), (40, 33, 128), (13, 300, 256)],
)
def test_any_size(causal: bool, queries: int, keys: int, depth: int) -> None:
    made = check(operands(queries, keys, depth), causal, tolerance=4e-6)
    assert kernels(made) == ["attention"]


def test_values_may_be_deeper_or_shallower_than_keys() -> None:
    for depth in (3, 40):
        check([draw(1, 2, 30, 16), draw(1, 2, 50, 16), draw(1, 2, 50, depth)])


@pytest.mark.parametrize("heads", [(4, 2), (6, 1)])
def test_grouped_heads(heads: tuple[int, int]) -> None:
    check(operands(20, 30, 16, heads, batch=2), causal=True)
    check(operands(3, 30, 16, heads, batch=2))


def test_no_batch_and_batches_that_broadcast() -> None:
    check([draw(3, 17, 5), draw(3, 19, 5), draw(3, 19, 4)])
    check([draw(2, 1, 3, 17, 5), draw(1, 4, 3, 19, 5), draw(2, 4, 3, 19, 4)])


@pytest.mark.parametrize("causal", [False, True])
def test_symbolic_sizes(causal: bool) -> None:
    shapes = ["b, 3, q, 64", "b, 1, k, 64", "b, 1, k, 80"]
    arrays = [draw(2, 3, 200, 64), draw(2, 1, 470, 64), draw(2, 1, 470, 80)]
    program = check(arrays, causal, shapes=shapes)
    short = [draw(1, 3, 1, 64), draw(1, 1, 2, 64), draw(1, 1, 2, 80)]
    expected = Attention(causal).evaluate(*short)
    np.testing.assert_allclose(program.run(short)[0], expected, atol=2e-6)


def test_a_scale_of_its_own() -> None:
    check(operands(20, 30), scale=0.3)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(np.float64, 1e-14), (np.float16, 2e-3), (ml_dtypes.bfloat16, 2e-2)],
)
def test_other_floats(dtype: Any, tolerance: float) -> None:
    for queries in (2, 30):
        shapes = [(1, 2, queries, 16), (1, 2, 20, 16), (1, 2, 20, 16)]
        check([draw(*shape, dtype=dtype) for shape in shapes], tolerance=tolerance)


# Masks.


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("queries", [2, 50])
def test_masks(causal: bool, queries: int) -> None:
    shapes = [(queries, 70), (1, 2, queries, 70), (1, 1, 1, 70), (1, 2, queries, 1)]
    for shape in shapes[:2] if causal else shapes:
        check([*operands(queries, 70), GENERATOR.random(shape) < 0.7], causal)
        check([*operands(queries, 70), draw(*shape)], causal)


@pytest.mark.parametrize(("queries", "keys"), [(50, 300), (2, 300), (2, 1100)])
def test_a_query_that_sees_nothing_gives_zeros(queries: int, keys: int) -> None:
    keep = GENERATOR.random((queries, keys)) < 0.5
    keep[1] = False
    keep[:, : keys // 2] = False  # whole tiles are hidden before the first key that is seen
    check([*operands(queries, keys), keep])
    check([*operands(queries, keys), np.where(keep, 0, -np.inf).astype(np.float32)])


@pytest.mark.parametrize("length", ["300", "n"])
def test_masks_that_hide_whole_tiles_show_others_whole_or_cut_them(length: str) -> None:
    place = np.arange(300)
    behind = place[:, None] - place
    arrays = operands(300, 300)
    shapes = [*(f"1, 2, {length}, 8" for _ in arrays), f"{length}, {length}"]
    program = check([*arrays, behind >= 0], shapes=shapes)
    for mask in ((behind >= 0) & (behind < 20), abs(behind) > 150, behind < 300):
        (got,) = program.run([*arrays, mask])
        expected = Attention().evaluate(*(x.astype(np.float64) for x in arrays), mask)
        np.testing.assert_allclose(got, expected, rtol=0, atol=2e-6)


def test_a_mask_of_symbolic_size() -> None:
    shapes = ["b, 2, q, 8", "b, 2, k, 8", "b, 2, k, 8", "b, 1, 1, k"]
    check([*operands(30, 70, batch=3), GENERATOR.random((3, 1, 1, 70)) < 0.7], shapes=shapes)


# Numbers that are not.


@pytest.mark.parametrize("queries", [2, 50])
def test_nan_and_infinity_spoil_what_they_touch_and_nothing_else(queries: int) -> None:
    query, key, value = operands(queries, 70)
    query[0, 0, 1, 2], query[0, 1, 0, 0] = np.nan, np.inf
    check([query, key, value])
    query, key, value = operands(queries, 70)
    value[0, 0, 5, 1], key[0, 1, 69, 0] = np.nan, np.inf
    check([query, key, value])


def test_large_scores_do_not_overflow() -> None:
    query, key, value = operands(40, 70)
    check([query * 100, key * 100, value], tolerance=5e-3)


# Few queries.


@pytest.mark.parametrize(("keys", "joined"), [(1, False), (512, False), (513, True), (1300, True)])
def test_few_queries_read_keys_where_they_lie(keys: int, joined: bool) -> None:
    names = kernels(check(operands(1, keys, 64, (6, 2), batch=2)))
    assert names == (["attention_pieces", "attention_join"] if joined else ["attention"])


def test_few_queries_with_more_heads_than_fit_together() -> None:
    check(operands(5, 40, 16, (24, 1)))


def test_few_causal_queries_see_few_keys() -> None:
    check(operands(5, 1200, 16), causal=True)


def test_few_queries_over_a_cache_of_symbolic_length() -> None:
    shapes = ["b, 4, 1, 17", "b, 2, k, 17", "b, 2, k, 9", "b, 1, 1, k"]
    keep = GENERATOR.random((2, 1, 1, 900)) < 0.5
    keep[1] = False
    arrays = [draw(2, 4, 1, 17), draw(2, 2, 900, 17), draw(2, 2, 900, 9), keep]
    check(arrays, shapes=shapes)


def test_one_query_or_many_is_decided_when_it_runs() -> None:
    shapes = ["b, 4, q, 16", "b, 2, p + q, 16", "b, 2, p + q, 16", "b, 1, q, p + q"]

    def arrays(queries: int, past: int) -> list[Array]:
        keys = queries + past
        return [*operands(queries, keys, 16, (4, 2), 2), draw(2, 1, queries, keys)]

    program = check(arrays(30, 1000), shapes=shapes)
    assert kernels(program) == ["attention_pieces", "attention_join", "attention"]
    for queries, past in ((1, 1200), (2, 5), (1, 3)):
        given = arrays(queries, past)
        expected = Attention().evaluate(*(array.astype(np.float64) for array in given))
        np.testing.assert_allclose(program.run(given)[0], expected, atol=2e-6)


# In a graph.


def heads_of(x: Any) -> Any:
    return F.transpose(F.reshape(x, (x.shape[0], x.shape[1], 4, 16)), (0, 2, 1, 3))


def multi_head(x: Any, y: Any, z: Any) -> Any:
    made = F.attention(heads_of(x), heads_of(y), heads_of(z))
    return F.reshape(F.transpose(made, (0, 2, 1, 3)), (x.shape[0], x.shape[1], 64))


def run_both(program: Callable[..., Any], *arrays: Array, shape: str | None = None) -> Executable:
    given = None if shape is None else [shape] * len(arrays)
    made = compiled(program, *types_of(list(arrays), given))
    graph = monograph.trace(program, *types_of([array.astype(np.float64) for array in arrays]))
    expected = monograph.interpret(graph, [array.astype(np.float64) for array in arrays])
    for got, wanted in zip(made.run(list(arrays)), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=2e-6)
    return made


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("shape", [None, "b, s, 64"])
def test_splitting_and_joining_heads_costs_no_kernel(shape: str | None, batch: int) -> None:
    made = run_both(multi_head, *(draw(batch, 33, 64) for _ in range(3)), shape=shape)
    assert kernels(made) == ["attention"]


def test_a_depth_of_one_is_stored_where_it_belongs() -> None:
    def program(x: Any, y: Any, z: Any) -> Any:
        return F.transpose(F.attention(x, y, z), (0, 2, 1, 3))

    run_both(program, *operands(30, 40, depth=1))
    run_both(program, *operands(2, 40, depth=1))


def test_a_single_head_of_many_queries_is_stored_in_the_shape_of_an_image() -> None:
    arrays = [draw(1, 1, 3136, 32), draw(1, 1, 49, 32), draw(1, 1, 49, 32)]

    def image(x: Any, y: Any, z: Any) -> Any:
        rows = F.reshape(F.attention(x, y, z), (1, 3136, 32))
        return F.reshape(F.transpose(rows, (0, 2, 1)), (1, 32, 56, 56)) + 1.0

    (got,) = compiled(image, *types_of(arrays)).run(arrays)
    attended = Attention().evaluate(*(array.astype(np.float64) for array in arrays))
    expected = attended[0].transpose(0, 2, 1).reshape(1, 32, 56, 56) + 1.0
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-6)


def test_what_follows_element_by_element_is_computed_as_it_is_stored() -> None:
    def program(x: Any, y: Any, z: Any, more: Any) -> Any:
        return F.relu(F.attention(x, y, z) * 2.0 + more)

    arrays = [*operands(30, 40), draw(1, 2, 30, 8)]
    assert len(kernels(run_both(program, *arrays))) == 1


def test_what_reads_the_result_in_another_arrangement_is_a_kernel_of_its_own() -> None:
    def program(x: Any, y: Any, z: Any) -> Any:
        made = F.attention(x, y, z)
        return F.expand(F.unsqueeze(made, 0), (3, *made.shape)) * 2.0, F.sum(made, -1)

    assert len(kernels(run_both(program, *operands(30, 40)))) > 1


def test_an_attention_without_keys_or_with_a_symbolic_depth_is_decomposed() -> None:
    empty = compiled(F.attention, *types_of(operands(3, 0)))
    assert "attention" not in kernels(empty)
    assert not empty.run(operands(3, 0))[0].any()
    deep = compiled(F.attention, *["f32[1, 2, s, d]"] * 3)
    arrays = operands(9, 9)
    expected = Attention().evaluate(*arrays)
    np.testing.assert_allclose(deep.run(arrays)[0], expected, atol=2e-6)


def test_a_small_attention_is_decomposed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for queries, keys, streamed in (
        (8, 8, False),
        (16, 16, True),
        (1, 64, False),
        (1, 512, True),
    ):
        names = kernels(compiled(F.attention, *types_of(operands(queries, keys))))
        assert any(name.startswith("attention") for name in names) == streamed


def test_the_number_of_threads_does_not_change_a_bit() -> None:
    for queries, keys in ((200, 300), (2, 1500)):
        arrays = operands(queries, keys, 32, (4, 2))
        types = types_of(arrays)
        one, two = (compiled(F.attention, *types, threads=threads) for threads in (1, 2))
        np.testing.assert_array_equal(one.run(arrays)[0], two.run(arrays)[0])


def test_scores_take_no_memory_however_long_the_sequence_is() -> None:
    def scratch(length: int) -> int:
        made = compiled(F.attention, *[f"f32[1, 1, {length}, 64]"] * 3)
        assert made.program is not None
        return sum(slot.kind.value == "arena" for slot in made.program.slots)

    assert scratch(4096) == scratch(2048) == 0


def test_keys_that_have_to_be_computed_are_computed_once() -> None:
    def program(x: Any, y: Any, z: Any) -> Any:
        return F.attention(x, y * 2.0, z)

    assert len(kernels(run_both(program, *operands(30, 40)))) == 2


@pytest.mark.parametrize(("queries", "times"), [(0, (0, 0)), (1, (1, 0)), (2, (0, 1)), (9, (0, 1))])
def test_one_kind_of_loops_runs_once_and_none_for_no_queries(
    queries: int, times: tuple[int, int]
) -> None:
    count = Symbol("queries", 0)
    alone, several = family.launches_by_queries(count)
    bindings = {count: queries}
    assert (evaluate_dim(alone, bindings), evaluate_dim(several, bindings)) == times


@pytest.mark.parametrize("rows", ["3", "n"])
def test_operands_that_the_group_computes_are_there_when_the_rest_is_apart(rows: str) -> None:
    """The values are flipped inside the group, whose result has another rank than the attention."""

    def function(x: Any) -> Any:
        whole = F.reshape(x, (1, *x.shape))
        flipped = F.reshape(F.flip(x, (1,)), (1, *x.shape))
        return F.reshape(F.attention(whole, whole, flipped, causal=True), x.shape)

    graph = monograph.trace(function, f"f32[{rows}, 2]")
    x = np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32)
    (got,) = compile_graph(graph, Options(cache=False))(x)
    np.testing.assert_allclose(got, interpret(graph, [x])[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_formula_that_reads_the_result_often_reads_it_once(dtype: Any) -> None:
    """Without that, an arctangent takes minutes; its sign is no call of a function in libgcc."""
    arrays = [draw(1, 1, 33, 33, dtype=dtype) for _ in range(3)]
    slope = draw(33, 1, dtype=dtype)
    program = compiled(
        lambda x, y, z, s: F.atan2(s, F.attention(x, y, z)), *types_of([*arrays, slope])
    )
    (got,) = program.run([*arrays, slope])
    attended = Attention().evaluate(*(array.astype(np.float64) for array in arrays))
    expected = np.arctan2(slope.astype(np.float64), attended)
    tolerance = 1e-5 if dtype is np.float32 else 1e-2
    assert np.median(np.abs(got - expected)) < tolerance / 10
    np.testing.assert_allclose(np.cos(got), np.cos(expected), rtol=0, atol=10 * tolerance)
