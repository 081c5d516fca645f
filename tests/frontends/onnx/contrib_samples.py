"""One node of each ``com.microsoft`` op that ONNX Runtime has on a CPU and that is read here."""

from __future__ import annotations

from typing import Any

import numpy as np

from monograph.dataclass import dataclass

HEADS, DEPTH = 4, 8
HIDDEN = HEADS * DEPTH
SCALE, ZERO = np.float32(0.05), np.array(7, np.uint8)


def draw(*shape: int) -> Any:
    return np.random.default_rng(shape).normal(size=shape).astype(np.float32)


def whole(low: int, high: int, shape: tuple[int, ...], dtype: str = "int64") -> Any:
    return np.random.default_rng(shape).integers(low, high, shape).astype(dtype)


def stored(*shape: int) -> Any:
    return whole(0, 255, shape, "uint8")


@dataclass(frozen=True)
class Sample:
    """Operands, how many results there are, which operands are constants, and the attributes."""

    operands: list[Any]
    outputs: int
    constant: tuple[int, ...]
    attributes: dict[str, Any]


def _sample(
    *operands: Any, outputs: int = 1, constant: tuple[int, ...] = (), **options: Any
) -> Sample:
    return Sample(list(operands), outputs, constant, options)


X, ROWS = draw(2, 3, 8), draw(3, 8)
IMAGE, KERNEL = draw(1, 2, 6, 6), draw(4, 2, 3, 3)
QUANTIZED = (stored(3, 8), SCALE, ZERO)
PIXELS = (stored(1, 2, 6, 6), SCALE, ZERO)
QUERY = draw(2, 5, HIDDEN)
WEIGHTS = (draw(HIDDEN, 3 * HIDDEN) * 0.1, draw(3 * HIDDEN))
BRANCHES = draw(2, 3, 4, 8)
TOKENS = whole(0, 9, (2, 5), "int32")
WINDOW = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}
ANGLES = (np.cos(draw(16, 4)), np.sin(draw(16, 4)))
LSTM = (
    draw(4, 1, 6), whole(-60, 60, (1, 6, 20), "int8"), whole(-60, 60, (1, 5, 20), "int8"),
    draw(1, 40), *[None] * 4, *[np.float32([0.01]), np.zeros(1, np.int8)] * 2,
)  # fmt: skip
EMBEDDED = (
    TOKENS, None, stored(9, 8), stored(6, 8), None, stored(8), stored(8, 1).reshape(8), None, SCALE,
    SCALE, None, SCALE, SCALE, ZERO, ZERO, None, ZERO, ZERO,
)  # fmt: skip
EXPERTS = (draw(5, 8), draw(5, 4), draw(4, 12, 8), draw(4, 12), draw(4, 8, 12), draw(4, 8))
QEXPERTS = (
    draw(5, 8), draw(5, 4), stored(4, 12, 4), np.abs(draw(4, 12)), None, stored(4, 8, 6),
    np.abs(draw(4, 8)),
)  # fmt: skip

