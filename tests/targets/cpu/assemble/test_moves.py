"""Kernels that differ in where they begin, or in the names of their sizes, are compiled once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.ir.dims import Symbol
from monograph.ir.graph import Graph
from monograph.ir.types import Array, TensorType, f32
from monograph.program.code import Launch, walk_steps
from monograph.runtime.compiled import Executable
from monograph.targets.cpu.assemble.moves import Moves

GENERATOR = np.random.default_rng(5)


def unrolled(steps: int, batch: str = "3") -> Graph:
    """A recurrent layer, step by step, that reads and writes along the second axis."""
    graph = Graph("unrolled")
    x = graph.add_input("x", f"f32[{batch}, {steps}, 24]")
    with graph.as_current():
        weight = graph.add_weight("w", np.eye(24, dtype=np.float32)[::-1].copy())
        state = x[:, 0] * 0.0
        states = []
        for step in range(steps):
            state = F.tanh(x[:, step] + state @ weight)
            states.append(F.reshape(state, (x.shape[0], 1, 24)))
        graph.set_outputs([F.concat(states, 1)])
    return graph


def built(graph: Graph) -> Executable:
    return compile_graph(graph, Options(cache=False, keep_weights=True))


def kernels(executable: Executable) -> int:
    return len(executable.report.kernels)


def check(graph: Graph, *arrays: Array) -> Executable:
    executable = built(graph)
    for got, expected in zip(
        executable.run(list(arrays)), monograph.interpret(graph, list(arrays)), strict=True
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    return executable


def random(*shape: int) -> Array:
    return GENERATOR.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("batch", ["3", "n"])
def test_an_unrolled_loop_has_the_kernels_of_a_few_steps(batch: str) -> None:
    executable = check(unrolled(18, batch), random(3, 18, 24))
    assert kernels(executable) == kernels(check(unrolled(21, batch), random(3, 21, 24)))


def test_steps_are_the_same_kernels_on_other_addresses() -> None:
    executable = built(unrolled(12))
    assert executable.code is not None
    moved = [each for each in executable.code.steps if isinstance(each, Launch) and each.offsets]
    assert len({each.offsets for each in moved}) > 8


def test_each_result_is_that_without(monkeypatch: pytest.MonkeyPatch) -> None:
    x = random(3, 10, 24)
    (got,) = built(unrolled(10)).run([x])
    monkeypatch.setattr(Moves, "moved", lambda *_: None)
    (expected,) = built(unrolled(10)).run([x])
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i32", "bool", "c64", "f64"])
def test_addresses_are_right_for_every_width(dtype: str) -> None:
    def parts(x: Any) -> Any:
        return tuple(F.reshape(x[:, k : k + 3], (12,)) for k in range(0, 21, 3))

    graph = monograph.trace(parts, f"{dtype}[4, 21]")
    numbers = np.arange(84).reshape(4, 21) % 2
    x = numbers.astype(graph.inputs[0].dtype.numpy)
    executable = built(graph)
    for got, expected in zip(executable.run([x]), monograph.interpret(graph, [x]), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_a_piece_of_what_is_computed_stays_alive() -> None:
    def parts(x: Any) -> Any:
        y = F.exp(x)
        total = y[:, 0]
        for step in range(1, 12):
            total = F.sin(F.mean(total, 1, keepdims=True) + y[:, step])
        return total

    check(monograph.trace(parts, "f32[4, 12, 8]"), random(4, 12, 8))


def test_names_of_sizes_do_not_make_another_kernel() -> None:
    def both(x: Any, y: Any, w: Any) -> Any:
        return F.tanh(x @ w), F.tanh(y @ w)

    one = built(monograph.trace(both, "f32[n, 64]", "f32[m, 64]", "f32[64, 64]"))
    arrays = [random(7, 64), random(5, 64), random(64, 64)]
    results = one.run(arrays)
    for got, x in zip(results, arrays, strict=False):
        np.testing.assert_allclose(got, np.tanh(x @ arrays[2]), rtol=1e-4, atol=1e-5)
    assert one.code is not None
    launched = [each for each in walk_steps(one.code.steps) if isinstance(each, Launch)]
    products = [each for each in launched if each.sizes]
    assert len({each.kernel for each in products}) < len(products)


def test_sizes_of_other_ranges_are_other_kernels() -> None:
    def both(x: Any, y: Any) -> Any:
        return F.exp(x), F.exp(y)

    wide, narrow = Symbol("m"), Symbol("m", 1, 8)
    for size, count in ((wide, 1), (narrow, 2)):
        rows = TensorType(f32, (Symbol("n"), 4))
        graph = monograph.trace(both, rows, TensorType(f32, (size, 4)))
        assert kernels(built(graph)) == count


def test_a_program_with_pieces_can_be_stored(tmp_path: Any) -> None:
    x = random(3, 8, 24)
    executable = built(unrolled(8))
    executable.save(tmp_path / "steps.mono")
    (expected,) = executable.run([x])
    (got,) = monograph.load(tmp_path / "steps.mono")(x)
    np.testing.assert_array_equal(got, expected)


def test_what_is_cut_into_parts_may_itself_be_a_piece() -> None:
    def joined(x: Any, y: Any) -> Any:
        return tuple(
            F.concat([x[:, k : k + 2], F.exp(y[:, k + 1 : k + 4])], 1) for k in range(0, 9, 2)
        )

    graph = monograph.trace(joined, "f32[3, 12, 8]", "f32[3, 12, 8]")
    check(graph, random(3, 12, 8), random(3, 12, 8))
