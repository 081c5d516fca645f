"""Writes that lie together are stored as whole vectors."""

from __future__ import annotations

from monograph.ir.dims import Dim, Symbol
from monograph.ir.types import f32
from monograph.kernel import expr as e
from monograph.kernel.expr import Buffer, Expr
from monograph.targets.cpu.llvm.joined_writes import join_writes
from monograph.targets.cpu.nests.loop_nest import Let, Write

AT = Symbol("i", 0, 1000)
OUTPUT = Buffer("o0", f32, (100_000,))
INPUT = Buffer("b0", f32, (100_000,))


def write(place: Dim, value: Expr | None = None, buffer: Buffer = OUTPUT) -> Write:
    return Write(buffer, e.index(place), value or e.load(INPUT, (e.index(AT),)))


def test_the_parts_of_complex_numbers_are_one_store() -> None:
    body = (write(2 * AT), write(2 * AT + 1))
    joins = join_writes(body, AT, 8)
    assert {id(each) for each in body} == joins.keys()
    (join,) = {id(each): each for each in joins.values()}.values()
    assert join.writes == body
    assert join.step == 2


def test_the_channels_of_a_pixel_are_one_store() -> None:
    body = tuple(write(4 * AT + k) for k in (2, 0, 3, 1))
    joins = join_writes(body, AT, 16)
    assert {id(each) for each in body} == joins.keys()
    (join,) = {id(each): each for each in joins.values()}.values()
    assert join.step == 4
    assert join.writes == (body[1], body[3], body[0], body[2])


def test_a_square_is_turned() -> None:
    body = tuple(write(64 * AT + k) for k in range(16))
    joins = join_writes(body, AT, 8)
    assert len(joins) == 16
    assert len({id(each) for each in joins.values()}) == 2


def test_writes_stay_alone_if_they_do_not_fill_a_square() -> None:
    assert not join_writes(tuple(write(64 * AT + k) for k in range(7)), AT, 8)
    assert not join_writes((write(3 * AT), write(3 * AT + 2)), AT, 8)
    assert not join_writes((write(AT), write(AT + 500)), AT, 8)


def test_nothing_waits_that_is_read_meanwhile() -> None:
    back = e.load(OUTPUT, (e.index(2 * AT),))
    body = (write(2 * AT), write(2 * AT + 1), Let(e.variable("v", f32), back))
    assert not join_writes(body, AT, 8)
