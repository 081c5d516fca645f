"""ai.onnx.ml: features made ready for a model, and labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from monograph import functional as F
from monograph.frontends.onnx.converters.constant import MAX_INLINE_ELEMENTS
from monograph.frontends.onnx.node import NotStatic, OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import apply, cast_to
from monograph.ir.data import ArrayData, Data
from monograph.ir.dims import Dim, shape_product
from monograph.ir.graph import Value, current_graph
from monograph.ir.types import Array, DType, f32, f64, i64, string
from monograph.ops.index import Take
from monograph.ops.reduce import Max, Sum
from monograph.ops.table_lookup import Translate

DOMAIN = "ai.onnx.ml"


def store_items(
    items: Sequence[Any] | Array | Data, dtype: DType, shape: Sequence[int] = (-1,)
) -> Value:
    """Numbers or strings of an attribute as a constant of the graph; a weight if they are many."""
    array = items.array() if isinstance(items, Data) else np.array(items, dtype.numpy)
    data = ArrayData(array.reshape(shape), dtype)
    if data.size <= MAX_INLINE_ELEMENTS or dtype is string:
        return current_graph().add_constant(data)
    return current_graph().add_weight("table", data)


# Labels.


@converter("LabelEncoder", domain=DOMAIN)
def label_encoder_1(node: OnnxNode) -> Value:
    """Strings as their position in a list, or the other way round."""
    labels = node.strings("classes_strings")
    return _translate_labels(node, labels, range(len(labels)))


@converter("CategoryMapper", domain=DOMAIN)
def category_mapper(node: OnnxNode) -> Value:
    """Strings as integers, or the other way round."""
    return _translate_labels(node, node.strings("cats_strings"), node.ints("cats_int64s"))


def _translate_labels(node: OnnxNode, labels: Sequence[str], numbers: Sequence[int]) -> Value:
    if len(labels) != len(numbers):
        raise node.error(
            "labels and numbers do not pair up", found=f"{len(labels)}, {len(numbers)}"
        )
    names, places = store_items(labels, string), store_items(numbers, i64)
    if node.input(0).dtype is string:
        default = store_items((node.integer("default_int64", -1),), i64, ())
        return apply(Translate(), node.input(0), names, places, default)
    unknown = store_items((node.string("default_string", "_Unused"),), string, ())
    return apply(Translate(), node.input(0), places, names, unknown)


@converter("LabelEncoder", domain=DOMAIN, since=2)
def label_encoder(node: OnnxNode) -> Value:
    """Elements translated by a table of keys and values."""
    keys, values = _column(node, "keys"), _column(node, "values")
    if keys.size != values.size:
        raise node.error("keys and values do not pair up", found=f"{keys.type}, {values.type}")
    x = node.input(0)
    table = (store_items(keys, keys.dtype), store_items(values, values.dtype))
    return apply(Translate(), x, *table, _default(node, values.dtype))


def _column(node: OnnxNode, prefix: str) -> Data:
    """Keys or values, whichever attribute holds them."""
    for suffix, dtype in (("strings", string), ("int64s", i64), ("floats", f32)):
        items = node.attribute(f"{prefix}_{suffix}", ())
        if items:
            return ArrayData(np.array(items, dtype.numpy), dtype)
    return node.tensor(f"{prefix}_tensor")


def _default(node: OnnxNode, dtype: DType) -> Value:
    """What stands for an element that is no key."""
    if node.has("default_tensor"):
        return store_items(node.tensor("default_tensor"), dtype, ())
    if dtype is string:
        return store_items((node.string("default_string", "_Unused"),), dtype, ())
    if dtype.is_integer:
        return store_items((node.integer("default_int64", -1),), dtype, ())
    return store_items((node.number("default_float", -0.0),), dtype, ())


@converter("OneHotEncoder", domain=DOMAIN)
def one_hot_encoder(node: OnnxNode) -> Value:
    """A one at the place of each element's category; ``zeros`` are given where it has none."""
    x = node.input(0)
    if node.has("cats_strings"):
        keys = store_items(node.strings("cats_strings"), string)
    else:
        keys, x = store_items(node.ints("cats_int64s"), i64), cast_to(x, i64)
    count = keys.shape[0]
    places = F.where(F.equal(F.unsqueeze(x, -1), keys), 1.0, 0.0)
    if not isinstance(count, int) or not node.integer("zeros", 1):
        raise node.error("categories that are an error elsewhere are not supported")
    return cast_to(places, f32)


