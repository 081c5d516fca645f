"""Tunes whole programs: the default program and the tuned one, timed alternately."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from monograph.errors import MonographError
from monograph.ir.dims import Symbol, evaluate_dim, likely_size, shape_product
from monograph.ir.graph import Graph
from monograph.ir.types import Array, TensorType
from monograph.program.code import Code, WhileLoop, walk_steps
from monograph.runtime.compile_report import CompileReport
from monograph.runtime.cpu.native import Native
from monograph.runtime.options import Options
from monograph.runtime.tuning_report import TuningReport
from monograph.targets import base
from monograph.targets.cpu.build import Program
from monograph.targets.cpu.tuning import Recorder, Site, Tuning
from monograph.tuning.alternating_timer import Timing, alternate
from monograph.tuning.search import Alone, Search, bytes_moved, memory_for, tune

SPIN_SECONDS = 0.004
"""Seconds after which our own threads sleep."""
MAX_TURNS_PER_ROUND = 15
"""Turns of the default and of the tuned program."""


def tune_program(
    default: base.Program,
    sites: Sequence[Site],
    make: Callable[[Tuning], base.Program],
    graph: Graph,
    *,
    threads: int | None,
    seconds: float,
    cache: bool | None,
) -> tuple[base.Program, TuningReport]:
    """The faster one of a program and what a search of so many seconds makes of it.

    ``make`` builds the program with a tuning. A program whose loops end when its data say so is not
    run on data that nobody gave: it stays as it is.
    """
    if any(isinstance(step, WhileLoop) for step in walk_steps(default.steps)):
        return default, TuningReport(skipped=len(sites))
    assert isinstance(default, Program), "made by the target that the sites belong to"
    machine = default.machine
    end = time.perf_counter() + seconds
    sites = [each for each in sites if bytes_moved(each) // each.launches <= MAX_SITE_BYTES]
    arrays = synthetic_inputs(default, graph)
    programs: dict[str, base.Program] = {"": default}

    def compare(tuning: Tuning) -> tuple[Timing, Timing]:
        programs[tuning.digest] = made = make(tuning)
        calls = {
            name: _call(program, graph, threads, arrays)
            for name, program in (("default", default), ("tuned", made))
        }
        timed = alternate(calls, MAX_TURNS_PER_ROUND, quiet=SPIN_SECONDS, until=end)
        return timed["default"], timed["tuned"]

    bench = Alone(machine, threads, _make_cache_flush(default, machine.l3))
    memory = memory_for(machine, threads, cache)
    try:
        building = sum(default.seconds.values())
        report = tune(sites, Search(bench, machine), seconds, memory, compare, building)
    except MonographError:  # it refuses data that nobody gave: there is nothing to compare
        return default, TuningReport(skipped=len(sites))
    if not report.kept:
        return default, report
    return programs[Tuning(report.edits).digest], report


def search_program(
    default: base.Program,
    recorder: base.Tuning,
    make: Callable[[base.Tuning], base.Program],
    graph: Graph,
    options: Options,
    report: CompileReport,
) -> base.Program:
    """The faster one of a program and what a search makes of it, which the report tells of.

    ``recorder`` has heard of every choice in the program.
    """
    assert isinstance(recorder, Recorder), "made by the target that the sites belong to"
    program, report.search = tune_program(
        default,
        tuple(recorder.sites.values()),
        make,
        graph,
        threads=options.threads,
        seconds=options.search_seconds,
        cache=options.cache,
    )
    report.tuning = report.search.edits if report.search.kept else {}
    report.seconds["tuning"] = report.search.seconds
    return program


def _call(
    program: Code, graph: Graph, threads: int | None, arrays: Sequence[Array]
) -> Callable[[], object]:
    native = Native(program, graph, threads)
    return lambda: native(arrays)


MAX_SITE_BYTES = 1 << 30
"""Bytes that a kernel may read and write to be measured, at the likely sizes of symbols."""
MAX_INPUT_ELEMENTS = 1 << 24
"""Elements of all inputs together that symbolic sizes may lead to."""


def _make_cache_flush(program: Code, cache_bytes: int) -> Callable[[], object] | None:
    """Something that empties the cache, if a whole run of the program would."""
    weights = sum(data.size * data.dtype.numpy.itemsize for data in program.weights)
    if weights < 2 * cache_bytes:
        return None
    filler = np.ones(cache_bytes * 3 // 2 // 8)
    return lambda: float(filler.sum())


def synthetic_inputs(program: Code, graph: Graph) -> list[Array]:
    """Arrays of the types of a graph's inputs: normal numbers, and zeros for integers."""
    bindings = _affordable_sizes(graph)
    strides = {slot.number: slot.strides for slot in program.slots if slot.strides is not None}
    generator = np.random.default_rng(0)
    arrays = []
    for number, value in enumerate(graph.inputs):
        assert isinstance(value.type, TensorType), "native programs take tensors"
        shape = tuple(evaluate_dim(dim, bindings) for dim in value.shape)
        arrays.append(_array(shape, value.dtype.numpy, strides.get(number), generator))
    return arrays


def _affordable_sizes(graph: Graph) -> dict[Symbol, int]:
    """Sizes to measure with: the likely ones, the largest halved until the inputs are small."""
    sizes = {symbol: likely_size(symbol) for symbol in graph.symbols().values()}

    def elements() -> int:
        types = (value.type for value in graph.inputs)
        shapes = (each.shape for each in types if isinstance(each, TensorType))
        return sum(evaluate_dim(shape_product(shape), sizes) for shape in shapes)

    while elements() > MAX_INPUT_ELEMENTS:
        largest = max(sizes, key=lambda symbol: sizes[symbol] - symbol.lower, default=None)
        if largest is None or sizes[largest] <= largest.lower:
            break
        sizes[largest] = max(largest.lower, sizes[largest] // 2)
    return sizes


def _array(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    strides: tuple[int, ...] | None,
    generator: np.random.Generator,
) -> Array:
    count = int(np.prod(shape))
    if strides is not None and count:
        count = 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
    floats = dtype.kind == "f"
    flat = generator.standard_normal(count).astype(dtype) if floats else np.zeros(count, dtype)
    if strides is None:
        return flat.reshape(shape)
    steps = tuple(step * dtype.itemsize for step in strides)
    return np.lib.stride_tricks.as_strided(flat, shape, steps)
