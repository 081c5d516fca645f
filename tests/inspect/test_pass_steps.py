"""What passes bought, and how much arithmetic there is: counted by hand on small graphs."""

from __future__ import annotations

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.inspect.explain import explain_executable
from monograph.inspect.flops import flops
from monograph.inspect.pass_steps import figures_of, pass_steps
from monograph.inspect.profile import profile_calls
from monograph.inspect.roofline import MemoryLevel, Roofline
from monograph.inspect.stages import record_stages
from monograph.ir.graph import Value
from monograph.targets.names import resolve_target

CPU = resolve_target("cpu")


def test_a_pass_that_joins_two_nodes_saves_their_bytes() -> None:
    """Two equal products of one value: ``cse`` leaves one of them, and reads once."""
    graph = monograph.trace(
        lambda x: F.softmax(x @ F.exp(x), -1) + F.softmax(x @ F.exp(x), -1), "f32[64, 64]"
    )
    recorded = record_stages(lambda: compile_graph(graph, Options(cache=False)))
    steps = {step.name.partition("{")[0]: step for step in pass_steps(recorded.stages, CPU)}
    merged = steps["cse"]
    assert merged.after.nodes < merged.before.nodes
    assert merged.after.kernels < merged.before.kernels
    assert merged.after.bytes_moved <= merged.before.bytes_moved - 64 * 64 * 4


def test_figures_of_a_program_are_those_that_it_has() -> None:
    graph = monograph.trace(lambda x: F.softmax(F.exp(x) @ x, -1), "f32[64, 64]")
    recorded = record_stages(lambda: compile_graph(graph, Options(cache=False)))
    last = pass_steps(recorded.stages, CPU)[-1].after
    explained = explain_executable(recorded.made)
    assert last.kernels == explained.groups
    assert last.bytes_moved == explained.bytes_moved
    assert explained.memory is not None
    assert last.peak <= explained.memory.peak


def test_peak_memory_counts_what_is_alive_at_once() -> None:
    """Two products wait for each other's sum: both are alive, and the first input is not."""

    def waiting(x: Value) -> Value:
        return F.softmax(x @ x, -1) @ F.softmax(x @ F.transpose(x, (1, 0)), -1)

    found = figures_of(monograph.trace(waiting, "f32[64, 64]"), CPU)
    assert found.peak in (2 * 64 * 64 * 4, 3 * 64 * 64 * 4)
    small = figures_of(monograph.trace(lambda x: F.exp(x) * x, "f32[64, 64]"), CPU)
    assert (small.kernels, small.peak, small.bytes_moved) == (1, 0, 2 * 64 * 64 * 4)


def test_a_loop_moves_its_bytes_every_turn() -> None:
    def loop(x: Value) -> Value:
        return F.scan(lambda c, v: (F.cumsum(c + v, 0), ()), x[0], x)[0]

    short, long = (
        figures_of(monograph.trace(loop, f"f32[{turns}, 256]"), CPU).bytes_moved
        for turns in (4, 40)
    )
    assert long > 8 * short


@pytest.mark.parametrize(
    ("function", "types", "expected"),
    [
        (
            lambda x, w: F.dot_general(x, w, (1,), (0,)),
            ("f32[8, 16]", "f32[16, 4]"),
            2 * 8 * 16 * 4,
        ),
        (
            lambda x, w: F.conv(x, w, stride=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1)),
            ("f32[1, 3, 8, 8]", "f32[5, 3, 3, 3]"),
            2 * 5 * 6 * 6 * 3 * 9,
        ),
        (lambda x: F.sum(x, 1) * 2.0, ("f32[8, 16]",), 8 * 16 + 8),
        (lambda x: F.reshape(x, (16, 8)), ("f32[8, 16]",), 0),
    ],
)
def test_arithmetic_is_counted_as_written(
    function: object, types: tuple[str, ...], expected: int
) -> None:
    graph = monograph.trace(function, *types)  # type: ignore[arg-type]
    assert flops(graph.nodes, {}) == expected


def test_a_kernel_stands_where_its_time_says() -> None:
    """Half the speed of a roof that is twice what was reached, on a machine made for it."""
    x = np.ones((256, 256), np.float32)
    executable = compile_graph(monograph.trace(lambda x: x @ x, "f32[256, 256]"))
    profile = profile_calls(executable, lambda: executable.run([x]), calls=5)
    explained = explain_executable(executable)
    computing = [each for each in explained.kernels if each.flops]
    (kernel,) = computing
    assert kernel.flops == 2 * 256**3
    seconds = next(each.seconds for each in profile.kernels if each.name == kernel.name)
    peak = 2 * kernel.flops / seconds
    roofs = Roofline("twice as fast", 1, peak, (MemoryLevel("memory", None, 1e15),))
    (placed,) = [each for each in explained.measured(profile, roofs).kernels if each.flops]
    assert placed.place is not None
    assert (placed.place.bound, placed.place.reached) == ("compute", pytest.approx(0.5))
    slow = Roofline("half as fast", 1, peak / 4, (MemoryLevel("memory", None, 1e15),))
    assert explained.measured(profile, slow).is_above_the_roof


def test_a_transform_that_saves_products_is_no_reason_to_measure_again() -> None:
    x, weight = np.ones((1, 64, 28, 28), "f4"), np.ones((64, 64, 3, 3), "f4")
    graph = monograph.trace(
        lambda x, w: F.conv(x, w, padding=((1, 1), (1, 1))), "f32[1, 64, 28, 28]", weight
    )
    executable = compile_graph(graph, Options(winograd_tolerance=1e-3, threads=1))
    explained = explain_executable(executable)
    winograd = [each for each in explained.kernels if each.saves_products and each.flops]
    if not winograd:
        pytest.skip("this processor convolves without Winograd's transform")
    profile = profile_calls(executable, lambda: executable.run([x, weight]), calls=2)
    slow = Roofline("slow", 1, 1e6, (MemoryLevel("memory", None, 1e15),))
    found = explained.measured(profile, slow)
    above = [each for each in found.kernels if each.place is not None and each.place.reached > 1]
    assert {each.name for each in winograd} <= {each.name for each in above}
    assert found.is_above_the_roof == any(not each.saves_products for each in above)
    assert "above 100%: Winograd" in str(found)
