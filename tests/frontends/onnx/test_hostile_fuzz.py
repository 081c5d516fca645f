"""Damaged models give one of our errors or a graph, never anything else."""

from __future__ import annotations

import pytest

pytest.importorskip("onnx")

import onnx

from monograph.frontends.onnx import from_onnx
from monograph.ir.verify import verify
from tests.frontends.onnx.hostile.fuzz import fuzz, mutated
from tests.frontends.onnx.hostile.seeds import seeds

COUNT = 200
SEEDS = seeds()


@pytest.mark.parametrize("name", SEEDS)
def test_the_model_to_be_damaged_is_right(name: str) -> None:
    onnx.checker.check_model(SEEDS[name], full_check=True)
    verify(from_onnx(SEEDS[name]))


def test_a_number_stands_for_one_mutation() -> None:
    assert mutated(7) == mutated(7)
    assert len({mutated(number) for number in range(50)}) > 45


def test_damaged_models_give_errors_or_graphs() -> None:
    findings = list(fuzz(range(COUNT)))
    assert [finding for finding in findings if finding.is_fault] == []
    kinds = {finding.kind for finding in findings}
    assert len(findings) == COUNT
    assert {"graph", "InputError", "TypeRuleError"} <= kinds
