"""Special functions that JAX writes in terms of others: they are traced."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax._src.lax import special

from monograph.frontends.jax.equation import Equation
from monograph.frontends.jax.registry import converter
from monograph.ir.graph import Value

TRACED = {
    "regularized_incomplete_beta": special.regularized_incomplete_beta_impl,
    "igamma_grad_a": special.igamma_grad_a_impl,
    "random_gamma_grad": special.random_gamma_grad_impl,
}


@converter(*TRACED)
def convert_traced(equation: Equation) -> list[Value]:
    """JAX's own series and continued fractions; of narrow floats in f32."""
    function = TRACED[equation.name]
    dtype = equation.result_avals[0].dtype
    precise = jnp.float32 if dtype.itemsize < 4 else dtype

    def compute(*operands: Any) -> Any:
        wide = jnp.broadcast_arrays(*(x.astype(precise) for x in operands))
        return function(*wide, dtype=precise).astype(dtype)

    return equation.trace(compute)


@converter("polygamma")
def convert_polygamma(equation: Equation) -> list[Value]:
    """By the zeta function, as JAX writes it."""

    def compute(order: Any, x: Any) -> Any:
        sign = jnp.where(jnp.mod(order, 2) == 0, -1.0, 1.0).astype(x.dtype)
        factorial = jnp.exp(special.lgamma(order + 1))
        series = special.zeta(order + 1, x)
        return jnp.where(order == 0, special.digamma(x), sign * factorial * series)

    return equation.trace(compute)


@converter("mulhi")
def convert_multiply_high(equation: Equation) -> list[Value]:
    """The high half of a product, by parts."""
    from jax._src.lax import lax

    return equation.trace(lax._mulhi_impl)


@converter("ragged_dot_general")
def convert_ragged_dot(equation: Equation) -> list[Value]:
    """A product whose groups have sizes that are data, as JAX writes it."""
    from jax._src.lax import lax

    def compute(*operands: Any) -> Any:
        return lax._ragged_dot_general_impl(*operands, **equation.params)

    return equation.trace(compute)
