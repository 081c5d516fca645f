"""Convolutions whose windows do not overlap: gathers the pixels that are read, then multiplies.

    x[n, c, 2y + i, 2x + j]   ─▶   patches[n, c, i, j, y, x]   ─▶   a product with every pixel

No pixel is read twice, so the copy is never larger than the image, and with a stride of two a
window of one pixel leaves a quarter of it. The product then reads and writes rows of pixels: where
both ends of the convolution have to be row-major, neither is turned to channels-last and back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from monograph.dataclass import dataclass
from monograph.fusion.group import Group, GroupKind
from monograph.ir.dims import Dim, Symbol
from monograph.ir.graph import Node, Value
from monograph.kernel import expr as e
from monograph.kernel.expr import Axis, Buffer, Expr, Index, Load, Reduce
from monograph.kernel.flatten import flatten
from monograph.kernel.kernel import Kernel, Store, write_kernel
from monograph.kernel.layout import MemoryLayout
from monograph.ops.conv import Conv
from monograph.targets.cpu.plans.plan import GroupRequest, Launchable
from monograph.targets.plan import KernelPlan, Refusal

if TYPE_CHECKING:
    from monograph.targets.cpu.assemble.steps import StepBuilder


@dataclass(frozen=True)
class Gathered:
    """A kernel that gathers the patches, and the convolution that reads them instead of ``x``."""

    x: Value
    gather: Kernel
    product: Kernel


def has_patches(group: Group, layouts: Mapping[Value, MemoryLayout]) -> bool:
    """Whether a group is a strided convolution of separate windows, row-major at both ends."""
    node = _convolution(group)
    if node is None or any(value in layouts for value in (node.operands[0], *group.outputs())):
        return False
    op, windows = node.op, node.operands[1].shape[2:]
    assert isinstance(op, Conv)
    known = [size for size in windows if isinstance(size, int)]
    if len(known) != len(windows) or op.groups != 1 or node.operands[0] not in group.inputs():
        return False
    padded = any(side for pair in op.padding for side in pair)
    apart = all(size <= step for size, step in zip(known, op.stride, strict=True))
    return apart and not padded and prod(op.stride) > 1


def plan_patches(launches: StepBuilder, request: GroupRequest) -> Launchable | Refusal:
    """Gather what separate windows read, then multiply."""
    group, inputs = request.group, request.inputs
    if request.wanted or len(request.kernels) != 1 or not has_patches(group, launches.layouts):
        return Refusal("it is no row-major convolution of separate windows")
    found = gather_patches(group, request.kernels[0][0], inputs)
    if found is None:
        return Refusal("its image is read in more than one way")
    reason = "its windows do not overlap: the pixels are gathered once, then multiplied"
    plan = KernelPlan("patches", reason, scratch=found.gather.outputs)
    return PatchesPlan(plan, group, found, tuple(inputs), tuple(request.outputs))


@dataclass(frozen=True)
class PatchesPlan(Launchable):
    """A convolution of gathered patches, by the values that it reads and makes."""

    group: Group
    found: Gathered
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]

    def launch(self, builder: StepBuilder, read: Sequence[int], written: Sequence[int]) -> None:
        """Gather, then compute the rest as any other kernel."""
        group, found = self.group, self.found
        slot = builder.add_scratch(found.gather.outputs[0])
        builder.launch_flat(group, flatten(found.gather), [builder.slot(found.x)], [slot])
        given = [slot if value is found.x else builder.slot(value) for value in self.inputs]
        made = [builder.slot(value) for value in self.outputs]
        builder.launch(group, flatten(found.product), given, made)


def gather_patches(group: Group, kernel: Kernel, inputs: Sequence[Value]) -> Gathered | None:
    """The two kernels of a convolution that ``has_patches``."""
    node = _convolution(group)
    reductions = [each for each in kernel.expressions() if isinstance(each, Reduce)]
    if node is None or len(reductions) != 1:
        return None
    x = node.operands[0]
    image = kernel.inputs[inputs.index(x)]
    loads = [each for each in kernel.loads() if each.buffer.name == image.name]
    if len(loads) != 1 or not all(isinstance(each, Index) for each in loads[0].operands):
        return None
    (load,) = loads
    batch, _, *pixels = kernel.axes
    axes = (batch, *reductions[0].axes, *pixels)
    if not load.symbols <= {axis.symbol for axis in axes}:
        return None
    patches = Buffer("patches", image.dtype, tuple(axis.extent for axis in axes))
    place = tuple(e.index(axis.symbol) for axis in axes)
    known: Mapping[Expr, Expr] = {load: e.load(patches, place)}
    stores = tuple(replace(each, value=e.replace(each.value, known)) for each in kernel.stores)
    read = tuple(patches if each is image else each for each in kernel.inputs)
    product = replace(kernel, inputs=read, stores=stores)
    return Gathered(x, _gather(kernel.name, load, axes, patches), product)


def _gather(name: str, load: Load, axes: tuple[Axis, ...], patches: Buffer) -> Kernel:
    """Store what the load reads, in the order of these axes."""
    own = tuple(e.axis(f"_i{k}", axis.extent) for k, axis in enumerate(axes))
    renamed: dict[Symbol, Dim] = {
        old.symbol: new.symbol for old, new in zip(axes, own, strict=True)
    }
    place = tuple(e.index(axis.symbol) for axis in own)
    store = Store(patches, place, e.substitute(load, renamed))
    return write_kernel(f"{name}_gather", own, store)


def _convolution(group: Group) -> Node | None:
    """The one convolution of a group that is made around one."""
    if group.kind is not GroupKind.CONTRACTION:
        return None
    nodes = [node for node in group.nodes if isinstance(node.op, Conv)]
    return nodes[0] if len(nodes) == 1 else None
