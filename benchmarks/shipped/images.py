"""Models of images, through torch's exporters: a detector, a classifier, a reader of text lines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import torch
from onnx import ModelProto, TensorProto, helper, numpy_helper
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.shipped.exporters import (
    by_dynamo,
    by_torchscript,
    quantized_dynamically,
    quantized_statically,
)
from benchmarks.shipped.model import Array, Feed, Sizes, normal, shipped

CLASSES = 16
DISTANCES = 8
"""Bins of the distribution that each side of a box is the mean of."""


def calibrated(module: nn.Module, *examples: Tensor) -> nn.Module:
    """The module with batch norms that have the statistics of what really reaches them."""
    norms = [each for each in module.modules() if isinstance(each, nn.BatchNorm1d | nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
    module.train()(*examples)
    return module.eval()


def pictures(sizes: Sizes, generator: np.random.Generator) -> Feed:
    """Images of three channels."""
    shape = sizes["batch"], 3, sizes["height"], sizes["width"]
    return {"images": normal(generator, *shape)}


class Layer(nn.Sequential):
    """Convolution, batch norm, SiLU."""

    def __init__(self, inputs: int, outputs: int, size: int = 1, stride: int = 1) -> None:
        conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
        super().__init__(conv, nn.BatchNorm2d(outputs), nn.SiLU())


class Split(nn.Module):
    """Half of the channels pass through bottlenecks, of which every result is kept."""

    def __init__(self, inputs: int, outputs: int, blocks: int, residual: bool) -> None:
        super().__init__()
        half = outputs // 2
        self.residual = residual
        self.first = Layer(inputs, outputs)
        self.blocks = nn.ModuleList(
            nn.Sequential(Layer(half, half, 3), Layer(half, half, 3)) for _ in range(blocks)
        )
        self.last = Layer((2 + blocks) * half, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """The features."""
        parts = list(self.first(x).chunk(2, 1))
        for block in self.blocks:
            made = block(parts[-1])
            parts.append(parts[-1] + made if self.residual else made)
        result: Tensor = self.last(torch.cat(parts, 1))
        return result


class Pyramid(nn.Module):
    """Max pools of growing reach, beside each other."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.last = Layer(channels, channels // 2), Layer(2 * channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        """The features."""
        parts = [self.first(x)]
        for _ in range(3):
            parts.append(F.max_pool2d(parts[-1], 5, 1, 2))
        result: Tensor = self.last(torch.cat(parts, 1))
        return result


class Detector(nn.Module):
    """A one-stage detector without anchors (as YOLOv8 is): boxes and scores at three strides."""

    def __init__(self, width: int) -> None:
        super().__init__()
        a, b, c, d, e = (width * 2**k for k in range(5))
        self.stem = nn.Sequential(Layer(3, a, 3, 2), Layer(a, b, 3, 2), Split(b, b, 1, True))
        self.third = nn.Sequential(Layer(b, c, 3, 2), Split(c, c, 2, True))
        self.fourth = nn.Sequential(Layer(c, d, 3, 2), Split(d, d, 2, True))
        self.fifth = nn.Sequential(Layer(d, e, 3, 2), Split(e, e, 1, True), Pyramid(e))
        self.up_fourth, self.up_third = Split(d + e, d, 1, False), Split(c + d, c, 1, False)
        self.down_third, self.down_fourth = Layer(c, c, 3, 2), Layer(d, d, 3, 2)
        self.out_fourth, self.out_fifth = Split(c + d, d, 1, False), Split(d + e, e, 1, False)
        self.boxes = nn.ModuleList(self._head(each, 4 * DISTANCES) for each in (c, d, e))
        self.scores = nn.ModuleList(self._head(each, CLASSES) for each in (c, d, e))
        for head in self.scores:
            nn.init.constant_(head[-1].bias, -2.0)  # type: ignore[index, arg-type]
        self.register_buffer("bins", torch.arange(DISTANCES, dtype=torch.float32))

    def _head(self, channels: int, outputs: int) -> nn.Module:
        hidden = max(16, channels // 2)
        return nn.Sequential(Layer(channels, hidden, 3), nn.Conv2d(hidden, outputs, 1))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Corners of boxes [batch, boxes, 4] and scores of classes [batch, classes, boxes]."""
        third = self.third(self.stem(images))
        fourth = self.fourth(third)
        fifth = self.fifth(fourth)
        fourth = self.up_fourth(torch.cat([F.interpolate(fifth, scale_factor=2.0), fourth], 1))
        third = self.up_third(torch.cat([F.interpolate(fourth, scale_factor=2.0), third], 1))
        fourth = self.out_fourth(torch.cat([self.down_third(third), fourth], 1))
        fifth = self.out_fifth(torch.cat([self.down_fourth(fourth), fifth], 1))
        levels = list(zip((third, fourth, fifth), (8, 16, 32), strict=True))
        boxes = [self._decode(head(x), s) for head, (x, s) in zip(self.boxes, levels, strict=True)]
        scores = [head(x).flatten(2) for head, (x, _) in zip(self.scores, levels, strict=True)]
        return torch.cat(boxes, 1), torch.cat(scores, 2).sigmoid()

    def _decode(self, x: Tensor, stride: int) -> Tensor:
        """Corners from the distances of the sides, as distributions, from the middle of a cell."""
        batch, _, height, width = x.shape
        sides = x.view(batch, 4, DISTANCES, height * width).softmax(2)
        sides = (sides * self.bins.view(1, 1, DISTANCES, 1)).sum(2)  # type: ignore[operator]
        rows, columns = torch.arange(height) + 0.5, torch.arange(width) + 0.5
        y, x = torch.meshgrid(rows, columns, indexing="ij")
        middles = torch.stack([x, y]).flatten(1)
        corners = torch.cat([middles - sides[:, :2], middles + sides[:, 2:]], 1) * stride
        return corners.transpose(1, 2)


