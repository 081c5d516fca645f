"""What is special about ops that move elements: symbolic sizes, clamping, crops, borders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from monograph.autodiff.vjp import grad
from monograph.errors import EvaluationError
from monograph.frontends.trace import trace
from monograph.ir.interpret import interpret
from monograph.ir.types import DTYPES, string
from monograph.ops import joining, reduce, shape, slicing, triangle
from tests.ops.running import refuses, shape_of

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def run(function: Callable[..., Any], *operands: Any) -> Any:
    """The one output of a function traced on these arrays."""
    arrays = [np.asarray(operand) for operand in operands]
    return interpret(trace(function, *arrays), arrays)[0]


# Reshape, expand, transpose.


def test_reshape_works_out_minus_one_of_symbols() -> None:
    assert shape_of(lambda x: shape.reshape(x, (x.shape[0], -1)), "f32[batch, 3, 4]") == [
        "batch",
        "12",
    ]
    assert shape_of(lambda x: shape.reshape(x, (-1, 4)), "f32[batch, 8]") == ["2*batch", "4"]


def test_reshape_to_the_same_shape_is_nothing() -> None:
    assert len(trace(lambda x: shape.reshape(x, (3, 4)), "f32[3, 4]").nodes) == 0


@pytest.mark.parametrize(
    ("message", "target"),
    [
        ("number of elements", (5, 2)),
        ("-1 cannot be worked out", (-1, -1)),
        ("-1 cannot be worked out", (0, -1)),
        ("number of elements", (5, -1)),
        ("negative", (-3, -4)),
    ],
)
def test_reshape_refuses(message: str, target: tuple[int, ...]) -> None:
    refuses(message, lambda x: shape.reshape(x, target), "f32[3, 4]")


def test_expand_refuses_what_does_not_broadcast() -> None:
    refuses("broadcast", lambda x: shape.expand(x, (3, 5)), "f32[3, 4]")
    refuses("does not fit", lambda x: shape.expand(x, (4,)), "f32[3, 4]")
    refuses("does not fit", lambda x: shape.expand(x, (1,)), "f32[4]")


def test_transpose_refuses_what_is_no_permutation() -> None:
    refuses("twice", lambda x: shape.transpose(x, (0, 0)), "f32[3, 4]")
    refuses("out of range", lambda x: shape.transpose(x, (0, 2)), "f32[3, 4]")
    refuses("not a permutation", lambda x: shape.transpose(x, (0,)), "f32[3, 4]")


def test_axes_move_as_in_numpy() -> None:
    x = np.zeros((2, 3, 4, 5), np.float32)
    assert run(lambda v: shape.moveaxis(v, 0, -1), x).shape == np.moveaxis(x, 0, -1).shape
    moved = run(lambda v: shape.moveaxis(v, (0, 1), (-1, 0)), x)
    assert moved.shape == np.moveaxis(x, (0, 1), (-1, 0)).shape
    assert run(lambda v: shape.swapaxes(v, 0, -2), x).shape == np.swapaxes(x, 0, -2).shape
    assert run(lambda v: shape.flatten(v, 1, -2), x).shape == (2, 12, 5)
    assert run(shape.flatten, np.float32(3)).shape == (1,)
    refuses("out of order", lambda v: shape.flatten(v, 2, 1), "f32[2, 3, 4]")
    refuses("pair up", lambda v: shape.moveaxis(v, (0, 1), 0), "f32[2, 3]")


def test_squeeze_and_unsqueeze() -> None:
    assert shape_of(shape.squeeze, "f32[1, n, 1]") == ["n"]
    assert shape_of(lambda x: shape.squeeze(x, -1), "f32[n, m]") == ["n"]
    assert shape_of(lambda x: shape.unsqueeze(x, (0, -1)), "f32[n]") == ["1", "n", "1"]
    refuses("not 1", lambda x: shape.squeeze(x, 0), "f32[2, 1]")
    refuses("out of range", lambda x: shape.unsqueeze(x, 3), "f32[2]")


def test_tile_fills_the_shorter_with_ones() -> None:
    np.testing.assert_array_equal(run(lambda x: shape.tile(x, 2), X), np.tile(X, 2))
    np.testing.assert_array_equal(run(lambda x: shape.tile(x, (2, 1, 3)), X), np.tile(X, (2, 1, 3)))
    assert shape_of(lambda x: shape.tile(x, (x.shape[0], 2)), "f32[n, 3]") == ["n*n", "6"]
    refuses("negative", lambda x: shape.tile(x, -1), "f32[3]")


# Slice.


@pytest.mark.parametrize("start", [-9, -4, -1, 0, 2, 4, 9])
@pytest.mark.parametrize("limit", [-9, -3, 0, 1, 4, 9, None])
@pytest.mark.parametrize("step", [1, 2, 3])
def test_slice_is_python_s(start: int, limit: int | None, step: int) -> None:
    got = run(lambda x: slicing.slice(x, [start], [limit], [step], axes=[1]), X)
    np.testing.assert_array_equal(got, X[:, start:limit:step])


def test_symbolic_slices() -> None:
    def cut(start: Any, limit: Any, step: int = 1) -> list[str]:
        return shape_of(lambda x: slicing.slice(x, [start], [limit], [step]), "f32[n]")

    assert cut(1, None) == ["n-1"]
    assert cut(0, -1) == ["n-1"]
    assert cut(0, None, 2) == ["(n+1)//2"]
    assert cut(0, 5) == ["min(n, 5)"]
    assert cut(-3, None) == ["-max(n-3, 0)+n"]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize(
    ("start", "limit", "step"), [(-3, None, 1), (1, -1, 2), (0, 5, 3), (4, 2, 1)]
)
def test_a_symbolic_slice_has_the_size_it_says(
    size: int, start: int, limit: int | None, step: int
) -> None:
    graph = trace(lambda x: slicing.slice(x, [start], [limit], [step]), "f32[n]")
    x = np.arange(size, dtype=np.float32)
    np.testing.assert_array_equal(interpret(graph, [x])[0], x[start:limit:step])
    total = trace(lambda x: reduce.sum(slicing.slice(x, [start], [limit], [step])), "f32[n]")
    expected = np.zeros_like(x)
    expected[start:limit:step] = 1
    np.testing.assert_array_equal(interpret(grad(total), [x])[0], expected)


def test_slice_refuses() -> None:
    refuses("not positive", lambda x: slicing.slice(x, [0], [3], [0]), "f32[3]")
    refuses("not positive", lambda x: slicing.slice(x, [2], [0], [-1]), "f32[3]")
    refuses("for each axis", lambda x: slicing.slice(x, [0], [1, 2]), "f32[3, 4]")
    refuses("for each dimension", slicing.Slice((0,), (1,), (1,)), "f32[3, 4]")
    refuses("out of range", lambda x: slicing.slice(x, [0], [1], axes=[2]), "f32[3]")
    refuses("twice", lambda x: slicing.slice(x, [0, 0], [1, 1], axes=[0, -1]), "f32[3]")


def test_slice_of_everything_is_nothing() -> None:
    assert len(trace(lambda x: slicing.slice(x, [0], [None]), "f32[n]").nodes) == 0


# Pad.


def test_pad_with_exact_values() -> None:
    row = np.array([1, 2, 3], np.float32)

    def padded(low: int, high: int, **options: Any) -> list[float]:
        result: list[float] = run(lambda x: slicing.pad(x, [low], [high], **options), row).tolist()
        return result

    assert padded(1, 2, value=9) == [9, 1, 2, 3, 9, 9]
    assert padded(-1, 1) == [2, 3, 0]
    assert padded(1, 0, interior=[2], value=7) == [7, 1, 7, 7, 2, 7, 7, 3]
    assert padded(-1, -1, interior=[1]) == [0, 2, 0]
    assert padded(2, 1, mode="reflect") == [3, 2, 1, 2, 3, 2]
    assert padded(2, 2, mode="edge") == [1, 1, 1, 2, 3, 3, 3]
    assert padded(2, 3, mode="wrap") == [2, 3, 1, 2, 3, 1, 2, 3]
    assert padded(-1, 2, mode="reflect") == [2, 3, 2, 1]


def test_pad_dtypes() -> None:
    for dtype in DTYPES.values():
        if dtype is string or dtype.name == "f8e8m0fnu":
            continue
        x = np.ones(2, dtype.numpy)
        got = run(lambda v: slicing.pad(v, [1], [0], value=0), x)
        assert got.dtype == dtype.numpy
        assert got.astype(np.complex64).tolist() == [0, 1, 1]


def test_pad_symbolic_amounts() -> None:
    graph = trace(lambda x: slicing.pad(x, [0], [-x.shape[0] % 8]), "f32[n]")
    assert interpret(graph, [np.ones(5, np.float32)])[0].shape == (8,)
    assert interpret(graph, [np.ones(16, np.float32)])[0].shape == (16,)


def test_pad_refuses() -> None:
    refuses("more is cropped", lambda x: slicing.pad(x, [-2], [-2]), "f32[3]")
    refuses("for each dimension", lambda x: slicing.pad(x, [1], [1]), "f32[3, 4]")
    refuses("not one of the dtype", lambda x: slicing.pad(x, [1], [1], value=0.5), "i32[3]")
    refuses("not one of the dtype", lambda x: slicing.pad(x, [1], [1], value=300), "u8[3]")
    refuses("interior", slicing.Pad((0,), (0,), (-1,)), "f32[3]")
    refuses("no such mode", lambda x: slicing.pad(x, [1], [1], mode="mirror"), "f32[3]")
    refuses("no such mode", slicing.PadBorder((1,), (1,), "mirror"), "f32[3]")
    refuses("wider", lambda x: slicing.pad(x, [3], [0], mode="reflect"), "f32[3]")
    refuses("wider", lambda x: slicing.pad(x, [0], [4], mode="wrap"), "f32[3]")
    refuses("wider", lambda x: slicing.pad(x, [1], [0], mode="edge"), "f32[0]")
    refuses(
        "only a constant",
        lambda x: slicing.pad(x, [1], [0], mode="edge", interior=[1]),
        "f32[3]",
    )


def test_a_border_too_wide_is_found_when_the_size_is_known() -> None:
    graph = trace(lambda x: slicing.pad(x, [3], [0], mode="reflect"), "f32[n]")
    assert interpret(graph, [np.arange(4, dtype=np.float32)])[0].tolist() == [3, 2, 1, 0, 1, 2, 3]
    with pytest.raises(EvaluationError, match="wider"):
        interpret(graph, [np.arange(3, dtype=np.float32)])


# Flip, roll, triangles.


def test_flip_and_roll() -> None:
    np.testing.assert_array_equal(run(slicing.flip, X), X[::-1, ::-1])
    np.testing.assert_array_equal(run(lambda x: slicing.roll(x, 5), X), np.roll(X, 5))
    np.testing.assert_array_equal(
        run(lambda x: slicing.roll(x, -1, (0, 1)), X), np.roll(X, -1, (0, 1))
    )
    refuses("twice", lambda x: slicing.flip(x, (0, -1)), "f32[3]")
    refuses("one shift", lambda x: slicing.roll(x, (1, 2), 0), "f32[3]")


def test_a_symbolic_roll_decomposes() -> None:
    graph = trace(lambda x: slicing.Roll((5,), (0,)).decompose(x), "f32[n]")
    for size in (1, 3, 5, 8):
        x = np.arange(size, dtype=np.float32)
        np.testing.assert_array_equal(interpret(graph, [x])[0], np.roll(x, 5))


def test_triangles_with_a_symbolic_diagonal() -> None:
    graph = trace(lambda x, y: triangle.triu(x, y.shape[0] - 2), "f32[3, 4]", "f32[n]")
    for size in (1, 2, 4):
        got = interpret(graph, [X, np.zeros(size, np.float32)])[0]
        np.testing.assert_array_equal(got, np.triu(X, size - 2))
    refuses("matrix", triangle.tril, "f32[3]")


# Concat, stack, split.


def test_concat_adds_symbolic_sizes() -> None:
    assert shape_of(lambda a, b: joining.concat((a, b), 0), "f32[n, 3]", "f32[m+1, 3]") == [
        "m+n+1",
        "3",
    ]
    assert shape_of(lambda a, b: joining.concat((a, b), 1), "f32[n, 3]", "f32[2, 3]") == ["2", "6"]


def test_concat_promotes() -> None:
    got = run(lambda a, b: joining.concat((a, b)), np.ones(1, np.int32), np.ones(1, np.float16))
    assert got.dtype == np.float16


def test_joining_refuses() -> None:
    def together(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda a, b: function((a, b), 0)

    refuses("different ranks", together(joining.concat), "f32[2]", "f32[2, 2]")
    refuses("dimension 1 differ", together(joining.concat), "f32[2, 3]", "f32[2, 4]")
    refuses("dimension 0 differ", together(joining.stack), "f32[2]", "f32[3]")
    refuses("out of range", together(joining.concat), "f32[]", "f32[]")
    refuses("different dtypes", joining.Concat(0), "f32[2]", "i32[2]")
    refuses("no operands", lambda: joining.concat(()))
    refuses("no operands", lambda: joining.Stack(0)())


def test_split_into_equal_parts_or_sizes() -> None:
    graph = trace(lambda x: joining.split(x, 2, -1), X)
    left, right = interpret(graph, [X])
    np.testing.assert_array_equal(left, X[:, :2])
    np.testing.assert_array_equal(right, X[:, 2:])
    rows = interpret(trace(joining.unstack, X), [X])
    np.testing.assert_array_equal(np.stack(rows), X)


def test_split_refuses_sizes_that_do_not_add_up() -> None:
    refuses("add up", lambda x: joining.split(x, 3, 1), "f32[3, 4]")
    refuses("add up", lambda x: joining.split(x, (1, 1), 0), "f32[3, 4]")
    refuses("wrong sizes", lambda x: joining.split(x, (4, -1), 0), "f32[3, 4]")
    refuses("wrong sizes", lambda x: joining.split(x, (), 0), "f32[0]")
    refuses("no parts", lambda x: joining.split(x, 0, 0), "f32[3]")
    refuses("must be known", joining.unstack, "f32[n]")
    graph = trace(lambda x: joining.split(x, 2), "f32[n]")
    assert len(interpret(graph, [np.zeros(6, np.float32)])) == 2
    with pytest.raises(EvaluationError, match="add up"):
        interpret(graph, [np.zeros(5, np.float32)])


def test_strings_move_too() -> None:
    words = np.array(["a", "b", "c"], object)
    graph = trace(
        lambda x: joining.concat((slicing.flip(x), slicing.slice(x, [1], [2]))), "string[3]"
    )
    assert interpret(graph, [words])[0].tolist() == ["c", "b", "a", "b"]
