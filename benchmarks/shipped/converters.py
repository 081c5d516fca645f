"""Graphs in the manner of TensorFlow's and Paddle's converters, written by hand.

The classifier keeps channels last, as tf2onnx leaves them: every convolution stands between
transposes, norms are products and sums, and the last reshape computes its shape from the input's.
The text detector is Paddle's: activations in four nodes, biases added after reshapes, feature maps
enlarged to the size of others that is computed by Shape, Slice and Concat.
"""

from __future__ import annotations

import numpy as np
from onnx import ModelProto

from benchmarks.shipped.model import Feed, Sizes, normal, shipped
from benchmarks.shipped.writer import Writer

TO_CHANNELS_FIRST, TO_CHANNELS_LAST = [0, 3, 1, 2], [0, 2, 3, 1]


def _images_channels_last(sizes: Sizes, generator: np.random.Generator) -> Feed:
    shape = sizes["unk__1"], sizes["side"], sizes["side"], 3
    return {"input_1:0": normal(generator, *shape)}


class TensorFlowWriter(Writer):
    """Layers whose activations have channels last."""

    def conv(self, x: str, inputs: int, outputs: int, size: int, stride: int, groups: int) -> str:
        """A convolution padded as TensorFlow's SAME pads even sizes: more at the end."""
        x = self.op("Transpose", x, perm=TO_CHANNELS_FIRST)
        before, after = ((size - 1) // 2, size // 2) if stride == 1 else (0, size - 2)
        pads = [max(0, each) for each in (before, before, after, after)]
        weight = self.drawn(outputs, inputs // groups, size, size, gain=1.4)
        window = {"kernel_shape": [size, size], "strides": [stride, stride], "pads": pads}
        x = self.op("Conv", x, weight, group=groups, **window)
        return self.op("Transpose", x, perm=TO_CHANNELS_LAST)

    def norm(self, x: str, channels: int) -> str:
        """A batch norm, folded into a product and a sum."""
        x = self.op("Mul", x, self.around(channels, 1.0, 0.2))
        return self.op("Add", x, self.around(channels, 0.0, 0.2))

    def relu6(self, x: str) -> str:
        """Between zero and six."""
        low, high = self.constant(0.0, np.float32), self.constant(6.0, np.float32)
        return self.op("Min", self.op("Max", x, low), high)

    def block(self, x: str, inputs: int, outputs: int, stride: int) -> str:
        """Depthwise and pointwise, with a residual where shapes allow one."""
        y = self.relu6(self.norm(self.conv(x, inputs, inputs, 3, stride, inputs), inputs))
        y = self.norm(self.conv(y, inputs, outputs, 1, 1, 1), outputs)
        return self.op("Add", x, y) if stride == 1 and inputs == outputs else self.relu6(y)

    def flat(self, x: str, channels: int) -> str:
        """[batch, 1, 1, channels] to [batch, channels], with a shape that the graph computes."""
        sizes = self.op("Cast", self.op("Shape", x), to=6)
        bounds = [self.constant([each]) for each in (0, 1, 0)]
        batch = self.op("Slice", sizes, *bounds)
        shape = self.op("Concat", batch, self.constant([channels], np.int32), axis=0)
        return self.op("Reshape", x, self.op("Cast", shape, to=7))


@shipped(
    "mobilenet-tf",
    "images",
    "by hand, as tf2onnx 13",
    feed=_images_channels_last,
    sizes={"unk__1": 1, "side": 224},
    small={"unk__1": 2, "side": 32},
)
def classifier(small: bool) -> ModelProto:
    """MobileNetV1 of channels last, with a free batch and free sides."""
    writer = TensorFlowWriter("tf2onnx", 13, "tf2onnx")
    x = writer.input("input_1:0", ["unk__1", "unk__2", "unk__3", 3])
    width, depth = (8, 1) if small else (32, 5)
    x = writer.relu6(writer.norm(writer.conv(x, 3, width, 3, 2, 1), width))
    channels = width
    for outputs, stride in ((2, 1), (4, 2), (4, 1), (8, 2), (8, 1), (16, 2), *[(16, 1)] * depth):
        x = writer.block(x, channels, outputs * width, stride)
        channels = outputs * width
    x = writer.op("ReduceMean", x, axes=[1, 2], keepdims=1)
    x = writer.flat(x, channels)
    x = writer.op("MatMul", x, writer.drawn(channels, 100))
    x = writer.op("Softmax", writer.op("Add", x, writer.around(100, 0.0, 0.1)), axis=-1)
    writer.output(x, "predictions", ["unk__1", 100])
    return writer.finished()


def _pages(sizes: Sizes, generator: np.random.Generator) -> Feed:
    return {"x": normal(generator, sizes["batch"], 3, sizes["height"], sizes["width"])}


class PaddleWriter(Writer):
    """Layers as Paddle's converter spells them at opset 11."""

    def conv(
        self, x: str, inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1
    ) -> str:
        """A convolution and a batch norm in a node of its own."""
        weight = self.drawn(outputs, inputs // groups, size, size, gain=1.4)
        pads = [size // 2] * 4
        window = {"kernel_shape": [size, size], "strides": [stride, stride], "pads": pads}
        x = self.op("Conv", x, weight, group=groups, dilations=[1, 1], **window)
        return self.norm(x, outputs)

    def norm(self, x: str, channels: int) -> str:
        """A batch norm."""
        parts = [self.around(channels, centre, 0.2) for centre in (1.0, 0.0, 0.0, 1.0)]
        return self.op("BatchNormalization", x, *parts, epsilon=1e-5, momentum=0.9)

    def hard_swish(self, x: str) -> str:
        """Spelt: x · clip(x + 3, 0, 6) / 6."""
        three, six = (self.constant([each], np.float32) for each in (3.0, 6.0))
        limits = self.constant(0.0, np.float32), self.constant(6.0, np.float32)
        gate = self.op("Clip", self.op("Add", x, three), *limits)
        return self.op("Div", self.op("Mul", x, gate), six)

    def gate(self, x: str, channels: int) -> str:
        """Squeeze and excitation; biases are added after a reshape."""
        hidden = max(4, channels // 4)
        y = self.op("GlobalAveragePool", x)
        y = self.op("Relu", self.biased(y, channels, hidden))
        y = self.op("HardSigmoid", self.biased(y, hidden, channels), alpha=0.2, beta=0.5)
        return self.op("Mul", x, y)

    def biased(self, x: str, inputs: int, outputs: int) -> str:
        """A 1×1 convolution and its bias."""
        window = {"kernel_shape": [1, 1], "strides": [1, 1], "pads": [0, 0, 0, 0]}
        x = self.op("Conv", x, self.drawn(outputs, inputs, 1, 1), **window)
        return self._add_bias(x, outputs)

    def _add_bias(self, x: str, channels: int) -> str:
        shape = self.constant([1, channels, 1, 1])
        return self.op("Add", x, self.op("Reshape", self.around(channels, 0.0, 0.1), shape))

    def block(self, x: str, inputs: int, outputs: int, stride: int, gated: bool) -> str:
        """MobileNetV3's block."""
        hidden = 3 * inputs
        y = self.hard_swish(self.conv(x, inputs, hidden, 1))
        y = self.hard_swish(self.conv(y, hidden, hidden, 5 if gated else 3, stride, hidden))
        y = self.gate(y, hidden) if gated else y
        y = self.conv(y, hidden, outputs, 1)
        return self.op("Add", x, y) if stride == 1 and inputs == outputs else y

    def enlarged(self, x: str, like: str) -> str:
        """To the height and width of another, which the graph looks up."""
        ends = self.op("Slice", self.op("Shape", like), self.constant([2]), self.constant([4]))
        start = self.op("Slice", self.op("Shape", x), self.constant([0]), self.constant([2]))
        sizes = self.op("Concat", start, ends, axis=0)
        none = self.constant([], np.float32)
        how = {"mode": "nearest", "nearest_mode": "floor"}
        asymmetric = "asymmetric"
        return self.op(
            "Resize", x, none, none, sizes, coordinate_transformation_mode=asymmetric, **how
        )

    def doubled(self, x: str, inputs: int, outputs: int) -> str:
        """A transposed convolution of stride 2, and its bias."""
        weight = self.drawn(inputs, outputs, 2, 2)
        x = self.op("ConvTranspose", x, weight, kernel_shape=[2, 2], strides=[2, 2])
        return self._add_bias(x, outputs)


@shipped(
    "text-detector",
    "images",
    "by hand, as paddle2onnx 11",
    feed=_pages,
    sizes={"batch": 1, "height": 320, "width": 320},
    small={"batch": 1, "height": 64, "width": 96},
)
def text_detector(small: bool) -> ModelProto:
    """DB with a MobileNetV3 and a feature pyramid: the probability that a pixel is text."""
    writer = PaddleWriter("Model from PaddlePaddle.", 11, "PaddlePaddle")
    page = ["DynamicDimension.0", 3, "DynamicDimension.1", "DynamicDimension.2"]
    width = 4 if small else 16
    x = writer.hard_swish(writer.conv(writer.input("x", page), 3, width, 3, 2))
    levels, channels = [], width
    for number, factor in enumerate((1.5, 2.5, 4, 8)):
        outputs = int(factor * width)
        gated = number % 2 == 1
        x = writer.block(x, channels, outputs, 2, gated)
        x = writer.block(x, outputs, outputs, 1, gated)
        levels.append((x, outputs))
        channels = outputs
    writer.output(_probability(writer, levels, 4 * width), "sigmoid_0.tmp_0", _map())
    return writer.finished()


def _map() -> list[int | str | None]:
    return ["DynamicDimension.3", 1, "DynamicDimension.4", "DynamicDimension.5"]


def _probability(writer: PaddleWriter, levels: list[tuple[str, int]], channels: int) -> str:
    """The pyramid, joined at the finest level, and the head."""
    x, inputs = levels[-1]
    x = writer.biased(x, inputs, channels)
    merged = [x]
    for finer, inputs in reversed(levels[:-1]):
        beside = writer.biased(finer, inputs, channels)
        x = writer.op("Add", beside, writer.enlarged(x, beside))
        merged.append(x)
    quarter = channels // 4
    parts = [writer.conv(each, channels, quarter, 3) for each in merged]
    joined = [writer.enlarged(each, parts[-1]) for each in parts[:-1]]
    x = writer.op("Concat", *joined, parts[-1], axis=1)
    x = writer.op("Relu", writer.conv(x, channels, quarter, 3))
    x = writer.op("Relu", writer.norm(writer.doubled(x, quarter, quarter), quarter))
    return writer.op("Sigmoid", writer.doubled(x, quarter, 1))
