"""Contractions: pack what is to be packed, and launch the product.

An operand that is a plain array is read in place, weights lie in panels since the program was
loaded, and what is neither is packed: the right operand block by block inside the product, or
else in a step of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from monograph.dataclass import dataclass
from monograph.fusion.group import Group
from monograph.kernel.contraction import Contraction, as_contraction
from monograph.kernel.expr import Buffer, find_loads
from monograph.kernel.flatten import flatten
from monograph.kernel.kernel import Kernel
from monograph.kernel.shortening import with_short_formulas
from monograph.ops.conv import Conv
from monograph.program.code import Launch
from monograph.targets.cpu.assemble.program_builder import ProgramBuilder
from monograph.targets.cpu.plans.loops import LoopsPlan
from monograph.targets.cpu.plans.plan import KernelRequest, Launchable
from monograph.targets.cpu.products.blocks import round_size
from monograph.targets.cpu.products.in_words import MoreInputs, Words, by_micro_kernel
from monograph.targets.cpu.products.packing import panels_of, rows_of, tiles_of, tiles_read
from monograph.targets.cpu.products.product import Product, product_nest
from monograph.targets.cpu.products.readings import Weights
from monograph.targets.cpu.products.split_k import SplitK, in_pieces
from monograph.targets.cpu.products.tiles import Reading, Tiling
from monograph.targets.cpu.products.tiling import (
    SPLIT_K_PARTS,
    choose_tiling,
    is_worth_cutting,
    is_worth_tiling,
    tile_packing,
)
from monograph.targets.plan import KernelPlan, Refusal

if TYPE_CHECKING:
    from monograph.targets.cpu.tuning import Tuning


def plan_product(builder: ProgramBuilder, request: KernelRequest) -> Launchable | Refusal:
    """A contraction in tiles, if the kernel is one that is worth it."""
    group, flat, inputs = request.group, request.flat, request.read
    contraction = as_contraction(with_short_formulas(flat))
    if contraction is None:
        return Refusal("it is no sum of products of two operands")
    if contraction.summed not in {micro.summed for micro in builder.machine.micro_kernels}:
        return Refusal(f"no instruction adds up products in {contraction.summed}")
    slots = {b.name: slot for b, slot in zip(flat.inputs, inputs, strict=True)}
    weights = find_weights(builder, contraction, slots)
    if not is_worth_tiling(contraction, weights, builder.machine):
        return Refusal("there is too little to multiply for tiles to pay")
    pieces = in_pieces(contraction, SPLIT_K_PARTS) if is_worth_cutting(contraction) else None
    if pieces is not None:
        parts = plan_product(builder, replace(request, flat=pieces.parts))
        if isinstance(parts, ProductPlan):
            rest = builder.plan_kernel(group, pieces.rest, request.written)
            return _split_k(pieces, parts, rest)
    found = _by_instruction(builder, contraction, inputs, weights)
    contraction, more = found.contraction, found.more
    contraction, tiling = choose_tiling(
        contraction, builder.machine, weights, is_in_network(group), builder.loop_depth > 0
    )
    held = {
        Weights.RIGHT: "its right operand is packed when it is loaded",
        Weights.LEFT: "its left operand is packed when it is loaded",
        Weights.NONE: "both operands are computed in every call",
    }
    scratch = tuple(b for each in more if isinstance(each, Kernel) for b in each.outputs)
    several = f", by {found.micro}" if found.micro.steps > 1 else ""
    reason = f"a product that is worth tiles{several}; {held[weights]}"
    plan = KernelPlan("product", reason, tiling, scratch)
    names = tuple(buffer.name for buffer in flat.inputs)
    product = TiledProduct(flat.digest, group, contraction, tiling)
    return ProductPlan(plan, group, names, more, product)


@dataclass(frozen=True)
class TiledProduct:
    """A contraction and how it is cut up: what measurements may edit."""

    digest: str
    group: Group
    contraction: Contraction
    choice: Tiling

    def with_choice(self, choice: object) -> TiledProduct:
        """The same contraction, cut up in another way."""
        assert isinstance(choice, Tiling)
        return replace(self, choice=choice)

    def launch(self, builder: ProgramBuilder, read: Sequence[int], written: Sequence[int]) -> None:
        """Pack what the tiling wants packed, and multiply."""
        names = (buffer.name for buffer in self.contraction.kernel.inputs)
        slots = dict(zip(names, read, strict=True))
        launch_product(builder, self.group, self.contraction, self.choice, slots, written)


@dataclass(frozen=True)
class ProductPlan(Launchable):
    """A product in tiles, and what is made for it first."""

    group: Group
    names: tuple[str, ...]
    """What the kernel reads."""
    more: MoreInputs
    product: TiledProduct

    def with_edits(self, tuning: Tuning) -> ProductPlan:
        """The plan with the tiling that measurements prefer."""
        tiling = tuning(self.product.digest, self.product.choice)
        plan = replace(self.plan, choice=tiling)
        return replace(self, plan=plan, product=self.product.with_choice(tiling))

    def launch(self, builder: ProgramBuilder, read: Sequence[int], written: Sequence[int]) -> None:
        """Make what else is read, and multiply."""
        read = slots_read(builder, self.group, self.names, self.more, read)
        builder.record(self.product, read, written)
        self.product.launch(builder, read, written)


def slots_read(
    builder: ProgramBuilder,
    group: Group,
    names: Sequence[str],
    more: MoreInputs,
    read: Sequence[int],
) -> list[int]:
    """The slots of a kernel's inputs, then of what else a product reads, which is made first."""
    given = dict(zip(names, read, strict=True))
    found = list(read)
    for each in more:
        if isinstance(each, str):
            found.append(given[each])
        else:
            inputs = tuple(given[buffer.name] for buffer in each.inputs)
            found.append(builder.packed(group, each, inputs))
    return found


