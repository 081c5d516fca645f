"""Dtypes that ONNX Runtime has kernels for, and those that are carried in others.

The operands of each op's samples are converted: where the interpreter takes them, ONNX Runtime must
come to the same. f16 is compared within its own rounding because ONNX Runtime may keep more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from monograph.errors import MonographError
from monograph.exporters.onnx import to_onnx
from monograph.exporters.onnx.registry import is_exported
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from monograph.ir.op import Sample, registry
from monograph.ir.types import Kind, dtype_of
from tests.exporters import running, tables
from tests.ops import harness

ROUNDINGS = {"f64": 1e-7, "f16": 4e-3, "bf16": 2e-2, "f8e4m3fn": 0.2, "f8e5m2": 0.3}
INTEGERS = ("i8", "i16", "i64", "u8", "u16", "u32", "u64", "i4", "u4")
SAMPLES_OF_AN_OP = 2

NOT_IN_ONNX_RUNTIME = {
    **dict.fromkeys(("decode_image", "determinant", "roi_align", "string_normalize"), "see tables"),
    "cast": "to 4-bit floats, see tables",
    "while": "Loop carries no 4-bit integers",
    "split_to_sequence": "sequences hold no 8-bit floats",
    "sequence_at": "sequences hold no 8-bit floats, nor 4-bit integers",
}
NO_SUCH_SEQUENCE = ("sequence", "optional", "split_to", "concat_from")


REFUSED = {
    ("bitcast", "f8e4m3fn"): "ONNX Runtime's BitCast knows no 8-bit floats",
    ("bitcast", "f8e5m2"): "ONNX Runtime's BitCast knows no 8-bit floats",
    ("non_max_suppression", "f64"): "ONNX's boxes are f32",
}


def converted(sample: Sample, dtype: str) -> list[np.ndarray]:
    """The operands with floats, or signed integers, in another dtype; as they are if they have."""
    target = dtype_of(dtype)
    kinds = "i" if target.is_integer else "f"
    with np.errstate(all="ignore"):
        return [
            array.astype(target.numpy) if array.dtype.kind in kinds else array
            for array in map(np.asarray, sample.operands)
        ]


def cases() -> Iterator[tuple[str, str, Sample]]:
    ops, taken = registry(), Counter[tuple[str, str]]()
    for name, sample in harness.all_samples():
        op = name.split("-")[0]
        if not is_exported(ops[op]) or name in tables.UNSUPPORTED_SAMPLES:
            continue
        if op in NOT_IN_ONNX_RUNTIME or op.startswith(NO_SUCH_SEQUENCE):
            continue
        for dtype in (*ROUNDINGS, *INTEGERS):
            if (op, dtype) in REFUSED:
                continue
            old = [np.asarray(array).dtype for array in sample.operands]
            new = [array.dtype for array in converted(sample, dtype)]
            if old != new and taken[op, dtype] < SAMPLES_OF_AN_OP and _graph(sample, dtype):
                taken[op, dtype] += 1
                yield f"{name}-as-{dtype}", dtype, sample


def _graph(sample: Sample, dtype: str) -> Graph | None:
    """The graph on converted operands; None where the op has no meaning for them."""
    operands = converted(sample, dtype)
    try:
        graph = harness.sample_graph(sample, operands)
        interpret(graph, operands)
    except (MonographError, ValueError, TypeError, KeyError):
        return None
    return graph


CASES = list(cases())


@pytest.mark.parametrize(
    ("dtype", "sample"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_an_op_in_another_dtype(dtype: str, sample: Sample) -> None:
    operands = converted(sample, dtype)
    graph = _graph(sample, dtype)
    assert graph is not None
    model = to_onnx(graph)
    running.check(model)
    got = running.run_in_onnx_runtime(model, [running.as_pairs(array) for array in operands])
    rounding = ROUNDINGS.get(dtype, 1e-5)
    running.assert_equal(got, interpret(graph, operands), rounding)


def test_there_are_cases_of_every_dtype() -> None:
    counted = Counter(dtype for _, dtype, _ in CASES)
    assert all(counted[dtype] > 100 for dtype in ROUNDINGS)
    assert all(counted[dtype] > 40 for dtype in INTEGERS)
    assert {dtype_of(dtype).kind for dtype in counted} == {Kind.FLOAT, Kind.SIGNED, Kind.UNSIGNED}


def test_whole_numbers_are_divided_exactly_whatever_is_fused() -> None:
    """ONNX Runtime makes c / b of (1 / b) * c, and a remainder of 0 of that."""
    divisors = np.array([-4, 4, 2**62 + 1, -(2**62) - 1, 0, -1, 1])
    for dividend in (1, 7, -(2**63)):
        graph = Graph()
        b = graph.add_input("b", "i64[7]")
        a = graph.add_constant(np.array(dividend))
        known = graph.add_constant(divisors)
        graph.set_outputs(
            [
                graph.add(op, a, divisor)
                for op in ("fmod", "floor_divide", "truncate_divide")
                for divisor in (b, known)
            ]
        )
        running.assert_exports(graph, [divisors])
