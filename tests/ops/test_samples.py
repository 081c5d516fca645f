"""Every op of the package, on every one of its samples."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monograph.ir.op import Op, Sample, registry
from tests.ops import harness

SAMPLES = harness.samples_by_op()
EACH = pytest.mark.parametrize("name", SAMPLES)


def _torch_references() -> dict[str, Callable[..., Any]]:
    """The ``TORCH`` tables of every ``torch_*.py`` beside this file."""
    found: dict[str, Callable[..., Any]] = {}
    for path in sorted(Path(__file__).parent.glob("torch_*.py")):
        found.update(importlib.import_module(f"tests.ops.{path.stem}").TORCH)
    return found


TORCH = _torch_references()


def test_every_op_has_samples() -> None:
    assert [name for name in registry() if name not in SAMPLES and "." not in name] == []


@EACH
def test_evaluation_has_the_inferred_type(name: str) -> None:
    harness.check_each(SAMPLES[name], harness.check_evaluation)


@EACH
def test_text_round_trip(name: str) -> None:
    harness.check_each(SAMPLES[name], harness.check_text)


@EACH
def test_symbolic_inference(name: str) -> None:
    harness.check_each(SAMPLES[name], harness.check_symbolic)


@EACH
def test_decomposition_equals_evaluation(name: str) -> None:
    harness.check_each(SAMPLES[name], harness.check_decomposition)


@EACH
def test_gradient_equals_finite_differences(name: str) -> None:
    harness.check_each(SAMPLES[name], harness.check_gradient)


def _check_against_torch(sample: Sample) -> None:
    if isinstance(sample.apply, Op) and sample.apply.name in TORCH:
        harness.check_against_torch(sample, TORCH[sample.apply.name])


@EACH
def test_agrees_with_torch(name: str) -> None:
    harness.check_each(SAMPLES[name], _check_against_torch)
