"""The CPU cost table: latencies, cache lines and task sizes that schedules are chosen by.

They speak of cache lines, distances, cycles, and work that is worth a thread. Each was found by
measuring: the benchmark families that are named above a group are what another processor's would be
measured with (``make bench FAMILY=…``). A row of ``COSTS`` is a kind of processor, by LLVM's name;
what has no row of its own has the one of ``generic``. The sizes of caches and registers are not
here: the ``Machine`` knows them.

Numbers of three kinds stay beside the code that they are about, since no processor changes them:
how much code is written (terms of an unrolled sum, pieces of a kernel), the shapes that a kernel is
written for (columns of a panel, taps of a filter), and where sums are split, which decides how they
round: the same input gives the same bits on processors of equal vectors, whatever their caches.
"""

from __future__ import annotations

from monograph.dataclass import dataclass
from monograph.fusion.limits import FusionLimits


@dataclass(frozen=True)
class WinogradCosts:
    """Cycles of Winograd's method and of direct convolution (``convolution``)."""

    max_share: float = 0.9
    """The share of direct convolution's cycles under which the method is taken."""
    f2_cycles: tuple[int, int] = (40, 32)
    """To transform a vector of a tile's input, and of its products, by F(2×2)."""
    f2_strided_cycles: tuple[int, int] = (60, 45)
    """The same at stride two."""
    f2x4_cycles: tuple[int, int] = (88, 70)
    """The same by F(2×4)."""
    f4_cycles: tuple[int, int] = (190, 170)
    """The same by F(4×4)."""
    scattered_factor: int = 6
    """How much longer a transform takes whose channels do not lie together."""
    tile_overhead_cycles: int = 24
    """Cycles before and after the products of a register tile."""
    direct_peak_share: float = 0.93
    """The share of a core's peak that direct convolution reaches."""
    memory_bytes_per_cycle: int = 4
    """Bytes a cycle from memory."""
    cache_bytes_per_cycle: int = 16
    """Bytes a cycle from a core's own cache."""
    exposed_fetch_share: float = 0.4
    """The part of fetching planes that no product hides, where they fill much of the last cache."""


@dataclass(frozen=True)
class ProductCosts:
    """Sizes of products from which a way to read their operands pays (``matmul``)."""

    max_in_place_rows: int = 16
    """Rows up to which an array is read in place rather than packed first."""
    min_transposed_rows: int = 3
    """Rows from which it is worth its while to turn a right operand, or to ask for it ahead of
    time."""
    tiles_per_prefetch: int = 4
    """Tiles of a block that can ask for a panel together, a few lines each."""
    max_single_block_rows: int = 768
    """Rows up to which all of them are a block, so that packing the right operand for each block
    is packing it once, if they lie in tiles."""
    max_single_block_rows_in_place: int = 512
    """The same for rows that do not, and had better stay in the second cache."""
    panel_prefetch_steps: int = 8
    """Steps of k ahead of which what is packed is prefetched."""
    tile_prefetch_lines: int = 24
    """Cache lines ahead of which a packed tile of the left operand is prefetched."""
    min_prefetching_rows: int = 4
    """Rows from which a tile has enough sums to hide the time that an addition takes, and takes
    longer to multiply a panel than to read it."""
    min_shared_rows: int = 96
    """Rows from which threads can share them, a few tiles each."""
    min_packed_across_rows: int = 24
    """Rows that lie side by side from which they are packed in tiles."""
    min_tiled_rows: int = 96
    min_tiled_columns: int = 384
    """Rows and columns from which the left operand is packed in tiles."""
    min_packed_weight_columns: int = 32
    """Columns from which weights are stored in tiles."""
    max_short_steps: int = 64
    """Steps of k that are over so soon that what comes before and after them counts."""
    last_cache_bytes_per_cycle: int = 32
    """Bytes a cycle from the last cache to all threads together, where many read it."""
    multiplied_vectors_per_cycle: int = 2
    exposed_fetch_share: float = 0.4
    """The part of multiplying or of fetching a block, whichever is less, that the other does not
    hide."""
    task_multiplications: int = 1 << 17
    """Multiplications of weights in few bits that are worth handing to a thread."""


@dataclass(frozen=True)
class MatrixTileCosts:
    """Cycles of products by a matrix unit (``matmul``), of 32 rows by 32 columns at a time."""

    min_filled_share: float = 0.4
    """The share of their tiles that products fill for which other instructions are slower."""
    step_cycles: int = 64
    """To multiply 64 steps of k."""
    epilogue_cycles: int = 700
    """To store the results."""
    read_row_cycles: int = 20
    """To fetch as many rows of the left operand, 64 steps of k of each."""
    pack_row_cycles: int = 80
    """To store them in words first."""
    panel_cycles: int = 90
    """To fetch as many columns of weights."""
    block_cycles: int = 1000
    """To begin a block, and to end it."""


