"""Losses. Those that are not here are taken apart by torch into ops that we have."""

from __future__ import annotations

from monograph import functional as F
from monograph.frontends.torch.node import TorchNode, static
from monograph.frontends.torch.registry import converter
from monograph.ir.graph import Value
from monograph.ir.types import i64
from monograph.ops.loss import Reduction

NAMES: tuple[Reduction, ...] = ("none", "mean", "sum")
"""torch's numbers for what becomes of the losses of a batch."""


@converter("aten.cross_entropy_loss.default")
def _cross_entropy(node: TorchNode) -> Value:
    logits, targets, weight = node["self"], node["target"], node["weight"]
    if targets.dtype.is_float:
        return _of_probabilities(node)
    return F.cross_entropy(
        logits,
        targets,
        weight,
        NAMES[int(node["reduction"])],
        static(node["ignore_index"], "ignore_index"),
        float(node["label_smoothing"]),
    )


def _of_probabilities(node: TorchNode) -> Value:
    """The cross entropy of targets that are a distribution over the classes."""
    logits, weight = node["self"], node["weight"]
    axis = 0 if logits.rank == 1 else 1
    classes = logits.shape[axis]
    targets = node.value(node["target"], logits.dtype)
    smoothing = float(node["label_smoothing"])
    if smoothing > 0.0:
        share = smoothing / F.cast(F.dim(classes), logits.dtype)
        targets = targets * (1.0 - smoothing) + share
    losses = F.log_softmax(logits, axis) * targets
    if weight is not None:
        shape = tuple(classes if place == axis else 1 for place in range(logits.rank))
        losses = losses * F.reshape(weight, shape)
    each = F.negate(F.sum(losses, axis))
    reduction = NAMES[int(node["reduction"])]
    if reduction == "none":
        return each
    # The mean is over the batch and its positions, which ``each`` holds one loss of.
    return F.sum(each) if reduction == "sum" else F.mean(each)


@converter("aten.multilabel_margin_loss.default")
def _multilabel_margin(node: TorchNode) -> Value:
    return _margins(node)[0]


@converter("aten.multilabel_margin_loss_forward.default")
def _multilabel_margin_forward(node: TorchNode) -> tuple[Value, Value]:
    return _margins(node)


def _margins(node: TorchNode) -> tuple[Value, Value]:
    """By how much each other class comes too near each target, and which classes are targets.

    Targets end at the first -1. torch's own decomposition counts what stands behind it.
    """
    scores, targets = node["self"], F.cast(node["target"], i64)
    whole = scores.shape
    if scores.rank < 2:
        scores, targets = F.reshape(scores, (1, -1)), F.reshape(targets, (1, -1))
    classes = scores.shape[1]
    ended = F.cumsum(F.cast(F.equal(targets, -1), i64), 1)
    counts = F.equal(ended, 0)
    wanted = F.take_along_axis(scores, F.where(counts, targets, 0), 1)
    none = F.zeros(scores.shape, i64)
    marks = F.put_along_axis(none, F.where(counts, targets, 0), F.cast(counts, i64), 1, "max")
    is_target = F.equal(marks, 1)
    margins = F.maximum(1.0 - F.unsqueeze(wanted, 2) + F.unsqueeze(scores, 1), 0)
    is_counted = F.logical_and(F.unsqueeze(counts, 2), F.logical_not(F.unsqueeze(is_target, 1)))
    share = F.cast(F.dim(classes), scores.dtype)
    each = F.sum(F.where(is_counted, margins, 0), (1, 2)) / share
    losses = F.reshape(each, whole[:-1])
    reduction = NAMES[int(node["reduction"])]
    if reduction != "none":
        losses = F.sum(losses) if reduction == "sum" else F.mean(losses)
    return losses, F.reshape(F.cast(is_target, scores.dtype), whole)
