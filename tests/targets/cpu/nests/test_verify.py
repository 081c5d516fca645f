"""The verifier of schedules finds accesses out of bounds and data races, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import monograph
from monograph import functional as F
from monograph.fusion.fuse import fuse
from monograph.ir.dims import Symbol
from monograph.ir.graph import Graph
from monograph.kernel import expr as e
from monograph.kernel.flatten import flatten
from monograph.kernel.kernel import Kernel
from monograph.kernel.lower import is_lowerable, lower_group
from monograph.passes.lower_composites import LowerComposites
from monograph.targets.cpu.costs import GENERIC
from monograph.targets.cpu.loops.choose_schedule import choose
from monograph.targets.cpu.loops.nest import build_nest
from monograph.targets.cpu.loops.schedule import Schedule
from monograph.targets.cpu.loops.split_reduction import ELEMENTS_PER_PARTIAL, split_reductions
from monograph.targets.cpu.machine import host
from monograph.targets.cpu.nests.loop_nest import Loop, LoopNest, Write
from monograph.targets.cpu.nests.verify import ScheduleError, verify_nest

PROGRAMS: dict[str, tuple[Any, ...]] = {
    "chain": (lambda x: F.relu(x * 2.0) + x, "f32[6, 35]"),
    "transpose": (lambda x: F.transpose(x, (1, 0)) + 1.0, "f32[19, 37]"),
    "softmax": (lambda x: F.softmax(x, -1), "f32[5, 33]"),
    "columns": (lambda x: F.sum(x, axis=0), "f32[7, 70]"),
    "rows and all": (lambda x: (F.sum(x, axis=1), x * 2.0), "f32[5, 20]"),
    "matmul": (lambda x, y: x @ y, "f32[7, 9]", "f32[9, 21]"),
    "linear": (lambda x, y: F.linear(x, y), "f32[7, 9]", "f32[5, 9]"),
    "pool": (lambda x: F.max_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1))), "f32[1, 2, 9, 9]"),
    "padded": (lambda x: F.pad(x, (1, 2), (0, 3)) * 2.0, "f32[4, 5]"),
    "concat": (lambda x, y: F.concat([x, y], axis=1), "f32[4, 5]", "f32[4, 3]"),
    "symbolic": (lambda x: F.softmax(x, -1), "f32[n, m]"),
}


def kernels(graph: Graph) -> list[Kernel]:
    """The flat kernels of a graph."""
    LowerComposites().run(graph)
    found = []
    for group in fuse(graph, {node: is_lowerable(node) for node in graph.nodes}).groups:
        outputs: dict[Any, Any] = {value: group.places[value] for value in group.outputs()}
        kernel, _ = lower_group(group.name, group.nodes, group.space, outputs)
        found.append(flatten(kernel))
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_chosen_schedules_are_sound(name: str) -> None:
    function, *types = PROGRAMS[name]
    graph = monograph.trace(function, *types)
    sizes = {symbol: 9 + k for k, symbol in enumerate(graph.symbols().values())}
    for kernel in kernels(graph):
        assert verify_nest(build_nest(kernel, choose(kernel, host())), sizes) > 0


def _row_sums() -> Kernel:
    def both(x: Any) -> Any:
        doubled = x * 2.0
        return F.sum(doubled, axis=1), doubled

    (kernel,) = kernels(monograph.trace(both, "f32[4, 8]"))
    return kernel


def test_a_row_s_result_that_every_column_writes_is_a_race() -> None:
    kernel = _row_sums()
    i, j = (axis.symbol for axis in kernel.axes)
    wrong = Schedule(order=(i, j), rows=2, parallel=2)
    with pytest.raises(ScheduleError, match="two iterations of the parallel loop"):
        verify_nest(build_nest(kernel, wrong))


def test_the_same_rows_in_one_iteration_each_are_no_race() -> None:
    kernel = _row_sums()
    i, j = (axis.symbol for axis in kernel.axes)
    assert verify_nest(build_nest(kernel, Schedule(order=(i, j), rows=1, parallel=1))) > 0


def test_a_loop_that_runs_too_far_is_found() -> None:
    (kernel,) = kernels(monograph.trace(lambda x: x * 2.0, "f32[10]"))
    nest = build_nest(kernel, choose(kernel, host()))
    (loop,) = nest.body
    assert isinstance(loop, Loop)
    longer = replace(nest, body=(replace(loop, extent=11),))
    with pytest.raises(ScheduleError, match="outside its buffer") as caught:
        verify_nest(longer)
    assert "10, at" in str(caught.value)


def test_lanes_that_take_different_numbers_of_steps_are_found() -> None:
    (kernel,) = kernels(monograph.trace(lambda x: F.sum(x), f"f32[{7 * ELEMENTS_PER_PARTIAL + 5}]"))
    both = split_reductions(kernel, GENERIC.fusion)
    assert both is not None
    (piece,) = both.pieces.axes
    across = Schedule((piece.symbol,), 1, 0, (piece.symbol,), 8, 8)
    with pytest.raises(ScheduleError, match="differs from lane to lane"):
        verify_nest(build_nest(both.pieces, across))


def test_reading_what_another_iteration_writes_is_a_race() -> None:
    buffer = e.Buffer("o0", monograph.ir.types.f32, (4,))
    p = Symbol("_p", 0, 3)
    value = e.load(buffer, (e.index(3 - p),))
    nest = LoopNest("swap", (), (buffer,), (), (), p, 4, 1, (Write(buffer, e.index(p), value),))
    with pytest.raises(ScheduleError, match="o0"):
        verify_nest(nest)


def test_a_nest_too_large_to_visit_says_so() -> None:
    (kernel,) = kernels(monograph.trace(lambda x: x * 2.0, "f32[3000, 1000]"))
    with pytest.raises(ScheduleError, match="too large"):
        verify_nest(build_nest(kernel, choose(kernel, host())))
