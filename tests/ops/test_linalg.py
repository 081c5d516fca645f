"""What is special about contractions: dtypes, vectors and batches, symbols, equations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from monograph.autodiff.vjp import grad
from monograph.errors import EvaluationError
from monograph.frontends.trace import trace
from monograph.ir.interpret import interpret
from monograph.ir.op import Op
from monograph.ops import elementwise, reduce
from monograph.ops.einsum import Einsum, einsum
from monograph.ops.linalg import (
    DotGeneral,
    Linear,
    Matmul,
    dot_general,
    inner,
    linear,
    matmul,
    outer,
    tensordot,
)
from monograph.ops.shape import transpose
from tests.ops.running import refuses, shape_of

GENERATOR = np.random.default_rng(5)


def run(function: Callable[..., Any], *arrays: np.ndarray) -> Any:
    return interpret(trace(function, *arrays), arrays)[0]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((4,), (4,)),
        ((4,), (2, 4, 3)),
        ((5, 2, 4), (4,)),
        ((2, 4), (5, 4, 3)),
        ((5, 1, 2, 4), (3, 4, 2)),
    ],
)
def test_matmul_has_numpy_s_shapes(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = GENERATOR.normal(size=left), GENERATOR.normal(size=right)
    np.testing.assert_allclose(run(matmul, a, b), a @ b)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_narrow_floats_accumulate_in_f32(dtype: Any) -> None:
    """4096 ones: a bf16 or f8 sum would stall far below."""
    ones = np.ones((1, 4096), dtype)
    for result in (
        run(matmul, ones, ones.T),
        run(lambda a, b: einsum("ij,jk", a, b), ones, ones.T),
        run(linear, ones, ones),
    ):
        assert result.dtype == dtype
        assert float(result[0, 0]) == 4096.0


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint64])
def test_integers_wrap_in_their_own_dtype(dtype: Any) -> None:
    top = np.full((1, 3), np.iinfo(dtype).max, dtype)
    expected = (int(np.iinfo(dtype).max) ** 2 * 3) % 2 ** (8 * np.dtype(dtype).itemsize)
    for result in (run(matmul, top, top.T), run(lambda a, b: einsum("ij,kj", a, b), top, top)):
        assert result.dtype == dtype
        assert int(result[0, 0]) % 2 ** (8 * np.dtype(dtype).itemsize) == expected


def test_four_bit_integers_wrap() -> None:
    a = np.array([[7, 7]], ml_dtypes.int4)
    assert int(run(matmul, a, a.T)[0, 0]) == (98 + 8) % 16 - 8


def test_bool_matmul_is_or_of_ands() -> None:
    a = np.array([[True, False], [False, False]])
    np.testing.assert_array_equal(run(matmul, a, a.T), [[True, False], [False, False]])


def test_operands_promote() -> None:
    got = run(matmul, np.ones((2, 2), np.int32), np.ones((2, 2), np.float16))
    assert got.dtype == np.float16


@pytest.mark.parametrize(
    "function",
    [matmul, lambda a, b: einsum("ij,jk", a, b), lambda a, b: linear(a, transpose(b))],
)
def test_nothing_to_sum_is_zero(function: Callable[..., Any]) -> None:
    got = run(function, np.zeros((2, 0), np.float32), np.zeros((0, 3), np.float32))
    np.testing.assert_array_equal(got, np.zeros((2, 3), np.float32))


def test_symbolic_matmul() -> None:
    assert shape_of(matmul, "f32[b, s, 4]", "f32[4, n]") == ["b", "s", "n"]
    assert shape_of(matmul, "f32[b, 1, s, k]", "f32[h, k, n]") == ["b", "h", "s", "n"]
    assert shape_of(matmul, "f32[n]", "f32[4]") == []


@pytest.mark.parametrize(
    ("types", "shapes"),
    [
        (("f64[b, s, 4]", "f64[4, n]"), ((2, 3, 4), (4, 5))),
        (("f64[b, 1, s, k]", "f64[h, k, n]"), ((2, 1, 3, 4), (5, 4, 2))),
        (("f64[a, s, k]", "f64[b, k, n]"), ((3, 2, 4), (3, 4, 5))),
        (("f64[k]", "f64[a, k, n]"), ((4,), (2, 4, 3))),
    ],
)
def test_symbolic_matmul_decomposes_to_one_contraction(
    types: tuple[str, str], shapes: tuple[tuple[int, ...], ...]
) -> None:
    graph = trace(lambda a, b: Matmul().decompose(a, b), *types)
    assert sum(isinstance(node.op, DotGeneral) for node in graph.nodes) == 1
    a, b = (GENERATOR.normal(size=shape) for shape in shapes)
    np.testing.assert_allclose(interpret(graph, [a, b])[0], a @ b)


def test_matmul_with_a_plain_matrix_needs_no_expansion() -> None:
    graph = trace(lambda a, b: Matmul().decompose(a, b), "f32[b, s, 4]", "f32[4, n]")
    assert [node.op.name for node in graph.nodes] == ["dot_general"]


def test_matmul_refuses() -> None:
    refuses("matmul: the inner dimensions differ", matmul, "f32[2, 3]", "f32[4, 5]")
    refuses("inner dimensions differ", matmul, "f32[2, 3]", "f32[2]")
    refuses("inner dimensions differ", matmul, "f32[2, n]", "f32[n+1, 5]")
    refuses("do not broadcast", matmul, "f32[2, 3, 4]", "f32[3, 4, 5]")
    refuses("scalar", matmul, "f32[]", "f32[3]")
    refuses("different dtypes", Matmul(), "f32[2, 2]", "f64[2, 2]")
    refuses("numbers", Matmul(), "string[2, 2]", "string[2, 2]")


def test_sizes_that_differ_only_at_run_time_are_an_error() -> None:
    graph = trace(matmul, "f32[2, n]", "f32[m, 3]")
    with pytest.raises(EvaluationError):
        interpret(graph, [np.ones((2, 3), np.float32), np.ones((4, 3), np.float32)])
    pairs = trace(lambda a, b: dot_general(a, b, (0, 1), (0, 1)), "f32[a, b]", "f32[c, d]")
    with pytest.raises(EvaluationError, match="paired"):
        interpret(pairs, [np.ones((2, 3), np.float32), np.ones((3, 2), np.float32)])


def test_dot_general_refuses() -> None:
    refuses("contracting dimensions differ", DotGeneral((1,), (0,)), "f32[2, 3]", "f32[4, 5]")
    refuses("batch dimensions differ", DotGeneral((), (), (0,), (0,)), "f32[2, 3]", "f32[4, 5]")
    refuses("twice", DotGeneral((0,), (0,), (-2,), (1,)), "f32[2, 2]", "f32[2, 2]")
    refuses("pair up", DotGeneral((0,), ()), "f32[2, 3]", "f32[4, 5]")
    refuses("out of range", DotGeneral((2,), (0,)), "f32[2, 3]", "f32[3, 5]")
    refuses("out of range", DotGeneral((0,), (0,)), "f32[]", "f32[3]")


def test_linear_refuses() -> None:
    refuses("inner dimensions differ", linear, "f32[2, 3]", "f32[5, 4]")
    refuses("wrong ranks", linear, "f32[2, 3]", "f32[3]")
    refuses("bias differ", linear, "f32[2, 3]", "f32[5, 3]", "f32[4]")
    refuses("rank of bias", linear, "f32[2, 3]", "f32[5, 3]", "f32[1, 5]")
    refuses("number of operands", Linear(), "f32[2, 3]")


def test_compositions_are_numpy_s() -> None:
    a, b = GENERATOR.normal(size=(2, 3, 4)), GENERATOR.normal(size=(4, 3, 2))
    np.testing.assert_allclose(run(outer, a, b), np.outer(a, b))
    np.testing.assert_allclose(run(inner, a, b.T), np.inner(a, b.T))
    np.testing.assert_allclose(run(inner, a, np.array(2.0)), np.inner(a, 2.0))
    np.testing.assert_allclose(run(lambda x, y: tensordot(x, y, 1), a, b), np.tensordot(a, b, 1))
    axes = ((0, 1), (2, 1))
    np.testing.assert_allclose(
        run(lambda x, y: tensordot(x, y, axes), a, b), np.tensordot(a, b, axes)
    )
    refuses("wrong number of axes", lambda x, y: tensordot(x, y, 3), "f32[2]", "f32[2]")


EQUATIONS = [
    ("ij,jk->ik", ((2, 3), (3, 4))),
    ("ij,jk", ((2, 3), (3, 4))),
    ("ji", ((2, 3),)),
    ("ii", ((3, 3),)),
    ("iii->i", ((3, 3, 3),)),
    ("ijji->j", ((2, 3, 3, 2),)),
    ("i->", ((3,),)),
    ("...i,...i", ((2, 3), (4, 1, 3))),
    ("a...b->b...a", ((2, 3, 4, 5),)),
    ("...,...", ((2, 1), (3,))),
    ("b...,...c->c...b", ((2, 3), (3, 4))),
    ("bhqd,bhkd->bhqk", ((2, 3, 4, 5), (2, 3, 6, 5))),
    ("bn,anm,bm->ba", ((2, 3), (4, 3, 5), (2, 5))),
    ("ij,jk,kl,lm->im", ((2, 3), (3, 4), (4, 2), (2, 3))),
    ("ij,ij->", ((1, 4), (3, 4))),
    ("i,i,i->i", ((3,), (1,), (3,))),
    ("ij,kj->ki", ((1, 3), (2, 1))),
    ("Ab,bA->bA", ((2, 3), (3, 2))),
    (" i j , j -> i ", ((2, 3), (3,))),
]


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS, ids=[e for e, _ in EQUATIONS])
def test_einsum_is_numpy_s_whole_and_decomposed(
    equation: str, shapes: tuple[tuple[int, ...], ...]
) -> None:
    arrays = [GENERATOR.normal(size=shape) for shape in shapes]
    expected = np.einsum(equation, *arrays)
    np.testing.assert_allclose(run(lambda *xs: einsum(equation, *xs), *arrays), expected)
    np.testing.assert_allclose(run(lambda *xs: Einsum(equation).decompose(*xs), *arrays), expected)


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS, ids=[e for e, _ in EQUATIONS])
def test_einsum_with_every_size_a_symbol(
    equation: str, shapes: tuple[tuple[int, ...], ...]
) -> None:
    """One symbol for each size but 1, so that the same rule serves symbols and numbers."""
    types = [
        f"f64[{', '.join('1' if size == 1 else f'n{size}' for size in shape)}]" for shape in shapes
    ]
    arrays = [GENERATOR.normal(size=shape) for shape in shapes]
    graph = trace(lambda *xs: Einsum(equation).decompose(*xs), *types)
    np.testing.assert_allclose(interpret(graph, arrays)[0], np.einsum(equation, *arrays))


def test_einsum_sums_an_ellipsis_that_the_result_leaves_out() -> None:
    x = GENERATOR.normal(size=(2, 3, 4))
    np.testing.assert_allclose(run(lambda v: einsum("i...->i", v), x), x.sum((1, 2)))


def test_einsum_writes_the_result_out() -> None:
    graph = trace(lambda a, b: einsum("ba, ac", a, b), "f32[2, 3]", "f32[3, 4]")
    assert [node.op for node in graph.nodes] == [Einsum("ba,ac->bc")]


@pytest.mark.parametrize(
    ("message", "equation", "types"),
    [
        ("another number of operands", "ij,jk->ik", ("f32[2, 3]",)),
        ("does not fit", "ijk->i", ("f32[2, 3]",)),
        ("does not fit", "i->i", ("f32[2, 3]",)),
        ("does not fit", "ijk...->i", ("f32[2, 3]",)),
        ("cannot be read", "i1->i", ("f32[2, 3]",)),
        ("cannot be read", "ij->i->j", ("f32[2, 3]",)),
        ("cannot be read", "i..j->i", ("f32[2, 3]",)),
        ("cannot be read", "......->", ("f32[2, 3]",)),
        ("cannot be read", "ij->i,j", ("f32[2, 3]",)),
        ("names an axis twice", "ij->ii", ("f32[2, 3]",)),
        ("no operand has", "ij->ik", ("f32[2, 3]",)),
        ("diagonal i differ", "ii->i", ("f32[2, 3]",)),
        ("do not broadcast", "ij,jk->ik", ("f32[2, 3]", "f32[4, 5]")),
    ],
)
def test_einsum_refuses(message: str, equation: str, types: tuple[str, ...]) -> None:
    refuses(message, lambda *xs: Einsum(equation)(*xs), *types)


@pytest.mark.parametrize(
    ("op", "reference", "shapes"),
    [
        (Matmul(), torch.matmul, ((2, 3, 4), (4, 5))),
        (DotGeneral((1,), (0,)), torch.matmul, ((3, 4), (4, 5))),
        (Einsum("ij,kj->ki"), lambda a, b: torch.einsum("ij,kj->ki", a, b), ((3, 4), (2, 4))),
    ],
)
def test_complex_gradients_follow_torch(
    op: Op, reference: Callable[..., Any], shapes: tuple[tuple[int, ...], ...]
) -> None:
    arrays = [GENERATOR.normal(size=s) + 1j * GENERATOR.normal(size=s) for s in shapes]

    def loss(a: Any, b: Any) -> Any:
        product = op(a, b)
        return reduce.sum(elementwise.real(product) * 2.0 - elementwise.imag(product))

    ours = interpret(grad(trace(loss, *arrays)), arrays)
    leaves = [torch.tensor(array, requires_grad=True) for array in arrays]
    product = reference(*leaves)
    (product.real * 2.0 - product.imag).sum().backward()
    for got, leaf in zip(ours, leaves, strict=True):
        np.testing.assert_allclose(got, leaf.grad.numpy())
