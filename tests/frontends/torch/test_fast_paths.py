"""The fused calls of torch's transformers in inference, compiled like everything else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import monograph

X = torch.linspace(-1, 1, 2 * 5 * 16).sin().reshape(2, 5, 16)
PADDED = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
CAUSAL = torch.ones(5, 5, dtype=torch.bool).triu(1)


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        yield
    torch._dynamo.reset()


def compiled_whole(module: Any, *inputs: Any, **named: Any) -> None:
    """Compile, compare with eager, and see that nothing is left to torch."""
    expected = module(*inputs, **named)
    compiled = torch.compile(module, backend="monograph", fullgraph=True)
    torch.testing.assert_close(compiled(*inputs, **named), expected, rtol=1e-4, atol=1e-5)
    for graph in monograph.explain(compiled).graphs:
        assert graph.left_to_torch == ()
        assert graph.explanation.interpreted == 0


@pytest.mark.parametrize(("norm_first", "activation"), [(False, "relu"), (True, "gelu")])
def test_layers_of_an_encoder(norm_first: bool, activation: str) -> None:
    options: dict[str, Any] = {"norm_first": norm_first, "activation": activation}
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, **options).eval()
    compiled_whole(layer, X)


@pytest.mark.parametrize(
    "masks",
    [
        {"src_mask": CAUSAL},
        {"src_key_padding_mask": PADDED},
        {"src_mask": CAUSAL, "src_key_padding_mask": PADDED},
    ],
)
def test_masks(masks: dict[str, Any]) -> None:
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    compiled_whole(layer, X, **masks)


@pytest.mark.parametrize(("need", "average"), [(True, False), (True, True)])
def test_attention_alone(need: bool, average: bool) -> None:
    attention = torch.nn.MultiheadAttention(16, 4, batch_first=True).eval()
    options: dict[str, Any] = {"need_weights": need, "average_attn_weights": average}
    compiled_whole(attention, X, X, X, **options)


def test_attention_of_one_sequence_to_another() -> None:
    weights = [torch.randn(48, 16), torch.randn(48), torch.randn(16, 16), torch.randn(16)]

    def attend(query: Any, key: Any, value: Any) -> Any:
        call = torch.ops.aten._native_multi_head_attention
        return call(query, key, value, 16, 4, *weights, PADDED, True, False, 1)

    expected = attend(X, X, X + 1)
    compiled = torch.compile(attend, backend="monograph")
    torch.testing.assert_close(compiled(X, X, X + 1), expected, rtol=1e-4, atol=1e-5)


def test_a_query_that_sees_nothing() -> None:
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    nothing = torch.tensor([[True] * 5, [False] * 5])
    compiled = torch.compile(layer, backend="monograph")
    expected = layer(X, src_key_padding_mask=nothing)
    got = compiled(X, src_key_padding_mask=nothing)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_attention_of_any_length() -> None:
    weights = [torch.randn(48, 16), torch.randn(48), torch.randn(16, 16), torch.randn(16)]

    def attend(x: Any) -> Any:
        call = torch.ops.aten._native_multi_head_attention
        return call(x, x, x, 16, 4, *weights, None, False)[0]

    compiled = torch.compile(attend, backend="monograph")
    for length in (5, 3):
        x = X[:, :length].contiguous()
        torch._dynamo.mark_dynamic(x, 1)
        torch.testing.assert_close(compiled(x), attend(x), rtol=1e-4, atol=1e-5)
