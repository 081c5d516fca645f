"""From a graph to an executable: optimise, lower, build, load.

A graph that hangs on more than the types of its inputs is completed by the calls (``staged``). What
the processor's target cannot compute runs in the interpreter, node by node: the report names it,
and ``strict`` makes it an error.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING

from monograph.config import Config
from monograph.dataclass import dataclass
from monograph.errors import InputError, UnsupportedError
from monograph.ir.contents import contents_of, reread, snapshot
from monograph.ir.graph import Graph, Value
from monograph.ir.op import Op
from monograph.ir.specialize import SizeRange, specialize, specialize_sizes
from monograph.ir.types import TensorType
from monograph.kernel.lower import is_lowerable, is_scalar_function
from monograph.ops.attention import Attention
from monograph.passes.instruments import requested_instruments
from monograph.passes.lower_composites import decompose_composites
from monograph.passes.manager import Pipeline, flat_passes, run_pipeline
from monograph.passes.norms_by_channel import NormsByChannel
from monograph.passes.pipeline import pipeline_for
from monograph.passes.split_complex_products import SplitComplexProducts
from monograph.passes.turn_conv_transpose import TurnConvTranspose
from monograph.passes.turn_weights_back import TurnWeightsBack
from monograph.passes.visit_images import VisitImages
from monograph.progress import announce
from monograph.runtime.bundle import Json
from monograph.runtime.compiled import CompileReport, Executable, read_report, write_report
from monograph.runtime.executable import Native
from monograph.runtime.holding import Held, follow, hold, hold_all, own_weights, weights_of
from monograph.runtime.nonempty import Otherwise, assume_nonempty
from monograph.runtime.notes import notes_of
from monograph.runtime.program_cache import Found, Watch, program_cache, settled
from monograph.runtime.records import typed
from monograph.runtime.threads import check_threads
from monograph.runtime.unheld import only_interpretable
from monograph.runtime.variants import VariantLimit, Variants, share_panels
from monograph.switches import any_off
from monograph.targets.cpu.attention import decompose_others, is_streamed
from monograph.targets.cpu.build import Program, build
from monograph.targets.cpu.knobs import edited
from monograph.targets.cpu.machine import host, processor_count
from monograph.targets.cpu.tuning import Recorder, Tuning
from monograph.targets.program import Code, SlotKind

if TYPE_CHECKING:
    from monograph.runtime.staged import Stage

DEFAULT_SECONDS = 20.0
"""How long ``level="O3"`` searches unless it is told."""


@dataclass(frozen=True)
class Options:
    """How to compile."""

    level: str = "O2"
    threads: int | None = None
    strict: bool = False
    fusion: bool = True
    listings: bool = False
    cache: bool | None = None
    """Whether to use the disk cache; ``MONOGRAPH_CACHE`` decides if None."""
    strides: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """Inputs, by number, that are not row-major: how many elements apart neighbours are."""
    winograd_tolerance: float | None = None
    """The largest error, over the largest result, that a convolution may have to be faster
    (``kernel.winograd_transform``); None leaves it as exact as direct sums, 0 takes only those."""
    budget: float | None = None
    """Seconds to search for better schedules on this machine (``runtime.tuning``), unless the cache
    has the result of a search; None is ``DEFAULT_SECONDS`` at O3 and no search below."""
    tuning: Tuning | None = None
    """Choices of schedules that are overruled, instead of a search."""
    keep_weights: bool = False
    """Whether weights of which the program has packed copies are held all the same."""
    again: bool = False
    """Whether to compile, or search, although the cache has a result; it then has the new one."""
    passes: Pipeline | None = None
    """The passes to run on the graph, instead of those of the level."""
    sizes: Mapping[str, SizeRange] = field(default_factory=dict)
    """Symbolic dimensions, by name, that have one size, or sizes in a range (``ir.specialize``)."""
    variants: int | None = None
    """For how many of the sizes that come back to keep programs of their own
    (``runtime.variants``); ``MONOGRAPH_VARIANTS`` decides if None."""
    variant_limit: VariantLimit | None = None
    """What counts the variants of all parts of a program, for one that consists of several."""

    @property
    def pipeline(self) -> Pipeline:
        """The passes that run on the graph before it is lowered."""
        return pipeline_for(self.level) if self.passes is None else self.passes

    @property
    def may_cache(self) -> bool | None:
        """Whether the disk cache may be used: not for listings, which are not stored, nor with
        passes that are not this package's, of which nobody knows when they change.
        """
        listed = [] if self.passes is None else flat_passes(self.passes)
        foreign = any(not type(each).__module__.startswith("monograph.") for each in listed)
        return False if self.listings or foreign or any_off() else self.cache

    @property
    def settings(self) -> dict[str, Json]:
        """What decides how the parts of a program that is completed by its calls are compiled."""
        tolerance = self.winograd_tolerance
        return {
            "level": self.level,
            "strict": self.strict,
            "fusion": self.fusion,
            "winograd_tolerance": None if tolerance is None else float(tolerance),
        }

    @property
    def search_seconds(self) -> float:
        """How long to search."""
        if self.tuning is not None or self.listings:
            return 0.0
        if self.budget is None:
            return DEFAULT_SECONDS if self.level == "O3" else 0.0
        return self.budget

    def __post_init__(self) -> None:
        pipeline_for(self.level)  # an error if there is no such level
        check_threads(self.threads)
        if self.budget is not None and not _is_at_least_zero(self.budget):
            raise InputError(
                "budget is no time", expected="seconds, 0 or more", found=repr(self.budget)
            )
        tolerance = self.winograd_tolerance
        if tolerance is not None and not _is_at_least_zero(tolerance):
            raise InputError(
                "winograd_tolerance is no tolerance",
                expected="an error over the largest result, such as 1e-5, or None",
                found=repr(tolerance),
            )


def _is_at_least_zero(number: object) -> bool:
    return isinstance(number, int | float) and number >= 0


def read_settings(value: Json) -> Options:
    """Options of these settings, as they were stored."""
    given = typed(value, dict)
    tolerance = given.get("winograd_tolerance")
    return Options(
        typed(given.get("level"), str),
        strict=typed(given.get("strict"), bool),
        fusion=typed(given.get("fusion"), bool),
        winograd_tolerance=None if tolerance is None else typed(tolerance, float),
    )


def compile_graph(
    graph: Graph, options: Options | None = None, *, owned: bool = False
) -> Executable:
    """Compile a graph, which stays as it is; or find in the cache what was compiled before.

    The program has its own weights when this returns: those that the graph has now. A graph that is
    ``owned``, since it was made for this, gives them to the program, which lets go of them once
    they are packed (``runtime.holding``).
    """
    chosen = options or Options()
    if chosen.sizes:
        graph, chosen = specialize_sizes(graph, chosen.sizes), replace(chosen, sizes={})
    assumed = assume_nonempty(graph)
    if assumed is None:
        return _compile_graph(graph, chosen, owned)
    made = _compile_graph(assumed.graph, chosen, owned)
    snapshot(graph.walk())
    made.otherwise = Otherwise(assumed, lambda: _compile_graph(graph, chosen, owned=False))
    return made


def _compile_graph(graph: Graph, options: Options, owned: bool) -> Executable:
    """``compile_graph`` for all sizes that the graph's types allow."""
    started = time.perf_counter()
    chosen = _keeping_what_variants_need(graph, options, owned)
    if owned:
        hold(graph)
    model = graph if owned else reread(graph)
    settings = {
        "level": chosen.level,
        "fusion": str(chosen.fusion),
        "strides": str(chosen.strides),
        "winograd_tolerance": str(chosen.winograd_tolerance),
        "tuning": "searched" if chosen.search_seconds else _digest(chosen.tuning),
        "passes": "" if chosen.passes is None else str(list(map(str, chosen.passes))),
    }
    cache = program_cache(model, host(), settings, chosen.may_cache)
    found = None if cache is None or chosen.again else cache.find()
    if found is not None:
        return _cached(graph, chosen, found, started, owned)
    report = CompileReport(cache="off" if cache is None else "miss")
    watch = Watch(model)
    program = _compile(model, watch, chosen, report)
    if program is None:
        report.cache = "off"
        snapshot(watch.graph.walk())  # calls read weights when they complete the program
        stage = staged(watch.graph, chosen, report)
        return Executable(graph, None, report, lowered=watch.graph, stage=stage)
    if cache is not None:
        started = time.perf_counter()
        cache.keep(program, watch.read, write_report(report))
        report.seconds["storing"] = time.perf_counter() - started
    started = time.perf_counter()
    if owned:
        program = _owning(program, watch.graph)
    native = _native(program, graph, chosen, owned)
    report.seconds["loading"] = time.perf_counter() - started
    return Executable(graph, native, report, lowered=watch.graph, program=program)


