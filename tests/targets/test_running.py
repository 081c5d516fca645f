"""The runner says what ran in the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph.functional as F
from monograph.frontends.trace import trace
from monograph.ir.build import apply
from monograph.ops.sequence import SequenceAt, SequenceConstruct
from tests.ops.opaque import opaque
from tests.targets.running import Runner

NUMBERS = np.array([3.0, 0.0, 1.0], np.float32)


def through_a_sequence(x: Any) -> Any:
    return apply(SequenceAt(), apply(SequenceConstruct(), x, x), np.array(0))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: x + 1, []),
        (lambda x: F.nonzero(x), []),
        (lambda x: F.unique(x)[0] * 2, []),
        (through_a_sequence, []),
        (lambda x: opaque(x) + 1, ["test.opaque"]),
    ],
)
def test_it_says_what_is_interpreted(function: Any, expected: list[str]) -> None:
    runner = Runner("cpu")
    graph = trace(function, NUMBERS)
    runner(graph, [NUMBERS])
    assert runner.interpreted == expected
