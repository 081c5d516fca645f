"""Models that are wrong only when they run: an index, a divisor, a loop without end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto

from monograph.errors import EvaluationError, InputError
from tests.frontends.onnx.hostile.case import (
    INT64,
    array,
    graph,
    helper,
    hostile,
    model,
    node,
    value,
)

X = value("x")
BOOL = TensorProto.BOOL
ONES = np.ones(4, np.float32)


def indexed(op: str, *more: str, **attributes: int) -> ModelProto:
    """An op that reads x at the places i."""
    return model(
        node(op, " ".join(("x", "i", *more)), "y", **attributes),
        inputs=[X, value("i", (1,), INT64), *(value(name, (1,)) for name in more)],
        outputs=[value("y", None)],
    )


for place in (4, -5, 2**62, -(2**63)):
    here = np.array([place])
    outside = f"index {place} is outside axis 0, which has size 4"

    @hostile(
        f"a gather at {place}", EvaluationError, f"take: {outside}", run={"x": ONES, "i": here}
    )
    def _(folder: Path) -> ModelProto:
        return indexed("Gather")

    @hostile(
        f"elements gathered at {place}", EvaluationError, f"take_along_axis: {outside}",
        run={"x": ONES, "i": here},
    )  # fmt: skip
    def _(folder: Path) -> ModelProto:
        return indexed("GatherElements")

    @hostile(
        f"elements scattered to {place}", EvaluationError, f"put_along_axis: {outside}",
        run={"x": ONES, "i": here, "u": ONES[:1]},
    )  # fmt: skip
    def _(folder: Path) -> ModelProto:
        return indexed("ScatterElements", "u")


@hostile(
    "n-dimensional gather outside",
    EvaluationError,
    "gather: index 9 is outside axis 0, which has size 4",
    run={"x": ONES, "i": np.array([[9]])},
)
def _(folder: Path) -> ModelProto:
    return model(
        node("GatherND", "x i", "y"),
        inputs=[X, value("i", (1, 1), INT64)],
        outputs=[value("y", None)],
    )


@hostile(
    "n-dimensional scatter outside",
    EvaluationError,
    "scatter: index 9 is outside axis 0, which has size 4",
    run={"x": ONES, "i": np.array([[9]]), "u": ONES[:1]},
)
def _(folder: Path) -> ModelProto:
    return model(
        node("ScatterND", "x i u", "y"),
        inputs=[X, value("i", (1, 1), INT64), value("u", (1,))], outputs=[value("y", None)],
    )  # fmt: skip


@hostile(
    "a constant gather outside",
    EvaluationError,
    "take: index 9 is outside axis 0, which has size 4",
    run={"x": ONES},
)
def _(folder: Path) -> ModelProto:
    return model(
        node("Gather", "x i", "y"), inputs=[X], outputs=[value("y", None)],
        initializers=[array("i", [9], np.int64)],
    )  # fmt: skip


INTEGERS = {"a": np.array([7, -(2**63), 7]), "b": np.array([0, -1, 2])}
"""Division by zero and of the least integer by minus one: both trap on x86."""


@hostile("an integer division that traps", run=INTEGERS, gives=[0, -(2**63), 3])
def _(folder: Path) -> ModelProto:
    pair = [value("a", (3,), INT64), value("b", (3,), INT64)]
    return model(node("Div", "a b", "y"), inputs=pair, outputs=[value("y", None, INT64)])


@hostile("an integer remainder that traps", run=INTEGERS, gives=[0, 0, 1])
def _(folder: Path) -> ModelProto:
    pair = [value("a", (3,), INT64), value("b", (3,), INT64)]
    return model(node("Mod", "a b", "y"), inputs=pair, outputs=[value("y", None, INT64)])


def shaped(op: str, *inputs: str) -> ModelProto:
    """An op whose result's size is an input."""
    made = [value(name, (1,), INT64) if name == "s" else value(name) for name in inputs]
    return model(
        node(op, " ".join(inputs), "h"), node("ReduceSum", "h", "y", keepdims=0),
        inputs=made, outputs=[value("y", None)],
    )  # fmt: skip


@hostile(
    "zeros of 2^40 elements, as it runs",
    EvaluationError,
    "the result 'h' of ConstantOfShape that makes 'h' is too large",
    run={"s": np.array([2**40])},
)
def _(folder: Path) -> ModelProto:
    return shaped("ConstantOfShape", "s")


@hostile(
    "zeros of 2^34 elements, as it runs",
    EvaluationError,
    "full failed: Unable to allocate 64.0 GiB for an array with shape (17179869184,) "
    "and data type float32",
    run={"s": np.array([2**34])},
)
def _(folder: Path) -> ModelProto:
    return shaped("ConstantOfShape", "s")


@hostile(
    "tiles of 2^40 elements, as it runs",
    EvaluationError,
    "the result 'h' of Tile that makes 'h' is too large",
    run={"x": ONES, "s": np.array([2**40])},
)
def _(folder: Path) -> ModelProto:
    return shaped("Tile", "x", "s")


