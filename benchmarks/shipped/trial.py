"""One shipped model with every contender: open, check the answers, time by turns.

Monograph's form with free sizes is called twice and then waited for, so that what is timed is a
call from the third on. Answers are held against the graph in double precision, interpreted; where
it has none (its sizes depend on contents, or its numbers are rounded on purpose), against ONNX
Runtime's.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.shipped.contenders import (
    CONTENDERS,
    PEERS,
    WARM_CALLS,
    Ready,
    wait_for_variants,
)
from benchmarks.shipped.model import Array, Decide, Feed, Shipped
from benchmarks.trial import in_short
from monograph.inspect.precise import double_precision, relative_error


@dataclass(frozen=True)
class Outcome:
    """What one contender did: seconds to open, of the first call and of a usual one; its error."""

    opened: float | None = None
    first: float | None = None
    median: float | None = None
    best: float | None = None
    error: float | None = None
    reason: str | None = None
    """Why there are no figures, or why they do not count."""
    remark: str | None = None

    @property
    def counts(self) -> bool:
        """Whether there is a time, and of a right answer."""
        return self.reason is None and self.best is not None


@dataclass(frozen=True)
class Row:
    """One model, every contender's outcome by name."""

    name: str
    family: str
    exporter: str
    sizes: dict[str, int]
    against: str
    """What errors are measured against."""
    load: measure.Load
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def best_peer(self) -> str | None:
        """The quickest of the others whose answer is right."""
        names = [name for name in PEERS if name in self.outcomes and self.outcomes[name].counts]
        return min(names, key=lambda name: self.outcomes[name].best or 0.0, default=None)

    def ratio(self, over: str | None, under: str) -> float | None:
        """The best time of one contender over that of another."""
        if over is None or over not in self.outcomes or under not in self.outcomes:
            return None
        first, second = self.outcomes[over], self.outcomes[under]
        if not first.counts or not second.counts or first.best is None or not second.best:
            return None
        return first.best / second.best

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def run_model(
    model: Shipped,
    names: Sequence[str],
    plan: measure.Plan,
    threads: int,
    small: bool = False,
    note: Callable[[str], None] = lambda stage: None,
) -> Row:
    """Open, check and time one model with these contenders."""
    note(f"{model.name}: export")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{model.name}.onnx"
        path.write_bytes(model.build(small))
        feed = model.inputs(small=small)
        note(f"{model.name}: reference")
        reference = _reference(path, feed)
        outcomes: dict[str, Outcome] = {}
        ready: dict[str, tuple[Ready, list[Array], float]] = {}
        for name in names:
            note(f"{model.name}: {name}")
            try:
                ready[name] = _open(name, path, feed, threads)
            except Exception as problem:  # peers fail in their own ways; the table tells which
                outcomes[name] = Outcome(reason=in_short(problem))
        wait_for_variants()
        found = {name: results for name, (_, results, _) in ready.items()}
        against, errors = _errors(reference, found, model.decide)
        note(f"{model.name}: timing")
        meter = measure.LoadMeter()
        calls = {name: _bound(each.call, feed) for name, (each, _, _) in ready.items()}
        timings = measure.alternate(calls, plan)
        load = meter.read()
    for name, (each, _, first) in ready.items():
        error = errors.get(name)
        outcomes[name] = Outcome(
            opened=each.seconds,
            first=first,
            median=timings[name].median,
            best=timings[name].best,
            error=error,
            reason=_wrong(name, error, model.tolerance),
            remark=each.remark,
        )
    gc.collect()
    sizes = dict(model.small_sizes if small else model.sizes)
    return Row(model.name, model.family, model.exporter, sizes, against, load, outcomes)


def _open(name: str, path: Path, feed: Feed, threads: int) -> tuple[Ready, list[Array], float]:
    """A contender, what it answers once its calls are warm, and how long the first one took."""
    opened = CONTENDERS[name](path, feed, threads)
    start = time.perf_counter()
    opened.call(feed)
    first = time.perf_counter() - start
    for _ in range(WARM_CALLS - 1):
        opened.call(feed)
    if name == "shipped":
        wait_for_variants()
    results = [np.asarray(each) for each in opened.call(feed)]
    return opened, results, first


def _bound(call: Callable[[Feed], Any], feed: Feed) -> Callable[[], Any]:
    return lambda: call(feed)


def _reference(path: Path, feed: Feed) -> list[Array] | None:
    """The outputs in double precision; None if the graph has no such form."""
    from monograph.frontends.onnx import from_onnx

    graph = from_onnx(path)
    ops = {node.op.name for node in graph.walk()}
    if any("quant" in name or "deferred" in name for name in ops):
        return None
    return double_precision(graph, [feed[value.name] for value in graph.inputs])


def _errors(
    reference: list[Array] | None, found: Mapping[str, list[Array]], decide: Decide | None
) -> tuple[str, dict[str, float]]:
    """What errors are measured against, and each contender's.

    Indices (of boxes that are kept, of the best class) change with the last bit of a score, so that
    integers are held against what follows from the contender's own floats, if the model says it,
    and else against ONNX Runtime's.
    """
    against, usual = "double precision", found.get("onnxruntime")
    if reference is None:
        against, reference = "onnxruntime", usual
    elif usual is not None:
        pairs = zip(reference, usual, strict=True)
        reference = [true if other.dtype.kind == "f" else other for true, other in pairs]
    if reference is None:
        return "nothing", {}
    known: Sequence[Array] = reference
    return against, {name: _worst(results, known, decide) for name, results in found.items()}


def _worst(found: Sequence[Array], reference: Sequence[Array], decide: Decide | None) -> float:
    if decide is not None:
        pairs = zip(reference, decide(found), strict=True)
        reference = [own if own.dtype.kind in "iu" else true for true, own in pairs]
    return max(_error(*pair) for pair in zip(found, reference, strict=True))


def _error(found: Array, reference: Array) -> float:
    if found.dtype.kind in "iu" and found.ndim == np.ndim(reference) == 2:
        return _missing_rows(found, reference)
    if found.shape != np.shape(reference):
        return float("inf")
    return relative_error(found, reference)


def _missing_rows(found: Array, reference: Array) -> float:
    """The share of rows that one has and the other has not; their order hangs on last bits."""
    rows, others = (set(map(tuple, each.tolist())) for each in (found, reference))
    return len(rows ^ others) / max(1, len(rows | others))


def _wrong(name: str, error: float | None, tolerance: float) -> str | None:
    if error is None or error <= tolerance:
        return None
    return f"wrong: the error of {name} is {error:.1e}"