FREE_IMAGE = {0: "batch", 2: "height", 3: "width"}


MOST_BOXES, MOST_OVERLAP, LEAST_SCORE = 20, 0.45, 0.25


def suppress(outputs: Sequence[Array]) -> list[Array]:
    """Boxes and scores again, and the boxes that greedy suppression keeps of these."""
    boxes, scores, _ = outputs
    corners = np.sort(boxes.reshape(*boxes.shape[:2], 2, 2), 2)
    kept = []
    for batch, label in np.ndindex(*scores.shape[:2]):
        row, places = scores[batch, label], corners[batch]
        left = np.argsort(-row, kind="stable")
        left = left[row[left] > LEAST_SCORE]
        for _ in range(MOST_BOXES):
            if not len(left):
                break
            best, left = left[0], left[1:]
            kept.append((batch, label, best))
            left = left[_overlaps(places[best], places[left]) <= MOST_OVERLAP]
    return [boxes, scores, np.array(kept, np.int64).reshape(-1, 3)]


def _overlaps(box: Array, others: Array) -> Array:
    """Intersection over union of one box with each of the others."""
    sides = np.minimum(box[1], others[:, 1]) - np.maximum(box[0], others[:, 0])
    shared = sides.clip(0).prod(-1)
    areas = (others[:, 1] - others[:, 0]).prod(-1) + (box[1] - box[0]).prod()
    return np.asarray(shared / (areas - shared))


@shipped(
    "yolo-nms",
    "images",
    "torchscript 12 + NonMaxSuppression",
    feed=pictures,
    sizes={"batch": 1, "height": 320, "width": 320},
    small={"batch": 1, "height": 64, "width": 96},
    decide=suppress,
)
def detector_with_suppression(small: bool) -> ModelProto:
    """The detector, its raw boxes and scores, and the indices that suppression leaves."""
    model = calibrated(Detector(4 if small else 16), torch.randn(2, 3, 128, 128))
    free = {2: "height", 3: "width"}
    made = by_torchscript(
        model,
        (torch.randn(1, 3, 64, 64),),
        ["images"],
        ["boxes", "scores"],
        {"images": free, "boxes": {1: "anchors"}, "scores": {2: "anchors"}},
        12,
    )
    return _with_suppression(made)


