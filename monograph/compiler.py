"""The road from a graph to a program that runs: optimise, lower, fuse, assemble, emit, load.

Read this first. ``compile_graph`` looks for the program in the disk cache and loads it; what it
does not find, ``build_program`` makes, one stage after the other. Every stage leaves a value that
prints, and ``MONOGRAPH_DUMP=folder`` writes each to a numbered file:

    ====================  ============================  =========================================
    stage                 value                         where
    ====================  ============================  =========================================
    optimise              a better graph                ``passes``, a literal list a level
    lower                 a graph of primitives         ``Target.lowering``, a literal list
    fuse                  groups of nodes               ``fusion``
    assemble              slots, steps, kernels         ``Target.assemble``
    emit                  a program with code           ``Target.emit``
    load                  something to call             ``runtime``
    ====================  ============================  =========================================

A graph that hangs on more than the types of its inputs is completed by the calls (``staged``). What
the target cannot compute runs in the interpreter, node by node: the report names it, and ``strict``
makes it an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from logging import DEBUG

from monograph.errors import UnsupportedError
from monograph.fusion.regions import fuse_regions
from monograph.fusion.text import fusion_text
from monograph.ir.contents import reread, snapshot
from monograph.ir.graph import Graph
from monograph.ir.specialize import specialize_sizes
from monograph.logs import follow_environment, stage_logger
from monograph.passes.instruments import list_instruments
from monograph.passes.manager import run_pipeline
from monograph.program.native_support import only_interpretable
from monograph.progress import announce
from monograph.runtime.compile_report import CompileReport, read_report, write_report
from monograph.runtime.compiled import Executable
from monograph.runtime.device import runs_here
from monograph.runtime.kernel_summary import notes_of
from monograph.runtime.options import Options, resolve_options
from monograph.runtime.program_cache import CachedProgram, Watch, program_cache, unwatch_weights
from monograph.runtime.weight_ownership import follow_program, hold, hold_all, snapshot_weights
from monograph.specialize.loading import keep_what_variants_need, load_program, stage_of
from monograph.specialize.nonempty import Otherwise, assume_nonempty
from monograph.targets.base import Assembled, BuildOptions, Program, Tuning
from monograph.targets.plan import plan_text
from monograph.targets.strides import usable_strides

__all__ = ["Options", "build_program", "compile_graph"]

_CACHE, _PASSES, _FUSION, _ASSEMBLE, _EMIT, _LOAD = map(
    stage_logger, ("cache", "passes", "fusion", "assemble", "emit", "load")
)


def compile_graph(
    graph: Graph, options: Options | None = None, *, owned: bool = False
) -> Executable:
    """Compile a graph, which stays as it is; or find in the cache what was compiled before.

    The program has its own weights when this returns: those that the graph has now. A graph that is
    ``owned``, since it was made for this, gives them to the program, which lets go of them once
    they are packed (``runtime.weight_ownership``).
    """
    follow_environment()
    chosen = resolve_options(options)
    if chosen.sizes:
        graph, chosen = specialize_sizes(graph, chosen.sizes), replace(chosen, sizes={})
    assumed = assume_nonempty(graph)
    if assumed is None:
        return _find_or_build(graph, chosen, owned)
    made = _find_or_build(assumed.graph, chosen, owned)
    snapshot(graph.walk())
    made.otherwise = Otherwise(assumed, lambda: _find_or_build(graph, chosen, owned=False))
    return made


def _find_or_build(graph: Graph, options: Options, owned: bool) -> Executable:
    """``compile_graph`` for all sizes that the graph's types allow."""
    started = time.perf_counter()
    options = keep_what_variants_need(graph, options, owned)
    target = options.resolved_target
    if owned:
        hold(graph)
    model = graph if owned else reread(graph)
    cache = program_cache(model, target, options.key, options.may_cache)
    found = None if cache is None or options.again else cache.find()
    if found is not None:
        _CACHE.info("@%s: found", graph.name)
        _PASSES.info("@%s: from the cache, so none runs; MONOGRAPH_CACHE=0 compiles", graph.name)
        return _load_found(graph, options, found, started, owned)
    _CACHE.info("@%s: %s", graph.name, "not used" if cache is None else "not there")
    report = CompileReport(cache="off" if cache is None else "miss")
    watch = Watch(model)
    program = build_program(model, watch, options, report)
    if program is None:
        report.cache = "off"
        snapshot(watch.graph.walk())  # calls read weights when they complete the program
        stage = stage_of(watch.graph, options, report, compile_graph)
        return Executable(graph, None, report, lowered=watch.graph, stage=stage)
    if cache is not None:
        started = time.perf_counter()
        cache.keep(program, watch.read, write_report(report))
        report.seconds["storing"] = time.perf_counter() - started
        _CACHE.debug("@%s: stored in %.1f ms", graph.name, report.seconds["storing"] * 1e3)
    started = time.perf_counter()
    is_native = runs_here(target.record)
    if owned and is_native:
        program = follow_program(program, program.slot_of, watch.graph)
    native = load_program(program, graph, options, owned, compile_graph) if is_native else None
    report.seconds["loading"] = time.perf_counter() - started
    _LOAD.info("@%s: loaded in %.1f ms", graph.name, report.seconds["loading"] * 1e3)
    again = _compiles_again(graph, options, report)
    made = Executable(graph, native, report, lowered=watch.graph, program=program, again=again)
    made.target, made.foreign = target.record, None if is_native else snapshot_weights(program)
    return made


