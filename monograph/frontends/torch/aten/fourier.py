"""Fourier transforms: the three kernels that every fft_*, stft and istft of torch comes down to."""

from __future__ import annotations

from monograph import functional as F
from monograph.frontends.torch.node import TorchNode, to_dtype
from monograph.frontends.torch.registry import converter
from monograph.ir.build import apply
from monograph.ir.graph import Value
from monograph.ops.fft import SCALES, Fft, Irfft, Rfft, Scale
from monograph.ops.matrices import complex_dtype


def _scale(node: TorchNode) -> Scale:
    """How the sums are scaled; torch counts the kinds as we list them."""
    return SCALES[int(node["normalization"])]


def _axes(node: TorchNode) -> tuple[int, ...]:
    rank = node["self"].rank
    return tuple(int(axis) % rank for axis in node["dim"])


@converter("aten._fft_c2c.default")
def _complex_to_complex(node: TorchNode) -> Value:
    axes = _axes(node)
    x: Value = node["self"]
    return x if not axes else apply(Fft(axes, not node["forward"], _scale(node)), x)


@converter("aten._fft_r2c.default")
def _real_to_complex(node: TorchNode) -> Value:
    axes = _axes(node)
    x: Value = node["self"]
    if not node["onesided"]:
        return apply(Fft(axes, False, _scale(node)), to_dtype(x, complex_dtype(x.dtype)))
    return apply(Rfft(axes, _scale(node)), x)


@converter("aten._fft_c2r.default")
def _complex_to_real(node: TorchNode) -> Value:
    return apply(Irfft(_axes(node), node["last_dim_size"], _scale(node)), node["self"])


@converter("aten.fft_fftshift.default")
def _fft_shift(node: TorchNode) -> Value:
    return F.fft_shift(node["self"], node["dim"])


@converter("aten.fft_ifftshift.default")
def _inverse_fft_shift(node: TorchNode) -> Value:
    return F.fft_shift(node["self"], node["dim"], inverse=True)
