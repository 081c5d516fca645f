"""From groups to the steps of a program for a GPU: a launch, a library's call, or the host's.

A group is a Triton kernel if a family writes it. A node that none writes is computed by a library
of the device (``libraries``), or, named in the report, by the interpreter on the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from monograph.dataclass import dataclass
from monograph.errors import UnsupportedError
from monograph.fusion.group import Fusion, Group, GroupKind
from monograph.fusion.prologue import is_stored
from monograph.fusion.regions import Fusions
from monograph.ir.graph import Graph, Node, Value
from monograph.kernel.kernel import Kernel
from monograph.kernel.layout import MemoryLayout, make_layout
from monograph.ops.attention import Attention
from monograph.ops.shape import Transpose
from monograph.program.code import Launch, LibraryCall, Slot, SlotKind
from monograph.progress import announce
from monograph.switches import is_on
from monograph.targets.gpu.chip import Chip
from monograph.targets.gpu.choices import OURS, attention_backend, read_times, why_library
from monograph.targets.gpu.group_kernel import lower_flat, write_attention, write_lowered
from monograph.targets.gpu.inline_producers import inline_producers
from monograph.targets.gpu.joint_products import join_products
from monograph.targets.gpu.layouts import choose_layouts
from monograph.targets.gpu.libraries import library_of
from monograph.targets.gpu.overlap import overlap
from monograph.targets.gpu.plan import KernelSequence
from monograph.targets.gpu.side_by_side import gather_launches, join_kernels
from monograph.targets.gpu.source import TritonKernel
from monograph.targets.gpu.views import StridedView, is_read_in_place, view_of
from monograph.targets.plan import KernelPlan, PlannedKernel
from monograph.targets.slot_builder import SlotBuilder, is_view


@dataclass(frozen=True)
class GpuKernel:
    """A kernel of a program: the group that it was made for, and its source."""

    name: str
    group: Group
    triton: TritonKernel

    @property
    def kernel(self) -> Kernel | None:
        """What it computes, which attention does not say as a formula."""
        return self.triton.kernel if self.triton.kernel.stores else None

    @property
    def text(self) -> str:
        """Its Triton source."""
        return self.triton.source

    @property
    def summary(self) -> str:
        """Family, blocks and warps."""
        blocks = ", ".join(f"{name} {size}" for name, size in self.triton.blocks.items())
        return f"{self.triton.family}: {blocks}; {self.triton.warps} warps"


@dataclass(frozen=True)
class KnownSequence:
    """Kernels that compute something, and the program's kernels that they are."""

    sequence: KernelSequence
    kernels: tuple[GpuKernel, ...]


