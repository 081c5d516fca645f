"""copy, alloc, free and to_device."""

from __future__ import annotations

import numpy as np
import pytest

from monograph.autodiff.vjp import grad
from monograph.errors import TypeRuleError
from monograph.frontends.trace import trace
from monograph.ir.graph import Graph, Value
from monograph.ir.interpret import interpret
from monograph.ir.text.parser import parse
from monograph.ir.types import DTYPES, Device, TensorType, f32
from monograph.ir.verify import verify
from monograph.ops import reduce
from monograph.ops.memory import alloc, copy, free, to_device, unwritten
from monograph.passes.cse import CommonSubexpressionElimination
from monograph.passes.dce import DeadCodeElimination
from monograph.passes.fold_constants import FoldConstants

DEVICE_X = TensorType(f32, (2, 3), device=Device("gpu", 1))


def test_a_copy_has_memory_of_its_own() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (copied,) = interpret(trace(copy, x.T), [x.T])
    np.testing.assert_array_equal(copied, x.T)
    assert not np.shares_memory(copied, x)
    assert copied.flags.c_contiguous


def test_a_copy_stays_on_its_device() -> None:
    assert trace(copy, DEVICE_X).outputs[0].type == DEVICE_X


@pytest.mark.parametrize("name", [name for name in DTYPES if name != "string"])
def test_unwritten_memory_never_reads_as_zeros(name: str) -> None:
    dtype = DTYPES[name]
    array = unwritten((3, 5), dtype)
    assert array.shape == (3, 5)
    assert array.dtype == dtype.numpy
    assert np.all(array.astype(np.complex128) != 0)


def test_unwritten_memory_holds_nan_and_the_byte_ab() -> None:
    assert np.isnan(unwritten((2,), DTYPES["f32"])).all()
    assert np.isnan(unwritten((2,), DTYPES["bf16"]).astype(np.float32)).all()
    assert unwritten((), DTYPES["u32"]) == 0xABABABAB
    np.testing.assert_array_equal(unwritten((3,), DTYPES["u4"]).astype(int), [0xB, 0xA, 0xB])


def test_alloc_takes_symbolic_shapes_and_devices() -> None:
    graph = trace(lambda x: alloc((x.shape[0], 4), "i8", "gpu:1"), "f32[n]")
    assert str(graph.outputs[0].type) == "i8[n, 4]@gpu:1"
    assert str(parse(str(graph))) == str(graph)
    assert interpret(graph, [np.zeros(3, np.float32)])[0].shape == (3, 4)


def test_allocations_are_neither_merged_nor_removed() -> None:
    graph = trace(lambda: (alloc((2,)), alloc((2,))))
    alloc_and_drop = trace(lambda x: (alloc((2,)), x)[1], "f32[1]")
    CommonSubexpressionElimination().run(graph)
    DeadCodeElimination().run(alloc_and_drop)
    assert len(graph) == 2
    assert len(alloc_and_drop) == 1


@pytest.mark.parametrize(("shape", "dtype"), [((-1,), "f32"), ((2,), "string")])
def test_alloc_refuses(shape: tuple[int, ...], dtype: str) -> None:
    with pytest.raises(TypeRuleError, match="alloc"):
        trace(lambda: alloc(shape, dtype))


def test_free_has_no_results_and_stays() -> None:
    def function(x: Value) -> Value:
        y = x * 2.0
        total = reduce.sum(y)
        free(y)
        return total

    graph = trace(function, "f32[3]")
    DeadCodeElimination().run(graph)
    verify(graph)
    assert [node.op.name for node in graph.nodes][-1] == "free"
    assert str(parse(str(graph))) == str(graph)
    assert interpret(graph, [np.ones(3, np.float32)])[0] == 6


@pytest.mark.parametrize(
    ("spelling", "device"), [("gpu:1", Device("gpu", 1)), ("cpu", Device("cpu")), (None, None)]
)
def test_to_device_names_a_device(spelling: str | None, device: Device | None) -> None:
    graph = trace(lambda x: to_device(x, spelling), DEVICE_X)
    assert graph.outputs[0].tensor.device == device


@pytest.mark.parametrize("spelling", ["", "gpu:", "gpu:x", "gpu:-1", ":1"])
def test_to_device_refuses_what_is_no_device(spelling: str) -> None:
    with pytest.raises(TypeRuleError, match="not a device"):
        trace(lambda x: to_device(x, spelling), "f32[2]")


def test_the_gradient_goes_back_to_the_device_it_came_from() -> None:
    graph: Graph = grad(trace(lambda x: reduce.sum(to_device(x, "cpu") * 3.0), DEVICE_X))
    assert graph.outputs[0].type == DEVICE_X
    np.testing.assert_array_equal(
        interpret(graph, [np.ones((2, 3), np.float32)])[0], np.full((2, 3), 3.0)
    )


def test_a_constant_that_is_moved_to_a_device_stays_moved() -> None:
    graph = trace(lambda x: to_device(np.ones(3, np.float32), "gpu") * x, "f32[3]")
    FoldConstants().run(graph)
    verify(graph)
    assert [node.op.name for node in graph.nodes] == ["constant", "to_device", "multiply"]
