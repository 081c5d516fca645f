"""The grouping with its reasons, for people."""

from __future__ import annotations

from monograph.fusion.group import Fusion, Group, GroupKind


def fusion_text(fusion: Fusion) -> str:
    """Every group: its nodes, what it reads and writes, and why it ends where it ends."""
    return "\n".join(group_text(k, group) for k, group in enumerate(fusion.groups))


def group_text(number: int, group: Group) -> str:
    """One group, in a few lines."""
    space = "×".join(map(str, group.space)) or "a scalar"
    rows = ""
    if group.kind is GroupKind.ROWS and group.rows is not None:
        kept = "×".join(str(group.space[axis]) for axis in sorted(group.rows)) or "1"
        rows = f", {kept} row{'' if kept == '1' else 's'}"
    nodes = "1 node" if len(group.nodes) == 1 else f"{len(group.nodes)} nodes"
    lines = [f"group {number}: {group.name} ({group.kind.value}, {nodes} over {space}{rows})"]
    for node in group.nodes:
        again = "  (again)" if node in group.copies else ""
        lines.append(f"    {node!r}{again}")
    lines += [f"  + {reason}" for reason in group.joined]
    lines += [f"  - {reason}" for reason in group.apart]
    return "\n".join(lines) + "\n"
