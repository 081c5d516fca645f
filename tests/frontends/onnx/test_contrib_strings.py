"""The tokenizer of ``com.microsoft`` against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monograph.errors import MonographError
from monograph.frontends.onnx import from_onnx
from tests.frontends.onnx.ort import compare, one_node

TEXTS = np.array(["Hello World", "I love, computer  science !", "", "héé wö"], object)


@pytest.mark.parametrize("mark", [0, 1])
@pytest.mark.parametrize("shortest", [1, 2])
@pytest.mark.parametrize(
    "cuts",
    [
        {"separators": [" "]},
        {"separators": [", ", ",", " "]},
        {"separators": ["l+"]},
        {"separators": ["o W", " "]},
        {"tokenexp": "[a-zA-Z]+"},
    ],
)
def test_tokens(cuts: dict[str, Any], shortest: int, mark: int) -> None:
    options = {"pad_value": "#", "mark": mark, "mincharnum": shortest, "domain": "com.microsoft"}
    compare("Tokenizer", [TEXTS], **cuts, **options)
    compare("Tokenizer", [TEXTS.reshape(2, 2)], constant=[0], **cuts, **options)


@pytest.mark.parametrize("cuts", [{"separators": [""]}, {"tokenexp": "."}])
def test_characters(cuts: dict[str, Any]) -> None:
    options = {"pad_value": "#", "mark": 0, "mincharnum": 1, "domain": "com.microsoft"}
    compare("Tokenizer", [TEXTS], **cuts, **options)


def test_strings_without_tokens() -> None:
    options = {"pad_value": "#", "mark": 0, "mincharnum": 3, "domain": "com.microsoft"}
    compare("Tokenizer", [np.array(["", "ab"], object)], separators=[" "], **options)


def test_an_expression_that_is_none_is_refused() -> None:
    options = {"pad_value": "#", "mark": 0, "mincharnum": 1, "domain": "com.microsoft"}
    model, _ = one_node("Tokenizer", [TEXTS], tokenexp="(", **options)
    with pytest.raises(MonographError, match="not a regular expression"):
        from_onnx(model)
