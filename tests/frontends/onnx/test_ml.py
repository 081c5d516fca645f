"""ai.onnx.ml against ONNX Runtime: labels, features, linear models, SVMs and trees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monograph.errors import MonographError
from monograph.frontends.onnx import from_onnx
from monograph.ir.interpret import interpret
from tests.frontends.onnx.ort import one_node, run_ort

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(6, 4)).astype(np.float32)
WITH_NAN = np.where(np.eye(6, 4, dtype=bool), np.float32(np.nan), X)


def weights(count: int, seed: int = 0) -> list[float]:
    return [float(each) for each in np.random.default_rng((seed, count)).normal(size=count)]


def check(op: str, operands: list[Any], outputs: int = 1, **attributes: Any) -> None:
    model, feeds = one_node(op, operands, outputs, domain="ai.onnx.ml", onnx=18, **attributes)
    expected = run_ort(model, feeds)
    for got, want in zip(interpret(from_onnx(model), feeds), expected, strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
        if got.dtype == object:
            assert got.tolist() == want.tolist()
        else:
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


# Labels -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "x"),
    [
        ({"keys_strings": ["a", "b", "c"]}, np.array([["b", "?"], ["c", "a"]], object)),
        ({"keys_int64s": [3, 1, 2]}, np.array([1, 7, 3])),
        ({"keys_floats": [0.5, 1.5, -2.0]}, np.array([1.5, 0.25], np.float32)),
    ],
)
@pytest.mark.parametrize(
    "values",
    [
        {"values_strings": ["x", "y", "z"], "default_string": "none"},
        {"values_int64s": [5, 6, 7], "default_int64": 42},
        {"values_floats": [0.1, 0.2, 0.3], "default_float": -1.0},
    ],
)
def test_labels_of_every_type(keys: dict[str, Any], x: Any, values: dict[str, Any]) -> None:
    check("LabelEncoder", [x], **keys, **values)


def test_a_nan_is_the_label_of_every_nan_and_the_last_of_equal_keys_counts() -> None:
    x = np.array([1, np.nan, 3], np.float32)
    keys = {"keys_floats": [1.0, float("nan"), 1.0], "values_int64s": [5, 6, 7]}
    model, feeds = one_node("LabelEncoder", [x], domain="ai.onnx.ml", **keys)
    (found,) = interpret(from_onnx(model), feeds)
    assert found.tolist() == [7, 6, -1]


@pytest.mark.parametrize("x", [np.array(["a", "?", "b"], object), np.array([[5, 1], [7, 2]])])
def test_categories(x: Any) -> None:
    check("CategoryMapper", [x], cats_int64s=[1, 2, 5], cats_strings=["a", "b", "c"])


def test_one_hot_categories() -> None:
    check("OneHotEncoder", [np.array([[1, 2], [5, 3]])], cats_int64s=[1, 2, 5], zeros=1)
    check("OneHotEncoder", [np.array(["a", "?"], object)], cats_strings=["a", "b"], zeros=1)


# Features -----------------------------------------------------------------------------------------


def test_features_are_scaled_normalised_filled_in_and_joined() -> None:
    check("Scaler", [X], offset=[1.0, 2.0, 3.0, 4.0], scale=[2.0, 2.0, 1.0, 1.0])
    check("Normalizer", [X], norm="L1")
    check("Normalizer", [X], norm="L2")
    nan = float("nan")
    check("Imputer", [WITH_NAN], imputed_value_floats=weights(4), replaced_value_float=nan)
    check("FeatureVectorizer", [X, X[:, :2]], inputdimensions=[4, 2])
    check("ArrayFeatureExtractor", [X[0], np.array([1, 3])])


# Linear models ------------------------------------------------------------------------------------


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize(
    "labels", [{"classlabels_ints": [4, 5, 6]}, {"classlabels_strings": ["x", "y", "z"]}]
)
def test_linear_classifiers(transform: str, labels: dict[str, Any]) -> None:
    options = {"coefficients": weights(12), "intercepts": weights(3), **labels}
    check("LinearClassifier", [X], 2, post_transform=transform, **options)


def test_linear_regression_of_two_targets() -> None:
    check("LinearRegressor", [X], coefficients=weights(8), intercepts=weights(2), targets=2)


# Support vector machines --------------------------------------------------------------------------

KERNELS = ["LINEAR", "POLY", "RBF", "SIGMOID"]


def machine(kernel: str, count: int) -> dict[str, Any]:
    vectors = weights(4 * count)
    params = [0.3, 0.5, 2.0]
    return {"kernel_type": kernel, "kernel_params": params, "support_vectors": vectors}


@pytest.mark.parametrize("kernel", KERNELS)
def test_support_vector_regression(kernel: str) -> None:
    options = {"coefficients": weights(5), "n_supports": 5, "rho": [0.7], **machine(kernel, 5)}
    check("SVMRegressor", [X], **options)
    if kernel == "RBF":
        check("SVMRegressor", [X], one_class=1, **options)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("per_class", [[2, 3], [2, 1, 2], [1, 2, 1, 1]])
@pytest.mark.parametrize("probable", [False, True])
def test_support_vector_classes(kernel: str, per_class: list[int], probable: bool) -> None:
    classes = len(per_class)
    pairs = classes * (classes - 1) // 2
    options = {
        "coefficients": weights(5 * (classes - 1), 1),
        "vectors_per_class": per_class,
        "classlabels_ints": list(range(classes)),
        "rho": weights(pairs, 2),
        **machine(kernel, 5),
    }
    if probable:
        options |= {"prob_a": [-abs(each) for each in weights(pairs, 3)]}
        options |= {"prob_b": weights(pairs, 4)}
    check("SVMClassifier", [X], 2, **options)


# Trees --------------------------------------------------------------------------------------------


def forest(trees: int, modes: list[str]) -> dict[str, list[Any]]:
    """The nodes of random trees of up to five levels."""
    generator = np.random.default_rng(len(modes))
    rows: list[list[Any]] = []

    def grow(tree: int, level: int) -> int:
        number = sum(row[0] == tree for row in rows)
        row = [tree, number, 0, "LEAF", 0.0, 0, 0]
        rows.append(row)
        if level and generator.random() < 0.8:
            row[2:5] = int(generator.integers(4)), str(generator.choice(modes)), generator.normal()
            row[5], row[6] = grow(tree, level - 1), grow(tree, level - 1)
        return number

    for tree in range(trees):
        grow(tree, 4)
    names = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
    columns = zip(names, zip(*rows, strict=True), strict=True)
    made = {f"nodes_{name}": list(column) for name, column in columns}
    made["nodes_missing_value_tracks_true"] = [number % 2 for number in range(len(rows))]
    return made


def leaves(nodes: dict[str, list[Any]], kind: str, targets: int) -> dict[str, list[Any]]:
    """A weight of each leaf for each target."""
    columns = zip(nodes["nodes_treeids"], nodes["nodes_nodeids"], nodes["nodes_modes"], strict=True)
    each = [(tree, number) for tree, number, mode in columns if mode == "LEAF"]
    return {
        f"{kind}_treeids": [tree for tree, _ in each for _ in range(targets)],
        f"{kind}_nodeids": [number for _, number in each for _ in range(targets)],
        f"{kind}_ids": list(range(targets)) * len(each),
        f"{kind}_weights": [abs(value) for value in weights(targets * len(each))],
    }


MODES = [["BRANCH_LEQ"], ["BRANCH_LT", "BRANCH_GT", "BRANCH_GTE", "BRANCH_NEQ", "BRANCH_EQ"]]


@pytest.mark.parametrize("modes", MODES)
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("x", [X, WITH_NAN], ids=["numbers", "missing"])
def test_regression_by_trees(modes: list[str], aggregate: str, x: Any) -> None:
    nodes = forest(5, modes)
    options = {**nodes, **leaves(nodes, "target", 2), "n_targets": 2, "base_values": [0.5, 0.25]}
    check("TreeEnsembleRegressor", [x], aggregate_function=aggregate, **options)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize(
    "labels", [{"classlabels_int64s": [7, 8, 9]}, {"classlabels_strings": ["x", "y", "z"]}]
)
def test_classes_by_trees(transform: str, labels: dict[str, Any]) -> None:
    nodes = forest(5, MODES[0])
    options = {**nodes, **leaves(nodes, "class", 3), **labels}
    check("TreeEnsembleClassifier", [X], 2, post_transform=transform, **options)


def test_two_classes_by_trees_that_speak_for_one() -> None:
    nodes = forest(5, MODES[0])
    options = {**nodes, **leaves(nodes, "class", 1), "classlabels_int64s": [0, 1]}
    options["class_weights"] = weights(len(options["class_ids"]))
    check("TreeEnsembleClassifier", [X], 2, post_transform="LOGISTIC", **options)


def test_a_tree_that_goes_round_is_refused() -> None:
    nodes = {
        "nodes_treeids": [0, 0], "nodes_nodeids": [0, 1], "nodes_featureids": [0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF"], "nodes_values": [0.0, 0.0],
        "nodes_truenodeids": [0, 0], "nodes_falsenodeids": [1, 0],
    }  # fmt: skip
    ends = {"target_treeids": [0], "target_nodeids": [1], "target_ids": [0]}
    options = {**nodes, **ends, "target_weights": [1.0], "n_targets": 1}
    model, _ = one_node("TreeEnsembleRegressor", [X], domain="ai.onnx.ml", **options)
    with pytest.raises(MonographError, match="goes round"):
        from_onnx(model)
