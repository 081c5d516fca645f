"""Fourier transforms: of complex numbers, of real ones to half a spectrum, and back.

Each op transforms several axes at once and says how it scales the sums: ``none``, by the square
``root`` of the number of elements summed, or by their ``count``. The functions have the names and
the three norms of NumPy, take sizes (cropping or filling with zeros) and real operands.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal, TypeAlias, get_args

import numpy as np

from monograph.ir.build import Operand, apply, cast_to
from monograph.ir.dims import Dim, SymbolicDim
from monograph.ir.graph import Node, Value
from monograph.ir.lower import LoopBuilder
from monograph.ir.op import Gradients, Op, Sample, op
from monograph.ir.operators import function
from monograph.ir.types import Array, DType, TensorType, dtype_of, f32, f64
from monograph.ops import data, elementwise, fft_loops, index, slicing
from monograph.ops import math as math_ops
from monograph.ops import shape as shape_ops
from monograph.ops.matrices import complex_dtype, real_dtype, sample_complex, sample_matrix
from monograph.ops.reduce import as_float
from monograph.ops.rules import normalize_axes, normalize_axis, require, same_dim

Scale: TypeAlias = Literal["none", "root", "count"]
SCALES: tuple[Scale, ...] = get_args(Scale)
Norm: TypeAlias = Literal["backward", "ortho", "forward"]

# NumPy's norms that scale as ours, for transforms forwards and backwards.
_FORWARDS: dict[str, Norm] = {"none": "backward", "root": "ortho", "count": "forward"}
_BACKWARDS: dict[str, Norm] = {"none": "forward", "root": "ortho", "count": "backward"}


def _check_axes(name: str, axes: Sequence[int], scale: str, x: TensorType) -> tuple[int, ...]:
    """The axes in their order, non-negative; there is something to sum along each."""
    normalize_axes(name, axes, x.rank)
    normal = tuple(normalize_axis(name, axis, x.rank) for axis in axes)
    require(
        scale in SCALES,
        f"{name}: no such scale",
        expected=", ".join(SCALES),
        found=scale,
    )
    for axis in normal:
        require(
            x.shape[axis] != 0,
            f"{name}: no elements along axis {axis}",
            expected="a dimension of at least 1",
            found=x,
        )
    return normal


def _require_last(name: str, axes: Sequence[int]) -> None:
    require(
        len(axes) > 0,
        f"{name}: an axis is needed",
        expected="axes, the last of which holds half a spectrum",
        found="none",
    )


@op("fft")
class Fft(Op):
    """Σ x[n] exp(∓2πi kn/N) along each of ``axes``; the sign is + if ``inverse``."""

    axes: tuple[int, ...]
    inverse: bool = False
    scale: Scale = "none"
    complex_loops: ClassVar[bool] = True

    def infer(self, x: TensorType) -> TensorType:
        require(
            x.dtype.is_complex,
            "fft: complex numbers are needed",
            expected="c64 or c128 (rfft takes floats)",
            found=x,
        )
        _check_axes(self.name, self.axes, self.scale, x)
        return x.with_shape(x.shape)

    def evaluate(self, x: Array) -> Array:
        if not self.axes:
            return x
        if self.inverse:
            return np.fft.ifftn(x, axes=self.axes, norm=_BACKWARDS[self.scale])
        return np.fft.fftn(x, axes=self.axes, norm=_FORWARDS[self.scale])

    def lower_loops(self, b: LoopBuilder) -> None:
        fft_loops.lower_fft(b, self.axes, self.inverse, self.scale)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (apply(Fft(self.axes, not self.inverse, self.scale), grad),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = sample_complex(3, 4, 5)
        for scale in SCALES:
            for inverse in (False, True):
                note = f"{scale}{' inverse' if inverse else ''}"
                yield Sample(cls((1,), inverse, scale), (x,), note)
        yield Sample(cls((2, 0)), (x,), "two axes")
        yield Sample(cls((-1, 0, 1)), (x.T[::2],), "all axes, strided")
        yield Sample(cls(()), (x,), "no axes")
        yield Sample(cls((1,)), (x[:0].astype(np.complex128),), "empty")

        def modulus(x: Value) -> Value:
            return elementwise.abs(fft(elementwise.complex(x, x * x), axis=0))

        yield Sample(modulus, (sample_matrix(4, 3),), "differentiable")


@op("rfft")
class Rfft(Op):
    """The ``fft`` of real numbers: half of it along the last of ``axes``, the rest being conjugate.

    N elements along that axis give N // 2 + 1.
    """

    axes: tuple[int, ...]
    scale: Scale = "none"
    complex_loops: ClassVar[bool] = True

    def infer(self, x: TensorType) -> TensorType:
        require(
            x.dtype in (f32, f64),
            "rfft: real numbers are needed",
            expected="f32 or f64 (fft takes complex numbers)",
            found=x,
        )
        _require_last(self.name, self.axes)
        last = _check_axes(self.name, self.axes, self.scale, x)[-1]
        shape = [dim // 2 + 1 if axis == last else dim for axis, dim in enumerate(x.shape)]
        return x.with_shape(tuple(shape)).with_dtype(complex_dtype(x.dtype))

    def evaluate(self, x: Array) -> Array:
        return np.fft.rfftn(x, axes=self.axes, norm=_FORWARDS[self.scale])

    def lower_loops(self, b: LoopBuilder) -> None:
        fft_loops.lower_rfft(b, self.axes, self.scale)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        (x,) = node.operands
        last = self.axes[-1] % x.rank
        whole = _resize(grad, last, x.shape[last])
        return (elementwise.real(apply(Fft(self.axes, True, self.scale), whole)),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = sample_matrix(3, 4, 5)
        for scale in SCALES:
            yield Sample(cls((1,), scale), (x,), f"even {scale}")
            yield Sample(cls((0, 2), scale), (x,), f"odd {scale}")
        yield Sample(cls((-1, 0)), (x.T[::2].astype(np.float64),), "strided")
        yield Sample(cls((1,)), (x[:0],), "empty")
        yield Sample(cls((0,)), (np.full(1, 2.0, np.float32),), "one element")

        def parts(x: Value) -> tuple[Value, Value]:
            result = rfftn(x, axes=(0, 1))
            return elementwise.real(result), elementwise.imag(result)

        yield Sample(parts, (sample_matrix(3, 4),), "differentiable, even")
        yield Sample(parts, (sample_matrix(4, 3),), "differentiable, odd")


@op("irfft")
class Irfft(Op):
    """Real numbers from half a spectrum: what ``rfft`` gives, the other way, with exp(+2πi kn/N).

    The last of ``axes`` becomes ``length`` long; it must hold length // 2 + 1 elements. The
    imaginary part of the first of them (and, for an even length, of the last) does not count.
    """

    axes: tuple[int, ...]
    length: Dim
    scale: Scale = "count"
    complex_loops: ClassVar[bool] = True

    def infer(self, x: TensorType) -> TensorType:
        require(
            x.dtype.is_complex,
            "irfft: complex numbers are needed",
            expected="c64 or c128",
            found=x,
        )
        _require_last(self.name, self.axes)
        last = _check_axes(self.name, self.axes, self.scale, x)[-1]
        require(
            not isinstance(self.length, int) or self.length > 0,
            "irfft: nothing comes of a length below 1",
            expected="a length of at least 1",
            found=self.length,
        )
        needed = self.length // 2 + 1
        same_dim(self.name, "half the length and the spectrum", needed, x.shape[last])
        shape = [self.length if axis == last else dim for axis, dim in enumerate(x.shape)]
        return x.with_shape(tuple(shape)).with_dtype(real_dtype(x.dtype))

    def evaluate(self, x: Array) -> Array:
        (length,) = data.static_sizes(self.name, (self.length,))
        sizes = [*(x.shape[axis] for axis in self.axes[:-1]), length]
        return np.fft.irfftn(x, sizes, self.axes, norm=_BACKWARDS[self.scale])

    def lower_loops(self, b: LoopBuilder) -> None:
        fft_loops.lower_irfft(b, self.axes, self.length, self.scale)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        """The spectrum of the gradient; elements that stand for two, with their mirror, double."""
        last = self.axes[-1] % grad.rank
        half = node.operands[0].shape[last]
        spectrum = apply(Rfft(self.axes, self.scale), grad)
        if spectrum.shape != node.operands[0].shape:
            spectrum = shape_ops.reshape(spectrum, node.operands[0].shape)
        beside = (1,) * (grad.rank - 1 - last)
        position = data.iota((half, *beside))
        mirrored = self.length - half
        count = mirrored if isinstance(mirrored, int) else data.dim(mirrored)
        twice = elementwise.logical_and(position >= 1, position <= count)
        factor = elementwise.where(twice, 2.0, 1.0)
        return (spectrum * cast_to(factor, spectrum.dtype),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = sample_complex(3, 4, 5)
        for scale in SCALES:
            yield Sample(cls((1,), 6, scale), (x,), f"even {scale}")
            yield Sample(cls((0, 2), 9, scale), (x,), f"odd {scale}")
        yield Sample(cls((-1, 0), 4), (x.T[::2].astype(np.complex128),), "strided")
        yield Sample(cls((1,), 7), (x[:0],), "empty")
        yield Sample(cls((0,), 1), (x[0, 0, :1],), "one element")

        def even(x: Value) -> Value:
            return irfftn(elementwise.complex(x, x * x), axes=(0, 1))

        def odd(x: Value) -> Value:
            return irfftn(elementwise.complex(x, x * x), (3, 5), axes=(0, 1))

        yield Sample(even, (sample_matrix(3, 4),), "differentiable, even")
        yield Sample(odd, (sample_matrix(3, 3),), "differentiable, odd")


def _scale(norm: str, inverse: bool) -> Scale:
    """How a transform with one of NumPy's norms scales."""
    require(
        norm in ("backward", "ortho", "forward"),
        "fft: no such norm",
        expected="backward, ortho or forward",
        found=norm,
    )
    if norm == "ortho":
        return "root"
    return "count" if (norm == "backward") == inverse else "none"


