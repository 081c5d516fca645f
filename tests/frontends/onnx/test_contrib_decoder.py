"""Ops of ``com.microsoft`` in decoders: experts, gates, recurrences, caches, rotations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monograph.errors import MonographError
from monograph.frontends.onnx import from_onnx
from monograph.ir.interpret import interpret
from tests.frontends.onnx.ort import compare, one_node, run_ort

BATCH, HEADS, DEPTH = 2, 4, 8
HIDDEN = HEADS * DEPTH


def draw(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng((seed, *shape)).normal(size=shape).astype(np.float32)


def whole(low: int, high: int, shape: tuple[int, ...], dtype: str) -> Any:
    return np.random.default_rng(shape).integers(low, high, shape).astype(dtype)


def contrib(op: str, operands: list[Any], outputs: int = 1, **options: Any) -> None:
    compare(op, operands, outputs, domain="com.microsoft", **options)


# Caches.


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shifted", [False, True])
def test_one_query_and_a_buffer(masked: bool, biased: bool, shifted: bool) -> None:
    """What lies beyond the filled part of the buffer is anything at all."""
    filled, longest = 3, 9
    mask = np.array([[0, 1, 1, 1], [1, 1, 1, 1]], np.int32) if masked else None
    operands = [
        *(draw(BATCH, 1, HIDDEN, seed=seed) for seed in range(3)),
        mask,
        draw(1, 1, 1, filled + 1) if shifted else None,
        *(draw(BATCH, HEADS, longest, DEPTH, seed=seed) for seed in range(2)),
        np.array([filled], np.int32),
        None,
        None,
        draw(3 * HIDDEN) if biased else None,
    ]
    options = {"num_heads": HEADS, "past_present_share_buffer": 1}
    model, feeds = one_node(
        "DecoderMaskedMultiHeadAttention", operands, 3, domain="com.microsoft", **options
    )
    expected, found = run_ort(model, feeds), interpret(from_onnx(model), feeds)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-5)
    for got, want in zip(found[1:], expected[1:], strict=True):
        inside = (slice(None), slice(None), slice(0, filled + 1))
        np.testing.assert_allclose(got[inside], want[inside], rtol=1e-6)


def test_one_query_and_keys_of_another_sequence() -> None:
    keys = [draw(BATCH, HEADS, 5, DEPTH, seed=seed) for seed in range(2)]
    operands = [draw(BATCH, 1, HIDDEN), *keys]
    contrib("DecoderMaskedMultiHeadAttention", operands, num_heads=HEADS, atol=1e-5)


def test_one_query_and_a_cache_that_grows_is_multi_head_attention() -> None:
    """ONNX Runtime has this form on a GPU alone."""
    new = [draw(BATCH, 1, HIDDEN, seed=seed) for seed in range(3)]
    past = [draw(BATCH, HEADS, 3, DEPTH, seed=seed) for seed in range(2)]
    forms = {
        "DecoderMaskedMultiHeadAttention": [*new, None, None, *past],
        "MultiHeadAttention": [*new, None, None, None, *past],
    }
    results = []
    for op, operands in forms.items():
        model, feeds = one_node(op, operands, 3, domain="com.microsoft", num_heads=HEADS)
        results.append(interpret(from_onnx(model), feeds))
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotations_by_three_positions(layout: int, interleaved: int) -> None:
    positions = whole(0, 16, (3, BATCH, 5), "int64")
    angles = [np.cos(draw(16, 8)), np.sin(draw(16, 8))]
    options = {"mrope_section": [4, 2, 2], "mrope_layout": layout, "interleaved": interleaved}
    contrib("MRotaryEmbedding", [draw(BATCH, HEADS, 5, 16), positions, *angles], **options)
    options |= {"num_heads": HEADS, "rotary_embedding_dim": 16}
    contrib("MRotaryEmbedding", [draw(BATCH, 5, HEADS * 16), positions, *angles], **options)


# Recurrences.


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("per_column", [False, True])
def test_dynamic_quantize_lstm(direction: str, per_column: bool) -> None:
    count, inputs, hidden = 2 if direction == "bidirectional" else 1, 6, 5
    shape = (count, 4 * hidden) if per_column else (count,)
    parameters = [np.abs(draw(*shape)) * 0.01 + 0.005, np.zeros(shape, np.int8)]
    operands = [
        draw(4, 1, inputs),
        whole(-60, 60, (count, inputs, 4 * hidden), "int8"),
        whole(-60, 60, (count, hidden, 4 * hidden), "int8"),
        draw(count, 8 * hidden),
        *[None] * 4,
        *parameters,
        *parameters,
    ]
    options = {"hidden_size": hidden, "direction": direction, "constant": [1, 2, 8, 9, 10, 11]}
    contrib("DynamicQuantizeLSTM", operands, 3, atol=2e-3, **options)


def test_dynamic_quantize_lstm_with_lengths_states_and_peepholes() -> None:
    state, parameters = draw(1, 3, 5), [np.float32([0.01]), np.zeros(1, np.int8)]
    operands = [
        draw(4, 3, 6), whole(-60, 60, (1, 6, 20), "int8"), whole(-60, 60, (1, 5, 20), "int8"),
        draw(1, 40), np.array([4, 2, 3], np.int32), state, state, draw(1, 15), *parameters,
        *parameters,
    ]  # fmt: skip
    options = {"hidden_size": 5, "constant": [1, 2, 8, 9, 10, 11]}
    contrib("DynamicQuantizeLSTM", operands, 3, atol=1e-2, **options)


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_linear_attention(rule: str) -> None:
    operands = [draw(2, 5, 32) * 0.3, draw(2, 5, 16) * 0.3, draw(2, 5, 12), draw(2, 2, 8, 6)]
    decay = -np.abs(draw(2, 5, 2)) if "gated" in rule else None
    rate = np.abs(draw(2, 5, 2)) * 0.2 if "delta" in rule else None
    options = {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": rule}
    contrib("LinearAttention", [*operands, decay, rate], 2, atol=1e-4, **options)


def test_convolutions_with_a_state() -> None:
    operands = [draw(2, 4, 7), draw(4, 1, 3), draw(4), draw(2, 4, 2)]
    contrib("CausalConvWithState", operands, 2, activation="silu")
    contrib("CausalConvWithState", operands[:2], 2)


# Gates.


def test_gates() -> None:
    x = draw(2, 3, 8)
    contrib("GatedAdd", [x, x + 1, draw(2, 3, 1)])
    contrib("ScaledSiLU", [x], alpha=0.7)
    contrib("ScaledSiLU", [x, np.float32(0.3)])
    contrib("GatedRMSNorm", [x, draw(4), x + 1])
    contrib("GatedRMSNorm", [x, draw(8), x + 1], activation="sigmoid")
    contrib("LinearAttentionGate", [x, draw(8), draw(8), x + 1], 2)
    contrib("LinearAttentionGate", [x, draw(8), draw(8)])


def test_branches() -> None:
    grouped, flat = draw(2, 3, 4, 8), draw(2, 3, 32)
    contrib("BranchwiseRMSNorm", [grouped])
    contrib("BranchwiseRMSNorm", [grouped, draw(8)])
    contrib("BranchwiseRMSNorm", [grouped, draw(4, 8)])
    contrib("BranchwiseRMSNorm", [flat, draw(32)], num_branches=4)
    contrib("HyperConnectionPreMix", [grouped, draw(2, 3, 4)])
    contrib("HyperConnectionPreMix", [grouped, draw(2, 3, 4, 1)])
    contrib("HyperConnectionPreMix", [flat, flat], num_branches=4, reduction_scale=0.5)
    contrib("HyperConnectionPostMix", [grouped, draw(2, 3, 8), draw(2, 3, 4), draw(2, 3, 4, 4)])
    contrib("HyperConnectionPostMix", [flat, draw(2, 3, 8), draw(2, 3, 4)], num_branches=4)


def test_agreement_of_keys_and_queries() -> None:
    operands = [draw(2, 3, 4, 8), draw(2, 3, 4, 8, seed=1), draw(2, 3, 8), draw(4, 8), draw(4, 8)]
    contrib("EngramGate", operands, atol=1e-5)
    contrib("EngramGate", [*operands, draw(4, 8, seed=1)], 2, atol=1e-5)


# Experts.

EXPERTS = 4
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("normalized", [0, 1])
@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "identity"])
def test_experts(count: int, normalized: int, activation: str) -> None:
    hidden, inner = 8, 12
    operands = [
        draw(5, hidden), draw(5, EXPERTS), draw(EXPERTS, inner, hidden), draw(EXPERTS, inner),
        draw(EXPERTS, hidden, inner), draw(EXPERTS, hidden),
    ]  # fmt: skip
    options = {"k": count, "normalize_routing_weights": normalized, "activation_type": activation}
    contrib("MoE", operands, **options, **CLOSE)


def test_experts_with_a_gate() -> None:
    hidden, inner = 8, 12
    operands = [
        draw(2, 3, hidden), draw(6, EXPERTS), draw(EXPERTS, 2 * inner, hidden),
        draw(EXPERTS, 2 * inner), draw(EXPERTS, hidden, inner), draw(EXPERTS, hidden),
    ]  # fmt: skip
    options = {
        "k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "activation_alpha": 1.702,
        "activation_beta": 1.0, "swiglu_limit": 1.5,
    }  # fmt: skip
    contrib("MoE", operands, **options, **CLOSE)


def quantized_experts(bits: int, block: int, points: bool) -> tuple[list[Any], dict[str, Any]]:
    """Operands of QMoE, and its attributes."""
    size = 64
    blocks = size // block if block else 1
    operands: list[Any] = [draw(5, size), draw(5, EXPERTS)]
    zeros: list[Any] = []
    for outputs in (2 * size, size):
        scales = np.abs(draw(EXPERTS, outputs, blocks)) * 0.01
        operands += [
            whole(0, 256, (EXPERTS, outputs, size * bits // 8), "uint8"),
            scales if block else scales[..., 0],
            draw(EXPERTS, outputs),
        ]
        width = blocks if block else outputs
        shape = (EXPERTS, outputs, -(-width * bits // 8)) if block else (EXPERTS, width * bits // 8)
        zeros.append(whole(0, 256, shape, "uint8"))
    options: dict[str, Any] = {
        "k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "expert_weight_bits": bits,
        "normalize_routing_weights": 1,
    }  # fmt: skip
    if block:
        options["block_size"] = block
    if points:
        operands += [None, None, None, *zeros]
    return operands, options


@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize(("bits", "block"), [(4, 0), (4, 32), (8, 0)])
def test_quantized_experts(bits: int, block: int, points: bool) -> None:
    operands, options = quantized_experts(bits, block, points)
    fixed = list(range(2, len(operands)))
    contrib("QMoE", operands, constant=fixed, rtol=1e-3, atol=1e-3, **options)


@pytest.mark.parametrize("normalized", [0, 1])
@pytest.mark.parametrize("weighted", [False, True])
def test_shares_of_quantized_experts(normalized: int, weighted: bool) -> None:
    operands, options = quantized_experts(4, 0, points=True)
    if weighted:
        operands += [None, np.abs(draw(5, EXPERTS, seed=1))]
    options["normalize_routing_weights"] = normalized
    fixed = list(range(2, 14))
    contrib("QMoE", operands, constant=fixed, rtol=1e-3, atol=1e-3, **options)


def test_quantized_experts_of_eight_bits_in_blocks() -> None:
    """ONNX Runtime quantizes the operand too, so that it is compared with real weights."""
    operands, options = quantized_experts(8, 32, points=False)
    real = [
        (stored.reshape(EXPERTS, -1, 2, 32).astype(np.float32) - 128) * scale[..., None]
        for stored, scale in ((operands[2], operands[3]), (operands[5], operands[6]))
    ]
    weights = [each.reshape(EXPERTS, -1, 64) for each in real]
    plain = [*operands[:2], weights[0], operands[4], weights[1], operands[7]]
    model, feeds = one_node("QMoE", operands, domain="com.microsoft", **options)
    del options["expert_weight_bits"], options["block_size"]
    reference, given = one_node("MoE", plain, domain="com.microsoft", **options)
    (found,), (expected,) = interpret(from_onnx(model), feeds), run_ort(reference, given)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-2)


def test_experts_in_floats_of_four_bits_are_refused() -> None:
    operands, options = quantized_experts(4, 0, points=False)
    model, _ = one_node("QMoE", operands, domain="com.microsoft", quant_type="fp4", **options)
    with pytest.raises(MonographError, match="only integers are supported"):
        from_onnx(model)
