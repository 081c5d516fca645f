"""Scalars of a torch graph: symbolic sizes, and what ``item()`` reads.

A size is a dimension: torch has already worked out its expression, so a node that computes one
becomes that expression and no code. Floats, bools and integers that may be negative are computed by
the graph, as 0-d tensors.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from monograph import functional as F
from monograph.errors import UnsupportedError
from monograph.frontends.torch.node import natural_dtype
from monograph.frontends.torch.ops import bind_dim
from monograph.frontends.torch.promotion import common_dtype, float_dtype
from monograph.ir.build import cast_to, constant
from monograph.ir.dims import Symbol, SymbolicDim
from monograph.ir.graph import Value, current_graph
from monograph.ir.types import bool_, f64, i64

if TYPE_CHECKING:
    from monograph.frontends.torch.importer import Importer

READS = frozenset({"aten.item.default", "aten._local_scalar_dense.default"})


def is_scalar(node: Any) -> bool:
    """Whether a node's result is a number, known or not."""
    recorded = node.meta.get("val")
    kinds = (bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool)
    return isinstance(recorded, kinds)


def is_bound(condition: Any) -> bool:
    """Whether a condition only bounds a symbol by a number, as the symbol's range does already."""
    recorded = condition.meta.get("val") if isinstance(condition, torch.fx.Node) else condition
    if isinstance(recorded, bool):
        return recorded
    if not isinstance(recorded, torch.SymBool):
        return False
    expression = recorded.node.expr
    parts = getattr(expression, "args", ())
    known = expression in (True, False) or len(parts) == 2
    return (
        known
        and all(part.is_Symbol or part.is_Integer for part in parts)
        and getattr(expression, "rel_op", "") not in ("==", "!=")
    )


def convert(importer: Importer, node: Any) -> Any:
    """A node that computes a number: a Python number, a dimension or a 0-d value."""
    recorded = node.meta["val"]
    if isinstance(recorded, bool | int | float):
        return recorded
    constant_value = recorded.node.maybe_as_int() if isinstance(recorded, torch.SymInt) else None
    if constant_value is not None:
        return int(constant_value)
    if isinstance(recorded, torch.SymInt) and importer.symbols.is_dimension(recorded):
        dim = importer.symbols.dim(recorded)
        if str(node.target) in READS and isinstance(dim, Symbol):
            bind_dim(importer.argument(node.args[0]), dim)
        return dim
    if str(node.target) in READS:
        return _read(importer.argument(node.args[0]), recorded)
    rule = _RULES.get(node.target)
    if rule is None:
        raise UnsupportedError(f"{node.target} on numbers that are not known before the model runs")
    operands = [importer.argument(argument) for argument in node.args]
    result: Value = rule(*operands)
    return result


def as_value(operand: Any) -> Value:
    """A number, dimension or value as a 0-d value."""
    if isinstance(operand, Value):
        return operand
    if isinstance(operand, SymbolicDim):
        return F.dim(operand)
    return constant(operand, natural_dtype(operand), current_graph())


def _read(value: Value, recorded: Any) -> Value:
    """The only element of a tensor, in the precision that Python has."""
    scalar = F.reshape(value, ())
    if isinstance(recorded, torch.SymBool):
        return cast_to(scalar, bool_)
    return cast_to(scalar, f64 if isinstance(recorded, torch.SymFloat) else i64)


def _arithmetic(function: Callable[..., Value]) -> Callable[..., Value]:
    """The function on numbers in the common dtype, floats in f64 as Python has them."""

    def apply(*operands: Any) -> Value:
        dtype = common_dtype([as_value(operand) for operand in operands])
        wide = f64 if dtype.is_float else i64
        return function(*(cast_to(as_value(operand), wide) for operand in operands))

    return apply


def _divide(a: Any, b: Any) -> Value:
    return F.divide(cast_to(as_value(a), f64), cast_to(as_value(b), f64))


def _in_double(function: Callable[..., Value]) -> Callable[..., Value]:
    return lambda x: function(cast_to(as_value(x), float_dtype(f64)))


def _round_result(function: Callable[..., Value]) -> Callable[..., Value]:
    return lambda x: cast_to(function(cast_to(as_value(x), f64)), i64)


def _logical(function: Callable[..., Value]) -> Callable[..., Value]:
    return lambda *operands: function(*(cast_to(as_value(x), bool_) for x in operands))


def _choose(condition: Any, a: Any, b: Any) -> Value:
    return F.where(cast_to(as_value(condition), bool_), as_value(a), as_value(b))


_RULES: Mapping[Any, Callable[..., Value]] = {
    operator.add: _arithmetic(F.add),
    operator.sub: _arithmetic(F.subtract),
    operator.mul: _arithmetic(F.multiply),
    operator.truediv: _divide,
    operator.floordiv: _arithmetic(F.floor_divide),
    operator.mod: _arithmetic(F.remainder),
    operator.pow: _arithmetic(F.power),
    operator.neg: _arithmetic(F.negate),
    operator.abs: _arithmetic(F.abs),
    operator.lt: _arithmetic(F.less),
    operator.le: _arithmetic(F.less_equal),
    operator.gt: _arithmetic(F.greater),
    operator.ge: _arithmetic(F.greater_equal),
    operator.eq: _arithmetic(F.equal),
    operator.ne: _arithmetic(F.not_equal),
    operator.and_: _logical(F.logical_and),
    operator.or_: _logical(F.logical_or),
    torch.sym_not: _logical(F.logical_not),
    torch.sym_max: _arithmetic(F.maximum),
    torch.sym_min: _arithmetic(F.minimum),
    torch.sym_float: lambda x: cast_to(as_value(x), f64),
    torch.sym_int: _round_result(F.trunc),
    torch.sym_ite: _choose,
    math.trunc: _round_result(F.trunc),
    math.floor: _round_result(F.floor),
    math.ceil: _round_result(F.ceil),
    round: _round_result(F.round),
    torch.sym_sqrt: _in_double(F.sqrt),
}
