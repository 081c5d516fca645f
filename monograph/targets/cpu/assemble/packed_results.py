"""Stores a product's result in the packed layout of the only product that reads it.

    a = gelu(x @ v)                        tiles of a = gelu(x @ v)
    tiles of a = a, packed        ──▶      b = tiles of a @ w
    b = tiles of a @ w

The tiles of the registers are those in which the next product reads its rows, so packing costs
nothing then: a launch less, and every element written and read once less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from monograph.program.code import Launch, SlotKind, Step, list_slots, walk_steps
from monograph.targets.cpu.assemble.program_builder import ProgramBuilder
from monograph.targets.cpu.products.product import product_nest

WRITER_AND_PACKER = 2
"""Steps that use a slot that one writes and one packs."""


def join_packs(builder: ProgramBuilder, ends: list[int]) -> None:
    """Join products and packings; ``ends`` are numbers of steps, which become fewer."""
    if not builder.packings:
        return
    steps = builder.steps
    uses = Counter(slot for step in walk_steps(tuple(steps)) for slot in list_slots(step))
    writers: dict[int, int] = {}
    left_out: set[int] = set()
    for number, step in enumerate(steps):
        if not isinstance(step, Launch):
            continue
        writer = _writer(builder, step, writers, uses)
        if writer is not None:
            steps[writer] = _storing(builder, steps[writer], step)
            left_out.add(number)
        writers |= dict.fromkeys(step.slots[-step.outputs :], number)
    if not left_out:
        return
    steps[:] = [step for number, step in enumerate(steps) if number not in left_out]
    ends[:] = [end - sum(number < end for number in left_out) for end in ends]
    _forget_unused(builder)


def _writer(
    builder: ProgramBuilder, packing: Launch, writers: Mapping[int, int], uses: Mapping[int, int]
) -> int | None:
    """The step of the product whose result a launch packs, if it can do that itself."""
    tiles = builder.packings.get(packing.kernel)
    if tiles is None or packing.offsets:
        return None
    if not _has_own_sizes(builder, packing):
        return None
    source = packing.slots[0]
    number = writers.get(source)
    if (
        number is None
        or uses[source] > WRITER_AND_PACKER
        or builder.slots[source].kind is not SlotKind.ARENA
    ):
        return None
    step = builder.steps[number]
    if not isinstance(step, Launch) or step.offsets or step.slots[-1] != source:
        return None
    if not _has_own_sizes(builder, step):
        return None
    product = builder.products.get(step.kernel)
    return number if product is not None and product.can_store(tiles) else None


def _storing(builder: ProgramBuilder, step: Step, packing: Launch) -> Launch:
    """The launch of a product that stores its result where a packing would."""
    assert isinstance(step, Launch)
    product, tiles = builder.products[step.kernel], builder.packings[packing.kernel]
    group = next(each.group for each in builder.kernels.values() if each.name == step.kernel)
    costs = builder.machine.costs.product
    nest = product_nest(
        product.contraction, product.tiling, product.left, product.right, costs, tiles
    )
    built = builder.built_nest(group, nest, product.contraction.kernel, product.tiling)
    slots = (*step.slots[:-1], packing.slots[-1])
    return replace(step, kernel=built.name, slots=slots, sizes=built.nest.sizes)


def _has_own_sizes(builder: ProgramBuilder, step: Launch) -> bool:
    """Whether a launch calls its sizes as its kernel does: only then do two kernels' compare."""
    if not step.sizes:
        return True
    return any(
        each.name == step.kernel and each.nest.sizes == step.sizes
        for each in builder.kernels.values()
    )


def _forget_unused(builder: ProgramBuilder) -> None:
    """Drop the kernels that no step runs."""
    steps = walk_steps((*builder.prepare, *builder.steps))
    run = {step.kernel for step in steps if isinstance(step, Launch)}
    for key, built in list(builder.kernels.items()):
        if built.name not in run:
            del builder.kernels[key]