def _resize(x: Value, axis: int, size: Dim) -> Value:
    """``x`` cropped at the end of an axis, or filled with zeros there."""
    change = size - x.shape[axis]
    if change == 0:
        return x
    high: list[Dim] = [0] * x.rank
    high[axis] = change
    return slicing.pad(x, [0] * x.rank, high)


def _axes_and_sizes(
    x: Value, sizes: Sequence[Dim | None] | None, axes: Sequence[int] | None
) -> tuple[tuple[int, ...], list[Dim | None]]:
    if axes is None:
        count = x.rank if sizes is None else len(sizes)
        axes = range(x.rank - count, x.rank)
    normal = tuple(normalize_axis("fft", axis, x.rank) for axis in axes)
    wanted = [None] * len(normal) if sizes is None else list(sizes)
    require(
        len(wanted) == len(normal),
        "fft: sizes and axes do not pair up",
        expected=f"{len(normal)} sizes",
        found=len(wanted),
    )
    return normal, [None if size == -1 else size for size in wanted]


def _fit_sizes(x: Value, axes: Sequence[int], sizes: Sequence[Dim | None]) -> Value:
    for axis, size in zip(axes, sizes, strict=True):
        x = x if size is None else _resize(x, axis, size)
    return x


def _as_complex(x: Operand) -> Value:
    value = as_float(x)
    return cast_to(value, complex_dtype(value.dtype))


