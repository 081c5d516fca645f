"""Reads a StableHLO module, operation by operation, into a graph of ours.

Each free size of an argument is a symbol. Where the program says more of it (two sizes are equal,
one is even, it has a name), reading begins anew with what was learnt; programs say so first.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from jax._src.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from monograph import functional as F
from monograph.errors import GraphError, InputError, MonographError, UnsupportedError
from monograph.frontends.stablehlo import (  # noqa: F401  # converters
    composites,
    one_device,
    operations,
    structured,
    tuples,
)
from monograph.frontends.stablehlo.attributes import read_tensor_type
from monograph.frontends.stablehlo.operation import CONVERTERS, Operation
from monograph.frontends.stablehlo.sizes import Learnt, SizeTable, direction_of, learn, name_size
from monograph.ir.dims import Dim, Symbol, SymbolicDim, provably_different, substitute_shape
from monograph.ir.graph import Graph, Value, current_graph
from monograph.ir.location import Location
from monograph.ir.region import declare_input
from monograph.ir.text import parse_type
from monograph.ir.types import TensorType, symbols_of
from monograph.passes.base import make_pass
from monograph.passes.manager import run_pipeline

PORTABLE = b"ML\xefR\rStableHLO"
"""How bytecode begins that jaxlib's other versions read as well."""

MAX_LEARNT = 1000
"""How many relations between sizes a module may state."""
MAX_CALL_DEPTH = 200
"""How deep functions may call one another: a file must not exhaust the stack."""


def read_module(contents: str | bytes, origin: str = "this") -> Graph:
    """The graph of the function that is called main; ``origin`` is what errors call the module."""
    context = mlir.make_ir_context()
    with context:
        module = _parse(context, contents, origin)
        functions = {}
        for each in module.body.operations:
            if each.operation.name == "func.func":
                functions[ir.StringAttr(each.attributes["sym_name"]).value] = each
        if "main" not in functions:
            raise InputError(
                f"{origin} is a module without a function main",
                found=", ".join(functions) or "no function",
            )
        from_jax = "jax.uses_shape_polymorphism" in module.operation.attributes
        return Reader(functions, 1 if from_jax else 0).read(functions["main"])


def _parse(context: Any, contents: str | bytes, origin: str) -> Any:
    """A module of text, bytecode or a portable artifact; MLIR verifies it."""
    try:
        if isinstance(contents, bytes) and contents.startswith(PORTABLE):
            return stablehlo.deserialize_portable_artifact(context, contents)
        return ir.Module.parse(contents)
    except (ir.MLIRError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{origin} is not a StableHLO module",
            expected="MLIR's text or bytecode, or a portable artifact",
            found=str(error)[:400],
        ) from error


