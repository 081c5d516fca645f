"""Losses of classes: negative log likelihood, and cross entropy of scores."""

from __future__ import annotations

from monograph import functional as F
from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import cast_to
from monograph.ir.graph import Value
from monograph.ir.types import i64, wide
from monograph.ops.loss import REDUCTIONS, Reduction

NOTHING_IGNORED = -100
"""The class that is ignored where a node names none; it is no class that can be."""


@converter("SoftmaxCrossEntropyLoss")
@converter("SoftmaxCrossEntropyLoss", domain="com.microsoft")
def softmax_cross_entropy_loss(node: OnnxNode) -> Value | tuple[Value, Value]:
    """Cross entropy of scores[batch, classes, ...], and their log softmax if it is wanted."""
    scores, labels, weights = node.input(0), node.input(1), node.optional(2)
    ignored = node.integer("ignore_index", NOTHING_IGNORED)
    loss = F.cross_entropy(scores, labels, weights, _reduction(node), ignored)
    return (loss, F.log_softmax(scores, 1)) if node.wants(1) else loss


@converter("NegativeLogLikelihoodLoss")
def negative_log_likelihood_loss(node: OnnxNode) -> Value:
    """The negative of the log likelihood at each target, weighted by class."""
    logs, targets, weights = node.input(0), cast_to(node.input(1), i64), node.optional(2)
    exact = cast_to(logs, wide(logs.dtype))
    counts = F.not_equal(targets, node.integer("ignore_index", NOTHING_IGNORED))
    chosen = F.where(counts, targets, 0)
    picked = F.squeeze(F.take_along_axis(exact, F.unsqueeze(chosen, 1), 1), (1,))
    if weights is None:
        factors = cast_to(counts, exact.dtype)
    else:
        factors = F.where(counts, F.take(cast_to(weights, exact.dtype), chosen, 0), 0.0)
    losses = F.where(counts, F.negate(F.multiply(picked, factors)), 0.0)
    reduction = _reduction(node)
    if reduction == "sum":
        losses = F.sum(losses)
    elif reduction == "mean":
        losses = F.divide(F.sum(losses), F.sum(factors))
    return cast_to(losses, logs.dtype)


def _reduction(node: OnnxNode) -> Reduction:
    reduction = node.string("reduction", "mean")
    if reduction not in REDUCTIONS:
        raise node.error(
            "an unknown reduction", expected=", ".join(REDUCTIONS), found=repr(reduction)
        )
    return reduction
