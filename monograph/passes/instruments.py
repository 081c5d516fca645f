"""Instruments: watchers that a pipeline calls after every pass.

``Dump`` writes the graph to numbered files, ``Verify`` checks that it is well formed, ``Validate``
checks that it still computes the same. (Times and counters are in the manager's report.)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np

from monograph.config import Config
from monograph.errors import MonographError, PassError
from monograph.ir.float_error import relative_norm_error
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from monograph.ir.text.printer import print_graph
from monograph.ir.types import Array
from monograph.ir.verify import verify
from monograph.passes.base import Pass


class Instrument:
    """A watcher that does nothing; subclasses see the graph at the start and after each pass."""

    def start(self, graph: Graph) -> None:
        """Called once, before any pass has run."""

    def after(self, each: Pass, graph: Graph, seconds: float, changed: bool) -> None:
        """Called when a pass has run."""

    def stage(self, name: str, suffix: str, text: Callable[[], str]) -> None:
        """Called when a stage after the passes has a result, which ``text`` prints."""


_WATCHING: ContextVar[tuple[Instrument, ...]] = ContextVar("watching", default=())


@contextmanager
def watching(*instruments: Instrument) -> Iterator[None]:
    """Let instruments see every pipeline that compiling runs in this block, on this thread."""
    token = _WATCHING.set((*_WATCHING.get(), *instruments))
    try:
        yield
    finally:
        _WATCHING.reset(token)


def list_instruments() -> list[Instrument]:
    """The instruments that a caller (``watching``) or the environment asks for.

    The latter by ``MONOGRAPH_VERIFY`` and ``MONOGRAPH_DUMP``.
    """
    config = Config.from_environment()
    found: list[Instrument] = [*_WATCHING.get()]
    if config.verify:
        found.append(Verify())
    if config.dump is not None:
        found.append(Dump(config.dump))
    return found


class Dump(Instrument):
    """Write the graph after every pass to ``NN_pass.ir``, headed by pass, time and node count.

    Later stages follow as ``NN_stage.txt``. Numbers go on while a process lives: what it compiles
    next into the same folder comes after what it compiled before.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._has_started = False

    def start(self, graph: Graph) -> None:
        """Write the graph as it came in."""
        if self._has_started:
            return
        self._has_started = True
        self._write_graph("start", graph, f"# before any pass: {len(graph)} nodes")

    def after(self, each: Pass, graph: Graph, seconds: float, changed: bool) -> None:
        """Write the graph as the pass left it."""
        effect = "changed" if changed else "unchanged"
        header = f"# after {each}: {effect}, {seconds * 1000:.2f} ms, {len(graph)} nodes"
        self._write_graph(each.name, graph, header)

    def stage(self, name: str, suffix: str, text: Callable[[], str]) -> None:
        """Write what a later stage made."""
        self._write(name, suffix, text())

    def _write_graph(self, label: str, graph: Graph, header: str) -> None:
        self._write(label, "ir", f"{header}\n{print_graph(graph)}\n")

    def _write(self, label: str, suffix: str, text: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        number = next(_NUMBERS.setdefault(self.folder.resolve(), itertools.count()))
        (self.folder / f"{number:02}_{label}.{suffix}").write_text(text)


_NUMBERS: dict[Path, Iterator[int]] = {}
"""The number of the next file, by folder."""


class Verify(Instrument):
    """Check after every pass that the graph is well formed."""

    def after(self, each: Pass, graph: Graph, seconds: float, changed: bool) -> None:
        """Raise what is wrong, naming the pass."""
        try:
            verify(graph)
        except MonographError as error:
            raise error.with_context(during=str(each)) from None


class Validate(Instrument):
    """Check after every pass that the graph computes what it did, on given inputs.

    ``tolerance`` bounds ‖got − reference‖/‖reference‖ of each float output; integers, bools, NaNs
    and infinities must be equal.
    """

    def __init__(self, inputs: Sequence[Any], tolerance: float = 1e-5) -> None:
        self.inputs = inputs
        self.tolerance = tolerance
        self._reference: list[Any] = []

    def start(self, graph: Graph) -> None:
        """Compute the reference."""
        self._reference = interpret(graph, self.inputs)

    def after(self, each: Pass, graph: Graph, seconds: float, changed: bool) -> None:
        """Compare, and name the pass that changed the meaning."""
        if not changed:
            return
        results = interpret(graph, self.inputs)
        for position, (got, expected) in enumerate(zip(results, self._reference, strict=True)):
            error = relative_error(got, expected)
            if error > self.tolerance:
                raise PassError(
                    f"the meaning of output {position} (%{graph.outputs[position].name}) changed",
                    expected=f"a relative error of at most {self.tolerance:g}",
                    found=f"{error:.3g}",
                    during=str(each),
                    hint=f"`monograph opt -p {each}` on the graph before it shows the rewrite",
                )


def relative_error(got: Array, expected: Array) -> float:
    """‖got − expected‖/‖expected‖; infinite where shape, dtype or special values differ."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return math.inf
    if got.dtype.kind in "biuOSU":
        return 0.0 if np.array_equal(got, expected) else math.inf
    return relative_norm_error(got, expected)
