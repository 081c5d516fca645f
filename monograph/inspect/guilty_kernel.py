"""Finds the first kernel of a wrong program whose result is wrong.

The program is compiled again and again, each time with the kernels up to one more; the first one
with which an answer is wrong is the one. A fault between kernels (memory that is used twice, an
order that is not kept) is put on the kernel that reads what was spoilt.
"""

from __future__ import annotations

from collections.abc import Iterator

from monograph.compiler import Options, compile_graph
from monograph.dataclass import dataclass
from monograph.fusion.group import Group
from monograph.inspect.extract import Case, all_values, extract, is_data
from monograph.inspect.suspects import check_program, without_passes
from monograph.ir.graph import Graph
from monograph.progress import announce
from monograph.targets.base import EmittedKernel, Program


@dataclass(frozen=True)
class GuiltyKernel:
    """A kernel, the nodes that it computes, and how."""

    name: str
    nodes: str
    how: str

    def __str__(self) -> str:
        return f"kernel {self.name} computes {self.nodes} by {self.how}"


def guilty_kernels(case: Case, options: Options) -> list[GuiltyKernel]:
    """The kernels of the first group whose result is wrong; empty if the program has none.

    Where each group alone is right, all kernels are suspects.
    """
    executable = compile_graph(case.graph, options)
    program = executable.program
    if program is None or not program.kernels:
        return []
    groups = list(_groups(program))
    suspects = set(map(id, groups))
    if len(groups) > 1:
        guilty = _first_wrong(executable.lowered, case, groups, options)
        suspects = suspects if guilty is None else {id(guilty)}
    return [_describe(each) for each in program.kernels if id(each.group) in suspects]


def _groups(program: Program) -> Iterator[Group]:
    seen: set[int] = set()
    for kernel in program.kernels:
        if id(kernel.group) not in seen:
            seen.add(id(kernel.group))
            yield kernel.group


def _first_wrong(lowered: Graph, case: Case, groups: list[Group], options: Options) -> Group | None:
    """The first group with which the program up to there is wrong."""
    values = all_values(lowered, case.inputs)
    order = {node: number for number, node in enumerate(lowered.nodes)}
    ends = [max(order.get(node, -1) for node in group.nodes) for group in groups]
    for number, (end, group) in enumerate(sorted(zip(ends, groups, strict=True), key=_end)):
        announce("kernels", number, len(groups))
        if end < 0:  # in the body of a loop or a branch
            continue
        upto = [node for node in lowered.nodes if order[node] <= end and not is_data(node)]
        if check_program(without_passes(options), extract(lowered, upto, values)) is not None:
            return group
    return None


def _end(pair: tuple[int, Group]) -> int:
    return pair[0]


def _describe(kernel: EmittedKernel) -> GuiltyKernel:
    return GuiltyKernel(kernel.name, "; ".join(map(repr, kernel.group.nodes)), kernel.summary)