def _load_found(
    graph: Graph, options: Options, found: CachedProgram, started: float, owned: bool
) -> Executable:
    """An executable of code that needs no compiling."""
    report = read_report(found.note)
    report.cache = "hit"
    _refuse_if_strict(options, report)
    report.seconds["cache"] = time.perf_counter() - started
    started = time.perf_counter()
    code = found.code
    if owned:
        code = replace(code, weights=hold_all(code.weights))
    target = options.resolved_target.record
    is_native = runs_here(target)
    native = load_program(code, graph, options, owned, compile_graph) if is_native else None
    report.seconds["loading"] = time.perf_counter() - started
    _LOAD.info("@%s: loaded in %.1f ms", graph.name, report.seconds["loading"] * 1e3)
    recompile = _compiles_again(graph, options, report)
    made = Executable(graph, native, report, recompile=recompile)
    made.target, made.foreign = target, None if is_native else snapshot_weights(code)
    return made


def _compiles_again(
    graph: Graph, options: Options, report: CompileReport
) -> Callable[[], tuple[Graph, Program | None]]:
    """Compiles a graph as it was compiled before, for those who want to see how."""

    def recompile() -> tuple[Graph, Program | None]:
        watch = Watch(graph)
        same = replace(options, tuning=options.resolved_target.tuning(report.tuning))
        return watch.graph, build_program(graph, watch, same, CompileReport())

    return recompile


def build_program(
    model: Graph, watch: Watch, options: Options, report: CompileReport
) -> Program | None:
    """The road itself, on the watched copy of a model; None if only the interpreter can run it."""
    target, graph = options.resolved_target, watch.graph
    instruments = list_instruments()

    # Optimise: a graph with the same meaning and less to do.
    started = time.perf_counter()
    announce("passes")
    report.nodes_before = len(graph)
    report.passes = run_pipeline(graph, options.pipeline, instruments)
    report.nodes_after = len(graph)
    report.seconds["passes"] = time.perf_counter() - started
    report.specialised = only_interpretable(graph)
    if report.specialised is not None:
        watch.end()
        return None

    # Lower: to the ops that the target computes.
    started = time.perf_counter()
    announce("lowering")
    lowering = run_pipeline(graph, target.lowering(fusion=options.fusion), instruments)
    report.passes.steps += lowering.steps
    if target.can_measure and runs_here(target.record) and not options.listings:
        from monograph.tuning.gpu_contests import measure_target  # few targets have a choice

        target = measure_target(target, graph, options, report)
    target.join_for_libraries(graph)
    report.seconds["lowering"] = time.perf_counter() - started

    # Fuse: which nodes share a kernel.
    started = time.perf_counter()
    announce("fusion")
    groups = fuse_regions(graph, target.computes, target.fusion_limits, enabled=options.fusion)
    for each_graph, fused in groups.items():
        _FUSION.info("@%s: %d groups", each_graph.name, len(fused.groups))
        _FUSION.debug("%s", fused)
    for each in instruments:
        each.stage("groups", "txt", lambda: "\n".join(map(fusion_text, groups.values())))
    report.seconds["fusion"] = time.perf_counter() - started

    # Assemble and emit: how each group is computed, in which memory and steps; then its code.
    strides = usable_strides(graph, target, dict(options.strides))

    def make(tuning: Tuning | None) -> Program:
        asked = BuildOptions(
            strides,
            options.listings,
            options.winograd_tolerance,
            tuning,
            replaced=bool(options.variants),
        )
        with closing(target.assemble(graph, groups, asked)) as assembled:
            for each in instruments:
                each.stage("kernels", "txt", lambda: "\n".join(map(str, assembled.kernels)))
                each.stage("plans", "txt", lambda: _plans(assembled))
                each.stage("assembled", "txt", assembled.listing)
            if _ASSEMBLE.isEnabledFor(DEBUG):
                _ASSEMBLE.debug("%s", assembled.listing())
            program = target.emit(assembled)
            _ASSEMBLE.info("@%s: %d slots, for %s", graph.name, len(program.slots), target)
            _EMIT.info("@%s: %d kernels, %s", graph.name, len(program.kernels), _times(program))
            _EMIT.debug("%s", program.text)
        for each in instruments:
            each.stage("code", target.source_suffix, lambda: program.text)
        return replace(program, weights=unwatch_weights(program.weights, model, watch))

    recorder = target.recorder() if options.search_seconds else None
    program = make(recorder or options.tuning)
    watch.end()
    report.tuning = dict(options.tuning.edits) if options.tuning is not None else {}
    if recorder is not None:
        from monograph.tuning.programs import search_program  # few programs need it

        program = search_program(program, recorder, make, model, options, report)
    report.seconds |= program.seconds
    report.fallbacks = tuple(repr(node) for node in program.interpreted)
    report.kernels = notes_of(program.kernels)
    _refuse_if_strict(options, report)
    return program


def _plans(assembled: Assembled) -> str:
    return plan_text(assembled.planned, assembled.summaries)


def _times(program: Program) -> str:
    return ", ".join(f"{name} {spent * 1e3:.1f} ms" for name, spent in program.seconds.items())


def _refuse_if_strict(options: Options, report: CompileReport) -> None:
    if not options.strict or not report.fallbacks:
        return
    shown = "; ".join(report.fallbacks[:5])
    raise UnsupportedError(
        f"some of this model has no native code yet: {shown}",
        hint="strict=False runs these nodes in the interpreter",
    )
