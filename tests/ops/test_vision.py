"""What is special about images: beside torch and ONNX's reference, static and symbolic sizes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from monograph.errors import EvaluationError
from monograph.frontends.trace import trace
from monograph.ir.interpret import interpret
from monograph.ops import detection, patches, vision
from tests.ops.against_torch import agree, draw
from tests.ops.running import refuses, run

functional = torch.nn.functional


def onnx_reference(op_type: str, inputs: list[np.ndarray | None], **attributes: Any) -> np.ndarray:
    """What ONNX's own evaluator says of one node."""
    onnx = pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    names = [None if array is None else f"x{n}" for n, array in enumerate(inputs)]
    node = onnx.helper.make_node(op_type, [name or "" for name in names], ["y"], **attributes)
    declared = [
        onnx.helper.make_tensor_value_info(
            name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in zip(names, inputs, strict=True)
        if name is not None and array is not None
    ]
    result = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = onnx.helper.make_graph([node], "reference", declared, [result])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 22)])
    feed = {name: array for name, array in zip(names, inputs, strict=True) if name is not None}
    return ReferenceEvaluator(model).run(None, feed)[0]


# Sampling.


@pytest.mark.parametrize("outside", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_grid_sample_with_symbolic_sizes(mode: Any, outside: Any) -> None:
    names = {"linear": "bilinear", "cubic": "bicubic"}
    agree(
        lambda x, grid: vision.grid_sample(x, grid, mode, outside),
        lambda x, grid: functional.grid_sample(x, grid, names[mode], outside, False),
        draw(2, 3, 4, 5),
        draw(2, 3, 2, 2, seed=1),
        types=["f64[b, c, h, w]", "f64[b, p, q, 2]"],
    )


def test_grid_sample_in_one_dimension_and_of_integers() -> None:
    x = np.arange(4, dtype=np.int32).reshape(1, 1, 4)
    grid = np.array([-1.0, -0.5, 0.2, 1.0], np.float32).reshape(1, 4, 1)
    got = run(lambda x, g: vision.grid_sample(x, g, "nearest", "border"), x, grid)
    np.testing.assert_array_equal(got, [[[0, 0, 2, 3]]])


@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("sizes", [(3, 4), (1, 5), (2, 3, 4)])
def test_affine_grid_as_torch(sizes: tuple[int, ...], align_corners: bool) -> None:
    theta = draw(2, len(sizes), len(sizes) + 1)
    agree(
        lambda t: vision.affine_grid(t, sizes, align_corners),
        lambda t: functional.affine_grid(t, [2, 1, *sizes], align_corners),
        theta,
    )


def test_a_symbolic_affine_grid() -> None:
    agree(
        lambda t, x: vision.affine_grid(t, x.shape[2:]) + x[:, :1, :, :, None][:, 0] * 0.0,
        lambda t, x: functional.affine_grid(t, list(x.shape), False) + x[:, 0, :, :, None] * 0.0,
        draw(2, 2, 3),
        draw(2, 3, 4, 5),
        types=["f64[b, 2, 3]", "f64[b, c, h, w]"],
    )


# Moving elements.


@pytest.mark.parametrize("types", [None, ["f64[n, 12, h, w]"]])
def test_pixel_shuffles_as_torch(types: Any) -> None:
    x = draw(2, 12, 4, 6)
    for ours, theirs, parameter, given in (
        (vision.pixel_shuffle, functional.pixel_shuffle, 2, types),
        (vision.channel_shuffle, functional.channel_shuffle, 3, types),
        (vision.pixel_unshuffle, functional.pixel_unshuffle, 2, None),
    ):
        agree(
            lambda x, f=ours, p=parameter: f(x, p),
            lambda x, f=theirs, p=parameter: f(x, p),
            x,
            types=given,
        )


@pytest.mark.parametrize(("mode", "depth_first"), [("DCR", True), ("CRD", False)])
def test_depth_to_space_and_back(mode: str, depth_first: bool) -> None:
    x = draw(1, 8, 2, 3).astype(np.float32)
    got = run(lambda x: vision.pixel_shuffle(x, 2, depth_first), x)
    np.testing.assert_array_equal(got, onnx_reference("DepthToSpace", [x], blocksize=2, mode=mode))
    back = run(lambda x: vision.pixel_unshuffle(x, 2, depth_first), got)
    np.testing.assert_array_equal(back, x)
    if depth_first:
        np.testing.assert_array_equal(back, onnx_reference("SpaceToDepth", [got], blocksize=2))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_unpooling_as_torch(rank: int) -> None:
    x = torch.tensor(draw(2, 3, *([6] * rank)))
    pool = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)[rank - 1]
    unpool = (functional.max_unpool1d, functional.max_unpool2d, functional.max_unpool3d)[rank - 1]
    values, indices = pool(x, 2, return_indices=True)
    places = indices.numpy()
    agree(
        lambda v: vision.max_unpool(v, places, [6] * rank),
        lambda v: unpool(v, indices, 2),
        values.numpy(),
    )


