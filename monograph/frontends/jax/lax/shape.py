"""Primitives that rearrange, repeat or join elements."""

from __future__ import annotations

from monograph import functional as F
from monograph.frontends.jax.equation import Equation
from monograph.frontends.jax.registry import converter
from monograph.frontends.xla import slicing
from monograph.ir.dims import Dim
from monograph.ir.graph import Value


@converter("broadcast_in_dim")
def convert_broadcast(equation: Equation) -> Value:
    """Operand axes stand at ``broadcast_dimensions`` of the result; the others are new."""
    x, target = equation.operand, equation.type.shape
    places = equation["broadcast_dimensions"]
    shape: list[Dim] = [1] * len(target)
    for axis, place in enumerate(places):
        shape[place] = x.shape[axis]
    return F.expand(F.reshape(x, shape), target)


@converter("reshape", "expand_dims")
def convert_reshape(equation: Equation) -> Value:
    """The same elements in row-major order, of axes in another order if ``dimensions`` say so."""
    x = equation.operand
    order = equation.params.get("dimensions")
    if equation.name == "reshape" and order is not None:
        x = F.transpose(x, order)
    return F.reshape(x, equation.type.shape)


@converter("squeeze")
def convert_squeeze(equation: Equation) -> Value:
    """Without axes of size 1."""
    return F.reshape(equation.operand, equation.type.shape)


@converter("transpose")
def convert_transpose(equation: Equation) -> Value:
    """Axes in another order."""
    return F.transpose(equation.operand, equation["permutation"])


@converter("rev")
def convert_reverse(equation: Equation) -> Value:
    """Elements in reverse order along some axes."""
    axes = tuple(equation["dimensions"])
    return F.flip(equation.operand, axes) if axes else equation.operand


@converter("tile")
def convert_tile(equation: Equation) -> Value:
    """The whole repeated along each axis."""
    return F.tile(equation.operand, equation.shape(equation["reps"]))


@converter("concatenate")
def convert_concatenate(equation: Equation) -> Value:
    """Operands one after the other."""
    if len(equation.operands) == 1:
        return equation.operand
    return F.concat(equation.operands, int(equation["dimension"]))


@converter("stack")
def convert_stack(equation: Equation) -> Value:
    """Operands side by side along a new axis."""
    return F.stack(equation.operands, int(equation["axis"]))


@converter("unstack")
def convert_unstack(equation: Equation) -> list[Value]:
    """The slices along an axis."""
    return list(F.unstack(equation.operand, int(equation["axis"])))


@converter("slice")
def convert_slice(equation: Equation) -> Value:
    """A part with known bounds."""
    x = equation.operand
    strides = equation["strides"]
    return F.slice(
        x,
        equation.shape(equation["start_indices"]),
        equation.shape(equation["limit_indices"]),
        [1] * x.rank if strides is None else list(strides),
    )


@converter("pad")
def convert_pad(equation: Equation) -> Value:
    """A value before, after and between elements; negative amounts crop."""
    x, value = equation.operands
    config = equation["padding_config"]
    low = equation.shape([each[0] for each in config])
    high = equation.shape([each[1] for each in config])
    return slicing.pad(x, value, low, high, [int(each[2]) for each in config])


@converter("dynamic_slice")
def convert_dynamic_slice(equation: Equation) -> Value:
    """A part whose start is data."""
    x, *starts = equation.operands
    return slicing.dynamic_slice(x, starts[: x.rank], equation.shape(equation["slice_sizes"]))


@converter("dynamic_update_slice")
def convert_dynamic_update_slice(equation: Equation) -> Value:
    """A part whose start is data, replaced."""
    x, update, *starts = equation.operands
    return slicing.dynamic_update_slice(x, update, starts)
