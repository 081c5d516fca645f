"""A new elementwise op is one block: native code, gradient, torch, and ONNX both ways follow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import pytest
import torch

import monograph
from monograph.exporters.onnx import to_onnx
from monograph.ir import op as ops
from monograph.ir.build import Operand
from monograph.ir.graph import Node, Value
from monograph.ir.op import Gradients, Trait, op
from monograph.ir.types import Array
from monograph.ops import elementwise, math
from monograph.ops.elementwise.base import Unary, unary_float
from tests.registries import forgetting

X = np.linspace(-3, 3, 77, dtype=np.float32).reshape(7, 11)


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """The op is of these tests alone."""
    with forgetting():
        define()
        yield


def define() -> None:
    @op("test.wave", traits=Trait.ELEMENTWISE, torch="test_wave::wave", onnx="test.wave::Wave")
    class Wave(Unary):
        """x + sin(x) sin(x)"""

        def evaluate(self, x: Array) -> Any:
            return x + np.sin(x) ** 2

        def vjp(self, node: Node, grad: Value) -> Gradients:
            (x,) = node.operands
            return (grad * (1.0 + 2.0 * math.sin(x) * math.cos(x)),)

        def decompose(self, x: Value) -> Value:
            return elementwise.add(x, math.square(math.sin(x)))


def wave(x: Operand) -> Value:
    return unary_float(ops.lookup("test.wave")(), x)


def expected(x: Array) -> Array:
    return x + np.sin(x) ** 2


def test_it_is_native_code() -> None:
    compiled = monograph.compile(lambda x: wave(x) * 2.0, "f32[7, 11]")
    np.testing.assert_allclose(compiled(X), 2 * expected(X), rtol=1e-5, atol=1e-6)
    assert not compiled.report.fallbacks and len(compiled.report.kernels) == 1


def test_it_has_a_gradient() -> None:
    graph = monograph.trace(lambda x: monograph.functional.sum(wave(x)), "f32[7, 11]")
    (found,) = monograph.compile(monograph.grad(graph))(X)
    np.testing.assert_allclose(found, 1 + np.sin(2 * X), rtol=1e-5, atol=1e-5)


def test_torch_is_read() -> None:
    library = torch.library.Library("test_wave", "DEF")
    library.define("wave(Tensor x) -> Tensor")
    library.impl("wave", lambda x: x + torch.sin(x) ** 2, "CompositeExplicitAutograd")
    library.impl("wave", torch.empty_like, "Meta")
    try:
        function = torch.ops.test_wave.wave
        graph = monograph.from_torch(lambda x: function(x) * 2.0, torch.from_numpy(X))
    finally:
        library._destroy()
    assert "test.wave(" in str(graph)
    np.testing.assert_allclose(monograph.interpret(graph, [X])[0], 2 * expected(X), rtol=1e-6)


def test_onnx_is_read() -> None:
    made = oh.make_node("Wave", ["x"], ["y"], domain="test.wave")
    type_ = (onnx.TensorProto.FLOAT, [7, 11])
    ends = (oh.make_tensor_value_info(name, *type_) for name in ("x", "y"))
    graph = oh.make_graph([made], "g", *([each] for each in ends))
    opsets = [oh.make_opsetid("", 20), oh.make_opsetid("test.wave", 1)]
    read = monograph.from_onnx(oh.make_model(graph, opset_imports=opsets))
    assert "test.wave(" in str(read)
    np.testing.assert_allclose(monograph.interpret(read, [X])[0], expected(X), rtol=1e-6)


def test_onnx_is_written() -> None:
    """In its own domain, also in a local function and in a loop's body; it reads back."""

    @op("test.twice", traits=Trait.ELEMENTWISE)
    class Twice(Unary):
        """wave(wave(x))"""

        def evaluate(self, x: Array) -> Any:
            return expected(expected(x))

        def decompose(self, x: Value) -> Value:
            return wave(wave(x))

    shape = "f32[7, 11]"

    def function(x: Value) -> Any:
        (last,) = monograph.functional.while_loop(
            lambda values: monograph.functional.sum(values[0]) < 0.0,
            lambda values: [wave(values[0]) + 1.0],
            [wave(x)],
        )
        return last, unary_float(Twice(), x)

    graph = monograph.trace(function, shape)
    model = to_onnx(graph)
    onnx.checker.check_model(model)
    assert ("test.wave", 1) in [(each.domain, each.version) for each in model.opset_import]
    assert [node.op_type for node in model.graph.node if node.domain == "test.wave"] == ["Wave"]
    assert [node.op_type for node in model.functions[0].node] == ["Wave", "Wave"]
    for found, wanted in zip(
        monograph.interpret(monograph.from_onnx(model), [X]),
        monograph.interpret(graph, [X]),
        strict=True,
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
