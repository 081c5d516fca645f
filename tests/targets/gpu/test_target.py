"""The GPU as a target, without one: compiled ahead, reported, saved, and refused by name."""

from __future__ import annotations

import ast
import time
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.errors import InputError, MonographError
from monograph.inspect.listings import listing, write_listings
from monograph.program.code import Launch, LibraryCall
from monograph.runtime.bundle import Bundle
from monograph.runtime.container import ArtifactError
from monograph.runtime.storage import read_code, write_code
from monograph.targets.gpu import cubin
from monograph.targets.gpu.driver import has_gpu
from monograph.targets.gpu.modules import read_modules, write_modules
from monograph.targets.names import resolve_target

pytest.importorskip("triton")
CHIP = "gpu:sm_90"


def attend(x: Any, w: Any) -> Any:
    return F.softmax(F.relu(x @ w), -1) + 1.0


@pytest.fixture(scope="module")
def compiled() -> Any:
    return monograph.compile(attend, "f32[64, 64]", "f32[64, 128]", target=CHIP, cache=False)


def test_a_product_is_the_librarys_and_what_follows_is_one_kernel(compiled: Any) -> None:
    product, rows = compiled.executable.code.steps
    assert isinstance(product, LibraryCall) and product.library == "cuBLAS"
    assert isinstance(rows, Launch) and rows.outputs == 1 and len(rows.grid) == 1
    (note,) = compiled.report.kernels
    assert note.how.startswith("rows:") and len(note.nodes) == 7
    assert compiled.report.fallbacks == ()


def test_plans_say_what_computes_each_group_and_who_refused(compiled: Any, tmp_path: Path) -> None:
    product, rows = compiled.executable.program.planned
    assert (product.plan.family, product.plan.choice) == ("library", "cuBLAS")
    assert rows.plan.family == "rows" and rows.plan.microseconds > 0
    assert [each.family for each in rows.plan.refusals] == ["transpose", "pointwise", "product"]
    assert rows.kernels == tuple(each.name for each in compiled.executable.program.kernels)
    written = {
        path.name: path.read_text() for path in write_listings(compiled.executable, tmp_path)
    }
    assert "not      product: it is no matrix product" in written["plan.txt"]
    assert written["program.txt"] == compiled.executable.program.text
    with pytest.raises(InputError, match="nests is a stage of programs for processors"):
        listing(compiled.executable, "nests")


def test_machine_code_is_stored_and_read_back(compiled: Any) -> None:
    code = compiled.executable.code
    parts = write_code(code)
    again = read_code(Bundle({}, parts.blobs, parts.arrays))
    assert again.steps == code.steps and again.slots == code.slots
    modules = read_modules(again.object)
    assert modules == read_modules(code.object) and list(modules) == [code.steps[1].kernel]
    (kernel,) = modules.values()
    assert kernel.image.startswith(b"\x7fELF") and kernel.parameters == ("buffer", "buffer")


@pytest.mark.parametrize("damage", ["cut", "length", "json", "number", "kind"])
def test_damaged_machine_code_is_refused(compiled: Any, damage: str) -> None:
    data = compiled.executable.code.object
    damaged = {
        "cut": data[:-5],
        "length": (1 << 60).to_bytes(8, "little") + data[8:],
        "json": data[:8] + b"x" + data[9:],
        "number": data.replace(b'"image":0', b'"image":7'),
        "kind": data.replace(b'"buffer"', b'"banana"'),
    }[damage]
    with pytest.raises(ArtifactError, match="cannot be read"):
        read_modules(damaged)


def test_equal_layers_have_one_kernel() -> None:
    def layers(x: Any, *weights: Any) -> Any:
        for weight in weights:
            x = F.softmax(x @ weight, -1)
        return x

    types = ["f32[64, 64]"] * 5
    compiled = monograph.compile(layers, *types, target=CHIP, cache=False)
    steps = compiled.executable.code.steps
    assert len(steps) == 8 and len(compiled.report.kernels) == 1
    assert len(read_modules(compiled.executable.code.object)) == 1


def test_layers_that_read_other_pieces_of_an_input_have_one_kernel() -> None:
    def layers(x: Any) -> Any:
        return tuple(F.softmax(x[k], -1) for k in range(3))

    compiled = monograph.compile(layers, "f32[3, 64, 96]", target=CHIP, cache=False)
    steps = compiled.executable.code.steps
    assert len({step.kernel for step in steps}) == 1
    assert [step.offsets for step in steps] == [(), (64 * 96 * 4, 0), (2 * 64 * 96 * 4, 0)]


