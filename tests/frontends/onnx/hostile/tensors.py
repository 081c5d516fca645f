"""Tensors that lie: about their type, their shape, their size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import ModelProto, SparseTensorProto, TensorProto

from monograph.errors import InputError, TypeRuleError
from tests.frontends.onnx.hostile.case import (
    FLOAT,
    INT64,
    array,
    hostile,
    model,
    node,
    sized,
    value,
)

X, Y = value("x"), value("y")


def with_weight(weight: TensorProto) -> ModelProto:
    """A model that adds this initializer to its input."""
    return model(
        node("Add", "x w", "y"), inputs=[X], outputs=[value("y", None)], initializers=[weight]
    )


@hostile("raw data too short", InputError, "tensor 'w' has the wrong length")
def _(folder: Path) -> ModelProto:
    return with_weight(sized("w", [4], raw_data=bytes(15)))


@hostile("raw data too long", InputError, "tensor 'w' has the wrong length")
def _(folder: Path) -> ModelProto:
    return with_weight(sized("w", [4], raw_data=bytes(4096)))


@hostile("a weight without data", InputError, "tensor 'w' has the wrong length")
def _(folder: Path) -> ModelProto:
    return with_weight(sized("w", [4]))


@hostile("floats in the place of integers", InputError, "tensor 'w' keeps i64 in the wrong place")
def _(folder: Path) -> ModelProto:
    return with_weight(sized("w", [4], INT64, float_data=[1.0, 2.0, 3.0, 4.0]))


@hostile("integers in the place of floats", InputError, "tensor 'w' keeps f32 in the wrong place")
def _(folder: Path) -> ModelProto:
    return with_weight(sized("w", [4], int64_data=[1, 2, 3, 4]))


@hostile("data given twice", InputError, "tensor 'w' is given twice")
def _(folder: Path) -> ModelProto:
    return with_weight(sized("w", [4], raw_data=bytes(16), float_data=[1.0, 2.0, 3.0, 4.0]))


@hostile("data inside and outside", InputError, "tensor 'w' is given twice")
def _(folder: Path) -> ModelProto:
    weight = sized("w", [4], raw_data=bytes(16), data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value="w.bin")
    return with_weight(weight)


@hostile("a weight of no type", InputError, "tensor 'w' has an element type that is not known")
def _(folder: Path) -> ModelProto:
    return with_weight(sized("w", [4], 0, raw_data=bytes(16)))


@hostile("a weight of type 1234", InputError, "tensor 'w' has an element type that is not known")
def _(folder: Path) -> ModelProto:
    return with_weight(sized("w", [4], 1234, raw_data=bytes(16)))


@hostile(
    "a weight in segments", InputError, "tensor 'w' is stored in segments, which nothing supports"
)
def _(folder: Path) -> ModelProto:
    weight = sized("w", [4], raw_data=bytes(16))
    weight.segment.begin, weight.segment.end = 0, 4
    return with_weight(weight)


@hostile("a negative size", InputError, "tensor 'w' has a shape that cannot be")
def _(folder: Path) -> ModelProto:
    return with_weight(sized("w", [-4], raw_data=bytes(16)))


@hostile("two negative sizes", InputError, "tensor 'w' has a shape that cannot be")
def _(folder: Path) -> ModelProto:
    return with_weight(sized("w", [-2, -2], raw_data=bytes(16)))


@hostile("sizes that overflow to 4", InputError, "tensor 'w' has a shape that cannot be")
def _(folder: Path) -> ModelProto:
    return with_weight(sized("w", [2**32, 2**32 + 1, 4], raw_data=bytes(16)))


@hostile("ten million elements in 20 bytes", InputError, "tensor 'w' has the wrong length")
def _(folder: Path) -> ModelProto:
    return with_weight(sized("w", [10_000_000], raw_data=bytes(20)))


@hostile("four terabytes in 20 bytes", InputError, "tensor 'w' has the wrong length")
def _(folder: Path) -> ModelProto:
    return with_weight(sized("w", [2**20, 2**20], raw_data=bytes(20)))


@hostile(
    "four terabytes of no elements in one of 20 bytes",
    InputError,
    "tensor 'w' has the wrong length",
)
def _(folder: Path) -> ModelProto:
    return with_weight(sized("w", [2**20, 2**20, 0], raw_data=bytes(20)))


@hostile("a hundred thousand dimensions", InputError, "tensor 'w' has too many dimensions")
def _(folder: Path) -> ModelProto:
    return with_weight(sized("w", [1] * 100_000, raw_data=bytes(4)))


@hostile("strings in the place of numbers", InputError, "tensor 'w' keeps f32 in the wrong place")
def _(folder: Path) -> ModelProto:
    return with_weight(sized("w", [1], FLOAT, string_data=[b"1.0"]))


@hostile("strings as raw data", InputError, "tensor 'w' keeps strings in raw_data")
def _(folder: Path) -> ModelProto:
    return with_weight(sized("w", [1], TensorProto.STRING, raw_data=b"1"))


@hostile("a string that is not UTF-8", InputError, "tensor 'w' holds a string that is not UTF-8")
def _(folder: Path) -> ModelProto:
    return with_weight(sized("w", [1], TensorProto.STRING, string_data=[b"\xff"]))


@hostile("a sum of strings", TypeRuleError, "add: this dtype has no meaning here")
def _(folder: Path) -> ModelProto:
    words = value("x", (4,), TensorProto.STRING)
    return model(node("Add", "x x", "y"), inputs=[words], outputs=[value("y", None)])


@hostile("a sum of two dtypes", TypeRuleError, "add: operands have different dtypes")
def _(folder: Path) -> ModelProto:
    return with_weight(array("w", [1, 2, 3, 4], np.int64))


@hostile("shapes that do not broadcast", TypeRuleError, "add: shapes do not broadcast")
def _(folder: Path) -> ModelProto:
    return with_weight(array("w", [1, 2, 3], np.float32))


@hostile(
    "a product of shapes that do not fit", TypeRuleError, "matmul: the inner dimensions differ"
)
def _(folder: Path) -> ModelProto:
    weight = array("w", np.ones((5, 3), np.float32))
    return model(
        node("MatMul", "x w", "y"), inputs=[X], outputs=[value("y", None)], initializers=[weight]
    )


@hostile("an input of a negative size")
def _(folder: Path) -> ModelProto:
    return model(node("Relu", "x", "y"), inputs=[value("x", (-7,))], outputs=[Y])


@hostile("an input of 2^60 elements", InputError, "input 'x' is too large")
def _(folder: Path) -> ModelProto:
    return model(node("Relu", "x", "y"), inputs=[value("x", (2**30, 2**30))], outputs=[Y])


@hostile("an input of no type", InputError, "input 'x' has an element type that is not known")
def _(folder: Path) -> ModelProto:
    return model(node("Relu", "x", "y"), inputs=[value("x", (4,), 0)], outputs=[Y])


@hostile("an output of another dtype")
def _(folder: Path) -> ModelProto:
    return model(node("Relu", "x", "y"), inputs=[X], outputs=[value("y", (4,), INT64)])


@hostile("an output of another shape")
def _(folder: Path) -> ModelProto:
    return model(node("Relu", "x", "y"), inputs=[X], outputs=[value("y", (5,))])


@hostile("an inner value of another type")
def _(folder: Path) -> ModelProto:
    made = model(node("Relu", "x", "h"), node("Abs", "h", "y"), inputs=[X], outputs=[Y])
    made.graph.value_info.append(value("h", (9, 9), INT64))
    return made


@hostile("a reshape of 4 to 5 elements", TypeRuleError, "reshape: the number of elements changes")
def _(folder: Path) -> ModelProto:
    shape = array("s", [5], np.int64)
    return model(
        node("Reshape", "x s", "y"), inputs=[X], outputs=[value("y", None)], initializers=[shape]
    )


@hostile("a reshape with two unknowns", TypeRuleError, "reshape: -1 cannot be worked out")
def _(folder: Path) -> ModelProto:
    shape = array("s", [-1, -1], np.int64)
    return model(
        node("Reshape", "x s", "y"), inputs=[X], outputs=[value("y", None)], initializers=[shape]
    )


@hostile("a reshape to a float", InputError, "Reshape that makes 'y': ONNX refuses its operands")
def _(folder: Path) -> ModelProto:
    shape = array("s", [4.0], np.float32)
    return model(
        node("Reshape", "x s", "y"), inputs=[X], outputs=[value("y", None)], initializers=[shape]
    )


@hostile("a reshape below -1", TypeRuleError, "reshape: a dimension is negative")
def _(folder: Path) -> ModelProto:
    shape = array("s", [-4], np.int64)
    return model(
        node("Reshape", "x s", "y"), inputs=[X], outputs=[value("y", None)], initializers=[shape]
    )


# Bombs: little files that mean much data.


def bomb(op: str, *inputs: TensorProto) -> ModelProto:
    """A node on constants, whose result is large, and its sum."""
    names = " ".join(tensor.name for tensor in inputs)
    nodes = [node(op, names, "h"), node("ReduceSum", "h", "y", keepdims=0)]
    return model(*nodes, outputs=[value("y", None)], initializers=inputs)


@hostile(
    "zeros of 2^40 elements",
    InputError,
    "the result 'h' of ConstantOfShape that makes 'h' is too large",
)
def _(folder: Path) -> ModelProto:
    return bomb("ConstantOfShape", array("s", [2**20, 2**20], np.int64))


@hostile(
    "zeros of 2^62 elements",
    InputError,
    "the result 'h' of ConstantOfShape that makes 'h' is too large",
)
def _(folder: Path) -> ModelProto:
    return bomb("ConstantOfShape", array("s", [2**31, 2**31], np.int64))


@hostile("zeros of a negative size", TypeRuleError, "full: a dimension is negative")
def _(folder: Path) -> ModelProto:
    return bomb("ConstantOfShape", array("s", [-5], np.int64))


@hostile(
    "an expansion to 2^40 elements",
    InputError,
    "the result 'h' of Expand that makes 'h' is too large",
)
def _(folder: Path) -> ModelProto:
    return bomb("Expand", array("v", [1.0], np.float32), array("s", [2**20, 2**20], np.int64))


@hostile("tiles of 2^40 elements", InputError, "the result 'h' of Tile that makes 'h' is too large")
def _(folder: Path) -> ModelProto:
    return bomb("Tile", array("v", [1.0], np.float32), array("s", [2**40], np.int64))


@hostile("a range of 10^18", InputError, "the result 'h' of Range that makes 'h' is too large")
def _(folder: Path) -> ModelProto:
    return bomb(
        "Range", array("a", 0, np.int64), array("b", 10**18, np.int64), array("c", 1, np.int64)
    )


@hostile("a range with a step of 0", TypeRuleError, "arange: the step is zero")
def _(folder: Path) -> ModelProto:
    return bomb("Range", array("a", 0, np.int64), array("b", 9, np.int64), array("c", 0, np.int64))


@hostile("a range of floats without end", InputError, "Range that makes 'h' cannot be converted")
def _(folder: Path) -> ModelProto:
    return bomb(
        "Range",
        array("a", 0, np.float32),
        array("b", np.inf, np.float32),
        array("c", 1, np.float32),
    )


@hostile("a pad of 2^40 elements", InputError, "the result 'h' of Pad that makes 'h' is too large")
def _(folder: Path) -> ModelProto:
    return bomb("Pad", array("v", [1.0], np.float32), array("s", [2**40, 0], np.int64))


@hostile(
    "a one-hot of 2^40 classes", InputError, "the result 'h' of OneHot that makes 'h' is too large"
)
def _(folder: Path) -> ModelProto:
    return bomb(
        "OneHot",
        array("v", [1, 2], np.int64),
        array("d", 2**40, np.int64),
        array("s", [0.0, 1.0], np.float32),
    )


@hostile(
    "an eye of 2^40 elements",
    InputError,
    "the result 'z' of ConstantOfShape that makes 'z' is too large",
)
def _(folder: Path) -> ModelProto:
    shape = array("s", [2**20, 2**20], np.int64)
    nodes = [
        node("ConstantOfShape", "s", "z"),
        node("EyeLike", "z", "h"),
        node("ReduceSum", "h", "y"),
    ]
    return model(*nodes, outputs=[value("y", None)], initializers=[shape])


@hostile("a resize by 10^9", InputError, "the result 'h' of Resize that makes 'h' is too large")
def _(folder: Path) -> ModelProto:
    image = array("v", np.ones((1, 1, 2, 2), np.float32))
    scales = array("s", [1, 1, 1e9, 1e9], np.float32)
    made = node("Resize", "v", "h")
    made.input.extend(["", "s"])
    return model(
        made, node("ReduceSum", "h", "y"), outputs=[value("y", None)], initializers=[image, scales]
    )


@hostile("forty doublings", InputError, "the result 'v37' of Concat that makes 'v37' is too large")
def _(folder: Path) -> ModelProto:
    nodes = [node("Concat", f"v{i} v{i}", f"v{i + 1}", axis=0) for i in range(40)]
    return model(*nodes, inputs=[value("v0")], outputs=[value("v40", None)])


@hostile(
    "a sparse weight of 2^40 elements",
    InputError,
    "sparse tensor 'w' is too large once it is dense",
)
def _(folder: Path) -> ModelProto:
    return with_sparse(2**40, [3])


@hostile(
    "a sparse weight with an index outside",
    InputError,
    "sparse tensor 'w' has an index outside its shape",
)
def _(folder: Path) -> ModelProto:
    return with_sparse(4, [4])


@hostile(
    "a sparse weight with a negative index",
    InputError,
    "sparse tensor 'w' has an index outside its shape",
)
def _(folder: Path) -> ModelProto:
    return with_sparse(4, [-1])


@hostile("a sparse weight with an index too many", InputError, "sparse tensor 'w' is malformed")
def _(folder: Path) -> ModelProto:
    return with_sparse(4, [0, 1])


def with_sparse(size: int, indices: list[int]) -> ModelProto:
    """A model with a sparse initializer that holds one value."""
    made = with_weight(array("unused", [1.0], np.float32))
    del made.graph.initializer[:]
    made.graph.sparse_initializer.append(
        SparseTensorProto(
            values=array("w", [5.0], np.float32),
            indices=array("i", indices, np.int64),
            dims=[size],
        )
    )
    return made
