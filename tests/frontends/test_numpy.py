"""Functions of NumPy, traced: what NumPy computes of arrays, the graph computes of them too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import monograph
from monograph.errors import InputError, UnsupportedError
from monograph.frontends.numpy.ufuncs import UFUNCS

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(3, 4)).astype(np.float32)
Y = RANDOM.normal(size=(3, 4)).astype(np.float32)
W = RANDOM.normal(size=(4, 5)).astype(np.float32)
I = RANDOM.integers(-5, 6, (3, 4)).astype(np.int32)  # noqa: E741
B = X > 0
S = (W @ W.T + 4 * np.eye(4)).astype(np.float32)
C = (X + 1j * Y).astype(np.complex64)

FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "operators": (lambda x, y: (x + y) * 2 - x / 3 + x**2 + abs(-y) + (x > y), (X, Y)),
    "arrays on the left": (lambda x: Y + x * Y[0] - np.float32(2) * x, (X,)),
    "sum": (lambda x: (np.sum(x), np.sum(x, 0), np.sum(x, axis=(0, 1), keepdims=True)), (X,)),
    "sum of integers": (lambda i: (np.sum(i), np.prod(i, 1), np.cumsum(i, 0)), (I,)),
    "sum of bools": (lambda b: (np.sum(b), np.mean(b), np.any(b, 0), np.all(b)), (B,)),
    "sum in f64": (lambda x: np.sum(x, dtype=np.float64), (X,)),
    "mean": (lambda x: (np.mean(x), np.mean(x, axis=1, keepdims=True)), (X,)),
    "mean of integers": (lambda i: (np.mean(i, 0), np.std(i), np.var(i, 1, ddof=1)), (I,)),
    "average": (lambda x, y: (np.average(x), np.average(x, 1, np.abs(y))), (X, Y)),
    "std": (lambda x: (np.std(x, ddof=1), np.var(x, 0)), (X,)),
    "extrema": (lambda x: (np.max(x, 1), np.min(x), np.ptp(x)), (X,)),
    "places": (lambda x: (np.argmax(x, 0), np.argmin(x), np.argmax(x, 1, keepdims=True)), (X,)),
    "others": (
        lambda x, s: (
            np.atleast_1d(x[0, 0]), np.atleast_2d(x[0]), np.broadcast_to(x, (2, 3, 4)), np.copy(x),
            np.abs(np.linalg.qr(s)[1]), np.linalg.eigh(s)[0], np.abs(np.fft.fft2(x)), np.sinc(x),
            np.abs(np.fft.ifft2(np.fft.fft(x))), np.abs(np.fft.ifft(x)),
        ),
        (X, S),
    ),
    "counts": (lambda x, i: (np.count_nonzero(i, 0), np.diff(x), np.diff(x, 2, 0)), (X, I)),
    "cumulative": (lambda x: (np.cumsum(x), np.cumprod(x, axis=1)), (X,)),
    "order": (lambda x: (np.sort(x), np.sort(x, 0), np.argsort(x, axis=1), np.sort(x, None)), (X,)),
    "methods": (
        lambda x, i: (
            x.sum(), x.sum(1), x.mean(axis=1, keepdims=True), x.std(ddof=1), x.argmax(0), x.T,
            x.reshape(2, -1), x.reshape((4, 3)), x.transpose(1, 0), x.transpose((1, 0)),
            x.transpose(), x.flatten(), x.astype(np.float64), x.astype("i4"), i.astype(x.dtype),
            x.clip(0, 1), x.dot(x.T), x.mT.real, x.round(1), x.cumsum(1), i.conj(), x.take([1, 5]),
            x * x.size * x.ndim * x.nbytes / x.itemsize, x + np.ones(len(x[0]), x.dtype),
        ),
        (X, I),
    ),
    "without NaN": (
        lambda x: (
            np.nansum(np.log(x)), np.nanmean(np.log(x), 1), np.nanstd(np.log(x)),
            np.nanvar(np.log(x), ddof=1, keepdims=True), np.nanmax(np.log(x), 1),
            np.nanmin(np.log(x)), np.nanprod(np.log(x), 0), np.nansum(np.log(x * 0 - 1), 0),
        ),
        (X,),
    ),
    "statistics": (
        lambda x, i: (
            np.cov(x), np.cov(x, rowvar=False, bias=True), np.cov(x[0]), np.polyval([1.0, 2], x),
            np.digitize(x, np.float32([-1, 0, 1])), np.isin(i, [1, 2, -3]),
            np.isin(i, i[0], invert=True), np.select([x > 0, x < -1], [x, -x], 5.0),
            np.array(0) + np.allclose(x, x),
        ),
        (X, I),
    ),
    "other shapes": (
        lambda x, y: (
            np.dstack([x, y]), np.column_stack([x[0], x[1], y.T]), np.append(x, y, 0),
            np.append(x, [1.0, 2.0]), np.rot90(x), np.rot90(x, 2), np.rot90(x, 3, (1, 0)),
            np.atleast_3d(x[0]), np.matrix_transpose(x), np.empty_like(x) * 0,
        ),
        (X, Y),
    ),
    "samples in a row": (
        lambda x, i: (
            np.convolve(x[0], x[1, :3]), np.convolve(x[1, :2], x[0], "same"),
            np.convolve(x[0], x[1, :3], "valid"), np.correlate(x[0], x[1, :3]),
            np.correlate(x[0, :2], x[1], "full"), np.correlate(x[0], x[1, :2], "same"),
            np.interp(x, [-1.0, 0.0, 1.0], [0.0, 5.0, 2.0]), np.interp(i, [0, 3], [1, 2], -1, 9),
            np.trapezoid(x), np.trapezoid(x, np.cumsum(x * x, 1)), np.trapezoid(x, dx=0.5, axis=0),
            *np.gradient(x), np.gradient(i, 2.0, axis=1), np.vander(x[0], 3),
            np.vander(i[0], increasing=True),
        ),
        (X, I),
    ),
    "what is found": (
        lambda x, i: (
            *np.nonzero(x > 0), *np.where(i), np.argwhere(x > 0), np.flatnonzero(i), np.unique(i),
            *np.unique(i, return_index=True, return_inverse=True, return_counts=True),
            np.bincount(np.abs(i[0]), minlength=9), np.bincount(np.abs(i[0]), x[0]),
            *np.histogram(x, 4, (-2, 2)), *np.histogram(x, [-1.0, 0.0, 3.0], density=True),
        ),
        (X, I),
    ),
    "arrangements": (
        lambda x, i: (
            *np.meshgrid(x[0], x[1, :2]), *np.meshgrid(x[0], i[0], indexing="ij", sparse=True),
            np.diag(x[0]), np.diag(x[0], 1), np.diag(i[0], -2), np.diag(x, 1), np.delete(x, 1),
            np.delete(x, [0, 2], 1), np.insert(x[0], 1, [7.0, 8.0]), np.insert(x, [0, 2], 5.0),
            np.partition(x, 1)[:, 1], np.lexsort((x[0], i[0] > 0)), np.lexsort((i, x > 0), 0),
            np.piecewise(x, [x < 0, x >= 1], [lambda t: -t, 3.0]),
            np.piecewise(x, [x < 0], [np.exp, lambda t: t * 2]), np.fix(x), np.i0(x),
            np.array(0) + np.array_equal(x, x), np.array(0) + np.array_equal(x, x[1:]),
            x.reshape(4, 3, order="F"), np.ravel(x, "F"), x.view(np.int32), np.ediff1d(i),
            np.take(x, i, 1, mode="wrap"), np.take(x, i, mode="clip"), *divmod(i, 3), np.cbrt(x),
        ),
        (X, I),
    ),
    "rows": (lambda x: (sum(row * row[0] for row in x), *x[0], np.stack(list(x)[::-1])), (X,)),
    "norms of matrices": (
        lambda x: [
            np.linalg.norm(x, 0, 1), np.linalg.norm(x, 1), np.linalg.norm(x, 2, keepdims=True),
            *(np.linalg.norm(x, order, (1, 0)) for order in (-1, -2, np.inf, -np.inf, "nuc")),
        ],
        (X,),
    ),
    "weights of an axis": (
        lambda x: (np.average(x, 0, [1.0, 2, 3]), np.average(x, -1, np.float32([1, 2, 3, 4])),
                   np.corrcoef(x), np.corrcoef(x, rowvar=False)),
        (X,),
    ),
    "products of others": (
        lambda x, y, w: (
            np.cross(x[:, :3], y[:, 1:]), np.cross(x, y, axis=0), np.kron(x, y), np.kron(x[0], y),
            np.linalg.multi_dot([x, w, w.T]), np.linalg.matmul(x, w), np.linalg.outer(x[0], y[1]),
        ),
        (X, Y, W),
    ),
    "frequencies": (
        lambda x: (
            np.abs(np.fft.fftn(x)), np.abs(np.fft.ifftn(x, axes=(0,))), np.fft.fftshift(x),
            np.fft.ifftshift(x, 0), np.fft.ifftshift(x[:3]),
        ),
        (X,),
    ),
    "quantiles of shares with a dtype": (
        lambda x: (np.quantile(x, np.float64(0.3)), np.percentile(x, [30, 60], 0),
                   np.quantile(x, np.float32([0.3]))),
        (X,),
    ),
    "quantiles": (lambda x: (np.median(x), np.quantile(x, 0.3, 1), np.percentile(x, 70)), (X,)),
    "where": (lambda x, y: (np.where(x > 0, x, y), np.where(x, 1.0, y)), (X, Y)),
    "clip": (lambda x, i: (np.clip(x, -0.5, 0.5), np.clip(x, 0, None), np.clip(i, -2, 2)), (X, I)),
    "rounding": (lambda x: (np.round(x), np.round(x * 100, 1), np.rint(x), np.floor(x)), (X,)),
    "rounding whole numbers": (
        lambda i: (np.round(i * 37, -1), np.round(i * 50 + 25, -2), np.round(i, 2)),
        (I,),
    ),
    "searchsorted": (lambda x: np.searchsorted(np.linspace(-2, 2, 9, dtype="f4"), x), (X,)),
    "nan_to_num": (lambda x: np.nan_to_num(np.log(x) / (x > 0), nan=3.0), (X,)),
    "isclose": (lambda x, y: np.isclose(x, x + y * 1e-6), (X, Y)),
    "reshape": (lambda x: (np.reshape(x, (2, -1)), np.ravel(x), np.expand_dims(x, 1)), (X,)),
    "axes": (lambda x: (np.transpose(x), np.swapaxes(x, 0, 1), np.moveaxis(x, 0, -1)), (X,)),
    "squeeze": (lambda x: np.squeeze(np.expand_dims(x, (0, 3))), (X,)),
    "join": (
        lambda x, y: (
            np.concatenate([x, y], 1), np.stack([x, y], -1), np.vstack([x, y]), np.hstack([x, y]),
            np.concatenate([x, Y], axis=None),
        ),
        (X, Y),
    ),
    "split": (lambda x: (*np.split(x, 2, 1), *np.array_split(x, 2), *np.split(x, [1, 3], 1)), (X,)),
    "repeat": (lambda x: (np.tile(x, (2, 1)), np.repeat(x, 2, 1), np.repeat(x, 3)), (X,)),
    "flip": (lambda x: (np.flip(x), np.fliplr(x), np.flipud(x), np.roll(x, 1, 0)), (X,)),
    "pad": (
        lambda x: (
            np.pad(x, 1), np.pad(x, ((1, 0), (0, 2)), constant_values=3.0),
            np.pad(x, ((1, 1), (0, 2)), mode="edge"), np.pad(x, 1, mode="reflect"),
        ),
        (X,),
    ),
    "take": (
        lambda x, i: (
            np.take(x, [0, 2], 0), np.take(x, [1, 5]), x[1], x[:, 1:3], x[::2], x[..., None],
            np.take_along_axis(x, np.abs(i) % 4, 1), x[np.array([0, 2])],
        ),
        (X, I),
    ),
    "triangles": (lambda x: (np.tril(x), np.triu(x, 1), np.trace(x), np.diagonal(x, 1)), (X,)),
    "like": (
        lambda x: (np.zeros_like(x), np.ones_like(x, dtype=np.int64), np.full_like(x, 2)), (X,),
    ),
    "products": (
        lambda x, w: (np.dot(x, w), x @ w, np.matmul(x, w), np.inner(x, x), np.tensordot(x, w, 1)),
        (X, W),
    ),
    "vectors": (lambda x: (np.dot(x[0], x[1]), np.outer(x[0], x[1]), np.vdot(x, x)), (X,)),
    "einsum": (lambda x, w: (np.einsum("ij,jk->ki", x, w), np.einsum("ij->j", x)), (X, W)),
    "norms": (
        lambda x: (
            np.linalg.norm(x), np.linalg.norm(x, axis=1), np.linalg.norm(x, 1, 0),
            np.linalg.norm(x, np.inf, 1, True), np.linalg.norm(x, 3, axis=0),
        ),
        (X,),
    ),
    "linear algebra": (
        lambda s: (
            np.linalg.inv(s), np.linalg.det(s), np.linalg.solve(s, s[0]), np.linalg.cholesky(s),
            np.linalg.eigvalsh(s), np.linalg.slogdet(s)[1], np.linalg.matrix_power(s, 2),
            np.linalg.svd(s, compute_uv=False), np.linalg.pinv(s),
        ),
        (S,),
    ),
    "fft": (lambda x: (np.abs(np.fft.fft(x)), np.fft.irfft(np.fft.rfft(x, axis=0), 3, 0)), (X,)),
    "complex functions": (
        lambda c: (np.arcsin(c), np.arctanh(c), np.sinh(c), np.log1p(c), np.expm1(c)),
        (C,),
    ),
    "complex": (lambda c: (np.real(c), np.imag(c), np.abs(c), np.angle(c), np.conj(c)), (C,)),
    "methods of ufuncs": (
        lambda x: (np.add.reduce(x), np.maximum.reduce(x, axis=1), np.add.accumulate(x)), (X,),
    ),
    "softmax": (
        lambda x: np.exp(x - np.max(x, -1, keepdims=True))
        / np.sum(np.exp(x - np.max(x, -1, keepdims=True)), -1, keepdims=True),
        (X,),
    ),
    "shapes": (lambda x: x * np.size(x) + np.ndim(x) + np.shape(x)[0], (X,)),
}  # fmt: skip


def leaves_of(result: Any) -> list[Any]:
    return [np.asarray(each) for each in (result if isinstance(result, tuple | list) else [result])]


def check(found: Any, expected: Any) -> None:
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_allclose(found, expected, 2e-4, 2e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_traced_function_computes_what_numpy_does(name: str) -> None:
    function, arguments = FUNCTIONS[name]
    with np.errstate(all="ignore"):
        expected = leaves_of(function(*arguments))
    found = monograph.interpret(monograph.trace(function, *arguments), list(arguments))
    for mine, theirs in zip(found, expected, strict=True):
        check(mine, theirs)


DOMAINS = {"arccosh": 1.5, "power": 2.0, "float_power": 2.0, "sqrt": 2.0, "log": 2.0, "log2": 2.0}


@pytest.mark.parametrize("name", UFUNCS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.bool_])
def test_ufuncs_have_numpys_values_and_dtypes(name: str, dtype: Any) -> None:
    ufunc = getattr(np, name)
    if name == "matmul":
        return
    arguments = [x.copy() for x in (X, Y)[: ufunc.nin]]
    if "arc" in name and name not in ("arccosh", "arcsinh", "arctan2"):
        arguments = [np.clip(x, -0.9, 0.9) for x in arguments]
    elif name in DOMAINS or name.startswith("log"):
        arguments = [np.abs(x) + DOMAINS.get(name, 0.5) for x in arguments]
    if name == "left_shift" or name == "right_shift" or dtype is np.int32:
        arguments = [np.abs(x * 4).astype(dtype) + 1 for x in arguments]
    arguments = [x.astype(dtype) for x in arguments]
    try:
        with np.errstate(all="ignore"):
            expected = leaves_of(ufunc(*arguments))
    except TypeError:  # NumPy has no such function of this dtype
        with pytest.raises((monograph.MonographError, TypeError)):
            monograph.trace(lambda *x: ufunc(*x), *arguments)
        return
    if any(each.dtype in (np.float16, np.int8) for each in expected):
        return  # what NumPy makes of bools
    found = monograph.interpret(monograph.trace(lambda *x: ufunc(*x), *arguments), arguments)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, 1e-5, 1e-6)


def test_a_numpy_function_compiles_for_every_batch() -> None:
    weight = W

    def model(x: Any) -> Any:
        hidden = np.tanh(np.dot(x, weight))
        return {"mean": np.mean(hidden, axis=-1), "top": np.argmax(hidden, axis=-1)}

    compiled = monograph.compile(model, "f32[batch, 4]", cache=False)
    for batch in (1, 3):
        found, expected = compiled(X[:batch]), model(X[:batch])
        for key in expected:
            check(found[key], expected[key])


def test_what_cannot_be_traced_is_named() -> None:
    with pytest.raises(UnsupportedError, match=r"numpy\.linalg\.lstsq cannot be traced"):
        monograph.trace(lambda x: np.linalg.lstsq(x, x), X)
    with pytest.raises(UnsupportedError, match=r"numpy\.spacing cannot be traced"):
        monograph.trace(lambda x: np.spacing(x), X)
    with pytest.raises(InputError, match=r"numpy\.add cannot be traced with out"):
        monograph.trace(lambda x: np.add(x, x, out=x), X)
    with pytest.raises(InputError, match=r"numpy\.sum cannot be traced in this way.*'where'"):
        monograph.trace(lambda x: np.sum(x, where=B), X)
    with pytest.raises(TypeError, match="no numbers while the graph is built"):
        monograph.trace(lambda x: np.asarray(x), X)


def test_methods_that_make_no_sense_in_a_graph_say_so() -> None:
    for method, told in (
        ("sort", r"numpy\.sort\(x\) makes another one"),
        ("tolist", "no numbers while the graph is built"),
        ("byteswap", "this part of NumPy's arrays cannot be traced"),
        ("sums", r"no attribute 'sums'$"),
    ):
        with pytest.raises(AttributeError, match=told):
            monograph.trace(lambda x, method=method: getattr(x, method)(), X)
    with pytest.raises(TypeError, match=r"numpy\.take"):
        monograph.trace(lambda i: np.eye(4)[i], I)
    with pytest.raises(TypeError, match="never changes"):
        monograph.trace(lambda x: x.__setitem__(0, 1.0), X)
    with pytest.raises(TypeError, match="no length that is a number"):
        monograph.trace(lambda x: x * len(x), "f32[batch, 4]")
