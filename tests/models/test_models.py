"""Models from transformers' configs give what eager gives, however they come in.

A few quick ones run by default, and twenty compiled; the rest with ``-m slow``. ``python -m
tests.models.run`` prints all of them as a table.
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("transformers")
pytest.importorskip("onnx")

from tests.models.check import WAYS, Result, check
from tests.models.model import Model
from tests.models.verdict import Word, judge
from tests.models.zoo import ZOO

MODELS = [
    pytest.param(model, id=model.name, marks=[pytest.mark.slow] * model.slow) for model in ZOO
]
NATIVE = (
    *("bert", "xlm-roberta", "modernbert", "gpt2", "llama", "gemma2", "qwen3", "t5", "bart"),
    *("mixtral", "whisper", "vit", "dinov2", "resnet", "convnext", "mobilenet-v1", "clip"),
    *("wav2vec2", "mamba", "falcon-alibi"),
)
"""Models that the usual run compiles: one or two of each kind of layer."""
COMPILED = [
    pytest.param(model, id=model.name, marks=[pytest.mark.slow] * (model.name not in NATIVE))
    for model in ZOO
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model", MODELS)
def test_a_model_gives_what_eager_gives(model: Model, way: str) -> None:
    _assert_right(check(model, way))


@pytest.mark.parametrize("model", COMPILED)
def test_a_compiled_model_gives_what_eager_gives(model: Model) -> None:
    result = check(model, "torch", target="cpu")
    _assert_right(result)
    assert not result.runner.interpreted


def _assert_right(result: Result) -> None:
    if result.excuse:
        pytest.skip(result.excuse)
    assert not result.failure
    assert result.verdict is not None
    assert result.verdict.word is not Word.WRONG, result.verdict.reason


def test_every_family_is_there() -> None:
    assert len(ZOO) >= 45
    assert len(set(NATIVE) & {model.name for model in ZOO}) == 20
    assert len({model.name for model in ZOO}) == len(ZOO)
    assert {model.family for model in ZOO} >= {
        "text encoder", "text decoder", "encoder-decoder", "vision", "audio",
        "mixture of experts", "state space",
    }  # fmt: skip


def test_the_judge_knows_right_from_wrong() -> None:
    exact = np.linspace(1.0, 2.0, 5000)
    eager = exact.astype(np.float32)
    assert judge(eager, eager, exact).word is Word.EXACT
    rounded = np.nextafter(eager, np.float32(9))
    assert judge(rounded, eager, exact).word is Word.WITHIN_ROUNDING
    assert judge(eager, rounded, exact).word is Word.MORE_ACCURATE
    assert judge(eager * np.float32(1.00001), eager, exact).word is Word.WRONG
    assert judge(np.where(exact > 1.5, eager, np.nan), eager, exact).word is Word.WRONG
    assert judge(eager[:4999], eager, exact).reason == "shape (4999,), not (5000,)"
    assert judge(exact, eager, exact).reason == "dtype float64, not float32"
