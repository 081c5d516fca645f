"""Functions that call themselves, each other without end, or too often."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import FunctionProto, ModelProto

from monograph.errors import InputError
from tests.frontends.onnx.hostile.case import OPSET, helper, hostile, model, node, value

X, Y = value("x"), value("y")
DOMAIN = "own"
MINUS = -np.ones(4, np.float32)


def function(name: str, *calls: str) -> FunctionProto:
    """A function from x to y that calls others, one after another; Relu if there are none."""
    steps = calls or ("Relu",)
    names = ["x", *(f"h{i}" for i in range(1, len(steps))), "y"]
    nodes = [
        helper.make_node(step, [names[i]], [names[i + 1]], domain="" if step == "Relu" else DOMAIN)
        for i, step in enumerate(steps)
    ]
    imports = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_function(DOMAIN, name, ["x"], ["y"], nodes, imports)


def calling(name: str, *functions: FunctionProto) -> ModelProto:
    """A model that calls one function."""
    return model(
        node(name, "x", "y", domain=DOMAIN), inputs=[X], outputs=[Y],
        functions=functions, domains={DOMAIN: 1},
    )  # fmt: skip


@hostile("a function that calls itself", InputError, "the function 'f' calls itself")
def _(folder: Path) -> ModelProto:
    return calling("f", function("f", "f"))


@hostile("three functions that call each other", InputError, "the function 'f' calls itself")
def _(folder: Path) -> ModelProto:
    return calling("f", function("f", "g"), function("g", "h"), function("h", "f"))


@hostile("2^40 calls", InputError, "the model is too large once its functions are expanded")
def _(folder: Path) -> ModelProto:
    made = [function(f"f{i}", f"f{i + 1}", f"f{i + 1}") for i in range(30)]
    return calling("f0", *made, function("f30"))


@hostile("2^3000 calls", InputError, "the model's functions call each other too deeply")
def _(folder: Path) -> ModelProto:
    made = [function(f"f{i}", f"f{i + 1}", f"f{i + 1}") for i in range(3000)]
    return calling("f0", *made, function("f3000"))


@hostile("calls 3,000 deep", InputError, "the model's functions call each other too deeply")
def _(folder: Path) -> ModelProto:
    made = [function(f"f{i}", f"f{i + 1}") for i in range(3000)]
    return calling("f0", *made, function("f3000"))


@hostile(
    "calls 3,000 deep, defined backwards",
    InputError,
    "the model's functions call each other too deeply",
)
def _(folder: Path) -> ModelProto:
    made = [function(f"f{i}", f"f{i + 1}") for i in reversed(range(3000))]
    return calling("f0", function("f3000"), *made)


@hostile(
    "a body of many functions, each called often",
    InputError,
    "the model is too large once its functions are expanded",
)
def _(folder: Path) -> ModelProto:
    wide = function("f1", *["f2"] * 1000)
    return calling("f0", function("f0", *["f1"] * 1000), wide, function("f2", *["Relu"] * 1000))


@hostile("two functions of one name", InputError, "two functions are called 'f'")
def _(folder: Path) -> ModelProto:
    return calling("f", function("f"), function("f"))


@hostile(
    "a call with too many inputs",
    InputError,
    "own.f that makes 'y' does not fit the function that it calls",
)
def _(folder: Path) -> ModelProto:
    made = calling("f", function("f"))
    made.graph.node[0].input.append("x")
    return made


@hostile(
    "a call with too many outputs",
    InputError,
    "own.f that makes 'y' does not fit the function that it calls",
)
def _(folder: Path) -> ModelProto:
    made = calling("f", function("f"))
    made.graph.node[0].output.append("z")
    return made


@hostile(
    "a function that reads what it is not given",
    InputError,
    "Relu that makes 'y' reads 'secret', which nothing makes",
)
def _(folder: Path) -> ModelProto:
    made = function("f")
    made.node[0].input[0] = "secret"
    return calling("f", made)


@hostile(
    "a function that reads the graph around it",
    InputError,
    "Relu that makes 'y' reads 'z', which nothing makes",
)
def _(folder: Path) -> ModelProto:
    made = function("f")
    made.node[0].input[0] = "z"
    caller = calling("f", made)
    caller.graph.input.append(value("z"))
    return caller


@hostile(
    "a function that does not make its output",
    InputError,
    "the function 'f' has an output 'z' that nothing makes",
)
def _(folder: Path) -> ModelProto:
    made = function("f")
    made.output[0] = "z"
    return calling("f", made)


@hostile(
    "a function with a cycle",
    InputError,
    "the nodes of the function 'f' read each other in a circle",
)
def _(folder: Path) -> ModelProto:
    made = function("f", "Relu", "Relu")
    made.node[0].input[0] = "y"
    return calling("f", made)


@hostile(
    "a call with an attribute too many",
    InputError,
    "own.f that makes 'y' calls a function with an attribute that it does not have",
)
def _(folder: Path) -> ModelProto:
    made = calling("f", function("f"))
    made.graph.node[0].attribute.append(helper.make_attribute("alpha", 1.0))
    return made


@hostile("a call without an attribute that has no default")
def _(folder: Path) -> ModelProto:
    made = function("f")
    made.attribute.append("alpha")
    made.node[0].op_type = "LeakyRelu"
    made.node[0].attribute.add(name="alpha", ref_attr_name="alpha", type=1)
    return calling("f", made)


@hostile(
    "a function with two inputs of one name",
    InputError,
    "the function 'f' has two inputs called 'x'",
)
def _(folder: Path) -> ModelProto:
    made = function("f")
    made.input.append("x")
    caller = calling("f", made)
    caller.graph.node[0].input.append("x")
    return caller


@hostile("a function that takes the place of Relu", run={"x": MINUS}, gives=-MINUS)
def _(folder: Path) -> ModelProto:
    made = helper.make_function(
        "", "Relu", ["x"], ["y"], [node("Abs", "x", "y")], [helper.make_opsetid("", OPSET)]
    )
    return model(node("Relu", "x", "y"), inputs=[X], outputs=[Y], functions=[made])
