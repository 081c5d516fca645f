"""Contents that are made of others when somebody reads them."""

from __future__ import annotations

import numpy as np

from monograph.ir.data import ArrayData, Data
from monograph.ir.lazy_data import LazyData
from monograph.ir.types import Array
from monograph.ops.elementwise import Multiply
from monograph.ops.shape import Transpose

MATRIX = np.arange(6, dtype=np.float32).reshape(2, 3)


class Counted(Data):
    """A matrix that counts how often it is read, and given back."""

    def __init__(self) -> None:
        self.dtype = ArrayData(MATRIX).dtype
        self.shape = MATRIX.shape
        self.reads = self.unloads = 0

    def array(self) -> Array:
        self.reads += 1
        return MATRIX

    def unload(self) -> None:
        self.unloads += 1


def test_its_type_is_known_before_anything_is_read() -> None:
    source = Counted()
    turned = LazyData(Transpose((1, 0)), (source,))
    assert str(turned.type) == "f32[3, 2]"
    assert source.reads == 0


def test_it_is_made_once_while_somebody_holds_it_and_again_after_that() -> None:
    source = Counted()
    turned = LazyData(Transpose((1, 0)), (source,))
    first = turned.array()
    assert turned.array() is first
    assert source.reads == 1
    np.testing.assert_array_equal(first, MATRIX.T)
    del first
    turned.array()
    assert source.reads == 2


def test_its_memory_is_its_own_and_in_order() -> None:
    array = LazyData(Transpose((0, 1)), (ArrayData(MATRIX),)).array()
    assert array.flags.c_contiguous and not array.flags.writeable
    assert not np.shares_memory(array, MATRIX)


def test_it_may_be_made_of_what_is_computed() -> None:
    factor = ArrayData(np.array([[2.0], [3.0], [4.0]], np.float32))
    scaled = LazyData(Multiply(), (LazyData(Transpose((1, 0)), (ArrayData(MATRIX),)), factor))
    np.testing.assert_array_equal(scaled.array(), MATRIX.T * factor.array())


def test_its_sources_can_be_replaced_and_give_their_memory_back() -> None:
    source = Counted()
    turned = LazyData(Transpose((1, 0)), (ArrayData(MATRIX),)).of(lambda _: source)
    turned.array()
    turned.unload()
    assert (source.reads, source.unloads) == (1, 1)
