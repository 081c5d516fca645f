"""Random numbers: rand, normal, bernoulli, dropout, multinomial…

Each draws from a key of its own (``node.random_key``), which comes from the graph's key input: the
numbers are not those that torch's generator would give, their distribution is.
"""

from __future__ import annotations

from typing import Any

from monograph import functional as F
from monograph.frontends.torch.node import TorchNode, static
from monograph.frontends.torch.ops import check
from monograph.frontends.torch.registry import converter
from monograph.ir.dims import Shape, provably_less
from monograph.ir.graph import Value
from monograph.ir.types import DType, bool_, f32, f64, i64, integer_limits, u32
from monograph.ops.rules import require


def _uniform(node: TorchNode, shape: Shape, dtype: DType) -> Value:
    """Uniform reals in [0, 1) in a dtype, drawn in f32 where it has no generator of its own."""
    drawn = f64 if dtype is f64 else f32
    return node.value(F.uniform(node.random_key(), shape, dtype=drawn), dtype)


def _positive_uniform(node: TorchNode, shape: Shape) -> Value:
    """Uniform reals in (0, 1], in f64: their logarithm is finite."""
    return F.subtract(1.0, F.uniform(node.random_key(), shape, dtype=f64))


def _normal(node: TorchNode, shape: Shape, dtype: DType) -> Value:
    drawn = f64 if dtype is f64 else f32
    return node.value(F.normal(node.random_key(), shape, dtype=drawn), dtype)


@converter(
    "aten.rand.default",
    "aten.rand.generator",
    "aten.rand_like.default",
    "aten.rand_like.generator",
)
def _rand(node: TorchNode) -> Value:
    type_ = node.result_type()
    if type_.dtype.is_complex:
        part = f64 if type_.dtype.bits == 128 else f32
        return F.complex(_uniform(node, type_.shape, part), _uniform(node, type_.shape, part))
    return _uniform(node, type_.shape, type_.dtype)


@converter("aten.uniform.default")
def _uniform_between(node: TorchNode) -> Value:
    type_ = node.result_type()
    low, high = node["from"], node["to"]
    require(
        low <= high, "uniform: the range is empty", expected="from <= to", found=f"{low} and {high}"
    )
    return F.add(F.multiply(_uniform(node, type_.shape, type_.dtype), high - low), low)


@converter(
    "aten.randn.default",
    "aten.randn.generator",
    "aten.randn_like.default",
    "aten.randn_like.generator",
)
def _randn(node: TorchNode) -> Value:
    type_ = node.result_type()
    if type_.dtype.is_complex:
        part = f64 if type_.dtype.bits == 128 else f32
        pair = (_normal(node, type_.shape, part), _normal(node, type_.shape, part))
        return F.complex(*(F.multiply(each, 0.5**0.5) for each in pair))
    return _normal(node, type_.shape, type_.dtype)


@converter(
    "aten.normal.Tensor_float",
    "aten.normal.float_Tensor",
    "aten.normal.Tensor_Tensor",
    "aten.normal.float_float",
    "aten.normal_functional.default",
)
def _normal_around(node: TorchNode) -> Value:
    type_ = node.result_type()
    mean, deviation = node.as_result(node["mean"], node["std"])
    return F.add(F.multiply(_normal(node, type_.shape, type_.dtype), deviation), mean)


@converter("aten.log_normal.default")
def _log_normal(node: TorchNode) -> Value:
    type_ = node.result_type()
    drawn = _normal(node, type_.shape, type_.dtype)
    return F.exp(F.add(F.multiply(drawn, node["std"]), node["mean"]))


@converter("aten.exponential.default")
def _exponential(node: TorchNode) -> Value:
    return F.divide(
        F.negate(F.log(_positive_uniform(node, node.result_type().shape))), node["lambd"]
    )


@converter("aten.cauchy.default")
def _cauchy(node: TorchNode) -> Value:
    angle = F.multiply(
        F.subtract(_positive_uniform(node, node.result_type().shape), 0.5), 3.141592653589793
    )
    return F.add(F.multiply(F.tan(angle), node["sigma"]), node["median"])


@converter("aten.geometric.default")
def _geometric(node: TorchNode) -> Value:
    logarithm = F.log(_positive_uniform(node, node.result_type().shape))
    failure = F.log1p(node.value(-float(node["p"]), f64))
    return F.maximum(F.ceil(F.divide(logarithm, failure)), 1.0)


@converter(
    "aten.randint.default",
    "aten.randint.generator",
    "aten.randint.low",
    "aten.randint.low_generator",
    "aten.randint_like.default",
    "aten.randint_like.generator",
    "aten.randint_like.low_dtype",
    "aten.randint_like.low_generator_dtype",
)
def _randint(node: TorchNode) -> Value:
    return _integers(node, node.get("low", 0), node["high"])


@converter("aten.randint_like.Tensor", "aten.randint_like.Tensor_generator")
def _randint_tensor(node: TorchNode) -> Value:
    shape = node.result_type().shape
    bits = F.randint(node.random_key(), shape, 0, 2**62, i64)
    return F.remainder(bits, node.value(node["high"], i64))


@converter("aten.random.default", "aten.random.from", "aten.random.to")
def _random_integers(node: TorchNode) -> Value:
    dtype = node.result_dtype
    limit = 2**24 if dtype.is_float else integer_limits(dtype)[1] if dtype.is_integer else 2
    high = node.get("to")
    return _integers(node, node.get("from", 0), limit if high is None else high)


