"""Runtimes and compilers of others that read a file of the graph: ONNX, or StableHLO.

Each is given as many threads as we use, where it has a setting for them, and memory that it need
not copy where its interface allows. Weights are arguments of a StableHLO module that lie on the
device before the first call: as constants they would go through text.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias, cast

import numpy as np

from monograph.errors import InputError
from monograph.ir.data import Data
from monograph.ir.graph import Graph
from monograph.ir.specialize import specialize_sizes
from monograph.ir.types import Array, symbols_of

Call: TypeAlias = Callable[[], list[Array]]
Runtime: TypeAlias = Callable[[Graph, Path | None, Sequence[Array], int], Call]
"""Makes a call of a graph (or of the file that it was read from), its inputs and threads."""


def onnxruntime(graph: Graph, source: Path | None, inputs: Sequence[Array], threads: int) -> Call:
    """A session of ONNX Runtime, all optimisations on."""
    need("onnxruntime", "pip install onnxruntime")
    import onnxruntime  # type: ignore[import-untyped]  # has no stubs

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    model = _export(graph) if source is None else str(source)
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    feed = dict(zip(names, inputs, strict=True))

    def call() -> list[Array]:
        results: list[Array] = session.run(None, feed)
        return results

    return call


def openvino(graph: Graph, source: Path | None, inputs: Sequence[Array], threads: int) -> Call:
    """A request of OpenVINO, for latency, in the precision that the model has."""
    need("openvino", "pip install openvino")
    import openvino as ov  # type: ignore[import-not-found]  # not among our dependencies

    core = ov.Core()
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    model = core.read_model(_export(graph) if source is None else str(source))
    compiled = core.compile_model(model, "CPU", settings)
    request = compiled.create_infer_request()
    for number, array in enumerate(inputs):
        tensor = ov.Tensor(np.ascontiguousarray(array), shared_memory=True)
        request.set_input_tensor(number, tensor)

    def call() -> list[Array]:
        request.infer()
        return [request.get_output_tensor(k).data.copy() for k in range(len(compiled.outputs))]

    return call


def xla(graph: Graph, source: Path | None, inputs: Sequence[Array], threads: int) -> Call:
    """XLA's program of the graph, through jaxlib."""
    need("jax", "pip install jax")
    import jax
    from jax._src.lib import xla_client

    text, weights = _stablehlo(graph, inputs)
    device = jax.devices("cpu")[0]
    with jax.enable_x64(True):
        program = device.client.compile_and_load(
            text, xla_client.DeviceList((device,)), xla_client.CompileOptions()
        )
        given = [
            jax.device_put(np.ascontiguousarray(each).reshape(np.shape(each)), device)
            for each in (*inputs, *weights)
        ]

    def call() -> list[Array]:
        results = program.execute_sharded(given).disassemble_into_single_device_arrays()
        return [np.asarray(each[0]) for each in results]

    return call


def iree(graph: Graph, source: Path | None, inputs: Sequence[Array], threads: int) -> Call:
    """IREE's module of the graph, for this processor."""
    need("iree.compiler", "pip install iree-base-compiler iree-base-runtime")
    import iree.compiler as compiler  # type: ignore[import-not-found]  # not among our dependencies
    import iree.runtime as runtime  # type: ignore[import-not-found]

    text, weights = _stablehlo(graph, inputs)
    program = compiler.compile_str(
        text,
        input_type="stablehlo",
        target_backends=["llvm-cpu"],
        extra_args=["--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3"],
    )
    runtime.flags.parse_flags(f"--task_topology_group_count={threads}")
    config = runtime.Config("local-task")
    context = runtime.SystemContext(config=config)
    module = runtime.VmModule.copy_buffer(context.instance, program)
    context.add_vm_module(module)
    main = context.modules[module.name]["main"]
    given = [runtime.asdevicearray(config.device, each) for each in (*inputs, *weights)]

    def call() -> list[Array]:
        results = main(*given)
        several = results if isinstance(results, tuple | list) else (results,)
        return [np.asarray(each.to_host()) for each in several]

    return call


RUNTIMES: Mapping[str, Runtime] = {
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "xla": xla,
    "iree": iree,
}


def need(package: str, hint: str) -> None:
    """Say what is not installed."""
    found = None
    with contextlib.suppress(ModuleNotFoundError):  # of the package that it is in
        found = importlib.util.find_spec(package)
    if found is None:
        raise InputError(f"{package} is not installed", hint=hint)


def _export(graph: Graph) -> bytes:
    need("onnx", "pip install 'monograph[onnx]'")
    from monograph.exporters.onnx import to_onnx

    data: bytes = to_onnx(graph).SerializeToString()
    return data


def _stablehlo(graph: Graph, inputs: Sequence[Array]) -> tuple[str, list[Array]]:
    """The graph for these inputs' sizes, and the weights that follow the inputs."""
    from monograph.exporters.stablehlo import to_stablehlo
    from monograph.ir.interpret import bind_inputs

    if any(symbols_of(value.type) for value in graph.inputs):
        _, bindings = bind_inputs(graph, inputs)
        graph = specialize_sizes(graph, {symbol.name: size for symbol, size in bindings.items()})
    given = graph.clone()
    weights: list[Array] = []
    for node in [node for node in given.nodes if node.op.name == "weight"]:
        weights.append(cast(Data, node.op.attributes()["data"]).array())
        argument = given.add_input(f"weight{len(weights)}", node.result.type)
        given.replace_all_uses(node.result, argument)
        given.erase(node)
    return to_stablehlo(given), weights
