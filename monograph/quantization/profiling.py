"""Profiling: run a model with observers over batches, and add up what they saw."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from monograph.api import compile
from monograph.errors import InputError
from monograph.ir.graph import Graph
from monograph.ir.types import Array
from monograph.progress import announce
from monograph.quantization.histogram import BINS, Histogram, limit_for
from monograph.quantization.observers import LIMITS, Observed, ObservedGraph, insert_observers
from monograph.quantization.prepare import digest_of
from monograph.quantization.profile import Activation, ChannelRanges, Profile


def profile_graph(
    graph: Graph, batches: Iterable[Any], *, by_channel: bool, progress: bool | None
) -> Profile:
    """The profile of a prepared graph on these batches."""
    program = insert_observers(graph, by_channel)
    run = compile(program.graph)
    names = [value.name for value in graph.inputs]
    limits = np.full(len(program.observed), limit_for(0.0), np.float32)
    seen: dict[str, Activation] = {}
    count = 0
    for number, batch in enumerate(_watch_batches(batches, progress)):
        inputs = batch_arrays(batch, names, number)
        made = _observe(program, run, inputs, limits, number)
        seen = {n: seen[n].merged(each) if n in seen else each for n, each in made.items()}
        count += 1
    if not count:
        raise InputError(
            "there are no batches to profile",
            expected="an iterable of at least one batch",
            hint="a generator gives its batches once only",
        )
    return Profile(digest_of(graph), count, seen)


def batch_arrays(batch: Any, names: Sequence[str], number: int) -> dict[str, Array]:
    """The inputs of a batch by name: from a dict, a sequence in order, or the only one."""
    if isinstance(batch, Mapping):
        if set(batch) != set(names):
            raise InputError(
                f"batch {number} has other inputs than the model",
                expected=", ".join(names),
                found=", ".join(map(str, batch)),
            )
        given = [batch[name] for name in names]
    else:
        given = list(batch) if isinstance(batch, tuple | list) else [batch]
    if len(given) != len(names):
        raise InputError(
            f"batch {number} has the wrong number of inputs",
            expected=f"{len(names)}: {', '.join(names)}",
            found=str(len(given)),
        )
    return {name: _as_array(each) for name, each in zip(names, given, strict=True)}


def _as_array(given: Any) -> Array:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(given, torch.Tensor):
        given = given.detach().cpu().numpy()
    return np.asarray(given)


def _observe(
    program: ObservedGraph, run: Any, inputs: dict[str, Array], limits: Array, number: int
) -> dict[str, Activation]:
    """What the observers say of one batch; ``limits`` are raised to hold all of it."""
    while True:
        try:
            results = run.run({**inputs, LIMITS: limits})
        except InputError as error:
            raise error.with_context(where=f"batch {number}") from None
        tail = results[len(results) - len(program.observed) * program.parts() :]
        rows = [tail[k :: program.parts()] for k in range(program.parts())]
        ranges = [
            _check_statistics(o, row, number)
            for o, row in zip(program.observed, rows[0], strict=True)
        ]
        needed = [limit_for(max(abs(r[0]), abs(r[1]))) for r in ranges]
        if all(need <= limit for need, limit in zip(needed, limits, strict=True)):
            break
        np.maximum(limits, np.asarray(needed, np.float32), out=limits)
    found = {}
    for k, (each, row) in enumerate(zip(program.observed, ranges, strict=True)):
        counts = np.asarray(rows[1][k], np.int64)
        assert counts.shape == (BINS,)
        channels = None
        if program.by_channel:
            assert each.axis is not None
            low, high, mean = (np.asarray(part, np.float64) for part in rows[2][k])
            low, high = _finite(low), _finite(high)
            channels = ChannelRanges(each.axis, low, high, _within(mean, low, high))
        histogram = Histogram(float(limits[k]), counts)
        low_, high_, mean_, _, infinities = row
        mean_ = _within(mean_, low_, high_)
        found[each.name] = Activation(
            each.type, low_, high_, mean_, histogram, channels, int(infinities)
        )
    return found


def _within(mean: Any, low: Any, high: Any) -> Any:
    """The mean of finite numbers, even where their sum in f32 is not finite."""
    return np.clip(np.nan_to_num(mean), low, high)


def _finite(limits: Array) -> Array:
    """The ranges of channels; one that held no finite number at all has none."""
    return np.where(np.isfinite(limits), limits, 0.0)


def _check_statistics(observed: Observed, row: Array, number: int) -> tuple[float, ...]:
    """The statistics of an activation; NaN and emptiness are errors that name it."""
    low, high, mean, nans, infinities = (float(each) for each in row)
    if nans:
        raise InputError(
            f"batch {number} makes NaN of the activation %{observed.name}",
            expected="finite numbers",
            found=f"{int(nans)} NaN in {observed.type}",
            hint="look for NaN in the batch itself, or for a model that overflows on it",
        )
    if low > high and not infinities:
        raise InputError(f"batch {number} is empty", found=f"{observed.type} without elements")
    if low > high:  # nothing but infinities
        low = high = 0.0
    return low, high, mean, nans, infinities


def check_batches(batches: Any) -> None:
    """Refuse what is not an iterable of batches."""
    if isinstance(batches, str | bytes | Mapping) or not isinstance(batches, Iterable):
        raise InputError(
            "batches come one after the other",
            expected="an iterable of arrays, of tuples of arrays or of dicts by input name",
            found=type(batches).__name__,
        )


def _watch_batches(batches: Iterable[Any], progress: bool | None) -> Iterator[Any]:
    """The batches, announced one by one; with a bar where a person watches."""
    check_batches(batches)
    total = len(batches) if isinstance(batches, Sequence | np.ndarray) else 0
    shown = sys.stderr.isatty() if progress is None else progress
    each: Iterable[Any] = batches
    if shown:
        from rich.console import Console
        from rich.progress import track

        each = track(batches, "profiling", total or None, console=Console(stderr=True))
    for number, batch in enumerate(each):
        announce("profiling", number, total)
        yield batch
