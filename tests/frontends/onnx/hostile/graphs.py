"""Graphs that are not graphs: cycles, names made twice, nodes that cannot be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto

from monograph.errors import InputError, TypeRuleError, UnsupportedError
from tests.frontends.onnx.hostile.case import (
    INT64,
    array,
    attribute,
    graph,
    helper,
    hostile,
    model,
    node,
    saved,
    unary,
    value,
)

X, Y = value("x"), value("y")
BOOL = TensorProto.BOOL


@hostile("a cycle", InputError, "the nodes of the model read each other in a circle")
def _(folder: Path) -> ModelProto:
    return model(
        node("Add", "x b", "a"), node("Relu", "a", "b"), node("Relu", "b", "y"),
        inputs=[X], outputs=[Y],
    )  # fmt: skip


@hostile(
    "a node that reads itself", InputError, "the nodes of the model read each other in a circle"
)
def _(folder: Path) -> ModelProto:
    return model(node("Add", "x y", "y"), inputs=[X], outputs=[Y])


@hostile("a cycle through a body", InputError, "the nodes of the model read each other in a circle")
def _(folder: Path) -> ModelProto:
    body = graph([node("Relu", "y", "b")], outputs=[value("b")])
    return model(
        node("If", "c", "y", then_branch=body, else_branch=body),
        inputs=[value("c", (), BOOL)], outputs=[Y],
    )  # fmt: skip


@hostile("two results of one name", InputError, "two values of the model are called 'y'")
def _(folder: Path) -> ModelProto:
    return model(node("Relu", "x", "y"), node("Abs", "x", "y"), inputs=[X], outputs=[Y])


@hostile("one node with one name twice", InputError, "two values of the model are called 'y'")
def _(folder: Path) -> ModelProto:
    return model(node("Split", "x", "y y", num_outputs=2), inputs=[X], outputs=[Y])


@hostile("a result called as an input", InputError, "two values of the model are called 'x'")
def _(folder: Path) -> ModelProto:
    return model(node("Relu", "x", "x"), inputs=[X], outputs=[X])


@hostile("two inputs of one name", InputError, "two inputs of the model are called 'x'")
def _(folder: Path) -> ModelProto:
    return model(node("Relu", "x", "y"), inputs=[X, X], outputs=[Y])


@hostile("an input without a name", InputError, "an input of the model has no name")
def _(folder: Path) -> ModelProto:
    return model(node("Relu", "x", "y"), inputs=[X, value("")], outputs=[Y])


@hostile("an input without a type", InputError, "input 'x' has a type that is not supported")
def _(folder: Path) -> ModelProto:
    made = unary()
    made.graph.input[0].ClearField("type")
    return made


@hostile("two initializers of one name", InputError, "two initializers are called 'w'")
def _(folder: Path) -> ModelProto:
    weights = [array("w", [1.0], np.float32), array("w", [2.0], np.float32)]
    return model(node("Add", "x w", "y"), inputs=[X], outputs=[Y], initializers=weights)


@hostile("a missing initializer", InputError, "Add that makes 'y' reads 'w', which nothing makes")
def _(folder: Path) -> ModelProto:
    return model(node("Add", "x w", "y"), inputs=[X], outputs=[Y])


@hostile("a missing output", InputError, "the model has an output 'z' that nothing makes")
def _(folder: Path) -> ModelProto:
    return model(node("Relu", "x", "y"), inputs=[X], outputs=[value("z")])


@hostile(
    "a body that reads what comes later",
    InputError,
    "If that makes 'y' reads 'z', which nothing makes",
)
def _(folder: Path) -> ModelProto:
    body = graph([node("Relu", "z", "b")], outputs=[value("b")])
    return model(
        node("If", "c", "y", then_branch=body, else_branch=body),
        inputs=[value("c", (), BOOL)], outputs=[Y],
    )  # fmt: skip


@hostile("an input too few", InputError, "Add that makes 'y': input 1 is missing")
def _(folder: Path) -> ModelProto:
    return model(node("Add", "x", "y"), inputs=[X], outputs=[Y])


@hostile("an input too many", InputError, "Relu that makes 'y' has too many inputs")
def _(folder: Path) -> ModelProto:
    return model(node("Relu", "x x x", "y"), inputs=[X], outputs=[Y])


@hostile("an output too many", InputError, "Relu that makes 'y' has too many outputs")
def _(folder: Path) -> ModelProto:
    return model(node("Relu", "x", "y z"), inputs=[X], outputs=[Y])


@hostile("an unknown op", UnsupportedError, "<onnx> has 1 op that is not supported")
def _(folder: Path) -> ModelProto:
    return unary("Frobnicate")


@hostile("an op without a name", UnsupportedError, "<onnx> has 1 op that is not supported")
def _(folder: Path) -> ModelProto:
    return unary("")


@hostile("a thousand unknown ops", UnsupportedError, "<onnx> has 1000 ops that are not supported")
def _(folder: Path) -> ModelProto:
    nodes = [node(f"Op{i}", f"v{i}", f"v{i + 1}") for i in range(1000)]
    return model(*nodes, inputs=[value("v0")], outputs=[value("v1000")])


@hostile("an unknown domain", UnsupportedError, "<onnx> has 1 op that is not supported")
def _(folder: Path) -> ModelProto:
    made = unary(domain="com.evil")
    made.opset_import.append(helper.make_opsetid("com.evil", 1))
    return made


@hostile("a domain that is not imported", UnsupportedError, "<onnx> has 1 op that is not supported")
def _(folder: Path) -> ModelProto:
    return unary(domain="com.microsoft")


@hostile("an op newer than its opset")
def _(folder: Path) -> ModelProto:
    return model(node("Gelu", "x", "y"), inputs=[X], outputs=[Y], opset=13)


@hostile("an op that its opset no longer has")
def _(folder: Path) -> ModelProto:
    return model(node("Upsample", "x s", "y"), inputs=[X, value("s", (1,))], outputs=[Y], opset=13)


# Attributes.


def with_attribute(op: str, *attributes: AttributeProto) -> ModelProto:
    """One op with attributes as they are."""
    made = NodeProto(op_type=op, input=["x"], output=["y"], attribute=attributes)
    return model(made, inputs=[value("x", (2, 4))], outputs=[value("y", None)])


@hostile(
    "a string for a number",
    InputError,
    "Softmax that makes 'y': attribute 'axis' is of the wrong kind",
)
def _(folder: Path) -> ModelProto:
    return with_attribute("Softmax", attribute("axis", AttributeProto.STRING, s=b"last"))


@hostile(
    "a float for ints",
    InputError,
    "Transpose that makes 'y': attribute 'perm' is of the wrong kind",
)
def _(folder: Path) -> ModelProto:
    return with_attribute("Transpose", attribute("perm", AttributeProto.FLOAT, f=1.5))


@hostile(
    "an attribute that lies about its kind",
    InputError,
    "Softmax that makes 'y': attribute 'axis' has no value",
)
def _(folder: Path) -> ModelProto:
    return with_attribute("Softmax", attribute("axis", AttributeProto.INT, f=1.0))


@hostile(
    "an attribute of no kind", InputError, "Softmax that makes 'y': attribute 'axis' has no value"
)
def _(folder: Path) -> ModelProto:
    return with_attribute("Softmax", AttributeProto(name="axis"))


@hostile(
    "an attribute twice", InputError, "Softmax that makes 'y': attribute 'axis' is given twice"
)
def _(folder: Path) -> ModelProto:
    axis = attribute("axis", AttributeProto.INT, i=1)
    return with_attribute("Softmax", axis, axis)


@hostile(
    "an attribute that refers to nothing",
    InputError,
    "Softmax that makes 'y': attribute 'axis' refers to a function's attribute "
    "outside of a function",
)
def _(folder: Path) -> ModelProto:
    return with_attribute(
        "Softmax", AttributeProto(name="axis", ref_attr_name="a", type=AttributeProto.INT)
    )


@hostile("a missing attribute", InputError, "Cast that makes 'y': attribute 'to' is missing")
def _(folder: Path) -> ModelProto:
    return with_attribute("Cast")


@hostile("an unknown attribute", InputError, "Relu that makes 'y': attribute 'slope' is not known")
def _(folder: Path) -> ModelProto:
    return with_attribute("Relu", attribute("slope", AttributeProto.FLOAT, f=0.1))


@hostile(
    "a cast to nothing",
    InputError,
    "attribute 'to' of Cast that makes 'y' has an element type that is not known",
)
def _(folder: Path) -> ModelProto:
    return with_attribute("Cast", attribute("to", AttributeProto.INT, i=77))


@hostile("an axis out of range", TypeRuleError, "Softmax: axis 7 is out of range")
def _(folder: Path) -> ModelProto:
    return with_attribute("Softmax", attribute("axis", AttributeProto.INT, i=7))


@hostile("a permutation with an axis twice", TypeRuleError, "transpose: an axis is named twice")
def _(folder: Path) -> ModelProto:
    return with_attribute("Transpose", attribute("perm", AttributeProto.INTS, ints=[1, 1]))


@hostile(
    "an attribute beyond 64 bits of sense",
    TypeRuleError,
    "concat: axis -9223372036854775808 is out of range",
)
def _(folder: Path) -> ModelProto:
    return with_attribute("Concat", attribute("axis", AttributeProto.INT, i=-(2**63)))


@hostile("a string of 50 MB in an attribute", InputError, "Conv that makes 'y': unknown auto_pad")
def _(folder: Path) -> ModelProto:
    made = node("Conv", "x w", "y", auto_pad="A" * 50_000_000)
    return model(
        made,
        inputs=[value("x", (1, 1, 4, 4)), value("w", (1, 1, 3, 3))],
        outputs=[value("y", None)],
    )


@hostile("an op's name of 50 MB", UnsupportedError, "<onnx> has 1 op that is not supported")
def _(folder: Path) -> ModelProto:
    return unary("A" * 50_000_000)


@hostile("a convolution of stride 0", TypeRuleError, "conv: stride does not fit")
def _(folder: Path) -> ModelProto:
    return model(
        node("Conv", "x w", "y", strides=[0, 0]),
        inputs=[value("x", (1, 1, 4, 4)), value("w", (1, 1, 3, 3))], outputs=[value("y", None)],
    )  # fmt: skip


@hostile("a convolution of no groups", TypeRuleError, "conv: groups must be positive")
def _(folder: Path) -> ModelProto:
    return model(
        node("Conv", "x w", "y", group=0),
        inputs=[value("x", (1, 1, 4, 4)), value("w", (1, 1, 3, 3))], outputs=[value("y", None)],
    )  # fmt: skip


@hostile("paddings of 2^62", InputError, "the result 'y' of Conv that makes 'y' is too large")
def _(folder: Path) -> ModelProto:
    return model(
        node("Conv", "x w", "y", pads=[2**62] * 4),
        inputs=[value("x", (1, 1, 4, 4)), value("w", (1, 1, 3, 3))], outputs=[value("y", None)],
    )  # fmt: skip


# Control flow.


@hostile("branches of two dtypes", TypeRuleError, "these values have no type in common")
def _(folder: Path) -> ModelProto:
    then = graph([node("Relu", "x", "a")], outputs=[value("a")])
    other = graph([node("Cast", "x", "b", to=INT64)], outputs=[value("b", (4,), INT64)])
    return model(
        node("If", "c", "y", then_branch=then, else_branch=other),
        inputs=[X, value("c", (), BOOL)], outputs=[value("y", None)],
    )  # fmt: skip


@hostile(
    "branches of two counts",
    InputError,
    "If that makes 'y': the branches have different numbers of results",
)
def _(folder: Path) -> ModelProto:
    then = graph([node("Relu", "x", "a")], outputs=[value("a")])
    other = graph([node("Relu", "x", "a"), node("Abs", "x", "b")], outputs=[value("a"), value("b")])
    return model(
        node("If", "c", "y", then_branch=then, else_branch=other),
        inputs=[X, value("c", (), BOOL)], outputs=[Y],
    )  # fmt: skip


@hostile(
    "an If with one branch", InputError, "If that makes 'y': attribute 'else_branch' is missing"
)
def _(folder: Path) -> ModelProto:
    then = graph([node("Relu", "x", "a")], outputs=[value("a")])
    return model(
        node("If", "c", "y", then_branch=then), inputs=[X, value("c", (), BOOL)], outputs=[Y]
    )


@hostile("an If on a float", InputError, "If that makes 'y': the condition is no bool")
def _(folder: Path) -> ModelProto:
    then = graph([node("Relu", "x", "a")], outputs=[value("a")])
    return model(node("If", "x", "y", then_branch=then, else_branch=then), inputs=[X], outputs=[Y])


def loop(body_inputs: int, body_outputs: int) -> ModelProto:
    """A Loop with one carried value whose body takes and gives so many values."""
    inputs = [value("i", (), INT64), value("c", (), BOOL), value("v"), value("w")]
    nodes = [node("Identity", "c", "c1"), node("Relu", "v", "v1"), node("Abs", "v", "w1")]
    outputs = [value("c1", (), BOOL), value("v1"), value("w1")]
    body = graph(nodes, inputs[:body_inputs], outputs[:body_outputs])
    made = helper.make_node("Loop", ["m", "", "x"], ["y"], body=body)
    return model(made, inputs=[value("m", (), INT64), X], outputs=[value("y", None)])


@hostile(
    "a loop whose body takes too much",
    InputError,
    "Loop that makes 'y': the body does not fit the carried values",
)
def _(folder: Path) -> ModelProto:
    return loop(4, 2)


@hostile(
    "a loop whose body gives too little",
    InputError,
    "Loop that makes 'y': the body does not fit the carried values",
)
def _(folder: Path) -> ModelProto:
    return loop(3, 1)


@hostile(
    "a loop whose last output nobody takes", run={"m": np.array(3), "x": np.ones(4, np.float32)}
)
def _(folder: Path) -> ModelProto:
    return loop(3, 3)


@hostile("a loop that changes its dtype", TypeRuleError, "these values have no type in common")
def _(folder: Path) -> ModelProto:
    body = graph(
        [node("Identity", "c", "c1"), node("Cast", "v", "v1", to=INT64)],
        [value("i", (), INT64), value("c", (), BOOL), value("v")],
        [value("c1", (), BOOL), value("v1", (4,), INT64)],
    )
    made = helper.make_node("Loop", ["m", "", "x"], ["y"], body=body)
    return model(made, inputs=[value("m", (), INT64), X], outputs=[value("y", None)])


@hostile("a scan of no inputs", InputError, "Scan that makes 'y': too few inputs")
def _(folder: Path) -> ModelProto:
    body = graph([node("Relu", "v", "w")], [value("v")], [value("w")])
    return model(
        node("Scan", "x", "y", body=body, num_scan_inputs=9), inputs=[X], outputs=[value("y", None)]
    )


@hostile("a sequence of two dtypes", TypeRuleError, "these values have no type in common")
def _(folder: Path) -> ModelProto:
    return model(
        node("SequenceConstruct", "x i", "s"), node("SequenceLength", "s", "y"),
        inputs=[X, value("i", (4,), INT64)], outputs=[value("y", (), INT64)],
    )  # fmt: skip


@hostile("a sequence op on a tensor", TypeRuleError, "sequence_at: the operand is no sequence")
def _(folder: Path) -> ModelProto:
    return model(
        node("SequenceAt", "x i", "y"),
        inputs=[X, value("i", (), INT64)],
        outputs=[value("y", None)],
    )


@hostile("a tensor op on a sequence", InputError, "Relu that makes 'y': ONNX refuses its operands")
def _(folder: Path) -> ModelProto:
    return model(
        node("SequenceConstruct", "x", "s"),
        node("Relu", "s", "y"),
        inputs=[X],
        outputs=[value("y", None)],
    )


# Odd, and yet right.


@hostile("nodes in the wrong order", run={"x": -np.ones(4, np.float32)}, gives=[0, 0, 0, 0])
def _(folder: Path) -> ModelProto:
    return model(node("Abs", "h", "y"), node("Relu", "x", "h"), inputs=[X], outputs=[Y])


@hostile("names with odd characters", run={'x y\n"%@': np.ones(4, np.float32)})
def _(folder: Path) -> ModelProto:
    nodes = [
        helper.make_node("Relu", ['x y\n"%@'], ["\0"]),
        helper.make_node("Abs", ["\0"], ["名前 / ../..:{}"]),
        helper.make_node("Neg", ["名前 / ../..:{}"], ["'; DROP TABLE"]),
    ]
    return model(*nodes, inputs=[value('x y\n"%@')], outputs=[value("'; DROP TABLE")])


@hostile("a name of a million characters", run={"x": np.ones(4, np.float32)})
def _(folder: Path) -> ModelProto:
    name = "n" * 1_000_000
    return model(node("Relu", "x", name), node("Abs", name, "y"), inputs=[X], outputs=[Y])


@hostile("a chain of fifty thousand nodes")
def _(folder: Path) -> bytes:
    return chain(50_000)


@hostile("a chain of a million nodes", InputError, "the model is too large")
def _(folder: Path) -> bytes:
    return chain(1_000_000)


def chain(count: int) -> bytes:
    """So many nodes, one after another."""
    made = model(inputs=[value("v0")], outputs=[value(f"v{count}")])
    add = made.graph.node.add
    for i in range(count):
        add(op_type="Relu", input=[f"v{i}"], output=[f"v{i + 1}"])
    return saved(made)


@hostile("a chain of twenty thousand nodes backwards")
def _(folder: Path) -> ModelProto:
    nodes = [node("Relu", f"v{i}", f"v{i + 1}") for i in reversed(range(20_000))]
    return model(*nodes, inputs=[value("v0")], outputs=[value("v20000")])


@hostile("a hundred thousand inputs of one node", run=None)
def _(folder: Path) -> ModelProto:
    return model(
        helper.make_node("Concat", ["x"] * 100_000, ["y"], axis=0),
        inputs=[X],
        outputs=[value("y", None)],
    )
