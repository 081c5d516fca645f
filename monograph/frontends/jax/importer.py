"""Reads a jaxpr, equation by equation, into a graph of ours.

Each equation finds its converter by the name of its primitive. Every result is held against the
type that JAX has recorded for it: a converter that gets a shape wrong is found at import, not in
the numbers. Primitives that nothing here can convert are looked for first, all at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import Literal

from monograph import functional as F
from monograph.errors import GraphError, MonographError, Problem, UnsupportedError
from monograph.frontends.jax.equation import Equation
from monograph.frontends.jax.location import location_of
from monograph.frontends.jax.registry import find_converter
from monograph.frontends.jax.types import SymbolTable, is_key, key_words
from monograph.ir.build import constant
from monograph.ir.dims import provably_different
from monograph.ir.graph import Graph, Value, current_graph
from monograph.ir.types import TensorType, dtype_of

MAX_CONSTANT_ELEMENTS = 16
"""Arrays that a function closes over are constants, printed in full, up to this many elements."""

MOVES_KEYS = frozenset(
    {
        "broadcast_in_dim", "concatenate", "copy", "copy_p", "dynamic_slice",
        "dynamic_update_slice", "expand_dims", "gather", "pad", "reshape", "rev", "scatter",
        "select_n", "slice", "split", "squeeze", "transpose",
    }
)  # fmt: skip
"""Primitives that take keys and only move them about."""


class Importer:
    """Reads jaxprs into one graph of ours."""

    def __init__(self, graph: Graph, symbols: SymbolTable) -> None:
        self.graph = graph
        self.symbols = symbols
        self._weights: dict[int, tuple[Any, Value]] = {}

    def run(self, jaxpr: Any, consts: Sequence[Any], operands: Sequence[Value]) -> list[Value]:
        """The results of a jaxpr on these operands, added to the graph that is being built."""
        values: dict[Any, Value] = {}
        for variable, const in zip(jaxpr.constvars, consts, strict=True):
            values[variable] = const if isinstance(const, Value) else self._const(const)
        values.update(zip(jaxpr.invars, operands, strict=True))
        for equation in jaxpr.eqns:
            with current_graph().inserting_before(None, location_of(equation)):
                inputs = [self._read(atom, values) for atom in equation.invars]
                results = self.convert(equation, inputs)
            values.update(zip(equation.outvars, results, strict=True))
        return [self._read(atom, values) for atom in jaxpr.outvars]

    def convert(self, source: Any, operands: Sequence[Value]) -> list[Value]:
        """What one equation becomes."""
        name = source.primitive.name
        try:
            equation = Equation(self, source, operands)
            if name in MOVES_KEYS and any(map(is_key, equation.avals)):
                made: Value | Sequence[Value] = equation.trace_on_keys()
            else:
                converter = find_converter(name)
                if converter is None:
                    raise UnsupportedError(f"there is no converter for JAX's {name}")
                made = converter(equation)
            results = [made] if isinstance(made, Value) else list(made)
            pairs = zip(results, equation.types, strict=True)
            return [_as_declared(name, value, type_) for value, type_ in pairs]
        except MonographError as error:
            error.with_context(where=str(source)[:400], source=str(location_of(source)))
            raise

    def _read(self, atom: Any, values: dict[Any, Value]) -> Value:
        if not isinstance(atom, Literal):
            return values[atom]
        if atom.aval.dtype == jax.dtypes.float0:
            return F.full(self.symbols.shape(atom.aval.shape), False, "bool")
        array = np.asarray(atom.val, np.dtype(atom.aval.dtype))
        return constant(np.broadcast_to(array, atom.aval.shape))

    def _const(self, const: Any) -> Value:
        """An array that the function closes over: a weight, unless it is small."""
        array = np.asarray(key_words(const))
        if array.dtype == jax.dtypes.float0:
            return F.full(array.shape, False, "bool")
        dtype_of(array.dtype)
        if array.size <= MAX_CONSTANT_ELEMENTS:
            return constant(array)
        found = self._weights.get(id(const))
        if found is None:
            weight = self.graph.add_weight(f"constant{len(self._weights)}", array)
            found = self._weights[id(const)] = (const, weight)  # held, so that its id stays its own
        return found[1]


def _as_declared(name: str, value: Value, type_: TensorType) -> Value:
    """The value, if it has the type that JAX says; symbolic sizes may be written another way."""
    found = value.tensor
    if found.dtype is not type_.dtype or found.rank != type_.rank:
        raise GraphError(f"{name}: wrong type", expected=str(type_), found=str(found))
    if found.shape == type_.shape:
        return value
    pairs = list(zip(found.shape, type_.shape, strict=True))
    if any(a == 1 and b != 1 for a, b in pairs) and all(a in (1, b) for a, b in pairs):
        return F.expand(value, type_.shape)
    if any(provably_different(a, b) for a, b in pairs):
        raise GraphError(f"{name}: wrong type", expected=str(type_), found=str(found))
    return F.reshape(value, type_.shape)


def find_unsupported(jaxpr: Any) -> list[Problem]:
    """Every primitive in a jaxpr, and in those inside it, that has no converter."""
    found: dict[str, tuple[int, str]] = {}
    for equation in walk(jaxpr):
        name = equation.primitive.name
        if find_converter(name) is None:
            count, where = found.get(name, (0, str(location_of(equation))))
            found[name] = (count + 1, where)
    return [
        Problem(name, where, count, "no converter")
        for name, (count, where) in sorted(found.items())
    ]


def walk(jaxpr: Any) -> Iterator[Any]:
    """Every equation of a jaxpr and of those in its parameters."""
    for equation in jaxpr.eqns:
        yield equation
        for parameter in equation.params.values():
            for each in parameter if isinstance(parameter, tuple | list) else (parameter,):
                inner = getattr(each, "jaxpr", each)
                if hasattr(inner, "eqns"):
                    yield from walk(inner)
