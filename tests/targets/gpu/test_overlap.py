"""Kernels that begin early wait before they read what others write, and load weights before."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import pytest

import monograph
from monograph import functional as F
from monograph.switches import switch_off
from monograph.targets.gpu import target as gpu_target
from monograph.targets.gpu.chip import chip_named
from monograph.targets.gpu.cubin import parameter_kinds
from monograph.targets.gpu.driver import LaunchAttribute, LaunchConfiguration
from monograph.targets.gpu.modules import MachineCode, read_modules, write_modules
from monograph.targets.gpu.overlap import begins_early, overlap

pytest.importorskip("triton")


@pytest.fixture(autouse=True)
def nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        gpu_target,
        "compile_kernels",
        lambda kernels, chip: [
            MachineCode(b"code", each.name, 128, 0, parameter_kinds(each)) for each in kernels
        ],
    )


def kernel_of(function: Any, *types: str) -> Any:
    compiled = monograph.compile(function, *types, target="gpu:sm_90", cache=False)
    (kernel,) = compiled.executable.program.kernels
    return kernel.triton


def project(x: Any, w: Any, y: Any) -> Any:
    return F.linear(x, w) + y


TYPES = ("bf16[1, 1024]", "bf16[2048, 1024]", "bf16[1, 2048]")


def test_weights_are_loaded_before_waiting_and_all_else_after() -> None:
    kernel = kernel_of(project, *TYPES)
    weight = next(b.name for b in kernel.kernel.inputs if b.shape == (2048 * 1024,))
    early = overlap(kernel, {weight}, chip_named("sm_90"))
    before, after = early.source.split("gdc_wait()\n")[-2:]
    assert begins_early(early) and before.count("tl.load") == 1
    assert f"tl.load({weight} +" in before and f"tl.load({weight} +" not in after
    assert after.count("tl.load") == 2 and "tl.store" in after and "tl.store" not in before
    compile(early.source, "kernel", "exec")


@pytest.mark.parametrize("chip", ["sm_80", "gfx942"])
def test_older_chips_do_not_overlap(chip: str) -> None:
    kernel = kernel_of(project, *TYPES)
    names = {buffer.name for buffer in kernel.kernel.inputs}
    assert overlap(kernel, names, chip_named(chip)) is kernel


def test_a_kernel_that_begins_with_what_others_write_is_left_alone() -> None:
    kernel = kernel_of(lambda x: F.softmax(x, -1), "f32[64, 64]")
    assert overlap(kernel, set(), chip_named("sm_90")) is kernel


def test_a_model_has_such_kernels_unless_that_is_switched_off() -> None:
    torch = pytest.importorskip("torch")

    class Layers(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.one = torch.nn.RMSNorm(1024), torch.nn.Linear(1024, 2048, bias=False)

        def forward(self, x: Any) -> Any:
            return self.one(self.norm(x * 2.0))

    model, x = Layers().to(torch.bfloat16).eval(), torch.randn(1, 1024, dtype=torch.bfloat16)
    made = monograph.compile(model, x, target="gpu:sm_90", cache=False).executable.program
    assert [begins_early(each.triton) for each in made.kernels].count(True) == 1
    with switch_off("overlapped_launches"):
        made = monograph.compile(model, x, target="gpu:sm_90", cache=False).executable.program
    assert not any(begins_early(each.triton) for each in made.kernels)


def test_it_is_stored() -> None:
    code = MachineCode(b"code", "k", 128, 0, ("buffer",), begins_early=True)
    later = replace(code, begins_early=False)
    again = read_modules(write_modules({"a": code, "b": later}))
    assert (again["a"].begins_early, again["b"].begins_early) == (True, False)


def test_structures_have_the_drivers_sizes() -> None:
    assert ctypes.sizeof(LaunchAttribute) == 72 and ctypes.sizeof(LaunchConfiguration) == 56
