"""Files that are not models, or only in part."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from onnx import ModelProto

from monograph.errors import InputError
from tests.frontends.onnx.hostile.case import (
    array,
    field,
    graph,
    helper,
    hostile,
    model,
    node,
    raw_model,
    saved,
    unary,
    value,
)

DAMAGED = "these bytes: this is not an ONNX model, or a damaged one"


def good() -> bytes:
    """A model with a weight, to cut pieces off."""
    weight = array("w", np.arange(64, dtype=np.float32).reshape(4, 16))
    return saved(
        model(
            node("Gemm", "x w", "y"),
            inputs=[value("x", (2, 4))],
            outputs=[value("y", (2, 16))],
            initializers=[weight],
        )
    )


@hostile("empty", InputError, "<onnx> holds no graph")
def _(folder: Path) -> bytes:
    return b""


@hostile("one byte", InputError, DAMAGED)
def _(folder: Path) -> bytes:
    return b"\x08"


for tenths in (1, 3, 5, 7, 9):

    @hostile(f"cut off at {tenths} tenths", InputError, DAMAGED)
    def _(folder: Path, tenths: int = tenths) -> bytes:
        return good()[: len(good()) * tenths // 10]


@hostile("one byte too few", InputError, DAMAGED)
def _(folder: Path) -> bytes:
    return good()[:-1]


@hostile("random bytes", InputError, DAMAGED)
def _(folder: Path) -> bytes:
    return np.random.default_rng(0).bytes(100_000)


@hostile("zeros", InputError, DAMAGED)
def _(folder: Path) -> bytes:
    return bytes(100_000)


@hostile("a text", InputError, DAMAGED)
def _(folder: Path) -> bytes:
    return b"<!DOCTYPE html><html><body>404 not found</body></html>\n"


@hostile("a zip", InputError, DAMAGED)
def _(folder: Path) -> bytes:
    return b"PK\x03\x04" + bytes(26) + b"archive/data.pkl"


@hostile("a length beyond the end", InputError, DAMAGED)
def _(folder: Path) -> bytes:
    return b"\x3a\xff\xff\xff\xff\x07" + b"graph"


@hostile("a graph of no bytes", InputError, "the model has no outputs")
def _(folder: Path) -> bytes:
    return raw_model(b"")


@hostile("no opset")
def _(folder: Path) -> bytes:
    made = unary()
    del made.opset_import[:]
    return saved(made)


for version in (0, -3):

    @hostile(f"opset {version}", InputError, "the model needs an opset that is not known")
    def _(folder: Path, version: int = version) -> ModelProto:
        made = unary()
        made.opset_import[0].version = version
        return made


@hostile("an opset of the future")
def _(folder: Path) -> ModelProto:
    made = unary()
    made.opset_import[0].version = 9999
    return made


SQUARE = {"x": np.zeros((2, 2), np.float32), "b": np.array([1, 2], np.float32)}


@hostile("an old opset means what it meant", run=SQUARE, gives=[[1, 1], [2, 2]])
def _(folder: Path) -> ModelProto:
    return model(
        node("Add", "x b", "y", broadcast=1, axis=0),
        inputs=[value("x", (2, 2)), value("b", (2,))],
        outputs=[value("y", None)],
        opset=6,
    )


@hostile("two versions of one opset")
def _(folder: Path) -> ModelProto:
    made = unary()
    made.opset_import.append(helper.make_opsetid("ai.onnx", 13))
    return made


@hostile("no such file", InputError, "{folder}/model.onnx cannot be read")
def _(folder: Path) -> Path:
    return folder / "model.onnx"


@hostile("a folder", InputError, "{folder} cannot be read")
def _(folder: Path) -> Path:
    return folder


@hostile("a pipe", InputError, "{folder}/model.onnx cannot be read")
def _(folder: Path) -> Path:
    os.mkfifo(folder / "model.onnx")
    return folder / "model.onnx"


@hostile("a device", InputError, "/dev/zero cannot be read")
def _(folder: Path) -> Path:
    return Path("/dev/zero")


@hostile(
    "a sparse file of 3 GiB", InputError, "{folder}/model.onnx is too large for one protobuf file"
)
def _(folder: Path) -> Path:
    with (folder / "model.onnx").open("wb") as file:
        file.truncate(3 << 30)
    return folder / "model.onnx"


@hostile("a name that is not UTF-8", InputError, "the model holds a name that is not UTF-8")
def _(folder: Path) -> bytes:
    return saved(unary()).replace(b"\x0a\x01x\x12\x01y", b"\x0a\x01\xff\x12\x01y")


@hostile("an op that is not UTF-8", InputError, "the model holds a name that is not UTF-8")
def _(folder: Path) -> bytes:
    return saved(unary()).replace(b"Relu", b"\xc3\x28lu")


@hostile(
    "a dimension's name that is not UTF-8", InputError, "the model holds a name that is not UTF-8"
)
def _(folder: Path) -> bytes:
    made = model(node("Relu", "x", "y"), inputs=[value("x", ("seq",))], outputs=[value("y", None)])
    return saved(made).replace(b"seq", b"\xffeq")


@hostile("bodies 10,000 deep", InputError, DAMAGED)
def _(folder: Path) -> bytes:
    inner = b""
    for _ in range(10_000):
        body = field(6, field(1, inner) if inner else b"")
        attribute_ = field(5, field(1, b"then_branch") + body + b"\xa0\x01\x05")
        inner = field(1, b"c") + field(2, b"y") + field(4, b"If") + attribute_
    return raw_model(field(1, inner))


@hostile("bodies 3,000 deep in memory", InputError, "the model nests too deeply")
def _(folder: Path) -> ModelProto:
    made = model(inputs=[value("c", (), 9)], outputs=[value("y")])
    current = made.graph
    for _ in range(3_000):
        each = current.node.add(op_type="If", input=["c"], output=["y"])
        for name in ("else_branch", "then_branch"):
            inner = each.attribute.add(name=name, type=5).g
            inner.name = "b"
            inner.output.add(name="y")
        current = inner
    return made


@hostile("types 5,000 deep", InputError, DAMAGED)
def _(folder: Path) -> bytes:
    type_ = field(1, b"\x08\x01")
    for _ in range(5_000):
        type_ = field(4, field(1, type_))
    return raw_model(field(11, field(1, b"x") + field(2, type_)))


@hostile("types 40 deep", InputError, "input 'x' has a type that is not supported")
def _(folder: Path) -> bytes:
    type_ = field(1, b"\x08\x01")
    for _ in range(40):
        type_ = field(4, field(1, type_))
    return raw_model(field(11, field(1, b"x") + field(2, type_)) + field(12, field(1, b"x")))


@hostile("unknown fields")
def _(folder: Path) -> bytes:
    return saved(unary()) + field(999, b"whatever this is") * 1000


@hostile("graph given twice", InputError, "two values of the model are called 'y'")
def _(folder: Path) -> bytes:
    return saved(unary()) + field(7, graph([node("Relu", "x", "y")]).SerializeToString())
