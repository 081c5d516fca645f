"""The knobs of a tunable choice: their values, and what each changes.

A value is a plain number. Every combination is a valid way to compute the same; what it may change
is the order in which sums are added up, and so their last bits.

=============  =====================================================================================
of a schedule  ``width`` lanes at a time; ``tile`` elements of a long row to an iteration; ``jam``
               outputs of a contraction at once; ``keep`` a row's values; ``prefetch`` the next row;
               ``streaming`` stores past the cache; ``grain`` iterations to a thread
of a product   ``height`` rows and ``columns`` of the tile in registers; ``depth`` products to a
               sum; ``block_tiles`` and ``block_panels`` of a block; ``grain``
of attention   ``queries`` and ``keys`` of a tile
=============  =====================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from monograph.ir.dims import Dim
from monograph.targets.cpu.attention.tiles import AttentionTile
from monograph.targets.cpu.costs import GENERIC
from monograph.targets.cpu.loops.schedule import Schedule
from monograph.targets.cpu.machine import Machine
from monograph.targets.cpu.products.tiles import Tiling
from monograph.targets.cpu.products.tiling import row_segments
from monograph.targets.cpu.tuning import Choice, Edits

KNOBS = (
    *("width", "tile", "jam", "cache_row", "prefetch", "streaming", "grain"),
    *("height", "columns", "depth", "block_tiles", "block_panels"),
    *("queries", "keys"),
)
"""Every knob, by name."""
MAX_REGISTERS_PER_VECTOR = 8
"""Registers that one vector of a schedule may span."""
TILE_ROWS = range(2, 13)
LATENCY_ROWS = GENERIC.fma_latency_vectors // 2
"""Rows of a tile of two vectors that are multiplied in the time that one sum takes: an edit means
the same tiles on whatever machine it is read."""
BLOCK_STEPS = (128, 192, 256, 384, 512)


def knobs(choice: Choice, machine: Machine) -> Mapping[str, tuple[int, ...]]:
    """For every knob, those that promise most first, the values that it does not have now."""
    if isinstance(choice, Tiling):
        return _tiling_knobs(choice, machine)
    if isinstance(choice, AttentionTile):
        return _attention_knobs(choice)
    return _schedule_knobs(choice, machine)


def edit(choice: Choice, edits: Edits) -> Choice:
    """The choice with its knobs turned."""
    if isinstance(choice, Tiling):
        return _edit_tiling(choice, edits)
    if isinstance(choice, AttentionTile):
        return replace(
            choice,
            queries=edits.get("queries", choice.queries),
            keys=edits.get("keys", choice.keys),
        )
    return _edit_schedule(choice, edits)


# Schedules ----------------------------------------------------------------------------------------


def _schedule_knobs(schedule: Schedule, machine: Machine) -> Mapping[str, tuple[int, ...]]:
    lanes = machine.vector_bytes // 4
    found: dict[str, tuple[int, ...]] = {}
    if schedule.vector and schedule.block is None and schedule.width > 1:
        near = (schedule.width // 2, schedule.width * 2)
        found["width"] = tuple(w for w in near if lanes <= w <= MAX_REGISTERS_PER_VECTOR * lanes)
    if schedule.jam and schedule.block is None:
        ((_, copies),) = schedule.jam[:1]
        found["jam"] = tuple(n for n in (2, 3, 4, 6) if n != copies)
    if schedule.streaming:
        found["streaming"] = (0,)
    if schedule.prefetch is not None:
        found["prefetch"] = (0,)
    if schedule.tile > schedule.width and schedule.block is None:
        found["tile"] = (schedule.tile // 2, schedule.tile * 2)
    if schedule.cache_row:
        found["cache_row"] = (0,)
    found["grain"] = _grains(schedule.grain)
    return {name: values for name, values in found.items() if values}


def _edit_schedule(schedule: Schedule, edits: Edits) -> Schedule:
    changed = schedule
    if "width" in edits:
        # Rows side by side are cut into tiles of one vector.
        tile = edits["width"] if schedule.tile == schedule.width else schedule.tile
        changed = replace(changed, width=edits["width"], tile=tile)
    if "tile" in edits:
        changed = replace(changed, tile=edits["tile"])
    if "jam" in edits and schedule.jam:
        symbol, _ = schedule.jam[0]
        changed = replace(changed, jam=((symbol, edits["jam"]), *schedule.jam[1:]))
    if edits.get("streaming") == 0:
        changed = replace(changed, streaming=frozenset(), pipelined_rows=0)
    if edits.get("prefetch") == 0:
        changed = replace(changed, prefetch=None)
    if edits.get("cache_row") == 0:
        changed = replace(changed, cache_row=False)
    return replace(changed, grain=edits.get("grain", changed.grain))


# Products -----------------------------------------------------------------------------------------


def _tiling_knobs(tiling: Tiling, machine: Machine) -> Mapping[str, tuple[int, ...]]:
    lanes = machine.vector_bytes // 4
    vectors = max(1, tiling.columns // lanes)
    rows = _row_count(tiling)
    fits = [
        height
        for height in TILE_ROWS
        if height != tiling.height
        and (rows is None or height <= rows)
        and height * vectors + vectors + 1 <= machine.registers
    ]
    # A row more or less, and what halves the tiles: others are rarely better.
    near = sorted(fits, key=lambda height: abs(height - tiling.height))[:3]
    wide = [
        count * lanes
        for count in (1, 2, 3, 4, 8)
        if count != vectors and tiling.height * count + count + 1 <= machine.registers
    ]
    found = {
        "height": tuple(near),
        "columns": tuple(wide),
        "block_panels": _around(tiling.block_panels),
        "block_tiles": _around(tiling.block_tiles),
        "depth": tuple(d for d in BLOCK_STEPS if d != tiling.depth) if tiling.depth else (),
        "grain": _grains(tiling.grain),
    }
    return {name: values for name, values in found.items() if values}


def _row_count(tiling: Tiling) -> int | None:
    """How many rows there are; None if nobody knows."""
    counts = [each.count for each in tiling.rows if isinstance(each.count, int)]
    if not counts or len(counts) < len(tiling.rows):
        return None
    return sum(each.rows * count for each, count in zip(tiling.rows, counts, strict=True))


def _edit_tiling(tiling: Tiling, edits: Edits) -> Tiling:
    changed = tiling
    if "height" in edits:
        rows = _row_count(tiling)
        segments = () if rows is None else row_segments(rows, edits["height"], LATENCY_ROWS)
        height = segments[0].rows if segments else edits["height"]
        changed = replace(changed, rows=segments, height=height)
    return replace(
        changed,
        columns=edits.get("columns", changed.columns),
        depth=edits.get("depth", changed.depth),
        block_tiles=edits.get("block_tiles", changed.block_tiles),
        block_panels=edits.get("block_panels", changed.block_panels),
        grain=edits.get("grain", changed.grain),
    )


# Attention ----------------------------------------------------------------------------------------


def _attention_knobs(tile: AttentionTile) -> Mapping[str, tuple[int, ...]]:
    found = {
        "keys": _multiples(tile.keys, tile.rows),
        "queries": _multiples(tile.queries, tile.columns),
    }
    return {name: values for name, values in found.items() if values}


def _multiples(size: int, unit: int) -> tuple[int, ...]:
    """About half as much, and up to twice, in whole units."""
    near = (max(unit, size * quarters // 4 // unit * unit) for quarters in (2, 3, 6, 8))
    return tuple(dict.fromkeys(n for n in near if n != size))


def _around(count: int) -> tuple[int, ...]:
    """Half as many, and twice and four times."""
    return tuple(dict.fromkeys(n for n in (count // 2, count * 2, count * 4) if 0 < n != count))


def _grains(grain: Dim) -> tuple[int, ...]:
    if not isinstance(grain, int):
        return ()
    return tuple(dict.fromkeys(n for n in (grain // 4, grain * 4, grain * 16) if 0 < n != grain))
