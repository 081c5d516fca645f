"""Loading ``.mono`` files: code and weights, mapped into memory, ready to call.

Nothing of the compiler is needed for it, nor what the model was written with: not torch, not onnx.
Only a program that calls complete (``specialize.staged``) is saved as its graph, and compiled here.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from monograph.ir.data import ArrayData
from monograph.ir.graph import Graph
from monograph.ir.types import Array
from monograph.program.records import require_type, unreadable
from monograph.runtime.artifact import read_artifact, target_of
from monograph.runtime.bundle import Bundle, Json
from monograph.runtime.compile_report import CompileReport, read_report
from monograph.runtime.compiled import CompiledFunction, CompiledModel, Executable
from monograph.runtime.convention import Convention, LoadedModule, read_convention
from monograph.runtime.device import Loading, device_for
from monograph.runtime.storage import (
    read_code,
    read_graph,
    read_guards,
    read_outputs,
    read_prepared,
    read_signature,
    read_structure,
)
from monograph.runtime.thread_count import check_threads

if TYPE_CHECKING:
    from monograph.specialize.staged import Stage


def load(
    path: str | os.PathLike[str], *, threads: int | None = None, verify: bool = True
) -> CompiledModel:
    """What ``save`` wrote to ``path``, to be called as before; an error if it cannot run here.

    A traced function or a torch module loads as one, with its nesting of arguments and results; a
    graph or an ONNX model as an ``Executable``. All take and return arrays, or torch tensors if
    they are given some. ``verify=False`` spares reading large weights to check them. A StableHLO
    module (``.mlir``, text or bytecode) is compiled.
    """
    check_threads(threads)
    if str(path).endswith(".mlir"):
        return _load_stablehlo(path, threads)
    bundle = read_artifact(path, verify=verify)
    executable = _executable(bundle, threads)
    call = require_type(bundle.manifest.get("call"), dict)
    kind = call.get("kind")
    if kind == "graph":
        return executable
    if kind == "module":
        count = len(executable.outputs)
        convention = read_convention(call, len(executable.graph.inputs), count)
        state = _state(bundle, executable.graph, convention, count)
        return LoadedModule(executable, convention, state)
    if kind != "function":
        raise unreadable(f"it is called in an unknown way, {kind!r}")
    arguments = read_structure(call.get("arguments"))
    return CompiledFunction(executable, arguments, read_structure(call.get("results")))


def _load_stablehlo(path: str | os.PathLike[str], threads: int | None) -> CompiledModel:
    """A module, which jaxlib reads, compiled as it stands."""
    from monograph.bindings.models import compile_model
    from monograph.runtime.options import Options

    return compile_model(os.fspath(path), options=Options(threads=threads))


def _state(bundle: Bundle, graph: Graph, convention: Convention, outputs: int) -> dict[str, Array]:
    """The buffers that calls change, in memory that can be written to."""
    stored = require_type(bundle.manifest.get("state"), dict)
    for output, position in graph.updates.items():
        is_input = 0 <= position < len(graph.inputs) and convention.inputs[position] is not None
        if not is_input or not 0 <= output < outputs:
            raise unreadable("it updates an input that there is not, or with no output")
    found = {}
    for value, name in zip(graph.inputs, convention.inputs, strict=True):
        if not isinstance(name, str):
            continue
        array = bundle.arrays.get(require_type(stored.get(name), str))
        if array is None or ArrayData(array).type != value.type:
            raise unreadable(f"the state {name} is missing, or not what the program keeps")
        found[name] = array.copy()
    return found


def _stage(
    graph: Graph, report: CompileReport, settings: Json, threads: int | None
) -> Stage | None:
    """What completes a program call by call, which takes the compiler; None if none is needed."""
    if report.specialised is None:
        return None
    from monograph.compiler import compile_graph  # few files need it
    from monograph.runtime.options import read_settings, resolve_options
    from monograph.specialize.loading import stage_of

    options = replace(resolve_options(read_settings(settings)), threads=threads)
    return stage_of(graph, options, report, compile_graph)


def _executable(bundle: Bundle, threads: int | None) -> Executable:
    record = target_of(bundle.manifest)
    device = device_for(record.name)
    device.check(record)
    report = read_report(bundle.manifest.get("report"))
    if not require_type(bundle.manifest.get("native"), bool):
        graph = read_graph(bundle)
        stage = _stage(graph, report, bundle.manifest.get("settings"), threads)
        return Executable(graph, None, report, lowered=graph, stage=stage)
    signature = read_signature(bundle.manifest.get("signature"))
    outputs = read_outputs(bundle.manifest.get("signature"))
    code = read_code(bundle)
    loading = Loading(threads, read_guards(bundle), read_prepared(bundle, code))
    native = device.load(code, signature, loading)
    if bundle.manifest.get("variants") and native.takes_variants:
        from monograph.specialize.stored_variants import read_variants  # few files have any

        native.variants = read_variants(
            bundle, signature, code.sizes, device.load, threads, outputs
        )
    made = Executable(signature, native, report, outputs=outputs)
    made.target = record
    return made
