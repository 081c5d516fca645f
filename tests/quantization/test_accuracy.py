"""Points lost by quantization on a task that is trained here, beside ONNX Runtime."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("onnxruntime")

from benchmarks.quantization.__main__ import SCHEMES, measure
from benchmarks.quantization.tasks import TASKS

MOST_POINTS = {"w4": 1.0, "w3": 3.0}
"""Lost by schemes of a few bits; the others may lose half a point."""


def check(name: str, steps: int | None, schemes: tuple[str, ...]) -> None:
    task = TASKS[name]() if steps is None else TASKS[name](steps)
    rows = measure(task, schemes, peers=False)
    assert float(rows[0]["score"]) > (50.0 if name == "characters" else 93.0)
    for row in rows[1:]:
        assert float(row["lost"]) <= MOST_POINTS.get(str(row["scheme"]), 0.5), row


def test_digits_lose_half_a_point_at_most() -> None:
    check("digits-mlp", 300, ("int8", "int8-symmetric", "int8-mse", "w8", "w4"))


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_every_task_keeps_its_score_in_every_scheme(name: str) -> None:
    check(name, None, SCHEMES)
