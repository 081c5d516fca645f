"""What the explorer does with an edit: parse the text, compile it under watch, measure, tell.

An edit is text that somebody may have been tricked into sending, so it is data and nothing else: it
names ops and passes of Monograph alone (an op of another framework could open files), weights by
digest alone, and no line of a file that it mentions is read. Its size is bounded here, its time by
whoever runs this in a process of its own (``explorer``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Any

import numpy as np

from monograph.api import as_pipeline
from monograph.compiler import Options, compile_graph
from monograph.dataclass import dataclass
from monograph.entry_points import only_what_is_loaded
from monograph.errors import InputError
from monograph.inspect.editable_schedules import Schedules, read_tuning
from monograph.inspect.models import executable_of, find_model
from monograph.ir.contents import contents_of, give
from monograph.ir.data import ArrayData, Data, MissingData
from monograph.ir.graph import Graph, Node
from monograph.ir.text.lexer import STRING
from monograph.ir.text.parser import parse_with
from monograph.ir.text.printer import print_graph
from monograph.ir.types import TensorType
from monograph.ir.verify import verify
from monograph.passes.base import all_passes
from monograph.passes.instruments import watching
from monograph.report.data import Recorded, ReportData, record_with, report_data
from monograph.report.history import History
from monograph.report.measured import measure
from monograph.report.models import compile_recorded
from monograph.runtime.bundle import Json
from monograph.targets.base import Tuning

MAX_TEXT_CHARACTERS = 2_000_000
MAX_NODES = 20_000
MAX_WEIGHT_BYTES = 2**30
"""Of weights that the model does not have, and that are filled with random numbers."""
MAX_THREADS = 64
LEVELS = ("O0", "O1", "O2", "O3")
_WORDS = re.compile(
    rf"{STRING}|[%@][\w./:-]*|(?:\#|//)[^\n]*|(?P<word>[A-Za-z_][A-Za-z0-9_.]*)", re.ASCII
)


@dataclass(frozen=True)
class Edit:
    """What a person asks for: a graph as text, and how to compile it."""

    text: str
    passes: str = ""
    level: str = "O2"
    threads: int | None = None
    tuning: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Choices of schedules that are overruled, by their site."""

    @classmethod
    def read(cls, given: Any) -> Edit:
        """An edit from JSON of a stranger; an error says what is wrong with it."""
        parts = ("text", "passes", "level", "threads", "tuning")
        if not isinstance(given, dict) or not set(given) <= set(parts):
            raise InputError("this is not an edit", expected=", ".join(parts))
        text, passes = given.get("text"), given.get("passes", "")
        level, threads = given.get("level", "O2"), given.get("threads")
        if not isinstance(text, str) or not isinstance(passes, str):
            raise InputError("this is not an edit", expected="text and passes that are strings")
        if len(text) + len(passes) > MAX_TEXT_CHARACTERS:
            raise InputError(
                "the text is too long",
                expected=f"at most {MAX_TEXT_CHARACTERS:,} characters",
                found=f"{len(text) + len(passes):,}",
            )
        if level not in LEVELS:
            raise InputError("there is no such level", expected=", ".join(LEVELS))
        if threads is not None and (type(threads) is not int or not 1 <= threads <= MAX_THREADS):
            raise InputError("threads are a number", expected=f"1 to {MAX_THREADS}")
        return cls(text, passes, level, threads, read_tuning(given.get("tuning", {})))


