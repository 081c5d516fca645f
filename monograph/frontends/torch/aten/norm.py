"""Normalisation, softmax and attention.

torch allows an epsilon below 0 (the result is NaN where the variance is smaller than that), our ops
do not: such a call becomes the arithmetic that the op stands for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monograph import functional as F
from monograph.errors import UnsupportedError
from monograph.frontends.torch.aten.random import drop_elements
from monograph.frontends.torch.aten.reduce import axis_of
from monograph.frontends.torch.node import TorchNode, static
from monograph.frontends.torch.registry import converter
from monograph.ir.dims import Dim, shape_product
from monograph.ir.graph import Value
from monograph.ir.types import bool_, wide
from monograph.ops.attention import make_causal_mask, multiply_grouped, score_keys
from monograph.ops.batch_norm import BatchNorm, BatchNormTraining
from monograph.ops.norm import LayerNorm, RmsNorm, affine


@converter("aten._softmax.default", "aten.softmax.int", "aten.special_softmax.int")
def _softmax(node: TorchNode) -> Value:
    (x,) = node.as_result(node["self"])
    return F.ones_like(x) if x.rank == 0 else F.softmax(x, axis_of(x, node["dim"]))


@converter("aten._log_softmax.default", "aten.log_softmax.int", "aten.special_log_softmax.int")
def _log_softmax(node: TorchNode) -> Value:
    (x,) = node.as_result(node["self"])
    return F.zeros_like(x) if x.rank == 0 else F.log_softmax(x, axis_of(x, node["dim"]))


@converter("aten._safe_softmax.default")
def _safe_softmax(node: TorchNode) -> Value:
    (x,) = node.as_result(node["self"])
    return F.softmax(x, axis_of(x, node["dim"]), "zeros")


def _norm_axes(x: Value, shape: Sequence[Dim]) -> tuple[int, ...]:
    return tuple(range(x.rank - len(shape), x.rank))


@converter("aten.layer_norm.default")
def _layer_norm(node: TorchNode) -> Value:
    return _layer_normalised(node)


def _layer_normalised(node: TorchNode) -> Value:
    x, scale, bias = node["input"], node["weight"], node["bias"]
    shape = node["normalized_shape"]
    if scale is None and bias is not None:
        scale = F.ones_like(bias)
    epsilon = float(node["eps"])
    if epsilon < 0:
        return LayerNorm(x.rank - len(shape), epsilon).decompose(x, scale, bias)
    return F.layer_norm(x, scale, bias, -len(shape), epsilon)


@converter("aten.native_layer_norm.default")
def _native_layer_norm(node: TorchNode) -> tuple[Value, Value, Value]:
    x = node["input"]
    axes = _norm_axes(x, node["normalized_shape"])
    broad = F.cast(x, wide(x.dtype))
    mean = F.mean(broad, axes, True)
    variance = F.variance(broad, axes, True, 0)
    return _layer_normalised(node), mean, F.rsqrt(variance + float(node["eps"]))


@converter("aten.rms_norm.default")
def _rms_norm(node: TorchNode) -> Value:
    return _rms_normalised(node)


@converter("aten._fused_rms_norm.default")
def _fused_rms_norm(node: TorchNode) -> tuple[Value, Value]:
    x = node["input"]
    axes = _norm_axes(x, node["normalized_shape"])
    broad = F.cast(x, wide(x.dtype))
    scale = F.rsqrt(F.mean(F.square(broad), axes, True) + _epsilon(node))
    return _rms_normalised(node), scale


def _epsilon(node: TorchNode) -> float:
    given = node["eps"]
    if given is not None:
        return float(given)
    return 2.0**-52 if node["input"].dtype.name == "f64" else 2.0**-23


def _rms_normalised(node: TorchNode) -> Value:
    x, scale, epsilon = node["input"], node["weight"], _epsilon(node)
    normalised = len(node["normalized_shape"])
    if epsilon < 0:
        return RmsNorm(x.rank - normalised, epsilon).decompose(x, scale)
    return F.rms_norm(x, scale, -normalised, epsilon)


@converter("aten.group_norm.default")
def _group_norm(node: TorchNode) -> Value:
    return _group_normalised(node, static(node["num_groups"], "num_groups"))


def _group_normalised(node: TorchNode, groups: int) -> Value:
    x, epsilon = node["input"], float(node["eps"])
    scale, bias = _scale_and_bias(node)
    if epsilon >= 0:
        return F.group_norm(x, groups, scale, bias, epsilon)
    batch, channels, *sizes = x.shape
    grouped = F.reshape(x, (batch, groups, channels // groups, *sizes))
    normal = LayerNorm(2, epsilon).decompose(grouped)
    return affine(F.reshape(normal, x.shape), scale, bias)


@converter("aten.native_group_norm.default")
def _native_group_norm(node: TorchNode) -> tuple[Value, Value, Value]:
    x = node["input"]
    groups, epsilon = static(node["group"], "group"), float(node["eps"])
    members = x.shape[1] // groups * shape_product(x.shape[2:])
    grouped = F.reshape(F.cast(x, wide(x.dtype)), (node["N"], groups, members))
    mean, variance = F.mean(grouped, -1), F.variance(grouped, -1, False, 0)
    return _group_normalised(node, groups), mean, F.rsqrt(variance + epsilon)


def _scale_and_bias(node: TorchNode) -> tuple[Value | None, Value | None]:
    scale, bias = node["weight"], node["bias"]
    if scale is None and bias is not None:
        scale = F.ones_like(bias)
    return scale, bias


def _channels(node: TorchNode, name: str, default: float) -> Value:
    """A parameter of each channel; a constant where the model has none."""
    given = node[name]
    if given is not None:
        value: Value = given
        return value
    x = node["input"]
    return F.full((x.shape[1],), default, wide(x.dtype))


def _inference(node: TorchNode) -> Value:
    x, epsilon = node["input"], float(node["eps"])
    parameters = (_channels(node, "weight", 1.0), _channels(node, "bias", 0.0))
    statistics = (node["running_mean"], node["running_var"])
    if epsilon < 0:
        return BatchNorm(epsilon).decompose(x, *parameters, *statistics)
    return F.batch_norm(x, *parameters, *statistics, epsilon)


def _training(node: TorchNode) -> tuple[Value, Value, Value]:
    """The normalised batch, its means and its variances."""
    x, epsilon = node["input"], float(node["eps"])
    parameters = (_channels(node, "weight", 1.0), _channels(node, "bias", 0.0))
    if epsilon < 0:
        return BatchNormTraining(epsilon).decompose(x, *parameters)
    normal, mean, variance = F.batch_norm_training(x, *parameters, epsilon)
    return normal, mean, variance


def _update_running_statistics(
    node: TorchNode, mean: Value, variance: Value
) -> tuple[Value, Value]:
    """The running statistics, moved towards those of the batch (its variance made unbiased)."""
    x, momentum = node["input"], float(node["momentum"])
    old_mean, old_variance = node["running_mean"], node["running_var"]
    count: Dim = 1
    for axis, size in enumerate(x.shape):
        count = count if axis == 1 else count * size
    counted = F.cast(F.dim(count), variance.dtype)
    unbiased = variance * counted / (counted - 1.0)
    return (
        F.cast(old_mean * (1.0 - momentum) + mean * momentum, old_mean.dtype),
        F.cast(old_variance * (1.0 - momentum) + unbiased * momentum, old_variance.dtype),
    )


@converter("aten.batch_norm.default", "aten.cudnn_batch_norm.default")
def _batch_norm(node: TorchNode) -> Value:
    x: Value = node["input"]
    if 0 in x.shape:  # whatever its rank; and the statistics stay as they are
        return x
    if not node["training"]:
        return _inference(node)
    normal, mean, variance = _training(node)
    if node["running_mean"] is not None:
        new_mean, new_variance = _update_running_statistics(node, mean, variance)
        node.write("running_mean", new_mean)
        node.write("running_var", new_variance)
    return normal


def _statistics_for_backward(node: TorchNode, mean: Value, variance: Value) -> tuple[Value, Value]:
    """What torch keeps for the backward pass: the mean and one over the deviation."""
    return mean, F.rsqrt(variance + float(node["eps"]))


def _nothing_saved(node: TorchNode) -> tuple[Value, Value]:
    types = node.result_types()[1:3]
    first, second = (F.zeros(type_.shape, type_.dtype) for type_ in types if type_ is not None)
    return first, second


@converter("aten._native_batch_norm_legit_no_training.default")
def _batch_norm_no_training(node: TorchNode) -> tuple[Value, Value, Value]:
    return _inference(node), *_nothing_saved(node)


@converter("aten._native_batch_norm_legit.no_stats")
def _batch_norm_no_statistics(node: TorchNode) -> tuple[Value, Value, Value]:
    normal, mean, variance = _training(node)
    return normal, *_statistics_for_backward(node, mean, variance)


@converter("aten.native_batch_norm.default")
def _native_batch_norm(node: TorchNode) -> tuple[Value, Value, Value]:
    if not node["training"]:
        return _inference(node), *_nothing_saved(node)
    normal, mean, variance = _training(node)
    if node["running_mean"] is not None:
        new_mean, new_variance = _update_running_statistics(node, mean, variance)
        node.write("running_mean", new_mean)
        node.write("running_var", new_variance)
    return normal, *_statistics_for_backward(node, mean, variance)


@converter("aten._native_batch_norm_legit_functional.default")
def _batch_norm_functional(node: TorchNode) -> tuple[Value, ...]:
    if not node["training"]:
        statistics = node["running_mean"], node["running_var"]
        return _inference(node), *_nothing_saved(node), *statistics
    normal, mean, variance = _training(node)
    return (
        normal,
        *_statistics_for_backward(node, mean, variance),
        *_update_running_statistics(node, mean, variance),
    )


# Attention.


@converter("aten.scaled_dot_product_attention.default")
def _attention(node: TorchNode) -> Value:
    return _attend(node)


@converter("aten._scaled_dot_product_flash_attention_for_cpu.default")
def _flash_attention(node: TorchNode) -> tuple[Value, Value]:
    types = node.result_types()
    assert types[1] is not None
    scores = score_keys(node["query"], node["key"], node["scale"])
    if node["attn_mask"] is not None:
        scores = scores + node["attn_mask"]
    if node["is_causal"]:
        scores = F.where(make_causal_mask(scores.shape), scores, float("-inf"))
    return _attend(node), F.cast(F.logsumexp(scores, -1), types[1].dtype)


@converter(
    "aten._scaled_dot_product_flash_attention.default",
    "aten._scaled_dot_product_efficient_attention.default",
    "aten._scaled_dot_product_cudnn_attention.default",
)
def _fused_attention(node: TorchNode) -> tuple[Any, ...]:
    """What torch traces on a GPU where gradients are wanted.

    Beside the result they give what only their own backward reads, which ours does not: NaN and
    zeros, so that nobody else can take them for something.
    """
    if float(node["dropout_p"]) != 0.0:
        raise UnsupportedError(
            f"{node.op_name} drops weights, and its random numbers are not known",
            hint="write attention out, or set its dropout to 0",
        )
    query, key, value = node["query"], node["key"], node["value"]
    mask = node.get("attn_bias")
    if mask is not None and mask.dtype is not bool_:
        mask = node.value(mask, query.dtype)
    result = F.attention(query, key, value, mask, bool(node["is_causal"]), node["scale"])
    sizes = iter((query.shape[-2], key.shape[-2]))  # of which some return the largest
    rest: list[Any] = []
    recorded_types = zip(node.fx_node.meta["val"], node.result_types(), strict=True)
    for recorded, type_ in list(recorded_types)[1:]:
        if type_ is None:
            rest.append(None if recorded is None else next(sizes))
        else:
            filling = float("nan") if type_.dtype.is_float else 0
            rest.append(F.full(type_.shape, filling, type_.dtype))
    return result, *rest


def _attend(node: TorchNode) -> Value:
    query, key, value, mask = node["query"], node["key"], node["value"], node["attn_mask"]
    if mask is not None and mask.dtype is not bool_:
        mask = node.value(mask, query.dtype)
    if float(node["dropout_p"]) != 0.0 or not query.rank == key.rank == value.rank:
        return _attend_in_parts(node, mask)
    scale: Any = node["scale"]
    causal = bool(node["is_causal"])
    if query.rank == 2:
        query, key, value = (F.unsqueeze(part, 0) for part in (query, key, value))
        return F.squeeze(F.attention(query, key, value, mask, causal, scale), (0,))
    return F.attention(query, key, value, mask, causal, scale)


def _attend_in_parts(node: TorchNode, mask: Value | None) -> Value:
    """Attention written out: with weights that are dropped, or batches of which one broadcasts."""
    scores = score_keys(node["query"], node["key"], node["scale"])
    if node["is_causal"]:
        mask = make_causal_mask(scores.shape)
    if mask is not None:
        scores = F.where(mask, scores, float("-inf")) if mask.dtype is bool_ else scores + mask
    weights = F.softmax(scores, -1, "zeros")
    rate = float(node["dropout_p"])
    return multiply_grouped(drop_elements(node, weights, rate), node["value"])
