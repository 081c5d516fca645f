"""Operations with regions or dimension numbers: control flow, reductions, gathers, contractions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from monograph import functional as F
from monograph.errors import UnsupportedError
from monograph.frontends.stablehlo.operation import Operation, converter
from monograph.frontends.xla import reduction, sorting, windows
from monograph.frontends.xla.contraction import dot_general
from monograph.frontends.xla.convolution import ConvDims, ConvWindow, convolve
from monograph.frontends.xla.gather import Bounds, GatherDims, gather
from monograph.frontends.xla.scatter import ScatterDims, scatter
from monograph.frontends.xla.windows import Window
from monograph.ir.build import constant
from monograph.ir.dims import Shape
from monograph.ir.graph import Graph, Value
from monograph.ir.interpret import interpret
from monograph.ir.types import TensorType
from monograph.ops.data import Constant

KINDS = {
    "stablehlo.add": "add",
    "stablehlo.multiply": "multiply",
    "stablehlo.maximum": "max",
    "stablehlo.minimum": "min",
    "stablehlo.and": "and",
    "stablehlo.or": "or",
    "stablehlo.xor": "xor",
}


@converter("func.call")
def convert_call(operation: Operation) -> list[Value]:
    """A function of the module, in place."""
    name = ir.FlatSymbolRefAttr(operation.attribute("callee")).value
    return operation.reader.call(name, operation.operands, operation.source)


@converter("stablehlo.composite")
def convert_composite(operation: Operation) -> list[Value]:
    """What the composite is made of."""
    name = ir.FlatSymbolRefAttr(operation.attribute("decomposition")).value
    return operation.reader.call(name, operation.operands, operation.source)


@converter("stablehlo.while")
def convert_while(operation: Operation) -> Sequence[Value]:
    """A loop for as long as a condition holds."""
    found: Sequence[Value] = F.while_loop(
        lambda carry: operation.region(0, carry)[0],
        lambda carry: operation.region(1, carry),
        operation.operands,
    )
    return found


@converter("stablehlo.if")
def convert_if(operation: Operation) -> Sequence[Value]:
    """One of two branches."""
    found: Sequence[Value] = F.cond(
        operation.operand, lambda: operation.region(0, ()), lambda: operation.region(1, ())
    )
    return found


@converter("stablehlo.case")
def convert_case(operation: Operation) -> Sequence[Value]:
    """One of several branches; a number outside is taken for the last."""
    which, last = operation.operand, len(operation.source.regions) - 1

    def choose(number: int) -> Sequence[Value]:
        if number == last:
            return operation.region(last, ())
        found: Sequence[Value] = F.cond(
            F.equal(which, number),
            lambda: operation.region(number, ()),
            lambda: list(choose(number + 1)),
        )
        return found

    return choose(0)


def kind_of(operation: Operation, number: int = 0) -> str | None:
    """Which of the functions that reductions know a region is."""
    return _kind_of_block(operation.source.regions[number].blocks[0])


def _kind_of_block(block: Any) -> str | None:
    body = list(block.operations)
    if len(body) != 2 or len(block.arguments) != 2:
        return None
    first, last = body
    arguments = list(block.arguments)
    is_plain = list(first.operands) in (arguments, arguments[::-1])
    is_returned = list(last.operands) == list(first.results)
    return KINDS.get(first.operation.name) if is_plain and is_returned else None


def combiner(operation: Operation, number: int = 0) -> reduction.Combine:
    """A region of scalars as a function of two tuples of values, element by element."""

    def combine(a: Sequence[Value], b: Sequence[Value]) -> Sequence[Value]:
        made = operation.region(number, [*a, *b])
        return [F.expand(x, like.shape) for x, like in zip(made, a, strict=True)]

    return combine


@converter("stablehlo.reduce")
def convert_reduce(operation: Operation) -> Sequence[Value]:
    """Elements along axes folded."""
    count = len(operation.operands) // 2
    operands, initial = operation.operands[:count], operation.operands[count:]
    axes = operation.integers("dimensions")
    kind = kind_of(operation) if count == 1 else None
    if kind is None:
        return reduction.reduce_with(combiner(operation), operands, initial, axes)
    reduced = reduction.reduce(kind, operands[0], axes)
    return [reduction.COMBINERS[kind](reduced, initial[0])]


def window_of(operation: Operation, rank: int) -> Window:
    """The windows that an operation describes."""
    ones = (1,) * rank
    return Window(
        operation.integers("window_dimensions", ones),
        operation.integers("window_strides", ones),
        operation.pairs("padding", rank),
        operation.integers("base_dilations", ones),
        operation.integers("window_dilations", ones),
    )


@converter("stablehlo.reduce_window")
def convert_reduce_window(operation: Operation) -> Sequence[Value]:
    """Sliding windows, each folded."""
    count = len(operation.operands) // 2
    operands, initial = operation.operands[:count], operation.operands[count:]
    window = window_of(operation, operands[0].rank)
    kind = kind_of(operation) if count == 1 else None
    if kind is None:
        return windows.reduce_window_with(combiner(operation), operands, initial, window)
    return [windows.reduce_window(kind, operands[0], window, initial[0])]


def convert_dynamic_reduce_window(operation: Operation) -> Value:
    """The same with sizes that are operands: a custom call of JAX's."""
    if len(operation.operands) != 7:
        raise UnsupportedError("windows of free sizes over several operands have no meaning here")
    x, initial = operation.operands[:2]
    names = re.findall(r"@(\w+)", str(operation.attribute("called_computations")))
    kind = _kind_of_block(operation.reader.block_of(names[0]))
    if kind is None:
        raise UnsupportedError("windows of free sizes by this function have no meaning here")
    sizes, amounts = operation.dims(2), operation.dims(6)
    padding = tuple(zip(amounts[::2], amounts[1::2], strict=True))
    steps = [operation.numbers(number) for number in (3, 4, 5)]
    if all(isinstance(size, int) for size in sizes):
        window = Window(operation.numbers(2), steps[0], padding, steps[1], steps[2])
        return windows.reduce_window(kind, x, window, initial)
    if any(step != 1 for each in steps for step in each):
        raise UnsupportedError("windows of free sizes with strides have no meaning here")
    return windows.reduce_running_window(kind, x, sizes, padding, initial)


