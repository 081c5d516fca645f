"""What PyTorch computes for the ops of neural networks: convolution, pooling, norms, losses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from monograph.ops.attention import Attention
from monograph.ops.batch_norm import BatchNorm, BatchNormTraining
from monograph.ops.conv import Conv, ConvTranspose, ConvWeightGradient
from monograph.ops.loss import CrossEntropy, Mse
from monograph.ops.norm import GroupNorm, InstanceNorm, LayerNorm, RmsNorm
from monograph.ops.pool import AvgPool, MaxPool, MaxPoolGradient, MaxPoolWithIndices
from monograph.ops.resize import Resize
from monograph.ops.softmax import LogSoftmax, Softmax

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
CONV_TRANSPOSE = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
MAX_POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVG_POOL = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
INTERPOLATE = {
    ("linear", 1): "linear",
    ("linear", 2): "bilinear",
    ("linear", 3): "trilinear",
    ("cubic", 2): "bicubic",
}


def conv(op: Conv, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if 0 in _window_counts(x, weight, op):
        counts = _window_counts(x, weight, op)
        return (x.sum() + weight.sum()).expand(0).reshape(x.shape[0], weight.shape[0], *counts)
    padded = _padded(x, op.padding, 0)
    return CONV[x.ndim - 2](padded, weight, bias, op.stride, 0, op.dilation, op.groups)


def _window_counts(x: Tensor, weight: Tensor, op: Conv | ConvWeightGradient) -> list[int]:
    windows = Conv(op.stride, op.padding, op.dilation, op.groups).windows(tuple(weight.shape[2:]))
    return list(windows.static(tuple(x.shape[2:]))[1])


def conv_transpose(
    op: ConvTranspose, x: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    if 0 in x.shape[2:]:  # torch refuses this one; the formula does not
        sizes = op._sizes(tuple(x.shape[2:]), tuple(weight.shape[2:]))
        return torch.zeros(x.shape[0], weight.shape[1] * op.groups, *sizes)
    transposed = CONV_TRANSPOSE[x.ndim - 2]
    # torch has one padding for both ends: pad nothing, make room at the high end, and cut.
    whole = transposed(x, weight, bias, op.stride, 0, 0, op.groups, op.dilation)
    amounts = [
        amount
        for (low, high), extra in reversed(list(zip(op.padding, op.output_padding, strict=True)))
        for amount in (-low, extra - high)
    ]
    if bias is None:
        return F.pad(whole, amounts)
    column = bias.reshape(-1, *[1] * (x.ndim - 2))
    return F.pad(whole - column, amounts) + column


def conv_weight_gradient(op: ConvWeightGradient, x: Tensor, grad: Tensor) -> Tensor:
    weight = torch.zeros(
        grad.shape[1], x.shape[1] // op.groups, *op.kernel, dtype=x.dtype, requires_grad=True
    )
    y = conv(Conv(op.stride, op.padding, op.dilation, op.groups), x, weight)
    (result,) = torch.autograd.grad(y, weight, grad, create_graph=True)
    return result if x.requires_grad or grad.requires_grad else result.detach()


def max_pool(op: MaxPool, x: Tensor) -> Tensor:
    return _max_pool(op, x, False)


def max_pool_with_indices(op: MaxPoolWithIndices, x: Tensor) -> Any:
    if x.is_floating_point() and not torch.isfinite(x).all():
        return _max_pool(op, x, False)  # torch names the last NaN, and padding among -inf
    return _max_pool(op, x, True)


def _max_pool(op: MaxPool | MaxPoolWithIndices, x: Tensor, indices: bool) -> Any:
    rank = len(op.kernel)
    if all(low == high for low, high in op.padding) and x.is_floating_point():
        return MAX_POOL[rank](
            x,
            op.kernel,
            op.stride,
            [low for low, _ in op.padding],
            op.dilation,
            op.ceil_mode,
            indices,
        )
    lowest = -torch.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
    padded = _padded(x, op.padding, lowest)
    values = MAX_POOL[rank](
        padded.to(torch.float64), op.kernel, op.stride, 0, op.dilation, op.ceil_mode
    )
    return values.to(x.dtype)


def max_pool_gradient(op: MaxPoolGradient, x: Tensor, grad: Tensor) -> Tensor:
    leaf = x.detach().requires_grad_()
    y = _max_pool(MaxPool(**op.attributes()), leaf, False)
    if not grad.requires_grad:
        return torch.autograd.grad(y, leaf, grad)[0]
    return torch.autograd.grad(y, leaf, grad, create_graph=True)[0]


def avg_pool(op: AvgPool, x: Tensor) -> Tensor:
    rank = len(op.kernel)
    if all(low == high for low, high in op.padding):
        padding = [low for low, _ in op.padding]
        return AVG_POOL[rank](x, op.kernel, op.stride, padding, op.ceil_mode, op.count_include_pad)
    counted = torch.ones_like(x) if not op.count_include_pad else None
    mean = AVG_POOL[rank](_padded(x, op.padding, 0), op.kernel, op.stride)
    if counted is None:
        return mean
    return mean / AVG_POOL[rank](_padded(counted, op.padding, 0), op.kernel, op.stride)


def resize(op: Resize, x: Tensor) -> Tensor:
    choice = (op.mode, op.coordinates, op.rounding)
    if op.axes != tuple(range(2, x.ndim)) or op.exclude_outside:
        return _by_matrices(op, x)
    if choice == ("nearest", "asymmetric", "floor"):
        return _interpolate(op, x, "nearest", None)
    if choice == ("nearest", "half_pixel", "round_prefer_ceil"):
        return _interpolate(op, x, "nearest-exact", None)
    if op.mode != "nearest" and op.coordinates in ("half_pixel", "align_corners"):
        corners = op.coordinates == "align_corners"
        return _interpolate(op, x, INTERPOLATE[op.mode, x.ndim - 2], corners)
    return _by_matrices(op, x)


def _interpolate(op: Resize, x: Tensor, mode: str, corners: bool | None) -> Tensor:
    if op.scales:
        return F.interpolate(x, scale_factor=op.scales, mode=mode, align_corners=corners)
    return F.interpolate(x, size=op.sizes, mode=mode, align_corners=corners)


def _by_matrices(op: Resize, x: Tensor) -> Tensor:
    """What torch has not got: ONNX's definition, element by element, as a matrix for each axis."""
    for position, (axis, count) in enumerate(zip(op.axes, op.sizes, strict=True)):
        matrix = np.zeros((count, x.shape[axis]))
        for place in range(count):
            _fill_row(op, matrix[place], position, place)
        if op.mode == "nearest":
            x = x.index_select(axis, torch.tensor(matrix.argmax(1)))
        else:
            rows = torch.tensor(matrix, dtype=x.dtype)
            x = torch.tensordot(x, rows, ([axis], [1])).movedim(-1, axis)
    return x


