"""``docs/onnx-operators.md``: which ops of ``com.microsoft`` run, found out by running them.

    python -m tests.frontends.onnx.operator_table

writes the table for the ONNX Runtime that is installed.
"""

from __future__ import annotations

from pathlib import Path

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as bindings

import monograph
from monograph.frontends.onnx import from_onnx
from monograph.frontends.onnx.registry import converters
from monograph.frontends.onnx.support import REFUSED
from tests.frontends.onnx.contrib_samples import SAMPLES, Sample
from tests.frontends.onnx.ort import one_node

DOMAIN = "com.microsoft"
PAGE = Path(__file__).resolve().parents[3] / "docs" / "onnx-operators.md"
NATIVE, STAGED, INTERPRETED, REFUSES = "native", "native around it", "interpreted", "refused"

_OPENING = """\
# The operators of ONNX

The operators that ONNX itself defines are read, of every opset up to 28; only those that deal in
maps (`CastMap`, `DictVectorizer` and `ZipMap` of `ai.onnx.ml`) are not. Models that went through
ONNX Runtime's quantizers and optimizers also hold operators of its own, in the domain
`com.microsoft`. This page lists those that ONNX Runtime {version} has for a CPU, {count} of them,
and what becomes of each here. `python -m tests.frontends.onnx.operator_table` writes it, by running
them.

- **native**: compiled, with nothing left to the interpreter;
- **native around it**: the size of its result depends on its operands' contents, so that it runs in
  the interpreter and the program around it is compiled;
- **interpreted**: it deals in strings, which only the interpreter has;
- **refused**: `monograph check` and `from_onnx` name it, and say why.

Which attributes and optional operands an operator takes is what its tests hold against ONNX Runtime
(`tests/frontends/onnx/test_contrib*.py`); what is not supported of one is an error that says so.
The operators of `com.microsoft.nchwc` are made for one kind of processor and refused: save models
with at most `ORT_ENABLE_EXTENDED`.

| operator | state | |
|---|---|---|
"""

_OTHERS = """
## Without a kernel for CPUs

ONNX Runtime has these for GPUs alone, and its optimizer makes them on the way there. They are read
too, and held against models of ordinary operators:

"""


def cpu_ops() -> list[str]:
    """The ops of ``com.microsoft`` that the installed ONNX Runtime runs on a CPU."""
    kernels = bindings.get_all_opkernel_def()
    found = {
        kernel.op_name
        for kernel in kernels
        if kernel.domain == DOMAIN and kernel.provider == "CPUExecutionProvider"
    }
    return sorted(found)


def is_read(op: str) -> bool:
    """Whether there is a converter."""
    return (DOMAIN, op) in converters()


def state(sample: Sample, op: str) -> str:
    """How the program of one node runs."""
    model, feeds = one_node(
        op, sample.operands, sample.outputs, domain=DOMAIN, constant=sample.constant,
        **sample.attributes,
    )  # fmt: skip
    graph = from_onnx(model)
    compiled = monograph.compile(graph)
    compiled(*(feeds[value.name] for value in graph.inputs))
    if compiled.report.fallbacks:
        return INTERPRETED
    return STAGED if compiled.report.specialised is not None else NATIVE


def table() -> str:
    """The whole page."""
    ops = cpu_ops()
    lines = [
        f"| {op} | {state(SAMPLES[op], op)} | |"
        if is_read(op)
        else f"| {op} | {REFUSES} | {REFUSED.get((DOMAIN, op), 'no converter is written for it')} |"
        for op in ops
    ]
    others = sorted(op for domain, op in converters() if domain == DOMAIN and op not in ops)
    opening = _OPENING.format(version=onnxruntime.__version__, count=len(ops))
    return opening + "\n".join(lines) + "\n" + _OTHERS + ", ".join(others) + ".\n"


if __name__ == "__main__":
    PAGE.write_text(table())
