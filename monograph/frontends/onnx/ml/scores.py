"""ai.onnx.ml: what the models do with scores in the end, and the linear ones."""

from __future__ import annotations

import math

import numpy as np

from monograph import functional as F
from monograph.frontends.onnx.ml.features import DOMAIN, store_items
from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import cast_to
from monograph.ir.graph import Value
from monograph.ir.types import Array, f32, f64, i64, string

POST_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def transform_scores(node: OnnxNode, scores: Value, transform: str) -> Value:
    """Scores as probabilities, or as whatever the attribute ``post_transform`` asks for."""
    if transform == "NONE":
        return scores
    if transform == "LOGISTIC":
        return F.sigmoid(scores)
    if transform == "SOFTMAX":
        return F.softmax(scores, -1)
    if transform == "SOFTMAX_ZERO":
        return _softmax_zero(scores)
    if transform == "PROBIT":
        return F.erf_inv(scores * 2.0 - 1.0) * math.sqrt(2)
    raise node.error(
        "an unknown post_transform", expected=", ".join(POST_TRANSFORMS), found=transform
    )


def _softmax_zero(scores: Value) -> Value:
    """A softmax in which scores of (about) zero stay so."""
    largest = F.max(scores, -1, keepdims=True)
    zero = F.less_equal(F.abs(scores), 1e-7)
    parts = F.where(zero, scores * F.exp(F.negate(largest)), F.exp(scores - largest))
    total = F.sum(parts, -1, keepdims=True)
    nothing = F.equal(total, 0.0)
    return F.where(nothing, 0.5, parts / F.where(nothing, 1.0, total))


def post_transform(node: OnnxNode) -> str:
    """The attribute of that name: a word or, in newer ops, its number."""
    given = node.attribute("post_transform", "NONE")
    if isinstance(given, int) and 0 <= given < len(POST_TRANSFORMS):
        return POST_TRANSFORMS[given]
    if given in POST_TRANSFORMS:
        return str(given)
    raise node.error(
        "an unknown post_transform", expected=", ".join(POST_TRANSFORMS), found=str(given)
    )


def class_labels(node: OnnxNode, integers: str = "classlabels_int64s") -> Value:
    """The labels of a classifier's classes, a vector of integers or strings."""
    if node.attribute("classlabels_strings", ()):
        return store_items(node.strings("classlabels_strings"), string)
    return store_items(node.ints(integers), i64)


def nothing_like(labels: Value) -> Value:
    """The label of what is not of the only class there is: 0, or an empty string."""
    return store_items(("" if labels.dtype is string else 0,), labels.dtype, ())


def choose_labels(labels: Value, places: Value) -> Value:
    """The labels at places; of one label only, the label where the place is not 0."""
    if labels.shape[0] != 1:
        return F.take(labels, places)
    return F.where(F.not_equal(places, 0), F.reshape(labels, ()), nothing_like(labels))


def features(node: OnnxNode) -> Value:
    """The operand as a matrix of floats."""
    x = node.input(0)
    matrix = F.unsqueeze(x, 0) if x.rank == 1 else x
    if matrix.rank != 2:
        raise node.error("a row of features for each sample is needed", found=str(x.type))
    return matrix if matrix.dtype in (f32, f64) else cast_to(matrix, f32)


def rows_of(node: OnnxNode, name: str, rows: int) -> Array:
    """A list of floats as a matrix of so many rows."""
    items = np.array(node.floats(name), np.float32)
    if rows < 1 or items.size % rows:
        raise node.error(f"{name} do not fit", found=f"{items.size} of them in {rows} rows")
    return items.reshape(rows, -1)


# Linear models.


@converter("LinearRegressor", domain=DOMAIN)
def linear_regressor(node: OnnxNode) -> Value:
    """A weighted sum of the features for each target."""
    scores = _linear(node, node.integer("targets", 1))
    return cast_to(transform_scores(node, scores, post_transform(node)), f32)


@converter("LinearClassifier", domain=DOMAIN)
def linear_classifier(node: OnnxNode) -> tuple[Value, Value]:
    """The class with the largest weighted sum of the features, and what the sums come to."""
    labels = class_labels(node, "classlabels_ints")
    x = features(node)
    width = x.shape[1]
    count = len(node.floats("coefficients"))
    if not isinstance(width, int) or width < 1 or count % width:
        raise node.error("the coefficients do not fit", found=f"{count} of them for {x.type}")
    scores = _linear(node, count // width)
    transform = post_transform(node)
    if count == width and labels.shape[0] == 2:
        scores = F.concat([F.negate(scores), scores], 1)
    result = transform_scores(node, scores, transform)
    if result.shape[1] == 1:
        threshold = 0.0 if transform == "NONE" else 0.5
        above = F.reshape(F.greater_equal(result, threshold), (x.shape[0],))
        first = F.reshape(F.slice(labels, [0], [1]), ())
        return F.where(above, first, nothing_like(labels)), cast_to(result, f32)
    return F.take(labels, F.argmax(result, 1)), cast_to(result, f32)


def _linear(node: OnnxNode, targets: int) -> Value:
    x = features(node)
    weights = store_items(rows_of(node, "coefficients", targets).T, x.dtype, (-1, targets))
    sums = F.matmul(x, weights)
    bias = node.floats("intercepts", ())
    return F.add(sums, store_items(bias, x.dtype)) if bias else sums
