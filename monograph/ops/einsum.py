"""Einstein summation: products and sums of tensors, spelled by naming their axes.

``"ij,jk->ik"`` is a matrix product: letters name axes, those missing on the right are summed over.
``...`` stands for the axes that have no letter; they broadcast (and are summed over if the result
leaves them out, as in PyTorch). A letter that stands twice in one
operand takes its diagonal. Without ``->`` the result has the letters that occur once, in
alphabetical order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from monograph.dataclass import dataclass
from monograph.errors import TypeRuleError
from monograph.ir.build import Operand
from monograph.ir.dims import Dim, Shape
from monograph.ir.graph import Value
from monograph.ir.op import Op, Sample, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType
from monograph.ops import data, elementwise, reduce
from monograph.ops.linalg import apply_promoted, contract, number_dtype
from monograph.ops.rules import broadcast_shapes, require, same_dim
from monograph.ops.shape import transpose

Labels: TypeAlias = tuple[int, ...]
"""One number an axis: a letter's code point, or -1, -2… from the right for the axes of ``...``."""


@dataclass(frozen=True)
class Equation:
    """An equation read for operands of known ranks."""

    operands: tuple[Labels, ...]
    result: Labels

    def sizes(self, shapes: Sequence[Shape]) -> Mapping[int, Dim]:
        """The size of each label: those of all its axes, broadcast."""
        found: dict[int, list[Dim]] = {}
        for labels, shape in zip(self.operands, shapes, strict=True):
            for label, dim in _diagonal_dims(labels, shape).items():
                found.setdefault(label, []).append(dim)
        return {
            label: broadcast_shapes(f"einsum: {_spelling(label)}", *((dim,) for dim in dims))[0]
            for label, dims in found.items()
        }


def _diagonal_dims(labels: Labels, shape: Shape) -> dict[int, Dim]:
    """The size of each label of one operand; axes of one label must agree."""
    dims: dict[int, Dim] = {}
    for label, dim in zip(labels, shape, strict=True):
        what = f"dimensions on the diagonal {_spelling(label)}"
        dims[label] = same_dim("einsum", what, dims[label], dim) if label in dims else dim
    return dims


def _spelling(label: int) -> str:
    return chr(label) if label > 0 else "..."


def read_equation(equation: str, ranks: Sequence[int]) -> Equation:
    """What an equation says of operands of these ranks; an error if it makes no sense."""
    terms, result = _terms(equation)
    require(
        len(terms) == len(ranks),
        "einsum: the equation is for another number of operands",
        expected=f"{len(terms)}, as in {equation!r}",
        found=len(ranks),
    )
    operands = tuple(_labels(term, rank, equation) for term, rank in zip(terms, ranks, strict=True))
    most = max((sum(label < 0 for label in labels) for labels in operands), default=0)
    hidden = most if "..." in result else 0
    outputs = _labels(result, len(result.replace("...", "")) + hidden, equation)
    present = {label for labels in operands for label in labels}
    for label in outputs:
        require(
            label in present and outputs.count(label) == 1,
            "einsum: the result names an axis twice, or one that no operand has",
            expected="letters of the operands, each at most once",
            found=equation,
        )
    return Equation(operands, outputs)


def explicit(equation: str) -> str:
    """The equation without spaces and with its result spelled out."""
    terms, result = _terms(equation)
    return f"{','.join(terms)}->{result}"


def _terms(equation: str) -> tuple[list[str], str]:
    """The operands' terms and the result's, worked out if it is not given."""
    text = "".join(equation.split())
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    for term in (*terms, right):
        letters = term.replace("...", "", 1)
        if not all(letter.isascii() and letter.isalpha() for letter in letters):
            raise TypeRuleError(
                "einsum: the equation cannot be read",
                expected="letters and '...', commas, and one '->'",
                found=equation,
            )
    if arrow:
        return terms, right
    letters = "".join(terms).replace("...", "")
    once = sorted(letter for letter in set(letters) if letters.count(letter) == 1)
    return terms, ("..." if "..." in left else "") + "".join(once)


def _labels(term: str, rank: int, equation: str) -> Labels:
    """The labels of a term's axes, those of ``...`` filled in to reach ``rank``."""
    before, dots, after = term.partition("...")
    hidden = rank - len(before) - len(after)
    require(
        hidden == 0 or (hidden > 0 and bool(dots)),
        f"einsum: {term!r} does not fit its operand",
        expected=f"{len(before) + len(after)} axes{' or more' if dots else ''}, as in {equation!r}",
        found=f"rank {rank}",
    )
    return (*map(ord, before), *range(-hidden, 0), *map(ord, after))


