"""Contractions: pack what is worth packing, then multiply panels."""

from __future__ import annotations

from collections.abc import Sequence

from monograph.fusion.group import Group
from monograph.kernel.contraction import WORTHWHILE, Contraction, Tile, as_contraction, pack
from monograph.kernel.expr import Load, walk
from monograph.kernel.flatten import flatten
from monograph.kernel.kernel import Kernel
from monograph.targets.cpu.choose import likely
from monograph.targets.cpu.launches import Launches
from monograph.targets.cpu.machine import Machine

FEW = 8
"""Rows from which an operand that is packed each time is read often enough."""


def contract(
    launches: Launches, group: Group, flat: Kernel, inputs: Sequence[int], outputs: Sequence[int]
) -> bool:
    """Steps that pack both operands and multiply them, if the kernel is a contraction.

    Packed weights are made beforehand.
    """
    contraction = as_contraction(flat)
    if contraction is None or not _should_pack(launches, contraction, inputs):
        return False
    packed = pack(contraction, choose_tile(contraction, launches.machine))
    slots = {b.name: slot for b, slot in zip(flat.inputs, inputs, strict=True)}
    sides = []
    for kernel in (packed.left, packed.right):
        read = tuple(slots[buffer.name] for buffer in kernel.inputs)
        sides.append(launches.packed(group, flatten(kernel), read))
    rest = [inputs[k] for k in packed.epilogue_inputs]
    launches.launch_flat(group, packed.product, [*sides, *rest], outputs, packed.schedule)
    return True


def _should_pack(launches: Launches, contraction: Contraction, inputs: Sequence[int]) -> bool:
    """Whether a contraction is large enough to pay for packing what is not prepared."""
    slots = {b.name: slot for b, slot in zip(contraction.kernel.inputs, inputs, strict=True)}
    loads = (x for x in walk((contraction.right,)) if isinstance(x, Load))
    constant = launches.is_constant(tuple(slots[load.buffer.name] for load in loads))
    return is_worth_packing(contraction, constant)


def is_worth_packing(contraction: Contraction, constant: bool) -> bool:
    """Whether a contraction is large enough to pay for the packing of its operands.

    A constant right operand is packed beforehand; else few rows would read it just once.
    """
    sides = (contraction.m, contraction.n, contraction.k)
    m, n, k = (likely(contraction.size(axes)) for axes in sides)
    large = k >= 8 and n >= 8 and m * n * k >= WORTHWHILE
    return large and (constant or m >= FEW)


def choose_tile(contraction: Contraction, machine: Machine) -> Tile:
    """The tile of the result that is kept in registers: as large as they allow.

    Two vectors a row leave most registers for partial sums; with few rows, more vectors keep
    enough sums going to hide the latency of each.
    """
    lanes = machine.vector_bytes * 8 // contraction.reduction.dtype.bits
    rows = likely(contraction.size(contraction.m))
    columns = likely(contraction.size(contraction.n))
    if rows < 4:
        vectors = 8 if rows == 1 else 4
        while vectors > 1 and vectors * lanes >= 2 * columns:
            vectors //= 2
        return Tile(rows, vectors * lanes)
    most = (machine.registers - 4) // 2
    candidates = range(min(most, rows), 3, -1)
    best = min(candidates, key=lambda count: (-(-rows // count) * (count + 1.5), -count))
    return Tile(best, 2 * lanes if columns > lanes else lanes)