# Features.


@converter("ArrayFeatureExtractor", domain=DOMAIN)
def array_feature_extractor(node: OnnxNode) -> Value:
    """Elements of the last axis."""
    x, places = node.input(0), node.input(1)
    count = shape_product(places.shape)
    taken = apply(Take(x.rank - 1), x, F.reshape(places, (count,)))
    return F.reshape(taken, (1, count)) if x.rank == 1 else taken


@converter("Binarizer", domain=DOMAIN)
def binarizer(node: OnnxNode) -> Value:
    """One above a threshold, zero elsewhere."""
    x = node.input(0)
    return cast_to(F.greater(x, node.number("threshold", 0.0)), x.dtype)


@converter("Scaler", domain=DOMAIN)
def scaler(node: OnnxNode) -> Value:
    """Features less an offset, scaled; in f32."""
    x = node.input(0)
    wide = x if x.dtype is f64 else cast_to(x, f32)
    offset, scale = node.floats("offset", (0.0,)), node.floats("scale", (1.0,))
    moved = F.subtract(wide, store_items(offset, wide.dtype))
    return cast_to(F.multiply(moved, store_items(scale, wide.dtype)), f32)


@converter("Normalizer", domain=DOMAIN)
def normalizer(node: OnnxNode) -> Value:
    """Rows divided by their largest element, their sum or their length."""
    x, norm = node.input(0), node.string("norm", "MAX")
    wide = x if x.dtype is f64 else cast_to(x, f32)
    axis = (wide.rank - 1,)
    if norm == "MAX":
        size = apply(Max(axis, True), F.abs(wide))
    elif norm == "L1":
        size = apply(Sum(axis, True), F.abs(wide))
    elif norm == "L2":
        size = F.sqrt(apply(Sum(axis, True), wide * wide))
    else:
        raise node.error("an unknown norm", expected="MAX, L1 or L2", found=norm)
    divided = F.divide(wide, F.where(F.equal(size, 0.0), 1.0, size))
    return cast_to(divided, f32)


@converter("Imputer", domain=DOMAIN)
def imputer(node: OnnxNode) -> Value:
    """Elements of one value (a NaN, say) replaced: by a value a column, or one for all."""
    x = node.input(0)
    if x.dtype.is_integer:
        values = store_items(node.ints("imputed_value_int64s"), x.dtype)
        missing = F.equal(x, node.integer("replaced_value_int64", 0))
        return F.where(missing, values, x)
    values = store_items(node.floats("imputed_value_floats"), x.dtype)
    replaced = node.number("replaced_value_float", 0.0)
    missing = F.is_nan(x) if np.isnan(replaced) else F.equal(x, replaced)
    return F.where(missing, values, x)


@converter("FeatureVectorizer", domain=DOMAIN)
def feature_vectorizer(node: OnnxNode) -> Value:
    """Columns of all operands side by side, each cut or filled with zeros to its size; in f32."""
    values = node.given()
    sizes = node.ints("inputdimensions", ())
    if sizes and len(sizes) != len(values):
        raise node.error("a size is needed for each operand", found=f"{len(sizes)}")
    return F.concat([_columns(node, *pair) for pair in zip(values, sizes or _widths(values))], 1)  # noqa: B905


def _widths(values: Sequence[Value]) -> list[Dim]:
    return [value.shape[1] if value.rank == 2 else 1 for value in values]


def _columns(node: OnnxNode, x: Value, size: Dim) -> Value:
    """A matrix of ``size`` columns; a vector has one."""
    if x.rank not in (1, 2):
        raise node.error("vectors or matrices are needed", found=str(x.type))
    matrix = cast_to(F.unsqueeze(x, 1) if x.rank == 1 else x, f32)
    change = size - matrix.shape[1]
    if not isinstance(change, int):
        raise NotStatic(f"{node.name}: how many columns there are is not known before it runs")
    return F.pad(matrix, (0, 0), (0, change)) if change else matrix
