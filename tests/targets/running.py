"""Graphs run on a target by its name, with a note of what ran in the interpreter all the same.

``interpreter`` is the meaning of the graph; ``cpu`` compiles it to native code first. Suites that
take ``--target`` run through here, so that all of them count the same things.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from monograph.compiler import Options, compile_graph
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from monograph.runtime.compiled import Executable

TARGETS = ("interpreter", "cpu")


class Runner:
    """Runs graphs on one target. ``interpreted`` names the ops that native code left out."""

    def __init__(self, target: str = "interpreter", options: Options | None = None) -> None:
        assert target in TARGETS, target
        self.target = target
        self.options = options or Options(cache=False)
        self.interpreted: list[str] = []

    def compile(self, graph: Graph) -> Executable:
        """The graph as native code; what it leaves to the interpreter is noted."""
        executable = compile_graph(graph, self.options)
        self.interpreted += interpreted_ops(executable)
        return executable

    def __call__(self, graph: Graph, inputs: Sequence[Any] | Mapping[str, Any]) -> list[Any]:
        """The outputs of a graph."""
        if self.target == "interpreter":
            return interpret(graph, inputs)
        executable = self.compile(graph)
        results = executable.run(dict(inputs) if isinstance(inputs, Mapping) else inputs)
        if executable.stage is not None:  # known only now that it has run
            self.interpreted += interpreted_ops(executable)
        return results


def interpreted_ops(executable: Executable) -> list[str]:
    """The ops of an executable that run in the interpreter, and why if it is completed by calls."""
    if executable.stage is not None:
        nodes = (text.partition(" = ")[2] or text for text in executable.report.fallbacks)
        kinds = [f"({kind_of_reason(each)})" for each in executable.report.reasons]
        return sorted({*(text.partition("(")[0] for text in nodes), *kinds})
    if executable.native is None:
        return []
    return sorted({node.op.name for node in executable.native.program.fallbacks})


def kind_of_reason(sentence: str) -> str:
    """Why nodes run in the interpreter, in a word or two: the same for reasons of one kind."""
    kinds = {
        "decides the size": "a size",
        "waits for": "contents",
        "[*]": "a rank",
        "holds strings": "strings",
        "more than": "too many variants",
    }
    found = (kind for words, kind in kinds.items() if words in sentence)
    return next(found, "sequences")
