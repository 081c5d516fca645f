"""Kernels whose sizes have other names are one kernel."""

from __future__ import annotations

import numpy as np

from monograph import functional as F
from monograph.ir.dims import Symbol
from monograph.kernel.evaluate import evaluate_kernel
from monograph.kernel.kernel import Kernel
from monograph.kernel.size_names import list_sizes, number_sizes, rename_sizes
from tests.kernel.build import flat


def mean(rows: str, columns: str) -> Kernel:
    return flat(lambda x: F.mean(F.exp(x), 1), f"f32[{rows}, {columns}]")


def test_kernels_that_differ_in_names_are_the_same_with_numbers() -> None:
    one, other = mean("n", "k"), mean("a", "z")
    assert one.digest != other.digest
    assert (
        number_sizes(one, list_sizes(one)).digest == number_sizes(other, list_sizes(other)).digest
    )


def test_sizes_are_told_apart_by_where_they_stand() -> None:
    one, other = mean("n", "k"), mean("n", "n")
    assert (
        number_sizes(one, list_sizes(one)).digest != number_sizes(other, list_sizes(other)).digest
    )


def test_a_kernel_without_symbolic_sizes_mentions_none() -> None:
    assert list_sizes(mean("4", "5")) == ()


def test_a_renamed_kernel_computes_the_same() -> None:
    kernel = mean("n", "4")
    (size,) = list_sizes(kernel)
    other = Symbol("m")
    x = np.arange(12, dtype=np.float32) / 7
    (got,) = evaluate_kernel(rename_sizes(kernel, {size: other}), [x], {other: 3})
    np.testing.assert_allclose(got, np.exp(x.reshape(3, 4)).mean(1), rtol=1e-6)
