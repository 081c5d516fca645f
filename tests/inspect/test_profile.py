"""A profile says where a call's time goes: nothing twice, the slow kernel first, in a trace."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import monograph
from monograph import functional as F
from monograph.compiler import compile_graph
from monograph.errors import UnsupportedError
from monograph.inspect.profile import Profile, quickest_launches, without_variants
from monograph.inspect.timeline import divide_overlaps
from monograph.ir.graph import Value
from tests.runtime import programs

X = np.linspace(-1, 1, 32 * 256, dtype=np.float32).reshape(32, 256)
BIG = np.ones((256, 2048), np.float32) / 2048


def planted(x: Value) -> Value:
    """A slow product between two quick kernels."""
    wide = F.softmax(x, axis=-1) @ x.graph.add_weight("big", BIG)
    return F.softmax(wide @ x.graph.add_weight("small", BIG.T[:, :4].copy()), axis=-1)


@pytest.fixture(scope="module")
def profile() -> Profile:
    return monograph.compile(planted, X, threads=2).profile(X, calls=8)


def test_kernels_take_no_longer_than_the_call(profile: Profile) -> None:
    total = sum(each.seconds for each in profile.kernels)
    assert 0 < total <= profile.undisturbed <= profile.seconds
    assert sum(each.share for each in profile.kernels) <= 1
    assert all(0 < each.busy <= 1 for each in profile.kernels)


def test_a_slow_kernel_has_the_largest_share(profile: Profile) -> None:
    slowest = profile.kernels[0]
    assert any("%big" in node for node in slowest.nodes), slowest
    assert slowest.share > 0.4


def test_a_variant_that_takes_over_is_profiled_and_explained_are_all_sizes() -> None:
    compiled = monograph.compile(
        lambda x: F.softmax(x * 2.0, -1), "f32[rows, 256]", cache=False, variants=4
    )
    with without_variants(compiled.executable):
        general = compiled.profile(X, calls=4)
    assert general.served_by == "the program for all sizes"
    found = compiled.profile(X, calls=4)
    assert found.served_by == "a variant for these sizes" and found.served_by in str(found)
    for each in (general, found):
        (kernel,) = each.kernels
        assert kernel.launches == 1 and kernel.nodes and kernel.name.startswith("k0_")


def test_the_table_fits_a_terminal(profile: Profile) -> None:
    lines = str(profile).splitlines()
    assert max(map(len, lines)) <= 80
    assert any(profile.kernels[0].name in line for line in lines)
    assert "recorded" in lines[1]


def test_time_that_several_launches_share_is_divided() -> None:
    assert divide_overlaps([(0.0, 4.0), (2.0, 6.0), (10.0, 11.0)]) == [3.0, 3.0, 1.0]


def test_a_launch_counts_as_in_its_quickest_call() -> None:
    calls = [{"a": [1.0, 9.0], "b": [2.0]}, {"a": [8.0, 1.5], "b": [3.0]}]
    assert quickest_launches(calls) == {"a": [1.0, 1.5], "b": [2.0]}


def test_memory_never_exceeds_the_arena(profile: Profile) -> None:
    assert profile.peak_memory >= 32 * 2048 * 4
    assert max(nbytes for _, nbytes in profile.call.memory) == profile.peak_memory


def check_trace(trace: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The trace event format: what each phase must have, and spans that nest on their thread."""
    events = trace["traceEvents"]
    for event in events:
        assert event["ph"] in ("X", "C", "M")
        assert isinstance(event["name"], str) and isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name", "thread_sort_index")
            assert event["args"]
            continue
        assert event["ts"] >= 0
        if event["ph"] == "C":
            assert all(isinstance(value, int) for value in event["args"].values())
        else:
            assert event["dur"] >= 0
    for thread in {event["tid"] for event in events}:
        spans = [each for each in events if each["ph"] == "X" and each["tid"] == thread]
        open_: list[float] = []
        for span in sorted(spans, key=lambda each: (each["ts"], -each["dur"])):
            while open_ and open_[-1] <= span["ts"] + 2e-3:
                open_.pop()
            end = span["ts"] + span["dur"]
            assert not open_ or end <= open_[-1] + 2e-3, "spans of a thread overlap"
            open_.append(end)
    return [each for each in events if each["ph"] == "X"]


def test_the_trace_is_one_that_others_read(profile: Profile, tmp_path: Path) -> None:
    """As the trace event format says; Perfetto's importer drops what is not so."""
    path = profile.save_trace(tmp_path / "trace.json")
    spans = check_trace(json.loads(path.read_text()))
    names = {span["name"] for span in spans if span["cat"] == "kernel"}
    assert names == {each.name for each in profile.kernels}
    (slow,) = {str(s["args"]["nodes"]) for s in spans if s["name"] == profile.kernels[0].name}
    assert "%big" in slow


def test_what_the_interpreter_runs_has_a_row_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    programs.let_interpret(monkeypatch)
    executable = compile_graph(programs.interpreted_node())
    kernels = executable.profile(np.ones((4, 4), np.float32), calls=3).kernels
    assert any(each.name == "interpreter: atan" for each in kernels), kernels


def test_a_program_without_kernels_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="no kernels"):
        compile_graph(programs.strings()).profile(np.array(["a", "b"], object))


def test_torchs_profiler_shows_the_kernels_by_name() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Softmax(-1)).eval()
    x = torch.randn(8, 64)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.no_grad():
        for compiled in (
            monograph.compile(module, x),
            torch.compile(module, backend="monograph"),
        ):
            expected = compiled(x)
            with torch.profiler.profile(activities=activities) as watched:
                found = compiled(x)
            assert torch.equal(found, expected)
            names = {event.key for event in watched.key_averages()}
            assert sum(name.startswith("monograph::k") for name in names) == 2, names
            with torch.profiler.profile(activities=activities) as empty:
                torch.relu(x)
            assert not any("monograph::" in event.key for event in empty.key_averages())
