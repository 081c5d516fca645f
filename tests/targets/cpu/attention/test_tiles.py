"""The loops of attention: every access in bounds, no races, and nothing computed in vain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from monograph.ir.dims import Dim, Symbol
from monograph.ir.types import bool_, f32
from monograph.kernel import expr as e
from monograph.kernel.attention import Position, StreamedAttention
from monograph.kernel.expr import Buffer, Expr
from monograph.kernel.flatten import flat_buffer, flat_expr, offset
from monograph.kernel.kernel import Store
from monograph.targets.cpu.attention.loops import ceiling, part, split
from monograph.targets.cpu.attention.operands import copy_operands, lie_apart
from monograph.targets.cpu.attention.split_kv import AttentionPieces, attend_in_pieces
from monograph.targets.cpu.attention.tiles import AttentionTile, stream
from monograph.targets.cpu.nests.loop_nest import If, Loop, LoopNest, Statement, While, Write
from monograph.targets.cpu.nests.verify import verify_nest

TILE = AttentionTile(rows=2, columns=4, queries=6, keys=8)
COPYING = replace(TILE, copied=True)


def attention(
    queries: Dim,
    keys: Dim,
    *,
    causal: bool = False,
    masked: bool = False,
    batch: tuple[Dim, ...] = (1,),
    heads: int = 2,
    shared: int = 1,
    depth: int = 3,
    value_depth: int = 5,
) -> StreamedAttention:
    """An attention whose operands are row-major buffers."""

    def read(name: str, *shape: Dim, dtype: object = f32) -> Buffer:
        return Buffer(name, bool_ if dtype is bool_ else f32, shape)

    query = read("q", *batch, heads, queries, depth)
    key = read("k", *batch, shared, keys, depth)
    value = read("v", *batch, shared, keys, value_depth)
    mask = read("m", *batch, heads, queries, keys, dtype=bool_)
    result = read("o", *batch, heads, queries, value_depth)

    def element(buffer: Buffer) -> object:
        return lambda position: flat_expr(e.load(buffer, position), {})

    def store(position: Position, stored: Expr) -> Sequence[Store]:
        return (Store(flat_buffer(result), (offset(result, position),), stored),)

    return StreamedAttention(
        name="attention",
        dtype=f32,
        batch=batch,
        heads=heads,
        shared=shared,
        queries=queries,
        keys=keys,
        depth=depth,
        value_depth=value_depth,
        scale=1.0,
        causal=causal,
        query=element(query),
        key=element(key),
        value=element(value),
        mask=element(mask) if masked else None,
        store=store,
    )


def pieces(keys: int, heads: int = 2, queries: int = 1) -> AttentionPieces:
    return AttentionPieces(heads, queries, keys, columns=4, depth=4, value_depth=4)


def statements(body: Sequence[Statement]) -> Iterator[Statement]:
    for statement in body:
        yield statement
        if isinstance(statement, Loop | If | While):
            yield from statements(statement.body)


@pytest.mark.parametrize("tile", [TILE, COPYING])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(6, 8), (7, 9), (13, 17), (1, 1), (5, 30), (30, 5)])
def test_tiles_stay_in_bounds_and_out_of_each_others_way(
    tile: AttentionTile, causal: bool, queries: int, keys: int
) -> None:
    made = stream(attention(queries, keys, causal=causal, masked=True), tile)
    assert verify_nest(made) > 0


@pytest.mark.parametrize("causal", [False, True])
def test_tiles_of_symbolic_size(causal: bool) -> None:
    batch, queries, keys = (Symbol(name) for name in ("b", "q", "k"))
    made = stream(attention(queries, keys, causal=causal, masked=True, batch=(batch,)), TILE)
    assert [symbol.name for symbol in made.sizes] == ["b", "k", "q"]
    for sizes in ((2, 7, 9), (1, 1, 1), (1, 14, 5)):
        assert verify_nest(made, dict(zip((batch, queries, keys), sizes, strict=True))) > 0


@pytest.mark.parametrize("keys", [1, 8, 9, 25])
def test_pieces_stay_in_bounds_and_out_of_each_others_way(keys: int) -> None:
    problem = attention(1, keys, masked=True, batch=(2, 2), heads=4, shared=2)
    first, join = attend_in_pieces(problem, pieces(8))
    assert verify_nest(first) > 0
    assert (join is None) == (keys <= 8)
    if join is not None:
        assert verify_nest(join) > 0
        assert set(first.outputs) == set(join.inputs[:3])


def test_pieces_of_symbolic_length() -> None:
    keys = Symbol("k")
    first, join = attend_in_pieces(attention(2, keys, causal=True), pieces(8, queries=2))
    assert join is not None
    for length in (1, 8, 30):
        assert verify_nest(first, {keys: length}) > 0
        assert verify_nest(join, {keys: length}) > 0


def count(nest: LoopNest) -> int:
    """How many accesses the loops make."""
    return verify_nest(nest)


def test_causal_queries_leave_out_the_panels_that_they_do_not_see() -> None:
    tile = AttentionTile(rows=2, columns=4, queries=24, keys=24)
    whole, half = (
        count(stream(attention(48, 48, causal=causal, heads=1), tile)) for causal in (False, True)
    )
    assert half < 0.65 * whole


def test_only_scores_of_one_tile_exist() -> None:
    made = stream(attention(1000, 1000), TILE)
    sizes = {buffer.name: buffer.shape[0] for buffer in made.scratch}
    assert sizes["scores"] == TILE.columns * TILE.keys  # of one panel of queries
    assert sizes["result"] == 8 * 5  # six queries are two panels of four


def test_one_tile_of_keys_needs_no_result_beside_the_output() -> None:
    made = stream(attention(1000, TILE.keys), TILE)
    assert "result" not in {buffer.name for buffer in made.scratch}


def test_heads_that_share_their_keys_are_rows_of_one_product() -> None:
    first, _ = attend_in_pieces(attention(1, 8, heads=2, shared=1), pieces(8, heads=2))
    assert first.extent == 1
    written = {each.buffer.name for each in statements(first.body) if isinstance(each, Write)}
    assert {"scores", "o"} <= written


def test_keys_and_values_are_copied_only_if_they_are_computed() -> None:
    problem = attention(6, 9)
    same, copies = copy_operands(problem)
    assert same is problem
    assert copies == ()

    def doubled(position: Position) -> Expr:
        return e.apply("multiply", problem.key(position), e.literal(2.0, f32))

    changed, (copy,) = copy_operands(replace(problem, key=doubled))
    assert copy.outputs[0].shape == (9 * 3,)
    assert [buffer.name for buffer in stream(changed, TILE).inputs] == ["q", "keys", "v"]


def test_rows_lie_apart_if_others_are_between_them() -> None:
    problem = attention(6, 9)
    assert not lie_apart(problem)

    def scattered(position: Position) -> Expr:
        heads = Buffer("k", f32, (1, 9, 4, 3))
        batch, head, key, last = position
        return flat_expr(e.load(heads, (batch, key, head, last)), {})

    assert lie_apart(replace(problem, key=scattered))


def test_sizes_are_cut_into_parts() -> None:
    assert ceiling(9, 4) == 3
    assert part(4, 8, Symbol("s")) == 4
    assert part(4, 9, 8) == 1
    assert split(7, 1) == (0, 7)
    assert split(7, 3) == (1, 2)
