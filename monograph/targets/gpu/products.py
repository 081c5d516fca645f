"""Matrix products and convolutions on tensor cores, with what is fused before and after them.

    out[m, n] = epilogue(sum(k: left[m, k] * right[k, n]))

A program computes a tile of the result: a loop over k loads a tile of each operand and multiplies
them. The operands are formulas, so a cast, a transpose, a gather or the windows of a convolution
(implicit GEMM) are computed as the tile is loaded, and nothing is stored between. The epilogue
works on the sums while they are in registers. Programs that read the same columns of the right
operand run at the same time, so that these are in the L2 cache.
"""

from __future__ import annotations

from collections.abc import Mapping

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, likely_size
from monograph.ir.types import DType, bf16, f16, f32, i8, i32
from monograph.kernel import expr as e
from monograph.kernel.contraction import Contraction
from monograph.kernel.kernel import Kernel
from monograph.targets.gpu.cost import H200, buffer_bytes, memory_time, waves
from monograph.targets.gpu.joint_products import as_contractions
from monograph.targets.gpu.persistent import PersistentWriter, is_described
from monograph.targets.gpu.plan import Configuration, Family, divide_up, next_power_of_two
from monograph.targets.gpu.product_writer import ProductWriter, narrow_operand, without_cast
from monograph.targets.gpu.source import TritonKernel
from monograph.targets.plan import Refusal

MIN_TILE_SIDE = 16
"""The least rows, columns and steps of k that a tensor core multiplies."""
MIN_SIDES = [2, 16, 16]
"""The least rows, columns and steps of k for which tiles of 16 are worth it."""
MIN_PIECE = 256
"""Steps of k from which a part of a product is worth a program."""
MAX_SUMS = 128
"""Sums that a thread holds in registers."""
MIN_TILES_TO_STAY = H200.multiprocessors
"""Tiles from which programs stay: with fewer, each has one and nothing overlaps."""
ROW_TILES_PER_GROUP = 8
"""Tiles of rows whose programs run together, so that they find the same columns in the cache."""
TILE_MICROSECONDS = 1.0
"""What a tile takes beside its products: filling the pipeline, and the epilogue."""


def configure_product(kernel: Kernel) -> tuple[Configuration, ...] | Refusal:
    """Tiles of a contraction, or of several of one operand, multiplied by tensor cores."""
    contractions = as_contractions(kernel)
    if not contractions:
        return Refusal("it is no matrix product")
    contraction = contractions[0]
    multiplied = _product_dtype(contractions)
    if multiplied is None:
        return Refusal(
            f"tensor cores do not multiply what sums up to {contraction.reduction.dtype}"
        )
    sides = [contraction.m, (*contraction.outer, *contraction.n), contraction.k]
    if not all(sides):
        return Refusal("one row or one column: there is no tile to reuse operands in")
    sizes = [contraction.size(axes) for axes in sides]
    short = [s for s, least in zip(sizes, MIN_SIDES, strict=True) if likely_size(s) < least]
    if short:
        return Refusal(f"a side of {short[0]} is too short")
    tiles = F32_TILES if multiplied is f32 else TILES
    fitting = [tile for tile in tiles if _fits(sizes, tile, len(contractions))] or tiles[-1:]
    found = [_configuration(contractions, sizes, tile) for tile in fitting]
    operands = [narrow_operand(x, multiplied) for x in (contraction.left, contraction.right)]
    if len(contractions) > 1 or multiplied not in (f16, bf16):
        return tuple(found)
    if is_described(contraction, *operands):
        staying = [x for x in PERSISTENT_TILES if _fits(sizes, x, 1) and _stays(sizes, x)]
        programs = {"PROGRAMS": H200.multiprocessors}
        found = [_configuration(contractions, sizes, tile, programs) for tile in staying] + found
    return tuple(found)


def _configuration(
    contractions: tuple[Contraction, ...],
    sizes: list[Dim],
    tile: Tile,
    more: Mapping[str, int] | None = None,
) -> Configuration:
    blocks = {
        "ROWS": tile.rows,
        "COLUMNS": tile.columns,
        "DEPTH": tile.depth,
        "GROUPED": ROW_TILES_PER_GROUP,
    }
    time = _time(contractions, sizes, tile)
    return Configuration({**blocks, **(more or {})}, tile.warps, tile.stages, time)


@dataclass(frozen=True)
class Tile:
    """What a program multiplies: rows and columns of the result, steps of k at a time."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int
    share: float
    """The share of the chip's rate that tiles like it reach on large products, measured."""


