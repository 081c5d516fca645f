"""Loading a program together with what specializes it: variants for sizes, stages for contents.

Both compile more while the program is in use, so both are given the compiler itself.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from monograph.config import Config
from monograph.errors import UnsupportedError
from monograph.ir.contents import contents_of, snapshot
from monograph.ir.graph import Graph
from monograph.ir.specialize import specialize
from monograph.program.code import Code
from monograph.runtime.compile_report import CompileReport
from monograph.runtime.compiled import Executable
from monograph.runtime.device import LoadedProgram, Loading, device_for
from monograph.runtime.options import Options
from monograph.runtime.weight_ownership import Held, weights_of
from monograph.specialize.variants import VariantLimit, Variants, equal_panels

if TYPE_CHECKING:
    from monograph.specialize.staged import Stage

Compile: TypeAlias = Callable[[Graph, Options], Executable]
"""``compiler.compile_graph``."""


def load_program(
    code: Code, graph: Graph, options: Options, owned: bool, compile_graph: Compile
) -> LoadedProgram:
    """Code that is ready to be called, and reads nothing of the model any more."""
    if owned and options.keep_weights:
        for data in weights_of(graph):
            assert isinstance(data, Held)
            data.own()
        snapshot(graph.walk())  # the constants
    lets_go = owned and not options.keep_weights
    device = device_for(options.resolved_target.name)
    native = device.load(code, graph, Loading(options.threads, snapshot=True, lets_go=lets_go))
    native.prepared()
    if options.variants and native.takes_variants and not native.static:
        snapshot(graph.walk())
        make = _specializer(native, graph, options, compile_graph)
        limit = options.variant_limit
        assert limit is None or isinstance(limit, VariantLimit), "made here, for all parts"
        native.variants = Variants(options.variants, make, limit)
        _unload_weights(graph)
    return native


def _unload_weights(graph: Graph) -> None:
    """Let what is packed be in memory once: variants read it again where it came from."""
    for data in weights_of(graph):
        data.unload()


def keep_what_variants_need(graph: Graph, options: Options, owned: bool) -> Options:
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
    native: LoadedProgram, graph: Graph, options: Options, compile_graph: Compile
) -> Callable[[tuple[int | None, ...]], Executable]:
    """Compiles the graph for some sizes, None where they stay free.

    It holds the symbolic program no longer than others do.
    """
    held, symbols = weakref.ref(native), native.program.sizes
    fixed = replace(options, variants=0, variant_limit=None, budget=0.0, again=False)

    def specialized(sizes: tuple[int | None, ...]) -> Executable:
        pairs = list(zip(symbols, sizes, strict=True))
        same = specialize(graph, {symbol: size for symbol, size in pairs if size is not None})
        made = compile_graph(same, fixed)
        if made.native is None:
            raise UnsupportedError(made.report.specialised or "it has no native code")
        free = tuple(symbol for symbol, size in pairs if size is None)
        if tuple(made.native.program.sizes) != free:
            raise UnsupportedError("it is to be told other sizes than those that are free")
        symbolic = held()
        if symbolic is not None and symbolic.variants is not None:
            programs = [symbolic, *symbolic.variants.programs()]
            others = [each.prepared() for each in programs]
            made.native.share_prepared(equal_panels(made.native.prepared(), others))
        _unload_weights(graph)
        return made

    return specialized


def stage_of(
    graph: Graph, options: Options, report: CompileReport, compile_graph: Compile
) -> Stage:
    """What completes a graph that has no native code as it is, call by call."""
    from monograph.specialize.staged import Stage, Workshop  # few programs need it

    limit = options.variant_limit or VariantLimit(_most_variants(options))
    chosen = replace(options, strides=(), variants=limit.most, variant_limit=limit)

    def compile_part(part: Graph) -> Executable:
        snapshot(part.walk())  # constants that settling made, too: else it could have no variants
        return compile_graph(part, chosen)

    workshop = Workshop(compile_part, report, options.settings)
    stage = Stage(graph, workshop)
    stage.prepare()
    return stage
