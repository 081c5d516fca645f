"""Lowers a fused group to Triton kernels by the first family that accepts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from monograph.dataclass import dataclass
from monograph.errors import UnsupportedError
from monograph.fusion.group import Group
from monograph.ir.graph import Node, Value
from monograph.kernel.flatten import flatten
from monograph.kernel.kernel import Kernel
from monograph.kernel.layout import MemoryLayout
from monograph.kernel.lower import lower_group
from monograph.ops.attention import Attention
from monograph.targets.gpu.attention import AttentionOperands, attention_candidates
from monograph.targets.gpu.families import kernel_sequence
from monograph.targets.gpu.plan import KernelSequence
from monograph.targets.gpu.rebase import rebase


@dataclass(frozen=True)
class LoweredGroup:
    """What a group computes, before anybody says how."""

    flat: Kernel
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    begins: Mapping[str, int] = field(default_factory=dict)
    """How many bytes into its memory a buffer begins; nothing of those that begin with it."""


def lower_flat(
    group: Group,
    name: str,
    outputs: Sequence[Value],
    layouts: Mapping[Value, MemoryLayout] | None = None,
) -> LoweredGroup:
    """The formulas of these results of a group of lowerable nodes, flattened."""
    placed = {}
    for value in outputs:
        place = group.places[value]
        assert place is not None, f"%{value.name} has no place in its group"
        placed[value] = place
    kernel, inputs = lower_group(name, group.nodes, group.space, placed, layouts)
    flat, begins = rebase(flatten(kernel))
    return LoweredGroup(flat, tuple(inputs), tuple(placed), begins)


def write_lowered(
    group: Group, lowered: LoweredGroup, times: Mapping[str, float] | None = None
) -> KernelSequence:
    """A group's kernels, the fastest by these times of candidates, if there are any.

    An error says which families refused it, and why.
    """
    return kernel_sequence(lowered.flat, tuple(map(str, group.nodes)), times)


def write_attention(
    node: Node, name: str, times: Mapping[str, float] | None = None
) -> KernelSequence:
    """The kernels of an attention; an error says why there are none.

    ``times`` are those of contenders, ours among them by the names of ``attention_plans``.
    """
    found = _attention_candidates(node, name)
    known = {str(each.plan.choice): each for each in found}
    for contender in sorted(times or {}, key=lambda each: (times or {})[each]):
        if contender.removeprefix("ours ") in known:
            chosen = known[contender.removeprefix("ours ")]
            return replace(chosen, plan=replace(chosen.plan, measured=dict(times or {})))
    return found[0]


def attention_plans(node: Node) -> list[str]:
    """The names of our configurations of an attention, best first; none if we have none."""
    try:
        return [str(each.plan.choice) for each in _attention_candidates(node, "attention")]
    except UnsupportedError:
        return []


def _attention_candidates(node: Node, name: str) -> tuple[KernelSequence, ...]:
    assert isinstance(node.op, Attention)
    query, key, value, *mask = (operand.tensor for operand in node.operands)
    operands = AttentionOperands(query, key, value, mask[0] if mask else None)
    return attention_candidates(name, node.op, operands, (str(node),))
