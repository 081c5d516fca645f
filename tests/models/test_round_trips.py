"""Whole models through every format and back: torch → ours → ONNX → ours → StableHLO → jaxlib.

``python -m tests.models.test_round_trips`` prints the table.
"""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("transformers")
pytest.importorskip("onnx")
pytest.importorskip("jax")

from tests.models.check import ROUND_TRIP, check
from tests.models.model import Model
from tests.models.verdict import Word
from tests.models.zoo import ZOO, find

QUICK = ("bert", "gpt2", "resnet")
ATTEMPTED = [model for model in ZOO if model.no_torch is None]


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(each, id=each.name, marks=[pytest.mark.slow] * (each.name not in QUICK))
        for each in ATTEMPTED
    ],
)
def test_a_model_gives_what_eager_gives_after_all_of_it(model: Model) -> None:
    result = check(model, ROUND_TRIP)
    assert not result.failure
    assert result.verdict is not None
    assert result.verdict.word is not Word.WRONG, result.verdict.reason


def main(pattern: str = "") -> int:
    """Print what became of each model; how many are wrong."""
    wrong = 0
    for model in find(pattern):
        result = check(model, ROUND_TRIP)
        word = "" if result.verdict is None else result.verdict.word.name.lower().replace("_", " ")
        wrong += not result.is_right
        told = result.excuse or result.failure or word
        print(f"{model.name:24} {result.nodes:5} {told[:160]}", flush=True)
    print(f"{wrong} of {len(find(pattern))} wrong")
    return wrong


if __name__ == "__main__":
    sys.exit(1 if main(*sys.argv[1:2]) else 0)