def _with_suppression(model: ModelProto) -> ModelProto:
    """Add the node as conversion scripts do, with its limits as initializers."""
    graph = model.graph
    limits = {
        "max_output_boxes_per_class": np.array([MOST_BOXES], np.int64),
        "iou_threshold": np.array([MOST_OVERLAP], np.float32),
        "score_threshold": np.array([LEAST_SCORE], np.float32),
    }
    graph.initializer.extend(numpy_helper.from_array(x, name) for name, x in limits.items())
    operands = ["boxes", "scores", *limits]
    graph.node.append(helper.make_node("NonMaxSuppression", operands, ["selected"], name="nms"))
    shape = ["selected", 3]
    graph.output.append(helper.make_tensor_value_info("selected", TensorProto.INT64, shape))
    onnx.checker.check_model(model)
    return model


@shipped(
    "yolo",
    "images",
    "dynamo 18",
    feed=pictures,
    sizes={"batch": 1, "height": 320, "width": 320},
    small={"batch": 2, "height": 64, "width": 96},
)
def detector(small: bool) -> ModelProto:
    """The detector's boxes and scores, every size free."""
    model = calibrated(Detector(4 if small else 16), torch.randn(2, 3, 128, 128))
    example = torch.randn(2, 3, 96, 64)
    return by_dynamo(model, (example,), ["images"], ["boxes", "scores"], [FREE_IMAGE], 18)


