"""JAX's abstract values as types of ours: dtypes, keys, and symbolic dimensions.

An array of typed keys is the array of their words: ``key<fry>[n]`` is ``u32[n, 2]``. A symbolic
dimension of ``jax.export`` becomes a symbol of the same name, of at least 1, as JAX assumes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax._src.export.shape_poly import _DimExpr, _DimFactor

from monograph.errors import InputError, UnsupportedError
from monograph.ir.dims import Dim, Shape, Symbol, dim_max, dim_min
from monograph.ir.types import TensorType, bool_, dtype_of


class SymbolTable:
    """JAX's dimension variables as symbols, one for each name."""

    def __init__(self) -> None:
        self.symbols: dict[str, Symbol] = {}

    def dim(self, size: Any) -> Dim:
        """A size of JAX's, an int or an expression, as one of ours."""
        if isinstance(size, _DimExpr):
            return self._expression(size)
        return int(size)

    def shape(self, sizes: Sequence[Any]) -> Shape:
        """Sizes as a shape."""
        return tuple(map(self.dim, sizes))

    def type(self, aval: Any) -> TensorType:
        """The type of an abstract value."""
        if is_key(aval):
            aval = physical(aval)
        if aval.dtype == jax.dtypes.float0:
            return TensorType(bool_, self.shape(aval.shape))
        return TensorType(dtype_of(np.dtype(aval.dtype)), self.shape(aval.shape))

    def _expression(self, size: Any) -> Dim:
        total: Dim = 0
        for term, coefficient in size._sorted_terms:
            product: Dim = int(coefficient)
            for factor, exponent in term._factors:
                for _ in range(int(exponent)):
                    product = product * self._factor(factor)
            total = total + product
        return total

    def _factor(self, factor: Any) -> Dim:
        if factor.var is not None:
            return self.symbols.setdefault(factor.var, Symbol(factor.var, 1))
        operands = [self._expression(each) for each in factor.operands]
        if factor.operation == _DimFactor.FLOORDIV:
            return operands[0] // operands[1]
        if factor.operation == _DimFactor.MOD:
            return operands[0] % operands[1]
        if factor.operation == _DimFactor.MAX:
            return dim_max(*operands)
        if factor.operation == _DimFactor.MIN:
            return dim_min(*operands)
        raise UnsupportedError(f"a dimension {factor} has no meaning here")


def is_key(aval: Any) -> bool:
    """Whether an abstract value is an array of random keys."""
    dtype = getattr(aval, "dtype", None)
    return dtype is not None and jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)


def physical(aval: Any) -> Any:
    """The array of words that holds an array of keys."""
    words = aval.dtype._impl.key_shape
    return jax.ShapeDtypeStruct((*aval.shape, *words), np.uint32)


def key_words(keys: Any) -> Any:
    """What an array of keys is as an array; other arrays are themselves."""
    return jax.random.key_data(keys) if is_key(keys) else keys


def as_array(leaf: Any) -> Any:
    """What stands for an array by ``__jax_array__``, as that array; all else as it is."""
    if hasattr(leaf, "__jax_array__") and not isinstance(leaf, jax.Array):
        return leaf.__jax_array__()
    return leaf


def array_dtype(leaf: Any, name: str) -> Any:
    """The dtype that an argument has in JAX; what is no array there is refused by its name."""
    try:
        return jax.dtypes.result_type(leaf)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"argument {name} is no array",
            expected="an array or a number",
            found=f"{type(leaf).__name__}: {leaf!r:.60}",
            hint="what is no array is static: name it in static_argnums or static_argnames",
        ) from error
