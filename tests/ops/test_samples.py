"""Every op of the package, on every one of its samples."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monograph.ir.op import Op, Sample, registry
from tests.ops import harness

SAMPLES = list(harness.all_samples())
EACH = pytest.mark.parametrize("sample", [s for _, s in SAMPLES], ids=[n for n, _ in SAMPLES])


def _torch_references() -> dict[str, Callable[..., Any]]:
    """The ``TORCH`` tables of every ``torch_*.py`` beside this file."""
    found: dict[str, Callable[..., Any]] = {}
    for path in sorted(Path(__file__).parent.glob("torch_*.py")):
        found.update(importlib.import_module(f"tests.ops.{path.stem}").TORCH)
    return found


TORCH = _torch_references()
COMPARED = [(n, s) for n, s in SAMPLES if isinstance(s.apply, Op) and s.apply.name in TORCH]


def test_every_op_has_samples() -> None:
    sampled = {name.split("-")[0] for name, _ in SAMPLES}
    assert [name for name in registry() if name not in sampled and "." not in name] == []


@EACH
def test_evaluation_has_the_inferred_type(sample: Sample) -> None:
    harness.check_evaluation(sample)


@EACH
def test_text_round_trip(sample: Sample) -> None:
    harness.check_text(sample)


@EACH
def test_symbolic_inference(sample: Sample) -> None:
    harness.check_symbolic(sample)


@EACH
def test_decomposition_equals_evaluation(sample: Sample) -> None:
    harness.check_decomposition(sample)


@EACH
def test_gradient_equals_finite_differences(sample: Sample) -> None:
    harness.check_gradient(sample)


@pytest.mark.parametrize("sample", [s for _, s in COMPARED], ids=[n for n, _ in COMPARED])
def test_agrees_with_torch(sample: Sample) -> None:
    assert isinstance(sample.apply, Op)
    harness.check_against_torch(sample, TORCH[sample.apply.name])
