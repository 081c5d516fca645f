"""Kernels that begin elsewhere are one kernel on pieces of their buffers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from monograph import functional as F
from monograph.kernel.evaluate import evaluate_kernel
from monograph.kernel.expr import Apply
from monograph.kernel.rebased import (
    RebasedKernel,
    on_pieces,
    rename_by_position,
    without_doubles,
    without_unread,
)
from tests.kernel.build import flat


def pieces(function: Any, *types: str) -> RebasedKernel | None:
    kernel = flat(function, *types)
    return on_pieces(kernel, [buffer.name for buffer in kernel.buffers])


def step(start: int, batch: str = "4") -> RebasedKernel:
    found = pieces(lambda x: F.tanh(x[:, start : start + 2]), f"f32[{batch}, 9, 5]")
    assert found is not None
    return found


def test_slices_that_begin_elsewhere_are_one_kernel() -> None:
    one, other = step(1), step(6)
    assert (one.starts["b0"], other.starts["b0"]) == (5, 30)
    assert one.kernel.digest == other.kernel.digest


def test_a_piece_reaches_to_the_last_element_that_is_read() -> None:
    assert step(1).kernel.inputs[0].shape == (3 * 45 + 10,)


def test_sizes_may_be_symbolic() -> None:
    one, other = step(1, "n"), step(6, "n")
    assert one.kernel.digest == other.kernel.digest
    assert str(one.kernel.inputs[0].shape[0]) == "45*n-35"


def test_a_kernel_on_pieces_computes_the_same() -> None:
    x = np.arange(180, dtype=np.float32).reshape(4, 9, 5)
    found = step(6)
    start, length = found.starts["b0"], found.kernel.inputs[0].shape[0]
    assert isinstance(length, int)
    (got,) = evaluate_kernel(found.kernel, [x.reshape(-1)[start : start + length]])
    np.testing.assert_allclose(got, np.tanh(x[:, 6:8]).reshape(-1), rtol=1e-6)


def test_positions_that_are_read_together_move_together() -> None:
    found = pieces(lambda x: x[3] * x[5], "f32[9, 7]")
    assert found is not None
    assert found.starts["b0"] == 21
    assert found.kernel.inputs[0].shape == (21,)


@pytest.mark.parametrize(
    ("function", "types"),
    [
        (lambda x: F.exp(x), ["f32[9, 7]"]),
        (lambda x, i: F.take(x, i, 0), ["f32[9, 7]", "i64[3]"]),
        (lambda x: F.pad(x, [2], [3]), ["f32[9]"]),
        (lambda x: F.flip(x, 0), ["f32[9]"]),
    ],
    ids=["whole", "data decides", "a condition keeps it inside", "backwards"],
)
def test_what_begins_at_its_first_element_stays(function: Any, types: list[str]) -> None:
    assert pieces(function, *types) is None


def test_only_the_buffers_that_are_named_are_cut() -> None:
    kernel = flat(lambda x, y: x[3] * y[5], "f32[9, 7]", "f32[9, 7]")
    found = on_pieces(kernel, ["b1"])
    assert found is not None
    assert dict(found.starts) == {"b1": 35}
    assert found.kernel.inputs[0] == kernel.inputs[0]


def test_inputs_that_are_not_read_go_and_the_others_are_named_by_place() -> None:
    kernel = flat(lambda x, y, z: x - y * z, "f32[6]", "f32[6]", "f32[6]")
    assert without_unread(kernel) == (kernel, (0, 1, 2))
    alone = flat(lambda y, z: y * z, "f32[6]", "f32[6]")
    (store,) = kernel.stores
    product = next(
        x for x in kernel.expressions() if isinstance(x, Apply) and x.function == "multiply"
    )
    given = replace(kernel, stores=(replace(store, value=product),))
    found, kept = without_unread(given)
    assert kept == (1, 2)
    assert found.digest == alone.digest


def test_an_output_that_is_another_one_is_written_once() -> None:
    kernel = flat(lambda x: F.exp(x), "f32[6]")
    (buffer,), (store,) = kernel.outputs, kernel.stores
    second = replace(buffer, name="o1")
    both = replace(kernel, outputs=(buffer, second), stores=(store, replace(store, buffer=second)))
    assert without_doubles(both, [7, 7]) == (kernel, [7])
    assert without_doubles(both, [7, 8]) == (both, [7, 8])


def test_inputs_are_named_by_their_place() -> None:
    kernel = flat(lambda x, y: F.sum(x, axis=1) - y * x[:, 0], "f32[3, 4]", "f32[3]")
    first, second = (buffer.name for buffer in kernel.inputs)
    assert rename_by_position(kernel) is kernel
    swapped = replace(kernel, inputs=kernel.inputs[::-1])
    named = rename_by_position(swapped)
    assert [buffer.name for buffer in named.inputs] == [first, second]
    assert [buffer.shape for buffer in named.inputs] == [(3,), (12,)]
    x, y = np.arange(12, dtype=np.float32), np.float32([2, 3, 5])
    np.testing.assert_array_equal(
        evaluate_kernel(named, [y, x])[0], evaluate_kernel(kernel, [x, y])[0]
    )
