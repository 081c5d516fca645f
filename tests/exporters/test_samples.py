"""Every sample of every op: export, check, run, compare with the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monograph.errors import UnsupportedError
from monograph.exporters.onnx import to_onnx
from monograph.exporters.onnx.registry import is_exported
from monograph.ir.interpret import interpret
from monograph.ir.op import Sample, registry
from tests.exporters import running, tables
from tests.exporters.tables import entry
from tests.ops import harness

SAMPLES = list(harness.all_samples())
EACH = pytest.mark.parametrize(("name", "sample"), SAMPLES, ids=[name for name, _ in SAMPLES])


OPS = registry()


def is_unsupported(name: str) -> bool:
    """A primitive that nobody has said how to export, or a sample that cannot be."""
    return name in tables.UNSUPPORTED_SAMPLES or not is_exported(OPS[name.split("-")[0]])


@EACH
def test_onnx_runtime_computes_what_the_interpreter_does(name: str, sample: Sample) -> None:
    graph = harness.sample_graph(sample)
    if is_unsupported(name):
        with pytest.raises(UnsupportedError) as caught:
            to_onnx(graph)
        assert [problem.op for problem in caught.value.problems] == [name.split("-")[0]]
        assert "harness.py" in caught.value.problems[0].where
        return
    model = to_onnx(graph)
    running.check(model)
    arrays = [np.asarray(array) for array in sample.operands]
    passed = [running.as_pairs(array) for array in arrays]
    expected = interpret(graph, arrays)
    reason = not_in_runtime(name)
    if reason is None:
        got = running.run_in_onnx_runtime(model, passed)
        running.assert_equal(got, expected)
        assert running.same_zeros(got, expected) or entry(tables.ZEROS_WITHOUT_SIGN, name)
    else:
        _assert_refused(model, passed, reason)
        running.assert_equal(running.run_in_reference(model, passed), expected)


def not_in_runtime(name: str) -> str | None:
    """What ONNX Runtime says against a sample."""
    reason = entry(tables.NOT_IN_ONNX_RUNTIME, name)
    return None if name in tables.IN_ONNX_RUNTIME_AFTER_ALL else reason


def _assert_refused(model: Any, arrays: Any, reason: str) -> None:
    """ONNX Runtime says what the table says; it may have a locale that others lack."""
    try:
        running.run_in_onnx_runtime(model, arrays)
    except Exception as error:
        assert reason in str(error), error
    else:
        assert reason == tables.NO_LOCALE, "ONNX Runtime runs it now: take it from the table"


def test_the_tables_name_ops_and_samples_that_there_are() -> None:
    names = {name for name, _ in SAMPLES} | {name.split("-")[0] for name, _ in SAMPLES}
    listed = [
        *(tables.UNSUPPORTED | tables.UNSUPPORTED_SAMPLES | tables.NOT_IN_ONNX_RUNTIME),
        *(tables.IN_ONNX_RUNTIME_AFTER_ALL | tables.ZEROS_WITHOUT_SIGN),
    ]
    assert [name for name in listed if name not in names] == []


def test_what_is_unsupported_stays_so_until_its_line_is_taken_out() -> None:
    assert [name for name in tables.UNSUPPORTED if is_exported(OPS[name])] == []


def test_coverage(capsys: pytest.CaptureFixture[str]) -> None:
    """Counts what the other test proves, and prints it."""
    refused = [name for name, _ in SAMPLES if is_unsupported(name)]
    reference = [name for name, _ in SAMPLES if not_in_runtime(name)]
    total = len(SAMPLES)
    by_runtime = total - len(refused) - len(reference)
    ops = sorted({name.split("-")[0] for name in refused})
    new = [name for name in ops if name not in tables.UNSUPPORTED and "-" not in name]
    with capsys.disabled():
        print(
            f"\nto_onnx: {by_runtime} of {total} samples equal in ONNX Runtime, "
            f"{len(reference)} in ONNX's reference evaluator, "
            f"{len(refused)} unsupported: {', '.join(ops)}"
        )
        if new:
            print(f"to_onnx: not in the table yet: {', '.join(new)}")
    assert by_runtime + len(reference) > 1500
