"""The distinct convolutions of ResNet-50, MobileNetV2 and ConvNeXt, with bias and relu.

Each line is a convolution that the model has at 224 pixels, batch 1; a name says its window,
channels in and out, the side of its input and its stride.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from benchmarks.workloads.case import Inputs, module_workload

Shape = tuple[int, int, int, int, int]
"""Window, channels in, channels out, side of the input, stride."""

RESNET: tuple[Shape, ...] = (
    (7, 3, 64, 224, 2),
    (1, 64, 64, 56, 1), (3, 64, 64, 56, 1), (1, 64, 256, 56, 1), (1, 256, 64, 56, 1),
    (1, 256, 128, 56, 1), (3, 128, 128, 56, 2), (1, 256, 512, 56, 2),
    (1, 128, 512, 28, 1), (1, 512, 128, 28, 1), (3, 128, 128, 28, 1),
    (1, 512, 256, 28, 1), (3, 256, 256, 28, 2), (1, 512, 1024, 28, 2),
    (1, 256, 1024, 14, 1), (1, 1024, 256, 14, 1), (3, 256, 256, 14, 1),
    (1, 1024, 512, 14, 1), (3, 512, 512, 14, 2), (1, 1024, 2048, 14, 2),
    (1, 512, 2048, 7, 1), (1, 2048, 512, 7, 1), (3, 512, 512, 7, 1),
)  # fmt: skip
MOBILENET: tuple[Shape, ...] = (
    (3, 3, 32, 224, 2), (1, 32, 16, 112, 1), (1, 16, 96, 112, 1), (1, 96, 24, 56, 1),
    (1, 24, 144, 56, 1), (1, 144, 24, 56, 1), (1, 144, 32, 28, 1), (1, 32, 192, 28, 1),
    (1, 192, 32, 28, 1), (1, 192, 64, 14, 1), (1, 64, 384, 14, 1), (1, 384, 64, 14, 1),
    (1, 384, 96, 14, 1), (1, 96, 576, 14, 1), (1, 576, 96, 14, 1), (1, 576, 160, 7, 1),
    (1, 160, 960, 7, 1), (1, 960, 160, 7, 1), (1, 960, 320, 7, 1), (1, 320, 1280, 7, 1),
)  # fmt: skip
CONVNEXT: tuple[Shape, ...] = (
    (4, 3, 96, 224, 4), (2, 96, 192, 56, 2), (2, 192, 384, 28, 2), (2, 384, 768, 14, 2),
)  # fmt: skip
DEPTHWISE = {
    "mobilenet": (
        (3, 32, 112, 1), (3, 96, 112, 2), (3, 144, 56, 1), (3, 144, 56, 2), (3, 192, 28, 1),
        (3, 192, 28, 2), (3, 384, 14, 1), (3, 576, 14, 1), (3, 576, 14, 2), (3, 960, 7, 1),
    ),
    "convnext": ((7, 96, 56, 1), (7, 192, 28, 1), (7, 384, 14, 1), (7, 768, 7, 1)),
}  # fmt: skip
"""Window, channels, side of the input, stride."""


def _cases() -> dict[str, dict[str, int]]:
    keys = ("window", "channels", "results", "side", "stride")
    dense = {"resnet": RESNET, "mobilenet": MOBILENET, "convnext": CONVNEXT}
    cases = {}
    for model, shapes in dense.items():
        for shape in shapes:
            window, channels, results, side, stride = shape
            name = f"{model}-{window}x{window}-{channels}-{results}-{side}-s{stride}"
            cases[name] = dict(zip(keys, shape, strict=True)) | {"groups": 1}
        for window, channels, side, stride in DEPTHWISE.get(model, ()):
            name = f"{model}-dw{window}x{window}-{channels}-{side}-s{stride}"
            shape = (window, channels, channels, side, stride)
            cases[name] = dict(zip(keys, shape, strict=True)) | {"groups": channels}
    return cases


@module_workload(
    "convolution",
    _cases(),
    telling=(
        *("resnet-7x7-3-64-224-s2", "resnet-3x3-64-64-56-s1", "resnet-1x1-64-256-56-s1"),
        *("resnet-3x3-128-128-56-s2", "resnet-3x3-256-256-14-s1", "resnet-1x1-1024-256-14-s1"),
        *("resnet-3x3-512-512-7-s1", "mobilenet-1x1-384-64-14-s1", "mobilenet-dw3x3-96-112-s2"),
        *("mobilenet-dw3x3-384-14-s1", "convnext-dw7x7-192-28-s1", "convnext-4x4-3-96-224-s4"),
    ),
)
def convolution(
    window: int, channels: int, results: int, side: int, stride: int, groups: int
) -> tuple[nn.Module, Inputs]:
    """A convolution with bias, then relu; windows of an odd side are padded to keep the image."""
    padding = window // 2 if window % 2 else 0
    layer = nn.Conv2d(channels, results, window, stride, padding, groups=groups)
    inner = channels // groups * window * window
    nn.init.normal_(layer.weight, std=math.sqrt(2 / inner))
    return nn.Sequential(layer, nn.ReLU()), (torch.randn(1, channels, side, side),)