def _fill_row(op: Resize, row: np.ndarray, position: int, place: int) -> None:
    size, count = len(row), op.sizes[position]
    scale = op.scales[position] if op.scales else count / size
    at = (place + 0.5) / scale - 0.5
    if op.coordinates == "asymmetric":
        at = place / scale
    elif op.coordinates == "align_corners":
        at = place * (size - 1) / (count - 1) if count > 1 else 0.0
    elif op.coordinates == "pytorch_half_pixel" and count == 1:
        at = 0.0
    elif op.coordinates == "half_pixel_symmetric":
        at += size / 2 * (1 - count / (scale * size))
    if op.mode == "nearest":
        rounded = {
            "floor": math.floor(at),
            "ceil": math.ceil(at),
            "round_prefer_floor": math.ceil(at - 0.5),
            "round_prefer_ceil": math.floor(at + 0.5),
        }[op.rounding]
        row[min(max(rounded, 0), size - 1)] = 1
        return
    reach = 1 if op.mode == "linear" else 2
    for neighbour in range(math.floor(at) - reach + 1, math.floor(at) + reach + 1):
        weight = _kernel(op, abs(at - neighbour))
        if 0 <= neighbour < size or not op.exclude_outside:
            row[min(max(neighbour, 0), size - 1)] += weight
    row /= row.sum()


def _kernel(op: Resize, distance: float) -> float:
    if op.mode == "linear":
        return max(1 - distance, 0.0)
    a = op.cubic_coefficient
    if distance <= 1:
        return (a + 2) * distance**3 - (a + 3) * distance**2 + 1
    return a * distance**3 - 5 * a * distance**2 + 8 * a * distance - 4 * a if distance < 2 else 0.0


