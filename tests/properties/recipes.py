"""Recipes: each adds a few nodes of one kind to a graph and returns the values that it made.

The plain ones apply ops of every family. What a type rule refuses is simply not added, so a recipe
may ask for anything that has a fair chance. ``traps`` has those that are aimed at passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from monograph import functional as F
from monograph.ir.dims import Dim
from monograph.ir.graph import Value
from monograph.ir.op import registry
from monograph.ir.tree import flatten
from monograph.ir.types import bool_
from tests.properties.builder import FLOATS, INTEGERS, LARGEST, Builder, Unfit

Recipe: TypeAlias = Callable[[Builder], Any]
RECIPES: list[Recipe] = []
SMOOTH: list[Recipe] = []


def recipe(weight: int = 1, *, smooth: bool = False) -> Callable[[Recipe], Recipe]:
    """Register a recipe, ``weight`` times as likely as others; smooth ones have gradients."""

    def register(function: Recipe) -> Recipe:
        RECIPES.extend([function] * weight)
        SMOOTH.extend([function] * weight * smooth)
        return function

    return register


ARITHMETIC = ("add", "subtract", "multiply", "maximum", "minimum")
DIVISION = ("divide", "floor_divide", "truncate_divide", "remainder", "fmod", "power", "atan2")
COMPARISON = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
LOGIC = ("logical_and", "logical_or", "logical_xor")
BITS = ("bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right")
SIMPLE = ("negate", "abs", "sign", "floor", "ceil", "round", "trunc", "square", "relu")
MATH = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh"),
    *("atanh", "erf", "erfc", "sigmoid"),
)
ACTIVATIONS = (
    *("relu", "relu6", "leaky_relu", "elu", "selu", "celu", "silu", "gelu", "softplus"),
    *("softsign", "mish", "hardswish", "hardsigmoid", "hardtanh", "log_sigmoid"),
)
REDUCTIONS = ("sum", "mean", "prod", "max", "min", "logsumexp", "variance")
SMOOTH_UNARY = ("sin", "cos", "tanh", "sigmoid", "atan", "erf", "silu", "gelu", "asinh", "negate")


def function(name: str) -> Callable[..., Any]:
    return getattr(F, name)  # type: ignore[no-any-return]


# Elementwise.


@recipe(6, smooth=True)
def arithmetic(b: Builder) -> Any:
    a = b.number()
    return function(b.choose(("add", "subtract", "multiply") if b.smooth else ARITHMETIC))(
        *b.random.sample([a, b.partner(a)], 2)
    )


@recipe(2)
def division(b: Builder) -> Any:
    a = b.number()
    return function(b.choose(DIVISION))(*b.random.sample([a, b.partner(a)], 2))


@recipe()
def mixed_dtypes(b: Builder) -> Any:
    """Two dtypes meet, or a tensor and a Python number."""
    a, other = b.pick(), b.pick()
    if b.chance(0.5):
        return function(b.choose(ARITHMETIC))(a, b.choose((0, 1, 2.0, 0.5, -1)))
    return function(b.choose(ARITHMETIC))(a, other)


@recipe(2)
def comparison(b: Builder) -> Any:
    a = b.pick()
    return function(b.choose(COMPARISON))(a, b.partner(a))


@recipe()
def logic(b: Builder) -> Any:
    a = b.boolean()
    if b.chance(0.3):
        return F.logical_not(a)
    return function(b.choose(LOGIC))(a, b.partner(a))


@recipe()
def bits(b: Builder) -> Any:
    a = b.integer()
    if b.chance(0.2):
        return F.bitwise_not(a)
    return function(b.choose(BITS))(a, b.partner(a))


@recipe(2, smooth=True)
def select(b: Builder) -> Any:
    a = b.pick()
    return F.where(b.mask(a), a, b.partner(a))


@recipe(smooth=True)
def clip(b: Builder) -> Any:
    if b.smooth:
        return F.tanh(b.float())
    low, high = b.random.sample((None, -1.0, 0.0, 0.5, 6.0), 2)
    return F.clip(b.number(), low, high)


@recipe(3)
def cast(b: Builder) -> Any:
    return F.cast(b.pick(), b.choose((*FLOATS, *INTEGERS, bool_)))


@recipe(3)
def simple(b: Builder) -> Any:
    return function(b.choose(SIMPLE))(b.number())


@recipe(4, smooth=True)
def mathematics(b: Builder) -> Any:
    return function(b.choose(SMOOTH_UNARY if b.smooth else MATH))(b.float())


@recipe(2)
def activation(b: Builder) -> Any:
    return function(b.choose(ACTIVATIONS))(b.float())


@recipe()
def classify(b: Builder) -> Any:
    return function(b.choose(("is_nan", "is_inf", "is_finite")))(b.float())


# Reductions, orders, running sums.


@recipe(4, smooth=True)
def reduction(b: Builder) -> Any:
    x = b.number()
    names = ("sum", "mean", "logsumexp", "variance") if b.smooth else REDUCTIONS
    return function(b.choose(names))(x, b.axes(x), keepdims=b.chance(0.5))


@recipe()
def quantifier(b: Builder) -> Any:
    x = b.boolean()
    return function(b.choose(("any", "all")))(x, b.axes(x), keepdims=b.chance(0.5))


@recipe()
def position(b: Builder) -> Any:
    x = b.number()
    name = b.choose(("argmax", "argmin", "argsort"))
    return function(name)(x, b.axis(x))


@recipe(smooth=True)
def running(b: Builder) -> Any:
    x = b.number()
    name = "cumsum" if b.smooth else b.choose(("cumsum", "cumprod", "cummax", "sort"))
    return function(name)(x, b.axis(x))


@recipe()
def top_k(b: Builder) -> Any:
    x = b.number()
    return F.top_k(x, 1, b.axis(x))


# Shapes.


@recipe(3, smooth=True)
def reshape(b: Builder) -> Any:
    x = b.pick()
    return F.reshape(x, other_shape(b, x))


def other_shape(b: Builder, x: Value) -> tuple[Dim, ...]:
    """A shape of as many elements: flat, split, merged, shuffled, with ones in between."""
    dims: list[Dim] = list(x.shape)
    choice = b.random.randrange(5)
    if choice == 0:
        return (x.tensor.size,)
    if choice == 1 and dims:
        at = b.random.randrange(len(dims))
        return (*dims[:at], 1, *dims[at:])
    if choice == 2 and len(dims) >= 2:
        at = b.random.randrange(len(dims) - 1)
        return (*dims[:at], dims[at] * dims[at + 1], *dims[at + 2 :])
    if choice == 3:
        return tuple(dim for dim in dims if dim != 1)
    b.random.shuffle(dims)
    return tuple(dims)


@recipe(3, smooth=True)
def transpose(b: Builder) -> Any:
    x = b.pick()
    return F.transpose(x, b.random.sample(range(x.rank), x.rank))


@recipe(2, smooth=True)
def expand(b: Builder) -> Any:
    x = b.pick()
    shape = [b.choose((2, 3)) if dim == 1 and b.chance(0.7) else dim for dim in x.shape]
    return F.expand(x, [*([2] if b.chance(0.3) else []), *shape])


@recipe(2, smooth=True)
def squeeze(b: Builder) -> Any:
    x = b.pick()
    if 1 in x.shape and b.chance(0.6):
        return F.squeeze(x, b.choose([axis for axis, dim in enumerate(x.shape) if dim == 1]))
    return F.unsqueeze(x, b.random.randint(0, x.rank))


@recipe(3, smooth=True)
def slicing(b: Builder) -> Any:
    x = b.pick()
    axis = b.axis(x)
    start, limit = b.choose((0, 1, -2)), b.choose((None, 1, 2, 3, -1, 100))
    return F.slice(x, [start], [limit], [b.choose((1, 1, 2, 3))], axes=[axis])


@recipe(2, smooth=True)
def padding(b: Builder) -> Any:
    x = b.pick()
    low = [b.choose((0, 0, 1, -1, 2)) for _ in x.shape]
    high = [b.choose((0, 0, 1, 3)) for _ in x.shape]
    mode = "constant" if b.chance(0.7) else b.choose(("reflect", "edge", "wrap"))
    value = b.scalar(x.dtype) if b.chance(0.5) and mode == "constant" else 0
    return F.pad(x, low, high, value, mode)


@recipe(2, smooth=True)
def joining(b: Builder) -> Any:
    x = b.pick(lambda value: value.rank > 0)
    axis = b.axis(x)

    def joins(other: Value) -> bool:
        same = [i for i in range(x.rank) if other.rank == x.rank and other.shape[i] == x.shape[i]]
        return other.dtype is x.dtype and {*same, axis} == set(range(x.rank))

    others = [b.pick(joins) for _ in range(b.random.randint(1, 2))]
    if all(other.shape == x.shape for other in others) and b.chance(0.4):
        return F.stack([x, *others], b.random.randint(0, x.rank))
    return F.concat([x, *others], axis)


@recipe(2, smooth=True)
def split(b: Builder) -> Any:
    x = b.pick(lambda value: value.rank > 0)
    axis = b.axis(x)
    size = x.shape[axis]
    if not isinstance(size, int):
        return F.split(x, [1, size - 1], axis)
    first = b.random.randint(0, size)
    return F.split(x, [first, size - first], axis)


@recipe(smooth=True)
def reorder(b: Builder) -> Any:
    x = b.pick(lambda value: value.rank > 0)
    if b.chance(0.5):
        return F.flip(x, b.axis(x))
    return F.roll(x, b.choose((1, -1, 2, 9)), b.axis(x))


@recipe(smooth=True)
def repeat(b: Builder) -> Any:
    x = b.pick()
    return F.tile(x, [b.choose((1, 1, 2)) for _ in x.shape])


@recipe(smooth=True)
def triangle(b: Builder) -> Any:
    x = b.pick(lambda value: value.rank >= 2)
    return function(b.choose(("tril", "triu")))(x, b.choose((0, 1, -1)))


# Contractions and norms.


@recipe(3, smooth=True)
def matmul(b: Builder) -> Any:
    x = b.float(1) if b.smooth or b.chance(0.8) else b.pick(lambda value: value.rank > 0)
    inner = x.shape[-1]

    def fits(value: Value) -> bool:
        shape = value.shape[-2:]
        return value.dtype is x.dtype and bool(shape) and shape[0] == inner

    try:
        other = b.pick(fits)
    except Unfit:
        if not isinstance(inner, int):
            raise
        other = b.constant(x.dtype, (inner, b.choose((1, 2, 3))))
    return F.matmul(x, other)


@recipe(smooth=True)
def linear(b: Builder) -> Any:
    x = b.float(1)
    inner = x.shape[-1]
    if not isinstance(inner, int):
        raise Unfit
    weight = b.constant(x.dtype, (3, inner))
    return F.linear(x, weight, b.constant(x.dtype, (3,)) if b.chance(0.5) else None)


@recipe(2, smooth=True)
def softmax(b: Builder) -> Any:
    x = b.float(1)
    return function(b.choose(("softmax", "log_softmax")))(x, b.axis(x))


@recipe(2, smooth=True)
def norm(b: Builder) -> Any:
    x = b.float(1)
    size = x.shape[-1]
    if not isinstance(size, int):
        raise Unfit
    weight, bias = (b.constant(x.dtype, (size,)) for _ in range(2))
    if b.chance(0.4):
        return F.rms_norm(x, weight)
    return F.layer_norm(x, weight, bias)


@recipe(2)
def conv_batch_norm(b: Builder) -> Any:
    """A convolution with fixed weights, then a batch norm with fixed statistics."""
    images = [value for value in b.values if value.rank == 4 and value.dtype in FLOATS[:2]]
    x = b.choose(images) if images else as_image(b.float())
    channels = x.shape[1]
    if not isinstance(channels, int):
        raise Unfit
    generator = np.random.default_rng(b.random.randrange(1000))

    def weight(*shape: int) -> Value:
        return b.weight(generator.uniform(0.5, 1.5, shape).astype(x.dtype.numpy))

    y = F.conv(x, weight(3, channels, 2, 2))
    if b.chance(0.5):
        y = y + F.reshape(weight(3), (3, 1, 1))
    return F.batch_norm(y, weight(3), weight(3), weight(3), weight(3))


def as_image(x: Value) -> Value:
    """A picture of rank 4 that depends on a value of any shape."""
    pattern = np.random.default_rng(0).normal(size=(1, 2, 4, 4)).astype(x.dtype.numpy)
    return F.mean(x) * pattern


# Indices.


@recipe(2, smooth=True)
def take(b: Builder) -> Any:
    x = b.pick(lambda value: value.rank > 0)
    axis = b.axis(x)
    size = x.shape[axis]
    if not isinstance(size, int) or size == 0:
        raise Unfit
    if b.chance(0.5) or b.smooth:
        indices: Any = np.array([b.random.randrange(size) for _ in range(b.random.randint(0, 4))])
        return F.take(x, indices.astype(np.int64), axis)
    return F.take(x, F.remainder(F.cast(b.integer(), "i64"), size), axis)


@recipe()
def one_hot(b: Builder) -> Any:
    return F.one_hot(F.remainder(F.cast(b.integer(), "i64"), 3), 3)


# Data made from nothing.


@recipe(2)
def constant(b: Builder) -> Any:
    return b.constant(b.choose((*FLOATS, *INTEGERS, bool_)), b.choose(((), (1,), (3,), (2, 3))))


@recipe()
def generated(b: Builder) -> Any:
    x = b.pick()
    with b.graph.as_current():
        if b.chance(0.5) and x.rank:
            return F.iota(x.shape, b.axis(x), b.choose(("i32", "f32", "i64")))
        return F.full(x.shape, b.scalar(x.dtype), x.dtype)


@recipe()
def dimension(b: Builder) -> Any:
    x = b.pick(lambda value: value.rank > 0)
    with b.graph.as_current():
        return F.dim(x.shape[b.axis(x)])


@recipe(6)
def sample(b: Builder) -> Any:
    """A call from any op's samples, on constants: whatever is registered gets folded, too."""
    cls = registry()[b.choose(sorted(evaluable_ops()))]
    each = b.choose(cls.samples())
    arrays = [np.asarray(array) for array in each.operands]
    if not arrays or any(array.size > LARGEST for array in arrays):
        raise Unfit
    results = each.apply(*[b.graph.add_constant(array) for array in arrays])
    made = flat(results)
    return [value for value in made if value.dtype in (*FLOATS, *INTEGERS, bool_)]


def evaluable_ops() -> list[str]:
    """Ops that the plain interpreter runs: those of one device, on tensors.

    Frontends register more when they are imported; the graphs must not depend on that.
    """
    return [
        name
        for name, cls in registry().items()
        if cls.__module__.startswith("monograph.ops.")
        and not cls.__module__.endswith(("collective", "memory"))
    ]


def flat(results: Any) -> Sequence[Value]:
    """The values in what a function returned."""
    leaves, _ = flatten(results)
    return [leaf for leaf in leaves if isinstance(leaf, Value)]
