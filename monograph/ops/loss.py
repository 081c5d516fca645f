"""Losses: cross entropy of class indices, and mean squared error.

``reduction`` is ``none`` (a loss for each element), ``sum`` or ``mean``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias, get_args

import numpy as np

from monograph.errors import EvaluationError
from monograph.ir.build import Operand, apply, cast_to, promote_operands
from monograph.ir.graph import Value
from monograph.ir.op import Op, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType, i64, wide
from monograph.ops import data, elementwise, reduce, softmax
from monograph.ops import shape as shape_ops
from monograph.ops.rules import (
    broadcast_shapes,
    format_shape,
    require,
    require_integer,
    same_dim,
    same_dtype,
)

Reduction: TypeAlias = Literal["none", "mean", "sum"]
REDUCTIONS: tuple[Reduction, ...] = get_args(Reduction)


@op("cross_entropy", traits=Trait.REDUCTION)
class CrossEntropy(Op):
    """-log softmax(logits) at the target class, times that class's weight.

    ``logits`` is [batch, classes, ...] (or [classes]) and ``targets`` the same without classes.
    Targets equal to ``ignore_index`` count nothing. ``label_smoothing`` moves that share of the
    target's probability to all classes alike. ``mean`` divides by the weights of the targets that
    count, so it is NaN where none does. All as in PyTorch. A target that is no class is an error
    here; in the decomposition, which cannot raise one, it loses nothing.
    """

    reduction: Reduction = "mean"
    ignore_index: int = -100
    label_smoothing: float = 0.0

    def infer(
        self, logits: TensorType, targets: TensorType, weight: TensorType | None = None
    ) -> TensorType:
        require(
            logits.dtype.is_float and logits.rank >= 1,
            "cross_entropy: the logits do not fit",
            expected="a float [batch, classes, ...] or [classes]",
            found=logits,
        )
        require_integer(self.name, targets)
        axis = _class_axis(logits.rank)
        expected = (*logits.shape[:axis], *logits.shape[axis + 1 :])
        require(
            targets.rank == len(expected),
            "cross_entropy: the targets have the wrong rank",
            expected=format_shape(expected),
            found=targets,
        )
        for one, other in zip(expected, targets.shape, strict=True):
            same_dim(self.name, "the shapes of logits, without classes, and targets", one, other)
        if weight is not None:
            self._check_weight(logits, weight)
        _check_reduction(self.name, self.reduction)
        require(
            0 <= self.label_smoothing <= 1,
            "cross_entropy: label_smoothing is no share",
            expected="a number from 0 to 1",
            found=self.label_smoothing,
        )
        return logits.with_shape(targets.shape if self.reduction == "none" else ())

    def _check_weight(self, logits: TensorType, weight: TensorType) -> None:
        same_dtype(self.name, logits, weight)
        require(
            weight.rank == 1,
            "cross_entropy: the class weights are not a vector",
            expected="rank 1",
            found=weight,
        )
        classes = logits.shape[_class_axis(logits.rank)]
        same_dim(self.name, "the classes of logits and weight", classes, weight.shape[0])

    def evaluate(self, logits: Array, targets: Array, weight: Array | None = None) -> Array:
        axis = _class_axis(logits.ndim)
        classes = logits.shape[axis]
        given = targets.astype(np.int64)
        counts = given != self.ignore_index
        self._check_range(given[counts], classes)
        scale = np.ones(classes, logits.dtype) if weight is None else weight
        logs = softmax.LogSoftmax(axis).evaluate(logits)
        chosen = np.where(counts, given, 0)
        if classes == 0:  # then every target is ignored
            return self._reduce_losses(
                np.zeros(given.shape, logits.dtype), np.zeros((), logits.dtype)
            )
        factors = np.where(counts, scale[chosen], 0)
        picked = np.take_along_axis(logs, np.expand_dims(chosen, axis), axis).squeeze(axis)
        losses = np.where(counts, -picked * scale[chosen], 0)
        if self.label_smoothing:
            spread = (-logs * np.expand_dims(scale, _others(logits.ndim, axis))).sum(axis)
            share = logits.dtype.type(self.label_smoothing)
            smooth = np.where(counts, spread, 0) * (share / classes)
            losses = losses * (1 - share) + smooth
        return self._reduce_losses(losses.astype(logits.dtype), factors.sum(dtype=logits.dtype))

    def _check_range(self, targets: Array, classes: int) -> None:
        wrong = targets[(targets < 0) | (targets >= classes)]
        if wrong.size:
            raise EvaluationError(
                f"cross_entropy: there is no class {wrong.flat[0]}",
                expected=f"0 to {classes - 1}, or {self.ignore_index} to be ignored",
                found=str(wrong.flat[0]),
            )

    def _reduce_losses(self, losses: Array, total: Array) -> Array:
        if self.reduction == "none":
            return losses
        loss = losses.sum(dtype=losses.dtype)
        return np.asarray(loss if self.reduction == "sum" else np.divide(loss, total))

    def decompose(self, logits: Value, targets: Value, weight: Value | None = None) -> Value:
        exact = wide(logits.dtype)
        axis = _class_axis(logits.rank)
        classes = logits.shape[axis]
        logs = softmax.log_softmax(cast_to(logits, exact), axis)
        given = cast_to(targets, i64)
        counts = elementwise.not_equal(given, self.ignore_index)
        others = _others(logits.rank, axis)
        hit = elementwise.equal(
            shape_ops.unsqueeze(data.iota((classes,)), others), shape_ops.unsqueeze(given, axis)
        )
        if weight is None:
            scaled, factors = logs, cast_to(counts, exact)
        else:
            scale = shape_ops.unsqueeze(cast_to(weight, exact), others)
            scaled = logs * scale
            factors = elementwise.where(
                counts, reduce.sum(elementwise.where(hit, scale, 0.0), axis), 0.0
            )
        losses = -reduce.sum(elementwise.where(hit, scaled, 0.0), axis)
        if self.label_smoothing:
            spread = -reduce.sum(scaled, axis)
            share = self.label_smoothing
            uniform = (
                spread * (share / classes)
                if isinstance(classes, int) and classes
                else spread * share / cast_to(data.dim(classes), exact)
            )
            losses = losses * (1.0 - share) + uniform
        losses = elementwise.where(counts, losses, 0.0)
        return cast_to(self._reduce(losses, factors), logits.dtype)

    def _reduce(self, losses: Value, factors: Value) -> Value:
        if self.reduction == "none":
            return losses
        total = reduce.sum(losses)
        return total if self.reduction == "sum" else total / reduce.sum(factors)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        generator = np.random.default_rng(0)
        logits = generator.normal(size=(5, 4)).astype(np.float32)
        targets = np.array([0, 3, 1, 1, 2])
        some = np.array([0, -100, 1, -100, 2])
        weight = generator.uniform(0.5, 2, 4).astype(np.float32)
        for reduction in REDUCTIONS:
            yield Sample(cls(reduction), (logits, targets), reduction)
            yield Sample(cls(reduction), (logits, some, weight), f"{reduction}, weighted")
            yield Sample(cls(reduction, -100, 0.2), (logits, some), f"{reduction}, smoothed")
            smoothed = cls(reduction, 1, 0.1)
            yield Sample(smoothed, (logits, targets, weight), f"{reduction}, smoothed, weighted")
        planes = generator.normal(size=(2, 3, 4, 2)).astype(np.float32)
        places = generator.integers(0, 3, (2, 4, 2)).astype(np.int32)
        yield Sample(cls(), (planes, places), "planes")
        yield Sample(cls(), (logits[0], targets[1]), "one example")
        yield Sample(cls("none"), (logits[::2], targets[::2]), "strided")
        yield Sample(cls("sum"), (np.zeros((0, 4), np.float32), targets[:0]), "no batch", False)
        ignored = np.full(5, -100)
        yield Sample(cls(), (logits, ignored), "all ignored", False)
        yield Sample(cls("none"), (logits * 1e4, targets), "large", False)


@function
def cross_entropy(
    logits: Operand,
    targets: Operand,
    weight: Operand | None = None,
    reduction: Reduction = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Value:
    """Cross entropy of logits[batch, classes, ...] and the class indices targets[batch, ...]."""
    made = CrossEntropy(reduction, ignore_index, float(label_smoothing))
    value = reduce.as_float(logits)
    if weight is None:
        return apply(made, value, targets)
    return apply(made, value, targets, cast_to(shape_ops.one_value(weight), value.dtype))


@op("mse", traits=Trait.REDUCTION)
class Mse(Op):
    """The squared difference of two operands, which broadcast; reduced."""

    reduction: Reduction = "mean"

    def infer(self, prediction: TensorType, target: TensorType) -> TensorType:
        dtype = same_dtype(self.name, prediction, target)
        require(
            dtype.is_float,
            "mse: real float operands are needed",
            expected="a float dtype",
            found=prediction,
        )
        _check_reduction(self.name, self.reduction)
        shape = broadcast_shapes(self.name, prediction.shape, target.shape)
        return prediction.with_shape(shape if self.reduction == "none" else ())

    def evaluate(self, prediction: Array, target: Array) -> Array:
        squares = np.square(prediction - target)
        if self.reduction == "none":
            return np.asarray(squares)
        total = squares.sum(dtype=squares.dtype)
        if self.reduction == "sum":
            return np.asarray(total)
        return np.asarray(np.divide(total, squares.dtype.type(squares.size)))

    def decompose(self, prediction: Value, target: Value) -> Value:
        exact = wide(prediction.dtype)
        difference = cast_to(prediction, exact) - cast_to(target, exact)
        squares = difference * difference
        if self.reduction == "mean":
            squares = reduce.mean(squares)
        elif self.reduction == "sum":
            squares = reduce.sum(squares)
        return cast_to(squares, prediction.dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        def draw(*shape: int) -> Array:
            return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)

        for reduction in REDUCTIONS:
            yield Sample(cls(reduction), (draw(3, 4), draw(3, 4)[::-1]), reduction)
        yield Sample(cls(), (draw(3, 4), draw(4)), "broadcast")
        yield Sample(cls("sum"), (draw(), draw() + 1), "scalars")
        yield Sample(cls(), (draw(0, 2), draw(0, 2)), "empty", False)
        special = np.array([np.nan, np.inf, 1.0], np.float32)
        yield Sample(cls("none"), (special, np.full(3, np.inf, np.float32)), "special", False)


@function
def mse(prediction: Operand, target: Operand, reduction: Reduction = "mean") -> Value:
    """The mean (or sum, or each) of (prediction - target)²."""
    return apply(Mse(reduction), *promote_operands(prediction, target))


def _class_axis(rank: int) -> int:
    return 1 if rank > 1 else 0


def _others(rank: int, axis: int) -> tuple[int, ...]:
    return tuple(position for position in range(rank) if position != axis)


def _check_reduction(name: str, reduction: str) -> None:
    require(
        reduction in REDUCTIONS,
        f"{name}: no such reduction",
        expected=", ".join(REDUCTIONS),
        found=reduction,
    )