@hostile(
    "a reshape that does not fit, as it runs",
    EvaluationError,
    "reshape: the number of elements changes",
    run={"x": ONES, "s": np.array([5])},
)
def _(folder: Path) -> ModelProto:
    return shaped("Reshape", "x", "s")


@hostile(
    "a negative size, as it runs",
    EvaluationError,
    "full: a dimension is negative",
    run={"s": np.array([-4])},
)
def _(folder: Path) -> ModelProto:
    return shaped("ConstantOfShape", "s")


@hostile(
    "a range of 10^18, as it runs",
    EvaluationError,
    "the result 'h' of Range that makes 'h' is too large",
    run={"n": np.array(10**18)},
)
def _(folder: Path) -> ModelProto:
    return model(
        node("Range", "a n b", "h"), node("ReduceSum", "h", "y"),
        inputs=[value("n", (), INT64)], outputs=[value("y", None, INT64)],
        initializers=[array("a", 0, np.int64), array("b", 1, np.int64)],
    )  # fmt: skip


@hostile(
    "an input of another shape",
    InputError,
    "input %x has the wrong size in dimension 0",
    run={"x": np.ones(5, np.float32)},
)
def _(folder: Path) -> ModelProto:
    return model(node("Relu", "x", "y"), inputs=[X], outputs=[value("y")])


@hostile(
    "an input of another dtype", InputError, "input %x has the wrong dtype", run={"x": np.ones(4)}
)
def _(folder: Path) -> ModelProto:
    return model(node("Relu", "x", "y"), inputs=[X], outputs=[value("y")])


@hostile("an input that is missing", InputError, "input 'x' is missing", run={})
def _(folder: Path) -> ModelProto:
    return model(node("Relu", "x", "y"), inputs=[X], outputs=[value("y")])


def endless(trips: int | None) -> ModelProto:
    """A loop whose condition stays true."""
    body = graph(
        [node("Identity", "c", "c1"), node("Relu", "v", "v1")],
        [value("i", (), INT64), value("c", (), BOOL), value("v")],
        [value("c1", (), BOOL), value("v1")],
    )
    made = helper.make_node("Loop", ["" if trips is None else "m", "t", "x"], ["y"], body=body)
    constants = [array("t", True, np.bool_)]
    constants += [] if trips is None else [array("m", trips, np.int64)]
    return model(made, inputs=[X], outputs=[value("y", None)], initializers=constants)


@hostile("a loop without end is imported")
def _(folder: Path) -> ModelProto:
    return endless(None)


@hostile("a loop without end is interrupted", run={"x": ONES}, interrupt=True)
def _(folder: Path) -> ModelProto:
    return endless(None)


@hostile("a loop whose condition never fails", run={"x": ONES}, interrupt=True)
def _(folder: Path) -> ModelProto:
    body = graph(
        [node("Greater", "s z", "c1"), node("Relu", "v", "v1"), node("ReduceSum", "v1", "s")],
        [value("i", (), INT64), value("c", (), BOOL), value("v")],
        [value("c1", (1,), BOOL), value("v1")],
    )
    made = helper.make_node("Loop", ["", "t", "x"], ["y"], body=body)
    constants = [array("t", True, np.bool_), array("z", [0.0], np.float32)]
    return model(made, inputs=[X], outputs=[value("y", None)], initializers=constants)


@hostile("a loop of 2^62 trips is interrupted", run={"x": ONES}, interrupt=True)
def _(folder: Path) -> ModelProto:
    return endless(2**62)


@hostile("a loop that is never entered", run={"x": ONES})
def _(folder: Path) -> ModelProto:
    return endless(-(2**63))


@hostile("twenty loops inside each other")
def _(folder: Path) -> ModelProto:
    body = graph(
        [node("Identity", "c", "c1"), node("Relu", "v", "v1")],
        [value("i", (), INT64), value("c", (), BOOL), value("v")],
        [value("c1", (), BOOL), value("v1")],
    )
    for level in range(20):
        inner = helper.make_node("Loop", ["m", "", f"v{level}"], [f"w{level}"], body=body)
        body = graph(
            [node("Identity", f"c{level}", f"d{level}"), inner],
            [value(f"i{level}", (), INT64), value(f"c{level}", (), BOOL), value(f"v{level}")],
            [value(f"d{level}", (), BOOL), value(f"w{level}")],
        )
    made = helper.make_node("Loop", ["m", "", "x"], ["y"], body=body)
    return model(
        made, inputs=[X], outputs=[value("y", None)], initializers=[array("m", 2, np.int64)]
    )


@hostile(
    "a sequence read beyond its end",
    EvaluationError,
    "sequence_at: the position is outside the sequence",
    run={"x": ONES, "i": np.array(7)},
)
def _(folder: Path) -> ModelProto:
    return model(
        node("SequenceConstruct", "x x", "s"), node("SequenceAt", "s i", "y"),
        inputs=[X, value("i", (), INT64)], outputs=[value("y", None)],
    )  # fmt: skip
