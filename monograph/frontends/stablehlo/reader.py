"""Reads a StableHLO module, operation by operation, into a graph of ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from jax._src.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from monograph.errors import GraphError, InputError, MonographError, UnsupportedError
from monograph.frontends.stablehlo import (  # noqa: F401  # converters
    composites,
    operations,
    structured,
)
from monograph.frontends.stablehlo.operation import CONVERTERS, Operation, type_from
from monograph.ir.graph import Graph, Value, current_graph
from monograph.ir.location import Location
from monograph.ir.region import declare_input

PORTABLE = b"ML\xefR\rStableHLO"
"""How bytecode begins that jaxlib's other versions read as well."""

MAX_CALL_DEPTH = 200
"""How deep functions may call one another: a file must not exhaust the stack."""


def read_module(contents: str | bytes, origin: str = "this") -> Graph:
    """The graph of the function that is called main; ``origin`` is what errors call the module."""
    context = mlir.make_ir_context()
    with context:
        module = _parsed(context, contents, origin)
        functions = {}
        for each in module.body.operations:
            if each.operation.name == "func.func":
                functions[ir.StringAttr(each.attributes["sym_name"]).value] = each
        if "main" not in functions:
            raise InputError(
                f"{origin} is a module without a function main",
                found=", ".join(functions) or "no function",
            )
        return Reader(functions).read(functions["main"])


def _parsed(context: Any, contents: str | bytes, origin: str) -> Any:
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

    def __init__(self, functions: dict[str, Any]) -> None:
        self.functions = functions
        self.values: dict[Any, Value] = {}
        self.depth = 0

    def read(self, function: Any) -> Graph:
        """The graph of a function: its arguments are inputs, what it returns is the outputs."""
        graph = Graph("main")
        block = function.regions[0].blocks[0]
        inputs = [
            declare_input(graph, f"arg{number}", type_from(argument.type))
            for number, argument in enumerate(block.arguments)
        ]
        with graph.as_current():
            graph.set_outputs(self.run_block(block, inputs))
        return graph

    def call(self, name: str, arguments: Sequence[Value]) -> list[Value]:
        """A function of the module, in place."""
        if name not in self.functions:
            raise InputError(f"the module has no function {name}")
        if self.depth >= MAX_CALL_DEPTH:
            raise UnsupportedError(
                f"functions call one another {MAX_CALL_DEPTH} deep, or without end"
            )
        self.depth += 1
        try:
            return self.run_block(self.functions[name].regions[0].blocks[0], arguments)
        finally:
            self.depth -= 1

    def run_block(self, block: Any, arguments: Sequence[Value]) -> list[Value]:
        """What a block returns; it sees the values of the blocks around it."""
        saved = dict(self.values)
        self.values.update(zip(block.arguments, arguments, strict=True))
        try:
            for each in block.operations:
                operands = [self.values[operand] for operand in each.operands]
                if each.operation.name in ("func.return", "stablehlo.return"):
                    return operands
                with current_graph().inserting_before(None, _location(each)):
                    results = self.convert(each, operands)
                self.values.update(zip(each.results, results, strict=True))
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
        return [made] if isinstance(made, Value) else list(made)


def _location(source: Any) -> Location:
    """The innermost file and line that MLIR knows of an operation."""
    location = source.location
    while not getattr(location, "is_a_file", lambda: False)():
        child = getattr(location, "child_loc", None)
        if child is None:
            return Location("<stablehlo>", 0, str(source.operation.name))
        location = child
    return Location(location.filename, location.start_line, str(source.operation.name))
