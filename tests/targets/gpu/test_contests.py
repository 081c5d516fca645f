"""Choices by measurement, without a GPU: contenders are compiled, and the times are made up."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import monograph
from monograph import functional as F
from monograph.errors import ArtifactError, InputError
from monograph.inspect.listings import write_listings
from monograph.program.code import Code, Launch, LibraryCall
from monograph.runtime.compile_report import CompileReport
from monograph.runtime.options import Options
from monograph.targets.gpu import target as gpu_target
from monograph.targets.gpu.choices import sites_of
from monograph.targets.gpu.cubin import parameter_kinds
from monograph.targets.gpu.measurements import Measurements, read_measurements
from monograph.targets.gpu.modules import MachineCode
from monograph.targets.names import resolve_target
from monograph.tuning import gpu_contests

pytest.importorskip("triton")
CHIP = "gpu:sm_90"


@pytest.fixture(autouse=True)
def nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machine code is not run here."""
    monkeypatch.setattr(
        gpu_target,
        "compile_kernels",
        lambda kernels, chip: [
            MachineCode(b"code", each.name, 128, 0, parameter_kinds(each)) for each in kernels
        ],
    )
    monkeypatch.setattr(gpu_contests, "machine_text", lambda: "a GPU of the tests")
    monkeypatch.setattr(gpu_contests, "_TABLES", {})


def mlp(x: Any, w: Any, b: Any, v: Any) -> Any:
    return F.gelu(F.linear(x, w, b), approximate="tanh") @ v


TYPES = ("bf16[4096, 1024]", "bf16[4096, 1024]", "bf16[4096]", "bf16[4096, 4096]")


class Clock:
    """Says that contenders of that first word are the fastest, and remembers whom it timed."""

    def __init__(self, favourite: str) -> None:
        self.favourite = favourite
        self.timed: list[list[str]] = []

    def __call__(self, codes: Mapping[str, Code]) -> dict[str, float]:
        self.timed.append(list(codes))
        return {name: 1.0 if name.split()[0] == self.favourite else 2.0 for name in codes}


def measured(clock: Clock, *types: str, function: Any = mlp, level: str = "O3") -> Any:
    """The target after a compilation has measured a function's sites."""
    target = resolve_target(CHIP)
    lowered = monograph.compile(function, *types, target=CHIP, cache=False).executable.graph.clone()
    from monograph.passes.manager import run_pipeline

    run_pipeline(lowered, target.lowering())
    options = Options(target=CHIP, level=level, cache=False)
    return gpu_contests.measure_target(target, lowered, options, CompileReport(), clock)


def steps_with(table: Measurements, *types: str, function: Any = mlp) -> tuple[Any, ...]:
    """The steps of a program that is compiled with a table."""
    from dataclasses import replace

    from monograph.targets.gpu.chip import chip_named

    chip = replace(chip_named("sm_90"), measured=table)
    target = gpu_target.GpuTarget(CHIP, chip)
    compiled = monograph.compile(function, *types, target=target, cache=False)
    return compiled.executable.code.steps


@pytest.mark.parametrize(
    ("favourite", "libraries", "launches"),
    [("cuBLASLt", ["cuBLASLt", "cuBLAS"], 0), ("cuBLAS", ["cuBLAS"] * 2, 1), ("ours", [], 2)],
)
def test_the_fastest_contender_computes_a_product(
    favourite: str, libraries: list[str], launches: int
) -> None:
    table = measured(Clock(favourite), *TYPES).chip.measured
    steps = steps_with(table, *TYPES)
    assert [step.library for step in steps if isinstance(step, LibraryCall)] == libraries
    assert sum(isinstance(step, Launch) for step in steps) == launches


def test_contenders_are_the_library_with_and_without_its_epilogue_and_ours() -> None:
    clock = Clock("cuBLAS")
    measured(clock, *TYPES)
    first, second = clock.timed[:2]
    assert first[:2] == ["cuBLAS", "cuBLASLt"] and second[0] == "cuBLAS"
    assert all(name.startswith("ours product") for name in first[2:]) and len(first) > 2


def test_equal_sites_are_measured_once_and_not_again() -> None:
    def two(x: Any, v: Any, w: Any) -> Any:
        return F.exp(x @ v) @ w

    types = ("bf16[512, 512]",) * 3
    clock = Clock("cuBLAS")
    measured(clock, *types, function=two)
    products = [names for names in clock.timed if "cuBLAS" in names]
    assert len(products) == 1
    again = Clock("cuBLAS")
    measured(again, *types, function=two)
    assert again.timed == []


