"""Contractions: MatMul and Gemm where the axes lie as those want them, Einsum for the rest."""

from __future__ import annotations

from string import ascii_letters
from typing import Any

from monograph.exporters.onnx.context import ExportContext
from monograph.exporters.onnx.registry import Exported, exports
from monograph.exporters.onnx.scope import Term
from monograph.ir.dims import provably_at_least, shape_product
from monograph.ir.types import bool_
from monograph.ops import linalg
from monograph.ops.einsum import Einsum, explicit, read_equation


@exports(linalg.Matmul)
def matmul(node: ExportContext[linalg.Matmul]) -> Exported:
    """matmul → MatMul; ONNX Runtime does not write the empty sums of a product with a vector."""
    filled = all(provably_at_least(dim, 1) for dim in node.shape())
    if node.type(1).rank > 1 or node.rank == 1 or filled:
        return node.emit("MatMul", *node.inputs)
    column = node.emit("Unsqueeze", node.inputs[1], node.integers([1]))
    product = node.emit("MatMul", node.inputs[0], column)
    return node.emit("Squeeze", product, node.integers([-1]))


@exports(linalg.Linear)
def linear(node: ExportContext[linalg.Linear]) -> Exported:
    """Gemm multiplies by a transposed matrix without transposing it; it takes matrices alone."""
    if node.rank != 2 or len(node.inputs) < 3 or not node.runs("Gemm", node.dtype):
        return None
    return node.emit("Gemm", *node.inputs, transB=1)


@exports(linalg.DotGeneral)
def dot_general(node: ExportContext[linalg.DotGeneral]) -> Exported:
    """dot_general → MatMul or Einsum; the first is better known."""
    if node.dtype is bool_:
        return None
    if _is_matmul(node):
        return node.emit("MatMul", *_transpose_operands(node))
    if not node.runs("Einsum", node.dtype):
        return None
    if not _has_elements(node):
        return _by_matrices(node)
    lhs, rhs, result = _letters(node)
    return node.emit("Einsum", *node.inputs, equation=f"{lhs},{rhs}->{result}")


def _has_elements(node: ExportContext[Any]) -> bool:
    """Whether no operand can be empty: ONNX Runtime's Einsum crashes on some that are."""
    shapes = [value.shape for value in node.node.operands]
    return all(provably_at_least(dim, 1) for shape in shapes for dim in shape)


def _is_matmul(node: ExportContext[linalg.DotGeneral]) -> bool:
    """Whether it is one product of matrices: each side with one free axis, and one to sum over.

    Without batch axes the left side may have any number of free ones.
    """
    op = node.op
    left_free, right_free = op.free_axes(node.rank, node.type(1).rank)
    fits = len(op.lhs_contracting) == 1 and len(right_free) == 1
    return fits and (len(left_free) == 1 or (bool(left_free) and not op.lhs_batch))


def _transpose_operands(node: ExportContext[linalg.DotGeneral]) -> tuple[Term, Term]:
    """Both operands with axes in the order of a product: batch, rows, inner; inner, columns."""
    op = node.op
    ranks = node.rank, node.type(1).rank
    left_free, right_free = op.free_axes(*ranks)
    orders = (
        (*op.lhs_batch, *left_free, *op.lhs_contracting),
        (*op.rhs_batch, *op.rhs_contracting, *right_free),
    )
    left, right = (
        node.transpose(term, [axis % rank for axis in order])
        for term, rank, order in zip(node.inputs, ranks, orders, strict=True)
    )
    return left, right


def _by_matrices(node: ExportContext[linalg.DotGeneral]) -> Term:
    """One product of matrices, into which free and summed axes are merged."""
    op, left_shape, right_shape = node.op, node.shape(0), node.shape(1)
    left_free, right_free = op.free_axes(len(left_shape), len(right_shape))
    batch = tuple(left_shape[axis] for axis in op.lhs_batch)
    rows = tuple(left_shape[axis] for axis in left_free)
    inner = tuple(left_shape[axis] for axis in op.lhs_contracting)
    columns = tuple(right_shape[axis] for axis in right_free)
    merged = [shape_product(part) for part in (rows, inner, columns)]
    left, right = _transpose_operands(node)
    product = node.emit(
        "MatMul",
        node.reshape(left, (*batch, *rows, *inner), (*batch, merged[0], merged[1])),
        node.reshape(right, (*batch, *inner, *columns), (*batch, merged[1], merged[2])),
    )
    return node.reshape(product, (*batch, merged[0], merged[2]), node.result.shape)


def _letters(node: ExportContext[linalg.DotGeneral]) -> tuple[str, str, str]:
    """The axes of both operands and of the result, named."""
    op = node.op
    left_rank, right_rank = node.rank, node.type(1).rank
    names = iter(ascii_letters)
    left, right = [""] * left_rank, [""] * right_rank
    batch = ""
    for a, b in zip(op.lhs_batch, op.rhs_batch, strict=True):
        left[a] = right[b] = next(names)
        batch += left[a]
    for a, b in zip(op.lhs_contracting, op.rhs_contracting, strict=True):
        left[a] = right[b] = next(names)
    left_free, right_free = op.free_axes(left_rank, right_rank)
    for axis in left_free:
        left[axis] = next(names)
    for axis in right_free:
        right[axis] = next(names)
    free = [left[axis] for axis in left_free] + [right[axis] for axis in right_free]
    return "".join(left), "".join(right), batch + "".join(free)


@exports(Einsum)
def einsum(node: ExportContext[Einsum]) -> Exported:
    """ONNX Runtime wants ellipses to be alike and to be kept; integers must not be summed alone."""
    equation = explicit(node.op.equation)
    if "..." in equation or not node.runs("Einsum", node.dtype) or node.dtype is bool_:
        return None
    if not _has_elements(node):
        return None
    if node.dtype.is_integer and _sums_one_operand(node, equation):
        return None
    return node.emit("Einsum", *node.inputs, equation=equation)


def _sums_one_operand(node: ExportContext[Einsum], equation: str) -> bool:
    """Whether a letter that one operand alone has is summed over: that is done in doubles."""
    ranks = [value.rank for value in node.node.operands]
    read = read_equation(equation, ranks)
    labels = [label for operand in read.operands for label in set(operand)]
    return any(labels.count(label) == 1 and label not in read.result for label in labels)
