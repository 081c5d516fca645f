"""Types and tensor contents: dtypes, promotion, packing, digests, equality by bits."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from monograph.errors import InputError
from monograph.ir.data import ArrayData, pack, unpack
from monograph.ir.dims import Symbol
from monograph.ir.types import DTYPES, TensorType, dtype_of, promote, type_of_array


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_has_an_array_of_its_own(name: str) -> None:
    dtype = DTYPES[name]
    array = np.zeros(3, dtype.numpy)
    assert dtype_of(array.dtype) is dtype
    assert dtype_of(name) is dtype
    assert str(type_of_array(array)) == f"{name}[3]"


def test_an_unknown_dtype_is_refused() -> None:
    with pytest.raises(InputError, match="'f33' is not a dtype"):
        dtype_of("f33")


@pytest.mark.parametrize(
    ("a", "b", "meet"),
    [
        ("f32", "f64", "f64"),
        ("i64", "f16", "f16"),
        ("f16", "bf16", "f32"),
        ("f8e4m3fn", "f8e5m2", "f16"),
        ("i8", "u8", "i16"),
        ("i64", "u64", "i64"),
        ("bool", "u8", "u8"),
        ("f64", "c64", "c128"),
        ("i32", "i32", "i32"),
    ],
)
def test_promotion_is_symmetric(a: str, b: str, meet: str) -> None:
    assert promote(DTYPES[a], DTYPES[b]) is DTYPES[meet]
    assert promote(DTYPES[b], DTYPES[a]) is DTYPES[meet]


def test_packed_types_count_their_bits() -> None:
    assert TensorType(DTYPES["i4"], (3,)).nbytes == 2
    assert TensorType(DTYPES["f32"], (3, 5)).nbytes == 60
    n = Symbol("n")
    assert str(TensorType(DTYPES["f32"], (n, 4)).nbytes) == "16*n"


@pytest.mark.parametrize("name", ["i4", "u4", "i2", "u2", "f4e2m1fn"])
def test_packing_round_trips_every_code(name: str) -> None:
    dtype = DTYPES[name]
    codes = np.arange(1 << dtype.bits, dtype=np.uint8)
    array = unpack(pack(codes, dtype.bits), dtype, (len(codes),))
    assert array.dtype == dtype.numpy
    again = unpack(pack(array, dtype.bits), dtype, array.shape)
    np.testing.assert_array_equal(again.view(np.uint8), array.view(np.uint8))


def test_four_bits_pack_lowest_first() -> None:
    array = np.array([1, -1, 3], ml_dtypes.int4)
    assert pack(array, 4).tolist() == [0xF1, 0x03]


def test_data_is_equal_by_bits() -> None:
    assert ArrayData(np.float32(np.nan)) == ArrayData(np.float32(np.nan))
    assert ArrayData(np.float32(0.0)) != ArrayData(np.float32(-0.0))
    assert ArrayData(np.float32(1.0)) != ArrayData(np.float64(1.0))
    assert ArrayData(np.zeros((2, 3))) != ArrayData(np.zeros((3, 2)))


def test_data_is_shared_and_read_only() -> None:
    array = np.ones(4, np.float32)
    data = ArrayData(array)
    assert np.shares_memory(data.array(), array)
    with pytest.raises(ValueError, match="read-only"):
        data.array()[0] = 2.0
    array[0] = 3.0  # the owner still may


@pytest.mark.parametrize(
    ("array", "splat"),
    [
        (np.full((2, 3), 7.0), True),
        (np.array([0.0, -0.0]), False),
        (np.array([np.nan, np.nan]), True),
        (np.zeros((0, 3)), False),
        (np.full(5, 1 + 2j), True),
        (np.array([True, True, False]), False),
    ],
)
def test_splats_are_found_by_bits(array: np.ndarray, splat: bool) -> None:
    assert (ArrayData(array).splat is not None) == splat