def test_small_sites_are_not_measured_at_the_default_level() -> None:
    clock = Clock("cuBLAS")
    measured(clock, "bf16[32, 32]", "bf16[32, 32]", function=lambda x, y: x @ y, level="O2")
    assert clock.timed == []


@pytest.mark.parametrize(("favourite", "library"), [("flash", "flash"), ("ours", None)])
def test_the_fastest_attention_is_named(favourite: str, library: str | None) -> None:
    def attend(q: Any, k: Any, v: Any) -> Any:
        return F.attention(q, k, v)

    types = ("bf16[4, 16, 512, 64]",) * 3
    table = measured(Clock(favourite), *types, function=attend).chip.measured
    (step,) = steps_with(table, *types, function=attend)
    assert getattr(step, "library", None) == library


@pytest.mark.parametrize(
    ("favourite", "libraries", "launches"), [("one", 0, 1), ("two", 0, 2), ("cuBLAS", 2, 1)]
)
def test_two_products_of_one_operand_are_one_kernel_if_that_is_fastest(
    favourite: str, libraries: int, launches: int
) -> None:
    def gated(x: Any, v: Any, w: Any) -> Any:
        return F.silu(F.linear(x, v)) * F.linear(x, w)

    types = ("bf16[4096, 1024]", "bf16[4096, 1024]", "bf16[4096, 1024]")
    clock = Clock(favourite)
    table = measured(clock, *types, function=gated).chip.measured
    assert clock.timed[0] == ["one kernel", "two kernels", "cuBLAS"]
    steps = steps_with(table, *types, function=gated)
    assert sum(isinstance(step, LibraryCall) for step in steps) == libraries
    assert sum(isinstance(step, Launch) for step in steps) == launches


def test_an_attention_of_views_is_left_to_the_library() -> None:
    def attend(x: Any) -> Any:
        q, k, v = (F.transpose(each, (0, 2, 1, 3)) for each in (x, x * 2.0, x + 1.0))
        return F.attention(q, k, v)

    clock = Clock("flash")
    table = measured(clock, "bf16[4, 512, 16, 64]", function=attend).chip.measured
    assert ["cuDNN", "flash"] in clock.timed
    steps = steps_with(table, "bf16[4, 512, 16, 64]", function=attend)
    assert [each.library for each in steps if isinstance(each, LibraryCall)] == ["flash"]


def test_tables_are_read_back_and_name_both_times() -> None:
    table = measured(Clock("ours"), *TYPES).chip.measured
    again = read_measurements(table.text())
    assert again.sites == table.sites and again.machine == "a GPU of the tests"
    assert all(len(times) > 1 for times in again.sites.values())
    chip = resolve_target(CHIP).chip  # type: ignore[attr-defined]
    graph = monograph.compile(mlp, *TYPES, target=CHIP, cache=False).executable.lowered
    assert graph is not None and list(sites_of(graph, chip)) != []


def test_a_file_of_times_decides_where_there_is_no_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = measured(Clock("ours"), *TYPES).chip.measured
    path = tmp_path / "times.json"
    path.write_text(table.text(), encoding="utf-8")
    before = resolve_target(CHIP).description
    monkeypatch.setenv("MONOGRAPH_GPU_TIMES", str(path))
    assert resolve_target(CHIP).description != before, "programs of other choices are others"
    compiled = monograph.compile(mlp, *TYPES, target=CHIP, cache=False)
    steps = compiled.executable.code.steps
    assert all(isinstance(step, Launch) for step in steps)
    written = {x.name: x.read_text() for x in write_listings(compiled.executable, tmp_path)}
    assert "µs by cuBLASLt" in written["plan.txt"] and "µs by product" in written["plan.txt"]
    page = str(monograph.explain(compiled))
    assert "chosen by measurement" in page and "cuBLASLt" in page
    monkeypatch.setenv("MONOGRAPH_GPU_TIMES", str(tmp_path / "none.json"))
    with pytest.raises(InputError, match="cannot be read"):
        resolve_target(CHIP)


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"machine": "m"}', '{"machine": 1, "sites": {}}', '{"machine": "", "sites": []}',
     '{"machine": "", "sites": {"s": {}}}', '{"machine": "", "sites": {"s": {"a": "1"}}}',
     '{"machine": "", "sites": {"s": {"a": 0}}}', '{"machine": "", "sites": {"s": {"a": NaN}}}',
     '{"machine": "", "sites": {"s": {"a": true}}}'],
)  # fmt: skip
def test_other_tables_are_refused(text: str) -> None:
    with pytest.raises(ArtifactError, match="cannot be read"):
        read_measurements(text)