@converter("stablehlo.custom_call")
def convert_custom_call(operation: Operation) -> Sequence[Value]:
    """A call of the runtime's: those that place operands, check sizes, or slide free windows."""
    target = ir.StringAttr(operation.attribute("call_target_name")).value
    if target == "shape_assertion":
        operation.reader.assert_sizes(operation.source)
        return []
    if target == "stablehlo.dynamic_reduce_window":
        return [convert_dynamic_reduce_window(operation)]
    if target in ("Sharding", "annotate_device_placement", "SPMDFullToShardShape"):
        return operation.operands
    raise UnsupportedError(
        f"a custom call of {target} has no meaning here",
        hint="compile the JAX function itself, whose primitives are known",
    )


@converter("stablehlo.select_and_scatter")
def convert_select_and_scatter(operation: Operation) -> Value:
    """A source joined to the element that each window selects."""
    x, source, initial = operation.operands
    mode = kind_of(operation, 1)
    if mode != "add":
        raise UnsupportedError("select_and_scatter that does not add has no meaning here")

    def select(a: Value, b: Value) -> Value:
        return operation.region(0, [a, b])[0]

    window = window_of(operation, x.rank)
    return windows.select_and_scatter(x, source, initial, window, True, mode, select)


@converter("stablehlo.gather")
def convert_gather(operation: Operation) -> Value:
    """Slices at starts that are data; one that would stick out is moved inside."""
    return _gather(operation, operation.integers("slice_sizes"))


@converter("stablehlo.dynamic_gather")
def convert_dynamic_gather(operation: Operation) -> Value:
    """The same of slices whose sizes are an operand."""
    return _gather(operation, operation.dims(2))


