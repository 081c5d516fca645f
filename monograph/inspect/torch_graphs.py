"""What ``torch.compile(model, backend="monograph")`` did: an explanation for each graph of it.

Dynamo may cut a model into several graphs, and where gradients are wanted each is two: a forward
and a backward one. They exist once the model was called.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from typing import Any

from monograph.dataclass import dataclass
from monograph.inspect.explain_text import WIDTH
from monograph.runtime.compiled import Executable

BACKEND = "monograph.bindings.compiled_graphs"


@dataclass(frozen=True)
class ExplainedGraph:
    """A graph: the function that it is of, its role, why it ends, and what became of it."""

    function: str
    role: str
    """``inference``, ``forward`` or ``backward``."""
    end: str | None
    """Why the graph ends before the function does; None if it does not."""
    resumes: bool
    """Whether it begins behind a graph break."""
    left_to_torch: tuple[str, ...]
    """Ops that torch itself computes."""
    explanation: Any


@dataclass(frozen=True)
class ExplainedGraphs:
    """The graphs of a model, in the order in which they were compiled."""

    graphs: tuple[ExplainedGraph, ...]

    def as_json(self) -> dict[str, object]:
        """The same as plain dictionaries and lists."""
        return {
            "graphs": [
                {
                    "function": each.function,
                    "role": each.role,
                    "end": each.end,
                    "resumes": each.resumes,
                    "left_to_torch": list(each.left_to_torch),
                    **each.explanation.as_json(),
                }
                for each in self.graphs
            ]
        }

    def __str__(self) -> str:
        """A page for each graph, a line about all of them first."""
        breaks = _count_breaks([each for each in self.graphs if each.role != "backward"])
        graphs = "1 graph" if len(self.graphs) == 1 else f"{len(self.graphs)} graphs"
        broken = "1 graph break" if breaks == 1 else f"{breaks} graph breaks"
        return "\n\n".join([f"{graphs}, {broken}", *map(_page, self.graphs)])


def _count_breaks(graphs: list[ExplainedGraph]) -> int:
    """Those that end a graph, and those before which a function had no graph."""
    ended: set[str] = set()
    count = 0
    for graph in graphs:
        count += graph.resumes and graph.function not in ended
        if graph.end is not None:
            ended.add(graph.function)
            count += 1
    return count


def _page(graph: ExplainedGraph) -> str:
    lines = []
    if graph.resumes and graph.role != "backward":
        lines += _wrap("begins late", "behind a graph break")
    if graph.end is not None and graph.role != "backward":
        lines += _wrap("ends early", graph.end)
    if graph.left_to_torch:
        lines += _wrap("left to torch", ", ".join(graph.left_to_torch))
    heading, _, rest = str(graph.explanation).partition("\n")
    return "\n".join([heading, *lines, rest])


def _wrap(label: str, text: str) -> list[str]:
    indent = f"  {label:<13}"
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=" " * len(indent))


def explain_graphs(model: Any, explain: Callable[[Executable, str], Any]) -> ExplainedGraphs | None:
    """The explanations of the graphs that torch.compile made of a model; None if there are none."""
    backend = sys.modules.get(BACKEND)
    found = [] if backend is None else backend.graphs_of(model)
    if not found:
        return None
    explained = []
    for number, graph in enumerate(found, 1):
        name = f"{graph.origin.name} (graph {number} of {len(found)}, {graph.role})"
        explained.append(
            ExplainedGraph(
                graph.origin.name,
                graph.role,
                graph.origin.end,
                graph.origin.resumes,
                graph.opaque_calls,
                explain(graph.executable, name),
            )
        )
    return ExplainedGraphs(tuple(explained))


def is_torch_compiled(model: Any) -> bool:
    """Whether ``torch.compile`` returned this."""
    return hasattr(model, "_torchdynamo_orig_callable") or hasattr(model, "_orig_mod")
