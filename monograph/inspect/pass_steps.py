"""What each pass bought: nodes, kernels, bytes moved, peak memory if compiling had stopped there.

Each graph that a pass left is brought to the ops that the target computes by those passes alone
that nothing can do without, and its nodes are grouped; nothing is planned or emitted. So a row says
what the program would be without the passes that follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from monograph.dataclass import dataclass
from monograph.fusion.prologue import is_stored
from monograph.fusion.regions import Fusions, fuse_regions
from monograph.inspect.stages import StageGraph
from monograph.inspect.traffic import Sizes, bytes_moved_by_group, bytes_of
from monograph.ir.dims import evaluate_dim
from monograph.ir.graph import Graph, Node, Value
from monograph.ops.control import Scan
from monograph.passes.manager import flat_passes, run_pipeline
from monograph.progress import announce
from monograph.targets.base import Target
from monograph.targets.slot_builder import is_view

REQUIRED = ("lower_composites", "decompose_unsupported_attention")
"""Passes of a target's lowering that compiling cannot do without."""


@dataclass(frozen=True)
class Figures:
    """A graph as a program: its kernels, the bytes that they move, and the intermediates."""

    nodes: int
    kernels: int
    bytes_moved: int
    peak: int
    """Bytes of intermediates that are alive at once, at most."""


@dataclass(frozen=True)
class PassStep:
    """What a pass made of a graph, beside what it was given."""

    name: str
    seconds: float
    before: Figures
    after: Figures


def pass_steps(
    stages: Sequence[StageGraph], target: Target, sizes: Mapping[str, int] | None = None
) -> tuple[PassStep, ...]:
    """A step for every stage but the first, which is the graph as given."""
    found = []
    before: Figures | None = None
    for number, stage in enumerate(stages):
        announce("what passes bought", number, len(stages))
        after = figures_of(stage.graph, target, sizes)
        if before is not None:
            found.append(PassStep(stage.name, stage.seconds, before, after))
        before = after
    return tuple(found)


def figures_of(graph: Graph, target: Target, sizes: Mapping[str, int] | None = None) -> Figures:
    """What a graph would be as a program, without any pass that it can do without."""
    from monograph.inspect.inputs import choose_sizes

    lowered = graph.clone()
    required = [each for each in flat_passes(target.lowering()) if each.name in REQUIRED]
    run_pipeline(lowered, required)
    fusions = fuse_regions(lowered, target.computes, target.fusion_limits)
    bindings = choose_sizes(lowered, sizes or {})
    times = runs_of(lowered, bindings)
    groups = [(each, group) for each, fusion in fusions.items() for group in fusion.groups]
    kernels = [group for _, group in groups if not _is_free(group.nodes)]
    moved = sum(times[each] * sum(bytes_moved_by_group(group, bindings)) for each, group in groups)
    return Figures(len(graph), len(kernels), moved, peak_of(lowered, fusions, bindings))


def runs_of(graph: Graph, sizes: Sizes, times: int = 1) -> dict[Graph, int]:
    """How often a graph and each region in it run in a call; a ``while`` counts as one turn."""
    found = {graph: times}
    for node in graph.nodes:
        own = times
        if isinstance(node.op, Scan):
            own *= _turns(node, sizes)
        for region in node.regions:
            found |= runs_of(region, sizes, own)
    return found


def _turns(node: Node, sizes: Sizes) -> int:
    """How many turns a scan makes: its length, or that of what it walks over."""
    op = node.op
    assert isinstance(op, Scan)
    if op.length is not None:
        return evaluate_dim(op.length, sizes)
    sequence = node.operands[op.carries]
    return evaluate_dim(sequence.shape[0], sizes)


def peak_of(graph: Graph, fusions: Fusions, sizes: Sizes) -> int:
    """The bytes of values between groups that are alive at once, at most, regions included.

    A value lives from the group that makes it to the last that reads it; a view is its source.
    """
    groups = fusions[graph].groups
    first: dict[Value, int] = {}
    last: dict[Value, int] = {}
    kept = {_root(value) for value in graph.outputs}
    inside = [0] * len(groups)
    for number, group in enumerate(groups):
        for value in group.inputs():
            if _root(value) in first:
                last[_root(value)] = number
        if not _is_free(group.nodes):
            for value in group.outputs():
                if value not in kept and not is_stored_value(value):
                    first[value] = last[value] = number
        regions = [region for node in group.nodes for region in node.regions]
        inside[number] = max((peak_of(each, fusions, sizes) for each in regions), default=0)
    alive = list(inside)
    for value, begin in first.items():
        for number in range(begin, last[value] + 1):
            alive[number] += bytes_of(value, sizes)
    return max(alive, default=0)


def is_stored_value(value: Value) -> bool:
    """Whether a value is a weight or a constant."""
    return value.producer is not None and is_stored(value.producer)


def _root(value: Value) -> Value:
    while value.producer is not None and is_view(value.producer):
        value = value.producer.operands[0]
    return value


def _is_free(nodes: Sequence[Node]) -> bool:
    """Whether a group is no kernel: a view, or what is stored."""
    return len(nodes) == 1 and (is_view(nodes[0]) or is_stored(nodes[0]))
