"""Reductions, indexing, borders, resizing and signals against ONNX Runtime, beyond ONNX's suite."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from monograph.errors import MonographError
from monograph.frontends.onnx import from_onnx
from monograph.ir.interpret import interpret
from tests.frontends.onnx.ort import compare, one_node, op_names, run_ort

REDUCTIONS = (
    "Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare",
)  # fmt: skip


def draw(*shape: int, seed: int = 0) -> Any:
    generator = np.random.default_rng((seed, *shape))
    return generator.normal(size=shape).astype(np.float32)


def symbolic(op: str, operands: list[Any], opset: int, **attributes: Any) -> tuple[Any, list[str]]:
    """The result of a node whose operands, unless they are constants (lists), have free shapes."""
    names = [f"x{index}" for index in range(len(operands))]
    fixed = [position for position, each in enumerate(operands) if isinstance(each, list)]
    arrays = [np.array(each) if isinstance(each, list) else each for each in operands]
    model, feeds = one_node(op, arrays, onnx=opset, constant=fixed, **attributes)
    for value in model.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            dim.dim_param = f"{value.name}_{axis}"
    expected = run_ort(model, feeds)
    graph = from_onnx(model)
    (found,) = interpret(graph, feeds)
    np.testing.assert_allclose(found, expected[0], rtol=1e-5, atol=1e-5)
    assert found.dtype == expected[0].dtype, names
    return graph, op_names(graph)


# Reductions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
def test_reductions_with_axes_as_attribute_and_as_operand(name: str, dtype: str) -> None:
    x = np.random.default_rng(0).integers(1, 9, (2, 3, 4)).astype(dtype)
    # ONNX Runtime cuts off each exponential of an integer, not only their logarithm.
    steps = 1 if name == "LogSumExp" else 0
    compare(f"Reduce{name}", [x], onnx=11, axes=[1, -1], keepdims=0, steps=steps)
    compare(f"Reduce{name}", [x, np.array([0, -1])], onnx=18, constant=[1], steps=steps)
    compare(f"Reduce{name}", [x, np.array([], np.int64)], onnx=18, noop_with_empty_axes=1)


def test_axes_that_only_the_run_knows() -> None:
    _, names = symbolic("ReduceSum", [draw(2, 3, 4), np.array([0, 2])], 13)
    assert names == ["onnx.deferred"]


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
def test_the_first_or_last_of_equal_elements(op: str, last: int) -> None:
    x = np.round(draw(3, 5))
    symbolic(op, [x], 13, axis=-1, keepdims=0, select_last_index=last)


# Indexing -----------------------------------------------------------------------------------------


def test_one_hot_values_that_only_the_run_knows() -> None:
    indices, values = np.array([[1, -1, 5], [0, 2, 7]]), np.array([2, 7], np.float32)
    symbolic("OneHot", [indices, [4], values], 11, axis=1)


def test_top_k_of_a_number_that_only_the_run_knows() -> None:
    model, feeds = one_node("TopK", [draw(3, 6), np.array([2])], 2, axis=1, largest=0)
    for got, want in zip(interpret(from_onnx(model), feeds), run_ort(model, feeds), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("ordered", [0, 1])
def test_unique_elements_and_slices(axis: int | None, ordered: int) -> None:
    x = np.random.default_rng(0).integers(0, 3, (5, 2)).astype(np.float32)
    options = {} if axis is None else {"axis": axis}
    compare("Unique", [x], 4, sorted=ordered, **options)


def test_what_is_not_zero_has_a_size_of_its_own_unless_it_is_known() -> None:
    x = np.round(draw(3, 4))
    unknown, _ = one_node("NonZero", [x])
    known, _ = one_node("NonZero", [x], constant=[0])
    assert not from_onnx(unknown).outputs[0].tensor.is_static
    assert from_onnx(known).outputs[0].shape == (2, np.count_nonzero(x))


def test_an_unknown_reduction_of_updates_is_refused() -> None:
    operands = [draw(3), np.array([[0]]), draw(1)]
    model, _ = one_node("ScatterND", operands, reduction="mean")
    with pytest.raises(MonographError, match="unknown reduction"):
        from_onnx(model)


# Borders ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("widths", [[0, 1, 2, 0, 1, 3], [0, -1, 1, 0, 0, -1]])
def test_borders_and_crops_of_free_shapes(mode: str, widths: list[int]) -> None:
    symbolic("Pad", [draw(2, 3, 4), widths], 19, mode=mode)
    symbolic("Pad", [draw(2, 3, 4), np.array(widths)], 19, mode=mode)


def test_going_round_more_than_once() -> None:
    compare("Pad", [draw(2, 3), np.array([0, 7, 0, 5])], onnx=19, constant=[1], mode="wrap")


def test_a_border_of_a_value_that_only_the_run_knows() -> None:
    symbolic("Pad", [draw(2, 3), [1, 0, 0, 2], np.array(3.5, np.float32)], 13)


def test_a_border_of_strings() -> None:
    words = np.array([["a", "b"]], object)
    model, feeds = one_node("Pad", [words, np.array([0, 1, 1, 0])], constant=[1], onnx=21)
    (found,) = interpret(from_onnx(model), feeds)
    assert found.tolist() == [["", "a", "b"], ["", "", ""]]


# Resizing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    "coordinates", ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
)
def test_resizing_free_shapes_by_scales_and_to_sizes(mode: str, coordinates: str) -> None:
    options = {"mode": mode, "coordinate_transformation_mode": coordinates}
    x, empty = draw(1, 2, 4, 5), np.zeros(0, np.float32)
    twice = np.array([1, 1, 2, 3], np.float32)
    symbolic_scales, feeds = one_node(
        "Resize", [x, empty, twice], onnx=13, constant=[1, 2], **options
    )
    graph = from_onnx(symbolic_scales)
    expected = run_ort(symbolic_scales, feeds)[0]
    np.testing.assert_allclose(interpret(graph, feeds)[0], expected, rtol=1e-4, atol=1e-5)
    assert op_names(graph) == ["resize"]
    sizes, feeds = one_node("Resize", [x, None, None, np.array([1, 2, 7, 3])], onnx=18, **options)
    expected = run_ort(sizes, feeds)[0]
    np.testing.assert_allclose(
        interpret(from_onnx(sizes), feeds)[0], expected, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialiasing_looks_at_every_element(mode: str) -> None:
    operands = [draw(1, 2, 9, 8), None, None, np.array([4, 3])]
    options = {"axes": [2, 3], "antialias": 1, "mode": mode, "onnx": 19, "constant": [3]}
    compare("Resize", operands, rtol=1e-4, atol=1e-4, **options)


def test_cropping_fills_what_is_outside() -> None:
    region = np.array([0, 0, 0.2, 0.3, 1, 1, 1.2, 0.8], np.float32)
    operands = [draw(1, 2, 4, 5), region, None, np.array([1, 2, 3, 3])]
    options = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}
    compare("Resize", operands, onnx=13, constant=[1, 3], mode="linear", **options)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_keeping_the_ratio_of_the_sides(policy: str) -> None:
    operands = [draw(1, 2, 4, 5), None, None, np.array([7, 9])]
    options = {"axes": [2, 3], "keep_aspect_ratio_policy": policy, "constant": [3]}
    compare("Resize", operands, onnx=19, mode="linear", **options)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [(1, 1, 2, 3), (1, 1, 0.6, 2)])
def test_resizing_before_it_had_coordinates(mode: str, scales: tuple[float, ...]) -> None:
    x, by = draw(1, 2, 4, 5), np.array(scales, np.float32)
    compare("Resize", [x, by], onnx=10, constant=[1], mode=mode)
    if min(scales) >= 1:
        compare("Upsample", [x, by], onnx=9, constant=[1], mode=mode)
        compare("Upsample", [x], onnx=7, mode=mode, scales=[float(each) for each in scales])


# Images and signals -------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("outside", ["zeros", "border", "reflection"])
def test_sampling_images_of_free_shapes(mode: str, outside: str) -> None:
    symbolic(
        "GridSample", [draw(2, 3, 4, 5), draw(2, 3, 3, 2)], 16, mode=mode, padding_mode=outside
    )


def test_regions_before_half_pixels() -> None:
    regions = np.array([[0, 0, 3, 3], [1, 1, 4, 3]], np.float32)
    operands = [draw(2, 3, 4, 5), regions, np.array([0, 1])]
    compare("RoiAlign", operands, onnx=10, output_height=2, output_width=3, sampling_ratio=2)


def test_boxes_with_limits_that_only_the_run_knows() -> None:
    boxes, scores = np.abs(draw(2, 6, 4)), np.abs(draw(2, 2, 6))
    compare("NonMaxSuppression", [boxes, scores, np.array([3]), np.array([0.4], np.float32)])


def test_a_cropped_or_padded_middle_of_free_shapes() -> None:
    node = helper.make_node("CenterCropPad", ["x", "s"], ["y"], axes=[0, 1])
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node], "g", [value("x", 1, ["a", "b"]), value("s", 7, [2])], [value("y", 1, ["c", "d"])]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    feeds = {"x": draw(3, 6), "s": np.array([6, 3])}
    (found,) = interpret(from_onnx(model), feeds)
    np.testing.assert_array_equal(found[1:4], feeds["x"][:, 1:4])
    assert found.shape == (6, 3) and not found[0].any() and not found[4:].any()


@pytest.mark.parametrize("onesided", [0, 1])
def test_short_time_spectra(onesided: int) -> None:
    window = np.hanning(16).astype(np.float32)
    operands = [draw(2, 64, 1), np.array(8), window]
    compare("STFT", operands, onnx=17, constant=[1], onesided=onesided, rtol=1e-4, atol=1e-4)
