"""The toy target: every group is a kernel, and the kernels' text is the code.

What no kernel computes (control flow, sorts) is a node for the interpreter. A slot's memory is a
flat array; a kernel sees it as numbers of the dtype that its buffer has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from monograph.fusion.group import Group
from monograph.fusion.regions import Fusions
from monograph.ir.dims import Shape, Symbol, evaluate_dim
from monograph.ir.graph import Graph, Node
from monograph.ir.interpret import bind_inputs, evaluate_node
from monograph.ir.types import Array
from monograph.kernel.evaluate import evaluate_kernel
from monograph.kernel.flatten import flatten
from monograph.kernel.kernel import Kernel
from monograph.kernel.lower import is_lowerable, lower_group
from monograph.kernel.parse import parse_kernels
from monograph.passes.lower_composites import LowerComposites
from monograph.passes.manager import Pipeline
from monograph.program.code import Code, Copy, Interpret, Launch, SlotKind
from monograph.program.text import program_text
from monograph.runtime.device import Device, LoadedProgram, Loading
from monograph.runtime.sizes import guards_of
from monograph.targets import base
from monograph.targets.slot_builder import SlotBuilder


class ToyKernel(NamedTuple):
    name: str
    group: Group
    kernel: Kernel
    text: str
    summary: str = "evaluated in NumPy"


class ToyAssembled(base.Assembled, SlotBuilder):
    """Slots and steps; a kernel for every group."""

    def __init__(self, graph: Graph, fusions: Fusions) -> None:
        super().__init__()
        self.graph, self.fusion = graph, fusions[graph]
        self.built: list[ToyKernel] = []
        self.ends: list[int] = []
        targets = self.add_ends(graph)
        self.write_outputs_to(graph, targets)
        for group in self.fusion.groups:
            self.launch(group)
            self.ends.append(len(self.steps))
        self.copy_outputs_to(graph, targets)

    def launch(self, group: Group) -> None:
        if not all(map(is_lowerable, group.nodes)):
            return self.interpret(group.nodes[0])
        inside = {value for node in group.nodes for value in node.results}
        made = {self.slot(v): v for v in group.outputs() if self.written(v) in inside}
        name = f"k{len(self.built)}_{group.name}"
        outputs: dict[Any, Any] = {value: group.places[value] for value in made.values()}
        kernel, inputs = lower_group(name, group.nodes, group.space, outputs)
        if made:
            self.built.append(ToyKernel(name, group, flatten(kernel), str(flatten(kernel))))
            slots = (*map(self.slot, inputs), *made)
            self.steps.append(Launch(name, slots, kernel.sizes, 1, 1, outputs=len(made)))

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(each.kernel for each in self.built)

    def listing(self) -> str:
        return program_text(self.slots, [], self.steps)

    def close(self) -> None:
        """Nothing is under way."""


class ToyTarget(base.Target):
    name = description = "toy"
    record = base.TargetRecord("toy", "numpy", "numpy", "")

    def lowering(self, *, fusion: bool = True) -> Pipeline:
        return (LowerComposites(keep_lowerable=True),)

    def computes(self, node: Node) -> bool:
        return is_lowerable(node)

    def assemble(self, graph: Graph, fusions: Fusions, options: base.BuildOptions) -> ToyAssembled:
        return ToyAssembled(graph, fusions)

    def emit(self, made: ToyAssembled) -> base.Program:
        text = "\n".join(each.text for each in made.built)
        sizes, nodes = tuple(made.graph.symbols().values()), tuple(made.fallbacks)
        code = (tuple(made.slots), sizes, tuple(made.steps), {}, tuple(made.weights), nodes)
        told = ((made.fusion,), tuple(made.built), text, {}, made.slot_of, tuple(made.ends), ())
        return base.Program(text.encode(), *code, *told)


class ToyDevice(Device):
    def check(self, record: base.TargetRecord) -> None:
        """NumPy is everywhere."""

    def load(self, code: Code, graph: Graph, loading: Loading) -> ToyProgram:
        return ToyProgram(code, graph, loading)


class ToyProgram(LoadedProgram):
    def __init__(self, code: Code, graph: Graph, loading: Loading) -> None:
        self.program, self.graph, self.static = code, graph, not code.sizes
        self.guards = guards_of(graph) if loading.guards is None else loading.guards
        self.kernels = {each.name: each for each in parse_kernels(code.object.decode())}

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        arrays, sizes = bind_inputs(self.graph, list(inputs))
        slots, memory = self.program.slots, dict[int, Array]()
        for number, slot in enumerate(slots):
            if slot.kind is SlotKind.INPUT:
                memory[number] = np.ascontiguousarray(arrays[slot.number]).reshape(-1)
            elif slot.kind is SlotKind.WEIGHT:
                memory[number] = self.program.weights[slot.number].array().reshape(-1)
        for step in self.program.steps:
            match step:
                case Launch(name, places):
                    kernel = self.kernels[name]
                    read, written = places[: -len(kernel.outputs)], places[-len(kernel.outputs) :]
                    pairs = zip(read, kernel.inputs, strict=True)
                    given = [memory[k].view(buffer.dtype.numpy) for k, buffer in pairs]
                    made = evaluate_kernel(kernel, given, sizes)
                    for k, array in zip(written, made, strict=True):
                        memory[k] = array.view(slots[k].dtype.numpy)
                case Interpret(call, read, written):
                    node = self.program.fallbacks[call]
                    shapes = (value.shape for value in node.operands)
                    given = [shaped(memory[k], s, sizes) for k, s in zip(read, shapes, strict=True)]
                    for k, array in zip(written, evaluate_node(node, given, sizes), strict=True):
                        memory[k] = np.ascontiguousarray(array).reshape(-1)
                case Copy(source, target):
                    memory[target] = memory[source]
        ends = sorted((s.number, k) for k, s in enumerate(slots) if s.kind is SlotKind.OUTPUT)
        return [shaped(memory[k], slots[k].shape, sizes) for _, k in ends]


def shaped(array: Array, shape: Shape, sizes: Mapping[Symbol, int]) -> Array:
    return array.reshape([evaluate_dim(dim, sizes) for dim in shape])