SAMPLES: dict[str, Sample] = {
    "Attention": _sample(QUERY, *WEIGHTS, num_heads=HEADS),
    "BiasGelu": _sample(ROWS, draw(8)),
    "BifurcationDetector": _sample(
        np.array([1, 5, 3]), np.array([2]), np.array([0]), np.array([1, 5, 3, 7]), outputs=2
    ),
    "BranchwiseRMSNorm": _sample(BRANCHES, draw(8)),
    "CDist": _sample(ROWS, draw(5, 8)),
    "CausalConvWithState": _sample(draw(2, 4, 7), draw(4, 1, 3), outputs=2),
    "ConvTransposeWithDynamicPads": _sample(
        draw(1, 2, 4, 4), draw(2, 3, 3, 3), np.array([1, 0, 0, 1]), constant=(2,)
    ),
    "CropAndResize": _sample(
        IMAGE, np.float32([[0, 0, 1, 1]]), np.int32([0]), np.int32([3, 4]), constant=(3,)
    ),
    "DecoderMaskedMultiHeadAttention": _sample(
        draw(2, 1, HIDDEN), *[draw(2, HEADS, 5, DEPTH)] * 2, num_heads=HEADS
    ),
    "DequantizeLinear": _sample(*QUANTIZED),
    "DynamicQuantizeLSTM": _sample(
        *LSTM, outputs=3, constant=(1, 2, 8, 9, 10, 11), hidden_size=5
    ),
    "DynamicQuantizeMatMul": _sample(ROWS, whole(-63, 63, (8, 5), "int8"), SCALE, np.int8(0)),
    "DynamicTimeWarping": _sample(np.abs(draw(5, 7))),
    "EmbedLayerNormalization": _sample(
        TOKENS, None, draw(9, 8), draw(6, 8), None, draw(8), draw(8), outputs=2
    ),
    "EngramGate": _sample(BRANCHES, BRANCHES, X, draw(4, 8), draw(4, 8)),
    "ExpandDims": _sample(ROWS, np.int32([1]), constant=(1,)),
    "FastGelu": _sample(ROWS),
    "FusedConv": _sample(IMAGE, KERNEL, activation="Relu"),
    "FusedGemm": _sample(ROWS, draw(8, 5), activation="Relu"),
    "FusedMatMul": _sample(ROWS, draw(5, 8), transB=1, alpha=0.5),
    "GatedAdd": _sample(X, X, draw(2, 3, 1)),
    "GatedRMSNorm": _sample(X, draw(4), X),
    "GatherBlockQuantized": _sample(
        stored(7, 24), whole(0, 7, (2, 3)), np.abs(draw(7, 3)), constant=(0, 2), block_size=16
    ),
    "GatherND": _sample(ROWS, np.array([[0, 1]])),
    "Gelu": _sample(ROWS),
    "GridSample": _sample(IMAGE, draw(1, 3, 3, 2)),
    "GroupQueryAttention": _sample(
        QUERY, *[draw(2, 5, 2 * DEPTH)] * 2, None, None, np.int32([4, 4]), np.int32(5), outputs=3,
        constant=(6,), num_heads=HEADS, kv_num_heads=2,
    ),
    "HyperConnectionPostMix": _sample(BRANCHES, X, draw(2, 3, 4)),
    "HyperConnectionPreMix": _sample(BRANCHES, draw(2, 3, 4)),
    "Inverse": _sample(draw(2, 3, 3)),
    "LinearAttention": _sample(
        draw(2, 5, 32), draw(2, 5, 16), draw(2, 5, 12), outputs=2, q_num_heads=4, kv_num_heads=2,
        update_rule="linear",
    ),
    "LinearAttentionGate": _sample(X, draw(8), draw(8)),
    "MRotaryEmbedding": _sample(
        draw(2, HEADS, 5, DEPTH), whole(0, 16, (3, 2, 5)), *ANGLES, mrope_section=[2, 1, 1]
    ),
    "MatMulBnb4": _sample(
        draw(3, 32), stored(96), np.abs(draw(12)), constant=(1, 2), K=32, N=6, block_size=16,
        quant_type=1,
    ),
    "MatMulInteger16": _sample(*[whole(-9, 9, (4, 4), "int16")] * 2),
    "MatMulIntegerToFloat": _sample(stored(3, 8), whole(-63, 63, (8, 5), "int8"), SCALE, SCALE),
    "MatMulNBits": _sample(
        draw(3, 32), stored(6, 2, 8), np.abs(draw(6, 2)), constant=(1, 2), K=32, N=6, bits=4,
        block_size=16,
    ),
    "MoE": _sample(*EXPERTS, k=2),
    "MultiHeadAttention": _sample(QUERY, QUERY, QUERY, num_heads=HEADS),
    "MurmurHash3": _sample(whole(0, 99, (4,), "int32")),
    "NGramHashMapping": _sample(
        whole(0, 9, (2, 5)), np.array([31, 17]), np.array([7, 11]), outputs=2, pad_id=2,
        n_head_per_ngram=2, max_ngram_size=2,
    ),
    "NGramRepeatBlock": _sample(np.array([[1, 2, 3, 1, 2]]), draw(1, 8), ngram_size=2),
    "NhwcMaxPool": _sample(stored(1, 6, 6, 2), **WINDOW),
    "Pad": _sample(ROWS, np.array([0, 1, 0, 1]), constant=(1,)),
    "QAttention": _sample(
        stored(2, 5, 16), whole(-9, 9, (16, 3 * HIDDEN), "int8"), draw(3 * HIDDEN), SCALE, SCALE,
        None, ZERO, np.int8(0), num_heads=HEADS,
    ),
    "QEmbedLayerNormalization": _sample(*EMBEDDED, outputs=2),
    "QGemm": _sample(*QUANTIZED, whole(-63, 63, (8, 5), "int8"), SCALE, np.int8(0)),
    "QLinearAdd": _sample(*QUANTIZED, *QUANTIZED, SCALE, ZERO),
    "QLinearAveragePool": _sample(*PIXELS, SCALE, ZERO, **WINDOW),
    "QLinearConcat": _sample(
        SCALE, ZERO, *QUANTIZED, *QUANTIZED, constant=(0, 1, 3, 4, 6, 7), axis=0
    ),
    "QLinearConv": _sample(*PIXELS, whole(-63, 63, (4, 2, 3, 3), "int8"), SCALE, np.int8(0), SCALE,
                           ZERO),
    "QLinearGlobalAveragePool": _sample(*PIXELS, SCALE, ZERO),
    "QLinearLeakyRelu": _sample(*QUANTIZED, SCALE, ZERO, constant=(1, 2, 3, 4)),
    "QLinearMul": _sample(*QUANTIZED, *QUANTIZED, SCALE, ZERO),
    "QLinearSigmoid": _sample(*QUANTIZED, SCALE, ZERO, constant=(1, 2, 3, 4)),
    "QLinearSoftmax": _sample(
        *QUANTIZED, np.float32(1 / 256), np.uint8(0), constant=(1, 2, 3, 4), opset=13
    ),
    "QLinearWhere": _sample(
        whole(0, 2, (3, 8), "bool"), *QUANTIZED, *QUANTIZED, SCALE, ZERO,
        constant=(2, 3, 5, 6, 7, 8),
    ),
    "QMoE": _sample(*QEXPERTS, constant=(2, 3, 5, 6), k=2),
    "QuantizeLinear": _sample(ROWS, SCALE, ZERO),
    "QuickGelu": _sample(ROWS),
    "Range": _sample(np.array(0), np.array(9), np.array(2), constant=(0, 1, 2)),
    "RotaryEmbedding": _sample(draw(2, HEADS, 5, DEPTH), whole(0, 16, (2, 5)), *ANGLES),
    "SampleOp": _sample(ROWS),
    "ScaledSiLU": _sample(X),
    "SkipLayerNormalization": _sample(X, X, draw(8)),
    "SkipSimplifiedLayerNormalization": _sample(X, X, draw(8)),
    "SparseAttention": _sample(
        draw(1, 5, 2 * DEPTH), *[draw(1, 5, DEPTH)] * 2, *[draw(1, 1, 16, DEPTH)] * 2,
        np.int32([[0, 1]]), np.int32([[0]]), np.int32([5]), np.int32([5]), outputs=3,
        constant=(5, 6, 7), num_heads=2, kv_num_heads=1, sparse_block_size=16,
    ),
    "Tokenizer": _sample(
        np.array(["a word", "b"], object), separators=[" "], pad_value="#", mark=0, mincharnum=1
    ),
    "TransposeMatMul": _sample(ROWS, draw(5, 8), transB=1),
    "Trilu": _sample(draw(3, 4), np.array(1), constant=(1,)),
    "UnfoldTensor": _sample(X, size=3),
    "Unique": _sample(np.float32([2, 1, 1, 3]), outputs=3),
    "WordConvEmbedding": _sample(TOKENS + 1, draw(6, 1, 2, 3), draw(6), draw(10, 3)),
}  # fmt: skip
