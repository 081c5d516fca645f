"""Accesses are proved to be inside their buffers for all sizes, and wrong ones never are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.ir.dims import Symbol, dim_min
from monograph.ir.types import f32
from monograph.kernel.expr import Buffer
from monograph.targets.cpu.nests.bounds import Access, Range, find_unproved_accesses, is_inside
from monograph.targets.cpu.nests.loop_nest import LoopNest
from monograph.targets.cpu.nests.verify import ScheduleError, verify_sampled

n, m = Symbol("n", 0, None), Symbol("m", 1, None)
p, i, t = (Symbol(name, 0, None) for name in "pit")


def inside(size: Any, position: Any, **ranges: Range) -> bool:
    named = {{"p": p, "i": i, "t": t}[name]: each for name, each in ranges.items()}
    return is_inside(Access(Buffer("b", f32, (size,)), position, named))


def test_rows_of_a_matrix_of_any_size() -> None:
    assert inside(n * m, m * p + i, p=Range(0, n), i=Range(0, m))
    assert not inside(n * m, m * p + i, p=Range(0, n), i=Range(0, m + 1))
    assert not inside(n * m - 1, m * p + i, p=Range(0, n), i=Range(0, m))


def test_a_tile_ends_where_the_row_does() -> None:
    tiles = (n + 15) // 16
    assert inside(n, 16 * t + i, t=Range(0, tiles), i=Range(0, dim_min(16, n - 16 * t)))
    assert not inside(n, 16 * t + i, t=Range(0, tiles), i=Range(0, 16))


def test_a_parallel_loop_over_two_axes() -> None:
    both = Range(0, n * m)
    assert inside(n * m, p // m * m + p % m, p=both)
    assert inside(2 * n * m, (p // m * m + p % m) * 2 + 1, p=both)
    assert not inside(n * m, p // m * m + p % m + 1, p=both)


def test_what_is_clamped_is_inside() -> None:
    assert inside(n + 1, dim_min(p, n), p=Range(0, 5 * n))


def test_before_the_first_element_is_outside() -> None:
    assert not inside(n, i - 1, i=Range(0, n))
    assert inside(n, i - 1, i=Range(1, n))


@pytest.mark.parametrize(
    ("function", "types"),
    [
        (lambda x: F.relu(x * 2.0) + x, ("f32[n, 35]",)),
        (lambda x: F.softmax(x, -1), ("f32[n, m]",)),
        (lambda x, y: x @ y, ("f32[7, 9]", "f32[9, 21]")),
        (lambda x: F.transpose(x, (1, 0)) + 1.0, ("f32[n, m]",)),
        (lambda x, y: F.concat([x, y], axis=1), ("f32[n, 5]", "f32[n, 3]")),
        (lambda x: F.pad(x, (1, 2), (0, 3)) * 2.0, ("f32[4, 5]",)),
    ],
)
def test_the_nests_of_programs_are_proved(function: Any, types: tuple[str, ...]) -> None:
    for nest in nests(function, *types):
        assert find_unproved_accesses(nest) == []


def nests(function: Any, *types: str) -> list[LoopNest]:
    executable = compile_graph(monograph.trace(function, *types), Options(cache=False))
    assert executable.program is not None
    return [each.nest for each in executable.program.kernels]


def test_a_buffer_that_is_too_short_is_found_by_proof_and_by_sample() -> None:
    (nest,) = nests(lambda x: x + 1.0, "f32[n, 35]")
    size = nest.outputs[0].shape[0]
    short = replace(nest, outputs=(replace(nest.outputs[0], shape=(size - 1,)),))
    assert find_unproved_accesses(nest) == []
    wrong = replace(nest, body=tuple(_shortened(each, short.outputs[0]) for each in nest.body))
    assert find_unproved_accesses(wrong)
    verify_sampled(nest, {nest.sizes[0]: 3})
    with pytest.raises(ScheduleError, match="written outside its buffer"):
        verify_sampled(wrong, {nest.sizes[0]: 3})


def _shortened(statement: Any, buffer: Buffer) -> Any:
    """A loop that writes another buffer instead."""
    if hasattr(statement, "body"):
        return replace(statement, body=tuple(_shortened(each, buffer) for each in statement.body))
    return replace(statement, buffer=buffer) if hasattr(statement, "offset") else statement
