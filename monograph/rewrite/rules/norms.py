"""Layer norm and root-mean-square norm, spelled out with means, squares and roots."""

from __future__ import annotations

from monograph.dataclass import dataclass
from monograph.ir.dims import Shape
from monograph.ir.graph import Node, Value
from monograph.ops.elementwise import Add, Divide, Multiply
from monograph.ops.norm import LayerNorm, RmsNorm, layer_norm, rms_norm
from monograph.ops.shape import reshape
from monograph.rewrite.matchers import (
    Axes,
    match_centering,
    mean_square_of,
    plus_constant,
    strip_expand,
    under_inverse_root,
    under_root,
    variance_of,
)
from monograph.rewrite.rule import Rule, rewrite

MAX_FACTORS = 4
ROUNDS = (
    "rounds otherwise; the variance is that of the centred x, which does not cancel as"
    " mean(x²) - mean(x)² does"
)


@dataclass(frozen=True)
class _Factor:
    """One factor of a product: the value, or 1 over it."""

    value: Value
    inverted: bool = False

    def radicand(self) -> Value | None:
        """x if the factor is 1 / sqrt(x)."""
        return (under_root if self.inverted else under_inverse_root)(self.value)


def _factors(value: Value, depth: int = MAX_FACTORS) -> list[_Factor]:
    """The factors of nested products, and of quotients by a square root."""
    node = value.producer
    if node is None or depth <= 1 or under_inverse_root(value) is not None:
        return [_Factor(value)]
    if isinstance(node.op, Multiply):
        a, b = node.operands
        return [*_factors(a, depth - 1), *_factors(b, depth - 1)]
    if isinstance(node.op, Divide) and under_root(node.operands[1]) is not None:
        return [*_factors(node.operands[0], depth - 1), _Factor(node.operands[1], True)]
    return [_Factor(value)]


@rewrite("layer_norm_spelled", root=(Multiply, Divide), floats=ROUNDS)
def layer_norm_spelled(node: Node) -> Value | None:
    """(x - mean(x)) / sqrt(variance(x) + c) → layer_norm(x, epsilon=c); times a scale as well."""
    factors = _factors(node.result)
    for root, variance, epsilon in _roots(factors):
        found = variance_of(variance)
        if found is None:
            continue
        for numerator in factors:
            if numerator is root or numerator.inverted or match_centering(numerator.value) != found:
                continue
            x, axes = found
            axis = _first_axis(x, axes)
            if axis is None:
                return None
            others = _without(factors, root, numerator)
            return _scale_norm(LayerNorm(axis, epsilon), x, others)
    return None


@rewrite("rms_norm_spelled", root=(Multiply, Divide), floats="rounds otherwise")
def rms_norm_spelled(node: Node) -> Value | None:
    """x / sqrt(mean(x²) + c) → rms_norm(x, epsilon=c); times a scale as well."""
    factors = _factors(node.result)
    for root, squares, epsilon in _roots(factors):
        found = mean_square_of(squares)
        if found is None:
            continue
        for numerator in factors:
            if numerator is root or numerator.inverted or numerator.value is not found[0]:
                continue
            x, axes = found
            axis = _first_axis(x, axes)
            if axis is None:
                return None
            others = _without(factors, root, numerator)
            return _scale_norm(RmsNorm(axis, epsilon), x, others)
    return None


def _roots(factors: list[_Factor]) -> list[tuple[_Factor, Value, float]]:
    """(factor, x, c) for each factor that is 1 / sqrt(x + c) for a number c of at least 0."""
    if len(factors) < 2:
        return []
    roots = []
    for factor in factors:
        radicand = factor.radicand()
        if radicand is None:
            continue
        inner, epsilon = plus_constant(radicand)
        if epsilon >= 0:
            roots.append((factor, inner, epsilon))
    return roots


def _without(factors: list[_Factor], *dropped: _Factor) -> list[_Factor]:
    return [factor for factor in factors if all(factor is not other for other in dropped)]


def _first_axis(x: Value, axes: Axes) -> int | None:
    """The axis from which all are reduced, if the axes are the last ones of a float."""
    first = x.rank - len(axes)
    trailing = axes == tuple(range(first, x.rank)) and bool(axes)
    return first if trailing and x.dtype.is_float else None


def _scale_norm(op: LayerNorm | RmsNorm, x: Value, others: list[_Factor]) -> Value | None:
    """The norm with the other factor as its scale if it fits, else multiplied by the others."""
    if any(factor.inverted for factor in others):
        return None
    if len(others) == 1:
        scale = _parameter(others[0].value, x.shape[op.axis :], x)
        if scale is not None:
            result: Value = op(x, scale)
            return result
    result = op(x)
    for factor in others:
        result = result * factor.value
    return result


def _parameter(value: Value, shape: Shape, x: Value) -> Value | None:
    """A scale or bias in the shape that the norm takes, if it has it but for leading ones."""
    value = strip_expand(value)
    extra = value.rank - len(shape)
    if value.dtype is not x.dtype or extra < 0 or value.shape[extra:] != shape:
        return None
    return reshape(value, shape) if all(dim == 1 for dim in value.shape[:extra]) else None


@rewrite("norm_scale", root=Multiply, floats="rounds otherwise in narrow floats alone")
def norm_scale(node: Node) -> Value | None:
    """layer_norm(x) * scale → layer_norm(x, scale), and so for rms_norm."""
    for normal, factor in (node.operands, node.operands[::-1]):
        inner = _only_user(normal)
        if inner is None or len(inner.operands) != 1:
            continue
        assert isinstance(inner.op, LayerNorm | RmsNorm)
        (x,) = inner.operands
        scale = _parameter(factor, x.shape[inner.op.axis :], x)
        if scale is None:
            continue
        if isinstance(inner.op, LayerNorm):
            return layer_norm(x, scale, axis=inner.op.axis, epsilon=inner.op.epsilon)
        return rms_norm(x, scale, axis=inner.op.axis, epsilon=inner.op.epsilon)
    return None


@rewrite("norm_bias", root=Add, floats="rounds otherwise in narrow floats alone")
def norm_bias(node: Node) -> Value | None:
    """layer_norm(x, scale) + bias → layer_norm(x, scale, bias)."""
    for normal, term in (node.operands, node.operands[::-1]):
        inner = _only_user(normal)
        if inner is None or not isinstance(inner.op, LayerNorm) or len(inner.operands) != 2:
            continue
        x, scale = inner.operands
        bias = _parameter(term, x.shape[inner.op.axis :], x)
        if bias is not None:
            return layer_norm(x, scale, bias, axis=inner.op.axis, epsilon=inner.op.epsilon)
    return None


def _only_user(value: Value) -> Node | None:
    """The norm that produces the value, if the value has no other use."""
    node = value.producer
    if node is None or not isinstance(node.op, LayerNorm | RmsNorm):
        return None
    return node if len(value.uses) == 1 else None


RULES: tuple[Rule, ...] = (layer_norm_spelled, rms_norm_spelled, norm_scale, norm_bias)