class Workbench:
    """A model, and what edits of its graph become."""

    def __init__(self, name: str, options: Options, sizes: Mapping[str, int]) -> None:
        self.name = name
        self.options = options
        self.sizes = dict(sizes)
        self._weights: dict[tuple[str, str], Data] = {}
        self._schedules = Schedules()

    def open(self, types: list[str]) -> ReportData:
        """The page's first data: the model as it is."""
        model = find_model(self.name, types)
        if model.is_compiled:
            raise InputError(
                "a compiled program has no graph to edit",
                found=self.name,
                hint="explore what it was compiled from; `monograph report` shows what it holds",
            )
        recorder = self._schedules.recorder({}, self.options.resolved_target)
        recorded = compile_recorded(model, replace(self.options, tuning=recorder))
        graph = recorded.executable.graph
        for node in graph.walk():
            data = contents_of(node) if node.op.name == "weight" else None
            if data is not None:
                self._weights[data.digest, str(data.type)] = data
        return self._answer(recorded, graph, "", recorder, quotes_sources=True)

    def edit(self, edit: Edit) -> ReportData:
        """What becomes of a graph that was edited."""
        with only_what_is_loaded():
            graph = self.parse(edit.text)
            return self._compile(edit, graph)

    def _compile(self, edit: Edit, graph: Graph) -> ReportData:
        passes = as_pipeline(edit.passes) if edit.passes.strip() else None
        options = replace(self.options, level=edit.level, threads=edit.threads, passes=passes)
        recorder = self._schedules.recorder(edit.tuning, options.resolved_target)
        options = replace(options, tuning=recorder)
        history = History()
        with watching(history):
            executable = executable_of(compile_graph(graph, options))
        recorded = record_with(executable, history, options.resolved_target)
        return self._answer(recorded, graph, edit.passes, recorder, quotes_sources=False)

    def parse(self, text: str) -> Graph:
        """The graph of a text, with the model's weights where it names them."""
        for match in _WORDS.finditer(text):
            word = match["word"]
            if word is not None and word.startswith(("torch.", "onnx.")):
                raise InputError(
                    f"{word} cannot be edited here",
                    expected="ops of Monograph's own: `monograph ops` lists them",
                    hint="an op of another framework could reach files",
                )
        graph = parse_with(text, self._find_weight, "the editor")
        nodes = list(graph.walk())
        if len(nodes) > MAX_NODES:
            raise InputError(
                "the graph is too large", expected=f"{MAX_NODES:,} nodes", found=f"{len(nodes):,}"
            )
        verify(graph)
        _fill_missing(nodes)
        return graph

    def _find_weight(self, label: str, digest: str, type_: TensorType) -> Data | None:
        return self._weights.get((digest, str(type_)))

    def _answer(
        self,
        recorded: Recorded,
        graph: Graph,
        passes: str,
        recorder: Tuning | None,
        *,
        quotes_sources: bool,
    ) -> ReportData:
        names = graph.symbols()
        sizes = {name: size for name, size in self.sizes.items() if name in names}
        data = report_data(
            recorded,
            name=self.name,
            sizes=sizes,
            quotes_sources=quotes_sources,
            measured=measure(recorded.executable, sizes),
        )
        data.facts["text"] = print_graph(graph)
        data.facts["passes"] = passes
        data.facts["known_passes"] = list(all_passes())
        data.facts["sites"] = self._schedules.facts(recorder)
        return data


def _fill_missing(nodes: Iterable[Node]) -> None:
    """Give weights that the model does not have random contents, or zeros if they are no floats."""
    generator = np.random.default_rng(0)
    left = MAX_WEIGHT_BYTES
    for node in nodes:
        data = contents_of(node)
        if not isinstance(data, MissingData):
            continue
        left -= math.prod(data.shape) * data.dtype.numpy.itemsize
        if left < 0:
            raise InputError(
                f"the weight %{node.result.name} is too large to be made up",
                expected=f"{MAX_WEIGHT_BYTES:,} bytes of new weights at most",
                found=str(data.type),
            )
        made = np.zeros(data.shape, data.dtype.numpy)
        if data.dtype.is_float:
            made = (generator.normal(size=data.shape) * 0.05).astype(data.dtype.numpy)
        give(node, ArrayData(made, data.dtype))


def answer_of(data: ReportData) -> Json:
    """The data as the page takes it from the server."""
    return {"facts": data.facts, "listings": {each.stage: each.parts for each in data.listings}}
