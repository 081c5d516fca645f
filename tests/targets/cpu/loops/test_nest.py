"""What a schedule makes of a kernel: visits of rows, kept values, jammed and blocked loops."""

from __future__ import annotations

import re
from textwrap import dedent
from typing import Any

from monograph import functional as F
from monograph.kernel.kernel import Kernel
from monograph.kernel.parse import parse_kernel
from monograph.targets.cpu.loops.choose_schedule import choose
from monograph.targets.cpu.loops.nest import build_nest
from monograph.targets.cpu.loops.schedule import Schedule
from monograph.targets.cpu.machine import machine_named
from monograph.targets.cpu.nests.loop_nest import Loop, LoopKind, LoopNest, Statement
from monograph.targets.cpu.nests.verify import verify_nest
from tests.kernel.build import flat


def rows(kernel: Kernel, **options: Any) -> Schedule:
    """One row after the other, along vectors of eight."""
    first, *others = (axis.symbol for axis in kernel.axes)
    reduced = {axis.symbol for expr in kernel.expressions() for axis in getattr(expr, "axes", ())}
    vector = (*others, *reduced)
    return Schedule((first, *others), rows=1, parallel=1, vector=vector, width=8, **options)


def body(nest: LoopNest) -> str:
    """The statements of a nest as text, without the head."""
    lines = str(nest).splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith("  parallel"))
    return dedent("\n".join(lines[start + 1 :]))


def loops(statements: tuple[Statement, ...]) -> list[Loop]:
    return [each for each in statements if isinstance(each, Loop)]


def softmax() -> Kernel:
    return flat(lambda x: F.softmax(x, -1), "f32[64, 128]")


# Visits.


def test_softmax_visits_a_row_three_times() -> None:
    kernel = softmax()
    nest = build_nest(kernel, rows(kernel))
    assert nest.extent == 64
    assert [loop.kind for loop in loops(nest.body)] == [LoopKind.VECTOR] * 3
    assert body(nest) == dedent("""\
        v0: f32 = nothing yet of max_number
        vector i1 < 128 by 8:
          v0 = max_number(v0, b0[i1+128*_p])
        v1: f32 = nothing yet of sum
        vector i1 < 128 by 8:
          v1 = sum(v1, decay((b0[i1+128*_p] - v0)))
        vector i1 < 128 by 8:
          o0[i1+128*_p] = (decay((b0[i1+128*_p] - v0)) / v1)""")


def test_reductions_that_do_not_need_each_other_share_a_loop() -> None:
    kernel = flat(lambda x: F.max(x, axis=1) + F.sum(x, axis=1), "f32[64, 128]")
    nest = build_nest(kernel, rows(kernel))
    (loop,) = loops(nest.body)
    assert len(loop.body) == 2


def test_a_reduction_that_needs_another_comes_after_it() -> None:
    kernel = flat(
        lambda x: F.sum(F.exp(x - F.max(x, axis=1, keepdims=True)), axis=1), "f32[64, 128]"
    )
    assert len(loops(build_nest(kernel, rows(kernel)).body)) == 2


def test_what_is_of_a_row_is_written_once_a_row() -> None:
    kernel = flat(lambda x: F.sum(x, axis=1) * 2.0, "f32[64, 128]")
    nest = build_nest(kernel, rows(kernel))
    assert body(nest).splitlines()[-1] == "o0[_p] = (v0 * 2.0:f32)"


# Keeping.


def test_keeping_a_row_computes_its_exponentials_once() -> None:
    kernel = softmax()
    nest = build_nest(kernel, rows(kernel, cache_row=True))
    (scratch,) = nest.scratch
    assert scratch.shape == (128,)
    last = loops(nest.body)[2]
    assert "decay" not in str(last.body[0])
    assert "row0[i1] = decay((b0[i1+128*_p] - v0))" in str(nest)


def test_what_is_read_from_several_arrays_is_kept() -> None:
    kernel = flat(lambda x, y: (x + y) / F.sum(x + y, axis=1, keepdims=True), *["f32[64, 128]"] * 2)
    nest = build_nest(kernel, rows(kernel, cache_row=True))
    assert "row0[i1] = (b0[i1+128*_p] + b1[i1+128*_p])" in str(nest)
    assert str(loops(nest.body)[1].body[0]).count("b0") == 0