class Reader:
    """Reads the functions of one module into one graph."""

    def __init__(self, functions: dict[str, Any], least: int = 0) -> None:
        self.functions = functions
        self.least = least
        self.learnt: list[tuple[Symbol, Dim]] = []
        self._begin()

    def _begin(self) -> None:
        self.values: dict[Any, Any] = {}  # a value of ours for each of theirs, or a tuple of some
        self.sizes = SizeTable()
        self.depth = 0
        self._returned: list[Any] = []

    def read(self, function: Any) -> Graph:
        """The graph of a function: its arguments are inputs, what it returns is the outputs."""
        types = self._declare_inputs(function)
        for _ in range(MAX_LEARNT):
            try:
                return self._read(function, self._input_types(types))
            except Learnt as found:
                self.learnt.append((found.symbol, found.meaning))
        raise UnsupportedError("the sizes of this module are related in too many ways")

    def _declare_inputs(self, function: Any) -> list[TensorType]:
        """The arguments' types: a symbol for each free size, or what modules of ours call it."""
        block = function.regions[0].blocks[0]
        attributes: list[Any] = [{}] * len(block.arguments)
        if "arg_attrs" in function.attributes:
            attributes = list(function.attributes["arg_attrs"])
        made = []
        symbols: dict[str, Symbol] = {}
        for number, (argument, known) in enumerate(zip(block.arguments, attributes, strict=True)):
            dtype, sizes = read_tensor_type(argument.type)
            shape: list[Dim] = [
                Symbol(f"d{number}_{axis}", self.least) if size is None else size
                for axis, size in enumerate(sizes)
            ]
            if "monograph.type" in known:
                text = ir.StringAttr(known["monograph.type"]).value
                shape = _name_sizes(text, shape, symbols, self.least)
            made.append(TensorType(dtype, tuple(shape)))
        return made

    def _input_types(self, types: Sequence[TensorType]) -> list[TensorType]:
        """The arguments' types with what was learnt of their sizes."""
        made = []
        for type_ in types:
            shape = type_.shape
            for symbol, meaning in self.learnt:
                shape = substitute_shape(shape, {symbol: meaning})
            made.append(type_.with_shape(shape))
        return made

    def _read(self, function: Any, types: Sequence[TensorType]) -> Graph:
        self._begin()
        graph = Graph("main")
        inputs = [declare_input(graph, f"arg{number}", type_) for number, type_ in enumerate(types)]
        with graph.as_current():
            graph.set_outputs(self.run_block(function.regions[0].blocks[0], inputs))
        if not all(type_.is_static for type_ in types):
            run_pipeline(graph, [make_pass("dce")])  # sizes are worked out in types now
        return graph

    def block_of(self, name: str) -> Any:
        """The body of a function of the module."""
        if name not in self.functions:
            raise InputError(f"the module has no function {name}")
        return self.functions[name].regions[0].blocks[0]

    def call(self, name: str, arguments: Sequence[Value], source: Any) -> list[Value]:
        """A function of the module, in place; ``source`` is the operation that calls it."""
        block = self.block_of(name)
        if self.depth >= MAX_CALL_DEPTH:
            raise UnsupportedError(
                f"functions call one another {MAX_CALL_DEPTH} deep, or without end"
            )
        self.sizes.hand_on(list(source.operands), list(block.arguments))
        self._learn_names(self.functions[name], block)
        self.depth += 1
        try:
            results = self.run_block(block, arguments)
        finally:
            self.depth -= 1
        self.sizes.hand_on(self._returned, list(source.results))
        return results

    def _learn_names(self, function: Any, block: Any) -> None:
        """JAX names the arguments that are sizes of its own."""
        if "arg_attrs" not in function.attributes:
            return
        for argument, attributes in zip(
            block.arguments, function.attributes["arg_attrs"], strict=True
        ):
            if "jax.global_constant" not in attributes:
                continue
            name = ir.StringAttr(attributes["jax.global_constant"]).value
            (dim,) = self.sizes.dims(argument) or (None,)
            if isinstance(dim, SymbolicDim) and name.isidentifier():
                name_size(dim, name)

    def assert_sizes(self, source: Any) -> None:
        """A condition that the program checks of its sizes becomes part of its inputs' types."""
        condition = source.operands[0].owner
        known = self.sizes.dims(source.operands[0])
        if known == (True,):
            return
        if known == (False,):
            raise InputError(f"the module asserts what never holds: {str(condition)[:200]}")
        if condition.name == "stablehlo.compare":
            pair = [self.sizes.dims(each) or () for each in condition.operands]
            if all(len(each) == 1 for each in pair) and learn(
                direction_of(condition), pair[0][0], pair[1][0]
            ):
                return
        warnings.warn(f"a condition on sizes is not checked: {str(condition)[:200]}", stacklevel=2)

    def run_block(self, block: Any, arguments: Sequence[Value]) -> list[Value]:
        """What a block returns; it sees the values of the blocks around it."""
        saved = dict(self.values)
        self.values.update(zip(block.arguments, arguments, strict=True))
        try:
            for each in block.operations:
                operands = [self.values[operand] for operand in each.operands]
                if each.operation.name in ("func.return", "stablehlo.return"):
                    self._returned = list(each.operands)
                    return operands
                with current_graph().inserting_before(None, _location(each)):
                    results = self.convert(each, operands)
                self.values.update(zip(each.results, results, strict=True))
                self.sizes.note(each, lambda value: self.values[value].shape)
        finally:
            self.values = saved
        raise GraphError("a block without a return")

    @contextmanager
    def only(self, values: dict[Any, Value]) -> Iterator[None]:
        """Let blocks see these values, and no others, of the blocks around them."""
        saved, self.values = self.values, values
        try:
            yield
        finally:
            self.values = saved

    def convert(self, source: Any, operands: Sequence[Value]) -> list[Value]:
        """What one operation becomes."""
        operation = Operation(self, source, operands)
        convert = CONVERTERS.get(operation.name)
        try:
            if convert is None:
                raise UnsupportedError(f"there is no converter for {operation.name}")
            made = convert(operation)
        except MonographError as error:
            error.with_context(where=str(source)[:300], source=str(_location(source)))
            raise
        values = [made] if isinstance(made, Value) else list(made)
        return [_as_declared(*pair) for pair in zip(source.results, values, strict=True)]


def _name_sizes(text: str, shape: list[Dim], symbols: dict[str, Symbol], least: int) -> list[Dim]:
    """Free sizes as a type names them, ``f32[batch, 4]``; those that are known stay."""
    named = parse_type(text, symbols)
    if not isinstance(named, TensorType) or named.rank != len(shape):
        raise InputError(f"{text!r:.200} is not the type of an argument of {len(shape)} dimensions")
    for symbol in symbols_of(named):
        symbols.setdefault(symbol.name, Symbol(symbol.name, least))
    own = {symbol: symbols[symbol.name] for symbol in symbols_of(named)}
    names = substitute_shape(named.shape, own)
    return [dim if isinstance(dim, int) else name for dim, name in zip(shape, names, strict=True)]


def _as_declared(result: Any, value: Any) -> Any:
    """A value with the sizes that the module knows of it, where ours are expressions.

    Functions of scalars are read on whole tensors, element by element: those have other ranks.
    """
    if not isinstance(value, Value):
        return value  # a tuple, whose elements have theirs
    _, sizes = read_tensor_type(result.type)
    if len(sizes) != value.rank:
        return value
    shape = tuple(
        own if size is None else size for own, size in zip(value.shape, sizes, strict=True)
    )
    if value.shape == shape:
        return value
    if any(provably_different(*pair) for pair in zip(value.shape, shape, strict=True)):
        raise GraphError(
            "an operation gives another shape than the module declares",
            expected=str(result.type),
            found=str(value.type),
        )
    return F.reshape(value, shape)


def _location(source: Any) -> Location:
    """The innermost file and line that MLIR knows of an operation."""
    location = source.location
    while not getattr(location, "is_a_file", lambda: False)():
        child = getattr(location, "child_loc", None)
        if child is None:
            return Location("<stablehlo>", 0, str(source.operation.name))
        location = child
    return Location(location.filename, location.start_line, str(source.operation.name))
