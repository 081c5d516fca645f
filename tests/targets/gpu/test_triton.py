"""Kernels as Triton source: run in Triton's interpreter, and compiled for absent chips."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from monograph.errors import UnsupportedError
from tests.targets.gpu.kernels import PROGRAMS, load, lowered, sources

pytest.importorskip("triton")
pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[3]


def test_every_program_agrees_with_the_interpreter() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.targets.gpu.kernels"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout.strip() == "all agree"


def test_softmax_reads_like_a_row_at_a_time() -> None:
    ((kernel, _, _),) = sources(lowered("softmax"))
    body = kernel.source.split("BLOCK: tl.constexpr):\n")[1]
    assert textwrap.dedent(body) == textwrap.dedent(
        """\
        row = tl.program_id(0)
        i0 = row
        column = tl.arange(0, BLOCK)
        inside = column < 100
        i1 = column
        t0 = tl.load(b0 + (100 * i0 + i1), mask=inside, other=0)
        t1 = tl.max(tl.where(inside, t0, float('-inf')), axis=0)
        t2 = t0 - t1
        t3 = tl.exp(t2)
        t4 = tl.sum(tl.where(inside, t3, 0), axis=0)
        t5 = t3 / t4
        tl.store(o0 + (100 * i0 + i1), t5, mask=inside)
        """
    )


def test_rows_too_long_for_a_block_are_refused() -> None:
    from monograph import functional as F

    PROGRAMS["long"] = (lambda x: F.sum(x, axis=1), ("f32[4, 100000]",))
    try:
        with pytest.raises(UnsupportedError, match="too long"):
            sources(lowered("long"))
    finally:
        del PROGRAMS["long"]


@pytest.mark.parametrize(("backend", "arch", "warp"), [("cuda", 90, 32), ("hip", "gfx942", 64)])
def test_kernels_compile_for_a_gpu_that_is_not_here(
    backend: str, arch: int | str, warp: int, tmp_path: Path
) -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    for name in ("chain", "softmax"):
        ((kernel, inputs, outputs),) = sources(lowered(name))
        function = load(kernel, tmp_path)
        pointers = {f"b{k}": "*fp32" for k in range(len(inputs))}
        pointers |= {f"o{k}": "*fp32" for k in range(len(outputs))}
        source = ASTSource(
            fn=function, signature={**pointers, "BLOCK": "constexpr"}, constexprs={"BLOCK": 128}
        )
        compiled = triton.compile(source, target=GPUTarget(backend, arch, warp))
        assert compiled.asm["cubin" if backend == "cuda" else "hsaco"]