def _native(code: Code, graph: Graph, options: Options, owned: bool) -> Native:
    """Code that is ready to be called, and reads nothing of the model any more."""
    if owned and options.keep_weights:
        for data in weights_of(graph):
            assert isinstance(data, Held)
            data.own()
        snapshot(graph.walk())  # the constants
    lets_go = owned and not options.keep_weights
    native = Native(own_weights(code), graph, options.threads, lets_go=lets_go)
    native.prepared()
    if options.variants and not native.static:
        snapshot(graph.walk())
        make = _specializer(native, graph, options)
        native.variants = Variants(options.variants, make, options.variant_limit)
    return native


def _keeping_what_variants_need(graph: Graph, options: Options, owned: bool) -> Options:
    """The options of a program that has variants, or may not: those are compiled when calls come.

    They read the weights once more, so these are held, and must be nobody else's to change.
    """
    most = 0 if options.listings else _most_variants(options)
    limit = options.variant_limit or VariantLimit(most)
    without = replace(options, variants=0, variant_limit=limit)
    if not most or not graph.symbols():
        return without
    held = (contents_of(node) for node in graph.walk())
    if not owned and not all(data is None or data.is_private for data in held):
        return without
    return replace(options, variants=most, variant_limit=limit, keep_weights=True)


def _most_variants(options: Options) -> int:
    if options.variants is None:
        return Config.from_environment().variants
    return options.variants