def test_unpooling_to_nowhere() -> None:
    with pytest.raises(EvaluationError, match="index 9 is outside"):
        run(lambda v: vision.max_unpool(v, np.array([[0, 9]]), [4]), draw(1, 2))


# Patches.


CASES = [
    {"kernel": (2, 3)},
    {"kernel": (2, 2), "stride": 2, "padding": 1},
    {"kernel": (2, 3), "stride": (2, 3)},
    {"kernel": (1, 7), "stride": (1, 7), "dilation": (2, 1)},
    {"kernel": (2, 2), "stride": 3},
    {"kernel": (3, 2), "stride": (1, 2), "padding": (2, 0), "dilation": (2, 1)},
]


@pytest.mark.parametrize("types", [None, ["f64[n, c, h, w]"]])
@pytest.mark.parametrize("case", CASES)
def test_unfold_and_fold_as_torch(case: dict[str, Any], types: Any) -> None:
    options = {key: value for key, value in case.items() if key != "kernel"}
    x = draw(2, 3, 6, 7)
    agree(
        lambda x: patches.unfold(x, **case),
        lambda x: functional.unfold(x, case["kernel"], **options),
        x,
        types=types,
    )
    columns = functional.unfold(torch.tensor(x), case["kernel"], **options).numpy()
    agree(
        lambda x: patches.fold(x, (6, 7), **case),
        lambda x: functional.fold(x, (6, 7), case["kernel"], **options),
        columns,
    )


def test_fold_with_uneven_padding_in_three_dimensions() -> None:
    x = draw(1, 2 * 2 * 2 * 2, 4 * 2 * 3).astype(np.float32)
    expected = onnx_reference(
        "Col2Im",
        [x, np.array([4, 3, 4]), np.array([2, 2, 2])],
        pads=[1, 0, 0, 0, 0, 0],
    )
    got = run(lambda x: patches.fold(x, (4, 3, 4), (2, 2, 2), 1, ((1, 0), (0, 0), (0, 0))), x)
    np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("groups", "offset_groups", "options"),
    [
        (1, 1, {}),
        (2, 1, {"stride": (2, 1)}),
        (1, 2, {"padding": 1, "dilation": (1, 2)}),
        (2, 2, {"padding": ((1, 0), (0, 1))}),
    ],
)
def test_deformable_convolution(groups: int, offset_groups: int, options: dict[str, Any]) -> None:
    x, kernel = draw(2, 4, 5, 6), draw(6, 4 // groups, 2, 2, seed=1)
    padding, stride = options.get("padding", 0), options.get("stride", (1, 1))
    pairs = ((padding,) * 2,) * 2 if isinstance(padding, int) else padding
    dilation = options.get("dilation", (1, 1))
    output = [
        (size + sum(pair) - apart - 1) // step + 1
        for size, pair, apart, step in zip((5, 6), pairs, dilation, stride, strict=True)
    ]
    offset = draw(2, offset_groups * 8, *output, seed=2) * 0.7
    mask = draw(2, offset_groups * 4, *output, seed=3)
    bias = draw(6, seed=4)
    expected = onnx_reference(
        "DeformConv",
        [x, kernel, offset, bias, mask],
        group=groups,
        offset_group=offset_groups,
        strides=list(stride),
        dilations=list(dilation),
        pads=[pairs[0][0], pairs[1][0], pairs[0][1], pairs[1][1]],
    )

    def ours(*operands: Any) -> Any:
        return patches.deform_conv(*operands, groups=groups, offset_groups=offset_groups, **options)

    np.testing.assert_allclose(run(ours, x, kernel, offset, bias, mask), expected, atol=1e-5)


def test_deformable_convolution_without_moves_is_convolution() -> None:
    x, kernel, offset = draw(2, 3, 5, 6), draw(4, 3, 3, 3, seed=1), np.zeros((2, 18, 5, 6))
    got = run(lambda x, w, o: patches.deform_conv(x, w, o, padding=1), x, kernel, offset)
    expected = functional.conv2d(torch.tensor(x), torch.tensor(kernel), padding=1)
    np.testing.assert_allclose(got, expected.numpy(), atol=1e-12)


# Regions.


REGIONS = np.array([[0, 0, 7, 5], [1.5, 2, 9, 7], [3, 3, 3.1, 3.5], [-3, -2, 3, 9]], np.float32)


@pytest.mark.parametrize("sampling", [0, 2])
@pytest.mark.parametrize("half_pixel", [False, True])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_as_onnx(mode: Any, half_pixel: bool, sampling: int) -> None:
    x, images = draw(2, 3, 8, 6).astype(np.float32), np.array([0, 1, 1, 0])
    expected = onnx_reference(
        "RoiAlign",
        [x, REGIONS, images],
        output_height=2,
        output_width=3,
        sampling_ratio=sampling,
        spatial_scale=0.75,
        mode=mode,
        coordinate_transformation_mode="half_pixel" if half_pixel else "output_half_pixel",
    )
    made = detection.RoiAlign((2, 3), sampling, 0.75, mode, half_pixel)
    np.testing.assert_allclose(run(made, x, REGIONS, images), expected, rtol=1e-4, atol=1e-5)


def test_a_region_of_no_image() -> None:
    with pytest.raises(EvaluationError, match="an image that is not there"):
        run(
            detection.RoiAlign((1, 1)),
            draw(1, 1, 2, 2).astype(np.float32),
            REGIONS[:1],
            np.array([1]),
        )


@pytest.mark.parametrize("centered", [False, True])
def test_suppression_as_onnx(centered: bool) -> None:
    generator = np.random.default_rng(0)
    boxes = generator.uniform(0, 4, (2, 12, 4)).astype(np.float32)
    scores = generator.uniform(0, 1, (2, 3, 12)).astype(np.float32)
    scores[0, 0, :4] = 0.5
    for most, overlap, least in itertools.product((2, 12), (0.1, 0.5), (0.0, 0.4)):
        limits = (np.array([most]), np.float32([overlap]), np.float32([least]))
        expected = onnx_reference(
            "NonMaxSuppression", [boxes, scores, *limits], center_point_box=int(centered)
        )

        def ours(
            boxes: Any, scores: Any, most: int = most, o: float = overlap, s: float = least
        ) -> Any:
            return detection.non_max_suppression(boxes, scores, most, o, s, centered)

        np.testing.assert_array_equal(run(ours, boxes, scores), expected)


def test_the_number_of_boxes_is_a_symbol() -> None:
    graph = trace(
        lambda b, s: detection.non_max_suppression(b, s, 9, 0.5), "f32[1, n, 4]", "f32[1, 2, n]"
    )
    assert [str(dim) for dim in graph.outputs[0].shape] == ["selected", "3"]
    boxes = np.array([[[0, 0, 1, 1], [5, 5, 6, 6]]], np.float32)
    (rows,) = interpret(graph, [boxes, np.ones((1, 2, 2), np.float32)])
    assert rows.tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1]]


