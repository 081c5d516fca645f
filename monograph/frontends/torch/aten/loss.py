"""Losses. Those that are not here are taken apart by torch into ops that we have."""

from __future__ import annotations

from monograph import functional as F
from monograph.frontends.torch.node import TorchNode, static
from monograph.frontends.torch.registry import converter
from monograph.ir.graph import Value
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