def test_what_nobody_computes_there_is_named_and_strict_refuses_it() -> None:
    def nobody(x: Any) -> Any:
        return F.cumsum(x, 0)

    compiled = monograph.compile(nobody, "f32[8, 8]", target="gpu:gfx942", cache=False)
    assert "cumsum" in compiled.report.fallbacks[0]
    with pytest.raises(MonographError, match="no native code"):
        monograph.compile(nobody, "f32[8, 8]", target="gpu:gfx942", cache=False, strict=True)


def test_sizes_are_symbols_of_the_grid() -> None:
    compiled = monograph.compile(lambda x: F.exp(x) * 2.0, "f32[n, m]", target=CHIP, cache=False)
    (step,) = compiled.executable.code.steps
    assert [str(size) for size in step.sizes] == ["m", "n"]
    assert {symbol for dim in step.grid for symbol in dim.symbols()} == set(step.sizes)


@pytest.mark.parametrize("name", ["gpu:", "gpu:sm_12", "gpu:h100"])
def test_no_such_chip(name: str) -> None:
    with pytest.raises(MonographError, match=r"gpu|sm_90"):
        resolve_target(name)


@pytest.mark.skipif(has_gpu(), reason="this machine has a GPU")
def test_without_a_gpu_the_error_says_what_to_do(compiled: Any, tmp_path: Path) -> None:
    with pytest.raises(MonographError, match="no NVIDIA GPU") as asked:
        monograph.compile(attend, "f32[64, 64]", "f32[64, 128]", target="gpu")
    assert 'target="gpu:sm_90"' in str(asked.value)
    with pytest.raises(MonographError, match=r"another target|no NVIDIA GPU"):
        compiled(np.ones((64, 64), np.float32), np.ones((64, 128), np.float32))
    path = compiled.save(tmp_path / "model.mono")
    with pytest.raises(MonographError, match=r"another system|no NVIDIA GPU"):
        monograph.load(path)


@pytest.mark.parametrize("chip", ["gfx942", "sm_80"])
def test_programs_are_compiled_for_chips_that_nobody_has_here(chip: str) -> None:
    def both(x: Any) -> Any:
        return F.exp(x) * 2.0, F.softmax(x, -1)

    compiled = monograph.compile(both, "f32[64, 64]", target=f"gpu:{chip}", cache=False)
    assert compiled.report.fallbacks == ()
    modules = read_modules(compiled.executable.code.object)
    assert len(modules) == 2
    assert all(each.image.startswith(b"\x7fELF") for each in modules.values())
    assert all(each.scratch == 0 for each in modules.values())


def test_one_thread_at_a_time_reads_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """CPython 3.11 counts the depth of a syntax tree for all threads together."""
    parse, reading, overlaps = ast.parse, Lock(), []

    def slowly(*given: Any, **named: Any) -> Any:
        alone = reading.acquire(blocking=False)
        overlaps.append(not alone)
        time.sleep(0.005)
        if alone:
            reading.release()
        return parse(*given, **named)

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cubin, "cpu_quota", lambda: 4)
    monkeypatch.setattr(ast, "parse", slowly)

    def both(x: Any) -> Any:
        return F.exp(x) * 3.0, F.softmax(x * 0.5, -1), F.softmax(x * 0.25, 0)

    monograph.compile(both, "f32[64, 64]", target="gpu:sm_80", cache=False)
    assert overlaps
    assert not any(overlaps)


def test_products_are_fused_with_sums_whatever_tritons_default_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import triton

    made, compile_ = list[Any](), triton.compile
    monkeypatch.setattr(
        triton,
        "compile",
        lambda *given, **named: made.append(compile_(*given, **named)) or made[-1],
    )
    with triton.knobs.language.scope():
        triton.knobs.language.default_fp_fusion = False
        monograph.compile(lambda x, y, z: x * y + z, *["f32[64, 64]"] * 3, target=CHIP, cache=False)
    (kernel,) = made
    assert kernel.metadata.enable_fp_fusion


def test_an_empty_object_has_no_kernels() -> None:
    assert read_modules(write_modules({})) == {}
