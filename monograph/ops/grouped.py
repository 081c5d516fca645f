"""Rows times one of several matrices: rows stand in runs, and each run has a matrix of its own.

So a mixture of experts computes: tokens are sorted by expert, and how many each of them gets is
known only when it runs. The matrices are read in panels, sixteen columns side by side, which are
made once where they are weights; a run of rows passes over a panel six rows at a time, their sums
in registers. As graph it is a product with every matrix, of which each row keeps one, and that is
what gradients and exporters see.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from monograph.errors import EvaluationError
from monograph.ir.build import Operand, apply, as_operands, graph_of
from monograph.ir.dims import Dim
from monograph.ir.graph import Value
from monograph.ir.lower import LoopBuilder, Position, Scalar
from monograph.ir.op import Op, Sample, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType, i64, wide
from monograph.ops import data, elementwise, linalg, reduce, slicing
from monograph.ops import shape as shape_ops
from monograph.ops.rules import require, require_float, require_integer, same_dim, same_dtype

PANEL_COLUMNS = 16
"""Columns of a panel."""
TILE_ROWS = 6
"""Rows whose sums are in registers at once."""
REMAINDER_ROWS = 2
"""So few rows that are left pass alone: a token's expert is read for one row at a time."""
MAX_TERMS_PER_SUM = 128
"""Products that one sum takes; then it joins the sum of those, so that rounding hardly grows."""