def _as_real(x: Operand) -> Value:
    value = as_float(x)
    return value if value.dtype is f64 or value.dtype.is_complex else cast_to(value, f32)


@function
def fftn(
    x: Operand,
    sizes: Sequence[Dim | None] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Value:
    """The Fourier transform along ``axes`` (all, or the last ones if sizes are given)."""
    value = _as_complex(x)
    chosen, wanted = _axes_and_sizes(value, sizes, axes)
    return apply(Fft(chosen, False, _scale(norm, False)), _fit_sizes(value, chosen, wanted))


@function
def ifftn(
    x: Operand,
    sizes: Sequence[Dim | None] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Value:
    """The inverse Fourier transform along ``axes``."""
    value = _as_complex(x)
    chosen, wanted = _axes_and_sizes(value, sizes, axes)
    return apply(Fft(chosen, True, _scale(norm, True)), _fit_sizes(value, chosen, wanted))


@function
def rfftn(
    x: Operand,
    sizes: Sequence[Dim | None] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Value:
    """The Fourier transform of real numbers, half of it along the last of ``axes``."""
    value = _as_real(x)
    chosen, wanted = _axes_and_sizes(value, sizes, axes)
    return apply(Rfft(chosen, _scale(norm, False)), _fit_sizes(value, chosen, wanted))


@function
def irfftn(
    x: Operand,
    sizes: Sequence[Dim | None] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Value:
    """Real numbers from half a spectrum; the last size is twice the spectrum's less 2 if None."""
    value = _as_complex(x)
    chosen, wanted = _axes_and_sizes(value, sizes, axes)
    _require_last("irfft", chosen)
    length = wanted[-1]
    if length is None:
        length = (value.shape[chosen[-1]] - 1) * 2
    fitted = _fit_sizes(value, chosen, [*wanted[:-1], length // 2 + 1])
    return apply(Irfft(chosen, length, _scale(norm, True)), fitted)


_OTHER_NORM: dict[str, Norm] = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


@function
def hfftn(
    x: Operand,
    sizes: Sequence[Dim | None] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Value:
    """The real spectrum of a signal that is Hermitian, of which half is given."""
    _scale(norm, False)
    return irfftn(elementwise.conj(_as_complex(x)), sizes, axes, _OTHER_NORM[norm])


@function
def ihfftn(
    x: Operand,
    sizes: Sequence[Dim | None] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Value:
    """Half of the Hermitian signal whose spectrum is real: the inverse of ``hfftn``."""
    _scale(norm, False)
    return elementwise.conj(rfftn(x, sizes, axes, _OTHER_NORM[norm]))


@function
def fft(x: Operand, size: Dim | None = None, axis: int = -1, norm: Norm = "backward") -> Value:
    """The Fourier transform along one axis."""
    return fftn(x, (size,), (axis,), norm)


@function
def ifft(x: Operand, size: Dim | None = None, axis: int = -1, norm: Norm = "backward") -> Value:
    """The inverse Fourier transform along one axis."""
    return ifftn(x, (size,), (axis,), norm)


@function
def rfft(x: Operand, size: Dim | None = None, axis: int = -1, norm: Norm = "backward") -> Value:
    """Half the Fourier transform of real numbers along one axis."""
    return rfftn(x, (size,), (axis,), norm)


@function
def irfft(x: Operand, size: Dim | None = None, axis: int = -1, norm: Norm = "backward") -> Value:
    """Real numbers from half a spectrum along one axis."""
    return irfftn(x, (size,), (axis,), norm)


@function
def hfft(x: Operand, size: Dim | None = None, axis: int = -1, norm: Norm = "backward") -> Value:
    """The real spectrum of half a Hermitian signal along one axis."""
    return hfftn(x, (size,), (axis,), norm)


@function
def ihfft(x: Operand, size: Dim | None = None, axis: int = -1, norm: Norm = "backward") -> Value:
    """Half the Hermitian signal of a real spectrum along one axis."""
    return ihfftn(x, (size,), (axis,), norm)


@function
def fft_shift(x: Operand, axes: int | Sequence[int] | None = None, inverse: bool = False) -> Value:
    """The zero frequency moved to the middle of ``axes`` (all if None) or, inversely, back."""
    value = shape_ops.one_value(x)
    named = range(value.rank) if axes is None else (axes,) if isinstance(axes, int) else axes
    chosen = [normalize_axis("fft_shift", axis, value.rank) for axis in named]
    shifts = [value.shape[axis] // 2 for axis in chosen]
    if inverse:
        shifts = [-shift for shift in shifts]
    return slicing.roll(value, shifts, chosen) if chosen else value


@function
def cosine_window(
    size: Dim,
    coefficients: Sequence[float],
    periodic: bool = True,
    dtype: DType | str = f32,
) -> Value:
    """a₀ - a₁ cos(2πn/N) + a₂ cos(4πn/N) - …; N is ``size``, or one less unless ``periodic``.

    Hann's window has the coefficients (0.5, 0.5), Hamming's (0.54, 0.46) and Blackman's
    (0.42, 0.5, 0.08). A window of one element is 1.
    """
    chosen = dtype_of(dtype)
    if size == 1:
        return data.ones((1,), chosen)
    period = size if periodic else size - 1
    count = cast_to(data.dim(period), f64) if isinstance(period, SymbolicDim) else float(period)
    turn = data.iota((size,), 0, f64) * (2.0 * math.pi) / count
    total = data.full((size,), float(coefficients[0]), f64)
    for order, coefficient in enumerate(coefficients[1:], start=1):
        part = math_ops.cos(turn * float(order)) * float(coefficient)
        total = total - part if order % 2 else total + part
    return cast_to(total, chosen)


@function
def frames(x: Operand, length: Dim, step: int) -> Value:
    """The last axis cut into overlapping pieces: [..., count, length], one each ``step``."""
    value = shape_ops.one_value(x)
    require(
        value.rank >= 1 and step > 0,
        "frames: a signal and a positive step are needed",
        expected="an axis to cut, and a step of at least 1",
        found=f"{value.type}, step {step}",
    )
    count = (value.shape[-1] - length) // step + 1
    starts = data.iota((count, 1)) * step
    return index.take(value, starts + data.iota((1, length), 1), axis=-1)


@function
def stft(
    x: Operand,
    length: Dim,
    step: int,
    window: Operand | None = None,
    onesided: bool = True,
    norm: Norm = "backward",
) -> Value:
    """The Fourier transforms of the frames of a signal, each times ``window``: [..., frames, bins].

    A real signal may have half of each spectrum left out (``onesided``).
    """
    pieces = frames(as_float(x), length, step)
    if window is not None:
        pieces = elementwise.multiply(pieces, window)
    if onesided and not pieces.dtype.is_complex:
        return rfft(pieces, norm=norm)
    return fft(pieces, norm=norm)