def _specializer(
    native: Native, graph: Graph, options: Options
) -> Callable[[tuple[int, ...]], Executable]:
    """Compiles the graph for some sizes; it holds the symbolic program no longer than others do."""
    held, symbols = weakref.ref(native), native.program.sizes
    fixed = replace(options, variants=0, variant_limit=None, budget=0.0, again=False)

    def specialized(sizes: tuple[int, ...]) -> Executable:
        same = specialize(graph, dict(zip(symbols, sizes, strict=True)))
        made = compile_graph(same, fixed)
        if made.native is None:
            raise UnsupportedError(made.report.specialised or "it has no native code")
        symbolic = held()
        if symbolic is not None:
            share_panels(made.native.prepared(), symbolic.prepared())
        return made

    return specialized


def staged(graph: Graph, options: Options, report: CompileReport) -> Stage:
    """What completes a graph that has no native code as it is, call by call."""
    from monograph.runtime.staged import Stage, Workshop  # few programs need it

    limit = options.variant_limit or VariantLimit(_most_variants(options))
    chosen = replace(options, strides=(), variants=limit.most, variant_limit=limit)

    def compile_part(part: Graph) -> Executable:
        snapshot(part.walk())  # constants that settling made, too: else it could have no variants
        return compile_graph(part, chosen)

    workshop = Workshop(compile_part, report, options.settings)
    stage = Stage(graph, workshop)
    stage.prepare()
    return stage


def _owning(program: Program, lowered: Graph) -> Program:
    """The program with weights that it can let go of, wherever they are referred to."""
    weights = hold_all(program.weights)
    slots = program.slots
    numbers = {
        value: slots[slot].number
        for value, slot in program.slot_of.items()
        if slots[slot].kind is SlotKind.WEIGHT
    }
    follow(lowered, numbers, weights)
    return replace(program, weights=weights)


