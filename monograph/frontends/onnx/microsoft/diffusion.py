"""Ops of ``com.microsoft`` that its graph optimizer makes for GPUs, for diffusion models mostly.

ONNX Runtime has no kernels for them on a CPU, but a model that was optimized for a GPU holds them.
"""

from __future__ import annotations

from monograph import functional as F
from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import cast_to
from monograph.ir.graph import Value
from monograph.ir.types import bool_
from monograph.ops import fft

DOMAIN = "com.microsoft"


@converter("BiasAdd", domain=DOMAIN)
def bias_add(node: OnnxNode) -> Value:
    """x + bias + skip."""
    return F.add(F.add(node.input(0), node.input(1)), node.input(2))


@converter("BiasSplitGelu", domain=DOMAIN)
def bias_split_gelu(node: OnnxNode) -> Value:
    """One half of x + bias, times the gelu of the other."""
    x = F.add(node.input(0), node.input(1))
    left, right = F.split(x, 2, x.rank - 1)
    return F.multiply(left, F.gelu(right))


@converter("GemmFastGelu", domain=DOMAIN)
def gemm_fast_gelu(node: OnnxNode) -> Value:
    """The gelu by tanh of a product and a bias."""
    product, bias = F.matmul(node.input(0), node.input(1)), node.optional(2)
    return F.gelu(product if bias is None else F.add(product, bias), "tanh")


@converter("GroupNorm", domain=DOMAIN)
def group_norm(node: OnnxNode) -> Value:
    """Groups of channels by their own statistics, with the channels last by default."""
    return _normalize(node, node.input(0))


@converter("SkipGroupNorm", domain=DOMAIN)
def skip_group_norm(node: OnnxNode) -> tuple[Value, Value]:
    """``GroupNorm`` of the sum of two operands and a bias; and that sum."""
    x, skip, bias = node.input(0), node.input(3), node.optional(4)
    if skip.rank == 2:
        skip = F.unsqueeze(skip, (1, 2) if node.integer("channels_last", 1) else (2, 3))
    total = F.add(x, skip)
    if bias is not None:
        by_channel = bias if node.integer("channels_last", 1) else F.unsqueeze(bias, (1, 2))
        total = F.add(total, by_channel)
    return _normalize(node, total), total


def _normalize(node: OnnxNode, x: Value) -> Value:
    last = bool(node.integer("channels_last", 1))
    first = F.moveaxis(x, x.rank - 1, 1) if last else x
    scale, bias = (cast_to(node.input(index), x.dtype) for index in (1, 2))
    y = F.group_norm(first, node.integer("groups"), scale, bias, node.number("epsilon", 1e-5))
    y = F.silu(y) if node.integer("activation", 0) else y
    return F.moveaxis(y, 1, x.rank - 1) if last else y


@converter("IsAllFinite", domain=DOMAIN)
def is_all_finite(node: OnnxNode) -> Value:
    """Whether no element of any operand is infinite or no number."""
    only_nan, only_inf = node.integer("isnan_only", 0), node.integer("isinf_only", 0)
    total = F.full((), True, bool_)
    for x in node.given():
        wrong = F.is_nan(x) if only_nan else F.is_inf(x)
        fine = F.logical_not(wrong) if only_nan or only_inf else F.is_finite(x)
        total = F.logical_and(total, F.all(fine))
    return total


@converter("Rfft", domain=DOMAIN)
def rfft(node: OnnxNode) -> Value:
    """The Fourier transform of the last axis, its parts along a new one."""
    _check_one_dimension(node)
    spectrum = fft.rfft(node.input(0), None, -1)
    return F.stack([F.real(spectrum), F.imag(spectrum)], -1)


@converter("Irfft", domain=DOMAIN)
def irfft(node: OnnxNode) -> Value:
    """The inverse of ``Rfft``."""
    _check_one_dimension(node)
    real, imaginary = F.unstack(node.input(0), node.input(0).rank - 1)
    return fft.irfft(F.complex(real, imaginary), None, -1)


def _check_one_dimension(node: OnnxNode) -> None:
    plain = node.integer("onesided", 1) == 1 and not node.integer("normalized", 0)
    if node.integer("signal_ndim", 1) != 1 or not plain:
        raise node.error("only a one-sided transform of one dimension is supported")
