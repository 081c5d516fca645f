"""ai.onnx.ml: ensembles of decision trees.

All trees are walked at once, a step a level: the graph holds where each sample stands in each tree,
reads that node's feature, threshold and branches from tables, and moves on. A leaf leads to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from monograph import functional as F
from monograph.dataclass import dataclass
from monograph.frontends.onnx.ml.features import DOMAIN, store_items
from monograph.frontends.onnx.ml.scores import (
    choose_labels,
    class_labels,
    post_transform,
    transform_scores,
)
from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import cast_to
from monograph.ir.data import Data
from monograph.ir.graph import Value
from monograph.ir.types import Array, bool_, dtype_of, f32, f64, i64, wide

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
LEAF = len(MODES)
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
MAX_TREE_DEPTH = 1024
"""Levels that a tree may have: each is a dozen nodes of the graph."""

_COMPARE: dict[int, Callable[[Value, Value], Value]] = {
    0: F.less_equal,
    1: F.less,
    2: F.greater_equal,
    3: F.greater,
    4: F.equal,
    5: F.not_equal,
}


@dataclass(frozen=True)
class Forest:
    """The nodes of all trees, a row each; ``weights`` has what a leaf adds to each target."""

    roots: Array
    mode: Array
    feature: Array
    split: Array
    yes: Array
    no: Array
    missing: Array
    members: Array | None
    weights: Array

    def depth(self, node: OnnxNode) -> int:
        """How many steps the longest way takes; a way that never ends is an error."""
        at, steps = np.unique(self.roots), 0
        while True:
            at = at[self.mode[at] != LEAF]
            if not at.size:
                return steps
            at, steps = np.unique(np.concatenate([self.yes[at], self.no[at]])), steps + 1
            if steps > MAX_TREE_DEPTH:
                raise node.error(
                    "a tree is too deep or goes round", expected=f"{MAX_TREE_DEPTH} levels"
                )


def _leaves(node: OnnxNode, forest: Forest, x: Value) -> Value:
    """The leaf that each sample reaches in each tree: [samples, trees]."""
    if x.rank != 2:
        raise node.error("a row of features for each sample is needed", found=str(x.type))
    tables = {
        "feature": store_items(forest.feature, i64),
        "split": store_items(forest.split, dtype_of(forest.split.dtype)),
        "mode": store_items(forest.mode, i64),
        "yes": store_items(forest.yes, i64),
        "no": store_items(forest.no, i64),
        "missing": store_items(forest.missing, bool_),
    }
    place = F.expand(store_items(forest.roots, i64, (1, -1)), (x.shape[0], len(forest.roots)))
    used = sorted(set(forest.mode.tolist()) - {LEAF})
    for _ in range(forest.depth(node)):
        value = F.take_along_axis(x, F.take(tables["feature"], place), 1)
        split = F.take(tables["split"], place)
        holds: Value | None = None
        for mode in used:
            test = _test(forest, mode, value, split, place)
            own = F.equal(F.take(tables["mode"], place), mode)
            holds = test if holds is None else F.where(own, test, holds)
        assert holds is not None
        if forest.missing.any():
            lost = F.logical_and(F.is_nan(value), F.take(tables["missing"], place))
            holds = F.logical_or(holds, lost)
        place = F.where(holds, F.take(tables["yes"], place), F.take(tables["no"], place))
    return place


def _test(forest: Forest, mode: int, value: Value, split: Value, place: Value) -> Value:
    """Whether values pass the tests of nodes of one mode."""
    if mode in _COMPARE:
        return _COMPARE[mode](value, split)
    assert forest.members is not None
    members = forest.members
    table = store_items(members, dtype_of(members.dtype), members.shape)
    return F.any(F.equal(F.unsqueeze(value, -1), F.take(table, place)), -1)


def _aggregate(node: OnnxNode, forest: Forest, leaves: Value, how: str) -> Value:
    """What the leaves of all trees come to: [samples, targets]."""
    weights = forest.weights
    if how in ("MIN", "MAX"):
        limit = np.finfo(weights.dtype).max * (1 if how == "MIN" else -1)
        weights = np.where(np.isnan(weights), limit, weights)
    else:
        weights = np.nan_to_num(weights)
    table = store_items(weights, dtype_of(weights.dtype), weights.shape)
    each = F.take(table, leaves)
    if how == "MIN":
        return F.min(each, 1)
    if how == "MAX":
        return F.max(each, 1)
    if how not in AGGREGATES:
        raise node.error("an unknown aggregate", expected=", ".join(AGGREGATES), found=how)
    total = F.sum(each, 1)
    return total * (1.0 / len(forest.roots)) if how == "AVERAGE" else total


# The ensembles of before opset 5, whose nodes are named by tree and number.


@converter("TreeEnsembleRegressor", domain=DOMAIN)
def tree_ensemble_regressor(node: OnnxNode) -> Value:
    """Numbers that leaves of trees add up to."""
    forest = _read_named_forest(node, "target", node.integer("n_targets"))
    how = node.string("aggregate_function", "SUM")
    total = _aggregate(node, forest, _leaves(node, forest, _floats(node)), how)
    base = _list(node, "base_values")
    if base is not None:
        total = F.add(total, store_items(base, total.dtype))
    return cast_to(transform_scores(node, total, post_transform(node)), f32)


@converter("TreeEnsembleClassifier", domain=DOMAIN)
def tree_ensemble_classifier(node: OnnxNode) -> tuple[Value, Value]:
    """The class that leaves of trees speak for most, and how much they do for each."""
    labels = class_labels(node)
    count = labels.shape[0]
    assert isinstance(count, int)
    ids = set(node.ints("class_ids"))
    forest = _read_named_forest(node, "class", max(count, max(ids, default=0) + 1))
    scores = _aggregate(node, forest, _leaves(node, forest, _floats(node)), "SUM")
    base = _list(node, "base_values")
    if base is not None:
        scores = F.add(scores, store_items(base, scores.dtype))
    transform = post_transform(node)
    if len(ids) == 1 and count <= 2:
        (column,) = ids
        positive = F.slice(scores, [column], [column + 1], axes=[1])
        unsure = transform in ("NONE", "PROBIT")
        negative = F.subtract(1.0, positive) if unsure else F.negate(positive)
        scores = F.concat([negative, positive], 1)
    result = transform_scores(node, scores, transform)
    return choose_labels(labels, F.argmax(result, 1)), cast_to(result, f32)


def _floats(node: OnnxNode) -> Value:
    x = node.input(0)
    return x if x.dtype in (f32, f64) else cast_to(x, f32)


def _list(node: OnnxNode, name: str) -> Array | None:
    """A list of numbers, which may be a tensor (and then f64)."""
    tensor = node.attribute(f"{name}_as_tensor")
    if isinstance(tensor, Data):
        return tensor.array().reshape(-1)
    items = node.attribute(name)
    return np.array(items, np.float32) if items else None


def _require_attribute(node: OnnxNode, name: str) -> Array:
    found = _list(node, name)
    if found is None:
        raise node.error(f"attribute {name!r} is missing")
    return found


def _read_named_forest(node: OnnxNode, kind: str, targets: int) -> Forest:
    """A forest from nodes that tree and number name; ``kind`` prefixes what its leaves hold."""
    names = list(zip(node.ints("nodes_treeids"), node.ints("nodes_nodeids"), strict=True))
    rows = {name: row for row, name in enumerate(names)}
    first: dict[int, int] = {}
    for row, (tree, _) in enumerate(names):
        first.setdefault(tree, row)
    words = [mode.removeprefix("BRANCH_") for mode in node.strings("nodes_modes")]
    mode = np.array([LEAF if each == "LEAF" else _mode(node, each) for each in words])
    branches = [
        [
            row if mode[row] == LEAF else _row(node, rows, (tree, to))
            for row, ((tree, _), to) in enumerate(zip(names, node.ints(attribute), strict=True))
        ]
        for attribute in ("nodes_truenodeids", "nodes_falsenodeids")
    ]
    keys = zip(node.ints(f"{kind}_treeids"), node.ints(f"{kind}_nodeids"), strict=True)
    places = [_row(node, rows, key) for key in keys]
    values = _require_attribute(node, f"{kind}_weights")
    weights = _weights(node, len(names), targets, places, node.ints(f"{kind}_ids"), values)
    return _forest(node, list(first.values()), mode, branches, weights)


def _row(node: OnnxNode, rows: dict[tuple[int, int], int], name: tuple[int, int]) -> int:
    if name not in rows:
        raise node.error(f"tree {name[0]} has no node {name[1]}")
    return rows[name]


def _mode(node: OnnxNode, word: str) -> int:
    if word not in MODES[:-1]:
        raise node.error("an unknown test", expected=", ".join(MODES[:-1]), found=word)
    return MODES.index(word)


def _weights(
    node: OnnxNode,
    rows: int,
    targets: int,
    places: Sequence[int],
    ids: Sequence[int],
    values: Array,
) -> Array:
    """What each node adds to each target; NaN where it adds nothing."""
    if not len(places) == len(ids) == len(values) or rows * targets > 2**28:
        raise node.error("leaves, targets and weights do not fit each other")
    if any(not 0 <= each < targets for each in ids):
        raise node.error("a leaf has no such target", expected=f"0 to {targets - 1}")
    weights = np.full((rows, targets), np.nan, values.dtype)
    for place, target, value in zip(places, ids, values, strict=True):
        before = weights[place, target]
        weights[place, target] = value if np.isnan(before) else before + value
    return weights


def _forest(
    node: OnnxNode, roots: Sequence[int], mode: Array, branches: Sequence[Any], weights: Array
) -> Forest:
    count = len(mode)
    missing = np.array(node.attribute("nodes_missing_value_tracks_true", None) or [0] * count)
    features, splits = (
        np.array(node.ints("nodes_featureids")),
        _require_attribute(node, "nodes_values"),
    )
    if not len(missing) == len(features) == len(splits) == count:
        raise node.error("the lists of the nodes differ in length")
    width = node.input(0).shape[-1]
    used = features[mode != LEAF]
    if used.size and (used.min() < 0 or (isinstance(width, int) and used.max() >= width)):
        raise node.error("a node tests a feature that is not there", found=f"{used.max()}")
    clean = np.where(mode == LEAF, 0, features)
    yes, no = (np.array(each, np.int64) for each in branches)
    tracked = missing.astype(bool) & (mode != LEAF)
    return Forest(np.array(roots), mode, clean, splits, yes, no, tracked, None, weights)


# The ensemble since opset 5: inner nodes and leaves in lists of their own.


@converter("TreeEnsemble", domain=DOMAIN)
def tree_ensemble(node: OnnxNode) -> Value:
    """Numbers that leaves of trees add up to."""
    x = node.input(0)
    exact = cast_to(x, wide(x.dtype))
    forest = _read_listed_forest(node, node.integer("n_targets"))
    how = AGGREGATES[node.integer("aggregate_function", 1) % len(AGGREGATES)]
    total = _aggregate(node, forest, _leaves(node, forest, exact), how)
    return cast_to(transform_scores(node, total, post_transform(node)), x.dtype)


def _read_listed_forest(node: OnnxNode, targets: int) -> Forest:
    """A forest whose leaves follow its inner nodes."""
    inner_mode = node.tensor("nodes_modes").array().astype(np.int64)
    features, splits = np.array(node.ints("nodes_featureids")), _numbers(node, "nodes_splits")
    values, ids = _numbers(node, "leaf_weights"), node.ints("leaf_targetids")
    inner, leaves = len(inner_mode), len(values)
    missing = np.array(node.ints("nodes_missing_value_tracks_true", [0] * inner))
    branches = []
    for side in ("true", "false"):
        to, is_leaf = (np.array(node.ints(f"nodes_{side}{each}")) for each in ("nodeids", "leafs"))
        if not len(to) == len(is_leaf) == len(features) == len(splits) == len(missing) == inner:
            raise node.error("the lists of the nodes differ in length")
        rows = np.where(is_leaf != 0, to + inner, to)
        limit = np.where(is_leaf != 0, inner + leaves, inner)
        if ((to < 0) | (rows >= limit)).any():
            raise node.error("a node leads to one that is not there")
        branches.append(np.concatenate([rows, np.arange(inner, inner + leaves)]))
    yes, no = branches
    roots = np.array(node.ints("tree_roots"))
    if not ((roots >= 0) & (roots < inner)).all() or not (inner_mode < LEAF).all():
        raise node.error("a tree has no root, or a node no test")
    filler = np.zeros(leaves, np.int64)
    return Forest(
        roots,
        np.concatenate([inner_mode, filler + LEAF]),
        np.concatenate([features, filler]),
        np.concatenate([splits, filler.astype(splits.dtype)]),
        yes,
        no,
        np.concatenate([missing, filler]).astype(bool),
        _members(node, inner_mode, leaves),
        _weights(node, inner + leaves, targets, range(inner, inner + leaves), ids, values),
    )


def _numbers(node: OnnxNode, name: str) -> Array:
    array = node.tensor(name).array().reshape(-1)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)


def _members(node: OnnxNode, mode: Array, leaves: int) -> Array | None:
    """The values that a node of mode MEMBER lets pass, a row a node, filled up with NaN."""
    owners = np.flatnonzero(mode == MODES.index("MEMBER"))
    if not owners.size:
        return None
    values = _numbers(node, "membership_values")
    ends = np.flatnonzero(np.isnan(values))
    if len(ends) != len(owners):
        raise node.error("a set of values is needed for each MEMBER node", found=f"{len(ends)}")
    sets = np.split(values, ends + 1)
    members = np.full((len(mode) + leaves, max(map(len, sets))), np.nan, values.dtype)
    for owner, each in zip(owners, sets, strict=False):
        members[owner, : len(each)] = each
    return members