def _cached(
    graph: Graph, options: Options, found: Found, started: float, owned: bool
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
    native = _native(code, graph, options, owned)
    report.seconds["loading"] = time.perf_counter() - started

    def recompile() -> tuple[Graph, Program | None]:
        watch = Watch(graph)
        same = replace(options, tuning=Tuning(report.tuning, edited))
        return watch.graph, _compile(graph, watch, same, CompileReport())

    return Executable(graph, native, report, recompile=recompile)


def _compile(graph: Graph, watch: Watch, options: Options, report: CompileReport) -> Program | None:
    """Optimise the watched copy and build a program; None if only the interpreter can run it."""
    started = time.perf_counter()
    lowered = watch.graph
    announce("passes")
    report.nodes_before = len(lowered)
    instruments = requested_instruments()
    report.passes = run_pipeline(lowered, options.pipeline, instruments)
    report.nodes_after = len(lowered)
    report.seconds["passes"] = time.perf_counter() - started
    report.specialised = only_interpretable(lowered)
    if report.specialised is not None:
        watch.end()
        return None
    started = time.perf_counter()
    announce("lowering")
    decompose_others(lowered)
    NormsByChannel().run(lowered)
    decompose_composites(lowered, lambda op: has_own_loops(op) or op is Attention)
    TurnWeightsBack().run(lowered)
    TurnConvTranspose().run(lowered)
    SplitComplexProducts().run(lowered)
    run_pipeline(lowered, pipeline_for("O1"), instruments)
    if options.fusion:
        VisitImages(near=host().l2, processors=processor_count()).run(lowered)
    report.seconds["lowering"] = time.perf_counter() - started
    strides = usable_strides(lowered, dict(options.strides))

    def make(tuning: Tuning | None) -> Program:
        made = build(
            lowered,
            host(),
            strides=strides,
            fusion=options.fusion,
            listings=options.listings,
            tolerance=options.winograd_tolerance,
            tuning=tuning,
        )
        return replace(made, weights=settled(made.weights, graph, watch))

    recorder = Recorder() if options.search_seconds else None
    program = make(recorder or options.tuning)
    watch.end()
    report.tuning = dict(options.tuning.edits) if options.tuning is not None else {}
    if recorder is not None:
        from monograph.runtime.tuned import tuned_program  # few programs need it

        program, report.search = tuned_program(
            program,
            tuple(recorder.sites.values()),
            make,
            graph,
            threads=options.threads,
            seconds=options.search_seconds,
            cache=options.cache,
        )
        report.tuning = report.search.edits if report.search.kept else {}
        report.seconds["tuning"] = report.search.seconds
    report.seconds |= program.seconds
    report.fallbacks = tuple(repr(node) for node in program.fallbacks)
    report.kernels = notes_of(program.kernels)
    _refuse_if_strict(options, report)
    return program


def _digest(tuning: Tuning | None) -> str:
    return "" if tuning is None else tuning.digest


def usable_strides(
    graph: Graph, strides: Mapping[int, tuple[int, ...]]
) -> dict[Value, tuple[int, ...]]:
    """The strided inputs that only kernels read; one that is copied or interpreted is not.

    Nor is one whose strides would be others for other sizes of its symbolic dimensions.
    """
    usable = {}
    for number, each in strides.items():
        value = graph.inputs[number]
        readers = [use.node for use in value.uses]
        in_kernels = all(is_lowerable(node) or is_streamed(node) for node in readers)
        if in_kernels and value not in graph.outputs and _holds(value.tensor, each):
            usable[value] = each
    return usable


def _holds(type_: TensorType, strides: tuple[int, ...]) -> bool:
    """Whether elements have places of their own whatever the symbolic sizes are."""
    pairs = list(zip(type_.shape, strides, strict=True))
    symbolic = [stride for dim, stride in pairs if not isinstance(dim, int)]
    inside = sum((dim - 1) * stride for dim, stride in pairs if isinstance(dim, int))
    return len(symbolic) == 0 or (len(symbolic) == 1 and symbolic[0] > inside)


def has_own_loops(op: type[Op]) -> bool:
    """Whether a composite says how its elements are computed, and so needs no decomposition."""
    has_loops = op.lower_loops is not Op.lower_loops
    return op.has_lowering() or has_loops or is_scalar_function(op)


def _refuse_if_strict(options: Options, report: CompileReport) -> None:
    if not options.strict or not report.fallbacks:
        return
    shown = "; ".join(report.fallbacks[:5])
    raise UnsupportedError(
        f"some of this model has no native code yet: {shown}",
        hint="strict=False runs these nodes in the interpreter",
    )
