"""The contenders of shipped models: Monograph in two forms, ONNX Runtime, OpenVINO.

All are given the same file and the same arrays, are called as their users call them (arrays in,
arrays out, no memory bound ahead), and get as many threads.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contender import Unsupported
from benchmarks.shipped.model import Array, Feed

WARM_CALLS = 2
"""Calls before those that are measured; the second has a program compiled for its sizes."""
PATIENCE = 600.0
"""Seconds that programs which are compiled in the background may take."""

Call = Callable[[Feed], list[Array]]


@dataclass(frozen=True)
class Ready:
    """A model that can be called: how long it took until then, and what is to be said of it."""

    call: Call
    seconds: float
    remark: str | None = None


def open_shipped(path: Path, feed: Feed, threads: int) -> Ready:
    """Monograph, on the file as it is: sizes stay free."""
    return _monograph(path, threads, None)


def open_fixed(path: Path, feed: Feed, threads: int) -> Ready:
    """Monograph, with the sizes of the call fixed when it is compiled."""
    return _monograph(path, threads, sizes_of(path, feed))


def sizes_of(path: Path, feed: Feed) -> dict[str, int]:
    """The free sizes of a file's inputs, by name, as a call binds them."""
    from monograph.frontends.onnx import from_onnx
    from monograph.ir.interpret import bind_inputs

    _, bindings = bind_inputs(from_onnx(path), dict(feed))
    return {symbol.name: size for symbol, size in bindings.items()}


def _monograph(path: Path, threads: int, sizes: dict[str, int] | None) -> Ready:
    import monograph

    start = time.perf_counter()
    compiled: Any = monograph.compile(path, threads=threads, sizes=sizes, cache=False)
    seconds = time.perf_counter() - start
    names = [value.name for value in compiled.graph.inputs]
    return Ready(lambda feed: compiled(*[feed[name] for name in names]), seconds, _remark(compiled))


def _remark(compiled: Any) -> str | None:
    report = compiled.report
    if report.specialised:
        return f"completed by calls: {report.specialised}"
    return f"{len(report.fallbacks)} nodes in the interpreter" if report.fallbacks else None


def wait_for_variants() -> None:
    """Wait until nothing is compiled in the background any more: one thread does all of it."""
    from monograph.specialize.variants import Variants

    if not Variants(0, _compile_nothing).wait(PATIENCE):
        raise TimeoutError(f"programs were still being compiled after {PATIENCE:.0f} s")


def _compile_nothing(sizes: tuple[int, ...]) -> Any:
    raise AssertionError("no program was asked for")


def open_onnxruntime(path: Path, feed: Feed, threads: int) -> Ready:
    """ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    start = time.perf_counter()
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    seconds = time.perf_counter() - start
    return Ready(lambda feed: session.run(None, feed), seconds)


def open_openvino(path: Path, feed: Feed, threads: int) -> Ready:
    """OpenVINO."""
    if importlib.util.find_spec("openvino") is None:
        raise Unsupported("openvino is not installed (make bench-setup)")
    import openvino

    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    start = time.perf_counter()
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(path), "CPU", settings)
    seconds = time.perf_counter() - start
    request, count = compiled.create_infer_request(), len(compiled.outputs)
    names = [each.get_any_name() for each in compiled.inputs]

    def call(feed: Feed) -> list[Array]:
        request.infer([feed[name] for name in names], share_inputs=True)
        return [np.array(request.get_output_tensor(k).data) for k in range(count)]

    return Ready(call, seconds)


CONTENDERS: dict[str, Callable[[Path, Feed, int], Ready]] = {
    "shipped": open_shipped,
    "fixed": open_fixed,
    "onnxruntime": open_onnxruntime,
    "openvino": open_openvino,
}
PEERS = ("onnxruntime", "openvino")
