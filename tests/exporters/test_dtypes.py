"""Dtypes that ONNX Runtime has kernels for, and those that are carried in others.

The operands of each op's samples are converted: where the interpreter takes them, ONNX Runtime must
come to the same. f16 is compared within its own rounding because ONNX Runtime may keep more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest

from monograph.errors import MonographError
from monograph.exporters.onnx import to_onnx
from monograph.exporters.onnx.registry import is_exported
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from monograph.ir.op import Sample, registry
from monograph.ir.types import Array, dtype_of
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


class Case(NamedTuple):
    """A sample on converted operands, and what the interpreter makes of them."""

    name: str
    graph: Graph
    operands: list[Array]
    expected: list[Array]


def cases(dtype: str) -> Iterator[Case]:
    """The first samples of each op that are converted, and mean something, in the dtype."""
    ops, taken = registry(), Counter[str]()
    for name, sample in harness.all_samples():
        op = name.split("-")[0]
        if not is_exported(ops[op]) or name in tables.UNSUPPORTED_SAMPLES:
            continue
        if op in NOT_IN_ONNX_RUNTIME or op.startswith(NO_SUCH_SEQUENCE) or (op, dtype) in REFUSED:
            continue
        if taken[op] == SAMPLES_OF_AN_OP:
            continue
        operands = converted(sample, dtype)
        if [np.asarray(array).dtype for array in sample.operands] == [x.dtype for x in operands]:
            continue
        try:
            graph = harness.sample_graph(sample, operands)
            expected = interpret(graph, operands)
        except (MonographError, ValueError, TypeError, KeyError):
            continue  # the op has no meaning for them
        taken[op] += 1
        yield Case(name, graph, operands, expected)


@pytest.mark.parametrize("dtype", [*ROUNDINGS, *INTEGERS])
def test_ops_in_another_dtype(dtype: str) -> None:
    count = 0
    for case in cases(dtype):
        try:
            _check(case, ROUNDINGS.get(dtype, 1e-5))
        except Exception as error:
            error.add_note(f"in the sample {case.name}")
            raise
        count += 1
    assert count > (100 if dtype in ROUNDINGS else 40)


def _check(case: Case, rounding: float) -> None:
    model = to_onnx(case.graph)
    running.check(model)
    got = running.run_in_onnx_runtime(model, [running.as_pairs(array) for array in case.operands])
    running.assert_equal(got, case.expected, rounding)


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