def test_what_is_kept_is_read_back_by_a_visit_along_other_axes() -> None:
    def normalized(x: Any, scale: Any) -> Any:
        grouped = F.reshape(x, (64, 4, 32))
        return F.exp(grouped) / F.sum(F.exp(grouped), axis=(1, 2), keepdims=True) * scale

    kernel = flat(normalized, "f32[64, 128]", "f32[4, 1]")
    nest = build_nest(kernel, rows(kernel, cache_row=True))
    assert re.search(r"row0\[(r\w+)\] = exp\(b0\[128\*_p\+\1\]\)", str(nest))
    assert "row0[32*i1+i2] / v0" in str(nest)


def test_what_is_cheap_is_computed_again_rather_than_kept() -> None:
    kernel = flat(lambda x: (x + 1.0) / F.sum(x + 1.0, axis=1, keepdims=True), "f32[64, 128]")
    assert build_nest(kernel, rows(kernel, cache_row=True)).scratch == ()


def test_a_row_that_no_cache_holds_is_not_kept() -> None:
    kernel = flat(lambda x: F.softmax(x, -1), "f32[64, 100000]")
    assert build_nest(kernel, rows(kernel, cache_row=True)).scratch == ()


def test_a_row_of_unknown_length_is_not_kept() -> None:
    kernel = flat(lambda x: F.softmax(x, -1), "f32[64, n]")
    assert build_nest(kernel, rows(kernel, cache_row=True)).scratch == ()


# Reciprocals.


def test_a_softmax_divides_once_a_row() -> None:
    kernel = softmax()
    nest = build_nest(kernel, rows(kernel, cache_row=True))
    assert str(nest).splitlines()[-1].endswith("(row0[i1] * (1.0:f32 / v1))")


def test_a_sum_that_may_be_tiny_is_divided_by_each_time() -> None:
    kernel = flat(lambda x: x / F.sum(x, axis=1, keepdims=True), "f32[64, 128]")
    nest = build_nest(kernel, rows(kernel, cache_row=True))
    assert str(nest).splitlines()[-1].endswith("(b0[i1+128*_p] / v0)")


def test_a_square_root_is_divided_by_once_a_row() -> None:
    kernel = flat(lambda x: x / F.sqrt(F.sum(x * x, axis=1, keepdims=True) + 1.0), "f32[64, 128]")
    assert "* (1.0:f32 / sqrt(" in str(build_nest(kernel, rows(kernel, cache_row=True)))


# Prefetching.


def test_the_next_row_is_asked_for_in_the_second_visit() -> None:
    kernel = softmax()
    row = kernel.axes[0].symbol
    nest = build_nest(kernel, rows(kernel, prefetch=row))
    visits = [str(loop.body) for loop in loops(nest.body)]
    assert ["Prefetch" in visit for visit in visits] == [False, True, False]
    assert "prefetch b0[i1+128*_p+128]" in str(nest)


def test_elements_are_asked_for_that_many_bytes_before_they_are_read() -> None:
    kernel = softmax()
    nest = build_nest(kernel, rows(kernel, prefetch_bytes=256))
    visits = [str(loop.body) for loop in loops(nest.body)]
    assert ["Prefetch" in visit for visit in visits] == [True, False, False]
    assert "prefetch b0[i1+128*_p+64]" in str(nest)


# Jamming.


def columns(kernel: Kernel, **options: Any) -> Schedule:
    symbols = tuple(axis.symbol for axis in kernel.axes)
    last = len(symbols) - 1
    return Schedule(symbols, rows=last, parallel=last, vector=symbols[-1:], width=8, **options)


def test_jamming_computes_several_iterations_at_once() -> None:
    kernel = flat(lambda x, b: x * b, "f32[12, 16]", "f32[16]")
    nest = build_nest(kernel, columns(kernel, jam=((kernel.axes[0].symbol, 4),)))
    assert nest.extent == 3
    assert body(nest) == dedent("""\
        vector i1 < 16 by 8:
          o0[i1+64*_p] = (b0[i1+64*_p] * b1[i1])
          o0[i1+64*_p+16] = (b0[i1+64*_p+16] * b1[i1])
          o0[i1+64*_p+32] = (b0[i1+64*_p+32] * b1[i1])
          o0[i1+64*_p+48] = (b0[i1+64*_p+48] * b1[i1])""")


def test_what_is_left_over_of_a_jam_is_computed_more_than_once() -> None:
    kernel = flat(lambda x, b: x * b, "f32[10, 16]", "f32[16]")
    nest = build_nest(kernel, columns(kernel, jam=((kernel.axes[0].symbol, 4),)))
    assert nest.extent == 3
    assert "o0[i1+16*min(4*_p+3, 9)]" in str(nest)


