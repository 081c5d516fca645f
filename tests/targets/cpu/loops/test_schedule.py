"""Schedules print as the directives that they are."""

from __future__ import annotations

from monograph.ir.dims import Symbol
from monograph.targets.cpu.loops.schedule import Schedule

ROW, COLUMN = Symbol("_i0", 0, 63), Symbol("_i1", 0, 127)


def test_the_least_that_a_schedule_says() -> None:
    assert (
        str(Schedule((ROW, COLUMN), rows=1, parallel=1))
        == "reorder(i0, i1) rows(i0) parallelize(i0)"
    )


def test_every_directive_prints() -> None:
    schedule = Schedule(
        (COLUMN, ROW),
        rows=1,
        parallel=1,
        vector=(ROW,),
        width=16,
        tile=64,
        block=(COLUMN, 4),
        jam=((COLUMN, 2),),
        cache_row=True,
        prefetch=COLUMN,
        pipelined_rows=16,
        softmax_block=2048,
        prefetch_bytes=1536,
        streaming=frozenset(("o1", "o0")),
    )
    assert str(schedule) == (
        "reorder(i1, i0) rows(i1) tile(i0, 64) block(i1, 4) parallelize(i1) vectorize(i0, 16) "
        "jam(i1, 2) cache_row prefetch(i1) pipelined_rows(16) softmax_block(2048) "
        "prefetch_bytes(1536) stream(o0, o1)"
    )


def test_schedules_are_values() -> None:
    assert Schedule((ROW,), 0, 0) == Schedule((ROW,), 0, 0)
    assert len({Schedule((ROW,), 0, 0), Schedule((ROW,), 0, 0), Schedule((ROW,), 1, 0)}) == 2