@dataclass(frozen=True)
class SplitKPlan(Launchable):
    """Products over parts of k, and their sum."""

    pieces: SplitK
    parts: ProductPlan
    rest: LoopsPlan

    def with_edits(self, tuning: Tuning) -> SplitKPlan:
        """The plan with the choices that measurements prefer."""
        parts = self.parts.with_edits(tuning)
        plan = replace(self.plan, choice=parts.plan.choice)
        return replace(self, plan=plan, parts=parts, rest=self.rest.with_edits(tuning))

    def launch(self, builder: ProgramBuilder, read: Sequence[int], written: Sequence[int]) -> None:
        """The parts, then the rest."""
        made = [builder.add_scratch(each) for each in self.pieces.parts.outputs]
        self.parts.launch(builder, read, made)
        rest = [*(read[k] for k in self.pieces.rest_inputs), *made]
        self.rest.launch(builder, rest, written)


def _split_k(pieces: SplitK, parts: ProductPlan, rest: LoopsPlan) -> SplitKPlan:
    scratch = (*pieces.parts.outputs, *parts.plan.scratch)
    reason = f"k is split in {SPLIT_K_PARTS}, since there are few results; {parts.plan.reason}"
    plan = KernelPlan("product", reason, parts.plan.choice, scratch)
    return SplitKPlan(plan, pieces, parts, rest)


def find_weights(
    builder: ProgramBuilder, contraction: Contraction, slots: Mapping[str, int]
) -> Weights:
    """Which operand is made of weights alone; the right one if both are."""
    sides = ((Weights.RIGHT, contraction.right), (Weights.LEFT, contraction.left))
    for weights, side in sides:
        read = [slots[load.buffer.name] for load in find_loads(side)]
        if builder.is_constant(read):
            return weights
    return Weights.NONE


def is_in_network(group: Group) -> bool:
    """Whether it convolves an image that an earlier kernel wrote."""
    images = [node.operands[0] for node in group.nodes if isinstance(node.op, Conv)]
    return any(image.producer is not None for image in images)


def _by_instruction(
    builder: ProgramBuilder, contraction: Contraction, inputs: Sequence[int], weights: Weights
) -> Words:
    """The contraction by the instruction that takes the most steps of k at once."""
    small = builder.small_inputs(contraction.kernel, inputs)
    is_weight = weights is Weights.RIGHT
    tried = (
        by_micro_kernel(contraction, micro, small, is_weight=is_weight)
        for micro in builder.machine.micro_kernels
    )
    return next(found for found in tried if found is not None)


def launch_product(
    builder: ProgramBuilder,
    group: Group,
    contraction: Contraction,
    tiling: Tiling,
    slots: Mapping[str, int],
    outputs: Sequence[int],
) -> None:
    """Pack what the tiling wants packed, and multiply; ``slots`` are those of the inputs."""
    known = dict(slots)

    def packed(packing: Kernel, in_tiles: bool = False) -> Buffer:
        (buffer,) = packing.outputs
        read = tuple(slots[each.name] for each in packing.inputs)
        flat = flatten(packing)
        schedule = tile_packing(flat, builder.machine) if in_tiles else None
        known[buffer.name] = builder.packed(group, flat, read, schedule)
        return buffer

    left = right = None
    if tiling.left is Reading.PACKED:
        left = packed(rows_of(contraction))
    if tiling.left is Reading.TILES:
        depth = round_size(contraction.k, tiling.depth)
        left = packed(tiles_of(contraction, tiling.height, depth, tiling.rows), in_tiles=True)
        tiles = tiles_read(contraction, tiling.height, depth, tiling.rows)
        last = builder.steps[-1] if builder.steps else None
        if tiles is not None and isinstance(last, Launch) and last.slots[-1] == known[left.name]:
            builder.packings[last.kernel] = tiles
    if tiling.right is Reading.PACKED:
        right = packed(panels_of(contraction, tiling.columns, is_narrow=tiling.narrow))
    nest = product_nest(contraction, tiling, left, right, builder.machine.costs.product)
    built = builder.built_nest(group, nest, contraction.kernel, tiling)
    builder.products[built.name] = Product(contraction, tiling, left, right)
    builder.launch_built(built, group, [known[each.name] for each in nest.inputs], outputs)
