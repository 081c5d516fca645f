"""Recipes aimed at passes: identities, almost-identities, duplicates, composites spelt by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from monograph import functional as F
from monograph.ir.graph import Value
from monograph.ir.op import Trait
from monograph.ir.types import DType, TensorType, bool_, dtype_of
from tests.properties.builder import FLOATS, Builder, Unfit
from tests.properties.recipes import MATH, SMOOTH_UNARY, function, recipe

# Arithmetic.


@recipe(5, smooth=True)
def identity(b: Builder) -> Any:
    """x*1, x+0, x-0, x/1 and their kind: some are exact, some are not for -0.0 or NaN."""
    x = b.number()

    def c(number: float) -> Value:
        array = np.full(b.shape_for(x), max(number, 0) if x.dtype.name == "u8" else number)
        return b.graph.add_constant(array.astype(x.dtype.numpy))

    def bounds() -> tuple[float | None, float | None]:
        return b.choose((None, -1.0, 0.0, 2.0)), b.choose((None, -2.0, 0.5, 6.0))

    spellings = [
        lambda: x * c(1),
        lambda: c(1) * x,
        lambda: x + c(0),
        lambda: c(-0.0) + x,
        lambda: x - c(0),
        lambda: c(0) - x,
        lambda: x * c(-1),
        lambda: x * c(2),
        lambda: x + x,
        lambda: F.negate(-x),
        lambda: (x + c(1)) + c(2),
        lambda: c(2) * (x * c(3)),
        lambda: (x - c(1)) + c(1),
        lambda: x - (c(2) - x),
        lambda: x * x * x,
    ]
    if not b.smooth:
        spellings += [
            lambda: x * c(0),
            lambda: x - x,
            lambda: F.divide(x, c(1)),
            lambda: F.divide(x, c(0.5)),
            lambda: F.divide(x, c(2)),
            lambda: F.divide(x, x),
            lambda: F.floor_divide(x, c(1)),
            lambda: F.remainder(x, c(1)),
            lambda: F.power(x, c(b.choose((0, 1, 2, 3, -1, 0.5)))),
            lambda: F.maximum(x, x),
            lambda: F.minimum(F.maximum(x, c(0)), c(3)),
            lambda: F.maximum(F.minimum(x, c(3)), c(0)),
            lambda: F.abs(F.abs(x)),
            lambda: F.abs(-x),
            lambda: F.relu(F.relu(x)),
            lambda: F.floor(F.round(x)),
            lambda: F.sign(F.sign(x)),
            lambda: F.clip(F.clip(x, *bounds()), *bounds()),
            lambda: b.graph.add("clip", x, low=None, high=None),
        ]
    return b.choose(spellings)()


@recipe(2)
def inverse(b: Builder) -> Any:
    """Functions beside their inverses: true of real numbers, not of floats."""
    x = b.float()
    return b.choose(
        [
            lambda: F.exp(F.log(x)),
            lambda: F.log(F.exp(x)),
            lambda: F.sqrt(x) * F.sqrt(x),
            lambda: F.square(F.sqrt(x)),
            lambda: F.sqrt(F.square(x)),
            lambda: F.reciprocal(F.reciprocal(x)),
            lambda: 1.0 / F.sqrt(x),
            lambda: F.log(1.0 + x),
            lambda: F.exp(x) - 1.0,
            lambda: F.exp(x) * F.exp(-x),
            lambda: F.divide(F.divide(x, 3.0), 3.0),
            lambda: F.square(F.abs(x)),
            lambda: F.cos(-x) + F.sin(-x),
        ]
    )()


@recipe(2)
def factor(b: Builder) -> Any:
    """a*c + b*c and a*c - c, which distribution would change."""
    a = b.number()
    other, c = b.partner(a), b.partner(a)
    return b.choose([lambda: a * c + other * c, lambda: a * c - c, lambda: a * (other + c)])()


@recipe(2)
def logical_identity(b: Builder) -> Any:
    a = b.pick()
    other, x = b.partner(a), b.mask(a)
    return b.choose(
        [
            lambda: F.logical_not(F.logical_not(x)),
            lambda: F.logical_and(x, True),
            lambda: F.logical_or(False, x),
            lambda: F.logical_and(x, False),
            lambda: F.logical_xor(x, x),
            lambda: F.logical_not(F.less(a, other)),
            lambda: F.logical_not(F.equal(a, other)),
            lambda: F.equal(a, a),
            lambda: F.less_equal(a, a),
            lambda: F.where(x, a, a),
            lambda: F.where(F.logical_not(x), a, other),
            lambda: F.where(b.graph.add_constant(b.chance(0.5)), a, other),
            lambda: F.where(x, True, False),
            lambda: F.where(x, F.where(x, a, other), other),
            lambda: F.equal(x, True),
        ]
    )()


@recipe()
def bit_identity(b: Builder) -> Any:
    x = b.integer()

    def c(number: int) -> Value:
        return b.graph.add_constant(np.array(number).astype(x.dtype.numpy))

    return b.choose(
        [
            lambda: x & c(-1),
            lambda: x & c(0),
            lambda: x | c(0),
            lambda: x ^ x,
            lambda: x ^ c(-1),
            lambda: ~(~x),
            lambda: x << c(0),
            lambda: (x << c(1)) >> c(1),
            lambda: (x >> c(2)) >> c(70),
            lambda: x * c(4),
            lambda: F.floor_divide(x, c(4)),
            lambda: F.remainder(x, c(4)),
        ]
    )()


# Casts and shapes.


@recipe(4)
def cast_chain(b: Builder) -> Any:
    """There and back again: harmless through a wider type, not through a narrower one."""
    x = b.pick()
    through = dtype_of(b.choose(("f64", "f32", "f16", "bf16", "i64", "i32", "i8", "u8", "bool")))
    last: DType = x.dtype if b.chance(0.7) else dtype_of(b.choose(("f32", "i32", "f64")))
    return F.cast(F.cast(x, through), last)


@recipe(4, smooth=True)
def shape_chain(b: Builder) -> Any:
    """Shape ops that undo each other or could be one."""
    x = b.pick()
    order = b.random.sample(range(x.rank), x.rank)
    back = [order.index(axis) for axis in range(x.rank)]
    size = x.tensor.size
    first = x.shape[0] if x.rank else 1
    return b.choose(
        [
            lambda: F.transpose(F.transpose(x, order), back),
            lambda: F.transpose(F.transpose(x, order), order),
            lambda: b.graph.add("transpose", x, permutation=tuple(range(x.rank))),
            lambda: F.reshape(F.reshape(x, (size,)), x.shape),
            lambda: F.reshape(F.reshape(x, (1, size, 1)), (size,)),
            lambda: b.graph.add("reshape", x, shape=x.shape),
            lambda: F.reshape(F.transpose(x, order), x.shape),
            lambda: F.squeeze(F.unsqueeze(x, 0), 0),
            lambda: F.unsqueeze(F.unsqueeze(x, 0), 0),
            lambda: F.expand(F.expand(x, (2, *x.shape)), (3, 2, *x.shape)),
            lambda: b.graph.add("expand", x, shape=x.shape),
            lambda: F.flip(F.flip(x, range(x.rank)), range(x.rank)),
            lambda: F.slice(F.slice(x, [1], [None], axes=[0]), [0], [2], axes=[0]),
            lambda: F.concat(F.split(x, 1, 0), 0),
            lambda: F.concat(F.unstack(F.unsqueeze(x, 0), 0), 0),
            lambda: b.graph.add("concat", x, axis=0),
            lambda: F.concat([F.slice(x, [0], [1]), F.slice(x, [1], [None])], 0),
            lambda: F.concat(F.split(x, [1, first - 1], 0), 0),
            lambda: b.graph.add("stack", x, axis=0),
            lambda: b.graph.add("cast", x, dtype=x.dtype),
            lambda: F.roll(x, b.choose((0, first)), 0),
            lambda: F.take(x, F.iota((first,)), 0),
            lambda: b.graph.add("sum", x, axes=(-1,)) if x.dtype is not bool_ else x,
            lambda: F.pad(F.pad(x, [1] * x.rank, [0] * x.rank), [-1] * x.rank, [0] * x.rank),
            lambda: F.sum(F.expand(x, (3, *x.shape)), 0) if x.dtype is not bool_ else x,
            lambda: F.transpose(F.expand(F.unsqueeze(x, 0), (2, *x.shape))),
        ]
    )()


@recipe(2)
def reduction_chain(b: Builder) -> Any:
    x = b.pick(lambda value: value.rank >= 1 and value.dtype is not bool_)
    axis = b.axis(x)
    name = b.choose(("sum", "max", "min", "prod", "mean"))
    reduce = function(name)
    return b.choose(
        [
            lambda: reduce(x, ()),
            lambda: reduce(reduce(x, axis), ()),
            lambda: reduce(reduce(x, axis), tuple(range(x.rank - 1))),
            lambda: reduce(F.unsqueeze(x, 0), 0),
            lambda: reduce(F.transpose(x), 0),
            lambda: F.squeeze(reduce(x, axis, keepdims=True), axis),
            lambda: reduce(F.expand(F.unsqueeze(x, 0), (2, *x.shape)), 0),
            lambda: reduce(F.concat([x, x], 0), 0),
        ]
    )()


@recipe(smooth=True)
def elementwise_through_shape(b: Builder) -> Any:
    """An elementwise op around shape ops: it could move to the other side."""
    x = b.float(1)
    unary = function(b.choose(SMOOTH_UNARY if b.smooth else ("relu", *MATH)))
    return b.choose(
        [
            lambda: unary(F.transpose(x)),
            lambda: F.reshape(unary(F.reshape(x, (x.tensor.size,))), x.shape),
            lambda: unary(F.expand(F.unsqueeze(x, 0), (2, *x.shape))),
            lambda: F.transpose(F.transpose(x) * 2.0),
            lambda: F.concat([unary(x), unary(x)], 0),
        ]
    )()


# Constants and copies.


@recipe(3)
def constant_subgraph(b: Builder) -> Any:
    """Constants only, some of them large when expanded."""
    dtype = b.choose(FLOATS)
    shape = b.choose(((), (3,), (2, 3), (0, 2), (1,)))
    x = b.constant(dtype, shape)
    y = function(b.choose(("add", "multiply", "maximum")))(x, b.constant(dtype, ()))
    return b.choose(
        [
            lambda: y,
            lambda: function(b.choose(MATH))(y),
            lambda: F.expand(y, (10, 9, *shape)),
            lambda: F.transpose(y),
            lambda: F.cast(y, "i32"),
            lambda: F.sum(y),
        ]
    )()


@recipe(6, smooth=True)
def duplicate(b: Builder) -> Any:
    """The same node again, operands perhaps swapped, which is the same only if they commute."""
    node = b.choose(node for node in b.graph.nodes if node.op.name != "weight")
    operands = list(node.operands)
    if b.chance(0.5 if node.op.has(Trait.COMMUTATIVE) else 0.2):
        operands.reverse()
    regions = [region.clone() for region in node.regions]
    return list(b.graph.create(node.op, operands, regions=regions).results)


@recipe(2)
def almost_duplicate(b: Builder) -> Any:
    """Another operand in one place: not the same node, though much alike."""
    node = b.choose(node for node in b.graph.nodes if node.operands and not node.regions)
    at = b.random.randrange(len(node.operands))
    old = node.operands[at]
    operands = list(node.operands)
    operands[at] = b.pick(lambda value: value.type == old.type)
    return list(b.graph.create(node.op, operands).results)


# Composites by hand.


@recipe(6, smooth=True)
def composite(b: Builder) -> Any:
    """What frontends write out in primitives; ``recognize`` finds it again."""
    x = b.float()
    half = F.cast(b.graph.add_constant(0.5), x.dtype)
    spellings = [
        lambda: x * F.sigmoid(x),
        lambda: 1.0 / (1.0 + F.exp(-x)),
        lambda: x / (1.0 + F.exp(-x)),
        lambda: half * x * (1.0 + F.erf(x / 1.4142135623730951)),
        lambda: x * half * (1.0 + F.erf(x * 0.7071067811865476)),
        lambda: x * 0.5 * (1.0 + F.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))),
        lambda: F.log(1.0 + F.exp(x)),
        lambda: x * F.tanh(F.softplus(x)),
        lambda: F.exp(x * 0.5) * 2.0 - 1.0,
    ]
    if not b.smooth:
        spellings += [
            lambda: F.maximum(x, 0.0),
            lambda: F.where(x > 0.0, x, x * 0.01),
            lambda: F.minimum(F.maximum(x, 0.0), 6.0),
            lambda: F.where(x > 0.0, x, F.exp(x) - 1.0),
            lambda: x * F.clip(x + 3.0, 0.0, 6.0) / 6.0,
            lambda: F.power(x, 2.0),
            lambda: 1.0 / F.sqrt(x),
        ]
    return b.choose(spellings)()


@recipe(5, smooth=True)
def row_composite(b: Builder) -> Any:
    """Softmax, norms and their parts by hand, along the last axis (or, as a trap, another)."""
    x = b.float(1)
    size = x.shape[-1]
    axis = -1 if b.chance(0.8) else b.axis(x)
    other = axis if b.chance(0.85) else b.axis(x)
    if not isinstance(size, int) or size == 0:
        raise Unfit

    def stable_softmax() -> Any:
        exponentials = F.exp(x - F.max(x, axis, keepdims=True))
        return exponentials / F.sum(exponentials, other, keepdims=True)

    def layer_norm() -> Any:
        centred = x - F.mean(x, axis, keepdims=True)
        variance = F.mean(centred * centred, other, keepdims=True)
        normal = centred / F.sqrt(variance + 1e-5)
        scale = b.constant(x.dtype, (size,))
        return normal * scale + b.constant(x.dtype, (size,)) if b.chance(0.6) else normal

    def rms_norm() -> Any:
        return x * F.rsqrt(F.mean(F.square(x), axis, keepdims=True) + 1e-6)

    return b.choose(
        [
            stable_softmax,
            layer_norm,
            rms_norm,
            lambda: F.exp(x) / F.sum(F.exp(x), axis, keepdims=True),
            lambda: x - F.log(F.sum(F.exp(x), axis, keepdims=True)),
            lambda: F.log(F.softmax(x, axis)),
            lambda: F.sum(x, axis) / float(size),
            lambda: F.log(F.sum(F.exp(x), axis)),
            lambda: F.mean(F.square(x - F.mean(x, axis, keepdims=True)), other),
        ]
    )()


@recipe(2, smooth=True)
def contraction(b: Builder) -> Any:
    """Linear layers and attention by hand."""
    x = b.float(2)
    inner = x.shape[-1]
    if not isinstance(inner, int):
        raise Unfit

    def linear() -> Any:
        weight = b.constant(x.dtype, (2, inner))
        return F.matmul(x, F.transpose(weight)) + b.constant(x.dtype, (2,))

    def attention() -> Any:
        swapped = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
        scores = F.matmul(x, F.transpose(x, swapped)) * (float(inner) ** -0.5 if inner else 1.0)
        return F.matmul(F.softmax(scores, x.rank - 1), x)

    def of_transposes() -> Any:
        swapped = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
        return F.matmul(F.transpose(x, swapped), x)

    return b.choose([linear, attention, of_transposes])()


# Control flow.


@recipe(2, smooth=True)
def branch(b: Builder) -> Any:
    """An ``if`` whose branches have work for every pass inside."""
    if b.depth > 1:
        raise Unfit
    x, captured = b.pick(), b.pick()
    truth = b.graph.add_constant(b.chance(0.5)) if b.chance(0.2) else b.boolean()
    predicate = F.any(truth) if truth.rank or b.chance(0.1) else truth

    def body(x: Value) -> Value:
        return x if b.chance(0.2) else inner_work(b, x, captured)

    return F.cond(predicate, body, body, x)


@recipe(2, smooth=True)
def loop(b: Builder) -> Any:
    """A ``scan`` along the first axis."""
    if b.depth > 1:
        raise Unfit
    xs, captured = b.pick(lambda value: value.rank >= 1), b.pick()
    inside = TensorType(xs.dtype, xs.shape[1:])
    starts = [value for value in b.values if value.type == inside]
    with b.graph.as_current():
        start = b.choose(starts) if starts else F.full(inside.shape, b.scalar(xs.dtype), xs.dtype)

    def body(carry: Value, x: Value) -> Any:
        worked = inner_work(b, x, captured)
        return carry + x if x.dtype is not bool_ else x, worked

    carry, stacked = F.scan(body, start, xs, reverse=b.chance(0.3))
    return [carry, stacked]


@recipe()
def counted(b: Builder) -> Any:
    """A ``while`` of a few turns, or of none."""
    if b.depth > 1:
        raise Unfit
    x, turns = b.pick(), b.choose((0, 1, 3))

    def condition(carry: Any) -> Value:
        return F.less(carry[0], turns)

    def body(carry: Any) -> Any:
        return carry[0] + 1, inner_work(b, carry[1], x)

    return F.while_loop(condition, body, (0, x))[1]


def inner_work(b: Builder, x: Value, captured: Value) -> Value:
    """A few recipes inside a region; a value of ``x``'s own type comes out."""
    from tests.properties.graphs import grow

    inner = Builder(x.graph, [x], b.random, b.smooth, depth=b.depth + 1, symbols=b.symbols)
    if b.chance(0.5):
        # Reading it in an op is what lifts it into the region.
        inner.values.append(F.where(b.chance(0.5), captured, captured))
    for _ in range(b.random.randint(0, 4)):
        grow(inner, b.random.randrange(1000))
    fitting = [value for value in inner.values if value.type == x.type]
    return fitting[-1]
