"""Eigenvalues, singular values and indefinite systems in native code, held against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from monograph.compiler import Options, compile_graph
from monograph.errors import EvaluationError
from monograph.frontends.trace import trace
from monograph.ir.types import dtype_of
from monograph.ops import ldl, spectral


def native(function: Callable[..., Any], *arrays: np.ndarray) -> list[np.ndarray]:
    executable = compile_graph(trace(function, *arrays, name="test"), Options(cache=False))
    assert executable.report.fallbacks == ()
    return list(executable.run(list(arrays)))


@cache
def of_any_size(function: Callable[..., Any], kind: str) -> Callable[..., list[np.ndarray]]:
    """A function compiled once for all matrices of a type with symbols for their sizes."""
    executable = compile_graph(trace(function, kind, name="test"), Options(cache=False))
    assert executable.report.fallbacks == ()
    return lambda *arrays: list(executable.run(list(arrays)))


def adjoint(x: np.ndarray) -> np.ndarray:
    return x.conj().swapaxes(-1, -2)


def draw(*shape: int, dtype: str = "f8") -> np.ndarray:
    generator = np.random.default_rng(sum(shape))
    x = generator.normal(size=shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * generator.normal(size=shape)
    return x.astype(dtype)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("dtype", ["f4", "c16"])
def test_eigenvectors_rebuild_the_matrix_and_are_lapacks_while_it_is_small(
    dtype: str, upper: bool
) -> None:
    x = draw(2, 19, 19, dtype=dtype)
    x = x + adjoint(x)
    values, vectors = native(lambda a: spectral.eigh(a, upper), x)
    unit = 64 * np.finfo(dtype).eps
    wide = x.astype("c16" if dtype == "c16" else "f8")
    expected, expected_vectors = np.linalg.eigh(wide, "U" if upper else "L")
    np.testing.assert_allclose(values, expected, atol=unit * 10)
    np.testing.assert_allclose(vectors, expected_vectors, atol=unit)


def test_vectors_of_larger_matrices_are_orthonormal() -> None:
    x = draw(70, 70)
    x = x + x.T
    values, vectors = native(spectral.eigh, x)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(70), atol=1e-13)
    np.testing.assert_allclose(vectors * values @ vectors.T, x, atol=1e-12)


@pytest.mark.parametrize("factor", [1e-300, 1e300])
def test_numbers_whose_squares_are_none_are_brought_to_size(factor: float) -> None:
    x = (draw(6, 6) + draw(6, 6).T) * factor
    (values,) = native(spectral.eigh_values, x)
    np.testing.assert_allclose(values / factor, np.linalg.eigvalsh(x / factor), rtol=1e-12)
    (values,) = native(spectral.singular_values, x)
    expected = np.linalg.svd(x / factor, compute_uv=False)
    np.testing.assert_allclose(values / factor, expected, rtol=1e-10)


GRADED = np.diag(np.logspace(-20, 0, 21)) + np.diag(np.logspace(-19, 0, 20), 1)
MATRICES = {
    "tall": draw(40, 9),
    "wide": draw(9, 40),
    "rank 2": draw(12, 2) @ draw(2, 9),
    "zeros": np.zeros((5, 4)),
    "zeros on the diagonal": np.diag([0.0, 1.0, 0.0, 2.0]),
    "graded": GRADED,
    "graded the other way": GRADED[::-1, ::-1].copy(),
}


def thin_svd(x: Any) -> Any:
    return spectral.svd(x, False)


def full_svd(x: Any) -> Any:
    return spectral.svd(x, True)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", MATRICES)
def test_singular_vectors_rebuild_the_matrix(name: str, full: bool) -> None:
    x = MATRICES[name]
    u, s, vh = of_any_size(full_svd if full else thin_svd, "f64[m, n]")(x)
    count = len(s)
    np.testing.assert_allclose(s, np.linalg.svd(x, compute_uv=False), atol=1e-13)
    np.testing.assert_allclose(u[:, :count] * s @ vh[:count], x, atol=1e-13)
    np.testing.assert_allclose(u.T @ u, np.eye(u.shape[1]), atol=1e-13)
    np.testing.assert_allclose(vh @ vh.T, np.eye(len(vh)), atol=1e-13)


def test_values_alone_have_the_bits_of_values_with_vectors() -> None:
    x = draw(12, 12)
    alone = native(lambda a: spectral.svd(a)[1], x)[0]
    assert alone.tobytes() == native(spectral.svd, x)[1].tobytes()
    alone = native(lambda a: spectral.eigh(a)[0], x)[0]
    assert alone.tobytes() == native(spectral.eigh, x)[0].tobytes()


@pytest.mark.parametrize("function", [spectral.eigh, spectral.svd])
def test_a_matrix_with_a_nan_is_refused(function: Callable[..., Any]) -> None:
    x = draw(4, 4)
    x[2, 1] = np.nan
    with pytest.raises(EvaluationError, match="did not converge"):
        native(function, x)


def test_an_indefinite_system_is_solved_with_blocks_of_two() -> None:
    x = draw(2, 30, 30)
    x = x + x.swapaxes(-1, -2)
    x[:, ::3, ::3] = 0.0
    b = draw(2, 30, 4)
    packed, pivots = native(ldl.ldl_factor, x)
    assert (pivots < 0).any()
    np.testing.assert_array_equal(pivots, ldl.LdlFactor().evaluate(x)[1])
    (solution,) = native(ldl.ldl_solve, packed, pivots, b)
    np.testing.assert_allclose(x @ solution, b, atol=1e-10)


@pytest.mark.parametrize("size", [1, 2, 3, 8, 21])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_eigenvectors_of_any_matrix_are_only_stretched_by_it(dtype: str, size: int) -> None:
    x = draw(2, size, size, dtype=dtype)
    kind = f"{dtype_of(x.dtype)}[2, n, n]"
    values, vectors = of_any_size(spectral.eig, kind)(x)
    single = dtype in ("f4", "c8")
    np.testing.assert_allclose(
        x @ vectors, vectors * values[:, None, :], atol=2e-6 if single else 1e-13
    )
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)
    (alone,) = of_any_size(spectral.eig_values, kind)(x)
    np.testing.assert_array_equal(alone, values)


@pytest.mark.parametrize(
    "x",
    [
        np.zeros((3, 3)),
        np.eye(4),
        np.diag(np.ones(9), 1),
        np.roll(np.eye(7), 1, 0),
        np.ones((6, 6)),
        np.tril(draw(6, 6)),
        np.array([[0.0, -1.0], [1.0, 0.0]]),
        np.array([[1.0, 1e-20], [1e20, 1.0]]),
        draw(5, 5) * 1e-300,
        draw(5, 5) * 1e300,
    ],
)
def test_eigenvalues_of_odd_matrices(x: np.ndarray) -> None:
    values, vectors = of_any_size(spectral.eig, "f64[n, n]")(x)
    scale = np.abs(x).max() or 1.0
    residue = (x / scale) @ vectors - vectors * (values / scale)
    assert np.abs(residue).max() < 1e-13
    expected = np.linalg.eigvals(x / scale)
    got = values / scale
    for part in ("real", "imag"):
        left, right = np.sort(getattr(got, part)), np.sort(getattr(expected, part))
        np.testing.assert_allclose(left, right, atol=1e-7)


def test_real_matrices_have_real_eigenvalues_and_conjugate_pairs() -> None:
    values, vectors = native(spectral.eig, draw(15, 15))
    is_real = values.imag == 0
    assert 0 < is_real.sum() < 15
    assert not vectors[:, is_real].imag.any()
    first = np.flatnonzero(values.imag > 0)
    np.testing.assert_array_equal(values[first + 1], values[first].conj())
    np.testing.assert_array_equal(vectors[:, first + 1], vectors[:, first].conj())


def test_vectors_in_f32_are_as_good_as_rounding_lets_them_be() -> None:
    """Hundreds of rotations, multiplied up, lose nothing: five roundings of 6e-8 are left."""
    x = draw(96, 96).astype(np.float32)
    symmetric = (x + x.T) / 2
    values, vectors = (each.astype("f8") for each in native(spectral.eigh, symmetric))
    u, s, vh = (each.astype("f8") for each in native(spectral.svd, x))
    for product, whole in (((vectors * values) @ vectors.T, symmetric), ((u * s) @ vh, x)):
        assert np.linalg.norm(product - whole) < 3e-7 * np.linalg.norm(whole)
