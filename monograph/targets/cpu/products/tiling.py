"""Chooses the tiling of a product from the machine's registers and caches.

The tile fills the registers. A panel of the right operand stays in the first cache while the rows
of a block pass by, and those stay in the second while the panels do. What only a few rows ask for
is read where it lies, a few steps of k at a time, along whole rows of it (``readings``).
"""

from __future__ import annotations

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, dim_max, dim_min, likely_size, provably_at_least, shape_product
from monograph.kernel.contraction import (
    MIN_MULTIPLICATIONS,
    Contraction,
    with_k_ordered,
    with_scale_groups,
)
from monograph.kernel.kernel import Kernel
from monograph.targets.cpu.costs import Costs
from monograph.targets.cpu.loops.schedule import Schedule
from monograph.targets.cpu.machine import Machine
from monograph.targets.cpu.products.grid import ProductSize, choose_grid, is_cache_crowded
from monograph.targets.cpu.products.readings import (
    Weights,
    choose_left,
    choose_right,
    find_step,
    has_columns_beside,
    is_beside_weights,
    is_worth_packing,
    lies_across,
)
from monograph.targets.cpu.products.tiles import (
    PanelPrefetch,
    Reading,
    Segment,
    Tiling,
    exact_segments,
    open_segments,
)

MAX_EVEN_BLOCKS = 8
"""Blocks among which the most equal ones are looked for, where few would do."""
ACROSS_STEPS = 4
"""Steps that are packed at a time where rows lie side by side."""
MAX_SPLIT_K_RESULTS = 64
MIN_SPLIT_K_STEPS = 4096
"""A product of at most so many rows and columns, with k at least this long, is cut along k."""
SPLIT_K_PARTS = 8


def is_worth_tiling(contraction: Contraction, weights: Weights, machine: Machine) -> bool:
    """Whether a contraction is large enough for tiles, and not better off as plain rows."""
    sides = (contraction.m, contraction.n, contraction.k)
    m, n, k = (likely_size(contraction.size(axes)) for axes in sides)
    least = 2 if len(contraction.k) > 1 else 8
    if k < 8 or n < least or m * n * k < MIN_MULTIPLICATIONS:
        return False
    if not provably_at_least(contraction.size(contraction.k), 1):
        return False  # the sum of nothing is stored by no round of k
    is_tall = m >= machine.costs.product.min_transposed_rows
    return weights is Weights.RIGHT or is_tall or has_columns_beside(contraction)


def is_worth_cutting(contraction: Contraction) -> bool:
    """Whether a product has so few results and so long a k that its parts are for several threads.

    It depends on sizes alone: the same input gives the same bits on any number of threads.
    """
    if contraction.batch or contraction.outer:
        return False
    sides = (contraction.m, contraction.n, contraction.k)
    m, n, k = (contraction.size(axes) for axes in sides)
    if not isinstance(m, int) or not isinstance(n, int) or not isinstance(k, int):
        return False
    return m <= MAX_SPLIT_K_RESULTS and n <= MAX_SPLIT_K_RESULTS and k >= MIN_SPLIT_K_STEPS


def choose_tiling(
    contraction: Contraction,
    machine: Machine,
    weights: Weights,
    in_network: bool = False,
    in_loop: bool = False,
) -> tuple[Contraction, Tiling]:
    """The contraction with k in the order in which it is read, and how it is cut up.

    ``in_network`` tells whether the left operand is an image that the kernel before has just
    written. With ``in_loop``, rows of which nobody knows how many there are, are taken for few: a
    loop over time hands on the states of a batch, and a copy of them in tiles pays for many alone.
    """
    in_panels = weights is Weights.RIGHT
    left = choose_left(contraction, machine)
    if in_panels and left is Reading.IN_PLACE and _has_rows_apart(contraction, machine):
        left = Reading.PACKED
    guide = contraction.left if left is Reading.IN_PLACE else contraction.right
    contraction = with_k_ordered(contraction, guide, merge=in_panels)
    is_open = in_loop and not isinstance(contraction.size(contraction.m), int)
    in_tiles = is_worth_packing(contraction, weights, machine) and not (in_panels and is_open)
    if in_tiles or (left is Reading.PACKED and lies_across(contraction, machine)):
        left = Reading.TILES
    right = Reading.PACKED if in_panels else choose_right(contraction, machine, weights)
    if (
        in_panels
        and left is not Reading.TILES
        and likely_size(contraction.size(contraction.m)) <= machine.costs.product.max_in_place_rows
    ):
        contraction = with_scale_groups(contraction)
    chooser = _Chooser(contraction, machine, left, right, weights, in_network, in_loop)
    return contraction, chooser.tiling()


