"""The meaning of the IR: run a graph in NumPy, node by node.

This is the oracle that every pass, target and test is compared with, so it is simple before it is
fast. Floats narrower than 32 bits (and integers narrower than 8) are widened, computed and rounded
once per op, as hardware does. Each intermediate is dropped after its last use. Before every node, a
time limit is looked at (:mod:`monograph.deadline`), so that a loop without end can have one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from monograph.deadline import call_limit, check_time
from monograph.errors import EvaluationError, InputError, MonographError
from monograph.ir.dims import (
    Shape,
    Symbol,
    SymbolicDim,
    UnboundSymbolError,
    evaluate_dim,
    solve_for,
    substitute_dim,
)
from monograph.ir.graph import Graph, Node, Value, check_graph
from monograph.ir.op import Family, Op, Trait
from monograph.ir.types import (
    Array,
    OptionalType,
    SequenceType,
    TensorType,
    UnrankedType,
    ValueType,
    dtype_of,
    wide,
)

Item = TypeVar("Item")


def interpret(graph: Graph, inputs: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
    """The graph's outputs, as a list of arrays, for inputs by position or by name."""
    check_graph(graph)
    arrays, bindings = bind_inputs(graph, inputs)
    with np.errstate(all="ignore"), call_limit():
        return _run(graph, arrays, bindings)


def bind_inputs(
    graph: Graph, inputs: Sequence[Any] | Mapping[str, Any]
) -> tuple[list[Any], dict[Symbol, int]]:
    """Check the inputs against the graph's and find the size that each symbol stands for."""
    given = _by_position(graph, inputs)
    arrays = [_check_input(*pair) for pair in zip(graph.inputs, given, strict=True)]
    pairs = zip(graph.inputs, arrays, strict=True)
    shapes = [np.shape(x) if isinstance(v.type, TensorType) else () for v, x in pairs]
    return arrays, bind_shapes(graph, shapes)


def bind_shapes(graph: Graph, shapes: Sequence[tuple[int, ...]]) -> dict[Symbol, int]:
    """Check shapes against those of the graph's inputs; the size that each symbol stands for.

    Of inputs that are no tensors the shapes do not matter.
    """
    bindings: dict[Symbol, int] = {}
    for _ in range(2):  # a symbol may be solvable only once a later input has bound another
        for value, shape in zip(graph.inputs, shapes, strict=True):
            if isinstance(value.type, TensorType):
                _bind_shape(value.type, shape, bindings, f"input %{value.name}")
    return bindings


def _by_position(graph: Graph, inputs: Sequence[Any] | Mapping[str, Any]) -> list[Any]:
    names = [value.name for value in graph.inputs]
    if isinstance(inputs, Mapping):
        unknown = [name for name in inputs if name not in names]
        missing = [name for name in names if name not in inputs]
        if unknown or missing:
            problem = (
                f"no input is called {unknown[0]!r}"
                if unknown
                else f"input {missing[0]!r} is missing"
            )
            raise InputError(
                problem, expected=", ".join(names) or "no inputs", found=", ".join(inputs)
            )
        return [inputs[name] for name in names]
    if hasattr(inputs, "dtype"):
        raise InputError("inputs must be a list of arrays", found="one array", hint="pass [x]")
    if len(inputs) != len(names):
        raise InputError(
            f"@{graph.name} takes {len(names)} inputs; {len(inputs)} were given",
            expected=", ".join(map(repr, graph.inputs)) or "no inputs",
        )
    return list(inputs)


def _check_input(value: Value, item: Any) -> Any:
    type_ = value.type
    if not isinstance(type_, TensorType):
        return item
    weak = isinstance(item, bool | int | float | complex | list)
    if _is_masked(item):
        raise InputError(
            f"input %{value.name} is masked, and programs know no masks",
            expected=str(type_),
            found="a masked array",
            hint="fill what is masked (.filled), or pass .data and .mask and use both",
        )
    if hasattr(item, "__dlpack__") and not hasattr(item, "__array__"):
        item = _from_dlpack(value, item)
    try:
        array = np.asarray(item, dtype=type_.dtype.numpy if weak else None)
    except (TypeError, ValueError, OverflowError) as problem:
        raise InputError(
            f"input %{value.name} is no array: {problem}",
            expected=str(type_),
            found=type(item).__name__,
        ) from None
    if dtype_of(array.dtype) is not type_.dtype:
        if array.ndim == 0 and array.dtype.kind in "OU":  # None, a dict, a word
            raise InputError(
                f"input %{value.name} is no array", expected=str(type_), found=type(item).__name__
            )
        raise InputError(
            f"input %{value.name} has the wrong dtype",
            expected=str(type_),
            found=f"{dtype_of(array.dtype)}{list(array.shape)}",
            hint=f"convert it to {type_.dtype.numpy.name} (.astype in NumPy, .to in PyTorch)",
        )
    if array.ndim != type_.rank:
        raise InputError(
            f"input %{value.name} has the wrong rank",
            expected=str(type_),
            found=f"{dtype_of(array.dtype)}{list(array.shape)}",
        )
    return array if array.dtype.isnative else array.astype(type_.dtype.numpy)


