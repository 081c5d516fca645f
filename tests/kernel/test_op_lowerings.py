"""Every op that says how one element of its result is computed, on every one of its samples.

Each node becomes a kernel of its own, which is run in NumPy and compared with the op's evaluation:
with sizes as they are, with a symbol for the first dimension, and with one for every size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Any

import numpy as np
import pytest

from monograph.errors import EvaluationError, MonographError
from monograph.frontends.trace import trace
from monograph.ir.dims import Symbol
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.interpret import bind_inputs, evaluate_node, interpret, run_nodes
from monograph.ir.op import Op, Sample, registry
from monograph.ir.types import TensorType, f16, f32, type_of_array
from monograph.kernel.evaluate import evaluate_kernel
from monograph.kernel.flatten import flatten
from monograph.kernel.lower import is_lowerable, lower_group
from monograph.kernel.parse import parse_kernel
from monograph.kernel.verify_kernel import verify_kernel
from monograph.ops import data, elementwise, index, slicing
from monograph.passes.lower_composites import LowerComposites
from tests.ops.harness import assert_close, check_each, sample_graph, samples_by_op


class Sizes(Enum):
    """Which dimensions are symbols."""

    STATIC = auto()
    FIRST = auto()
    SYMBOLIC = auto()


def _graph(sample: Sample, sizes: Sizes) -> Graph | None:
    """The sample as a graph; None if its op does not take symbols there."""
    types = [type_of_array(np.asarray(array)) for array in sample.operands]
    if sizes is not Sizes.STATIC and not any(t.shape for t in types[:1]):
        return None
    if sizes is Sizes.FIRST:
        size, symbol = types[0].shape[0], Symbol("n", 0)
        types = [
            TensorType(t.dtype, (symbol, *t.shape[1:])) if t.shape and t.shape[0] == size else t
            for t in types
        ]
    if sizes is Sizes.SYMBOLIC:
        types = [
            TensorType(t.dtype, tuple(1 if n == 1 else Symbol(f"n{n}", 0) for n in t.shape))
            for t in types
        ]
    try:
        return trace(sample.apply, *types, name="sample")
    except MonographError:
        return None


SAMPLES = samples_by_op()
EACH = pytest.mark.parametrize("name", SAMPLES)


def _check_each(
    name: str,
    graph_of: Callable[[Sample], Graph | None],
    check: Callable[[Sample, Graph], None],
) -> None:
    """Check the samples of an op of which a graph is made that has something to lower."""

    def checked(sample: Sample) -> None:
        graph = graph_of(sample)
        if graph is not None and any(map(is_lowerable, graph.nodes)):
            check(sample, graph)

    check_each(SAMPLES[name], checked)


def _check(sample: Sample, graph: Graph) -> None:
    """Every node that has a lowering computes what its op evaluates to."""
    arrays, bindings = bind_inputs(graph, list(sample.operands))

    def evaluate(node: Node, operands: list[Any]) -> Sequence[Any]:
        expected = evaluate_node(node, operands, bindings)
        if is_lowerable(node):
            given = dict(zip(node.operands, operands, strict=True))
            for value, array in zip(node.results, expected, strict=True):
                _assert_same(_computed([node], value, given, bindings), array)
        return expected

    with np.errstate(all="ignore"):
        run_nodes(graph, arrays, evaluate)


def _computed(
    nodes: Sequence[Node], value: Value, given: Mapping[Value, Any], sizes: Mapping[Symbol, int]
) -> Any:
    """A value as the kernel of these nodes gives it."""
    place = tuple(range(value.rank))
    kernel, inputs = lower_group("sample", nodes, value.shape, {value: place})
    verify_kernel(kernel)
    flat = flatten(kernel)
    assert parse_kernel(str(flat)) == flat
    (result,) = evaluate_kernel(kernel, [given[each] for each in inputs], sizes)
    if not value.dtype.is_complex:
        return result
    if result.dtype == np.int64:  # they are only moved
        return result.view(value.dtype.numpy)
    whole = np.empty(result.shape[:-1], value.dtype.numpy)
    whole.real, whole.imag = result[..., 0], result[..., 1]
    return whole


def _assert_same(got: Any, expected: Any) -> None:
    assert got.dtype == expected.dtype
    assert_close(got, expected, special=True)
    if got.dtype.kind == "f":
        zeros = (got == 0) & (expected == 0)
        np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(expected[zeros]))


@EACH
def test_a_lowering_computes_what_the_op_evaluates_to(name: str) -> None:
    _check_each(name, lambda sample: _graph(sample, Sizes.STATIC), _check)


@EACH
def test_a_lowering_holds_for_a_symbolic_first_dimension(name: str) -> None:
    _check_each(name, lambda sample: _graph(sample, Sizes.FIRST), _check)


@EACH
def test_a_lowering_holds_for_symbolic_sizes(name: str) -> None:
    _check_each(name, lambda sample: _graph(sample, Sizes.SYMBOLIC), _check)


def _decomposed(sample: Sample) -> Graph | None:
    """A composite as the graph of primitives that it is; None if some have no lowering."""
    if not isinstance(sample.apply, Op) or not sample.apply.is_composite():
        return None
    graph = sample_graph(sample)
    LowerComposites().run(graph)
    nodes = [node for node in graph.nodes if node.op.name != "constant"]
    return graph if nodes and all(map(is_lowerable, nodes)) else None


def _check_as_one_kernel(sample: Sample, graph: Graph) -> None:
    expected = interpret(graph, list(sample.operands))
    given = dict(zip(graph.inputs, sample.operands, strict=True))
    constants = [node for node in graph.nodes if node.op.name == "constant"]
    given |= {node.result: node.op.evaluate() for node in constants}
    nodes = [node for node in graph.nodes if node not in constants]
    for value, array in zip(graph.outputs, expected, strict=True):
        assert_close(_computed(nodes, value, given, {}), array, special=True)


@pytest.mark.parametrize("name", [name for name in SAMPLES if registry()[name].is_composite()])
def test_one_kernel_of_many_nodes_computes_what_they_do_one_by_one(name: str) -> None:
    _check_each(name, _decomposed, _check_as_one_kernel)


def test_every_lowering_has_a_sample() -> None:
    tried = {
        node.op.name
        for samples in SAMPLES.values()
        for _, sample in samples
        for node in (_graph(sample, Sizes.STATIC) or Graph("none")).nodes
        if is_lowerable(node)
    }
    lowered = {name for name, op in registry().items() if op.has_lowering() and "." not in name}
    assert lowered - tried == set()


def _run(apply: Callable[..., Value], *operands: Any, types: Sequence[TensorType] = ()) -> Any:
    """The result of one op, through its lowering."""
    graph = trace(apply, *(types or [type_of_array(array) for array in operands]), name="sample")
    arrays, sizes = bind_inputs(graph, list(operands))
    given = dict(zip(graph.inputs, arrays, strict=True))
    return _computed(list(graph.nodes), graph.outputs[0], given, sizes)


def test_an_index_that_is_data_is_checked() -> None:
    x = np.arange(4, dtype=np.float32)
    for outside in (4, -5, np.iinfo(np.int64).min):
        with pytest.raises(EvaluationError, match="outside"):
            _run(index.take, x, np.array([0, outside]))
    with pytest.raises(EvaluationError, match="outside"):
        _run(index.take, x, np.array([2**64 - 1], np.uint64))


def test_a_dimension_that_may_be_one_is_stretched_when_it_is() -> None:
    rows, others = Symbol("rows", 1), Symbol("others", 1)
    types = [TensorType(f32, (rows, 2)), TensorType(f32, (others, 2))]
    x, y = np.ones((3, 2), np.float32), np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(_run(elementwise.add, x, y[:1], types=types), x + y[:1])
    np.testing.assert_array_equal(_run(elementwise.add, x, y, types=types), x + y)


def test_padding_nothing_reads_nothing() -> None:
    types = [TensorType(f32, (Symbol("n", 0),))]
    empty = np.zeros(0, np.float32)
    padded = _run(lambda x: slicing.pad(x, (2,), (1,), 7.0), empty, types=types)
    np.testing.assert_array_equal(padded, np.full(3, 7, np.float32))


def test_a_number_that_fills_a_narrow_tensor_is_rounded_to_its_dtype() -> None:
    def scaled(x: Value) -> Value:
        wide = elementwise.cast(data.full((1,), 0.1, f16), f32)
        return elementwise.multiply(x, wide)

    x = np.full(1, 3, np.float32)
    np.testing.assert_array_equal(_run(scaled, x), x * np.float32(np.float16(0.1)))