class Inverted(nn.Module):
    """MobileNetV2's block: widen, depthwise, narrow."""

    def __init__(self, inputs: int, outputs: int, stride: int, widening: int) -> None:
        super().__init__()
        hidden = inputs * widening
        self.residual = stride == 1 and inputs == outputs
        widen = [nn.Conv2d(inputs, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6()]
        self.layers = nn.Sequential(
            *(widen if widening > 1 else []),
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU6(),
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )

    def forward(self, x: Tensor) -> Tensor:
        """The features."""
        made: Tensor = self.layers(x)
        return x + made if self.residual else made


class Classifier(nn.Module):
    """MobileNetV2."""

    STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
              (6, 160, 3, 2), (6, 320, 1, 1))  # fmt: skip

    def __init__(self, scale: float, classes: int) -> None:
        super().__init__()
        channels = int(32 * scale)
        layers: list[nn.Module] = [
            nn.Conv2d(3, channels, 3, 2, 1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU6(),
        ]
        for widening, width, blocks, stride in self.STAGES:
            outputs = int(width * scale)
            for block in range(1 if scale < 1 else blocks):
                step = stride if block == 0 else 1
                layers.append(Inverted(channels, outputs, step, widening))
                channels = outputs
        last = int(1280 * scale)
        layers += [nn.Conv2d(channels, last, 1, bias=False), nn.BatchNorm2d(last), nn.ReLU6()]
        self.features = nn.Sequential(*layers)
        self.classes = nn.Linear(last, classes)

    def forward(self, images: Tensor) -> Tensor:
        """The scores of every class."""
        pooled = F.adaptive_avg_pool2d(self.features(images), 1)
        scores: Tensor = self.classes(torch.flatten(pooled, 1))
        return scores


MOBILENET = {"batch": 1, "height": 224, "width": 224}
SMALL_MOBILENET = {"batch": 2, "height": 64, "width": 64}


@shipped(
    "mobilenet",
    "images",
    "torchscript 13",
    feed=pictures,
    sizes=MOBILENET,
    small=SMALL_MOBILENET,
)
def classifier(small: bool) -> ModelProto:
    """MobileNetV2 with a free batch, height and width."""
    model = calibrated(Classifier(0.25 if small else 1.0, 100), torch.randn(4, 3, 64, 64))
    axes = {"images": FREE_IMAGE, "logits": {0: "batch"}}
    return by_torchscript(model, (torch.randn(1, 3, 64, 64),), ["images"], ["logits"], axes, 13)


def _calibration() -> list[Feed]:
    generator = np.random.default_rng(1)
    return [pictures(SMALL_MOBILENET, generator) for _ in range(2)]


@shipped(
    "mobilenet-qdq",
    "images",
    "torchscript 13 + quantize_static, QDQ",
    feed=pictures,
    sizes=MOBILENET,
    small=SMALL_MOBILENET,
    tolerance=0.1,
)
def quantized_classifier(small: bool) -> ModelProto:
    """MobileNetV2 between QuantizeLinear and DequantizeLinear."""
    return quantized_statically(classifier(small), _calibration(), separate=True)


@shipped(
    "mobilenet-qlinear",
    "images",
    "torchscript 13 + quantize_static, QOperator",
    feed=pictures,
    sizes=MOBILENET,
    small=SMALL_MOBILENET,
    tolerance=0.1,
)
def quantized_by_ops(small: bool) -> ModelProto:
    """MobileNetV2 of QLinearConv."""
    return quantized_statically(classifier(small), _calibration(), separate=False)


class Reader(nn.Module):
    """CRNN: convolutions over a line of text, LSTMs in both directions along it, characters."""

    def __init__(self, width: int, characters: int) -> None:
        super().__init__()
        a, b, c, d = (width * 2**k for k in range(4))
        self.features = nn.Sequential(
            *self._layer(1, a), nn.MaxPool2d(2), *self._layer(a, b), nn.MaxPool2d(2),
            *self._layer(b, c, True), *self._layer(c, c), nn.MaxPool2d((2, 2), (2, 1), (0, 1)),
            *self._layer(c, d, True), *self._layer(d, d), nn.MaxPool2d((2, 2), (2, 1), (0, 1)),
            nn.Conv2d(d, d, 2), nn.BatchNorm2d(d), nn.ReLU(),
        )  # fmt: skip
        self.first = nn.LSTM(d, d // 2, bidirectional=True)
        self.between = nn.Linear(d, d // 2)
        self.second = nn.LSTM(d // 2, d // 2, bidirectional=True)
        self.characters = nn.Linear(d, characters)

    def _layer(self, inputs: int, outputs: int, norm: bool = False) -> list[nn.Module]:
        norms: list[nn.Module] = [nn.BatchNorm2d(outputs)] if norm else []
        return [nn.Conv2d(inputs, outputs, 3, padding=1), *norms, nn.ReLU()]

    def forward(self, lines: Tensor) -> Tensor:
        """The logarithms of probabilities [columns, batch, characters]."""
        columns = self.features(lines).squeeze(2).permute(2, 0, 1)
        read, _ = self.first(columns)
        read, _ = self.second(self.between(read))
        return F.log_softmax(self.characters(read), 2)


def lines(sizes: Sizes, generator: np.random.Generator) -> Feed:
    """Lines of text, grey and 32 high."""
    return {"lines": normal(generator, sizes["batch"], 1, 32, sizes["width"])}


READER_SIZES = {"batch": 1, "width": 320}
SMALL_READER = {"batch": 2, "width": 64}


@shipped("crnn", "images", "torchscript 14", feed=lines, sizes=READER_SIZES, small=SMALL_READER)
def reader(small: bool) -> ModelProto:
    """CRNN with a free batch and width."""
    model = calibrated(Reader(4 if small else 32, 96), torch.randn(4, 1, 32, 64))
    free = {0: "batch", 3: "width"}
    axes = {"lines": free, "characters": {0: "columns", 1: "batch"}}
    example = (torch.randn(2, 1, 32, 48),)
    return by_torchscript(model, example, ["lines"], ["characters"], axes, 14)


@shipped(
    "crnn-int8",
    "images",
    "torchscript 14 + quantize_dynamic",
    feed=lines,
    sizes=READER_SIZES,
    small=SMALL_READER,
    tolerance=0.1,
)
def quantized_reader(small: bool) -> ModelProto:
    """CRNN with weights of bytes: ConvInteger, DynamicQuantizeLSTM, MatMulInteger."""
    return quantized_dynamically(reader(small))
