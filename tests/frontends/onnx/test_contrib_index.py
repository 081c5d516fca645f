"""Ops of ``com.microsoft`` that move, count and look up elements, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph.errors import MonographError
from monograph.frontends.onnx import from_onnx
from monograph.ir.interpret import interpret
from tests.frontends.onnx.ort import compare, one_node


def draw(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng((seed, *shape)).normal(size=shape).astype(np.float32)


def contrib(op: str, operands: list[Any], outputs: int = 1, **options: Any) -> None:
    compare(op, operands, outputs, domain="com.microsoft", **options)


def i32(*items: int) -> Any:
    return np.array(items, np.int32)


@pytest.mark.parametrize("constant", [(), (0, 1, 2)])
def test_ops_that_onnx_took_over(constant: tuple[int, ...]) -> None:
    known = [each for each in constant if each]
    contrib("Trilu", [draw(3, 4), np.array(1)], constant=known)
    contrib("Trilu", [draw(3, 4)], upper=0)
    contrib("GatherND", [draw(2, 3), np.array([[0, 1]])], constant=known)
    contrib("Range", [np.array(0), np.array(9), np.array(2)], constant=constant)
    contrib("Pad", [draw(2, 3), np.array([0, 1, 0, 1]), np.float32(2)], constant=known)


def test_a_range_without_a_step_and_a_pad_by_a_matrix() -> None:
    contrib("Range", [np.float32([1]), np.float32([4])], constant=[0, 1])
    contrib("Pad", [draw(2, 3), np.array([[0, 1, 0, 1]])], constant=[1])


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("corners", [0, 1])
def test_grid_sample(mode: str, corners: int) -> None:
    operands = [draw(1, 2, 4, 5), draw(1, 3, 3, 2)]
    contrib("GridSample", operands, mode=mode, align_corners=corners, atol=1e-5)


def test_small_ops() -> None:
    contrib("SampleOp", [draw(2, 3)])
    contrib("ExpandDims", [draw(2, 3), i32(1)], constant=[1])
    contrib("ExpandDims", [draw(2, 3), i32(-1)], constant=[1])
    contrib("Inverse", [draw(2, 3, 3)], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_distances(metric: str) -> None:
    contrib("CDist", [draw(3, 4), draw(5, 4)], metric=metric, rtol=1e-4)


def test_unfold() -> None:
    contrib("UnfoldTensor", [draw(2, 7, 3)], dim=1, size=3, step=2)
    contrib("UnfoldTensor", [draw(7)], size=3)


@pytest.mark.parametrize("constant", [(), (0,)])
def test_unique_keeps_the_order(constant: tuple[int, ...]) -> None:
    contrib("Unique", [np.float32([2, 1, 1, 3, 4, 3])], 3, constant=constant)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_repeated_n_grams_are_blocked(size: int) -> None:
    tokens = np.array([[1, 2, 3, 1, 2], [4, 5, 4, 5, 4], [1, 2, 3, 4, 5]])
    contrib("NGramRepeatBlock", [tokens, draw(3, 8)], ngram_size=size)


@pytest.mark.parametrize("seed", range(6))
def test_bifurcations(seed: int) -> None:
    generator = np.random.default_rng(seed)
    source, tokens = generator.integers(0, 4, 8), generator.integers(0, 4, 3)
    contrib("BifurcationDetector", [source, tokens, np.array([0])], 2)
    predicted = np.append(source, 1)
    predicted[seed % 8 :] += 1
    contrib("BifurcationDetector", [source, tokens, np.array([0]), predicted], 2)


@pytest.mark.parametrize("shape", [(5, 7), (1, 6, 4), (1, 1), (9, 2)])
def test_the_cheapest_path(shape: tuple[int, ...]) -> None:
    contrib("DynamicTimeWarping", [np.abs(draw(*shape))])


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64", "float32", "float64"])
@pytest.mark.parametrize("options", [{}, {"seed": 5}, {"positive": 0}])
def test_hashes(dtype: str, options: dict[str, int]) -> None:
    numbers = np.array([1, 5, 7, 123456789]).astype(dtype)
    contrib("MurmurHash3", [numbers], **options)
    if not dtype.startswith("u"):
        contrib("MurmurHash3", [-numbers], **options)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("sign", [1, -1])
def test_hashes_of_n_grams(dtype: str, sign: int) -> None:
    tokens = np.array([[5, 3, 9, 2], [1, 7, 7, 4]], dtype)
    factors, sizes = np.array([31, 17, 101], dtype) * sign, np.array([7, 11, 13, 17], dtype)
    options = {"pad_id": 2, "n_head_per_ngram": 2, "max_ngram_size": 3}
    contrib("NGramHashMapping", [tokens, factors, sizes], 2, **options)
    past, offsets = np.array([[8, 6], [0, 5]], dtype), np.array([0, 7, 18, 31], dtype)
    contrib("NGramHashMapping", [tokens, factors, sizes, past, offsets], 2, **options)


def test_hashes_compile() -> None:
    numbers = np.array([1, -5, 2**40])
    model, feeds = one_node("MurmurHash3", [numbers], domain="com.microsoft")
    graph = from_onnx(model)
    (found,) = monograph.compile(graph)(numbers)
    np.testing.assert_array_equal(found, interpret(graph, feeds)[0])


def test_hashes_of_strings_are_refused() -> None:
    model, _ = one_node("MurmurHash3", [np.array(["a"], object)], domain="com.microsoft")
    with pytest.raises(MonographError, match="only numbers of 32 and 64 bits"):
        from_onnx(model)


# Images and words.


def test_pools_with_channels_last() -> None:
    window = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}
    for dtype in ("uint8", "int8"):
        image = np.random.default_rng(0).integers(0, 127, (1, 6, 6, 2)).astype(dtype)
        contrib("NhwcMaxPool", [image], **window)
        contrib("NhwcMaxPool", [image], kernel_shape=[2, 2], dilations=[2, 2])


@pytest.mark.parametrize("constant", [(), (2,)])
def test_transposed_convolutions_with_padding_as_operand(constant: tuple[int, ...]) -> None:
    operands = [draw(1, 2, 4, 4), draw(2, 3, 3, 3), np.array([1, 0, 0, 1]), draw(3)]
    options: dict[str, Any] = {"strides": [2, 2], "rtol": 1e-4, "atol": 1e-5}
    contrib("ConvTransposeWithDynamicPads", operands, constant=constant, **options)
    contrib("ConvTransposeWithDynamicPads", operands[:3], constant=constant, **options)


BOXES = np.float32([[0, 0, 1, 1], [0.2, 0.1, 0.7, 1.2], [0.9, 0.1, 0.3, 0.5], [-0.1, 0, 0.5, 1]])


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", [(3, 4), (1, 4), (5, 1)])
@pytest.mark.parametrize("constant", [(), (3,)])
def test_crop_and_resize(mode: str, size: tuple[int, int], constant: tuple[int, ...]) -> None:
    operands = [draw(2, 3, 6, 5), BOXES, i32(0, 1, 1, 0), i32(*size)]
    options: dict[str, Any] = {"mode": mode, "extrapolation_value": 2.0, "atol": 1e-5}
    contrib("CropAndResize", operands, constant=constant, **options)


def test_embeddings_of_words_by_their_characters() -> None:
    words = i32(1, 2, 3, 0, 0, 4, 0, 0, 0, 0, 1, 2, 3, 4, 5).reshape(3, 5)
    contrib("WordConvEmbedding", [words, draw(6, 1, 2, 3), draw(6), draw(7, 3)], atol=1e-5)
