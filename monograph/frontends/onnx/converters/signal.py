"""Signals: Fourier transforms, the windows that go before them and the mel scale after.

ONNX has complex numbers as a last dimension of two, the real and the imaginary part; of one for
real numbers.
"""

from __future__ import annotations

import numpy as np

from monograph import functional as F
from monograph.frontends.onnx.node import NotStatic, OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import cast_to
from monograph.ir.data import ArrayData
from monograph.ir.dims import Dim
from monograph.ir.graph import Value, current_graph
from monograph.ir.types import Array, DType, f32, wide
from monograph.ops import fft
from monograph.ops.rules import normalize_axis

_WINDOWS = {
    "HannWindow": (0.5, 0.5),
    "HammingWindow": (25 / 46, 21 / 46),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}


@converter("DFT")
def dft(node: OnnxNode) -> Value:
    """The Fourier transform along an axis, or its inverse; of either, half if ``onesided``."""
    signal = _signal(node)
    given = node.integer("axis", 1) if node.opset < 20 else _scalar_axis(node)
    axis = normalize_axis("DFT", given, signal.rank + 1)
    if axis == signal.rank:
        raise node.error("the last axis holds the parts of complex numbers", found=f"axis {given}")
    inverse, onesided = bool(node.integer("inverse", 0)), bool(node.integer("onesided", 0))
    length = _scalar(node, 1)
    dtype = node.input(0).dtype
    if inverse and onesided:
        return cast_to(F.unsqueeze(fft.irfft(signal, length, axis), -1), dtype)
    if inverse:
        return _parts(fft.ifft(signal, length, axis), dtype)
    if onesided and not signal.dtype.is_complex:
        return _parts(fft.rfft(signal, length, axis), dtype)
    spectrum = fft.fft(signal, length, axis)
    return _parts(_half(spectrum, axis) if onesided else spectrum, dtype)


@converter("STFT")
def stft(node: OnnxNode) -> Value:
    """The Fourier transforms of pieces of a signal, each times a window."""
    x, window = node.input(0), node.optional(2)
    signal = cast_to(x, wide(x.dtype)) if x.rank == 2 else _signal(node)  # the last axis of 1
    if signal.rank != 2:
        raise node.error("a batch of signals is needed", found=str(node.input(0).type))
    step = _scalar(node, 1)
    if not isinstance(step, int):
        raise NotStatic(f"{node.name}: the step is not known before it runs")
    length = _scalar(node, 3)
    if length is None:
        length = signal.shape[-1] if window is None else window.shape[0]
    weights = None if window is None else cast_to(window, wide(window.dtype))
    onesided = bool(node.integer("onesided", 1))
    spectrum = fft.stft(signal, length, step, weights, onesided)
    if onesided and signal.dtype.is_complex:
        spectrum = _half(spectrum, spectrum.rank - 1)
    return _parts(spectrum, node.input(0).dtype)


def _signal(node: OnnxNode) -> Value:
    """The first operand as real or complex numbers, without its last dimension."""
    x = node.input(0)
    parts = x.shape[-1] if x.rank else 0
    if not isinstance(parts, int):
        raise NotStatic(f"{node.name}: whether the signal is complex is not known before it runs")
    if parts not in (1, 2):
        raise node.error("a last dimension of 1 (real) or 2 (complex) is needed", found=str(x.type))
    split = [F.squeeze(part, -1) for part in F.split(x, (1,) * parts, -1)]
    exact = [cast_to(part, wide(part.dtype)) for part in split]
    return exact[0] if parts == 1 else F.complex(*exact)


def _parts(z: Value, dtype: DType) -> Value:
    """Complex numbers with their parts along a new last axis."""
    return F.stack([cast_to(F.real(z), dtype), cast_to(F.imag(z), dtype)], -1)


def _half(spectrum: Value, axis: int) -> Value:
    return F.slice(spectrum, [0], [spectrum.shape[axis] // 2 + 1], axes=[axis])


def _scalar(node: OnnxNode, index: int) -> Dim | None:
    """An optional size: a scalar or a vector of one element."""
    if node.optional(index) is None:
        return None
    sizes = node.need_dims(index)
    if len(sizes) != 1:
        raise node.error(f"input {index} is not one number", found=str(node.input(index).type))
    return sizes[0]


def _scalar_axis(node: OnnxNode) -> int:
    return -2 if node.optional(2) is None else node.need_ints(2)[0]


@converter(*_WINDOWS)
def window(node: OnnxNode) -> Value:
    """A window made of cosines."""
    size, periodic = _scalar(node, 0), bool(node.integer("periodic", 1))
    if size is None:
        raise node.error("a size is needed")
    dtype = node.dtype("output_datatype", f32)
    return fft.cosine_window(size, _WINDOWS[node.op_type], periodic, dtype)


@converter("MelWeightMatrix")
def mel_weight_matrix(node: OnnxNode) -> Value:
    """Triangles on the mel scale, a column each, over the bins of half a spectrum."""
    bands, length, rate = (node.need_ints(index)[0] for index in range(3))
    low, high = (float(node.need_constant(index).reshape(())) for index in (3, 4))
    if bands < 0 or length < 0 or rate <= 0 or not -700 < low <= high:
        raise node.error(
            "no such bands",
            expected="sizes that are not negative, and frequencies in order",
            found=f"{bands} bands of {length} at {rate} Hz, {low} to {high} Hz",
        )
    size = (length // 2 + 1) * bands
    if size > 2**28:
        raise node.error("the matrix is too large", found=f"{size} elements")
    dtype = node.dtype("output_datatype", f32)
    matrix = _mel_triangles(bands, length, rate, low, high).astype(dtype.numpy)
    return current_graph().add_weight(node.proto.output[0], ArrayData(matrix, dtype))


def _mel_triangles(bands: int, length: int, rate: int, low: float, high: float) -> Array:
    first, last = (2595 * np.log10(1 + edge / 700) for edge in (low, high))
    marks = first + np.arange(bands + 2) * ((last - first) / (bands + 2))
    hertz = 700 * (10 ** (marks / 2595) - 1)
    bins = np.floor((length + 1) * hertz / rate).astype(np.int64)
    left, centre, right = bins[:-2], bins[1:-1], bins[2:]
    place = np.arange(length // 2 + 1)[:, None]
    rising = np.where(centre > left, (place - left) / np.maximum(centre - left, 1), 1.0)
    falling = (right - place) / np.maximum(right - centre, 1)
    up = (place >= np.where(centre > left, left, centre)) & (place <= centre)
    down = (place >= centre) & (place < right)
    return np.where(down, falling, np.where(up, rising, 0.0))
