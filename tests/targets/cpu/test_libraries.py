"""Ops that NumPy's libraries compute: from which sizes, with which results, and who is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.errors import MonographError
from monograph.program.code import Interpret, LibraryCall, walk_steps
from monograph.report.data import record, report_data
from monograph.report.program_facts import step_facts
from monograph.targets.cpu.libraries import LAPACK, MAX_PRIME_FACTOR, MIN_ROWS, POCKETFFT

GENERATOR = np.random.default_rng(0)


def compiled(function: Callable[..., Any], *types: str, threads: int = 1) -> Any:
    return monograph.compile(function, *types, cache=False, threads=threads, strict=True)


def libraries(model: Any) -> list[str]:
    code = model.executable.code
    return [step.library for step in walk_steps(code.steps) if isinstance(step, LibraryCall)]


@pytest.mark.parametrize(
    ("length", "library"),
    [(64, []), (151, []), (2 * 151, []), (211, [POCKETFFT]), (4 * 211, [POCKETFFT])],
)
def test_lengths_with_a_large_prime_factor_are_transformed_by_a_library(
    length: int, library: list[str]
) -> None:
    assert 151 < MAX_PRIME_FACTOR < 211
    model = compiled(lambda x: F.rfft(x) * 2.0, f"f32[3, {length}]")
    assert libraries(model) == library
    x = GENERATOR.standard_normal((3, length)).astype(np.float32)
    expected = 2 * np.fft.rfft(x.astype(np.float64))
    assert np.linalg.norm(model(x) - expected) < 1e-6 * np.linalg.norm(expected)


def test_a_free_batch_of_a_known_length_is_transformed_by_a_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("monograph.targets.cpu.libraries.MAX_PRIME_FACTOR", 0)  # for any threads
    model = compiled(F.fft, "c64[n, 211]")
    assert libraries(model) == [POCKETFFT]
    for rows in (1, 5):
        x = GENERATOR.standard_normal((rows, 211)).astype(np.complex64)
        np.testing.assert_allclose(model(x), np.fft.fft(x), rtol=0, atol=1e-4)


def test_a_free_length_keeps_its_loops_and_says_why() -> None:
    model = compiled(F.fft, "c64[2, n]")
    assert libraries(model) == []
    assert "its length is free" in str(monograph.explain(model.executable))


def test_large_matrices_go_to_lapack() -> None:
    model = compiled(F.eigh_values, "f32[256, 256]")
    assert libraries(model) == [LAPACK]
    x = GENERATOR.standard_normal((256, 256)).astype(np.float32)
    expected = np.linalg.eigvalsh(x.astype(np.float64), "L")
    np.testing.assert_allclose(model(x), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("shape", ["255, 255", "2, 256, 256"])
def test_small_matrices_and_batches_have_loops(shape: str) -> None:
    assert min(MIN_ROWS.values()) > 255
    assert libraries(compiled(F.eigh_values, f"f32[{shape}]")) == []


def test_a_singular_matrix_is_an_error_that_names_the_node() -> None:
    model = compiled(F.inverse, "f32[512, 512]")
    assert libraries(model) == [LAPACK]
    with pytest.raises(MonographError, match="inverse") as caught:
        model(np.zeros((512, 512), np.float32))
    assert "Singular" in str(caught.value)


def test_who_is_told(tmp_path: Path) -> None:
    model = compiled(lambda x: F.fft(x) + 1.0, "c64[2, 211]")
    executable = model.executable
    assert not executable.report.fallbacks
    assert not any(isinstance(step, Interpret) for step in walk_steps(executable.code.steps))
    explained = monograph.explain(executable)
    assert explained.library_calls == {f"{POCKETFFT}: fft": 1}
    assert f"1 × {POCKETFFT}: fft" in str(explained)
    assert next(fact["what"] for fact in step_facts(executable, {})) == "librarycall"
    facts: Any = report_data(record(executable)).facts
    assert facts["summary"]["libraries"] == explained.library_calls
    executable.save(tmp_path / "fft.mono")
    loaded = monograph.load(tmp_path / "fft.mono")
    x = GENERATOR.standard_normal((2, 211)).astype(np.complex64)
    np.testing.assert_array_equal(loaded(x)[0], model(x))
    assert explained.library_calls == monograph.explain(loaded).library_calls
