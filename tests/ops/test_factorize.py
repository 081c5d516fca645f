"""What is special about factorizations and linear systems: rebuilding, refusals, symbols."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch

from monograph.errors import DifferentiationError, EvaluationError
from monograph.frontends.trace import trace
from monograph.ir.interpret import interpret
from monograph.ops import elementwise, factorize, ldl, linalg, solve, spectral
from monograph.ops.matrices import adjoint
from tests.ops.against_torch import agree, draw
from tests.ops.running import complex_gradients, gradients, refuses, run


def run_all(function: Callable[..., Any], *arrays: Any) -> list[np.ndarray]:
    return interpret(trace(function, *arrays, name="test"), list(arrays))


def complex_draw(*shape: int, seed: int = 0) -> np.ndarray:
    return draw(*shape, seed=seed) + 1j * draw(*shape, seed=seed + 1)


SHAPES = [(3, 3), (2, 5, 3), (3, 5), (2, 0, 3), (3, 0), (1, 1)]
DTYPES = [np.float32, np.float64, np.complex64, np.complex128]


def matrices(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    x = complex_draw(*shape) if np.dtype(dtype).kind == "c" else draw(*shape)
    return x.astype(dtype)


def tolerance(dtype: Any) -> float:
    return 1e-5 if np.finfo(dtype).bits == 32 else 1e-12


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_factors_multiply_to_the_matrix(shape: tuple[int, ...], dtype: Any) -> None:
    x = matrices(shape, dtype)
    q, r = run_all(factorize.qr, x)
    np.testing.assert_allclose(q @ r, x, atol=tolerance(dtype))
    np.testing.assert_allclose(r, np.triu(r))
    u, s, vh = run_all(spectral.svd, x)
    assert s.dtype == np.finfo(dtype).dtype
    np.testing.assert_allclose((u * s[..., None, :]) @ vh, x, atol=tolerance(dtype))
    p, lower, upper = run_all(factorize.lu, x)
    np.testing.assert_allclose(p @ lower @ upper, x, atol=tolerance(dtype))
    np.testing.assert_array_equal(lower, np.tril(lower))
    packed, tau = run_all(factorize.householder_qr, x)
    product = run(lambda a, t: factorize.householder_product(a, t, x.shape[-2]), packed, tau)
    np.testing.assert_allclose(product @ np.triu(packed), x, atol=tolerance(dtype))


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_orthonormal_factors(shape: tuple[int, ...], full: bool) -> None:
    x = draw(*shape)
    u, _, vh = run_all(lambda x: spectral.svd(x, full), x)
    q, _ = run_all(lambda x: factorize.qr(x, "complete" if full else "reduced"), x)
    for columns in (u, np.swapaxes(vh, -1, -2), q):
        unit = np.swapaxes(columns, -1, -2) @ columns
        np.testing.assert_allclose(
            unit, np.broadcast_to(np.eye(unit.shape[-1]), unit.shape), atol=1e-12
        )
    wanted = max(shape[-2:]) if full else min(shape[-2:])
    assert max(u.shape[-1], vh.shape[-2]) == wanted


@pytest.mark.parametrize("dtype", DTYPES)
def test_eigenvectors_are_only_scaled(dtype: Any) -> None:
    x = matrices((2, 4, 4), dtype)
    values, vectors = run_all(spectral.eig, x)
    np.testing.assert_allclose(x @ vectors, vectors * values[:, None, :], atol=tolerance(dtype) * 3)
    alone = run(spectral.eig_values, x)
    np.testing.assert_allclose(np.sort(alone), np.sort(values), rtol=1e-5)
    hermitian = x + np.conj(np.swapaxes(x, -1, -2))
    values, vectors = run_all(spectral.eigh, hermitian)
    assert values.dtype == np.finfo(dtype).dtype
    np.testing.assert_allclose(
        hermitian @ vectors, vectors * values[:, None, :], atol=tolerance(dtype) * 10
    )
    assert np.all(np.diff(values) >= 0)


def test_one_triangle_is_read() -> None:
    x = draw(4, 4)
    both = np.tril(x) + np.tril(x, -1).T
    junk = np.tril(x) + np.triu(np.full((4, 4), 99.0), 1)
    np.testing.assert_allclose(run(spectral.eigh_values, junk), np.linalg.eigvalsh(both))
    turned = run(lambda x: spectral.eigh_values(x, upper=True), junk.T.copy())
    np.testing.assert_allclose(turned, np.linalg.eigvalsh(both))
    lower = run(lambda a: solve.triangular_solve(a, np.eye(4)), junk)
    np.testing.assert_allclose(lower @ np.tril(x), np.eye(4), atol=1e-9)


def test_pivots_are_lapack_s() -> None:
    x = draw(3, 6, 4)
    packed, pivots = run_all(factorize.lu_factor, x)
    for got, exchanges, matrix in zip(packed, pivots, x, strict=True):
        expected, order = scipy.linalg.lapack.dgetrf(matrix)[:2]
        np.testing.assert_allclose(got, expected, atol=1e-12)
        np.testing.assert_array_equal(exchanges - 1, order)
    assert pivots.dtype == np.int32


@pytest.mark.parametrize("size", [1, 2, 3, 6, 9])
def test_symmetric_factors_are_lapack_s(size: int) -> None:
    x = draw(20, size, size)
    x = x + x.transpose(0, 2, 1)
    x[:5, 0, 0] = 0.0 if size > 1 else 1.0
    packed, pivots = run_all(ldl.ldl_factor, x)
    expected = torch.linalg.ldl_factor(torch.tensor(x))
    np.testing.assert_array_equal(pivots, expected.pivots.numpy())
    np.testing.assert_allclose(packed, expected.LD.numpy(), atol=1e-9)
    b = draw(20, size, 2, seed=1)
    got = run(ldl.ldl_solve, packed, pivots, b)
    np.testing.assert_allclose(x @ got, b, atol=1e-7)


def test_no_exchanges_without_pivoting() -> None:
    x = draw(4, 4) + 4 * np.eye(4)
    p, lower, upper = run_all(lambda x: factorize.lu(x, pivot=False), x)
    np.testing.assert_array_equal(p, np.eye(4))
    np.testing.assert_allclose(lower @ upper, x, atol=1e-12)


# Gradients beside torch's, through losses that do not see signs and phases.


@pytest.mark.parametrize("shape", [(3, 3), (2, 5, 3), (3, 5)])
def test_gradients_of_svd_and_qr(shape: tuple[int, ...]) -> None:
    x = draw(*shape)

    def ours(x: Any) -> Any:
        u, s, vh = spectral.svd(x)
        return elementwise.abs(linalg.matmul(u, vh)) * 2.0 + linalg.matmul(u * s[..., None, :], vh)

    def theirs(x: Any) -> Any:
        u, s, vh = torch.linalg.svd(x, full_matrices=False)
        return (u @ vh).abs() * 2.0 + (u * s[..., None, :]) @ vh

    agree(ours, theirs, x)
    agree(lambda x: elementwise.abs(factorize.qr(x)[0]), lambda x: torch.linalg.qr(x)[0].abs(), x)
    agree(lambda x: elementwise.abs(factorize.qr(x)[1]), lambda x: torch.linalg.qr(x)[1].abs(), x)


def test_full_vectors_pass_the_gradient_of_the_thin_ones() -> None:
    x = draw(5, 3)

    def left(full: bool) -> Callable[..., Any]:
        return lambda x: elementwise.abs(spectral.svd(x, full)[0][:, :3])

    np.testing.assert_allclose(gradients(left(True), x)[0], gradients(left(False), x)[0])


def test_singular_values_have_a_gradient_where_they_meet() -> None:
    (got,) = gradients(spectral.singular_values, np.eye(3))
    np.testing.assert_allclose(got, np.eye(3), atol=1e-12)


def test_gradients_of_eigenvalues() -> None:
    x = draw(2, 4, 4)
    agree(
        lambda x: elementwise.abs(spectral.eigh(x)[1]), lambda x: torch.linalg.eigh(x)[1].abs(), x
    )
    agree(
        lambda x: spectral.eigh_values(linalg.matmul(x, adjoint(x))),
        lambda x: torch.linalg.eigvalsh(x @ x.mT),
        x,
        tolerance=1e-8,
    )


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (solve.determinant, torch.linalg.det),
        (solve.inverse, torch.linalg.inv),
        (solve.matrix_exp, torch.linalg.matrix_exp),
        (lambda x: solve.slogdet(x)[0], lambda x: torch.linalg.slogdet(x)[0]),
        (lambda x: factorize.cholesky(x @ adjoint(x)), lambda x: torch.linalg.cholesky(x @ x.mH)),
        (lambda x: solve.solve(x, x[::-1]), lambda x: torch.linalg.solve(x, x.flip(0))),
        (lambda x: spectral.eig_values(x) ** 2.0, lambda x: torch.linalg.eigvals(x) ** 2.0),
        (lambda x: factorize.lu_factor(x)[0], lambda x: torch.linalg.lu_factor(x)[0]),
        (
            lambda x: elementwise.abs(factorize.qr(x)[0]) + 0j,
            lambda x: torch.linalg.qr(x)[0].abs() + 0j,
        ),
    ],
)
def test_complex_gradients_beside_torch(ours: Any, theirs: Any) -> None:
    z = complex_draw(3, 3)
    (got,) = complex_gradients(ours, z)
    leaf = torch.tensor(z, requires_grad=True)
    result = theirs(leaf)
    (want,) = torch.autograd.grad((result.real + result.imag * 2.0).sum(), leaf)
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-8, atol=1e-8)


def test_gradient_of_eigenvectors() -> None:
    x = draw(4, 4)

    def theirs(x: Any) -> Any:
        values, vectors = torch.linalg.eig(x)
        return vectors.abs() + values.abs()

    def ours(x: Any) -> Any:
        values, vectors = spectral.eig(x)
        return elementwise.abs(vectors) + elementwise.abs(values)

    agree(ours, theirs, x)


# Solving.


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("transpose", ["none", "transpose", "adjoint"])
def test_every_way_to_solve(left: bool, transpose: Any) -> None:
    a, b = complex_draw(2, 3, 3), complex_draw(2, 3, 3, seed=5)
    turned = {"none": a, "transpose": a.mT, "adjoint": a.conj().mT}[transpose]

    def check(x: np.ndarray, matrix: np.ndarray) -> None:
        np.testing.assert_allclose(matrix @ x if left else x @ matrix, b, atol=1e-10)

    packed, pivots = run_all(factorize.lu_factor, a)
    check(run(lambda p, b: solve.lu_solve(p, pivots, b, left, transpose), packed, b), turned)
    check(run(lambda a, b: solve.solve(a, b, left), turned, b), turned)
    for upper in (False, True):
        half = np.triu(turned) if upper != (transpose != "none") else np.tril(turned)

        def ours(a: Any, b: Any, upper: bool = upper) -> Any:
            return solve.triangular_solve(a, b, upper, left, transpose)

        check(run(ours, a, b), half)


def test_vectors_on_the_right() -> None:
    a, b = draw(3, 3), draw(3)
    np.testing.assert_allclose(run(solve.solve, a, b), np.linalg.solve(a, b))
    np.testing.assert_allclose(
        run(lambda a, b: solve.solve(a, b, left=False), a, b), np.linalg.solve(a.T, b)
    )
    got = run(lambda a, b: solve.triangular_solve(a, b, upper=True), a, b)
    np.testing.assert_allclose(np.triu(a) @ got, b)


@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_solve(upper: bool) -> None:
    root, b = complex_draw(3, 3), complex_draw(3, 2, seed=9)
    a = root @ root.conj().T
    factor = run(lambda a: factorize.cholesky(a, upper), a)
    got = run(lambda b, f: solve.cholesky_solve(b, f, upper), b, factor)
    np.testing.assert_allclose(a @ got, b, atol=1e-10)


def test_pseudo_inverse_and_rank() -> None:
    x = draw(5, 2) @ draw(2, 4, seed=3)
    np.testing.assert_allclose(run(solve.pseudo_inverse, x), np.linalg.pinv(x), atol=1e-10)
    assert run(solve.matrix_rank, x) == 2
    assert run(lambda x: solve.matrix_rank(x, absolute=1e9), x) == 0
    symmetric = x @ x.T
    np.testing.assert_allclose(
        run(lambda x: solve.pseudo_inverse(x, 1e-9, hermitian=True), symmetric),
        np.linalg.pinv(symmetric, 1e-9),
        atol=1e-8,
    )
    assert run(lambda x: solve.matrix_rank(x, hermitian=True), symmetric) == 2
    b = draw(5, 3, seed=4)
    expected = np.linalg.lstsq(x, b, rcond=1e-9)[0]
    got = run(lambda a, b: solve.least_squares(a, b, 1e-9), x, b)
    np.testing.assert_allclose(got, expected, atol=1e-10)


@pytest.mark.parametrize("power", [-3, -1, 0, 1, 2, 7])
def test_matrix_power(power: int) -> None:
    x = draw(2, 3, 3)
    expected = np.linalg.matrix_power(x, power)
    np.testing.assert_allclose(run(lambda x: solve.matrix_power(x, power), x), expected, rtol=1e-9)


def test_reflectors_apply_from_either_side() -> None:
    a, c = complex_draw(4, 4), complex_draw(4, 4, seed=7)
    packed, tau = run_all(factorize.householder_qr, a)
    q = run(factorize.householder_product, packed, tau)
    for left in (True, False):
        for transpose in (True, False):
            turned = q.conj().T if transpose else q

            def ours(p: Any, t: Any, c: Any, left: bool = left, tr: bool = transpose) -> Any:
                return factorize.apply_reflectors(p, t, c, transpose=tr, left=left)

            got = run(ours, packed, tau, c)
            np.testing.assert_allclose(got, turned @ c if left else c @ turned, atol=1e-12)


def test_matrix_exp_of_large_and_nilpotent_matrices() -> None:
    x = draw(3, 3) * 20
    np.testing.assert_allclose(run(solve.matrix_exp, x), scipy.linalg.expm(x), rtol=1e-9)
    np.testing.assert_array_equal(
        run(solve.matrix_exp, np.array([[0.0, 3.0], [0.0, 0.0]])), [[1, 3], [0, 1]]
    )


# What cannot be.


@pytest.mark.parametrize(
    ("message", "function", "x"),
    [
        ("not positive definite", factorize.cholesky, np.array([[1.0, 2.0], [2.0, 1.0]])),
        ("[Ss]ingular", solve.inverse, np.zeros((2, 2))),
        ("[Ss]ingular", lambda x: solve.solve(x, x), np.ones((2, 2))),
        ("eig failed", spectral.eig, np.full((2, 2), np.nan)),
    ],
)
def test_what_does_not_exist(message: str, function: Any, x: np.ndarray) -> None:
    with pytest.raises(EvaluationError, match=message):
        run_all(function, x)


def test_pivots_out_of_range() -> None:
    with pytest.raises(EvaluationError, match="a row that is not there"):
        run(lambda p: factorize.pivots_to_permutation(p, 3), np.array([1, 4], np.int32))


def test_exchanges_out_of_range() -> None:
    with pytest.raises(EvaluationError, match="a row that is not there"):
        run(lambda p: ldl.ldl_solve(p, np.array([1, 3]), np.ones((2, 1))), np.eye(2))


def test_no_gradient_of_what_completes_q() -> None:
    with pytest.raises(DifferentiationError, match="complete factors"):
        gradients(lambda x: factorize.qr(x, "complete")[0], draw(4, 2))


def test_type_rules() -> None:
    refuses("not square", factorize.cholesky, "f32[2, 3]")
    refuses("not square", spectral.eig, "f32[2, 3]")
    refuses("not square", solve.determinant, "f32[n, n+1]")
    refuses("a matrix is needed", spectral.svd, "f32[3]")
    refuses("a float operand", factorize.Qr(), "i32[3, 3]")
    refuses("no such mode", lambda x: factorize.qr(x, "raw"), "f32[3, 3]")  # type: ignore[arg-type]
    refuses("sizes of the matrix and of the right side", solve.solve, "f32[3, 3]", "f32[2, 1]")
    refuses("do not broadcast", solve.solve, "f32[2, 3, 3]", "f32[4, 3, 1]")
    refuses("different dtypes", solve.Solve(), "f32[3, 3]", "f64[3, 1]")
    refuses("more exchanges than rows", factorize.PivotsToPermutation(2), "i32[3]")
    refuses("an integer operand", factorize.PivotsToPermutation(2), "f32[2]")
    refuses("the pivots do not fit", ldl.LdlSolve(), "f32[2, 2]", "i32[1, 2]", "f32[2, 1]")
    refuses("the pivots and the rows", ldl.LdlSolve(), "f32[2, 2]", "i32[3]", "f32[2, 1]")
    refuses("square matrix is needed", lambda x: solve.matrix_power(x, 2), "f32[2, 3]")


def test_symbolic_sizes() -> None:
    x = draw(2, 3, 3)
    graph = trace(lambda x: solve.solve(x, x), "f64[b, n, n]")
    assert [str(dim) for dim in graph.outputs[0].shape] == ["b", "n", "n"]
    identity = np.broadcast_to(np.eye(3), x.shape)
    np.testing.assert_allclose(interpret(graph, [x])[0], identity, atol=1e-12)
    agree(solve.determinant, torch.linalg.det, x, types=["f64[b, n, n]"])
    agree(
        lambda x: elementwise.abs(spectral.svd(x)[0]),
        lambda x: torch.linalg.svd(x, full_matrices=False)[0].abs(),
        draw(4, 3),
        types=["f64[m, n]"],
    )
    agree(
        lambda x: factorize.cholesky(linalg.matmul(x, adjoint(x))),
        lambda x: torch.linalg.cholesky(x @ x.mT),
        x,
        types=["f64[b, n, n]"],
    )
