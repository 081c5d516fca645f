"""The page that lists operators says what is true of the ONNX Runtime that is installed."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ValueInfoProto

from monograph.frontends.onnx import find_unsupported, from_onnx
from monograph.frontends.onnx.registry import converters
from monograph.frontends.onnx.support import REFUSED
from monograph.ir.interpret import interpret
from tests.frontends.onnx.contrib_samples import SAMPLES
from tests.frontends.onnx.operator_table import PAGE, REFUSES, cpu_ops, is_read, table
from tests.frontends.onnx.ort import one_node, run_ort


def rows() -> dict[str, str]:
    return dict(re.findall(r"^\| (\w+) \| ([\w ]+) \|", PAGE.read_text(), re.MULTILINE)[1:])


def same_version() -> bool:
    return f"ONNX Runtime {onnxruntime.__version__} " in PAGE.read_text()


def test_every_operator_is_listed_and_refused_only_without_a_converter() -> None:
    if not same_version():
        pytest.skip("the page was written for another ONNX Runtime")
    listed = rows()
    assert sorted(listed) == cpu_ops()
    assert {op for op, state in listed.items() if state == REFUSES} == {
        op for op in listed if not is_read(op)
    }


def test_what_is_refused_on_purpose_has_no_converter() -> None:
    assert not [key for key in REFUSED if key in converters()]


def test_every_operator_that_is_read_has_a_sample() -> None:
    assert [op for op in cpu_ops() if is_read(op) and op not in SAMPLES] == []


IN_PLACE = "SparseAttention"  # its caches must be the same memory; it has a file of its own
OTHERS = [op for op in SAMPLES if op != IN_PLACE]


@pytest.mark.parametrize("op", OTHERS)
def test_samples_agree_with_onnx_runtime(op: str) -> None:
    sample = SAMPLES[op]
    model, feeds = one_node(
        op, sample.operands, sample.outputs, domain="com.microsoft", constant=sample.constant,
        **sample.attributes,
    )  # fmt: skip
    expected = run_ort(model, feeds)
    close(interpret(from_onnx(model), feeds), expected)
    for value in model.graph.input:
        name_batch(value, model.graph.input[0])
    close(interpret(from_onnx(model), feeds), expected)


def close(found: list[Any], expected: list[Any]) -> None:
    for got, want in zip(found, expected, strict=True):
        if want.dtype.kind == "O":
            np.testing.assert_array_equal(got, want)
            continue
        steps = 1 if want.dtype.kind in "iu" else 1e-5
        np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=1e-4, atol=steps)


def name_batch(value: ValueInfoProto, first: ValueInfoProto) -> None:
    """Make the first size of an operand symbolic, and that of others which must be the same."""
    dims, leading = value.type.tensor_type.shape.dim, first.type.tensor_type.shape.dim
    if len(leading) < 2 or len(dims) < 2:
        return
    same = len(dims) > 2 and dims[0].dim_value == leading[0].dim_value
    if value.name == first.name or same:
        dims[0].dim_param = "batch"


@pytest.mark.parametrize(
    ("domain", "op", "advice"),
    [("com.microsoft", "BeamSearch", "search outside of it"), ("ai.onnx.ml", "ZipMap", "zipmap")],
)
def test_what_is_refused_on_purpose_comes_with_advice(domain: str, op: str, advice: str) -> None:
    model, _ = one_node(op, [np.zeros((1, 4), np.float32)], domain=domain)
    (problem,) = find_unsupported(model)
    assert advice in problem.reason


@pytest.mark.slow
def test_the_page_is_what_running_the_operators_gives() -> None:
    if not same_version():
        pytest.skip("the page was written for another ONNX Runtime")
    assert PAGE.read_text() == table()
