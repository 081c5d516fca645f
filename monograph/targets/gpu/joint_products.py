"""Products that share an operand, computed by one kernel: the two of a gated MLP.

    silu(x @ w) * (x @ v)         each tile of x is loaded once, and multiplied with both weights

Fusion leaves a product in a kernel of its own; ``join_products`` puts it into the kernel that reads
it, where that kernel is a product of the same operand with results at the same places.
``as_contractions`` finds such products in a kernel again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from monograph.fusion.group import Fusion, Group, GroupKind
from monograph.ir.graph import Node, Value
from monograph.kernel import expr as e
from monograph.kernel.contraction import Contraction, as_contraction
from monograph.kernel.expr import Expr
from monograph.kernel.kernel import Kernel, Store
from monograph.ops.linalg import DotGeneral
from monograph.targets.gpu.chip import Chip
from monograph.targets.gpu.choices import site_of
from monograph.targets.gpu.expressions import reductions_of

JOINED, APART = "one kernel", "two kernels"
"""Contenders for two products of one operand."""


def join_products(fusion: Fusion, chip: Chip | None = None) -> Fusion:
    """The groups, with products of one operand joined where one reads the other's results.

    What was measured on the chip to be slower so stays apart.
    """
    groups = list(fusion.groups)
    for reader in fusion.groups:
        made = {value: group for group in groups for value in group.outputs()}
        for value in reader.inputs():
            writer = made.get(value)
            if writer is not None and _may_join(writer, reader, value):
                if chip is not None and _is_apart(writer, reader, chip):
                    continue
                joined = _join(writer, reader, value)
                groups[groups.index(reader)] = joined
                groups.remove(writer)
                break
    return Fusion(tuple(groups))


def pairs_of(fusion: Fusion) -> Iterator[tuple[Group, Group]]:
    """Groups of products that may be joined: what is written, and who reads it."""
    made = {value: group for group in fusion.groups for value in group.outputs()}
    for reader in fusion.groups:
        for value in reader.inputs():
            writer = made.get(value)
            if writer is not None and _may_join(writer, reader, value):
                yield writer, reader
                break


def pair_key(nodes: Iterable[Node]) -> str | None:
    """The name of a pair's site in tables of measurements; None where sizes are not known."""
    sites = [site_of(node) for node in nodes if isinstance(node.op, DotGeneral)]
    if not all(sites):
        return None
    return "pair: " + "; ".join(site.key for site in sites if site is not None)


def _is_apart(writer: Group, reader: Group, chip: Chip) -> bool:
    key = pair_key((*writer.nodes, *reader.nodes)) if chip.measured.sites else None
    return key is not None and chip.measured.winner(key) == APART


def _may_join(writer: Group, reader: Group, value: Value) -> bool:
    if writer.kind is not GroupKind.CONTRACTION or reader.kind is not GroupKind.CONTRACTION:
        return False
    if writer.copies or reader.copies or writer.outputs() != [value]:
        return False
    inside = set(reader.nodes)
    if value in writer.exported or any(use.node not in inside for use in value.uses):
        return False
    mine, theirs = _product_of(writer), _product_of(reader)
    if mine is None or theirs is None or mine.operands[0] is not theirs.operands[0]:
        return False
    place = reader.places.get(value)
    if place is None or len(place) != len(reader.space):
        return False
    return all(axis == k or (axis is None and reader.space[k] == 1) for k, axis in enumerate(place))


def _product_of(group: Group) -> Node | None:
    """The product of a group, if it has one and one only."""
    found = [node for node in group.nodes if isinstance(node.op, DotGeneral)]
    return found[0] if len(found) == 1 else None


def _join(writer: Group, reader: Group, value: Value) -> Group:
    return Group(
        [*writer.nodes, *reader.nodes],
        reader.kind,
        reader.space,
        reader.places,
        reader.rows,
        [*reader.joined, f"%{value.name} is a product of the same operand: one kernel reads it"],
        reader.apart,
        exported=reader.exported,
        taken_in=[*reader.taken_in, value],
    )


def as_contractions(kernel: Kernel) -> tuple[Contraction, ...]:
    """The products that a kernel is made of, all of one left operand; none if it is not so made."""
    reductions = reductions_of(kernel)
    found = list[Contraction]()
    for reduction in reductions:
        others: Mapping[Expr, Expr] = {
            x: e.literal(0, x.dtype) for x in reductions if x is not reduction
        }
        stores = tuple(
            Store(s.buffer, s.position, e.replace(s.value, others), s.guard) for s in kernel.stores
        )
        alone = replace(kernel, stores=stores)
        contraction = as_contraction(alone)
        if contraction is None:
            return ()
        if found:
            contraction = _with_axes_of(contraction, found[0])
        if contraction is None:
            return ()
        found.append(replace(contraction, kernel=kernel, reduction=reduction))
    return tuple(found)


def _with_axes_of(contraction: Contraction, first: Contraction) -> Contraction | None:
    """The contraction with the k axes of another one, if all else is the same but its operand."""
    extents = [[axis.extent for axis in each.k] for each in (contraction, first)]
    sides = [(each.batch, each.outer, each.m, each.n) for each in (contraction, first)]
    if extents[0] != extents[1] or sides[0] != sides[1]:
        return None
    pairs = zip(contraction.k, first.k, strict=True)
    names = {own.symbol: other.symbol for own, other in pairs}
    left, right = (e.substitute(x, names) for x in (contraction.left, contraction.right))
    same_dtype = contraction.reduction.dtype is first.reduction.dtype
    return (
        replace(contraction, left=left, right=right) if left is first.left and same_dtype else None
    )
