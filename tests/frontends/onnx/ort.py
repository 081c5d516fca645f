"""One node through ONNX Runtime and through Monograph, on the same operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto, NodeProto, helper, numpy_helper

from monograph.frontends.onnx import from_onnx
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from monograph.ir.verify import verify

Arrays = Sequence[Any]


def one_node(
    op: str,
    operands: Arrays,
    outputs: int | Sequence[bool] = 1,
    *,
    domain: str = "",
    onnx: int = 21,
    constant: Sequence[int] = (),
    **attributes: Any,
) -> tuple[ModelProto, dict[str, Any]]:
    """A model of one node, and what to feed it; operands in ``constant`` are initializers.

    An operand that is None is omitted, as is an output that is False. ``onnx`` is the opset.
    """
    wanted = [True] * outputs if isinstance(outputs, int) else list(outputs)
    names = [f"x{index}" if each is not None else "" for index, each in enumerate(operands)]
    results = [f"y{index}" if each else "" for index, each in enumerate(wanted)]
    node = helper.make_node(op, names, results, domain=domain, **attributes)
    given = {name: each for name, each in zip(names, operands, strict=True) if name}
    fixed = [position for position, name in enumerate(given) if int(name[1:]) in constant]
    return model_of([node], given, results, onnx, fixed)


def model_of(
    nodes: Sequence[NodeProto],
    operands: Mapping[str, Any],
    results: Sequence[str],
    opset: int,
    constant: Sequence[int] = (),
) -> tuple[ModelProto, dict[str, Any]]:
    """A model of these nodes; ONNX Runtime works out the types of its outputs."""
    given = {name: np.asarray(each) for name, each in operands.items() if name}
    fixed = {name for position, name in enumerate(operands) if position in constant and name}
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in given.items()
        if name not in fixed
    ]
    graph = helper.make_graph(
        nodes,
        "one",
        inputs,
        [helper.make_empty_tensor_value_info(name) for name in results if name],
        [numpy_helper.from_array(given[name], name) for name in sorted(fixed)],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    imports.append(helper.make_opsetid("ai.onnx.ml", 3))
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return model, {name: array for name, array in given.items() if name not in fixed}


def run_ort(model: ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    """What ONNX Runtime makes of a model, its graph as it is."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, dict(feeds)))


def compare(
    op: str, operands: Arrays, outputs: int | Sequence[bool] = 1, *, rtol: float = 1e-5,
    atol: float = 1e-6, steps: int = 0, **options: Any,
) -> Graph:  # fmt: skip
    """Both must give the same; quantized results may be ``steps`` apart. Returns our graph."""
    model, feeds = one_node(op, operands, outputs, **options)
    return agree(model, feeds, rtol=rtol, atol=atol, steps=steps)


def agree(
    model: ModelProto, feeds: Mapping[str, Any], *, rtol: float = 1e-5, atol: float = 1e-6,
    steps: int = 0,
) -> Graph:  # fmt: skip
    """Both must make the same of a whole model. Returns our graph."""
    expected = run_ort(model, feeds)
    graph = from_onnx(model)
    verify(graph)
    found = interpret(graph, feeds)
    assert len(found) == len(expected)
    for got, want in zip(found, expected, strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape, (got.dtype, got.shape, want)
        if want.dtype.kind in "bOU":
            np.testing.assert_array_equal(got, want)
        elif want.dtype.kind in "iu":
            assert np.abs(got.astype(np.int64) - want.astype(np.int64)).max(initial=0) <= steps
        else:
            np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)
    return graph


def op_names(graph: Graph) -> list[str]:
    """The names of the ops in a graph, in order."""
    return [node.op.name for node in graph.nodes]
