"""What is special about indices: which are refused, what repeats do, and ``x[key]`` as in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from monograph.autodiff.vjp import grad
from monograph.errors import EvaluationError, InputError, TypeRuleError
from monograph.frontends.trace import trace
from monograph.ir.dims import Symbol, dim_max
from monograph.ir.interpret import interpret
from monograph.ir.text.parser import parse
from monograph.ir.text.printer import print_graph
from monograph.ir.types import DTYPES, TensorType, f32, f64, i64
from monograph.ir.verify import verify
from monograph.ops import index, reduce, shape
from tests.ops.running import complex_gradients, gradients, run

X = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
INTEGERS = [name for name, dtype in DTYPES.items() if dtype.is_integer]
N, M = Symbol("n"), Symbol("m", 2)


# Indices.


@pytest.mark.parametrize("name", INTEGERS)
def test_indices_of_every_integer_dtype(name: str) -> None:
    dtype = DTYPES[name]
    places = np.array([1, 0, 1] if dtype.kind.name == "UNSIGNED" else [1, 0, -2])
    indices, table = places.astype(dtype.numpy), np.array([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(run(index.take, table, indices), table[places])
    np.testing.assert_array_equal(run(index.gather, table, indices[:, None]), table[places])
    np.testing.assert_array_equal(run(index.embedding, table, indices), table[places])
    updates = np.ones((3, 2))
    got = run(lambda x, i, u: index.scatter(x, i, u, "add"), table, indices[:, None], updates)
    np.testing.assert_array_equal(got, table + np.bincount(places % 2)[:, None])


@pytest.mark.parametrize("name", [name for name in DTYPES if name != "string"])
def test_elements_of_every_dtype(name: str) -> None:
    table = np.array([1, 0, 1], np.float32).astype(DTYPES[name].numpy)
    for got in (
        run(lambda x: index.take(x, [2, 1]), table),
        run(lambda x: index.gather(x, [[2], [1]]), table),
        run(lambda x: index.take_along_axis(x, np.array([2, 1]), 0), table),
        run(lambda x: index.scatter(x, [[2]], x[:1])[1:][::-1], table),
    ):
        assert got.dtype == table.dtype
        assert got.tobytes() == table[[2, 1]].tobytes()


@pytest.mark.parametrize("bad", [3, -4, 2**40])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: index.take(x, i, 0),
        lambda x, i: index.gather(x, i[..., None]),
        lambda x, i: index.take_along_axis(x, i[:, None, None], 0),
        lambda x, i: index.put_along_axis(x, i[:, None, None], 1.0, 0),
        lambda x, i: index.scatter(x, i[:, None], 1.0, "add"),
        lambda x, i: index.embedding(x[:, 0], i),
        lambda x, i: x[i],
    ],
)
def test_an_index_outside_its_axis_is_named(function: Any, bad: int) -> None:
    with pytest.raises(EvaluationError) as caught:
        run(function, X, np.array([0, -3, bad, 99]))
    assert f"index {bad} is outside axis 0, which has size 3" in caught.value.message
    assert caught.value.expected == "-3 to 2"
    assert "position (2" in str(caught.value.found)


def test_an_unsigned_index_never_wraps_around() -> None:
    for bad in (2**64 - 1, 2**63):
        with pytest.raises(EvaluationError, match="outside axis 0"):
            run(index.take, X, np.array([bad], np.uint64))


def test_an_empty_axis_has_no_index() -> None:
    with pytest.raises(EvaluationError, match="index 0 is outside axis 1, which has size 0"):
        run(lambda x, i: index.take(x, i, 1), np.zeros((2, 0)), np.array(0))
    assert run(index.take, np.zeros((0, 2)), np.zeros((3, 0), np.int64)).shape == (3, 0, 2)


@pytest.mark.parametrize(
    ("message", "function", "types"),
    [
        ("integer operand", index.take, ("f32[3]", "f32[2]")),
        ("integer operand", index.gather, ("f32[3]", "bool[2, 1]")),
        ("axis 1 is out of range", lambda x, i: index.take(x, i, 1), ("f32[3]", "i64[2]")),
        ("axis 0 is out of range", index.Take(0), ("f32[]", "i64[2]")),
        ("batch dimensions", index.gather, ("f32[3]", "i64[]")),
        ("batch dimensions", index.Gather(2), ("f32[3, 4]", "i64[3, 4]")),
        ("batch dimensions", index.Gather(-1), ("f32[3, 4]", "i64[3, 4]")),
        ("the operands' dimensions 0 differ", index.Gather(1), ("f32[3, 4]", "i64[2, 1]")),
        ("index vectors do not fit", index.gather, ("f32[3]", "i64[2, 2]")),
        ("index vectors do not fit", index.gather, ("f32[3]", "i64[2, n]")),
        ("differ in rank", index.TakeAlongAxis(0), ("f32[3, 4]", "i64[3]")),
        ("larger than the operand", index.TakeAlongAxis(0), ("f32[3, 4]", "i64[3, 5]")),
        ("different dtypes", index.Scatter(), ("f32[3]", "i64[2, 1]", "f64[2]")),
        ("the updates do not fit", index.Scatter(), ("f32[3]", "i64[2, 1]", "f32[2, 1]")),
        ("updates' dimension 0", index.Scatter(), ("f32[3]", "i64[2, 1]", "f32[3]")),
        ("no last dimension", index.Scatter(), ("f32[3]", "i64[]", "f32[]")),
        ("no such mode", index.Scatter("sub"), ("f32[3]", "i64[2, 1]", "f32[2]")),
        ("have no order", index.Scatter("max"), ("c64[3]", "i64[2, 1]", "c64[2]")),
        ("strings can only be set", index.Scatter("add"), ("string[3]", "i64[2, 1]", "string[2]")),
        ("updates' dimension 1", index.PutAlongAxis(0), ("f32[3, 4]", "i64[2, 4]", "f32[2, 3]")),
        ("not a matrix", index.embedding, ("f32[3]", "i64[2]")),
        ("padding index is not a row", index.Embedding(3), ("f32[3, 2]", "i64[2]")),
        ("padding index is not a row", index.Embedding(-4), ("f32[3, 2]", "i64[2]")),
        ("integer operand", lambda i: index.one_hot(i, 3), ("f32[2]",)),
        ("negative depth", lambda i: index.one_hot(i, -3), ("i64[2]",)),
        ("axis 2 is out of range", lambda i: index.one_hot(i, 3, axis=2), ("i64[2]",)),
        (
            "not one of the dtype",
            lambda i: index.one_hot(i, 3, on_value=300, dtype="i8"),
            ("i64[2]",),
        ),
        ("cannot be that many", index.Nonzero(7), ("f32[2, 3]",)),
        ("cannot be that many", index.Nonzero(-1), ("f32[2, 3]",)),
        ("strings are not numbers", index.nonzero, ("string[2]",)),
    ],
)
def test_what_the_type_rules_refuse(message: str, function: Any, types: tuple[str, ...]) -> None:
    with pytest.raises(TypeRuleError, match=message) as caught:
        trace(function, *types)
    assert caught.value.expected is not None
    assert caught.value.found is not None


def test_sizes_that_turn_out_to_disagree() -> None:
    batch = trace(index.Gather(1), TensorType(f32, (N, 4)), TensorType(i64, (M, 1)))
    with pytest.raises(EvaluationError, match="wrong shape"):
        interpret(batch, [np.zeros((3, 4), np.float32), np.zeros((2, 1), np.int64)])
    along = trace(index.TakeAlongAxis(1), TensorType(f32, (N, 4)), TensorType(i64, (M, 4)))
    with pytest.raises(EvaluationError, match="larger than the operand in dimension 0"):
        interpret(along, [np.zeros((1, 4), np.float32), np.zeros((5, 4), np.int64)])
    types = (TensorType(f32, (8,)), TensorType(i64, (N, 1)), TensorType(f32, (M,)))
    with pytest.raises(EvaluationError, match="the updates have the wrong shape"):
        arrays = [np.zeros(8), np.zeros((3, 1)), np.zeros(2)]
        interpret(
            trace(index.Scatter(), *types),
            [a.astype(t.dtype.numpy) for a, t in zip(arrays, types, strict=True)],
        )


# Updates.


def test_the_last_of_several_updates_stays() -> None:
    x, places = np.zeros(3), np.array([[1], [1], [-2]])
    updates = np.array([5.0, 7.0, 9.0])
    np.testing.assert_array_equal(run(index.scatter, x, places, updates), [0, 9, 0])
    x_grad, updates_grad = gradients(
        lambda a, u: index.scatter(a, places, u) * [1.0, 2.0, 3.0], x, updates
    )
    np.testing.assert_array_equal(x_grad, [1, 0, 3])
    np.testing.assert_array_equal(updates_grad, [0, 0, 2])


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("add", [2, 8, 2]), ("multiply", [2, 12, 2]), ("max", [2, 3, 2]), ("min", [2, 2, 2])],
)
def test_updates_that_meet_are_combined(mode: str, expected: list[float]) -> None:
    x, places, updates = np.full(3, 2.0), np.array([1, 1]), np.array([3.0, 2.0])
    x[1] = 2 if mode != "add" else 3
    got = run(lambda a: index.scatter(a, places[:, None], updates, mode), x)
    np.testing.assert_array_equal(got, expected)
    got = run(lambda a: index.put_along_axis(a, places, updates, 0, mode), x)
    np.testing.assert_array_equal(got, expected)


def test_nan_wins_an_update() -> None:
    for mode in ("max", "min", "add", "multiply"):
        got = run(lambda x, m=mode: index.scatter(x, [[0], [0]], [np.nan, 1.0], m), np.zeros(2))
        np.testing.assert_array_equal(np.isnan(got), [True, False])


def test_narrow_floats_are_updated_in_f32() -> None:
    many = np.zeros((1000, 1), np.int64)
    got = run(lambda x: index.scatter(x, many, 1.0, "add"), np.zeros(1, ml_dtypes.bfloat16))
    assert got[0] == 1000  # in bf16 itself it would stop at 256


def test_the_operand_of_an_update_is_left_alone() -> None:
    x = np.zeros(3)
    run(lambda a: index.scatter(a, [[0]], 5.0), x)
    run(lambda a: index.put_along_axis(a, np.array([0]), 5.0, 0), x)
    np.testing.assert_array_equal(x, 0)


def test_updates_broadcast_and_promote() -> None:
    got = run(lambda x: index.scatter(x, [[0], [2]], 1), X)
    assert got.dtype == X.dtype
    np.testing.assert_array_equal(got[[0, 2]], 1)
    np.testing.assert_array_equal(got[1], X[1])
    assert run(lambda x: index.scatter(x, [[0]], 0.5), np.arange(3)).dtype == np.float32


def test_along_an_axis_other_dimensions_broadcast() -> None:
    order = np.array([[[3], [0]]])
    got = run(lambda x: index.take_along_axis(x, order, 1), X)
    np.testing.assert_array_equal(got, np.take_along_axis(X, order, 1))
    got = run(lambda x: index.put_along_axis(x, order, -1.0, 1), X)
    expected = X.copy()
    np.put_along_axis(expected, order, -1, 1)
    np.testing.assert_array_equal(got, expected)


def test_gradients_of_complex_updates_are_torchs() -> None:
    generator = np.random.default_rng(0)
    x, updates = (generator.normal(size=n) + 1j * generator.normal(size=n) for n in (3, 4))
    places = np.array([0, 2, 0, 1])
    ours = complex_gradients(
        lambda a, u: index.put_along_axis(a, places, u, 0, "multiply"), x, updates
    )
    leaves = [torch.tensor(array, requires_grad=True) for array in (x, updates)]
    a, u = leaves
    result = torch.stack([a[0] * u[0] * u[2], a[1] * u[3], a[2] * u[1]])
    (result.real + 2 * result.imag).sum().backward()
    for got, leaf in zip(ours, leaves, strict=True):
        assert leaf.grad is not None
        np.testing.assert_allclose(got, leaf.grad.numpy(), rtol=1e-12)


# What indices make.


def test_the_padding_row_does_not_learn() -> None:
    table, indices = np.ones((4, 2)), np.array([0, 3, 3, 1, 0])
    for padding in (3, -1):
        (got,) = gradients(lambda t, p=padding: index.embedding(t, indices, p), table)
        np.testing.assert_array_equal(got, [[2, 2], [1, 1], [0, 0], [0, 0]])


def test_one_hot_leaves_out_what_is_outside() -> None:
    got = run(lambda i: index.one_hot(i, 3), np.array([0, -1, 3, -4]))
    np.testing.assert_array_equal(got, [[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]])
    got = run(lambda i: index.one_hot(i, 300, dtype="bool"), np.array([-1, 127], np.int8))
    np.testing.assert_array_equal(got.argmax(1), [299, 127])
    assert not run(lambda i: index.one_hot(i, 3), np.array([2**64 - 1], np.uint64)).any()


def test_one_hot_of_symbolic_depth_decomposes() -> None:
    op = index.OneHot(N, 0)
    graph = trace(lambda x, i: op.decompose(i), TensorType(f32, (N,)), TensorType(i64, (2,)))
    (got,) = interpret(graph, [np.zeros(3, np.float32), np.array([-1, 1])])
    np.testing.assert_array_equal(got, [[0, 0], [0, 1], [1, 0]])


def test_nonzero_has_a_count_of_its_own() -> None:
    def two(x: Any, y: Any) -> Any:
        return index.nonzero(x), index.nonzero(y)

    graph = trace(two, "f32[3, n]", "bool[4]")
    verify(graph)
    assert [str(value.type) for value in graph.outputs] == ["i64[nonzero, 2]", "i64[nonzero_1, 1]"]
    again = parse(print_graph(graph))
    x, y = np.eye(3, dtype=np.float32), np.array([True, False, True, True])
    for first, second in (interpret(graph, [x, y]), interpret(again, [x, y])):
        np.testing.assert_array_equal(first, [[0, 0], [1, 1], [2, 2]])
        np.testing.assert_array_equal(second, [[0], [2], [3]])


# x[key].

A = np.array([0, 2, -1])
B = np.array([[1], [-1]])
MASK = np.array([[True, False, True, True], [False] * 4, [False, True, False, False]])

KEYS = [
    2,
    -1,
    np.int32(1),
    np.array(1),
    (0, 1, 2),
    (...,),
    ...,
    (),
    None,
    (None, 0, None, ..., None),
    slice(None),
    slice(1, None),
    slice(None, -1),
    slice(-2, None),
    slice(5, 1),
    slice(-100, 100),
    slice(0, None, 2),
    (slice(None), slice(1, 4, 2), 0),
    slice(None, None, -1),
    (slice(None), slice(None, None, -2), slice(3, 0, -1)),
    (..., slice(-1, -4, -2)),
    (slice(0, None, -1), slice(100, -100, -3)),
    (..., slice(-100, None, -1)),
    (..., -1),
    (0, ..., -1),
    (slice(None), None, 1),
    A,
    [0, 2, 2],
    [],
    [[0, 1], [2, -1]],
    (slice(None), A),
    (..., A),
    (A, A),
    (A, B),
    (A, slice(None), A),
    (B, slice(None), A),
    (slice(None), A, A),
    (slice(None), B, A),
    (slice(None), 0, A),
    (0, slice(None), A),
    (0, A),
    (A, 0),
    (A, None, A),
    (None, A, None),
    (A, ..., A),
    (slice(None), A, ..., A),
    (slice(None), A, slice(1, 4)),
    (slice(None, None, -1), A, slice(None, None, -2)),
    (A, A, A),
    (0, 1, A),
    (A[:0], slice(1)),
    MASK,
    (MASK, slice(1, 3)),
    (MASK, 0),
    MASK[:, 0],
    (slice(None), MASK[0]),
    (slice(None), MASK[0], 0),
    (MASK[:, 0], slice(None), A[:2]),
    (MASK[0][:3], None, slice(None), None),
    [True, False, True],
    (..., [False] * 5),
    X > 30,
    np.zeros((3, 4, 5), np.bool_),
]  # fmt: skip


def _name(key: Any) -> str:
    return str(key).replace("\n", "").replace("slice", "")[:60]


@pytest.mark.parametrize("key", KEYS, ids=_name)
def test_a_key_selects_what_it_does_in_numpy(key: Any) -> None:
    got = run(lambda x: x[key], X)
    expected = X[key]
    assert got.shape == expected.shape
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("key", KEYS, ids=_name)
def test_the_gradient_of_a_key_counts_what_it_selects(key: Any) -> None:
    (got,) = gradients(lambda x: x[key], X.astype(np.float64))
    expected = np.zeros(X.shape)
    np.add.at(
        expected, key if not isinstance(key, list) else np.array(key, np.array(key or [0]).dtype), 1
    )
    np.testing.assert_array_equal(got, expected)


def _parts(key: Any) -> list[Any]:
    return list(key) if isinstance(key, tuple) else [key]


def _arrays(key: Any) -> list[np.ndarray]:
    return [part for part in _parts(key) if isinstance(part, np.ndarray)]


@pytest.mark.parametrize("key", [key for key in KEYS if _arrays(key)], ids=_name)
def test_a_key_may_be_made_of_values(key: Any) -> None:
    parts, arrays = _parts(key), _arrays(key)

    def select(x: Any, *values: Any) -> Any:
        given = iter(values)
        return x[tuple(next(given) if isinstance(part, np.ndarray) else part for part in parts)]

    got = run(select, X, *arrays)
    np.testing.assert_array_equal(got, X[key])


@pytest.mark.parametrize("seed", range(60))
def test_random_keys(seed: int) -> None:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(4, 4, 4, 4))  # alike, so that an index fits wherever ... moves it
    key: list[Any] = []
    for size in x.shape[: generator.integers(0, 5)]:
        start, stop = generator.integers(-6, 7, 2)
        step = int(generator.choice([-3, -2, -1, 1, 2, 3]))
        choices = [
            int(generator.integers(-size, size)),
            slice(int(start), int(stop), step),
            slice(None),
            generator.integers(-size, size, [(), (2,), (3, 1)][generator.integers(3)]),
        ]
        key.append(choices[generator.choice(4)])
        if generator.random() < 0.2:
            key.append(None)
    if generator.random() < 0.5:
        key.insert(int(generator.integers(0, len(key) + 1)), ...)
    got = run(lambda v: v[tuple(key)], x)
    np.testing.assert_array_equal(got, x[tuple(key)])


SYMBOLIC: list[tuple[Callable[[Any, Any], Any], str, Callable[[Any, Any], Any]]] = [
    (lambda x, y: x[:, -1], "f32[n, 4]", lambda x, y: x[:, -1]),
    (lambda x, y: x[-1], "f32[m, 4]", lambda x, y: x[-1]),
    (lambda x, y: x[1:], "f32[n-1, m, 4]", lambda x, y: x[1:]),
    (lambda x, y: x[:-1], "f32[n-1, m, 4]", lambda x, y: x[:-1]),
    (lambda x, y: x[::-1], "f32[n, m, 4]", lambda x, y: x[::-1]),
    (lambda x, y: x[::2], "f32[(n+1)//2, m, 4]", lambda x, y: x[::2]),
    (lambda x, y: x[:, 1], "f32[n, 4]", lambda x, y: x[:, 1]),
    (lambda x, y: x[: y.shape[0]], "f32[n, m, 4]", lambda x, y: x[: len(y)]),
    (lambda x, y: x[y.shape[0] - 1], "f32[m, 4]", lambda x, y: x[len(y) - 1]),
    (lambda x, y: x[2], "f32[m, 4]", lambda x, y: x[2]),
    (lambda x, y: x[-3], "f32[m, 4]", lambda x, y: x[-3]),
    (lambda x, y: x[:2], "f32[min(n, 2), m, 4]", lambda x, y: x[:2]),
    (lambda x, y: x[-2:], "f32[-max(n-2, 0)+n, m, 4]", lambda x, y: x[-2:]),
    (lambda x, y: x[y], "f32[n, m, 4]", lambda x, y: x[y]),
    (lambda x, y: x[:, 0, y], "f32[n, n]", lambda x, y: x[:, 0, y]),
    (lambda x, y: x[y, None, :, y], "f32[n, 1, m]", lambda x, y: x[y, None, :, y]),
    (lambda x, y: x[y > 0], "f32[nonzero, m, 4]", lambda x, y: x[y > 0]),
    (lambda x, y: x[:, ::-2], "f32[n, (m+1)//2, 4]", lambda x, y: x[:, ::-2]),
]


@pytest.mark.parametrize(("ours", "type_", "theirs"), SYMBOLIC, ids=[s[1] for s in SYMBOLIC])
@pytest.mark.parametrize("m", [2, 5])
def test_keys_of_symbolic_shapes(ours: Any, type_: str, theirs: Any, m: int) -> None:
    graph = trace(ours, TensorType(f32, (N, M, 4)), TensorType(i64, (N,)))
    assert str(graph.outputs[0].type) == type_
    x = np.random.default_rng(0).normal(size=(3, m, 4)).astype(np.float32)
    y = np.array([1, 0, 2])
    np.testing.assert_array_equal(interpret(graph, [x, y])[0], theirs(x, y))


def test_a_position_that_may_be_outside_is_checked_when_it_runs() -> None:
    graph = trace(lambda x: x[3], TensorType(f32, (N,)))
    with pytest.raises(EvaluationError, match="index 3 is outside axis 0, which has size 2"):
        interpret(graph, [np.zeros(2, np.float32)])


def test_a_graph_with_a_mask_can_be_differentiated() -> None:
    graph = trace(lambda x: reduce.sum(x[x > 0.0] * 3.0), TensorType(f64, (N, 2)))
    x = np.array([[1.0, -1.0], [-2.0, 5.0], [0.5, -0.0]])
    (got,) = interpret(grad(graph), [x])
    np.testing.assert_array_equal(got, np.where(x > 0, 3.0, 0.0))


def test_simple_keys_become_simple_ops() -> None:
    def ops(key: Any) -> list[str]:
        nodes = trace(lambda x: x[key], "f32[3, 4]").nodes
        return [node.op.name for node in nodes if node.op.name != "constant"]

    assert ops(...) == []
    assert ops(slice(None)) == []
    assert ops(slice(1, None)) == ["slice"]
    assert ops(0) == ["slice", "reshape"]
    assert ops(slice(None, None, -1)) == ["flip"]
    assert ops(None) == ["reshape"]
    assert ops(np.array([0, 2]))[-1] == "take"
    assert "gather" in ops((A, A))


@pytest.mark.parametrize(
    ("message", "key"),
    [
        ("too many indices", (0, 0, 0, 0)),
        ("too many indices", (MASK, 0, 0)),
        ("only one ellipsis", (..., ...)),
        ("index 3 is outside axis 0", 3),
        ("index -5 is outside axis 1", (0, -5)),
        ("cannot be indexed by this", 1.5),
        ("cannot be indexed by this", "a"),
        ("cannot be indexed by this", True),
        ("cannot be indexed by this", np.array([0.5])),
        ("cannot be indexed by this", np.zeros(0)),
        ("cannot be indexed by this", {0}),
        ("not an array of indices", [[1], [1, 2]]),
        ("step that is known and not 0", slice(None, None, 0)),
        ("ends that are known", slice(0.5, None)),
        ("mask does not fit", MASK[:2]),
        ("mask does not fit", np.array(True)),
        ("do not broadcast together", (A, A[:2])),
    ],
)
def test_keys_that_are_refused(message: str, key: Any) -> None:
    with pytest.raises(InputError, match=message) as caught:
        trace(lambda x: x[key], X)
    assert caught.value.found is not None


def test_values_and_sizes_that_are_refused_in_keys() -> None:
    with pytest.raises(InputError, match="ends that are known"):
        trace(lambda x, i: x[i:], "f32[3]", "i64[]")
    with pytest.raises(InputError, match="cannot be indexed by this"):
        trace(lambda x, y: x[y], "f32[3]", "f32[3]")
    with pytest.raises(InputError, match="this list is not an array of indices"):
        trace(lambda x, i: x[[i, 0]], "f32[3]", "i64[]")
    with pytest.raises(InputError, match="may be negative or not"):
        trace(lambda x: x[N - M :], TensorType(f32, (N, M)))
    graph = trace(lambda x: x[dim_max(N - M, 0) :], TensorType(f32, (N, M)))
    assert interpret(graph, [np.zeros((5, 2), np.float32)])[0].shape == (2, 2)


def test_indices_of_whole_rows_write_whole_rows() -> None:
    def written(x: Any, i: Any, values: Any) -> Any:
        places = shape.expand(shape.unsqueeze(i, 1), (6, 5))
        return index.put_along_axis(x, places, values, 0, "max")

    graph = trace(written, "f32[4, 5]", "i64[6]", "f32[6, 5]")
    assert "scatter" in [node.op.name for node in graph.nodes]
    x, values = X[0], np.flip(X.reshape(-1))[:30].reshape(6, 5).copy()
    values[2, 3] = np.nan
    rows = np.array([3, 0, -1, 0, 2, 3])
    expected = np.array(x)
    for row, update in zip(rows, values, strict=True):
        expected[row] = np.maximum(expected[row], update)
    np.testing.assert_array_equal(run(written, x, rows, values), expected)
