"""The model zoo: one line a model, built from a transformers config with seeded random weights.

A line gives a name, the class, what differs from its config's defaults, and, where they are not
those of its family, the example inputs. Add a model by adding a line. Nothing is downloaded; sizes
are small: two layers, 32 channels, a vocabulary of 99. A model that torch's exporters refuse says
so on its line, so that the table shows the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from tests.models.inputs import (
    VOCABULARY,
    bare_text,
    image,
    image_and_text,
    sound,
    spectrogram,
    text,
    text_pair,
    waves_of,
)
from tests.models.model import Model, built

# Parts of configs, spelt as transformers spells them.


def nested(class_name: str, **arguments: Any) -> Callable[[], Any]:
    """A config inside a config."""

    def make() -> Any:
        import transformers

        return getattr(transformers, class_name)(**built(arguments))

    return make


TOKENS = {"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
LAYERS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
MIDDLE = LAYERS | {"intermediate_size": 64}
ENCODER = TOKENS | MIDDLE | {"max_position_embeddings": 64}
HEADS = ENCODER | {"use_cache": False}
DECODER = HEADS | {"num_key_value_heads": 2}
WINDOW = DECODER | {"head_dim": 8, "sliding_window": 6}
SHORT = {"n_layer": 2, "n_head": 4}
GPT = TOKENS | SHORT | {"n_embd": 32, "n_positions": 64, "use_cache": False}
T5 = TOKENS | {
    "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
    "decoder_start_token_id": 0, "use_cache": False,
}  # fmt: skip
TWO_STACKS = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
}  # fmt: skip
SEQUENCE = TOKENS | TWO_STACKS | {
    "max_position_embeddings": 64, "decoder_start_token_id": 2, "use_cache": False,
}  # fmt: skip
WHISPER = SEQUENCE | {
    "num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 16,
}  # fmt: skip
DISTIL = TOKENS | {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}
DEBERTA = ENCODER | {
    "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8,
}  # fmt: skip
MODERN = ENCODER | {"cls_token_id": 3, "sep_token_id": 4, "local_attention": 8}
XLNET = TOKENS | SHORT | {"d_model": 32, "d_inner": 64}
NEO = TOKENS | {
    "hidden_size": 32, "num_layers": 2, "num_heads": 4, "window_size": 6,
    "attention_types": [[["global", "local"], 1]], "max_position_embeddings": 64,
    "use_cache": False,
}  # fmt: skip
BLOOM = TOKENS | SHORT | {"hidden_size": 32, "use_cache": False}
FALCON = HEADS | {"num_kv_heads": 2, "new_decoder_architecture": True}
PATCHES = MIDDLE | {"image_size": 32, "patch_size": 8}
BEIT = PATCHES | {"use_relative_position_bias": True, "layer_scale_init_value": 0.5}
SWIN = {
    "image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 4],
    "window_size": 4,
}  # fmt: skip
STAGES = {"depths": [1, 1, 2, 1], "hidden_sizes": [8, 16, 24, 32]}
SCALED = STAGES | {"layer_scale_init_value": 0.5}
RESNET = STAGES | {"embedding_size": 8, "layer_type": "basic"}
REGNET = STAGES | {"embedding_size": 8, "groups_width": 8, "layer_type": "y"}
MOBILE = {"image_size": 64, "depth_multiplier": 0.25}
EFFICIENT = {
    "image_size": 64, "width_coefficient": 0.25, "depth_coefficient": 0.25, "hidden_dim": 320,
}  # fmt: skip
SEGFORMER = STAGES | {"num_attention_heads": [1, 2, 4, 8], "decoder_hidden_size": 16}
MOBILE_VIT = {
    "image_size": 64, "hidden_sizes": [16, 24, 32], "num_attention_heads": 4,
    "neck_hidden_sizes": [4, 8, 8, 12, 16, 16, 32],
}  # fmt: skip
DETR = TWO_STACKS | {
    "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None,
    "backbone_config": nested("ResNetConfig", **RESNET, out_features=["stage4"]),
    "num_queries": 5, "num_labels": 3,
}  # fmt: skip
TOWER = MIDDLE | {"projection_dim": 16}
TOWERS = {
    "text_config": TOWER | TOKENS | {"max_position_embeddings": 64},
    "vision_config": TOWER | {"image_size": 32, "patch_size": 8},
}  # fmt: skip
WAVES = MIDDLE | {
    "vocab_size": VOCABULARY, "conv_dim": (16, 16, 16), "conv_kernel": (10, 3, 2),
    "conv_stride": (5, 2, 2), "num_feat_extract_layers": 3, "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4, "apply_spec_augment": False, "layerdrop": 0.0,
}  # fmt: skip
DATA2VEC = WAVES | {"num_conv_pos_embeddings": 2, "conv_pos_kernel_size": 3}
SPECTRA = MIDDLE | {
    "patch_size": 8, "frequency_stride": 8, "time_stride": 8, "max_length": 32, "num_mel_bins": 16,
}  # fmt: skip
STATES = TOKENS | {"hidden_size": 32, "num_hidden_layers": 2, "use_cache": False}
MAMBA2 = STATES | {
    "num_heads": 8, "head_dim": 8, "state_size": 8, "n_groups": 2, "chunk_size": 4,
}  # fmt: skip
RWKV = STATES | {"attention_hidden_size": 32, "context_length": 64}
EXPERTS = DECODER | {
    "num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32,
    "experts_implementation": "batched_mm",
}  # fmt: skip
GROUPED = EXPERTS | {"experts_implementation": "grouped_mm"}

encoder = partial(Model, family="text encoder", inputs=text())
decoder = partial(Model, family="text decoder", inputs=text())
both = partial(Model, family="encoder-decoder", inputs=text_pair())
vision = partial(Model, family="vision", inputs=image(32))
larger = partial(Model, family="vision", inputs=image(64))
pair = partial(Model, family="vision and text", inputs=image_and_text())
audio = partial(Model, family="audio", inputs=sound())
state = partial(Model, family="state space", inputs=bare_text())
experts = partial(Model, family="mixture of experts", inputs=text())

FLOAT_MASK = text(mask=torch.float32)
NO_GROUPED = "torch's ONNX exporter does not know the custom op transformers::grouped_mm_fallback"
OPAQUE = "the custom op transformers::grouped_mm_fallback is opaque and has no gradient"

ZOO: tuple[Model, ...] = (
    encoder("bert", "BertModel", ENCODER, slow=False),
    encoder("distilbert", "DistilBertModel", DISTIL),
    encoder("roberta", "RobertaModel", ENCODER),
    encoder("albert", "AlbertModel", ENCODER | {"embedding_size": 16}),
    encoder("electra", "ElectraModel", ENCODER | {"embedding_size": 16}),
    encoder("deberta-v2", "DebertaV2Model", DEBERTA),
    encoder("mpnet", "MPNetModel", ENCODER),
    encoder("xlm-roberta", "XLMRobertaModel", ENCODER),
    encoder("modernbert", "ModernBertModel", MODERN),
    encoder("xlnet", "XLNetModel", XLNET, inputs=FLOAT_MASK),
    encoder("fnet", "FNetModel", ENCODER, inputs=bare_text()),
    encoder("t5-encoder", "T5EncoderModel", T5),
    decoder("gpt2", "GPT2LMHeadModel", GPT, slow=False),
    decoder("gpt-neo", "GPTNeoModel", NEO),
    decoder("gpt-neox", "GPTNeoXModel", HEADS),
    decoder("gpt-j", "GPTJModel", GPT | {"rotary_dim": 4}),
    decoder("codegen", "CodeGenModel", GPT | {"rotary_dim": 4}),
    decoder("opt", "OPTModel", HEADS | {"ffn_dim": 64, "word_embed_proj_dim": 32}),
    decoder("bloom", "BloomModel", BLOOM),
    decoder("llama", "LlamaForCausalLM", DECODER, slow=False),
    decoder("mistral", "MistralModel", DECODER | {"sliding_window": 6}),
    decoder("qwen2", "Qwen2Model", DECODER),
    decoder("qwen3", "Qwen3Model", DECODER | {"head_dim": 8}),
    decoder("gemma", "GemmaModel", DECODER | {"head_dim": 8}),
    decoder("gemma2", "Gemma2Model", WINDOW),
    decoder("gemma3", "Gemma3TextModel", WINDOW),
    decoder("phi", "PhiModel", DECODER),
    decoder("phi3", "Phi3Model", DECODER),
    decoder("falcon", "FalconModel", FALCON),
    decoder("falcon-alibi", "FalconModel", HEADS | {"alibi": True, "multi_query": True}),
    decoder("stablelm", "StableLmModel", DECODER),
    decoder("olmo", "OlmoModel", DECODER),
    decoder("olmo2", "Olmo2Model", DECODER),
    decoder("granite", "GraniteModel", DECODER | {"residual_multiplier": 0.5}),
    decoder("cohere", "CohereModel", DECODER),
    both("t5", "T5Model", T5, slow=False),
    both("bart", "BartModel", SEQUENCE),
    both("mbart", "MBartModel", SEQUENCE),
    both("pegasus", "PegasusModel", SEQUENCE),
    both("whisper", "WhisperModel", WHISPER, inputs=spectrogram()),
    vision("vit", "ViTModel", PATCHES, slow=False),
    vision("deit", "DeiTModel", PATCHES),
    vision("beit", "BeitModel", BEIT),
    vision("dinov2", "Dinov2Model", PATCHES),
    vision("swin", "SwinModel", SWIN),
    vision("swinv2", "Swinv2Model", SWIN),
    larger("convnext", "ConvNextModel", SCALED | {"image_size": 64}),
    larger("convnextv2", "ConvNextV2Model", STAGES | {"image_size": 64}),
    larger("resnet", "ResNetForImageClassification", RESNET, slow=False),
    larger("regnet", "RegNetModel", REGNET),
    # Seed 1 puts an activation on the kink of a ReLU: eager's gradients jump with a rounding.
    larger("mobilenet-v1", "MobileNetV1Model", MOBILE, seed=2),
    larger("mobilenet-v2", "MobileNetV2Model", MOBILE),
    larger("efficientnet", "EfficientNetModel", EFFICIENT),
    larger("segformer", "SegformerForSemanticSegmentation", SEGFORMER),
    larger("poolformer", "PoolFormerModel", SCALED),
    larger("mobilevit", "MobileViTModel", MOBILE_VIT),
    larger("detr", "DetrForObjectDetection", DETR),
    pair("clip", "CLIPModel", TOWERS | {"projection_dim": 16}, slow=False),
    pair("siglip", "SiglipModel", TOWERS),
    audio("wav2vec2", "Wav2Vec2ForCTC", WAVES),
    audio("hubert", "HubertModel", WAVES),
    audio("data2vec-audio", "Data2VecAudioModel", DATA2VEC),
    audio("ast", "ASTModel", SPECTRA, inputs=waves_of(32, 16)),
    state("mamba", "MambaModel", STATES | {"state_size": 4}, slow=False),
    state("mamba2", "Mamba2Model", MAMBA2),
    state("rwkv", "RwkvModel", RWKV),
    experts("mixtral", "MixtralModel", EXPERTS),
    experts("qwen2-moe", "Qwen2MoeModel", EXPERTS),
    experts("qwen3-moe", "Qwen3MoeModel", GROUPED, no_onnx=NO_GROUPED, no_train=OPAQUE),
    experts("olmoe", "OlmoeModel", EXPERTS),
)
"""Every model, family by family."""


def find(pattern: str = "") -> tuple[Model, ...]:
    """The models whose name contains one of the words (separated by commas); all without any."""
    words = [word for word in pattern.split(",") if word]
    return tuple(m for m in ZOO if not words or any(word in m.name for word in words))