def _is_masked(item: Any) -> bool:
    """Whether it is an array of which some elements are masked."""
    if type(item) is np.ndarray or "numpy.ma" not in sys.modules:  # which takes time to load
        return False
    return isinstance(item, np.ma.MaskedArray) and bool(np.ma.is_masked(item))


def _from_dlpack(value: Value, item: Any) -> Array:
    """The memory of an object that tells of itself by DLPack alone."""
    try:
        array: Array = np.from_dlpack(item)
    except (BufferError, RuntimeError, TypeError, ValueError) as problem:
        raise InputError(
            f"input %{value.name} cannot be read where it lies: {problem}",
            expected=f"{value.type}, in the processor's memory",
            found=type(item).__name__,
            hint="copy it to the processor first",
        ) from problem
    return array


def _bind_shape(
    type_: TensorType, shape: tuple[int, ...], bindings: dict[Symbol, int], who: str
) -> None:
    """Hold a concrete shape against a type, binding the symbols that it settles."""
    if len(shape) != type_.rank:
        raise InputError(
            f"{who} has the wrong number of dimensions",
            expected=str(type_),
            found=str(list(shape)),
        )
    for axis, (dim, size) in enumerate(zip(type_.shape, shape, strict=True)):
        if isinstance(dim, SymbolicDim):
            _bind_dim(dim, size, bindings, f"{who}, dimension {axis}", type_)
        elif dim != size:
            raise InputError(
                f"{who} has the wrong size in dimension {axis}",
                expected=str(type_),
                found=str(list(shape)),
            )


def _bind_dim(
    dim: SymbolicDim, size: int, bindings: dict[Symbol, int], who: str, type_: TensorType
) -> None:
    known = substitute_dim(dim, bindings)
    if isinstance(known, int):
        if known != size:
            settled = ", ".join(f"{s.name} = {bindings[s]}" for s in dim.symbols())
            raise InputError(
                f"{who}: {dim} is {size} here, but {known} elsewhere",
                expected=f"{type_} with {settled}",
                found=f"{dim} = {size}",
            )
        return
    if isinstance(dim, Symbol):
        check_range(dim, size, who)
    try:
        bindings.update(solve_for(dim, size, bindings) or {})
    except ValueError:
        raise InputError(f"{who}: no size makes {dim} equal {size}", expected=str(type_)) from None


def check_range(symbol: Symbol, size: int, who: str) -> None:
    """Refuse a size that a symbol cannot have."""
    if symbol.lower <= size and (symbol.upper is None or size <= symbol.upper):
        return
    upper = "" if symbol.upper is None else f" <= {symbol.upper}"
    raise InputError(
        f"{who}: {symbol.name} is outside its declared range",
        expected=f"{symbol.lower} <= {symbol.name}{upper}",
        found=f"{symbol.name} = {size}",
    )


def _run(graph: Graph, arrays: Sequence[Any], bindings: dict[Symbol, int]) -> list[Any]:
    return run_nodes(graph, arrays, lambda node, operands: evaluate_node(node, operands, bindings))


def run_nodes(
    graph: Graph,
    arguments: Sequence[Item],
    evaluate: Callable[[Node, list[Item]], Sequence[Item]],
) -> list[Item]:
    """Evaluate every node in order, dropping values after their last use.

    ``evaluate`` says what a node does to its operands: arrays here, an array a device on a mesh.
    """
    environment: dict[Value, Item] = dict(zip(graph.inputs, arguments, strict=True))
    remaining = {value: len(value.uses) for value in graph.inputs}
    for node in graph.nodes:
        results = evaluate(node, [environment[value] for value in node.operands])
        for operand in node.operands:
            remaining[operand] -= 1
            if not remaining[operand]:
                environment.pop(operand, None)
        for value, result in zip(node.results, results, strict=True):
            if value.is_used:
                environment[value] = result
                remaining[value] = len(value.uses)
    return [environment[value] for value in graph.outputs]


