"""Models of transformers are compiled by themselves, and generate what they did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

transformers = pytest.importorskip("transformers")

import monograph  # noqa: E402
from monograph.bindings.transformers_models import dummy_inputs  # noqa: E402
from monograph.errors import InputError  # noqa: E402
from monograph.inspect.models import find_model  # noqa: E402

SLOW = pytest.mark.slow
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 37}
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "BERT": (
        "BertForMaskedLM", "BertConfig", {**SMALL, "num_attention_heads": 2, "vocab_size": 99},
    ),
    "GPT-2": (
        "GPT2LMHeadModel", "GPT2Config",
        {"n_layer": 2, "n_embd": 32, "n_head": 2, "vocab_size": 99, "bos_token_id": 1,
         "eos_token_id": 2, "pad_token_id": 0},
    ),
    "Llama": (
        "LlamaForCausalLM", "LlamaConfig",
        {**SMALL, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 99},
    ),
    "T5": (
        "T5ForConditionalGeneration", "T5Config",
        {"d_model": 32, "d_ff": 37, "d_kv": 8, "num_layers": 2, "num_heads": 4,
         "vocab_size": 99, "decoder_start_token_id": 0},
    ),
    "ViT": (
        "ViTForImageClassification", "ViTConfig",
        {**SMALL, "num_attention_heads": 2, "image_size": 32, "patch_size": 8},
    ),
    "Whisper": (
        "WhisperForConditionalGeneration", "WhisperConfig",
        {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
         "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
         "vocab_size": 120, "num_mel_bins": 8, "max_source_positions": 30,
         "max_target_positions": 40, "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3,
         "decoder_start_token_id": 4, "begin_suppress_tokens": None},
    ),
}  # fmt: skip


def build(name: str) -> Any:
    model, config, settings = MODELS[name]
    torch.manual_seed(0)
    made = getattr(transformers, model)(getattr(transformers, config)(**settings))
    return made.eval()


def check_outputs(found: Any, expected: Any) -> None:
    assert type(found) is type(expected) and list(found.keys()) == list(expected.keys())
    np.testing.assert_allclose(found[0].detach(), expected[0].detach(), 1e-4, 1e-5)


@SLOW
@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_compiled_by_itself(name: str) -> None:
    model = build(name)
    compiled = monograph.compile(model, cache=False)
    inputs = dummy_inputs(model)
    with torch.no_grad():
        check_outputs(compiled(**inputs), model(**inputs))
        first = next(iter(inputs.values()))
        if name in ("BERT", "GPT-2"):  # the same by position
            check_outputs(compiled(first), model(first))
    if not model.can_generate() or name == "GPT-2":
        return
    text = name in ("Llama", "T5")
    prompt = torch.randint(5, 90, (2, 6)) if text else first
    ways = ({}, {"do_sample": True, "top_k": 20}, {"cache_implementation": "static"})
    for way in ways:
        check_generates(compiled, model, prompt, **way)


def check_generates(compiled: Any, model: Any, prompt: Any, **way: Any) -> None:
    given = {model.main_input_name: prompt, "max_new_tokens": 6, "do_sample": False, **way}
    torch.manual_seed(1)
    expected = model.generate(**given)
    torch.manual_seed(1)
    assert torch.equal(compiled.generate(**given), expected)


def test_a_model_generates_with_a_program_for_each_kind_of_call() -> None:
    model = build("GPT-2")
    compiled = monograph.compile(model, cache=False)
    prompt = torch.randint(5, 90, (2, 6))
    check_generates(compiled, model, prompt, attention_mask=torch.ones_like(prompt))
    assert len(compiled.programs) == 3  # dummy inputs, a prompt, a token and a cache of any length
    check_generates(compiled, model, prompt, attention_mask=torch.ones_like(prompt), do_sample=True)
    assert len(compiled.programs) == 3


def test_a_cache_is_brought_up_to_date_in_its_own_object() -> None:
    model = build("GPT-2")
    compiled = monograph.compile(model, cache=False)
    mine, theirs = transformers.DynamicCache(), transformers.DynamicCache()
    with torch.no_grad():
        found = compiled(torch.tensor([[5, 6, 7]]), past_key_values=mine)
        model(torch.tensor([[5, 6, 7]]), past_key_values=theirs)
    assert found.past_key_values is mine and mine.get_seq_length() == 3
    torch.testing.assert_close(mine.layers[1].keys, theirs.layers[1].keys)


def test_weights_that_change_are_not_mixed() -> None:
    model = build("GPT-2")
    compiled = monograph.compile(model, cache=False)
    with torch.no_grad():
        model.transformer.wte.weight.add_(1)
    with pytest.raises(InputError, match="weights have changed"):
        compiled(torch.tensor([[1, 2]]), attention_mask=torch.ones(1, 2))


def test_what_cannot_be_saved_says_how_it_can() -> None:
    with pytest.raises(InputError, match="one call"):
        monograph.compile(build("GPT-2"), cache=False).save("x.mono")


def test_a_model_in_a_file_needs_no_inputs_either(tmp_path: Path) -> None:
    config = {**SMALL, "num_attention_heads": 2, "vocab_size": 99}
    (tmp_path / "net.py").write_text(
        "from transformers import BertConfig, BertModel, T5Config, T5Model\n"
        f"bert = BertModel(BertConfig(**{config}))\n"
        "t5 = T5Model(T5Config(d_model=32, d_ff=37, d_kv=8, num_layers=1, num_heads=4))\n"
    )
    found = find_model(f"{tmp_path}/net.py:bert")
    assert [tuple(each.shape) for each in found.examples] == [(3, 5)]
    # Its mask stands between the two that it must be given.
    with pytest.raises(InputError, match="needs example inputs"):
        find_model(f"{tmp_path}/net.py:t5")


def test_a_network_for_images_of_any_size_gets_one_of_a_usual_size() -> None:
    config = {"embedding_size": 8, "hidden_sizes": [8, 8], "depths": [1, 1]}
    model = transformers.ResNetModel(transformers.ResNetConfig(**config))
    assert dummy_inputs(model)["pixel_values"].shape == (1, 3, 224, 224)
