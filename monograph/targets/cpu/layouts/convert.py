"""Layout conversions: the copies that remain, and the padding that is filled.

A conversion is a kernel that reads a value in one layout and writes it in another. Most are part of
a kernel that computes something as well; those that are not are counted, with their bytes, so that
a report can say what they cost.
"""

from __future__ import annotations

from dataclasses import replace

from monograph.fusion.group import Group
from monograph.ir.dims import Dim, Shape, shape_product
from monograph.ir.graph import Value
from monograph.ir.types import DType
from monograph.kernel import expr as e
from monograph.kernel.expr import Axis, Buffer
from monograph.kernel.flatten import flatten
from monograph.kernel.kernel import Kernel, Store
from monograph.kernel.layout import MemoryLayout
from monograph.rewrite.constants import splat
from monograph.targets.base import Conversion
from monograph.targets.cpu.assemble.program_builder import ProgramBuilder
from monograph.targets.cpu.loops.choose_schedule import choose
from monograph.targets.cpu.loops.schedule import Schedule
from monograph.targets.cpu.machine import Machine


def convert_layout(
    builder: ProgramBuilder,
    group: Group,
    value: Value,
    layout: MemoryLayout,
    filling: Value | None = None,
) -> int:
    """The slot of a copy of the value in this layout; one that is there already is used again.

    Its border holds ``filling``, or zeros.
    """
    key = value, layout, filling
    if key not in builder.converted:
        target = Buffer(f"{value.name}_copy", value.dtype, value.shape, layout)
        slot = builder.add_scratch(target)
        convert(builder, group, value, builder.slot(value), slot, None, layout, filling)
        builder.conversions.append(_conversion(value, f"read by {group.name}"))
        builder.converted[key] = slot
    return builder.converted[key]


def convert_back(
    builder: ProgramBuilder, group: Group, value: Value, source: int, layout: MemoryLayout
) -> None:
    """Write the value where it belongs, from a slot that holds it in this layout."""
    convert(builder, group, value, source, builder.slot(value), layout, None)
    builder.conversions.append(_conversion(value, f"written by {group.name}"))


def _conversion(value: Value, purpose: str) -> Conversion:
    nbytes = shape_product(value.shape) * value.dtype.numpy.itemsize
    return Conversion(value.name, purpose, nbytes)


def convert(
    builder: ProgramBuilder,
    group: Group,
    value: Value,
    source: int,
    target: int,
    from_: MemoryLayout | None,
    to: MemoryLayout | None,
    filling: Value | None = None,
) -> None:
    """A launch that copies a value; a layout of None is the value's own."""
    own = builder.layouts.get(value)
    read = Buffer("b0", value.dtype, value.shape, from_ or own)
    written = Buffer("o0", value.dtype, value.shape, to or own)
    axes = tuple(e.axis(f"_i{k}", dim) for k, dim in enumerate(value.shape))
    position = tuple(e.index(axis.symbol) for axis in axes)
    store = Store(written, position, e.load(read, position))
    kernel = Kernel(f"{group.name}_convert", (read,), (written,), axes, (store,))
    flat = flatten(kernel)
    if not flat.stores:
        return
    builder.note_sizes(flat, [source], [target])
    builder.launch_flat(group, flat, [source], [target])
    if to is not None:
        fill_border(builder, group, target, value.dtype, value.shape, to, filling)


def fill_border(
    builder: ProgramBuilder,
    group: Group,
    slot: int,
    dtype: DType,
    shape: Shape,
    layout: MemoryLayout,
    filling: Value | None = None,
) -> None:
    """Launches that write a scalar, or zeros, around a value that lies in a slot."""
    if not layout.border or any(dim == 0 for dim in shape):
        return
    order = layout.order
    bordered = [axis for axis in order if layout.border[axis]]
    buffer = Buffer("o0", dtype, (layout.reach(shape),))
    number = 0 if filling is None else splat(filling)
    read: tuple[Buffer, ...] = () if number is not None else (Buffer("b0", dtype, (1,)),)
    written = e.load(read[0], (e.index(0),)) if read else e.literal(int(number or 0), dtype)
    given = [builder.slot(filling)] if read and filling is not None else []
    for place_in_order, axis in enumerate(bordered):
        outside = order[: order.index(axis)]
        gap = _gap(layout, bordered[place_in_order:])
        step = layout.strides[axis] * (shape[axis] + layout.border[axis])
        inside = e.axis("_i_gap", gap)
        if place_in_order == 0:  # what lies before the first run is like what lies after each
            run = e.axis("_i_run", shape_product(shape[each] for each in outside) + 1)
            axes: tuple[Axis, ...] = (run, inside)
            place: Dim = run.symbol * step + inside.symbol
        else:
            runs = tuple(e.axis(f"_i_run{each}", shape[each]) for each in outside)
            axes = (*runs, inside)
            place = layout.offset + layout.strides[axis] * shape[axis] + inside.symbol
            place = place - _gap(layout, bordered[place_in_order + 1 :])
            for each, run in zip(outside, runs, strict=True):
                place = place + run.symbol * layout.strides[each]
        store = Store(buffer, (e.index(place),), written)
        kernel = Kernel(f"{group.name}_border", read, (buffer,), axes, (store,))
        flat = flatten(kernel)
        builder.launch_flat(group, flat, given, [slot], _in_halves(flat, builder.machine))


def _in_halves(border: Kernel, machine: Machine) -> Schedule:
    """How zeros are written: a processor that has half of an image also writes what is around it.

    It is little work, but lines that another processor wrote come slowly.
    """
    schedule = choose(border, machine)
    extents = {axis.symbol: axis.extent for axis in border.axes}
    total = shape_product(extents[symbol] for symbol in schedule.order[: schedule.parallel])
    if schedule.tile:
        (vector,) = schedule.vector
        total = total * ((extents[vector] + schedule.tile - 1) // schedule.tile)
    (buffer,) = border.outputs
    written = shape_product(extents.values()) * buffer.dtype.bits // 8
    if (
        not isinstance(total, int)
        or not isinstance(written, int)
        or written < machine.costs.task_copied_bytes
    ):
        return schedule
    return replace(schedule, grain=min(schedule.grain, max(1, -(-total // 2))))


def _gap(layout: MemoryLayout, axes: list[int]) -> Dim:
    """The zeros between two runs along the first of these axes, those of inner axes included."""
    total: Dim = 0
    for axis in axes:
        total = total + layout.border[axis] * layout.strides[axis]
    return total
