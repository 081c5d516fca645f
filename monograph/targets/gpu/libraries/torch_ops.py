"""Ops of torch that the graph only knows by name, called on the tensors where they are."""

from __future__ import annotations

from monograph.targets.gpu.libraries.library import Given, LibraryTask


def call(task: LibraryTask) -> Given:
    """What the op returns; operands that it writes to are copied first."""
    operands = [each.clone() for each in task.operands] if task.op.written else task.operands
    found = task.op.call(operands)
    return [each.to(task.results[0].device) for each in found]