def test_type_rules() -> None:
    sample = vision.grid_sample
    refuses("the ranks do not fit", sample, "f32[1, 2, 3]", "f32[1, 2, 3, 2]")
    refuses("the batches differ", sample, "f32[1, 2, 3, 3]", "f32[2, 3, 3, 2]")
    refuses("grid's dimensions differ", sample, "f32[1, 2, 3, 3]", "f32[1, 3, 3, 3]")
    refuses("nothing to sample", sample, "f32[1, 2, 0, 3]", "f32[1, 3, 3, 2]")
    refuses("floats are needed", sample, "i32[1, 2, 3, 3]", "f32[1, 3, 3, 2]")
    refuses("no such mode", vision.GridSample("area"), "f32[1, 2, 3, 3]", "f32[1, 3, 3, 2]")  # type: ignore[arg-type]
    refuses("no such way", vision.GridSample("linear", "wrap"), "f32[1, 1, 3]", "f32[1, 3, 1]")  # type: ignore[arg-type]
    refuses("the map does not fit", lambda t: vision.affine_grid(t, (3, 4)), "f32[2, 3, 4]")
    refuses("do not split evenly", lambda x: vision.pixel_shuffle(x, 2), "f32[3, 2, 2]")
    refuses("do not split evenly", lambda x: vision.pixel_unshuffle(x, 2), "f32[3, 3, 2]")
    refuses("an image is needed", lambda x: vision.pixel_shuffle(x, 2), "f32[4, 2]")
    refuses("do not split evenly", lambda x: vision.channel_shuffle(x, 4), "f32[1, 6]")
    refuses("an image is needed", lambda x: patches.unfold(x, (2, 2)), "f32[3, 4, 5]")
    refuses("larger than the padded", lambda x: patches.unfold(x, (9,)), "f32[3, 4, 5]")
    refuses("numbers of windows", lambda x: patches.fold(x, (4,), (2,)), "f32[3, 4, 5]")
    refuses("channels times kernel", lambda x: patches.fold(x, (6,), (2,)), "f32[3, 5, 5]")
    refuses("columns are needed", lambda x: patches.fold(x, (6,), (2,)), "f32[5, 5]")
    refuses("operands do not fit", patches.deform_conv, "f32[1, 1, 3]", "f32[1, 1]", "f32[1, 1, 3]")
    align = detection.RoiAlign
    operands = ("f32[1, 1, 3, 3]", "f32[n, 4]", "i64[n]")
    refuses("wrong sizes", align((0, 2)), *operands)
    refuses("an attribute is wrong", align((1, 2), -1), *operands)
    refuses("operands do not fit", align((1, 2)), "f32[1, 3, 3]", *operands[1:])
    refuses("coordinates of a region", align((1, 2)), operands[0], "f32[n, 5]", operands[2])
    refuses("the regions differ", align((1, 2)), operands[0], "f32[3, 4]", "i64[2]")
    suppress = detection.non_max_suppression
    limits = ("i64[]", "f32[]", "f32[]")
    refuses("the batches differ", suppress, "f32[1, 2, 4]", "f32[2, 1, 2]", *limits)
    refuses("boxes and scores differ", suppress, "f32[1, 2, 4]", "f32[1, 1, 3]", *limits)
    refuses("not scalars", suppress, "f32[1, 2, 4]", "f32[1, 1, 2]", "i64[1]", *limits[1:])
