"""ai.onnx.ml: support vector machines."""

from __future__ import annotations

import numpy as np

from monograph import functional as F
from monograph.frontends.onnx.ml.features import DOMAIN, store_items
from monograph.frontends.onnx.ml.scores import (
    choose_labels,
    class_labels,
    features,
    post_transform,
    rows_of,
    transform_scores,
)
from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import cast_to
from monograph.ir.graph import Value
from monograph.ir.types import Array, f32


def _kernel(node: OnnxNode, x: Value, vectors: Array, kind: str) -> Value:
    """How alike each row is to each support vector."""
    gamma, shift, degree = (*node.floats("kernel_params", ()), 0.0, 0.0, 0.0)[:3]
    known = store_items(vectors, x.dtype, vectors.shape)
    products = F.matmul(x, F.transpose(known))
    if kind == "LINEAR":
        return products
    if kind == "POLY":
        return F.power(products * gamma + shift, float(int(degree)))
    if kind == "SIGMOID":
        return F.tanh(products * gamma + shift)
    if kind == "RBF":
        apart = F.subtract(F.unsqueeze(x, 1), known)
        return F.exp(F.sum(apart * apart, -1) * -gamma)
    raise node.error("an unknown kernel", expected="LINEAR, POLY, RBF or SIGMOID", found=kind)


@converter("SVMRegressor", domain=DOMAIN)
def svm_regressor(node: OnnxNode) -> Value:
    """The weighted sum of how alike a row is to each support vector."""
    x, supports = features(node), node.integer("n_supports", 0)
    kind = node.string("kernel_type", "LINEAR") if supports > 0 else "LINEAR"
    if supports > 0:
        kernel = _kernel(node, x, rows_of(node, "support_vectors", supports), kind)
        weights = store_items(rows_of(node, "coefficients", supports), x.dtype, (supports, 1))
        scores = F.matmul(kernel, weights)
    else:
        scores = _kernel(node, x, rows_of(node, "coefficients", 1), kind)
    total = scores + node.floats("rho")[0]
    if node.integer("one_class", 0):
        return cast_to(F.where(F.greater(total, 0.0), 1.0, -1.0), f32)
    return cast_to(transform_scores(node, total, post_transform(node)), f32)


@converter("SVMClassifier", domain=DOMAIN)
def svm_classifier(node: OnnxNode) -> tuple[Value, Value]:
    """The class that wins most comparisons of two classes, and what these come to."""
    labels, x = class_labels(node, "classlabels_ints"), features(node)
    per_class = node.ints("vectors_per_class", ())
    classes = labels.shape[0]
    assert isinstance(classes, int)
    if sum(per_class) == 0:
        weights = store_items(rows_of(node, "coefficients", classes).T, x.dtype, (-1, classes))
        scores = F.matmul(x, weights) + node.floats("rho")[0]
        votes = scores
    else:
        scores, votes = _comparisons(node, x, classes, per_class)
    if per_class and node.floats("prob_a", ()):
        scores = _probabilities(node, scores, classes)
    elif classes <= 2 and scores.shape[1] == 1:
        scores = F.concat([F.negate(scores), scores], 1)
    places = F.argmax(votes, 1)
    return choose_labels(labels, places), cast_to(
        transform_scores(node, scores, post_transform(node)), f32
    )


def _comparisons(
    node: OnnxNode, x: Value, classes: int, per_class: tuple[int, ...]
) -> tuple[Value, Value]:
    """A score for each pair of classes, and how many pairs each class wins."""
    total = sum(per_class)
    rho = node.floats("rho")
    if len(per_class) != classes or len(rho) < classes * (classes - 1) // 2:
        raise node.error("the classes do not fit", found=f"{classes}, {per_class}, {len(rho)} rho")
    kind = node.string("kernel_type", "LINEAR")
    kernel = _kernel(node, x, rows_of(node, "support_vectors", total), kind)
    weights = rows_of(node, "coefficients", classes - 1)
    starts = np.concatenate([[0], np.cumsum(per_class)])
    pairs = _pairs(classes)
    columns = np.zeros((total, len(pairs)), np.float32)
    for column, (i, j) in enumerate(pairs):
        own, other = (slice(starts[k], starts[k + 1]) for k in (i, j))
        columns[own, column], columns[other, column] = weights[j - 1, own], weights[i, other]
    biased = F.matmul(kernel, store_items(columns, x.dtype, columns.shape))
    scores = F.add(biased, store_items(rho[: len(pairs)], x.dtype))
    first, second = (np.eye(classes, dtype=np.float32)[list(side)] for side in zip(*pairs))  # noqa: B905
    won = F.unsqueeze(F.greater(scores, 0.0), -1)
    return scores, F.sum(F.where(won, first, second), 1)


def _pairs(classes: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(classes) for j in range(i + 1, classes)]


def _probabilities(node: OnnxNode, scores: Value, classes: int) -> Value:
    """Probabilities of all classes from the scores of pairs: Platt's, then Wu, Lin and Weng's.

    The latter is the fixed point of libsvm's iteration, at most 100 steps of it or as many as
    there are classes; a row that is near enough stays as it is.
    """
    pairs = _pairs(classes)
    slope, shift = node.floats("prob_a"), node.floats("prob_b")
    if len(slope) != len(pairs) or len(shift) != len(pairs):
        raise node.error("prob_a and prob_b do not fit", found=f"{len(slope)}, {len(shift)}")
    line = F.add(scores * store_items(slope, scores.dtype), store_items(shift, scores.dtype))
    wins = F.clip(F.sigmoid(F.negate(line)), 1e-7, 1.0 - 1e-7)
    first, second = (np.eye(classes)[list(side)] for side in zip(*pairs, strict=True))
    # Both are [samples, classes, classes]: how likely each class is against each other.
    place = (first[:, :, None] * second[:, None, :]).astype(scores.dtype.numpy)
    against = F.tensordot(wins, place, 1)
    other = F.tensordot(F.subtract(1.0, wins), place.transpose(0, 2, 1), 1)
    won = F.add(against, other)
    lost = F.swapaxes(won, 1, 2)
    diagonal = F.unsqueeze(F.sum(lost * lost, 2), -1) * np.eye(classes, dtype=place.dtype)
    matrix = F.subtract(diagonal, won * lost)
    even = F.full((scores.shape[0], classes), 1.0 / classes, scores.dtype)
    return F.for_loop(0, max(100, classes), lambda _, p: _step(matrix, p, classes), even)  # type: ignore[no-any-return]


def _step(matrix: Value, chances: Value, classes: int) -> Value:
    """One round of the iteration: each class in turn."""

    def column(x: Value, at: int) -> Value:
        return F.slice(x, [at], [at + 1], axes=[1])

    product = F.squeeze(F.matmul(matrix, F.unsqueeze(chances, -1)), -1)
    total = F.sum(chances * product, 1, keepdims=True)
    near = F.less(F.max(F.abs(product - total), 1, keepdims=True), 0.005 / classes)
    moved = chances
    for at in range(classes):
        row = F.squeeze(column(matrix, at), 1)
        own, step = column(row, at), column(product, at)
        change = F.divide(total - step, own)
        scale = F.add(change, 1.0)
        unit = np.eye(classes, dtype=moved.dtype.numpy)[at]
        moved = F.divide(F.add(moved, change * unit), scale)
        total = F.divide(total + change * (change * own + step * 2.0), scale * scale)
        product = F.divide(product + change * row, scale)
    return F.where(near, chances, moved)
