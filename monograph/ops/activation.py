"""Smooth activations: gelu, silu, softplus and their relatives, elu and its.

All are composites, kept whole for patterns and library kernels and decomposed late. Each is defined
everywhere: at an infinity it has its limit (silu(-inf) is -0.0 where ``x * sigmoid(x)`` would be
NaN), in a tail it keeps its relative accuracy, and a NaN stays a NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from monograph.ir.build import Operand
from monograph.ir.graph import Node, Value
from monograph.ir.lower import Lowering, Position, Scalar
from monograph.ir.op import Gradients, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType
from monograph.ops import erf_reference, math
from monograph.ops.elementwise import (
    ELEMENTWISE,
    Unary,
    abs,
    clip,
    float_facts,
    in_double,
    maximum,
    minimum,
    negate,
    unary_float,
    unary_operands,
    where,
)
from monograph.ops.rectifier import lift_negative_infinity, lift_negative_infinity_array
from monograph.ops.rules import require

SELU_ALPHA = 1.6732632423543772
SELU_SCALE = 1.0507009873554805
SQRT_HALF = 0.7071067811865476
SQRT_2_OVER_PI = 0.7978845608028654
ONE_OVER_SQRT_2_PI = 0.3989422804014327
GELU_CUBIC = 0.044715
LONG_PI = np.longdouble("3.14159265358979323846264338327950288")
# Beyond ±50 the slopes of gelu are 0 or 1 in every dtype; holding x there avoids inf * 0.
GELU_FAR = 50.0


def finite(x: Value) -> Value:
    """``x`` with infinities replaced by the largest numbers, so that times 0 they are 0."""
    largest = float(float_facts(x.dtype).max)
    return minimum(maximum(x, -largest), largest)


@op("elu", traits=ELEMENTWISE)
class Elu(Unary):
    """x above 0, alpha * (exp(x) - 1) below."""

    alpha: float = 1.0

    def evaluate(self, x: Array) -> Any:
        return in_double(lambda wide: np.where(wide > 0, wide, self.alpha * np.expm1(wide)), x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        (x,) = node.operands
        return (where(x > 0.0, grad, grad * self.alpha * math.exp(minimum(x, 0.0))),)

    def decompose(self, x: Value) -> Value:
        return where(x > 0.0, x, math.expm1(minimum(x, 0.0)) * self.alpha)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield from super().samples()
        yield Sample(cls(0.5), (np.array([-30.0, -1.0, 2.0, 100.0], np.float32),), "alpha 1/2")


@function
def elu(x: Operand, alpha: float = 1.0) -> Value:
    """x above 0, alpha * (exp(x) - 1) below."""
    return unary_float(Elu(float(alpha)), x)


@op("selu", traits=ELEMENTWISE)
class Selu(Unary):
    """elu with the alpha and the scale that keep mean 0 and variance 1 from layer to layer."""

    def evaluate(self, x: Array) -> Any:
        return in_double(
            lambda wide: SELU_SCALE * np.where(wide > 0, wide, SELU_ALPHA * np.expm1(wide)), x
        )

    def vjp(self, node: Node, grad: Value) -> Gradients:
        (x,) = node.operands
        below = math.exp(minimum(x, 0.0)) * (SELU_SCALE * SELU_ALPHA)
        return (grad * where(x > 0.0, SELU_SCALE, below),)

    def decompose(self, x: Value) -> Value:
        below = math.expm1(minimum(x, 0.0)) * (SELU_SCALE * SELU_ALPHA)
        return where(x > 0.0, x * SELU_SCALE, below)


@function
def selu(x: Operand) -> Value:
    """elu, scaled to keep mean 0 and variance 1."""
    return unary_float(Selu(), x)


@op("celu", traits=ELEMENTWISE)
class Celu(Unary):
    """x above 0, alpha * (exp(x / alpha) - 1) below: its slope is 1 on both sides of 0."""

    alpha: float = 1.0

    def infer(self, x: TensorType) -> TensorType:
        require(
            self.alpha != 0,
            "celu: alpha is a divisor",
            expected="a number other than 0",
            found=self.alpha,
        )
        return super().infer(x)

    def evaluate(self, x: Array) -> Any:
        def compute(wide: Array) -> Array:
            return np.where(wide > 0, wide, self.alpha * np.expm1(wide / self.alpha))

        return in_double(compute, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        (x,) = node.operands
        return (where(x > 0.0, grad, grad * math.exp(minimum(x, 0.0) / self.alpha)),)

    def decompose(self, x: Value) -> Value:
        return where(x > 0.0, x, math.expm1(minimum(x, 0.0) / self.alpha) * self.alpha)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield from super().samples()
        yield Sample(cls(0.5), (np.array([-30.0, -1.0, 2.0, 100.0], np.float32),), "alpha 1/2")


@function
def celu(x: Operand, alpha: float = 1.0) -> Value:
    """x above 0, alpha * (exp(x / alpha) - 1) below."""
    return unary_float(Celu(float(alpha)), x)


@op("silu", traits=ELEMENTWISE | Trait.TRANSCENDENTAL)
class Silu(Unary):
    """x * sigmoid(x), also called swish; -0.0 at -inf."""

    def evaluate(self, x: Array) -> Any:
        return in_double(lambda wide: lift_negative_infinity_array(wide) * math.logistic(wide), x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        (x,) = node.operands
        weight = math.sigmoid(x)
        return (grad * (weight * (finite(x) * (1.0 - weight) + 1.0)),)

    def decompose(self, x: Value) -> Value:
        return lift_negative_infinity(x) * math.sigmoid(x)


@function
def silu(x: Operand) -> Value:
    """x * sigmoid(x)."""
    return unary_float(Silu(), x)


@op("gelu", traits=ELEMENTWISE | Trait.TRANSCENDENTAL)
class Gelu(Unary):
    """x Φ(x), where Φ is the normal distribution; -0.0 at -inf.

    ``approximate="none"`` is exact, as x erfc(-x/√2) / 2. ``"tanh"`` is the usual approximation
    x (1 + tanh(u)) / 2 with u = √(2/π) (x + 0.044715 x³), as x sigmoid(2u). Both forms keep their
    relative accuracy where x is very negative; 1 + erf and 1 + tanh would cancel there.
    """

    approximate: str = "none"

    def infer(self, x: TensorType) -> TensorType:
        require(
            self.approximate in ("none", "tanh"),
            "gelu: there is no such approximation",
            expected='"none" or "tanh"',
            found=repr(self.approximate),
        )
        return super().infer(x)

    def evaluate(self, x: Array) -> Any:
        def exact(wide: Array) -> Array:
            return np.asarray(lift_negative_infinity_array(wide) * erf_reference.normal(wide))

        def by_tanh(wide: Array) -> Array:
            # The rounding of 2u is magnified by 2u: a wider float holds what was lost of it.
            longer = wide.astype(np.longdouble)
            exact = np.sqrt(8 / LONG_PI) * longer * (1 + GELU_CUBIC * longer * longer)
            doubled = exact.astype(np.float64)
            lost = np.where(np.isfinite(doubled), exact - doubled, 0).astype(np.float64)
            weight = math.logistic(doubled)
            return np.asarray(
                lift_negative_infinity_array(wide) * (weight + weight * (1 - weight) * lost)
            )

        return in_double(exact if self.approximate == "none" else by_tanh, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        (x,) = node.operands
        near = clip(x, -GELU_FAR, GELU_FAR)
        if self.approximate == "none":
            density = math.exp(near * near * -0.5) * ONE_OVER_SQRT_2_PI
            return (grad * (self._weight(x) + near * density),)
        weight = self._weight(near)
        slope = (near * near * (3 * GELU_CUBIC) + 1.0) * (2 * SQRT_2_OVER_PI)
        return (grad * (weight + near * weight * (1.0 - weight) * slope),)

    def decompose(self, x: Value) -> Value:
        return lift_negative_infinity(x) * self._weight(x)

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        function = "gelu_erf" if self.approximate == "none" else "gelu_tanh"
        return b.apply(function, b.read(0, index))

    def _weight(self, x: Value) -> Value:
        """The factor that multiplies x: Φ(x) or its approximation."""
        if self.approximate == "none":
            return math.erfc(x * -SQRT_HALF) * 0.5
        return math.sigmoid(x * (x * x * GELU_CUBIC + 1.0) * (2 * SQRT_2_OVER_PI))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for approximate in ("none", "tanh"):
            for operand, note, gradient in unary_operands(cls.domain):
                label = f"{approximate} {note}".strip()
                yield Sample(cls(approximate), (operand,), label, gradient)
            tail = np.array([-1e30, -100.0, -13.0, -9.0, -5.0, 5.0, 13.0, 1e30], np.float32)
            yield Sample(cls(approximate), (tail,), f"{approximate} tails", False)


@function
def gelu(x: Operand, approximate: str = "none") -> Value:
    """x Φ(x), exactly or by tanh."""
    return unary_float(Gelu(approximate), x)


@op("softplus", traits=ELEMENTWISE | Trait.TRANSCENDENTAL)
class Softplus(Unary):
    """log(1 + exp(beta x)) / beta, and x itself where beta x is above the threshold."""

    beta: float = 1.0
    threshold: float = 20.0

    def infer(self, x: TensorType) -> TensorType:
        require(
            self.beta != 0,
            "softplus: beta is a divisor",
            expected="a number other than 0",
            found=self.beta,
        )
        return super().infer(x)

    def evaluate(self, x: Array) -> Any:
        def compute(wide: Array) -> Array:
            scaled = wide * self.beta
            soft = (np.maximum(scaled, 0) + np.log1p(np.exp(-np.abs(scaled)))) / self.beta
            return np.where(scaled > self.threshold, wide, soft)

        return in_double(compute, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        (x,) = node.operands
        scaled = x * self.beta
        return (where(scaled > self.threshold, grad, grad * math.sigmoid(scaled)),)

    def decompose(self, x: Value) -> Value:
        scaled = x * self.beta
        soft = maximum(scaled, 0.0) + math.log1p(math.exp(negate(abs(scaled))))
        return where(scaled > self.threshold, x, soft / self.beta)

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        x = b.read(0, index)
        beta = b.literal(self.beta, x.dtype)
        scaled = x if self.beta == 1 else b.apply("multiply", x, beta)
        soft = b.apply("softplus", scaled)
        if self.beta != 1:
            soft = b.apply("divide", soft, beta)
        return b.select(b.apply("greater", scaled, b.literal(self.threshold, x.dtype)), x, soft)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield from super().samples()
        wide = np.array([-1e4, -30.0, 0.0, 9.5, 10.5, 30.0, 1e4], np.float32)
        yield Sample(cls(2.0, 20.0), (wide,), "beta 2")
        yield Sample(cls(0.5, float("inf")), (wide,), "no threshold")


@function
def softplus(x: Operand, beta: float = 1.0, threshold: float = 20.0) -> Value:
    """log(1 + exp(beta x)) / beta; linear where beta x is above the threshold."""
    return unary_float(Softplus(float(beta), float(threshold)), x)


@op("softsign", traits=ELEMENTWISE)
class Softsign(Unary):
    """x / (1 + |x|); ±1 at the infinities."""

    def evaluate(self, x: Array) -> Any:
        held = np.clip(x, np.finfo(x.dtype).min, np.finfo(x.dtype).max)
        return in_double(lambda wide: wide / (1 + np.abs(wide)), held)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (grad / math.square(abs(node.operands[0]) + 1.0),)

    def decompose(self, x: Value) -> Value:
        held = finite(x)
        return held / (abs(held) + 1.0)


@function
def softsign(x: Operand) -> Value:
    """x / (1 + |x|)."""
    return unary_float(Softsign(), x)


@op("mish", traits=ELEMENTWISE | Trait.TRANSCENDENTAL)
class Mish(Unary):
    """x tanh(softplus(x)); -0.0 at -inf.

    With d = exp(-|x|), tanh(log(1 + exp(x))) is n / (n + 2) for n = d (d + 2) where x < 0, and
    n / (n + 2 d²) for n = 1 + 2 d elsewhere: one exponential, no overflow, no cancellation.
    """

    def evaluate(self, x: Array) -> Any:
        def compute(wide: Array) -> Array:
            decay = np.exp(-np.abs(wide))
            above = np.where(wide < 0, decay * (decay + 2), 1 + 2 * decay)
            rest = np.where(wide < 0, 2.0, 2 * decay * decay)
            return np.asarray(lift_negative_infinity_array(wide) * (above / (above + rest)))

        return in_double(compute, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        (x,) = node.operands
        weight = self._weight(x)
        slope = (1.0 - math.square(weight)) * math.sigmoid(x)
        return (grad * (weight + finite(x) * slope),)

    def decompose(self, x: Value) -> Value:
        return lift_negative_infinity(x) * self._weight(x)

    def _weight(self, x: Value) -> Value:
        decay = math.exp(negate(abs(x)))
        above = where(x < 0.0, decay * (decay + 2.0), decay * 2.0 + 1.0)
        return above / (above + where(x < 0.0, 2.0, decay * decay * 2.0))


@function
def mish(x: Operand) -> Value:
    """x tanh(softplus(x))."""
    return unary_float(Mish(), x)


@op("log_sigmoid", traits=ELEMENTWISE | Trait.TRANSCENDENTAL)
class LogSigmoid(Unary):
    """log(sigmoid(x)) = min(x, 0) - log(1 + exp(-|x|)): neither overflows nor cancels."""

    def evaluate(self, x: Array) -> Any:
        return in_double(lambda wide: np.minimum(wide, 0) - np.log1p(np.exp(-np.abs(wide))), x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (grad * math.sigmoid(negate(node.operands[0])),)

    def decompose(self, x: Value) -> Value:
        return minimum(x, 0.0) - math.log1p(math.exp(negate(abs(x))))


@function
def log_sigmoid(x: Operand) -> Value:
    """log(sigmoid(x))."""
    return unary_float(LogSigmoid(), x)