class StepBuilder(SlotBuilder):
    """Gathers the slots, kernels and steps of one program."""

    def __init__(self, fusions: Fusions, chip: Chip) -> None:
        super().__init__()
        self.fusions = fusions
        self.chip = chip
        self.layouts: Mapping[Value, MemoryLayout] = {}
        """How the values lie that are not row-major."""
        self.planned: list[PlannedKernel] = []
        """How each kernel is computed that no equal one was before."""
        self.kernels: dict[str, GpuKernel] = {}
        self.known: dict[str, KnownSequence] = {}
        """Kernels by the digest of what they compute: twelve equal layers have one layer's."""
        self.flat: dict[str, tuple[Kernel, list[Group]]] = {}
        """What kernels compute, by digest, and the groups that they compute."""
        self.ends: list[int] = []
        self.visited: list[Fusion] = []

    def main(self, graph: Graph) -> None:
        """The steps of a whole graph, with its inputs and outputs as slots."""
        targets = self.add_ends(graph)
        fusion = inline_producers(join_products(self.fusions[graph], self.chip))
        self.visited.append(fusion)
        self.layouts = choose_layouts(graph, fusion, self.chip)
        self.write_outputs_to(graph, targets)
        for number, group in enumerate(fusion.groups):
            announce("kernels", number, len(fusion.groups))
            self.group(group)
            self.ends.append(len(self.steps))
        self.copy_outputs_to(graph, targets)
        self.gather_launches()

    def gather_launches(self) -> None:
        """Let small kernels that do not wait for each other be one launch."""
        gathered = gather_launches(self.steps, {k: x.triton for k, x in self.kernels.items()})
        if not gathered.parts:
            return
        steps, joined = list(gathered.steps), dict[tuple[str, ...], str]()
        for place, parts in gathered.parts.items():
            names = tuple(part.kernel for part in parts)
            if names not in joined:
                joined[names] = self.join_kernels(names)
            inputs = [slot for part in parts for slot in part.slots[: -part.outputs]]
            outputs = [slot for part in parts for slot in part.slots[-part.outputs :]]
            kernel = self.kernels[joined[names]].triton
            begins = [part.offsets or (0,) * len(part.slots) for part in parts]
            offsets = [n for x, part in zip(begins, parts, strict=True) for n in x[: -part.outputs]]
            steps[place] = Launch(
                kernel.name,
                (*inputs, *outputs),
                (),
                1,
                1,
                outputs=len(outputs),
                offsets=(*offsets, *(0 for _ in outputs)) if any(offsets) else (),
                grid=kernel.grid,
            )
        self.steps[:] = steps
        ends, last = list[int](), -1
        for end, begin in zip(self.ends, (0, *self.ends), strict=False):
            last = max([last, *gathered.moved[begin:end]])
            ends.append(last + 1)
        self.ends = ends
        launched = {step.kernel for step in steps if isinstance(step, Launch)}
        self.kernels = {name: x for name, x in self.kernels.items() if name in launched}

    def join_kernels(self, names: Sequence[str]) -> str:
        """A kernel that does the work of several; its name."""
        parts = [self.kernels[name] for name in names]
        name = f"k{len(self.kernels)}_{parts[0].group.name}_beside"
        nodes = list(dict.fromkeys(node for part in parts for node in part.group.nodes))
        group = Group(nodes, GroupKind.POINTWISE, parts[0].group.space, {})
        triton = join_kernels(name, [part.triton for part in parts])
        self.kernels[name] = GpuKernel(name, group, triton)
        return name

    def add_slot(self, value: Value, kind: SlotKind, number: int = 0) -> int:
        """A new slot of the value's type, in the value's layout."""
        made = super().add_slot(value, kind, number)
        layout = self.layouts.get(value)
        if layout is not None:
            strides = tuple(step for step in layout.strides if isinstance(step, int))
            self.slots[made] = replace(self.slots[made], strides=strides)
        return made

    def is_alias(self, node: Node) -> bool:
        """Whether the result is the operand's memory: in another shape, or as it lies anyway."""
        if is_view(node):
            return node.operands[0] not in self.layouts
        if not isinstance(node.op, Transpose) or node.results[0] in self.layouts:
            return False
        (source,), (result,) = node.operands, node.results
        if source not in self.layouts:
            return False
        strides = self.layouts[source].strides
        turned = tuple(strides[axis % source.rank] for axis in node.op.permutation)
        return turned == make_layout(result.shape, range(result.rank)).strides

    # Groups ---------------------------------------------------------------------------------------

    def group(self, group: Group) -> None:
        """The steps of one group."""
        first = group.nodes[0]
        if all(self.is_alias(node) for node in group.nodes):
            return
        if group.kind is GroupKind.OPAQUE and is_read_in_place(first, self.chip):
            return
        why = why_library(first, self.chip) if group.kind is GroupKind.OPAQUE else None
        if why is not None:
            self.alone(group, first, why)
            return
        try:
            self.computed(group, first)
        except UnsupportedError as refusal:
            for node in group.nodes:
                self.alone(group, node, refusal.message)

    def computed(self, group: Group, first: Node) -> None:
        """The launches of a group, of kernels that there are already if one computes the same."""
        name = f"k{len(self.kernels)}_{group.name}"
        if isinstance(first.op, Attention):
            sequence = write_attention(first, name, read_times(first, self.chip))
            digest = "\n".join(map(_without_name, sequence.kernels))
            self.launch(group, digest, sequence, first.operands, first.results)
            return
        if group.kind is GroupKind.OPAQUE:
            raise UnsupportedError(f"no formula gives the elements of {first.op.name}")
        lowered = lower_flat(group, name, self.results(group), self.layouts)
        if not lowered.flat.stores:
            return
        self.flat.setdefault(lowered.flat.digest, (lowered.flat, []))[1].append(group)
        weights = frozenset(
            f"b{k}" for k, value in enumerate(lowered.inputs)
            if value.producer is not None and is_stored(value.producer)
        )  # fmt: skip
        digest = f"{lowered.flat.digest} {sorted(weights)}"
        found = self.known.get(digest)
        if found is None:
            sequence = write_lowered(group, lowered, self.measured_of(group, lowered.flat))
            if is_on("overlapped_launches"):
                kernels = tuple(overlap(each, weights, self.chip) for each in sequence.kernels)
                sequence = replace(sequence, kernels=kernels)
        else:
            sequence = found.sequence
        self.launch(group, digest, sequence, lowered.inputs, lowered.outputs, lowered.begins)

    def measured_of(self, group: Group, flat: Kernel) -> dict[str, float]:
        """What a group's contenders were measured to take: libraries, and configurations."""
        times = dict[str, float]()
        for node in group.nodes:
            for name, taken in read_times(node, self.chip).items():
                times[name.removeprefix(f"{OURS} ")] = taken
        return times | dict(self.chip.measured.times(kernel_site(flat)))

    def results(self, group: Group) -> list[Value]:
        """The results that a group computes: each memory once, and none that was there before."""
        inside = {value for node in group.nodes for value in node.results}
        found: dict[int, Value] = {}
        for value in group.outputs():
            if self.written(value) in inside:
                found.setdefault(self.slot(value), value)
        return list(found.values())

    def launch(
        self,
        group: Group,
        digest: str,
        sequence: KernelSequence,
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        begins: Mapping[str, int] | None = None,
    ) -> None:
        """The steps that run a sequence of kernels, with memory for what is between them."""
        known = self.known.get(digest)
        if known is None:
            known = self.known[digest] = KnownSequence(sequence, self.noted(group, sequence))
            names = tuple(kernel.name for kernel in known.kernels)
            self.planned.append(PlannedKernel(group.name, sequence.plan, names))
        slots = {f"b{k}": self.slot(value) for k, value in enumerate(inputs)}
        slots |= {f"o{k}": self.slot(value) for k, value in enumerate(outputs)}
        for buffer in known.sequence.scratch:
            slots[buffer.name] = len(self.slots)
            name = f"{group.name}.{buffer.name}"
            self.slots.append(Slot(SlotKind.ARENA, name, buffer.dtype, buffer.shape))
        for kernel in known.kernels:
            triton = kernel.triton
            places = tuple(slots[buffer.name] for buffer in triton.kernel.buffers)
            offsets = tuple((begins or {}).get(buffer.name, 0) for buffer in triton.kernel.buffers)
            checked = ", ".join(map(repr, group.nodes)) if triton.checks else ""
            self.steps.append(
                Launch(
                    kernel.name,
                    places,
                    triton.sizes,
                    1,
                    1,
                    checked=checked,
                    outputs=len(triton.kernel.outputs),
                    offsets=offsets if any(offsets) else (),
                    grid=triton.grid,
                )
            )

    def noted(self, group: Group, sequence: KernelSequence) -> tuple[GpuKernel, ...]:
        """The kernels of a sequence as the program's own, by names that no other has."""
        made = []
        for triton in sequence.kernels:
            name = triton.name if triton.name not in self.kernels else f"k{len(self.kernels)}"
            self.kernels[name] = GpuKernel(name, group, triton)
            made.append(self.kernels[name])
        return tuple(made)

    def alone(self, group: Group, node: Node, why: str) -> None:
        """A node by a library of the device, or by the interpreter on the host."""
        if is_stored(node) or is_view(node):
            return
        library = library_of(node) if self.chip.backend == "cuda" else None
        family = "interpreter" if library is None else "library"
        choice = None if library is None else attention_backend(node, self.chip) or library.name
        times = {} if library is None else read_times(node, self.chip)
        plan = KernelPlan(family, why, choice, measured=times)
        self.planned.append(PlannedKernel(group.name, plan))
        if library is None:
            self.interpret(node)
            return
        inputs = [self.operand(value) for value in node.operands]
        outputs = [self.operand(value) for value in node.results]
        views = tuple(view for _, view in (*inputs, *outputs))
        self.steps.append(
            LibraryCall(
                len(self.fallbacks),
                tuple(slot for slot, _ in inputs),
                tuple(slot for slot, _ in outputs),
                choice or library.name,
                views if any(views) else (),
            )
        )
        self.fallbacks.append(node)

    def operand(self, value: Value) -> tuple[int, tuple[int, ...]]:
        """The slot that a library finds a value in, and its offset and strides if need be."""
        if value in self.layouts:
            return self.slot(value), StridedView(value, self.layouts[value]).numbers
        node = value.producer
        while node is not None and is_view(node):
            node = node.operands[0].producer
        if node is None or not is_read_in_place(node, self.chip):
            return self.slot(value), ()
        view = view_of(value, self.chip)
        return self.slot(view.base), view.numbers


def kernel_site(flat: Kernel) -> str:
    """The name of a kernel's site in tables of measurements."""
    return f"kernel {flat.digest}"


def _without_name(kernel: TritonKernel) -> str:
    """What decides a kernel's code: its source but for its name and comments, and its launch."""
    lines = [line for line in kernel.source.splitlines() if not line.lstrip().startswith("#")]
    text = "\n".join(lines).replace(kernel.name, "kernel")
    launched: Sequence[object] = (kernel.blocks, kernel.warps, kernel.stages, kernel.grid)
    return f"{launched}\n{text}"
