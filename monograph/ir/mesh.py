"""A simulated mesh of devices: one graph, run on all of them in lock-step.

Every device has inputs of its own and runs the same nodes. A collective op combines what the
devices of a group hold; all other ops run on each device by itself. This is the meaning of
collectives, as ``interpret`` is of everything else.

    mesh = Mesh({"data": 2, "model": 4})        # eight devices, the last axis varies fastest
    outputs = interpret_on_mesh(graph, [[shard] for shard in shards], mesh)

Devices may take different branches of control flow as long as the devices of a group come to each
of its collectives together; an error says so when they do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, ClassVar, TypeAlias

import numpy as np

from monograph.dataclass import dataclass
from monograph.errors import EvaluationError, InputError
from monograph.ir.dims import Symbol
from monograph.ir.graph import Graph, Node
from monograph.ir.interpret import (
    RegionRunner,
    bind_inputs,
    check_results,
    errors_at,
    evaluate_node,
    prepare_operands,
    run_nodes,
)
from monograph.ir.lower import LoopBuilder
from monograph.ir.op import Op
from monograph.ir.region import RegionOp, Steps
from monograph.ir.types import Array

Shards: TypeAlias = dict[int, Any]
"""What each device that takes part holds of one value."""

Bindings: TypeAlias = dict[int, dict[Symbol, int]]
"""The sizes of symbols on each device that takes part."""


class Collective(Op):
    """An op across the ``size`` devices along one axis of a mesh; see ``ops.collective``."""

    mesh_axis: str
    size: int
    complex_loops: ClassVar[bool] = True

    def evaluate_group(self, shards: list[Array]) -> list[Array]:
        """The result of each device of a group, given the operand of each, in order.

        An op without operands gets placeholders.
        """
        raise NotImplementedError(f"{self.name} has no evaluation")

    def evaluate(self, *operands: Array) -> Array:
        """On a group of one device; a larger one needs a mesh."""
        if self.size != 1:
            raise EvaluationError(
                f"{self.name}: {self.size} devices take part, and there is one here",
                hint="run the graph with monograph.ir.mesh.interpret_on_mesh",
            )
        return self.evaluate_group([_shard(operands)])[0]

    def has_loops(self) -> bool:
        """Only on a group of one device is there nothing to wait for."""
        return self.size == 1

    def lower_loops(self, b: LoopBuilder) -> None:
        """What one device combines with nobody is its operand."""
        b.fill(b.result(), lambda at: b.read(0, at))


@dataclass(frozen=True)
class Mesh:
    """Devices in a grid with named axes, numbered in row-major order."""

    axes: Mapping[str, int]

    def __post_init__(self) -> None:
        for name, size in self.axes.items():
            if size < 1:
                raise InputError(f"mesh axis {name!r} has no devices", found=str(size))
        object.__setattr__(self, "axes", dict(self.axes))

    @property
    def size(self) -> int:
        """How many devices there are."""
        return prod(self.axes.values())

    def coordinates(self, device: int) -> dict[str, int]:
        """Where on each axis a device lies."""
        position = np.unravel_index(device, tuple(self.axes.values())) if self.axes else ()
        return {name: int(index) for name, index in zip(self.axes, position, strict=True)}

    def groups(self, axis: str) -> list[list[int]]:
        """The lines of devices along an axis: those that differ in that coordinate alone."""
        if axis not in self.axes:
            raise EvaluationError(
                f"the mesh has no axis {axis!r}", expected=", ".join(self.axes) or "no axes"
            )
        numbers = np.arange(self.size).reshape(tuple(self.axes.values()))
        lines = np.moveaxis(numbers, list(self.axes).index(axis), -1)
        return [[int(device) for device in line] for line in lines.reshape(-1, self.axes[axis])]


def interpret_on_mesh(
    graph: Graph, inputs_per_device: Sequence[Sequence[Any] | Mapping[str, Any]], mesh: Mesh
) -> list[list[Any]]:
    """The outputs of each device, for the inputs of each device."""
    if len(inputs_per_device) != mesh.size:
        raise InputError(
            "every device of the mesh needs its inputs",
            expected=f"{mesh.size} lists of inputs",
            found=str(len(inputs_per_device)),
        )
    bound = [bind_inputs(graph, inputs) for inputs in inputs_per_device]
    arguments = [
        {device: arrays[position] for device, (arrays, _) in enumerate(bound)}
        for position in range(len(graph.inputs))
    ]
    bindings = {device: sizes for device, (_, sizes) in enumerate(bound)}
    with np.errstate(all="ignore"):
        outputs = _run(graph, arguments, bindings, mesh)
    return [[shards[device] for shards in outputs] for device in range(mesh.size)]


def _run(graph: Graph, arguments: list[Shards], bindings: Bindings, mesh: Mesh) -> list[Shards]:
    """Run a graph on the devices that ``bindings`` names."""

    def evaluate(node: Node, operands: list[Shards]) -> list[Shards]:
        if isinstance(node.op, Collective):
            results = _evaluate_collective(node.op, node, operands, bindings, mesh)
        elif isinstance(node.op, RegionOp):
            results = _evaluate_regions(node.op, node, operands, bindings, mesh)
        else:
            results = {
                device: evaluate_node(node, _of_device(operands, device), sizes)
                for device, sizes in bindings.items()
            }
        return [
            {device: results[device][index] for device in bindings}
            for index in range(len(node.results))
        ]

    return run_nodes(graph, arguments, evaluate)


def _evaluate_collective(
    op: Collective, node: Node, operands: list[Shards], bindings: Bindings, mesh: Mesh
) -> dict[int, tuple[Any, ...]]:
    results: dict[int, tuple[Any, ...]] = {}
    for group in mesh.groups(op.mesh_axis):
        present = [device for device in group if device in bindings]
        if not present:
            continue
        inputs = [_of_device(operands, device) for device in present]
        with errors_at(node, inputs[0]):
            _check_group(op, group, present, mesh)
            shards = [_shard(prepare_operands(op, arrays)) for arrays in inputs]
            _check_shapes(op, shards)
            outputs = op.evaluate_group(shards)
            for device, output in zip(group, outputs, strict=True):
                results[device] = check_results(node, output, bindings[device])
    return results


def _check_group(op: Collective, group: list[int], present: list[int], mesh: Mesh) -> None:
    if op.size != len(group):
        raise EvaluationError(
            f"{op.name}: the mesh has another number of devices along {op.mesh_axis!r}",
            expected=str(op.size),
            found=str(mesh.axes[op.mesh_axis]),
        )
    if present != group:
        absent = [device for device in group if device not in present]
        raise EvaluationError(
            f"{op.name}: not every device of its group comes to it",
            expected=f"devices {_list(group)}, along {op.mesh_axis!r}",
            found=f"{_list(present)}, while {_list(absent)} took another way",
            hint="decide with a predicate that all of them agree on, such as an all_reduce of it",
        )


def _check_shapes(op: Collective, shards: list[Array]) -> None:
    if any(shard.shape != shards[0].shape for shard in shards):
        raise EvaluationError(
            f"{op.name}: the devices' operands have different shapes",
            expected="one shape",
            found=" ".join(str(list(shard.shape)) for shard in shards),
        )


def _evaluate_regions(
    op: RegionOp, node: Node, operands: list[Shards], bindings: Bindings, mesh: Mesh
) -> dict[int, tuple[Any, ...]]:
    """Take the devices' control decisions in turns: those that run one region run it together."""
    runners = {device: RegionRunner(sizes) for device, sizes in bindings.items()}
    results: dict[int, tuple[Any, ...]] = {}
    steps: dict[int, Steps] = {}
    for device, runner in runners.items():
        bound = node.op.substitute(bindings[device])
        assert isinstance(bound, RegionOp)
        steps[device] = bound.steps(node.regions, runner.sizes, *_of_device(operands, device))
    replies: dict[int, Any] = dict.fromkeys(steps)
    with errors_at(node, _of_device(operands, next(iter(bindings)))):
        while replies:
            requests: dict[int, tuple[Graph, list[Any]]] = {}
            for device, reply in replies.items():
                try:
                    requests[device] = steps[device].send(reply)
                except StopIteration as done:
                    results[device] = check_results(node, done.value, bindings[device])
            replies = {}
            for region in node.regions:
                chosen = {d: given for d, (wanted, given) in requests.items() if wanted is region}
                replies.update(_run_region(region, chosen, runners, mesh))
    return results


def _run_region(
    region: Graph, arguments: dict[int, list[Any]], runners: dict[int, RegionRunner], mesh: Mesh
) -> dict[int, list[Any]]:
    """The outputs of a region on each of the devices that run it."""
    if not arguments:
        return {}
    inner = {
        device: runners[device].bindings_in(region, arrays) for device, arrays in arguments.items()
    }
    shards = [
        {device: arrays[position] for device, arrays in arguments.items()}
        for position in range(len(region.inputs))
    ]
    outputs = _run(region, shards, inner, mesh)
    return {device: [output[device] for output in outputs] for device in arguments}


def _of_device(operands: Sequence[Shards], device: int) -> list[Any]:
    return [shards[device] for shards in operands]


def _shard(operands: Sequence[Array]) -> Array:
    return operands[0] if operands else np.empty(0)


def _list(devices: Sequence[int]) -> str:
    return ", ".join(map(str, devices))
