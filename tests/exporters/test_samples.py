"""Every sample of every op: export, check, run, compare with the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monograph.errors import UnsupportedError
from monograph.exporters.onnx import to_onnx
from monograph.ir.interpret import interpret
from monograph.ir.op import Sample
from tests.exporters import running, tables
from tests.exporters.tables import entry
from tests.ops import harness

SAMPLES = list(harness.all_samples())
EACH = pytest.mark.parametrize(("name", "sample"), SAMPLES, ids=[name for name, _ in SAMPLES])


def is_unsupported(name: str) -> bool:
    return (entry(tables.UNSUPPORTED, name) or entry(tables.UNSUPPORTED_SAMPLES, name)) is not None


@EACH
def test_onnx_runtime_computes_what_the_interpreter_does(name: str, sample: Sample) -> None:
    graph = harness.sample_graph(sample)
    if is_unsupported(name):
        with pytest.raises(UnsupportedError):
            to_onnx(graph)
        return
    model = to_onnx(graph)
    running.check(model)
    arrays = [np.asarray(array) for array in sample.operands]
    passed = [running.as_pairs(array) for array in arrays]
    expected = interpret(graph, arrays)
    reason = entry(tables.NOT_IN_ONNX_RUNTIME, name)
    if reason is None:
        got = running.run_in_onnx_runtime(model, passed)
        running.assert_equal(got, expected)
        assert running.same_zeros(got, expected) or entry(tables.ZEROS_WITHOUT_SIGN, name)
        return
    if not _refuses(model, passed, reason) or entry(tables.NOT_ANYWHERE, name):
        return
    running.assert_equal(running.run_in_reference(model, passed), expected)


def _refuses(model: Any, arrays: Any, reason: str) -> bool:
    """Whether ONNX Runtime says what the table says; it may have a locale that others lack."""
    try:
        running.run_in_onnx_runtime(model, arrays)
    except Exception as error:
        assert reason in str(error), error
        return True
    assert reason == tables.NO_LOCALE, "ONNX Runtime runs it now: take it from the table"
    return False


def test_the_tables_name_ops_and_samples_that_there_are() -> None:
    names = {name for name, _ in SAMPLES} | {name.split("-")[0] for name, _ in SAMPLES}
    listed = [
        *(tables.UNSUPPORTED | tables.UNSUPPORTED_SAMPLES | tables.NOT_IN_ONNX_RUNTIME),
        *(tables.NOT_ANYWHERE | tables.ZEROS_WITHOUT_SIGN),
    ]
    assert [name for name in listed if name not in names] == []


def test_coverage(capsys: pytest.CaptureFixture[str]) -> None:
    """Counts what the other test proves, and prints it."""
    refused = [name for name, _ in SAMPLES if is_unsupported(name)]
    nowhere = [name for name, _ in SAMPLES if name in tables.NOT_ANYWHERE]
    reference = [
        name
        for name, _ in SAMPLES
        if entry(tables.NOT_IN_ONNX_RUNTIME, name) and name not in nowhere
    ]
    total = len(SAMPLES)
    by_runtime = total - len(refused) - len(reference) - len(nowhere)
    ops = sorted({name.split("-")[0] for name in refused})
    with capsys.disabled():
        print(
            f"\nto_onnx: {by_runtime} of {total} samples equal in ONNX Runtime, "
            f"{len(reference)} in ONNX's reference evaluator, {len(nowhere)} checked but not run "
            f"({', '.join(nowhere)}), {len(refused)} unsupported: {', '.join(ops)}"
        )
    assert by_runtime + len(reference) > 1500
