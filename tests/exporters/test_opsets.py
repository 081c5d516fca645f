"""Older opsets: the first sample of every op, in each."""

from __future__ import annotations

import numpy as np
import pytest

from monograph.exporters.onnx import NEWEST_OPSET, OLDEST_OPSET, to_onnx
from monograph.exporters.onnx.registry import is_exported
from monograph.ir.interpret import interpret
from monograph.ir.op import Sample, registry
from tests.exporters import running, tables
from tests.ops import harness

SINCE = {
    **dict.fromkeys(("decode_image", "regex_full_match", "string_concat", "string_split"), 20),
    "bitcast": 26,
    "blocked_linear": 21,  # whose first sample holds numbers of four bits
    "translate": 19,  # which compares strings
}
"""Ops that older opsets cannot express."""

FIRST: dict[str, Sample] = {}
for name, sample in harness.all_samples():
    op = name.split("-")[0]
    if op in ("quantize", "dequantize") and sample.note != "i8":
        continue  # narrower dtypes came later
    if is_exported(registry()[op]) and op not in tables.NOT_IN_ONNX_RUNTIME:
        FIRST.setdefault(op, sample)


@pytest.mark.parametrize("op", FIRST)
def test_an_op_in_older_opsets(op: str) -> None:
    sample = FIRST[op]
    graph = harness.sample_graph(sample)
    arrays = [np.asarray(array) for array in sample.operands]
    passed, expected = [running.as_pairs(array) for array in arrays], interpret(graph, arrays)
    for opset in range(max(OLDEST_OPSET, SINCE.get(op, 0)), NEWEST_OPSET):
        model = to_onnx(graph, opset=opset)
        assert {entry.version for entry in model.opset_import if not entry.domain} == {opset}
        running.check(model)
        running.assert_equal(running.run_in_onnx_runtime(model, passed), expected)
