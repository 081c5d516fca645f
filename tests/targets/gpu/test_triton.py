"""Kernels as Triton source: run in Triton's interpreter, and compiled for absent chips."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from monograph.fusion.fuse import fuse
from monograph.kernel.lower import is_lowerable
from monograph.targets.gpu import products
from monograph.targets.gpu.chip import CHIPS
from monograph.targets.gpu.cubin import compile_kernels
from monograph.targets.gpu.source import TritonKernel
from tests.targets.gpu.kernels import ALL_CANDIDATES, PROGRAMS, lowered, sources
from tests.targets.gpu.running import load, sequence_of

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


def _interpret(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with Triton's interpreter, which is chosen when Triton is imported."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT, env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


def test_a_slice_of_the_op_samples_agrees_with_the_interpreter() -> None:
    done = _interpret("-m", "tests.targets.gpu.samples", "--blocks", "--every", "29")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert ", 0 wrong" in done.stdout


def test_results_that_a_library_lays_out_otherwise_are_given_in_rows() -> None:
    names = ("heads", "as many heads as tokens", "channels last")
    done = _interpret("-m", "tests.targets.gpu.simulated", *names)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.startswith("all agree")


@pytest.mark.slow
def test_whole_programs_run_on_a_simulated_gpu() -> None:
    done = _interpret("-m", "tests.targets.gpu.simulated")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.startswith("all agree")


def test_softmax_reads_like_a_row_at_a_time() -> None:
    ((kernel, _, _),) = sources(lowered("softmax"))
    assert kernel.family == "rows" and kernel.blocks == {"XBLOCK": 1, "RBLOCK": 128}
    body = kernel.source.split("tl.constexpr):\n")[1]
    assert textwrap.dedent(body) == textwrap.dedent(
        """\
        # %max = max(%x)
        # %subtract = subtract(%x, %max)
        # %exp = exp(%subtract)
        # %sum = sum(%exp)
        # %softmax = divide(%exp, %sum)
        row = tl.program_id(0).to(tl.int32) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
        i0 = row
        column = tl.arange(0, RBLOCK)[None, :]
        column_inside = column < 100
        c0_0 = column
        t0 = tl.load(b0 + (c0_0 + 100 * i0), mask=column_inside, other=0)
        block1 = tl.where(column_inside, t0, float('-inf'))
        t2 = tl.reduce(block1, 1, nan_maximum, keep_dims=True)
        t3 = (t0 - t2)
        t4 = exp_f32(t3)
        block5 = tl.where(column_inside, t4, 0)
        t6 = tl.sum(block5, axis=1, keep_dims=True)
        t7 = tl.div_rn(t4, t6)
        tl.store(o0 + (c0_0 + 100 * i0), t7, mask=column_inside)
        """
    )


def test_long_rows_are_read_in_a_loop() -> None:
    ((kernel, _, _),) = sources(lowered("long_rows"))
    assert kernel.source.count("for start in range(0, 9001, RBLOCK):") == 3


def test_a_transpose_is_a_tile_of_both_axes() -> None:
    ((kernel, _, _),) = sources(lowered("transpose"))
    assert kernel.family == "transpose" and "row" in kernel.source


def test_what_is_fused_around_a_product_is_in_its_kernel() -> None:
    ((kernel, _, _),) = sources(lowered("matmul"))
    assert kernel.family == "product"
    assert "tl.dot(" in kernel.source and "tl.maximum(" in kernel.source


def test_half_precision_is_multiplied_as_it_is_stored() -> None:
    ((kernel, _, _),) = sources(lowered("half_matmul"))
    assert ".to(tl.float16)" in kernel.source and "ieee" not in kernel.source


def test_an_index_out_of_range_is_reported(tmp_path: Path) -> None:
    code = f"""
        import numpy as np, pathlib, monograph
        from monograph import functional as F
        from monograph.errors import InputError
        from tests.targets.gpu.running import run_graph
        graph = monograph.trace(lambda x, i: F.take(x, i, axis=0), "f32[4, 3]", "i64[2]")
        x, folder = np.ones((4, 3), np.float32), pathlib.Path({str(tmp_path)!r})
        assert run_graph(graph, [x, np.array([3, -4])], folder).results[0].shape == (2, 3)
        try:
            run_graph(graph, [x, np.array([0, 4])], folder)
        except InputError as error:
            print("refused:", error)
    """
    done = _interpret("-c", textwrap.dedent(code))
    assert "refused: an index is out of range" in done.stdout, done.stderr[-2000:]


def test_large_buffers_have_offsets_of_64_bits() -> None:
    from monograph import functional as F

    PROGRAMS["large"] = (lambda x: F.exp(x), ("f32[65536, 65536]",))
    try:
        ((kernel, _, _),) = sources(lowered("large"))
    finally:
        del PROGRAMS["large"]
    assert "tl.program_id(0).to(tl.int64)" in kernel.source


def test_every_candidate_of_a_product_and_of_a_decoding_step_agrees() -> None:
    names = ("staying_transposed", "decode")
    done = _interpret("-m", "tests.targets.gpu.kernels", "--candidates", *names)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


def test_a_long_row_is_summed_in_parts_and_these_are_combined() -> None:
    first, second = (kernel for kernel, _, _ in sources(lowered("long_row")))
    assert [each.name for each in first.kernel.outputs] == ["s0"]
    assert [each.name for each in second.kernel.inputs] == ["s0"]
    assert "tl.store(s0 + (i0 + 2 * part), t" in first.source


def test_blocks_of_keys_that_are_seen_whole_have_no_masks() -> None:
    ((kernel, _, _),) = sources(lowered("causal"))
    whole, diagonal = kernel.source.split("in range(whole, end, COLUMNS):")
    loop = whole.split("for start in range(0, whole, COLUMNS):")[1]
    assert "mask=" not in loop
    # Of a row without any finite score, shares are taken from 0.
    assert loop.count("tl.where(") == 1 and "tl.where(larger == float('-inf'), 0.0" in loop
    assert "(column <= row)" in diagonal


def test_a_kernel_of_each_family_becomes_a_cubin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "MIN_TILES_TO_STAY", 0)
    kernels = [_of_family("staying", "persistent"), _of_family("pool", "sequential")]
    for name in ("transpose", "long_row", "gated", "decode", "half_conv"):
        kernels += [kernel for kernel, _, _ in sources(lowered(name))]
    codes = compile_kernels(kernels, CHIPS["sm_90"])
    assert all(code.image.startswith(b"\x7fELF") for code in codes)
    assert codes[0].scratch == 3 * 128  # tensor descriptors of two operands and the result


def _of_family(name: str, family: str) -> TritonKernel:
    """The kernel of a program's first group that some family writes."""
    graph = lowered(name)
    group = fuse(graph, {node: is_lowerable(node) for node in graph.nodes}).groups[0]
    found = (sequence_of(group, name, k)[0].kernels[0] for k in range(ALL_CANDIDATES))
    return next(kernel for kernel in found if kernel.family == family)


@pytest.mark.parametrize(("backend", "arch", "warp"), [("cuda", 90, 32), ("hip", "gfx942", 64)])
def test_kernels_compile_for_a_gpu_that_is_not_here(
    backend: str, arch: int | str, warp: int, tmp_path: Path
) -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    for name in ("chain", "softmax", "half_matmul"):
        ((kernel, _, _),) = sources(lowered(name))
        function = load(kernel, tmp_path)
        names = {"f32": "*fp32", "f16": "*fp16"}
        signature = {each.name: names[each.dtype.name] for each in kernel.kernel.buffers}
        signature |= dict.fromkeys(kernel.blocks, "constexpr")
        source = ASTSource(fn=function, signature=signature, constexprs=dict(kernel.blocks))
        compiled = triton.compile(source, target=GPUTarget(backend, arch, warp))
        assert compiled.asm["cubin" if backend == "cuda" else "hsaco"]