@op("einsum")
class Einsum(Op):
    """Sums of products of the operands' elements, by an equation that names their axes."""

    equation: str

    def infer(self, *operands: TensorType) -> TensorType:
        require(bool(operands), "einsum: no operands", expected="at least one", found="none")
        dtype = number_dtype(self.name, *operands)
        equation = read_equation(self.equation, [operand.rank for operand in operands])
        sizes = equation.sizes([operand.shape for operand in operands])
        shape = tuple(sizes[label] for label in equation.result)
        return TensorType(dtype, shape, device=operands[0].device)

    def evaluate(self, *operands: Array) -> Array:
        equation = read_equation(self.equation, [operand.ndim for operand in operands])
        numbers = {label: number for number, label in enumerate(set().union(*equation.operands))}
        arguments: list[Array | list[int]] = []
        for operand, labels in zip(operands, equation.operands, strict=True):
            arguments += [operand, [numbers[label] for label in labels]]
        result = [numbers[label] for label in equation.result]
        return np.asarray(np.einsum(*arguments, result, optimize=len(operands) > 2))

    def decompose(self, *operands: Value) -> Value:
        """Diagonals first, then one contraction for each further operand, from the left."""
        equation = read_equation(self.equation, [operand.rank for operand in operands])
        sizes = equation.sizes([operand.shape for operand in operands])
        terms = [
            _diagonal(value, labels)
            for value, labels in zip(operands, equation.operands, strict=True)
        ]
        value, labels = terms[0]
        for position, (other, other_labels) in enumerate(terms[1:], 1):
            needed = {*equation.result}.union(*(after for _, after in terms[position + 1 :]))
            kept = tuple(
                label for label in dict.fromkeys((*labels, *other_labels)) if label in needed
            )
            value = contract((value, labels), (other, other_labels), kept, sizes)
            labels = kept
        return _reduce_and_permute(value, labels, equation.result)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        generator = np.random.default_rng(0)

        def floats(*shape: int) -> Array:
            return generator.normal(size=shape).astype(np.float32)

        yield Sample(cls("ij,jk->ik"), (floats(2, 3), floats(3, 4)))
        yield Sample(cls("bij,bkj->bik"), (floats(2, 3, 4), floats(2, 5, 4)), "batch")
        yield Sample(cls("ij,jk,kl->li"), (floats(2, 3), floats(3, 4), floats(4, 2)), "three")
        yield Sample(cls("ij->ji"), (floats(2, 3),), "transpose")
        yield Sample(cls("ii->i"), (floats(3, 3),), "diagonal")
        yield Sample(cls("iij,ji->"), (floats(3, 3, 2), floats(2, 3)), "diagonal, all summed")
        yield Sample(cls("ba"), (floats(2, 3),), "implicit result")
        yield Sample(cls("...ij,...jk"), (floats(2, 1, 3, 4), floats(5, 4, 2)), "ellipses")
        yield Sample(cls("i...->i"), (floats(3, 2, 2),), "ellipsis, summed")
        yield Sample(cls("i,j->ij"), (floats(3), floats(2)), "outer")
        yield Sample(cls("ij,ij->i"), (floats(3, 1), floats(3, 4)), "broadcast a letter")
        yield Sample(cls("ij,kl->il"), (floats(3, 4)[:, ::2], floats(4, 6).T[::2]), "strided")
        yield Sample(cls(","), (floats(), floats()), "scalars")
        yield Sample(cls("ij,jk->ik"), (floats(3, 0), floats(0, 2)), "nothing to sum", False)
        integers = np.arange(6, dtype=np.int32).reshape(2, 3)
        yield Sample(cls("ij,ij->j"), (integers, integers), "i32")


def _diagonal(value: Value, labels: Labels) -> tuple[Value, Labels]:
    """Keep, of the axes with one label, the elements where they are equal."""
    while len(set(labels)) < len(labels):
        repeated = next(label for label in labels if labels.count(label) > 1)
        first = labels.index(repeated)
        second = labels.index(repeated, first + 1)
        same = elementwise.equal(data.iota(value.shape, first), data.iota(value.shape, second))
        zero = data.zeros((), value.dtype)
        value = reduce.sum(elementwise.where(same, value, zero), second)
        labels = (*labels[:second], *labels[second + 1 :])
    return value, labels


def _reduce_and_permute(value: Value, labels: Labels, result: Labels) -> Value:
    """Sum over labels that the result lacks, and put the others in its order."""
    axes = [axis for axis, label in enumerate(labels) if label not in result]
    kept = [label for label in labels if label in result]
    summed = reduce.sum(value, axes) if axes else value
    order = [kept.index(label) for label in result]
    return summed if order == sorted(order) else transpose(summed, order)


@function
def einsum(equation: str, *operands: Operand) -> Value:
    """Sums of products by an equation that names axes: ``einsum("bij,bjk->bik", a, b)``."""
    require(bool(operands), "einsum: no operands", expected="at least one", found="none")
    return apply_promoted(Einsum(explicit(equation)), *operands)
