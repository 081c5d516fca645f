"""Constants in the text form: short to read, and exact to the bit for every dtype."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from monograph.ir.data import ArrayData
from monograph.ir.graph import Graph
from monograph.ir.text import (
    parse,
    print_graph,
)
from monograph.ir.types import (
    DTYPES,
    DType,
    bool_,
    f16,
    f32,
    f64,
    i64,
    string,
)
from tests.ir.probe_ops import round_trip


def constant(array: Any, dtype: DType | None = None) -> str:
    """What stands inside a constant; it must survive the round trip, bit for bit."""
    graph = Graph()
    graph.add_constant(array, dtype)
    again = round_trip(graph)
    first, second = graph.nodes[0].op.data.array(), again.nodes[0].op.data.array()
    assert first.dtype == second.dtype
    assert first.shape == second.shape
    if first.dtype != np.object_:
        assert first.tobytes() == second.tobytes()
    return print_graph(graph).split("constant(")[1].split(") : ")[0]


@pytest.mark.parametrize(
    ("array", "dtype", "printed"),
    [
        (2.0, f32, "2.0"),
        (0.1, f32, "0.1"),
        (1 / 3, f64, "0.3333333333333333"),
        (1 / 3, f32, "0.33333334"),
        (-0.0, f32, "-0.0"),
        (math.inf, f32, "inf"),
        (-math.inf, f16, "-inf"),
        (math.nan, f32, "nan"),
        (True, bool_, "true"),
        ([True, False], bool_, "[true, false]"),
        ([[1, 2], [3, 4]], i64, "[[1, 2], [3, 4]]"),
        ([-(2**63), 2**63 - 1], i64, "[-9223372036854775808, 9223372036854775807]"),
        (2**64 - 1, DTYPES["u64"], "18446744073709551615"),
        ([[7]], i64, "[[7]]"),
        ([5, 5, 5], i64, "splat 5"),
        (np.zeros((100, 100)), f32, "splat 0.0"),
        (np.zeros((0, 3)), f32, "[]"),
        (np.zeros((3, 0)), f32, "[]"),
        ([1 + 2j, 3.5], DTYPES["c64"], "[1.0+2.0j, 3.5+0.0j]"),
        (complex(-0.0, -math.inf), DTYPES["c128"], "-0.0-infj"),
        ("text", string, '"text"'),
        (['a "b"', "naïve\n"], string, '["a \\"b\\"", "naïve\\n"]'),
        ([-8, 7, 0], DTYPES["i4"], "[-8, 7, 0]"),
        ([0, 3], DTYPES["u2"], "[0, 3]"),
        ([0.5, 6.0], DTYPES["f4e2m1fn"], "[0.5, 6.0]"),
        ([0.1, 448.0], DTYPES["f8e4m3fn"], "[0.1, 448.0]"),
        (0.1, DTYPES["bf16"], "0.1"),
    ],
)
def test_constants(array: Any, dtype: DType, printed: str) -> None:
    assert constant(array, dtype) == printed


@pytest.mark.parametrize("name", [n for n, d in DTYPES.items() if d.bits <= 16 and n != "string"])
def test_every_value_of_the_small_dtypes_survives(name: str) -> None:
    dtype = DTYPES[name]
    for array in _every_value(dtype):
        constant(array, dtype)


def _every_value(dtype: DType) -> list[Any]:
    """All values of up to 8 bits one by one and together, or a sweep through those of 16."""
    if dtype is bool_:
        return [np.array([True, False] * 40)]
    if dtype.bits == 16:
        codes = np.concatenate([np.arange(0, 2**16, 251), [0x7C01, 0x7F81, 0xFFFF, 0x8000]])
        values = codes.astype(np.uint16).view(dtype.numpy)
        return [values, *np.split(values[: values.size // 60 * 60], values.size // 60)]
    if dtype.is_integer:
        low = -(1 << (dtype.bits - 1)) if dtype.name.startswith("i") else 0
        values = np.arange(low, low + (1 << dtype.bits)).astype(dtype.numpy)
    else:
        values = np.arange(1 << dtype.bits, dtype=np.uint8).view(dtype.numpy)
    return [values, *(values[index] for index in range(values.size))]


@pytest.mark.parametrize("dtype", [f32, f64, DTYPES["c64"], DTYPES["c128"]], ids=str)
def test_arbitrary_bits_of_the_large_floats_survive(dtype: DType) -> None:
    generator = np.random.default_rng(0)
    raw = generator.integers(0, 256, 64 * dtype.numpy.itemsize, np.uint8).view(dtype.numpy)
    constant(raw, dtype)
    for item in raw:
        constant(item, dtype)
    constant(np.resize(raw, 1000), dtype)


def test_a_nan_with_a_payload_prints_as_bytes() -> None:
    odd = np.array(0x7FC00001, np.uint32).view(np.float32)
    assert constant(odd, f32) == 'base64 "AQDAfw=="'
    assert constant(np.broadcast_to(odd, (5, 5)), f32) == 'splat base64 "AQDAfw=="'
    assert constant(np.array([1.0, odd], np.float32), f32) == 'base64 "AACAPwEAwH8="'


def test_large_constants_print_as_bytes() -> None:
    assert constant(np.arange(65, dtype=np.uint8)).startswith('base64 "AAECAwQF')
    assert constant(np.arange(65).astype(ml_dtypes.int4)).startswith('base64 "EDJUdpi63P4Q')
    assert constant(np.array(["a"] * 65, object)).startswith('["a", "a", ')


def test_strided_and_foreign_arrays_survive() -> None:
    constant(np.arange(200, dtype=np.float32).reshape(10, 20).T[::-1, ::2])
    constant(np.arange(6, dtype=">f4").reshape(2, 3))


def test_an_int_literal_will_do_for_a_float() -> None:
    text = "graph @g() -> () {\n  %c = constant([1, -2, inf]) : bf16[3]\n  return\n}"
    data = parse(text).nodes[0].op.data
    assert data == ArrayData(np.array([1, -2, np.inf]), DTYPES["bf16"])
