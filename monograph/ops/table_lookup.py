"""Table lookup: elements translated from labels to numbers, or back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from monograph.ir.build import Operand, apply
from monograph.ir.graph import Value
from monograph.ir.op import Op, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType
from monograph.ops import elementwise, index, reduce, slicing
from monograph.ops import shape as shape_ops
from monograph.ops.rules import require, same_dim, same_dtype


@op("translate", traits=Trait.STORAGE)
class Translate(Op):
    """Each element replaced by the value beside its key; ``default`` where there is none.

    Of equal keys the last counts, and a NaN is the key of every NaN.
    """

    def infer(
        self, x: TensorType, keys: TensorType, values: TensorType, default: TensorType
    ) -> TensorType:
        same_dtype(self.name, x, keys)
        same_dtype(self.name, values, default)
        require(
            keys.rank == values.rank == 1 and default.rank == 0,
            "translate: not a table",
            expected="a vector of keys, one of values, and a default",
            found=f"{keys}, {values} and {default}",
        )
        same_dim(self.name, "the keys and the values", keys.shape[0], values.shape[0])
        return x.with_dtype(values.dtype)

    def evaluate(self, x: Array, keys: Array, values: Array, default: Array) -> Array:
        places = {_key(key): place for place, key in enumerate(keys.tolist())}
        found = [places.get(_key(item), -1) for item in x.reshape(-1).tolist()]
        table = np.concatenate([values, default.reshape(1)])
        return table[np.array(found, np.int64)].reshape(x.shape)

    def decompose(self, x: Value, keys: Value, values: Value, default: Value) -> Value:
        if keys.shape[0] == 0:
            return shape_ops.expand(default, x.shape)
        backwards, results = slicing.flip(keys, 0), slicing.flip(values, 0)
        column = shape_ops.unsqueeze(x, -1)
        hot = elementwise.equal(column, backwards)
        if x.dtype.is_float:
            both = elementwise.logical_and(
                elementwise.is_nan(column), elementwise.is_nan(backwards)
            )
            hot = elementwise.logical_or(hot, both)
        chosen = index.take(results, reduce.argmax(hot, -1))
        return elementwise.where(reduce.any(hot, -1), chosen, default)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        names, numbers = np.array(["cat", "dog", "cat"], object), np.array([3, 1, 2])
        animals = np.array([["dog", "cow"], ["cat", ""]], object)
        yield Sample(cls(), (animals, names, numbers, np.array(-1)), "strings to integers")
        yield Sample(cls(), (numbers, numbers, names, np.array("?", object)), "to strings")
        floats = np.array([0.5, np.nan, -0.0], np.float32)
        keys = np.array([np.nan, 0.0, 7.0], np.float32)
        values = np.array([1.5, 2.5, np.inf], np.float32)
        yield Sample(cls(), (floats, keys, values, np.array(9, np.float32)), "floats", False)
        yield Sample(cls(), (floats[:0], keys, numbers, np.array(4)), "empty", False)
        yield Sample(cls(), (floats, keys[:0], numbers[:0], np.array(4)), "no keys", False)
        half = np.array([1, 2], np.float16)
        yield Sample(
            cls(), (half, half[::-1], half, np.array(0, np.float16)), "f16, strided", False
        )


def _key(item: Any) -> Any:
    """An element as a key of a dictionary: all NaNs are one."""
    return None if item != item else item


@function
def translate(x: Operand, keys: Operand, values: Operand, default: Operand) -> Value:
    """Each element of ``x`` replaced by the value beside its key, or by ``default``."""
    return apply(Translate(), x, keys, values, default)