def _gather(operation: Operation, slice_sizes: Shape) -> Value:
    operand, starts = operation.operands[:2]
    dims = stablehlo.GatherDimensionNumbers(operation.attribute("dimension_numbers"))
    return gather(
        operand,
        _vectors_last(starts, dims.index_vector_dim),
        GatherDims(
            tuple(dims.offset_dims),
            tuple(dims.collapsed_slice_dims),
            tuple(dims.start_index_map),
            tuple(dims.operand_batching_dims),
            tuple(dims.start_indices_batching_dims),
        ),
        slice_sizes,
    )


@converter("stablehlo.scatter")
def convert_scatter(operation: Operation) -> Sequence[Value]:
    """Windows of updates joined in; one that would stick out is dropped."""
    if len(operation.operands) != 3:
        raise UnsupportedError("a scatter of several operands has no meaning here")
    operand, starts, updates = operation.operands
    dims = stablehlo.ScatterDimensionNumbers(operation.attribute("scatter_dimension_numbers"))
    kind = kind_of(operation) or ("set" if _returns_update(operation) else None)
    if kind not in ("set", "add", "multiply", "max", "min"):
        raise UnsupportedError("a scatter by this function has no meaning here")
    made = scatter(
        operand,
        _vectors_last(starts, dims.index_vector_dim),
        updates,
        ScatterDims(
            tuple(dims.update_window_dims),
            tuple(dims.inserted_window_dims),
            tuple(dims.scattered_dims_to_operand_dims),
            tuple(dims.input_batching_dims),
            tuple(dims.scatter_indices_batching_dims),
        ),
        kind,
        Bounds.FILL_OR_DROP,
    )
    return [made]


def _returns_update(operation: Operation) -> bool:
    block = operation.source.regions[0].blocks[0]
    (last,) = [each for each in block.operations if each.operation.name == "stablehlo.return"]
    return bool(last.operands[0] == block.arguments[1])


def _vectors_last(starts: Value, axis: int) -> Value:
    """Starts with index vectors in the last axis; a start may be a scalar."""
    if axis == starts.rank:
        return F.unsqueeze(starts, starts.rank)
    return F.moveaxis(starts, axis, starts.rank - 1)


@converter("stablehlo.dot_general")
def convert_dot(operation: Operation) -> Value:
    """Products summed over contracting axes."""
    lhs, rhs = operation.operands
    dims = stablehlo.DotDimensionNumbers(operation.attribute("dot_dimension_numbers"))
    return dot_general(
        lhs,
        rhs,
        (tuple(dims.lhs_contracting_dimensions), tuple(dims.rhs_contracting_dimensions)),
        (tuple(dims.lhs_batching_dimensions), tuple(dims.rhs_batching_dimensions)),
        operation.dtype,
    )


@converter("stablehlo.convolution")
def convert_convolution(operation: Operation) -> Value:
    """A convolution of any layout, dilation and kind of group."""
    dims = stablehlo.ConvDimensionNumbers(operation.attribute("dimension_numbers"))
    return _convolution(operation, operation.pairs("padding", len(dims.input_spatial_dimensions)))


@converter("stablehlo.dynamic_conv")
def convert_dynamic_convolution(operation: Operation) -> Value:
    """The same with padding that is an operand, and must be a constant."""
    amounts = operation.numbers(2)
    return _convolution(operation, tuple(zip(amounts[::2], amounts[1::2], strict=True)))


def _convolution(operation: Operation, padding: Sequence[tuple[int, int]]) -> Value:
    lhs, rhs = operation.operands[:2]
    dims = stablehlo.ConvDimensionNumbers(operation.attribute("dimension_numbers"))
    spatial = list(dims.input_spatial_dimensions)
    ones = (1,) * len(spatial)
    if operation.has("window_reversal"):
        reversed_ = re.findall(r"true|false", str(operation.attribute("window_reversal")))
        pairs = zip(reversed_, dims.kernel_spatial_dimensions, strict=True)
        rhs = F.flip(rhs, [axis for word, axis in pairs if word == "true"])
    return convolve(
        lhs,
        rhs,
        ConvDims(
            (dims.input_batch_dimension, dims.input_feature_dimension, *spatial),
            (
                dims.kernel_output_feature_dimension,
                dims.kernel_input_feature_dimension,
                *dims.kernel_spatial_dimensions,
            ),
            (
                dims.output_batch_dimension,
                dims.output_feature_dimension,
                *dims.output_spatial_dimensions,
            ),
        ),
        ConvWindow(
            operation.integers("window_strides", ones),
            tuple(padding),
            operation.integers("lhs_dilation", ones),
            operation.integers("rhs_dilation", ones),
        ),
        operation.integer("feature_group_count", 1),
        operation.integer("batch_group_count", 1),
        operation.dtype,
    )


