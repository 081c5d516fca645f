"""Convolutions and pools, with a batch or without one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from monograph import functional as F
from monograph.frontends.torch.node import TorchNode, as_list, static
from monograph.frontends.torch.registry import converter
from monograph.ir.graph import Value


def _per_axis(sizes: Any, count: int, missing: Sequence[int] | None = None) -> tuple[int, ...]:
    """A number for each spatial axis; one number (or a list of one) stands for all of them."""
    numbers = [static(size, "a window's size") for size in as_list(sizes)]
    if not numbers and missing is not None:
        return tuple(missing)
    return tuple(numbers * count if len(numbers) == 1 else numbers)


def _with_batch_axis(x: Value, spatial: int, run: Callable[[Value], Any]) -> Any:
    """Run on ``x`` with a batch axis, and take it away again if ``x`` had none."""
    if x.rank == spatial + 2:
        return run(x)
    results = run(F.unsqueeze(x, 0))
    if isinstance(results, tuple):
        return tuple(F.squeeze(result, (0,)) for result in results)
    return F.squeeze(results, (0,))


@converter("aten.convolution.default", "aten._convolution.default")
def _convolution(node: TorchNode) -> Value:
    return _convolve(node, bool(node["transposed"]), node["padding"])


@converter(
    "aten.conv1d.default",
    "aten.conv2d.default",
    "aten.conv3d.default",
    "aten.conv1d.padding",
    "aten.conv2d.padding",
    "aten.conv3d.padding",
)
def _conv(node: TorchNode) -> Value:
    return _convolve(node, False, node["padding"])


@converter(
    "aten.conv_transpose1d.default", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input"
)
def _conv_transpose(node: TorchNode) -> Value:
    return _convolve(node, True, node["padding"])


def _convolve(node: TorchNode, transposed: bool, padding: Any) -> Value:
    x, weight, bias = node["input"], node["weight"], node["bias"]
    spatial = weight.rank - 2
    groups = static(node["groups"], "groups")
    stride = _per_axis(node["stride"], spatial)
    dilation = _per_axis(node["dilation"], spatial)
    if isinstance(padding, str):
        around: Any = padding
    else:
        around = tuple((size, size) for size in _per_axis(padding, spatial))
    if transposed:
        extra = _per_axis(node["output_padding"], spatial)

        def run(value: Value) -> Value:
            return F.conv_transpose(value, weight, bias, stride, around, extra, dilation, groups)

    else:

        def run(value: Value) -> Value:
            return F.conv(value, weight, bias, stride, around, dilation, groups)

    result: Value = _with_batch_axis(x, spatial, run)
    return result


def _spatial(node: TorchNode) -> int:
    """How many axes a window has, from the op's own name: ``max_pool2d`` has two."""
    return int(next(letter for letter in node.op_name.split(".")[1] if letter.isdigit()))


def _window(node: TorchNode) -> dict[str, Any]:
    spatial = _spatial(node)
    kernel = _per_axis(node["kernel_size"], spatial)
    around = _per_axis(node["padding"], spatial)
    return {
        "kernel": kernel,
        "stride": _per_axis(node["stride"], spatial, kernel),
        "padding": tuple((size, size) for size in around),
        "ceil_mode": bool(node["ceil_mode"]),
    }


@converter("aten.max_pool1d.default", "aten.max_pool2d.default", "aten.max_pool3d.default")
def _max_pool(node: TorchNode) -> Value:
    spatial = _spatial(node)
    window = {**_window(node), "dilation": _per_axis(node["dilation"], spatial)}
    result: Value = _with_batch_axis(node["self"], spatial, lambda x: F.max_pool(x, **window))
    return result


@converter(
    "aten.max_pool1d_with_indices.default",
    "aten.max_pool2d_with_indices.default",
    "aten.max_pool3d_with_indices.default",
)
def _max_pool_with_indices(node: TorchNode) -> tuple[Value, Value]:
    spatial = _spatial(node)
    window = {**_window(node), "dilation": _per_axis(node["dilation"], spatial)}
    found: tuple[Value, Value] = _with_batch_axis(
        node["self"], spatial, lambda x: F.max_pool_with_indices(x, **window)
    )
    return found


@converter("aten.avg_pool1d.default", "aten.avg_pool2d.default", "aten.avg_pool3d.default")
def _avg_pool(node: TorchNode) -> Value:
    spatial = _spatial(node)
    window = _window(node)
    divisor = node.get("divisor_override")
    if divisor is not None:
        return _sum_pool(node, spatial, window, divisor)
    window["count_include_pad"] = bool(node["count_include_pad"])
    result: Value = _with_batch_axis(node["self"], spatial, lambda x: F.avg_pool(x, **window))
    return result


def _sum_pool(node: TorchNode, spatial: int, window: dict[str, Any], divisor: int) -> Value:
    """The sum of each window over a given number: the mean with padding counted, scaled back."""
    if window["ceil_mode"]:
        window = {**window, "ceil_mode": False, "padding": _up_to_last_window(node, window)}
    mean: Value = _with_batch_axis(
        node["self"], spatial, lambda x: F.avg_pool(x, **window, count_include_pad=True)
    )
    return F.multiply(mean, prod(window["kernel"]) / divisor)


def _up_to_last_window(node: TorchNode, window: dict[str, Any]) -> list[tuple[int, int]]:
    """Padding that goes on to where the last window ends, which ceil_mode lets lie outside."""
    spatial = len(window["kernel"])
    sizes = [static(size, "the size of a pool") for size in node["self"].shape[-spatial:]]
    padding = []
    for axis, (before, after) in enumerate(window["padding"]):
        count = _output_sizes(node, spatial)[axis]
        end = (count - 1) * window["stride"][axis] + window["kernel"][axis]
        padding.append((before, max(after, end - before - sizes[axis])))
    return padding


@converter(
    "aten.adaptive_avg_pool1d.default",
    "aten.adaptive_avg_pool2d.default",
    "aten.adaptive_avg_pool3d.default",
    "aten._adaptive_avg_pool2d.default",
    "aten._adaptive_avg_pool3d.default",
)
def _adaptive_avg_pool(node: TorchNode) -> Value:
    spatial = _spatial(node)
    sizes = _output_sizes(node, spatial)
    result: Value = _with_batch_axis(node["self"], spatial, lambda x: F.adaptive_avg_pool(x, sizes))
    return result


def _output_sizes(node: TorchNode, spatial: int) -> tuple[int, ...]:
    shape = node.result_type().shape
    return tuple(static(dim, "the output size of a pool") for dim in shape[-spatial:])
