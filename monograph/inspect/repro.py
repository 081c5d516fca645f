"""A fault as a program of a few lines that anyone can run: the graph as text, inputs, a check."""

from __future__ import annotations

import json
from collections.abc import Sequence
from textwrap import indent
from typing import Any

import numpy as np

from monograph.inspect.extract import Case
from monograph.ir.contents import contents_of
from monograph.ir.text.printer import print_graph

MOST_ELEMENTS = 24
"""Of an array that is written out; a larger one is saved beside the program."""

_CHECKS = {
    "pass": 'found = monograph.interpret(monograph.optimize(graph, passes="{step}"), inputs)',
    "cache": "monograph.compile(graph, cache=True).run(inputs)\n"
    "found = monograph.compile(graph, cache=True).run(inputs)",
    "as given": "found = monograph.interpret(graph, inputs)  # which fails",
}
_COMPARE = "assert_right(graph, inputs, found)\n"
_PROGRAM = """\
compiled = monograph.compile(graph, cache=False{options})
for _ in range(3):
    leave_other_results(compiled, inputs)  # so that nothing is right by chance
    found = compiled.run(inputs)
"""
_GRADIENT = """\
from monograph.inspect.extract import Case
from monograph.inspect.suspects import check_gradient

problem = check_gradient(Case(graph, tuple(inputs)))
assert problem is None, problem
"""


def repro_text(
    title: str,
    kind: str,
    case: Case,
    *,
    step: str = "",
    options: str = "",
    plugins: Sequence[str] = (),
) -> tuple[str, dict[str, Any]]:
    """The program, and the arrays that it reads from a file beside it (none, mostly).

    ``plugins`` may hold the fault, or an op that it is seen in.
    """
    saved: dict[str, Any] = {}
    inputs = [
        _array_text(value.name, np.asarray(array), saved)
        for value, array in zip(case.graph.inputs, case.inputs, strict=True)
    ]
    weights = {}
    for node in case.graph.walk():
        data = contents_of(node) if node.op.name == "weight" else None
        if data is not None:
            label = str(node.op.attributes().get("label") or node.result.name)
            weights[label] = _array_text(label, np.asarray(data.array()), saved)
    given = ", ".join(f'"{name}": {text}' for name, text in weights.items())
    loaded = 'arrays = np.load("repro.npz")\n' if saved else ""
    tools = ["assert_right", "leave_other_results"] if kind == "program" else ["assert_right"]
    judging = f"from monograph.inspect.suspects import {', '.join(tools)}\n"
    imported = ("" if kind == "gradient" else judging) + _load_plugins(plugins)
    lines = [
        f'"""{title}"""',
        f"import numpy as np\n\nimport monograph\n{imported}",
        f'{loaded}graph = monograph.parse("""\\\n{print_graph(case.graph).strip()}',
        f'"""{f", weights={{{given}}}" if given else ""})',
        f"inputs = [{', '.join(inputs)}]",
    ]
    if kind == "gradient":
        return "\n".join([*lines, _GRADIENT]), saved
    if kind == "program":
        lines += [_PROGRAM.format(options=options) + indent(_COMPARE, "    ")]
    else:
        lines += [_CHECKS[kind].format(step=step, options=options), _COMPARE]
    return "\n".join(lines), saved


def _load_plugins(names: Sequence[str]) -> str:
    told = "from monograph.inspect.plugins import load_plugin\n\n" if names else ""
    return told + "".join(f"load_plugin({json.dumps(name)})\n" for name in names)


def _array_text(name: str, array: Any, saved: dict[str, Any]) -> str:
    """Python that makes an array."""
    if array.dtype.kind not in "fiub" or array.dtype.name == "bfloat16":
        saved[name] = array
        return f'arrays["{name}"]'
    kind = f'"{array.dtype.name}"'
    if array.size and (array == array.flat[0]).all():
        return f"np.full({array.shape}, {_number(array.flat[0])}, {kind})"
    counting = (np.arange(array.size) % 7 - 3).reshape(array.shape)
    if np.array_equal(array, counting):
        return f"(np.arange({array.size}) % 7 - 3).reshape({array.shape}).astype({kind})"
    if array.size <= MOST_ELEMENTS:
        numbers = ", ".join(_number(each) for each in array.flat)
        return f"np.array([{numbers}], {kind}).reshape({array.shape})"
    saved[name] = array
    return f'arrays["{name}"]'


def _number(number: Any) -> str:
    if np.isfinite(number):
        return repr(number.item())
    return "np.nan" if np.isnan(number) else ("np.inf" if number > 0 else "-np.inf")