TILES = (
    Tile(128, 256, 64, 8, 3, 0.88),
    Tile(128, 128, 64, 8, 4, 0.78),
    Tile(128, 128, 64, 4, 3, 0.77),
    Tile(64, 128, 64, 4, 4, 0.62),
    Tile(128, 64, 64, 4, 3, 0.62),
    Tile(64, 64, 64, 4, 4, 0.45),
    Tile(64, 32, 64, 4, 4, 0.25),
    Tile(32, 64, 128, 4, 4, 0.25),
    Tile(16, 64, 128, 4, 4, 0.15),
    Tile(16, 32, 128, 4, 4, 0.1),
    Tile(32, 16, 64, 4, 4, 0.1),
    Tile(16, 16, 32, 4, 3, 0.05),
)
"""For operands of 16 bits and less."""
PERSISTENT_TILES = (Tile(128, 256, 64, 8, 3, 0.93), Tile(128, 128, 64, 8, 4, 0.84))
"""For programs that stay (``persistent``)."""
F32_TILES = (
    Tile(64, 64, 32, 4, 3, 0.04),
    Tile(32, 32, 32, 4, 3, 0.02),
    Tile(16, 16, 32, 4, 3, 0.01),
)
"""For f32, which is multiplied exactly, without tensor cores."""


def _fits(sizes: list[Dim], tile: Tile, products: int) -> bool:
    """Whether a tile has no more empty lines than a smaller one would have, and has memory."""
    most = [max(MIN_TILE_SIDE, next_power_of_two(likely_size(size))) for size in sizes]
    small = tile.rows <= most[0] and tile.columns <= most[1] and tile.depth <= max(32, most[2])
    sums = products * tile.rows * tile.columns // (32 * tile.warps)
    shared = 2 * (tile.rows + products * tile.columns) * tile.depth * tile.stages
    return small and sums <= MAX_SUMS and shared <= H200.shared_bytes


def _stays(sizes: list[Dim], tile: Tile) -> bool:
    """Whether programs that stay have more than one tile to compute."""
    rows, columns, _ = sizes
    tiles = likely_size(divide_up(rows, tile.rows)) * likely_size(divide_up(columns, tile.columns))
    return tiles > MIN_TILES_TO_STAY


def _time(contractions: tuple[Contraction, ...], sizes: list[Dim], tile: Tile) -> float:
    """Microseconds: each multiprocessor multiplies its tiles, while operands come from memory."""
    rows, columns, depth = sizes
    contraction, products = contractions[0], len(contractions)
    tiles = likely_size(divide_up(rows, tile.rows)) * likely_size(divide_up(columns, tile.columns))
    tiles *= likely_size(contraction.size(contraction.batch))
    share = tile.share if products == 1 else min(0.9, tile.share * 1.15)
    rate = share * H200.tensor / H200.multiprocessors
    work = 2 * products * tile.rows * tile.columns * likely_size(depth) / rate + TILE_MICROSECONDS
    in_flight = (tile.rows + products * tile.columns) * tile.depth * 2 * (tile.stages - 1)
    moved = memory_time(buffer_bytes(contraction.kernel.buffers), tiles, in_flight)
    return max(H200.launch + waves(tiles, H200.multiprocessors) * work, moved)


def write_product(
    kernel: Kernel, configuration: Configuration, comment: tuple[str, ...]
) -> TritonKernel:
    """A kernel that is made of contractions, multiplied by tensor cores."""
    contractions = as_contractions(kernel)
    multiplied = _product_dtype(contractions)
    assert multiplied is not None
    writer = PersistentWriter if "PROGRAMS" in configuration.blocks else ProductWriter
    return writer(contractions, multiplied, configuration).write(comment)


def split_product(kernel: Kernel) -> tuple[int, ...]:
    """Parts of k where the result has too few tiles to keep the chip busy."""
    contraction, *others = as_contractions(kernel)
    if others:
        return ()
    batch = contraction.size(contraction.batch)
    rows = contraction.size(contraction.m)
    columns = contraction.size((*contraction.outer, *contraction.n))
    depth = contraction.size(contraction.k)
    if not all(isinstance(size, int) for size in (batch, rows, columns, depth)):
        return ()
    tiles = (
        likely_size(batch)
        * likely_size(divide_up(rows, 128))
        * likely_size(divide_up(columns, 128))
    )
    return tuple(
        parts
        for parts in (2, 4, 8, 16)
        if tiles * parts <= 2 * H200.multiprocessors and likely_size(depth) >= parts * MIN_PIECE
    )


PRODUCT = Family(
    "product",
    "a product of tiles, on tensor cores where they multiply its dtype",
    configure_product,
    write_product,
    split_product,
)


def _product_dtype(contractions: tuple[Contraction, ...]) -> DType | None:
    """The dtype that tensor cores multiply: that of all operands in memory, or f32."""
    formulas = (contractions[0].left, *(each.right for each in contractions))
    summed = contractions[0].reduction.dtype
    if summed is i32:
        return i8 if all(without_cast(x).dtype is i8 for x in formulas) else None
    if summed is not f32:
        return None
    read = {load.dtype for load in e.find_loads(*formulas) if load.dtype.is_float}
    for narrow in (f16, bf16):
        if read == {narrow}:
            return narrow
    return f32
