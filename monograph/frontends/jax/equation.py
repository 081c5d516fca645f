"""One equation of a jaxpr as converters see it: operands of ours, parameters of JAX's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from monograph.frontends.jax.types import is_key, physical
from monograph.ir.dims import Shape
from monograph.ir.graph import Value
from monograph.ir.types import DType, TensorType, dtype_of

if TYPE_CHECKING:
    from monograph.frontends.jax.importer import Importer


class Equation:
    """A primitive applied to values of the graph; ``types`` are those that its results must have.

    ``avals`` are JAX's own types of the operands.
    """

    def __init__(self, importer: Importer, equation: Any, operands: Sequence[Value]) -> None:
        self.importer = importer
        self.source = equation
        self.name: str = equation.primitive.name
        self.params = {name: _plain(value) for name, value in equation.params.items()}
        self.operands = list(operands)
        self.avals = [variable.aval for variable in equation.invars]
        self.result_avals = [variable.aval for variable in equation.outvars]
        self.types: list[TensorType] = [importer.symbols.type(aval) for aval in self.result_avals]

    def __getitem__(self, name: str) -> Any:
        return self.params[name]

    @property
    def operand(self) -> Value:
        """The first operand."""
        return self.operands[0]

    @property
    def type(self) -> TensorType:
        """The type of the first result."""
        return self.types[0]

    def shape(self, sizes: Sequence[Any]) -> Shape:
        """Sizes of JAX's, perhaps symbolic."""
        return self.importer.symbols.shape(sizes)

    def dtype(self, spelling: Any) -> DType:
        """A dtype of JAX's."""
        return dtype_of(np.dtype(spelling))

    def inline(self, jaxpr: Any, operands: Sequence[Value]) -> list[Value]:
        """The results of a jaxpr inside the parameters, closed or not, on these operands."""
        inner, consts = (jaxpr.jaxpr, jaxpr.consts) if hasattr(jaxpr, "consts") else (jaxpr, ())
        return self.importer.run(inner, consts, operands)

    def trace(
        self, function: Callable[..., Any], operands: Sequence[Value] | None = None
    ) -> list[Value]:
        """What a function written in JAX makes of the operands: a primitive's own definition.

        The function is given arrays (words, for keys) and returns arrays; the result is a list.
        """
        values = self.operands if operands is None else list(operands)
        types = [_struct(aval) for aval in self.avals] if operands is None else _structs(values)
        return self.inline(jax.make_jaxpr(function)(*types), values)

    def trace_on_keys(self) -> list[Value]:
        """A primitive that moves keys about, mapped by JAX over the words that the keys are of.

        ``vmap`` knows how each primitive treats one more axis, which is put last.
        """
        axes = [-1 if is_key(aval) else None for aval in self.avals]
        primitive, params = self.source.primitive, self.params

        def move(*arrays: Any) -> Any:
            return primitive.bind(*arrays, **params)

        return self.trace(jax.vmap(move, in_axes=tuple(axes), out_axes=-1))


def _plain(parameter: Any) -> Any:
    """A parameter with Python's integers where it has NumPy's, however deep in tuples."""
    if isinstance(parameter, np.integer):
        return int(parameter)
    if not isinstance(parameter, tuple):
        return parameter
    parts = map(_plain, parameter)
    return type(parameter)(*parts) if hasattr(parameter, "_fields") else tuple(parts)


def _struct(aval: Any) -> Any:
    if is_key(aval):
        return physical(aval)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def _structs(values: Sequence[Value]) -> list[Any]:
    return [
        jax.ShapeDtypeStruct(value.tensor.static_shape(), value.dtype.numpy) for value in values
    ]