def layer_norm(
    op: LayerNorm, x: Tensor, scale: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    return F.layer_norm(x, x.shape[op.axis % x.ndim :], scale, bias, op.epsilon)


def rms_norm(op: RmsNorm, x: Tensor, scale: Tensor | None = None) -> Tensor:
    return F.rms_norm(x, x.shape[op.axis % x.ndim :], scale, op.epsilon)


def group_norm(
    op: GroupNorm, x: Tensor, scale: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    return F.group_norm(x, op.groups, scale, bias, op.epsilon)


def instance_norm(
    op: InstanceNorm, x: Tensor, scale: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    if x.numel() == 0:
        return x
    return F.instance_norm(x, None, None, scale, bias, True, 0.0, op.epsilon)


def batch_norm(op: BatchNorm, x: Tensor, *parameters: Tensor) -> Tensor:
    scale, bias, mean, variance = (
        parameter.reshape(-1, *[1] * (x.ndim - 2)) for parameter in parameters
    )
    if any(parameter.requires_grad for parameter in parameters):
        # torch has no gradient by the running statistics; the formula has.
        return (x - mean) / torch.sqrt(variance + op.epsilon) * scale + bias
    scale, bias, mean, variance = parameters
    return F.batch_norm(x, mean, variance, scale, bias, False, 0.0, op.epsilon)


def batch_norm_training(op: BatchNormTraining, x: Tensor, scale: Tensor, bias: Tensor) -> Any:
    axes = [0, *range(2, x.ndim)]
    if x.numel() == 0:
        return x
    y = F.batch_norm(x, None, None, scale, bias, True, 0.0, op.epsilon)
    return y, x.mean(axes), x.var(axes, correction=0)


def softmax(op: Softmax, x: Tensor) -> Tensor:
    if op.fully_masked == "zeros":
        return torch.ops.aten._safe_softmax(x, op.axis)
    return F.softmax(x, op.axis)


def log_softmax(op: LogSoftmax, x: Tensor) -> Tensor:
    return F.log_softmax(x, op.axis)


def attention(
    op: Attention, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
) -> Tensor:
    if mask is not None and op != Attention(op.causal, op.scale):
        return _written_out(op, query, key, value, mask)
    if op.causal and mask is not None:  # torch takes only one of the two
        mask, op = mask & torch.ones_like(mask).tril(), Attention(False, op.scale)
    return F.scaled_dot_product_attention(
        query, key, value, mask, 0.0, op.causal, scale=op.scale, enable_gqa=True
    )


def _written_out(op: Attention, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """What torch's attention has no word for."""
    group = query.shape[-3] // key.shape[-3]
    key, value = (part.repeat_interleave(group, -3) for part in (key, value))
    scores = query @ key.mT * op.factor(query.shape)
    scores = torch.where(mask, scores, op.fill) if mask.dtype is torch.bool else scores + mask
    if op.causal:
        scores = torch.where(torch.ones_like(scores).bool().tril(), scores, -torch.inf)
    return scores.softmax(-1) @ value


def cross_entropy(
    op: CrossEntropy, logits: Tensor, targets: Tensor, weight: Tensor | None = None
) -> Tensor:
    if weight is not None and weight.requires_grad:
        return _weighted_cross_entropy(op, logits, targets, weight)
    return F.cross_entropy(
        logits,
        targets.long(),
        weight,
        ignore_index=op.ignore_index,
        reduction=op.reduction,
        label_smoothing=op.label_smoothing,
    )


def _weighted_cross_entropy(
    op: CrossEntropy, logits: Tensor, targets: Tensor, weight: Tensor
) -> Tensor:
    """torch has no gradient by the class weights; its formula has."""
    counts = targets != op.ignore_index
    chosen = torch.where(counts, targets, 0)
    logs = F.log_softmax(logits, 1)
    share = op.label_smoothing
    classes = F.one_hot(chosen, logits.shape[1]) * (1 - share) + share / logits.shape[1]
    losses = -(logs * weight * classes).sum(1) * counts
    if op.reduction == "none":
        return losses
    return losses.sum() / ((weight[chosen] * counts).sum() if op.reduction == "mean" else 1)


def mse(op: Mse, prediction: Tensor, target: Tensor) -> Tensor:
    both = torch.broadcast_tensors(prediction, target)
    return F.mse_loss(*both, reduction=op.reduction)


def _padded(x: Tensor, padding: tuple[tuple[int, int], ...], value: float) -> Tensor:
    amounts = [amount for pair in reversed(padding) for amount in pair]
    return F.pad(x, amounts, value=value)


TORCH: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        *(conv, conv_transpose, conv_weight_gradient, max_pool, max_pool_with_indices),
        *(max_pool_gradient, avg_pool, resize, layer_norm, rms_norm, group_norm, instance_norm),
        *(batch_norm, batch_norm_training, softmax, log_softmax, attention, cross_entropy, mse),
    )
}