def test_a_jam_of_an_unknown_number_is_clamped() -> None:
    kernel = flat(lambda x, b: x * b, "f32[n, 16]", "f32[16]")
    nest = build_nest(kernel, columns(kernel, jam=((kernel.axes[0].symbol, 4),)))
    assert str(nest.extent) == "(n+3)//4"
    assert "n-1" in str(nest)


def transposed(block: int) -> LoopNest:
    kernel = flat(lambda x: F.transpose(x, (1, 0)), "f32[16, 30]")
    first = kernel.axes[0].symbol
    return build_nest(kernel, columns(kernel, jam=((first, 8),), block=(first, block)))


def test_the_last_of_a_jam_begins_early_where_one_thread_has_the_one_before() -> None:
    nest = transposed(block=2)
    assert "min(8*i0i+16*_p, 22)" in str(nest)
    assert verify_nest(nest) > 0


def test_the_last_of_a_jam_is_clamped_where_it_is_a_thread_s_own() -> None:
    nest = transposed(block=3)
    assert "29)" in str(nest)
    assert verify_nest(nest) > 0


# Blocks and tiles.


def test_a_block_of_an_axis_moves_next_to_the_vector_loop() -> None:
    kernel = flat(lambda x: F.transpose(x, (1, 0)), "f32[32, 64]")
    nest = build_nest(kernel, columns(kernel, block=(kernel.axes[0].symbol, 16)))
    assert nest.extent == 4
    (outer,) = loops(nest.body)
    assert (outer.kind, outer.extent) == (LoopKind.SERIAL, 16)
    (inner,) = loops(outer.body)
    assert (inner.kind, inner.extent) == (LoopKind.VECTOR, 32)


def test_the_last_block_is_as_long_as_what_is_left() -> None:
    kernel = flat(lambda x: F.transpose(x, (1, 0)), "f32[32, 50]")
    nest = build_nest(kernel, columns(kernel, block=(kernel.axes[0].symbol, 16)))
    (outer,) = loops(nest.body)
    assert str(outer.extent) == "min(-16*_p+50, 16)"


def test_tiles_of_a_long_row_are_parallel() -> None:
    kernel = flat(lambda x: F.exp(x), "f32[1000]")
    nest = build_nest(kernel, columns(kernel, tile=256))
    assert nest.extent == 4
    (loop,) = loops(nest.body)
    assert str(loop.start) == "256*_p"
    assert str(loop.extent) == "min(-256*_p+1000, 256)"


def test_several_parallel_axes_are_one_range() -> None:
    kernel = flat(lambda x, y: x + y, "f32[3, 1, 5, 8]", "f32[1, 4, 1, 8]")
    nest = build_nest(kernel, columns(kernel))
    assert nest.extent == 60
    assert "_p//5%4" in str(nest) or "_p//5 % 4" in str(nest) or "(_p//5)%4" in str(nest)


# Sums in parts.


def test_a_sum_of_what_another_sum_says_is_in_parts_too() -> None:
    kernel = flat(lambda x: F.variance(x, 0), "f32[1000, 64]")
    (column,) = kernel.axes
    schedule = Schedule((column.symbol,), 1, 0, (column.symbol,), 8, partial=64)
    text = str(build_nest(kernel, schedule))
    assert "r9_0" in text
    assert "r9_1" in text


def test_the_last_sum_of_many_parts_has_more_digits() -> None:
    kernel = flat(lambda x: F.sum(x, axis=0), "f32[1000, 64]")
    (column,) = kernel.axes
    schedule = Schedule((column.symbol,), 1, 0, (column.symbol,), 8, partial=64)
    text = str(build_nest(kernel, schedule))
    assert "v0 = sum(v0, cast<f64>(v1))" in text
    assert "cast<f32>(v0)" in text


def test_sums_over_the_same_axes_in_another_order_have_one_vector_loop_each() -> None:
    kernel = parse_kernel(
        dedent("""\
        kernel both(b0: f32[24]) -> (o0: f32[1]):
          for once:
            v0 = sum(r0_0 < 6, r0_1 < 5: b0[3*r0_0+2*r0_1])
            v1 = sum(r0_1 < 5, r0_0 < 6: b0[-3*r0_0+2*r0_1+15])
            o0[0] = (v0 * v1)
        """)
    )
    nest = build_nest(kernel, choose(kernel, machine_named("x86-64")))
    kinds = [(outer.kind, loops(outer.body)[0].kind) for outer in loops(nest.body)]
    assert kinds == [(LoopKind.SERIAL, LoopKind.VECTOR)] * 2
    verify_nest(nest)
