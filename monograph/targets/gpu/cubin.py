"""Triton source to machine code for a chip, which need not be in this machine.

    source ─▶ Triton ─▶ cubin, and what a launch needs to know of it: threads, shared memory

Triton reads a function's source from a file, so that each module is written to a folder first; a
person finds it there, with ``MONOGRAPH_DUMP`` or as ``Program.text``. Pointers are known to be
multiples of 16 bytes: all memory that the runtime hands over is.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from threading import Lock
from typing import Any

from monograph.cpu_quota import cpu_quota
from monograph.errors import UnsupportedError
from monograph.ir.types import DType, Kind
from monograph.targets.gpu.chip import Chip
from monograph.targets.gpu.expressions import index_type
from monograph.targets.gpu.modules import MachineCode
from monograph.targets.gpu.overlap import begins_early
from monograph.targets.gpu.source import TritonKernel

ALIGNMENT = 16
"""Bytes that every buffer's address is a multiple of: the widest load."""
_READING = Lock()
_FLOATS = {"f64": "fp64", "f32": "fp32", "f16": "fp16", "bf16": "bf16"}


def compile_kernels(kernels: Sequence[TritonKernel], chip: Chip) -> list[MachineCode]:
    """Machine code for each kernel, several at a time."""
    check_triton()
    with tempfile.TemporaryDirectory(prefix="monograph-") as folder:
        functions = [
            import_kernel(kernel, Path(folder) / f"m{k}") for k, kernel in enumerate(kernels)
        ]
        with ThreadPoolExecutor(cpu_quota() or os.cpu_count()) as threads:
            return list(threads.map(partial(_compile, chip), kernels, functions))


def import_kernel(kernel: TritonKernel, folder: Path) -> Any:
    """The kernel as a Triton function; Triton reads its source from the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{kernel.name}.py"
    path.write_text(kernel.source)
    spec = importlib.util.spec_from_file_location(kernel.name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, kernel.name)


def signature_of(kernel: TritonKernel) -> dict[str, str]:
    """The types of a kernel's parameters as Triton spells them."""
    sizes = "i32" if index_type(kernel.kernel) == "tl.int32" else "i64"
    kinds = [f"*{_element(buffer.dtype)}" for buffer in kernel.kernel.buffers]
    kinds += ["*i32"] if kernel.checks else []
    kinds += [sizes] * len(kernel.sizes)
    signature = dict(zip(kernel.parameters, kinds, strict=True))
    return signature | dict.fromkeys(kernel.blocks, "constexpr")


def _element(dtype: DType) -> str:
    """An element in memory: bools are bytes, and what Triton has no name for, bytes of its code."""
    if dtype.name in _FLOATS:
        return _FLOATS[dtype.name]
    if dtype.is_integer and dtype.bits >= 8:
        return f"{'i' if dtype.kind is Kind.SIGNED else 'u'}{dtype.bits}"
    return "i8" if dtype.kind is Kind.BOOL else "u8"


@cache
def _source_class() -> Any:
    """Triton's source of a kernel, read by one thread at a time.

    Reading it is Python, which threads do not speed up, and ``ast.parse`` of CPython 3.11 and
    early 3.12 counts depth for all threads together: two at once fail with a SystemError.
    """
    from triton.compiler import ASTSource

    class Source(ASTSource):  # type: ignore[misc]  # triton ships no type information
        def hash(self) -> Any:
            with _READING:
                return super().hash()

        def make_ir(self, *arguments: Any, **options: Any) -> Any:
            with _READING:
                return super().make_ir(*arguments, **options)

    return Source


def _compile(chip: Chip, kernel: TritonKernel, function: Any) -> MachineCode:
    import triton
    from triton.backends.compiler import GPUTarget

    signature = signature_of(kernel)
    aligned = [["tt.divisibility", ALIGNMENT]]
    attributes = {
        (k,): aligned for k, kind in enumerate(signature.values()) if kind.startswith("*")
    }
    source = _source_class()(
        fn=function, signature=signature, constexprs=dict(kernel.blocks), attrs=attributes
    )
    try:
        compiled = triton.compile(
            source,
            target=GPUTarget(chip.backend, chip.architecture, chip.warp),
            options={
                "num_warps": kernel.warps,
                "num_stages": kernel.stages,
                "enable_fp_fusion": True,  # the default before Triton 3.10, where it is not
            },
        )
    except Exception as problem:
        raise UnsupportedError(
            f"Triton cannot compile the kernel {kernel.name} for {chip.name}: "
            f"{type(problem).__name__}: {str(problem)[:400]}",
            hint="MONOGRAPH_DUMP=folder writes its source; please report it",
        ) from problem
    found = compiled.metadata
    threads = found.num_warps * chip.warp
    # Triton 3.6 and 3.7 make no tensor descriptors for AMD's chips, and name no memory for them.
    scratch = getattr(found, "global_scratch_size", 0)
    return MachineCode(
        compiled.asm[chip.code_suffix],
        found.name,
        threads,
        found.shared,
        parameter_kinds(kernel),
        scratch,
        begins_early(kernel),
    )


def parameter_kinds(kernel: TritonKernel) -> tuple[str, ...]:
    """What a kernel is given, in order, as ``MachineCode`` says it."""
    sizes = signature_of(kernel).get(kernel.parameters[-1], "") if kernel.sizes else ""
    buffers = ["buffer"] * len(kernel.kernel.buffers)
    return (*buffers, *(["error"] if kernel.checks else []), *([sizes] * len(kernel.sizes)))


@cache
def check_triton() -> None:
    """Refuse to go on without a Triton that compiles."""
    if importlib.util.find_spec("triton") is None:
        raise UnsupportedError(
            "compiling for a GPU needs triton", hint="pip install 'monograph[gpu]'"
        )
    from triton import knobs

    if knobs.runtime.interpret:
        raise UnsupportedError(
            "Triton was started as an interpreter, which compiles nothing",
            hint="unset TRITON_INTERPRET, or compile in another process",
        )