@op("grouped_product")
class GroupedProduct(Op):
    """``rows`` [n, depth], each times the matrix of its run; run ``g`` goes up to ``ends[g]``.

    ``panels`` [matrices, number, depth, columns] are the matrices, so many columns at a time. Rows
    behind the last run give zeros.
    """

    def infer(self, rows: TensorType, panels: TensorType, ends: TensorType) -> TensorType:
        require_float(self.name, rows, panels)
        require_integer(self.name, ends)
        same_dtype(self.name, rows, panels)
        require(
            (rows.rank, panels.rank, ends.rank) == (2, 4, 1),
            "grouped_product: the operands have other ranks",
            expected="rows of rank 2, panels of rank 4, ends of rank 1",
            found=f"{rows}, {panels}, {ends}",
        )
        same_dim(self.name, "rows and panels", rows.shape[1], panels.shape[2])
        same_dim(self.name, "panels and ends", panels.shape[0], ends.shape[0])
        return rows.with_shape((rows.shape[0], panels.shape[1] * panels.shape[3]))

    def evaluate(self, rows: Array, panels: Array, ends: Array) -> Array:
        bounds = np.concatenate([[0], ends, [len(rows)]]).astype(np.int64)
        if (bounds[1:] < bounds[:-1]).any():
            raise EvaluationError(
                "grouped_product: the ends do not rise",
                expected=f"rising numbers up to {len(rows)}",
                found=str(ends),
            )
        dtype = np.float64 if rows.dtype == np.float64 else np.float32
        matrices = panels.transpose(0, 2, 1, 3).reshape(len(ends), rows.shape[1], -1)
        made = np.zeros((len(rows), matrices.shape[2]), rows.dtype)
        start = 0
        for matrix, end in zip(matrices, ends.tolist(), strict=True):
            product = rows[start:end].astype(dtype) @ matrix.astype(dtype)
            made[start:end] = product.astype(rows.dtype)
            start = end
        return made

    def decompose(self, rows: Value, panels: Value, ends: Value) -> Value:
        groups, number, depth, columns = panels.shape
        matrices = shape_ops.transpose(panels, (0, 2, 1, 3))
        matrices = shape_ops.reshape(matrices, (groups, depth, number * columns))
        products = linalg.matmul(shape_ops.unsqueeze(rows, 0), matrices)
        return reduce.sum(elementwise.where(_own_rows(rows.shape[0], ends), products, 0), 0)

    def lower_loops(self, b: LoopBuilder) -> None:
        """A panel of a matrix for all rows of its run, then the next."""
        rows, panels, _ = b.operands
        count, (groups, number, _, columns) = rows.shape[0], panels.shape
        with b.parallel((groups, number)) as (group, panel):
            is_first = b.apply("equal", group, b.index(0))
            before = b.checked(b.read(2, [b.clamp(group - 1, 0, groups)]), count + 1)
            start = b.select(is_first, b.index(0), before)
            end = b.checked(b.read(2, [group]), count + 1)
            with b.loop((end - start + (TILE_ROWS - 1)) // TILE_ROWS) as tile:
                first = start + tile * TILE_ROWS
                few = b.apply("less", end - first, b.index(REMAINDER_ROWS + 1))
                with b.when(few):
                    self._tile(b, (group, panel), [first + k for k in range(REMAINDER_ROWS)], end)
                with b.when(b.apply("logical_not", few)):
                    self._tile(b, (group, panel), [first + k for k in range(TILE_ROWS)], end)
            is_last = b.apply("equal", group, b.index(groups - 1))
            with (
                b.when(is_last),
                b.loop(count - end) as behind,
                b.loop(columns, lanes=True) as column,
            ):
                zero = b.literal(0.0, wide(rows.dtype))
                b.store(b.result(), [end + behind, panel * columns + column], zero)

    def _tile(self, b: LoopBuilder, at: Position, places: Position, end: Scalar) -> None:
        """A few rows times a panel; places behind the end are computed, and not stored."""
        rows, panels, _ = b.operands
        group, panel = at
        depth, columns = panels.shape[2:]
        zero = b.literal(0.0, wide(rows.dtype))
        inside = [b.clamp(place, 0, rows.shape[0]) for place in places]
        with b.loop(columns, lanes=True) as column:
            sums = [b.variable(zero) for _ in places]
            with b.loop(-(-depth // MAX_TERMS_PER_SUM)) as number:
                start, length = b.piece(number, MAX_TERMS_PER_SUM, depth)
                parts = [b.variable(zero) for _ in places]
                with b.loop(length) as k:
                    weight = b.read(1, [group, panel, start + k, column])
                    for place, part in zip(inside, parts, strict=True):
                        row = b.read(0, [place, start + k])
                        part.set(b.apply("fma", row, weight, part.get()))
                for total, part in zip(sums, parts, strict=True):
                    total.set(b.apply("add", total.get(), part.get()))
            for place, own, total in zip(places, inside, sums, strict=True):
                with b.when(b.apply("less", place, end)):
                    b.store(b.result(), [own, panel * columns + column], total.get())

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        generator = np.random.default_rng(0)
        rows = generator.normal(size=(17, 5)).astype(np.float32)
        panels = generator.normal(size=(3, 2, 5, 16)).astype(np.float32)
        yield Sample(cls(), (rows, panels, np.array([7, 7, 17])))
        yield Sample(cls(), (rows[:7], panels, np.array([1, 4, 6], np.int32)), "rows behind")
        yield Sample(cls(), (rows, panels[..., :3], np.array([0, 4, 17])), "narrow")
        yield Sample(cls(), (rows[:0], panels, np.array([0, 0, 0])), "no rows", False)


@function
def grouped_matmul(rows: Operand, matrices: Operand, ends: Operand) -> Value:
    """``rows`` [n, depth], each times its run's matrix of ``matrices`` [runs, depth, columns].

    Run ``g`` is the rows up to ``ends[g]``, from where the one before it ends. Rows behind the
    last run give zeros.
    """
    given = [rows, matrices, ends]
    rows, matrices, ends = as_operands(graph_of(given), given)
    groups, depth, columns = matrices.shape
    missing: Dim = -columns % PANEL_COLUMNS
    if missing != 0:
        matrices = slicing.pad(matrices, (0, 0, 0), (0, 0, missing))
    number = (columns + missing) // PANEL_COLUMNS
    apart = shape_ops.reshape(matrices, (groups, depth, number, PANEL_COLUMNS))
    made = apply(GroupedProduct(), rows, shape_ops.transpose(apart, (0, 2, 1, 3)), ends)
    return made if missing == 0 else slicing.slice(made, [0], [columns], axes=[1])


@function
def grouped_outer(columns: Operand, rows: Operand, ends: Operand) -> Value:
    """``columns`` [m, n] times ``rows`` [n, k], run by run: [runs, m, k].

    It is what a gradient of ``grouped_matmul`` with respect to its matrices needs.
    """
    given = [columns, rows, ends]
    columns, rows, ends = as_operands(graph_of(given), given)
    own = elementwise.where(_own_rows(rows.shape[0], ends), shape_ops.unsqueeze(rows, 0), 0)
    return linalg.matmul(shape_ops.unsqueeze(columns, 0), own)


def _own_rows(count: Dim, ends: Value) -> Value:
    """Which rows belong to which run: [runs, count, 1]."""
    runs = ends.shape[0]
    row = data.iota((runs, count, 1), 1)
    upper = shape_ops.reshape(elementwise.cast(ends, i64), (runs, 1, 1))
    lower = slicing.pad(slicing.slice(upper, [0], [runs - 1], axes=[0]), (1, 0, 0), (0, 0, 0))
    return elementwise.logical_and(
        elementwise.greater_equal(row, lower), elementwise.less(row, upper)
    )
