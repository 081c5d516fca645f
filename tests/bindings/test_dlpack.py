"""Arrays of other libraries go in and come out by DLPack, without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import monograph
from monograph.errors import InputError
from monograph.ir.interpret import bind_inputs

X = np.arange(12, dtype=np.float32).reshape(3, 4)


class Foreign:
    """An array of a library that nobody here knows."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **arguments: Any) -> Any:
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


@pytest.fixture(scope="module", params=["f32[3, 4]", "f32[rows, 4]"])
def double(request: pytest.FixtureRequest) -> Any:
    return monograph.compile(lambda x: x * 2, request.param, cache=False)


def frozen() -> Any:
    array = X.copy()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "given",
    [
        Foreign(X),
        Foreign(torch.from_numpy(X)),
        torch.from_numpy(X),
        frozen(),
        Foreign(X.T.copy().T),
    ],
    ids=["foreign", "foreign from torch", "torch", "read-only", "strided"],
)
def test_arrays_of_others_are_inputs(double: Any, given: Any) -> None:
    np.testing.assert_array_equal(np.asarray(double(given)), X * 2)


def test_their_memory_is_read_where_it_lies() -> None:
    graph = monograph.trace(lambda x: x * 2, "f32[3, 4]")
    (array,), _ = bind_inputs(graph, [Foreign(X)])
    assert np.shares_memory(array, X)


def test_results_are_taken_by_dlpack(double: Any) -> None:
    result = double(X)
    assert torch.from_dlpack(result).data_ptr() == result.ctypes.data
    assert np.shares_memory(np.from_dlpack(result), result)


def test_jax_gives_and_takes() -> None:
    jax = pytest.importorskip("jax")
    double = monograph.compile(lambda x: x * 2, "f32[3, 4]", cache=False)
    found = double(jax.numpy.asarray(X))
    np.testing.assert_array_equal(jax.numpy.from_dlpack(found), X * 2)


class OnGpu(Foreign):
    def __dlpack__(self, **arguments: Any) -> Any:
        raise BufferError("it is in the memory of device 0")


def test_another_device_is_named(double: Any) -> None:
    with pytest.raises(InputError, match="cannot be read where it lies: it is in the memory"):
        double(OnGpu(X))