def _integers(node: TorchNode, low: Any, high: Any) -> Value:
    bounds = (static(low, "the least integer"), static(high, "the greatest integer"))
    return node.value(F.randint(node.random_key(), node.result_type().shape, *bounds, i64))


@converter("aten.randperm.default", "aten.randperm.generator")
def _randperm(node: TorchNode) -> Value:
    shape = node.result_type().shape
    return F.argsort(F.random_bits(node.random_key(), shape, u32), 0)


@converter("aten.bernoulli.default")
def _bernoulli(node: TorchNode) -> Value:
    return F.bernoulli(node.random_key(), node["self"])


@converter("aten.bernoulli.p", "aten.bernoulli.Tensor")
def _bernoulli_chance(node: TorchNode) -> Value:
    return F.bernoulli(node.random_key(), node.value(node["p"], f32), node["self"].shape)


@converter("aten.dropout.default")
def _dropout(node: TorchNode) -> Value:
    x: Value = node["input"]
    return drop_elements(node, x, node["p"]) if node["train"] else x


@converter("aten.native_dropout.default", "aten._fused_dropout.default")
def _native_dropout(node: TorchNode) -> tuple[Value, Value]:
    x: Value = next(iter(node.all_arguments().values()))
    if node.get("train", True) is False:
        return x, F.full(x.shape, True, bool_)
    rate = float(node["p"])
    kept = F.bernoulli(node.random_key(), node.value(1.0 - rate, f32), x.shape)
    scale = 0.0 if rate == 1 else 1.0 / (1.0 - rate)
    return F.multiply(F.multiply(x, node.value(kept, x.dtype)), scale), kept


def drop_elements(node: TorchNode, x: Value, rate: float) -> Value:
    """``x`` with elements dropped at a rate, and the rest scaled up to keep the mean."""
    if rate == 0:
        return x
    if rate == 1:
        return F.multiply(x, 0.0)
    return F.dropout(x, node.random_key(), float(rate))


@converter("aten.feature_dropout.default")
def _feature_dropout(node: TorchNode) -> Value:
    x: Value = node["input"]
    if not node["train"]:
        return x
    noise = F.ones((*x.shape[:2], *(1,) * (x.rank - 2)), x.dtype)
    return F.multiply(x, drop_elements(node, noise, node["p"]))


@converter("aten.alpha_dropout.default")
def _alpha_dropout(node: TorchNode) -> Value:
    x: Value = node["input"]
    return _alpha_dropped(node, x, x.shape) if node["train"] else x


@converter("aten.feature_alpha_dropout.default")
def _feature_alpha_dropout(node: TorchNode) -> Value:
    x: Value = node["input"]
    shape = (*x.shape[:2], *(1,) * (x.rank - 2))
    return _alpha_dropped(node, x, shape) if node["train"] else x


def _alpha_dropped(node: TorchNode, x: Value, shape: Shape) -> Value:
    """Dropout to the value at which selu saturates, scaled so that mean and variance stay."""
    rate = float(node["p"])
    if rate == 0:
        return x
    if rate == 1:
        return F.multiply(x, 0.0)
    alpha = 1.7580993408473766
    scale = ((alpha**2 * rate + 1) * (1 - rate)) ** -0.5
    kept = F.bernoulli(node.random_key(), node.value(1.0 - rate, f32), shape)
    value = F.where(kept, x, -alpha)
    return F.add(F.multiply(value, scale), scale * alpha * rate)


@converter("aten.rrelu_with_noise_functional.default")
def _rrelu(node: TorchNode) -> tuple[Value, Value]:
    x: Value = node["self"]
    low, high = float(node["lower"]), float(node["upper"])
    if not node["training"]:
        return F.leaky_relu(x, (low + high) / 2), node["noise"]
    slope = F.add(F.multiply(_uniform(node, x.shape, x.dtype), high - low), low)
    noise = F.where(F.less_equal(x, 0.0), slope, 1.0)
    return F.multiply(x, noise), noise


@converter("aten.multinomial.default")
def _multinomial(node: TorchNode) -> Value:
    weights = node.value(node["self"], f64)
    count = static(node["num_samples"], "the number of samples")
    require(
        node["self"].dtype.is_float,
        "multinomial: weights are floats",
        expected="a float dtype",
        found=node["self"].type,
    )
    enough = node["replacement"] or not provably_less(weights.shape[-1], count)
    require(
        count > 0 and enough,
        "multinomial: that many cannot be drawn",
        expected=f"1 to {weights.shape[-1]} without replacement",
        found=count,
    )
    usable = F.logical_and(F.is_finite(weights), F.greater_equal(weights, 0.0))
    check(usable, "multinomial: a weight is negative, infinite or NaN")
    check(F.greater(F.sum(weights, -1), 0.0), "multinomial: the weights add up to nothing")
    if not node["replacement"]:
        # The first of exponential clocks that run at these rates rings with these chances.
        clocks = F.divide(F.negate(F.log(_positive_uniform(node, weights.shape))), weights)
        return F.top_k(clocks, count, -1, largest=False)[1]
    totals = F.cumsum(weights, -1)
    last = F.slice(totals, [-1], [None], axes=[-1])
    points = F.multiply(F.uniform(node.random_key(), (*weights.shape[:-1], count), dtype=f64), last)
    below = F.less_equal(F.unsqueeze(totals, -2), F.unsqueeze(points, -1))
    return F.sum(node.value(below, i64), -1)