def evaluate_node(
    node: Node, operands: Sequence[Any], bindings: dict[Symbol, int]
) -> tuple[Any, ...]:
    """The results of one node, in the dtypes that its types declare, if there is time left."""
    check_time()
    with errors_at(node, operands):
        op = node.op.substitute(bindings)
        if node.regions:
            raw = op.evaluate(node.regions, RegionRunner(bindings), *operands)
        else:
            raw = evaluate_op(op, operands)
        return check_results(node, raw, bindings)


@contextmanager
def errors_at(node: Node, operands: Sequence[Any]) -> Iterator[None]:
    """Let errors say which node they come from; what NumPy raises becomes an EvaluationError."""
    source = None if node.location is None else str(node.location)
    try:
        yield
    except MonographError as error:
        raise error.with_context(where=repr(node), source=source) from None
    except (ValueError, IndexError, TypeError, ArithmeticError, MemoryError) as error:
        pairs = zip(node.operands, operands, strict=True)
        shapes = ", ".join(f"{value!r} = {np.shape(item)}" for value, item in pairs)
        raise EvaluationError(
            f"{node.op.name} failed: {error}",
            found=shapes or None,
            where=repr(node),
            source=source,
        ) from error


class RegionRunner:
    """What an op evaluates its regions with: ``run(region, arrays)`` gives the outputs."""

    def __init__(self, bindings: Mapping[Symbol, int]) -> None:
        self.bindings = bindings

    def __call__(self, region: Graph, arrays: Sequence[Any]) -> list[Any]:
        """The region's outputs for these inputs, if there is time left: it may have no node."""
        check_time()
        return _run(region, arrays, self.bindings_in(region, arrays))

    def bindings_in(self, region: Graph, arrays: Sequence[Any]) -> dict[Symbol, int]:
        """The sizes that symbols have inside the region; its inputs must fit their types."""
        inner = dict(self.bindings)
        for value, array in zip(region.inputs, arrays, strict=True):
            if isinstance(value.type, TensorType):
                _bind_shape(value.type, np.shape(array), inner, f"%{value.name} of @{region.name}")
        return inner

    def sizes(self, shape: Shape) -> tuple[int, ...]:
        """A shape with the actual sizes in place of its symbols."""
        try:
            return tuple(evaluate_dim(dim, self.bindings) for dim in shape)
        except UnboundSymbolError as error:
            raise EvaluationError(f"a size is not known here: {error}") from None


def evaluate_op(op: Op, operands: Sequence[Any]) -> Any:
    """Evaluate an op on arrays, widening narrow types unless it takes them as they are stored."""
    return op.evaluate(*prepare_operands(op, operands))


def prepare_operands(op: Op, operands: Sequence[Any]) -> Sequence[Any]:
    """The operands as the op's evaluation takes them: widened, or as they are stored."""
    if op.family is not Family.COMPUTE or op.has(Trait.STORAGE):
        return operands
    return [_widen(operand) for operand in operands]


def _widen(array: Any) -> Any:
    if not isinstance(array, np.ndarray) or array.dtype.itemsize > 2:
        return array
    dtype = dtype_of(array.dtype)
    target = wide(dtype)
    return array if target is dtype else array.astype(target.numpy)


def check_results(node: Node, raw: Any, bindings: dict[Symbol, int]) -> tuple[Any, ...]:
    """What an evaluation returned, as arrays of the node's declared types."""
    results = raw if isinstance(raw, tuple) else (raw,)
    return tuple(
        _check_result(value.type, result, bindings)
        for value, result in zip(node.results, results, strict=True)
    )


def _check_result(type_: ValueType, result: Any, bindings: dict[Symbol, int]) -> Any:
    """A result as an array of its declared dtype; its shape must be the declared one."""
    if isinstance(type_, SequenceType | OptionalType):
        return result
    array: Array = np.asarray(result)
    if array.dtype != type_.dtype.numpy:
        array = array.astype(type_.dtype.numpy)
    if isinstance(type_, UnrankedType):
        return array
    if array.ndim != type_.rank:
        raise EvaluationError(
            "the result's rank is not the declared one", expected=str(type_), found=str(array.shape)
        )
    _bind_shape(type_, array.shape, bindings, "the result")
    return array
