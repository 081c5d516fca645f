"""Double precision, and the words for an answer."""

from __future__ import annotations

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.inspect.precise import double_precision, judge, widen_graph
from monograph.ir.graph import Value

REFERENCE = np.full(2000, 1 / 3)
NEAR = REFERENCE.astype(np.float32)


@pytest.mark.parametrize(
    ("got", "other", "word"),
    [
        (NEAR, NEAR, "exact"),
        (NEAR, NEAR * np.float32(1.00001), "more accurate"),
        (NEAR * np.float32(1.000015), NEAR * np.float32(1.00001), "within rounding"),
        (NEAR * np.float32(1.0001), NEAR * np.float32(1.00001), "wrong"),
        (NEAR[:5], NEAR, "wrong"),
    ],
)
def test_answers_have_words(got: np.ndarray, other: np.ndarray, word: str) -> None:
    assert judge(got, other, REFERENCE).word == word


def test_a_nan_in_another_place_is_wrong() -> None:
    got = NEAR.copy()
    got[3] = np.nan
    assert judge(got, NEAR, REFERENCE).word == "wrong"
    assert judge(got, got, REFERENCE).word == "exact"


def test_every_float_becomes_a_double_in_regions_and_constants_too() -> None:
    def program(x: Value) -> Value:
        weight = x.graph.add_weight("w", np.full((4, 4), 0.1, np.float32))
        result: Value = F.while_loop(lambda y: F.sum(y) < 9.0, lambda y: y * 2.0, x @ weight)
        return F.cast(result, "f32")

    twin = widen_graph(monograph.trace(program, "f32[4, 4]"))
    monograph.verify(twin)
    types = [value.type for node in twin.walk() for value in node.results]
    assert not [type_ for type_ in types if str(type_).startswith("f32")]
    found = double_precision(twin, [np.ones((4, 4))])
    assert found is not None
    assert found[0].dtype == np.float64
