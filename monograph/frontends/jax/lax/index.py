"""Gather and scatter in general form."""

from __future__ import annotations

from jax import lax

from monograph import functional as F
from monograph.errors import UnsupportedError
from monograph.frontends.jax.equation import Equation
from monograph.frontends.jax.registry import converter
from monograph.frontends.xla.gather import Bounds, GatherDims, gather
from monograph.frontends.xla.scatter import ScatterDims, scatter
from monograph.ir.graph import Value

MODES = {
    "scatter": "set",
    "scatter-add": "add",
    "scatter_add": "add",
    "scatter-mul": "multiply",
    "scatter_mul": "multiply",
    "scatter-min": "min",
    "scatter_min": "min",
    "scatter-max": "max",
    "scatter_max": "max",
}


def bounds_of(equation: Equation, promised: Bounds) -> Bounds:
    """What happens to indices outside; ``promised`` where there are none, the program says."""
    mode = lax.GatherScatterMode.from_any(equation["mode"])
    if mode == lax.GatherScatterMode.FILL_OR_DROP:
        return Bounds.FILL_OR_DROP
    return Bounds.CLIP if mode == lax.GatherScatterMode.CLIP else promised


@converter("gather")
def convert_gather(equation: Equation) -> Value:
    """Slices at starts that are data."""
    operand, starts = equation.operands
    dims = equation["dimension_numbers"]
    return gather(
        operand,
        starts,
        GatherDims(
            tuple(dims.offset_dims),
            tuple(dims.collapsed_slice_dims),
            tuple(dims.start_index_map),
            tuple(dims.operand_batching_dims),
            tuple(dims.start_indices_batching_dims),
        ),
        equation.shape(equation["slice_sizes"]),
        bounds_of(equation, Bounds.CLIP),
        equation.params.get("fill_value"),
    )


@converter(*MODES)
def convert_scatter(equation: Equation) -> Value:
    """Windows of updates joined in at starts that are data."""
    return _scatter(equation, equation.operands[2], MODES[equation.name])


@converter("scatter-sub", "scatter_sub")
def convert_scatter_subtract(equation: Equation) -> Value:
    """Updates subtracted: their negatives added."""
    return _scatter(equation, F.negate(equation.operands[2]), "add")


def _scatter(equation: Equation, updates: Value, mode: str) -> Value:
    operand, starts, _ = equation.operands
    if operand.dtype.is_complex and mode in ("min", "max"):
        raise UnsupportedError(f"{equation.name}: complex numbers have no order here")
    dims = equation["dimension_numbers"]
    return scatter(
        operand,
        starts,
        updates,
        ScatterDims(
            tuple(dims.update_window_dims),
            tuple(dims.inserted_window_dims),
            tuple(dims.scatter_dims_to_operand_dims),
            tuple(dims.operand_batching_dims),
            tuple(dims.scatter_indices_batching_dims),
        ),
        mode,
        bounds_of(equation, Bounds.FILL_OR_DROP),
    )