@dataclass(frozen=True)
class Costs:
    """A row of the table: what one kind of processor is quick and slow at."""

    # Caches, and what comes from behind them: `pointwise`, `rows`.

    line_bytes: int = 64
    """Bytes in a cache line."""
    set_bytes: int = 4096
    """Bytes after which lines fall on the same set of the first cache."""
    prefetch_bytes: int = 1536
    """Bytes before it is read that an element is prefetched, where it comes from memory."""
    far_cache_multiple: int = 4
    """From how many times a core's own cache on data counts as far away."""
    prefetched_share: int = 4
    """Of the last cache, the part that results share with the rows that are prefetched."""
    transposed_squares: int = 8
    """Squares side by side that are transposed at once: writes then reach over several lines."""
    far_transposed_squares: int = 16
    """The same for what comes from far: memory likes longer runs."""
    aliased_transposed_squares: int = 32
    """The same where lines fall on few sets anyway, and others are read beside them."""
    softmax_block_elements: int = 2048
    """Elements of a long row that a softmax finds the largest and the sum of at a time."""
    pipelined_rows: int = 16
    """Rows of a group in which one is written while the next one is read."""

    kept_row_bytes: int = 256 << 10
    """Bytes of the largest row that is kept for a second visit: it stays in a core's own cache."""
    min_streamed_lines: int = 64
    """Cache lines of a row from which it pays to write them past the cache wherever it begins."""

    # What a core does meanwhile: `pointwise`, `rows`, `matmul`.

    memory_bound_instructions: int = 10
    """Instructions an element up to which memory, not arithmetic, is what takes time."""
    self_prefetching_instructions: int = 4
    """Instructions an element up to which the processor's own prefetching is as good as any."""
    spilling_instructions: int = 40
    """Instructions an element from which on fewer elements at a time keep registers from
    spilling."""
    fma_latency_vectors: int = 8
    """Vectors that are multiplied in the time that one sum takes (``matmul``)."""

    # Work that is worth handing to a thread: all families, with several threads.

    task_instructions: int = 1 << 15
    """Instructions of a task: about ten microseconds."""
    task_elements: int = 4096
    """Elements of a long row that one task takes."""
    portion_multiplications: int = 2 << 20
    """Multiplications of a product's portion, about 40 microseconds: a thread takes neighbours one
    by one, so that all but its first panel are prefetched in time."""

    task_copied_bytes: int = 8 << 10
    """Bytes of zeros around an image from which on two processors write them."""
    min_tasks: int = 16
    """Tasks that large work is cut into at least, so that threads end together."""

    # Blocks of matrix products and tiles of attention: `matmul`, `attention`.

    block_steps: int = 256
    """Products that are summed in registers at a time."""
    block_rows: int = 128
    """Rows that stay in the second cache beside their sums and a few panels."""
    block_panels: int = 8
    """Panels of columns of a block."""
    block_sum_bytes: int = 256 << 10
    """Bytes that the sums of a block may take."""
    weight_rows_per_block: int = 48
    """Rows of weights that the columns of a block meet while they stay in the second cache."""
    copied_panels: int = 2
    """Panels copied at a time where all weights pass by: they stay in the first cache."""
    in_place_block_columns: int = 4096
    """Columns of a block that is read in place: whole pages, one after the other."""
    tile_queries: int = 256
    """Queries of a tile of attention."""
    tile_keys: int = 512
    """Keys of a tile of attention."""
    masked_tile_keys: int = 128
    """The same where a mask may hide all of them from the queries of a panel."""

    split_keys: int = 512
    """Keys that one thread streams, where few queries share what they read."""
    product: ProductCosts = ProductCosts()
    matrix_tiles: MatrixTileCosts = MatrixTileCosts()

    # Fusion: `pointwise`, `rows`, `models`.

    fusion: FusionLimits = FusionLimits()

    # Convolutions: `convolution`.

    plane_bytes: int = 1 << 17
    """Bytes of the largest channel that is copied on the way: it should stay near."""
    winograd: WinogradCosts = WinogradCosts()


GENERIC = Costs()
COSTS = {
    "generic": GENERIC,
    # 16 threads: 1024³, whose rows come from the last cache, moved so much (``matmul``).
    "sapphirerapids": Costs(product=ProductCosts(last_cache_bytes_per_cycle=20)),
}
"""The rows, by LLVM's name of a processor."""
CACHE_LINE_BYTES = GENERIC.line_bytes
"""For emitters: code is written for lines of this length, whatever processor it is for."""


def costs_of(cpu: str) -> Costs:
    """The row of a processor."""
    return COSTS.get(cpu, GENERIC)