@converter("stablehlo.fft")
def convert_fft(operation: Operation) -> Value:
    """Fourier transforms of the last axes."""
    x, lengths = operation.operand, operation.integers("fft_length")
    axes = tuple(range(x.rank - len(lengths), x.rank))
    kind = operation.word("fft_type")
    transforms = {"FFT": F.fftn, "IFFT": F.ifftn, "RFFT": F.rfftn}
    if kind in transforms:
        return transforms[kind](x, axes=axes)
    return F.irfftn(x, list(lengths), axes=axes)


@converter("stablehlo.cholesky")
def convert_cholesky(operation: Operation) -> Value:
    """A triangle times its conjugate transpose."""
    x = operation.operand
    if operation.flag("lower"):
        return F.cholesky(x)
    return F.cholesky(F.conj(F.swapaxes(x, -1, -2)), upper=True)


SAMPLES = (-np.inf, -2.0, -1.0, 0.0, 1.0, 2.0, np.inf)
"""Numbers that a comparator is tried on."""


@converter("stablehlo.sort")
def convert_sort(operation: Operation) -> Sequence[Value]:
    """Operands in the order of a comparator, which must be lexicographic on the first of them."""
    axis = operation.integer("dimension") % operation.operand.rank
    keys, descending = _order_of(operation)
    operands = operation.operands
    if not descending:
        return sorting.sort(operands, axis, keys)
    if keys != 1 or operands[0].dtype.is_complex:
        raise UnsupportedError("a descending sort by several keys has no meaning here")
    order = F.argsort(operands[0], axis, descending=True)
    return [F.take_along_axis(x, order, axis) for x in operands]


def _order_of(operation: Operation) -> tuple[int, bool]:
    """How many operands a comparator looks at, and whether larger ones come first.

    It is run on every pair of some numbers, for each operand, and must say what such an order says.
    """
    types = [x.dtype for x in operation.operands]
    for keys in range(1, len(types) + 1):
        for descending in (False, True):
            if _compares(operation, types, keys, descending):
                return keys, descending
    raise UnsupportedError("a sort by this comparator has no meaning here")


def _outer_constants(operation: Operation) -> dict[Any, Value]:
    """The constants around a comparator that it reads, in the graph that is being built."""
    known = operation.reader.values
    body = operation.source.regions[0].blocks[0].operations
    used = {operand for each in body for operand in each.operands if operand in known}
    found = {}
    for operand in used:
        op = known[operand].op
        if not isinstance(op, Constant):
            raise UnsupportedError("a sort by a comparator of data has no meaning here")
        found[operand] = constant(op.data.array())
    return found


def _compares(operation: Operation, types: Sequence[Any], keys: int, descending: bool) -> bool:
    generator = np.random.default_rng(0)
    numbers = np.array(SAMPLES)
    columns = []
    for dtype in types:
        own = numbers if dtype.is_float or dtype.is_complex else numbers[2:5].clip(0)
        columns += [generator.choice(own, 400).astype(dtype.numpy) for _ in range(2)]
    graph = Graph("comparator")
    inputs = [
        graph.add_input(f"x{k}", TensorType(types[k // 2], (400,))) for k in range(len(columns))
    ]
    with graph.as_current(), operation.reader.only(_outer_constants(operation)):
        graph.set_outputs(operation.region(0, inputs))
    (found,) = interpret(graph, columns)
    expected, tied = np.zeros(400, bool), np.ones(400, bool)
    for key in range(keys):
        a, b = columns[2 * key], columns[2 * key + 1]
        before = a > b if descending else a < b
        expected |= tied & before
        tied &= a == b
    return bool((found == expected).all())
