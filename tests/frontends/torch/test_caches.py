"""Language models return their key-value caches, and take them, as they do in eager mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import monograph
from monograph.errors import InputError

transformers = pytest.importorskip("transformers")

IDS = torch.tensor([[3, 1, 4, 1, 5]])
NEXT = torch.tensor([[9]])
SIZES = {"vocab_size": 32, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}


def gpt2() -> Any:
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=8, n_positions=16, **SIZES)
    return transformers.GPT2LMHeadModel(config).eval()


def llama() -> Any:
    sizes = {"hidden_size": 8, "intermediate_size": 16, "max_position_embeddings": 16}
    heads = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = transformers.LlamaConfig(**sizes, **heads, **SIZES)
    return transformers.LlamaForCausalLM(config).eval()


@pytest.fixture(params=[gpt2, llama], ids=["gpt2", "llama"])
def model(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(0)
    return request.param()


def assert_same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected) and list(found.keys()) == list(expected.keys())
    torch.testing.assert_close(found.logits, expected.logits)
    assert type(found.past_key_values) is type(expected.past_key_values)
    pairs = zip(found.past_key_values.layers, expected.past_key_values.layers, strict=True)
    for own, other in pairs:
        assert type(own) is type(other)
        torch.testing.assert_close(own.keys, other.keys)
        torch.testing.assert_close(own.values, other.values)
    assert found.past_key_values.get_seq_length() == expected.past_key_values.get_seq_length()


@torch.no_grad()
def test_a_cache_is_returned_and_can_be_used(model: Any) -> None:
    compiled = monograph.compile(model, IDS)
    found = compiled(IDS)
    expected = model(IDS)
    assert_same(found, expected)
    continued = model(NEXT, past_key_values=found.past_key_values)
    assert_same(continued, model(NEXT, past_key_values=expected.past_key_values))


@torch.no_grad()
def test_a_cache_is_taken_and_stays_as_it_was(model: Any) -> None:
    example = model(IDS).past_key_values
    decode = monograph.compile(model, NEXT, kwargs={"past_key_values": example})
    assert example.get_seq_length() == IDS.shape[1]
    given = monograph.compile(model, IDS)(IDS).past_key_values
    found = decode(NEXT, past_key_values=given)
    assert given.get_seq_length() == IDS.shape[1]
    assert_same(found, model(NEXT, past_key_values=model(IDS).past_key_values))
    with pytest.raises(InputError):
        decode(NEXT, past_key_values=found.past_key_values)  # it is longer than the example


@torch.no_grad()
def test_an_empty_cache_is_another_structure_than_a_full_one() -> None:
    model = llama()
    empty = transformers.DynamicCache()
    compiled = monograph.compile(model, IDS, kwargs={"past_key_values": empty})
    assert empty.get_seq_length() == 0
    assert_same(compiled(IDS, past_key_values=transformers.DynamicCache()), model(IDS))
    with pytest.raises(InputError, match="another structure"):
        compiled(IDS, past_key_values=model(IDS).past_key_values)