def _has_rows_apart(contraction: Contraction, machine: Machine) -> bool:
    """Whether the rows of one tall tile all fall on the same lines of the first cache."""
    if not is_one_tile(contraction, machine) or contraction.weights.is_narrow:
        return False
    return _are_rows_aliased(contraction, machine)


def _are_rows_aliased(contraction: Contraction, machine: Machine) -> bool:
    """Whether rows of the left operand, read in place, fall on the same set of the first cache."""
    step = find_step(contraction.left, contraction.m[-1]) if contraction.m else None
    if not isinstance(step, int) or step == 0:
        return False
    return step * contraction.reduction.dtype.bits // 8 % machine.costs.set_bytes == 0


@dataclass(frozen=True)
class _Chooser:
    """The sizes that a tiling is chosen by."""

    contraction: Contraction
    machine: Machine
    left: Reading
    right: Reading
    weights: Weights
    in_network: bool
    in_loop: bool = False

    @property
    def costs(self) -> Costs:
        return self.machine.costs

    @property
    def element(self) -> int:
        return self.contraction.reduction.dtype.bits // 8

    def tiling(self) -> Tiling:
        contraction, machine = self.contraction, self.machine
        rows, columns = (
            contraction.size(contraction.m),
            likely_size(contraction.size(contraction.n)),
        )
        lanes = min(machine.vector_bytes // self.element, power_of_two(columns))
        segments, height, vectors = self.tile(rows, columns, lanes)
        width = vectors * lanes
        depth = self.depth(likely_size(rows))
        tiles = (
            max(1, likely_size(segments[0].count))
            if segments
            else groups_of(likely_size(rows), height)
        )
        in_blocks = self.right is Reading.PACKED and not self.is_whole()
        most = max(1, self.costs.block_rows // height) if in_blocks else tiles
        if depth:
            most = min(
                most,
                max(
                    1,
                    self.costs.block_sum_bytes // (height * width * self.element),
                ),
            )
        block_tiles = groups_of(tiles, groups_of(tiles, most))
        if self.is_by_rows():
            most_rows = (
                self.costs.weight_rows_per_block
                if self.weights is Weights.LEFT
                else self.costs.block_rows
            )
            block_tiles = even_block(tiles, max(1, most_rows // height))
        block_panels = self.panels(likely_size(rows), columns, width, groups_of(tiles, block_tiles))
        if self.is_by_grid(width):
            block_tiles, block_panels = self.grid(segments, height, width)
        row_work = 2 * block_panels * vectors * likely_size(contraction.size(contraction.k))
        return Tiling(
            segments,
            height,
            width,
            depth,
            block_tiles,
            block_panels,
            self.left,
            self.right,
            self.grain(columns, width * block_panels, block_tiles * height, row_work),
            self.whole_tiles(height, block_tiles),
            self.is_narrow(likely_size(rows)),
            self.choose_prefetch(likely_size(rows), block_tiles),
        )

    def is_by_grid(self, width: int) -> bool:
        """Whether threads share rows and columns, because one of the two leaves some of them idle.

        Many threads that share rows alone would also read all weights each, from the last cache.
        """
        contraction, threads = self.contraction, self.machine.threads
        rows = contraction.size(contraction.m)
        if not isinstance(rows, int) or rows <= self.costs.product.max_in_place_rows:
            return False
        if self.right is not Reading.PACKED or self.weights is Weights.LEFT:
            return False
        if self.is_by_rows():
            return is_cache_crowded(self.machine)
        sizes = (contraction.n, (*contraction.batch, *contraction.outer))
        columns, outside = (likely_size(contraction.size(axes)) for axes in sizes)
        return self.is_whole() and groups_of(columns, width) * outside < threads

    def grid(self, segments: tuple[Segment, ...], height: int, width: int) -> tuple[int, int]:
        """Tiles and panels of a block for so many threads."""
        contraction = self.contraction
        columns, steps = (
            likely_size(contraction.size(axes)) for axes in (contraction.n, contraction.k)
        )
        outside = likely_size(contraction.size((*contraction.batch, *contraction.outer)))
        tail = sum(each.rows * likely_size(each.count) for each in segments[1:])
        size = ProductSize(
            *(likely_size(segments[0].count), tail, height, groups_of(columns, width), width),
            *(steps, outside, self.element),
        )
        rounds = min(steps, self.costs.block_steps * 3 // 2)
        most_tiles = max(1, self.machine.l2 // 2 // (height * rounds * self.element))
        most_sums = max(1, self.costs.block_sum_bytes // (height * width * self.element))
        found = choose_grid(size, self.machine, most_tiles, most_sums)
        return found.tiles, found.panels

    def tile(self, rows: Dim, columns: int, lanes: int) -> tuple[tuple[Segment, ...], int, int]:
        """Tiles of the rows, the height of most, and the vectors that a tile is wide."""
        if self.weights is Weights.RIGHT and is_one_tile(self.contraction, self.machine):
            assert isinstance(rows, int), "so few rows are known"
            return (Segment(0, rows, 1),), rows, 1
        if self.is_three_wide(lanes):
            most = tallest(self.machine, 3)
            if not isinstance(rows, int):
                return self.open_rows(rows, most), most, 3
            segments = row_segments(rows, most, groups_of(self.costs.fma_latency_vectors, 3))
            return segments, segments[0].rows, 3
        if not isinstance(rows, int):
            wide = 2 if columns > lanes else 1
            most = tallest(self.machine, wide)
            most = min(most, self.most_rows() or most)
            return self.open_rows(rows, most), most, wide
        return choose_tile(rows, columns, self.machine, lanes, self.most_rows())

    def most_rows(self) -> int | None:
        """Rows of a tile that a set of the first cache holds beside a panel, if all fall on one."""
        is_aliased = _are_rows_aliased(self.contraction, self.machine)
        if self.left is not Reading.IN_PLACE or not is_aliased:
            return None
        return max(
            self.costs.product.min_prefetching_rows, self.machine.l1 // self.costs.set_bytes - 2
        )

    def open_rows(self, rows: Dim, height: int) -> tuple[Segment, ...]:
        """Tiles for a number of rows that is known only when it runs, perhaps just one.

        An operand that is packed in tiles has tiles of two heights.
        """
        in_tiles = self.left is Reading.TILES
        return open_segments(rows, height) if in_tiles else exact_segments(rows, height)

    def is_three_wide(self, lanes: int) -> bool:
        """Whether tiles of three vectors a row fit better than those of two.

        Those of two would leave lanes empty, or k is so short that beginning and ending a tile
        counts: wider rows have fewer numbers to fetch.
        """
        contraction = self.contraction
        columns, rows = contraction.size(contraction.n), contraction.size(contraction.m)
        if (
            not isinstance(columns, int)
            or columns % (3 * lanes)
            or likely_size(rows) <= self.costs.product.max_in_place_rows
        ):
            return False
        if (
            not contraction.reduction.dtype.is_float
            or tallest(self.machine, 3) < self.costs.fma_latency_vectors // 2
        ):
            return False
        is_short = (
            likely_size(contraction.size(contraction.k)) <= self.costs.product.max_short_steps
        )
        return columns % (2 * lanes) != 0 or (is_short and self.left is Reading.IN_PLACE)

    def is_narrow(self, rows: int) -> bool:
        """Whether panels come from memory so seldom used that their bytes are what takes time."""
        is_narrow = self.contraction.weights.is_narrow
        return (
            is_narrow
            and self.weights is Weights.RIGHT
            and rows <= self.costs.product.max_in_place_rows
        )

    def choose_prefetch(self, rows: int, tiles: int) -> PanelPrefetch:
        """When to ask for the next panel: one or two rows read panels as fast as they come."""
        if self.right is not Reading.PACKED or rows < self.costs.product.min_transposed_rows:
            return PanelPrefetch.NOTHING
        if self.in_loop and not isinstance(self.contraction.size(self.contraction.m), int):
            return PanelPrefetch.STEPS  # nobody knows how many tiles would share the asking
        together = self.costs.product.tiles_per_prefetch
        return PanelPrefetch.TILES if tiles >= together else PanelPrefetch.STEPS

    def depth(self, rows: int) -> int:
        """Steps of k between two visits of the sums; 0 for all of them."""
        axes = self.contraction.k
        steps = likely_size(self.contraction.size(axes))
        if self.is_streamed():
            stride = find_step(self.contraction.right, axes[-1])
            crowded = (
                not isinstance(stride, int) or stride * self.element % self.costs.set_bytes == 0
            )
            return 8 if crowded else 16
        known = all(isinstance(axis.extent, int) for axis in axes)
        return 0 if known and steps <= self.costs.block_steps * 3 // 2 else self.costs.block_steps

    def is_streamed(self) -> bool:
        """Whether the right operand is read in place, and from memory."""
        if self.right is not Reading.IN_PLACE or self.left is Reading.TILES:
            return False
        size = likely_size(self.contraction.size((*self.contraction.n, *self.contraction.k)))
        return size * self.element > 2 * self.machine.l1

    def is_whole(self) -> bool:
        """Whether packed panels meet all rows in one block.

        A round of k of all rows then fits half of the second cache. The rows come from the third
        for each panel, in time if they lie in tiles; otherwise all of k has to fit.
        """
        contraction = self.contraction
        rows = contraction.size(contraction.m)
        if self.right is not Reading.PACKED or not isinstance(rows, int) or self.is_by_rows():
            return False
        steps = (
            self.costs.block_steps
            if self.left is Reading.TILES
            else likely_size(contraction.size(contraction.k))
        )
        return rows * steps * self.element <= self.machine.l2 // 2

    def whole_tiles(self, height: int, block_tiles: int) -> int:
        """Tiles up to which rows of an unknown number meet panels in one block; 0 for none."""
        rows = self.contraction.size(self.contraction.m)
        if isinstance(rows, int) or self.left is not Reading.TILES:
            return 0
        if self.right is not Reading.PACKED:
            return 0
        return max(
            block_tiles,
            self.machine.l2 // 2 // (self.costs.block_steps * self.element * height),
        )

    def is_by_rows(self) -> bool:
        """Whether threads share the rows alone, as they do in the layers before and after.

        Each then reads all weights, which stay near, and few rows that another one wrote.
        """
        contraction = self.contraction
        if is_beside_weights(contraction, self.machine, self.weights):
            return True
        rows = contraction.size(contraction.m)
        is_packed = self.weights is Weights.RIGHT and self.right is Reading.PACKED
        if not self.in_network or not is_packed:
            return False
        is_plain = not contraction.batch and not contraction.outer
        if not isinstance(rows, int) or rows < self.costs.product.min_shared_rows or not is_plain:
            return False
        weights = likely_size(contraction.size((*contraction.n, *contraction.k))) * self.element
        return weights <= self.machine.l2 // 2

    def grain(self, columns: int, width: int, most_rows: int, row_work: int) -> Dim:
        """Blocks that are worth a thread; in a loop, as many as their rows turn out to call for."""
        rows = self.contraction.size(self.contraction.m)
        if self.in_loop and not isinstance(rows, int):
            known = dim_max(1, dim_min(rows, most_rows))
            return dim_max(1, self.costs.task_instructions // row_work // known)
        return max(
            self.portion(columns, width),
            self.costs.task_instructions // max(most_rows * row_work, 1),
        )

    def portion(self, columns: int, width: int) -> int:
        """Blocks of so many columns that a thread takes at a time, where they have all rows."""
        contraction = self.contraction
        rows = likely_size(contraction.size(contraction.m))
        if not self.is_whole() or rows < self.costs.product.min_transposed_rows:
            return 1
        if self.is_by_grid(width):
            return 1
        blocks = groups_of(columns, width)
        blocks *= likely_size(contraction.size((*contraction.batch, *contraction.outer)))
        work = rows * width * likely_size(contraction.size(contraction.k))
        return max(
            1,
            min(
                groups_of(self.costs.portion_multiplications, work),
                blocks // self.costs.min_tasks,
            ),
        )

    def panels(self, rows: int, columns: int, width: int, row_blocks: int) -> int:
        """Panels of a block."""
        contraction = self.contraction
        panels = groups_of(columns, width)
        if self.is_by_rows():
            return panels
        if self.is_streamed():
            most = min(
                self.costs.in_place_block_columns,
                self.costs.block_sum_bytes // (2 * rows * self.element),
            )
            return groups_of(min(max(columns // 2, 256), most), width)
        steps = likely_size(contraction.size(contraction.k))
        fits = rows * steps * self.element <= self.machine.l2 // 2
        in_panels = self.weights is Weights.RIGHT
        if self.is_whole() or (fits and (in_panels or not has_columns_beside(contraction))):
            return 1
        outside = likely_size(contraction.size((*contraction.batch, *contraction.outer)))
        weights = likely_size(contraction.size((*contraction.m, *contraction.k))) * self.element
        if self.weights is Weights.LEFT and weights <= self.machine.l2:
            return min(panels, self.costs.copied_panels)
        return max(
            1,
            min(
                self.costs.block_panels,
                panels * outside * row_blocks // self.costs.min_tasks,
            ),
        )


def even_block(tiles: int, most: int) -> int:
    """Tiles of a block, at most so many, where an even number of blocks is as equal as can be."""
    least = max(MAX_EVEN_BLOCKS // 2, groups_of(tiles, most))
    counts = range(least + least % 2, max(least, MAX_EVEN_BLOCKS) + 2, 2)

    def longest(size: int) -> int:
        return min(tiles, groups_of(groups_of(tiles, size), 2) * size)

    return min(
        (groups_of(tiles, count) for count in counts), key=lambda size: (longest(size), -size)
    )


def is_one_tile(contraction: Contraction, machine: Machine) -> bool:
    """Whether rows are too many for a tile of two vectors and few enough for one of one.

    Weights come from memory then no slower than they are multiplied, and one tile reads them once.
    """
    rows = contraction.size(contraction.m)
    most = min(machine.registers - 6, machine.costs.product.max_in_place_rows)
    return isinstance(rows, int) and tallest(machine, 2) < rows <= most


def tallest(machine: Machine, vectors: int) -> int:
    """The most rows of a tile of so many vectors."""
    return (machine.registers - 4) // vectors


def tile_packing(flat: Kernel, machine: Machine) -> Schedule:
    """How the left operand is stored in tiles: a thread fills whole ones, a group at a time.

    The last two axes are the rows of a tile and the steps of a group, or else a step and its rows.
    """
    symbols = tuple(axis.symbol for axis in flat.axes)
    *_, row, step = flat.axes
    height, width = likely_size(row.extent), likely_size(step.extent)
    if step.symbol.name != "_i_step":
        height, width = ACROSS_STEPS, width & -width
    tile = next(k for k, symbol in enumerate(symbols) if symbol.name == "_i_tile")
    size = shape_product(axis.extent for axis in flat.axes[tile + 1 :])
    return Schedule(
        symbols,
        rows=len(symbols) - 1,
        parallel=tile + 1,
        vector=(step.symbol,),
        width=width,
        jam=((row.symbol, height),),
        grain=max(1, machine.costs.task_instructions // max(likely_size(size) // width, 1)),
    )


def groups_of(size: int, width: int) -> int:
    """How many groups of ``width`` hold ``size``."""
    return -(-size // width)


def choose_tile(
    rows: int, columns: int, machine: Machine, lanes: int, most_rows: int | None = None
) -> tuple[tuple[Segment, ...], int, int]:
    """Tiles of at most so many of the rows, the height of most, and the vectors of their width.

    Two vectors a row leave most registers for sums; with few rows, more vectors keep enough sums
    going to hide the latency of each.
    """
    wide = 2 if columns > lanes else 1
    most = min(tallest(machine, wide), most_rows or rows)
    if rows < 4:
        vectors = 8 if rows == 1 else 4
        while vectors > 1 and vectors * lanes >= 2 * columns:
            vectors //= 2
        return (Segment(0, rows, 1),), rows, vectors
    segments = row_segments(rows, most, machine.costs.fma_latency_vectors // wide)
    return segments, segments[0].rows, wide


def power_of_two(size: int) -> int:
    """The least power of two that is no less."""
    return 1 << (size - 1).bit_length()


def row_segments(rows: int, most: int, least: int) -> tuple[Segment, ...]:
    """Tiles of at most two heights that cover the rows exactly, in the least time.

    A step of a tile takes as long as its multiplications, but no less than the latency of one,
    in which ``least`` rows are multiplied.
    """
    found: list[tuple[float, tuple[Segment, ...]]] = []
    for high in range(min(most, rows), 0, -1):
        for low in range(high, 0, -1):
            for count in range(min(rows // low, most) + 1):
                tall = (rows - count * low) // high
                if tall < 1 or tall * high + count * low != rows:
                    continue
                time = tall * (max(high, least) + 0.2) + count * (max(low, least) + 0.3)
                tail = (Segment(tall * high, low, count),) if count else ()
                found.append((time, (Segment(0, high, tall), *tail)))
    return min(found, key=lambda each: each[0])[1]
