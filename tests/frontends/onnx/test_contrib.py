"""The ops of ``com.microsoft``, each against ONNX Runtime itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from monograph.errors import MonographError
from monograph.frontends.onnx import from_onnx
from monograph.ir.interpret import interpret
from tests.frontends.onnx.ort import compare, one_node, op_names, run_ort

BATCH, LENGTH, HEADS, DEPTH = 2, 5, 4, 16
HIDDEN = HEADS * DEPTH


def draw(*shape: int, seed: int = 0) -> Any:
    generator = np.random.default_rng((seed, *shape))
    return generator.normal(size=shape).astype(np.float32)


def whole(*shape: int, low: int, high: int, dtype: str, seed: int = 0) -> Any:
    return np.random.default_rng((seed, *shape)).integers(low, high, shape).astype(dtype)


def contrib(op: str, operands: list[Any], *args: Any, **options: Any) -> list[str]:
    """Compare a node of com.microsoft; the ops that it became."""
    return op_names(compare(op, operands, *args, domain="com.microsoft", **options))


# Norms, activations, products ---------------------------------------------------------------------


def test_skip_layer_normalization_is_a_layer_norm_of_a_sum() -> None:
    x, skip, scale, bias, added = (
        draw(2, 3, 8), draw(2, 3, 8, seed=1), draw(8), draw(8, seed=1), draw(8, seed=2)
    )  # fmt: skip
    made = contrib(
        "SkipLayerNormalization", [x, skip, scale, bias, added], (True, False, False, True)
    )
    assert "layer_norm" in made
    contrib("SkipLayerNormalization", [x, skip, scale], epsilon=1e-3)
    contrib("SkipLayerNormalization", [x, skip[:1], scale, bias])


def test_skip_simplified_layer_normalization_is_an_rms_norm_of_a_sum() -> None:
    operands = [draw(2, 3, 8), draw(2, 3, 8, seed=1), draw(8)]
    wanted = (True, False, False, True)
    assert "rms_norm" in contrib("SkipSimplifiedLayerNormalization", operands, wanted)
    contrib("SkipSimplifiedLayerNormalization", [*operands, draw(8, seed=2)], epsilon=1e-3)


def test_simplified_layer_normalization_has_two_results() -> None:
    model, feeds = one_node("SimplifiedLayerNormalization", [draw(2, 3, 8), draw(8)], 2, axis=-1)
    expected = run_ort(model, feeds)
    model.graph.node[0].domain = "com.microsoft"  # ONNX Runtime has it among ONNX's own
    graph = from_onnx(model)
    assert "rms_norm" in op_names(graph)
    for got, want in zip(interpret(graph, feeds), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("segments", [False, True])
def test_embed_layer_normalization(segments: bool) -> None:
    words = whole(2, 5, low=0, high=9, dtype="int32")
    kinds = whole(2, 5, low=0, high=2, dtype="int32") if segments else None
    table = draw(2, 8, seed=2) if segments else None
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    operands = [words, kinds, draw(9, 8), draw(6, 8, seed=1), table, draw(8), draw(8, seed=1), mask]
    contrib("EmbedLayerNormalization", operands, 2)
    positions = whole(2, 5, low=0, high=6, dtype="int32", seed=3)
    contrib("EmbedLayerNormalization", [*operands, positions], 3)


@pytest.mark.parametrize(
    ("op", "bias", "ours"),
    [
        ("Gelu", False, "gelu"),
        ("BiasGelu", True, "gelu"),
        ("FastGelu", False, "gelu"),
        ("FastGelu", True, "gelu"),
        ("QuickGelu", False, "sigmoid"),
    ],
)
def test_gelus(op: str, bias: bool, ours: str) -> None:
    assert ours in contrib(op, [draw(3, 8), *([draw(8)] if bias else [])])


@pytest.mark.parametrize("flags", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_fused_matmul_transposes_and_scales(flags: tuple[int, int]) -> None:
    a, b = draw(2, 3, 4), draw(2, 4, 5)
    operands = [a.swapaxes(1, 2) if flags[0] else a, b.swapaxes(1, 2) if flags[1] else b]
    operands = [np.ascontiguousarray(each) for each in operands]
    contrib("FusedMatMul", operands, transA=flags[0], transB=flags[1], alpha=0.5)


def test_fused_matmul_transposes_batches() -> None:
    a, b = draw(3, 2, 6, 4), draw(2, 6, 4, 5)
    contrib("FusedMatMul", [a, b], transBatchA=1, alpha=2.0)


def test_fused_gemm_ends_in_a_function() -> None:
    operands = [draw(3, 4), draw(5, 4), draw(5)]
    contrib("FusedGemm", operands, transB=1, activation="Relu")
    contrib("FusedGemm", operands, transB=1, activation="LeakyRelu", activation_alpha=0.1)


@pytest.mark.parametrize(
    ("activation", "parameters"),
    [("Relu", None), ("Tanh", None), ("Sigmoid", None), ("LeakyRelu", [0.2]), ("Clip", [-0.5, 0.5]),
     ("HardSigmoid", [0.3, 0.4])],
)  # fmt: skip
def test_fused_conv_ends_in_a_function(activation: str, parameters: list[float] | None) -> None:
    operands = [draw(1, 2, 6, 6), draw(4, 2, 3, 3), draw(4)]
    options = {} if parameters is None else {"activation_params": parameters}
    contrib("FusedConv", operands, activation=activation, pads=[1, 1, 1, 1], **options)


def test_fused_conv_adds_a_tensor() -> None:
    operands = [draw(1, 2, 6, 6), draw(4, 2, 3, 3), draw(4), draw(1, 4, 4, 4)]
    contrib("FusedConv", operands, activation="Relu")


def test_nhwc_conv_is_conv_with_channels_last() -> None:
    """ONNX Runtime has no kernel for it on a CPU; it is compared with Conv."""
    x, weight, bias = draw(1, 2, 6, 6), draw(4, 2, 3, 3), draw(4)
    model, feeds = one_node("Conv", [x, weight, bias], pads=[1, 1, 1, 1])
    (expected,) = run_ort(model, feeds)
    last = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    options = {"domain": "com.microsoft", "pads": [1, 1, 1, 1]}
    model, feeds = one_node("NhwcConv", [last, weight, bias], **options)
    (found,) = interpret(from_onnx(model), feeds)
    np.testing.assert_allclose(np.moveaxis(found, -1, 1), expected, rtol=1e-4, atol=1e-5)


# Attention ----------------------------------------------------------------------------------------


def projections() -> list[Any]:
    return [draw(BATCH, LENGTH, 16), draw(16, 3 * HIDDEN) * 0.3, draw(3 * HIDDEN)]


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("form", ["none", "lengths", "ends and starts", "keys", "queries"])
def test_attention_masks(form: str, causal: int) -> None:
    keys = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], np.int32)
    masks = {
        "none": None,
        "lengths": np.array([3, 5], np.int32),
        "ends and starts": np.array([5, 4, 1, 0], np.int32),
        "keys": keys,
        "queries": np.repeat(keys[:, None], LENGTH, 1),
    }
    operands = [*projections(), *([] if masks[form] is None else [masks[form]])]
    made = contrib("Attention", operands, num_heads=HEADS, unidirectional=causal)
    assert "attention" in made


@pytest.mark.parametrize("causal", [0, 1])
def test_attention_with_a_past(causal: int) -> None:
    past = draw(2, BATCH, HEADS, 3, DEPTH)
    mask = np.array([[1] * 8, [0] + [1] * 7], np.int32)
    options = {"num_heads": HEADS, "unidirectional": causal}
    contrib("Attention", [*projections(), mask, past], 2, **options)
    contrib("Attention", [*projections(), None, past], 2, **options)


def test_attention_with_a_bias() -> None:
    bias = draw(1, HEADS, LENGTH, LENGTH)
    contrib("Attention", [*projections(), None, None, bias], num_heads=HEADS)


def test_attention_of_other_sizes_and_scale() -> None:
    x = draw(BATCH, LENGTH, 16)
    weights, bias = draw(16, 2 * HIDDEN + 16) * 0.3, draw(2 * HIDDEN + 16)
    sizes = {"qkv_hidden_sizes": [HIDDEN, HIDDEN, 16], "scale": 0.2}
    contrib("Attention", [x, weights, bias], num_heads=HEADS, **sizes, atol=1e-5)


def test_quantized_attention() -> None:
    x = whole(BATCH, LENGTH, 16, low=0, high=255, dtype="uint8")
    weights = whole(16, 3 * HIDDEN, low=-63, high=63, dtype="int8")
    scales = [np.float32(0.02), np.float32(0.01)]
    points = [np.uint8(128), np.int8(1)]
    operands = [x, weights, draw(3 * HIDDEN), *scales, None, *points]
    contrib("QAttention", operands, num_heads=HEADS, atol=1e-5)


def separate(keys: int = LENGTH) -> list[Any]:
    shape = (BATCH, keys, HIDDEN)
    return [draw(BATCH, LENGTH, HIDDEN), draw(*shape, seed=1), draw(*shape, seed=2)]


@pytest.mark.parametrize("causal", [0, 1])
def test_multi_head_attention(causal: int) -> None:
    options = {"num_heads": HEADS, "unidirectional": causal}
    assert "attention" in contrib("MultiHeadAttention", separate(), **options)
    contrib("MultiHeadAttention", [*separate(), draw(3 * HIDDEN)], **options)


def test_multi_head_attention_to_another_sequence() -> None:
    mask = np.array([[1, 1, 1, 1, 0, 0, 0], [1] * 7], np.int32)
    contrib("MultiHeadAttention", [*separate(7), None, mask], num_heads=HEADS)
    query = draw(BATCH, LENGTH, HIDDEN)
    cached = [draw(BATCH, HEADS, 7, DEPTH, seed=seed) for seed in (1, 2)]
    contrib("MultiHeadAttention", [query, *cached], num_heads=HEADS)


def test_multi_head_attention_with_packed_operands() -> None:
    """ONNX Runtime unpacks on a GPU alone; here they are compared with separate operands."""
    query, key, value = (each.reshape(BATCH, LENGTH, HEADS, DEPTH) for each in separate())
    forms = [
        separate(),
        [separate()[0], np.stack([key, value], 3)],
        [np.stack([query, key, value], 3)],
    ]
    results = []
    for operands in forms:
        model, feeds = one_node(
            "MultiHeadAttention", operands, domain="com.microsoft", num_heads=HEADS
        )
        results.append(interpret(from_onnx(model), feeds)[0])
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


@pytest.mark.parametrize("causal", [0, 1])
def test_multi_head_attention_with_a_past(causal: int) -> None:
    past = [draw(BATCH, HEADS, 3, DEPTH, seed=seed) for seed in (5, 6)]
    bias = draw(1, HEADS, LENGTH, LENGTH + 3)
    options = {"num_heads": HEADS, "unidirectional": causal, "scale": 0.3}
    contrib("MultiHeadAttention", [*separate(), None, None, bias, *past], 3, **options)


def grouped(length: int, past: int, total: list[int], shared: int = 2, **more: Any) -> list[Any]:
    """Operands of GroupQueryAttention."""
    batch = len(total)
    query = draw(batch, length, HIDDEN)
    fresh = [draw(batch, length, shared * DEPTH, seed=seed) for seed in (1, 2)]
    caches = [draw(batch, shared, past, DEPTH, seed=seed) for seed in (3, 4)]
    lengths = np.array(total, np.int32) - 1
    angles = [np.cos(draw(32, DEPTH // 2)), np.sin(draw(32, DEPTH // 2))]
    rotary = angles if more.get("rotary") else [None, None]
    return [query, *fresh, *caches, lengths, np.array(max(total), np.int32), *rotary]


GROUPED = {"num_heads": HEADS, "kv_num_heads": 2}


@pytest.mark.parametrize("constant", [(), (6,)], ids=["deferred", "static"])
@pytest.mark.parametrize("rotary", [0, 1])
@pytest.mark.parametrize(
    ("length", "past", "total"),
    [(5, 0, [5, 5]), (5, 0, [5, 3]), (1, 4, [5]), (1, 4, [5, 5]), (1, 4, [5, 3]), (3, 4, [7])],
)
def test_group_query_attention(
    length: int, past: int, total: list[int], rotary: int, constant: tuple[int, ...]
) -> None:
    operands = grouped(length, past, total, rotary=rotary)
    model, feeds = one_node(
        "GroupQueryAttention", operands, 3, domain="com.microsoft", constant=constant,
        do_rotary=rotary, **GROUPED,
    )  # fmt: skip
    expected, found = run_ort(model, feeds), interpret(from_onnx(model), feeds)
    for example, end in enumerate(total):  # what lies beyond is left unset
        queries = slice(0, end if past == 0 else length)
        got, want = found[0][example, queries], expected[0][example, queries]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
        for cache, ours in zip(expected[1:], found[1:], strict=True):
            assert ours.shape == cache.shape
            got, want = ours[example, :, :end], cache[example, :, :end]
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def language_model() -> ModelProto:
    """GroupQueryAttention as exporters use it: lengths come from a mask, all sizes are symbols."""
    nodes = [
        helper.make_node("ReduceSum", ["mask", "axis"], ["counts"], keepdims=0),
        helper.make_node("Sub", ["counts", "one"], ["before"]),
        helper.make_node("Cast", ["before"], ["lengths"], to=TensorProto.INT32),
        helper.make_node("Shape", ["mask"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["size"]),
        helper.make_node("Cast", ["size"], ["total"], to=TensorProto.INT32),
        helper.make_node(
            "GroupQueryAttention",
            ["q", "k", "v", "past_k", "past_v", "lengths", "total", "cos", "sin"],
            ["y", "present_k", "present_v"],
            domain="com.microsoft", do_rotary=1, **GROUPED,
        ),
    ]  # fmt: skip
    shapes: dict[str, list[str | int]] = {
        "q": ["batch", "length", HIDDEN],
        "k": ["batch", "length", 2 * DEPTH],
        "v": ["batch", "length", 2 * DEPTH],
        "past_k": ["batch", 2, "past", DEPTH],
        "past_v": ["batch", 2, "past", DEPTH],
    }
    graph = helper.make_graph(
        nodes,
        "language",
        [
            helper.make_tensor_value_info("mask", TensorProto.INT64, ["batch", "total"]),
            *(helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()),
        ],
        [helper.make_empty_tensor_value_info(name) for name in ("y", "present_k", "present_v")],
        [
            numpy_helper.from_array(np.array([1], np.int64), "axis"),
            numpy_helper.from_array(np.array(1, np.int64), "one"),
            numpy_helper.from_array(np.cos(draw(32, DEPTH // 2)), "cos"),
            numpy_helper.from_array(np.sin(draw(32, DEPTH // 2)), "sin"),
        ],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def test_group_query_attention_of_symbolic_sizes() -> None:
    model = language_model()
    graph = from_onnx(model)
    assert "onnx.deferred" not in op_names(graph)
    for length, past, totals in ((1, 5, [6, 6]), (1, 5, [6, 4]), (3, 4, [7])):
        query, key, value, past_key, past_value, *_ = grouped(length, past, totals)
        longest = max(totals)
        mask = (np.arange(longest) < np.array(totals)[:, None]).astype(np.int64)
        feeds = {
            "mask": mask, "q": query, "k": key, "v": value,
            "past_k": past_key, "past_v": past_value,
        }  # fmt: skip
        expected, found = run_ort(model, feeds), interpret(graph, feeds)
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-5)
        for example, end in enumerate(totals):
            got, want = found[1][example, :, :end], expected[1][example, :, :end]
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"local_window_size": 2},
        {"softcap": 3.0},
        {"smooth_softmax": 1},
        {"scale": 0.2},
        {"softcap": 2.0, "smooth_softmax": 1, "local_window_size": 3},
    ],
)
def test_group_query_attention_options(options: dict[str, Any]) -> None:
    prompt = grouped(6, 0, [6, 6])
    contrib("GroupQueryAttention", prompt, 3, constant=(6,), **GROUPED, **options, atol=1e-5)
    later = grouped(1, 6, [7])
    contrib("GroupQueryAttention", later, 3, constant=(6,), **GROUPED, **options, atol=1e-5)


def test_group_query_attention_with_packed_operands_and_interleaved_angles() -> None:
    packed = [draw(2, 5, HIDDEN + 4 * DEPTH), None, None, *grouped(5, 0, [5, 5], rotary=1)[3:]]
    options = {"do_rotary": 1, "rotary_interleaved": 1, "constant": (6,)}
    contrib("GroupQueryAttention", packed, 3, **GROUPED, **options)


def test_group_query_attention_with_a_bias_and_a_sink() -> None:
    operands = grouped(5, 0, [5, 5])
    bias, sink = draw(2, HEADS, 5, 5), draw(HEADS)
    contrib("GroupQueryAttention", [*operands, None, bias], 3, **GROUPED, constant=(6,))
    contrib("GroupQueryAttention", [*operands, None, bias, sink], 3, **GROUPED, constant=(6,))


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(interleaved: int) -> None:
    angles = [np.cos(draw(16, DEPTH // 2)), np.sin(draw(16, DEPTH // 2))]
    positions = whole(2, 5, low=0, high=16, dtype="int64")
    options = {"interleaved": interleaved}
    contrib("RotaryEmbedding", [draw(2, 5, HIDDEN), positions, *angles], **options)
    contrib("RotaryEmbedding", [draw(2, HEADS, 5, DEPTH), positions, *angles], **options)
    start = np.array([3], np.int64)
    contrib("RotaryEmbedding", [draw(2, 5, HIDDEN), start, *angles], **options)


def test_rotary_embedding_of_a_part() -> None:
    angles = [np.cos(draw(16, 2)), np.sin(draw(16, 2))]
    positions = whole(2, 5, low=0, high=16, dtype="int64")
    options = {"num_heads": HEADS, "rotary_embedding_dim": 4}
    contrib("RotaryEmbedding", [draw(2, 5, HIDDEN), positions, *angles], **options)


# Quantized ----------------------------------------------------------------------------------------


def quantized(*shape: int, dtype: str = "uint8", seed: int = 0) -> list[Any]:
    """A tensor, its scale and its zero point."""
    info = np.iinfo(dtype)
    numbers = whole(*shape, low=info.min, high=info.max, dtype=dtype, seed=seed)
    return [numbers, np.float32(0.03 + 0.01 * seed), np.array(3 + seed, dtype)]


RESULT = [np.float32(0.05), np.array(7, np.uint8)]


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_qlinear_arithmetic(op: str, dtype: str) -> None:
    a, b = quantized(3, 4, dtype=dtype), quantized(4, dtype=dtype, seed=1)
    contrib(op, [*a, *b, RESULT[0], RESULT[1].astype(dtype)], steps=1)


@pytest.mark.parametrize("op", ["QLinearSigmoid", "QLinearLeakyRelu"])
def test_qlinear_functions(op: str) -> None:
    contrib(op, [*quantized(3, 8), *RESULT], steps=1, constant=(1, 2, 3, 4))


def test_qlinear_softmax() -> None:
    result = [np.float32(1 / 256), np.array(0, np.uint8)]
    operands = [*quantized(3, 8), *result]
    contrib("QLinearSoftmax", operands, axis=-1, opset=13, steps=1, constant=(1, 2, 3, 4))


def test_qlinear_pools_and_means() -> None:
    image = quantized(1, 2, 6, 6)
    window = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}
    contrib("QLinearAveragePool", [*image, *RESULT], steps=1, **window)
    contrib("QLinearGlobalAveragePool", [*image, *RESULT], steps=1)
    last = quantized(1, 6, 6, 2)
    contrib("QLinearAveragePool", [*last, *RESULT], steps=1, channels_last=1, **window)
    contrib("QLinearGlobalAveragePool", [*last, *RESULT], steps=1, channels_last=1)


def test_qlinear_conv_with_channels_last() -> None:
    image, weight = quantized(1, 6, 6, 2), quantized(4, 2, 3, 3, dtype="int8", seed=1)
    weight[0] //= 2
    result = [np.float32(1.0), np.array(120, np.uint8)]
    contrib("QLinearConv", [*image, *weight, *result], channels_last=1, steps=1)
    image = quantized(1, 2, 6, 6)
    contrib("QLinearConv", [*image, *weight, *result], steps=1)


def test_qlinear_concat_and_where() -> None:
    a, b = quantized(2, 3), quantized(2, 3, seed=1)
    contrib("QLinearConcat", [*RESULT, *a, *b], axis=1, steps=1, constant=(0, 1, 3, 4, 6, 7))
    choice = whole(2, 3, low=0, high=2, dtype="bool")
    contrib("QLinearWhere", [choice, *a, *b, *RESULT], steps=1, constant=(2, 3, 5, 6, 7, 8))


@pytest.mark.parametrize("per_column", [False, True])
def test_qgemm(per_column: bool) -> None:
    a, b = quantized(3, 8), quantized(5, 8, dtype="int8", seed=1)
    if per_column:
        b[1:] = [np.linspace(0.01, 0.05, 5, dtype=np.float32), np.arange(5, dtype=np.int8)]
    bias = whole(5, low=-500, high=500, dtype="int32")
    contrib("QGemm", [*a, *b, bias], transB=1, alpha=0.5)
    contrib("QGemm", [*a, *b, bias, *RESULT], transB=1, steps=1)


@pytest.mark.parametrize("per_column", [False, True])
def test_dynamic_quantize_matmul(per_column: bool) -> None:
    weights = whole(8, 5, low=-63, high=63, dtype="int8")  # no more, or some CPUs saturate
    scale = np.linspace(0.01, 0.05, 5, dtype=np.float32) if per_column else np.float32(0.02)
    zero = np.zeros(5, np.int8) if per_column else np.int8(0)
    contrib("DynamicQuantizeMatMul", [draw(3, 8), weights, scale, zero, draw(5)], atol=1e-4)


def test_matmul_integer_to_float() -> None:
    a, b = quantized(3, 8), quantized(8, 5, dtype="int8", seed=1)
    b[0] //= 2
    contrib("MatMulIntegerToFloat", [a[0], b[0], a[1], b[1], a[2], b[2], draw(5)], atol=1e-4)


@pytest.mark.parametrize(
    ("bits", "points"),
    [(4, "none"), (4, "packed"), (4, "real"), (8, "none"), (8, "packed"), (2, "none"),
     (2, "packed")],
)  # fmt: skip
@pytest.mark.parametrize("inputs", [32, 40])
def test_matmul_n_bits(bits: int, points: str, inputs: int) -> None:
    outputs, block = 6, 16
    blocks = -(-inputs // block)
    weights = whole(outputs, blocks, block * bits // 8, low=0, high=256, dtype="uint8")
    scales = np.abs(draw(outputs, blocks))
    packed = whole(outputs, -(-blocks * bits // 8), low=0, high=256, dtype="uint8")
    zero = {"none": [], "packed": [packed], "real": [draw(outputs, blocks) + 8]}[points]
    options = {"K": inputs, "N": outputs, "bits": bits, "block_size": block}
    operands = [draw(3, inputs), weights, scales, *zero]
    contrib("MatMulNBits", operands, constant=(1, 2, 3), **options, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_gather_block_quantized(bits: int, points: bool) -> None:
    rows, columns, block = 7, 48, 16
    table = whole(rows, columns * bits // 8, low=0, high=256, dtype="uint8")
    scales = np.abs(draw(rows, columns // block))
    zero = whole(rows, -(-columns // block * bits // 8), low=0, high=256, dtype="uint8", seed=1)
    indices = whole(2, 3, low=0, high=rows, dtype="int64")
    operands = [table, indices, scales, *([zero] if points else [])]
    options = {"bits": bits, "block_size": block, "gather_axis": 0, "quantize_axis": 1}
    contrib("GatherBlockQuantized", operands, constant=(0, 2, 3), **options)


def test_quantize_and_dequantize_linear() -> None:
    operands = [draw(3, 4), np.float32(0.02), np.array(100, np.uint16)]
    contrib("QuantizeLinear", operands)
    stored = whole(3, 4, low=0, high=60000, dtype="uint16")
    contrib("DequantizeLinear", [stored, *operands[1:]])


# What is refused ----------------------------------------------------------------------------------


def test_what_is_not_supported_is_refused_by_name() -> None:
    model, _ = one_node(
        "Attention", projections(), domain="com.microsoft", num_heads=HEADS, do_rotary=1
    )
    with pytest.raises(MonographError, match="do_rotary"):
        from_onnx(model)
