"""A failing case made small: fewer nodes, smaller sizes, plainer numbers.

``reduce_case`` keeps whatever change still fails, in the order in which a person would try them:
half of the nodes, single nodes, sizes, contents. How often it may try is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from monograph.dataclass import dataclass
from monograph.errors import MonographError
from monograph.inspect.extract import Case, all_values, extract, fix_sizes, is_data
from monograph.ir.contents import contents_of
from monograph.ir.data import ArrayData
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.op import make
from monograph.ir.types import TensorType
from monograph.progress import announce

MOST_TRIALS = 250
"""Cases that are tried at most."""
Fails: TypeAlias = Callable[[Case], "str | None"]
"""Says what is wrong with a case; None if nothing is."""


@dataclass
class _Trials:
    """Counts what was tried; a case that cannot be run at all does not fail."""

    fails: Fails
    left: int
    tried: int = 0

    def __call__(self, case: Case | None) -> bool:
        if case is None or not self.left or not case.graph.outputs:
            return False
        self.left -= 1
        self.tried += 1
        announce(f"reducing: {len(case.graph)} nodes", self.tried)
        return self.fails(case) is not None


def reduce_case(case: Case, fails: Fails, trials: int = MOST_TRIALS) -> tuple[Case, int]:
    """A smaller case that still fails, and how many were tried."""
    failing = _Trials(fails, trials)
    for step in (_fix_sizes, _fewer_nodes, _smaller_sizes, _weights_as_inputs, _plainer):
        case = step(case, failing)
    return case, failing.tried


def _fix_sizes(case: Case, failing: _Trials) -> Case:
    if not case.graph.symbols():
        return case
    fixed = fix_sizes(case)
    return fixed if failing(fixed) else case


def _fewer_nodes(case: Case, failing: _Trials) -> Case:
    """Delta debugging over the nodes: leave out runs of them, the longest first."""
    values = all_values(case.graph, case.inputs)
    nodes = [node for node in case.graph.nodes if not is_data(node)]
    size = max(1, len(nodes) // 2)
    found = case
    while True:
        removed = False
        start = 0
        while start < len(nodes) and failing.left:
            kept = nodes[:start] + nodes[start + size :]
            smaller = _attempt(partial(extract, case.graph, kept, values)) if kept else None
            if failing(smaller) and smaller is not None:
                nodes, found, removed = kept, smaller, True
            else:
                start += size
        if (size == 1 and not removed) or not failing.left:
            return found
        size = size if removed and size == 1 else max(1, size // 2)


def _smaller_sizes(case: Case, failing: _Trials) -> Case:
    """One size, wherever it occurs, becomes a smaller one."""
    changed = True
    while changed and failing.left:
        changed = False
        for old in sorted(_sizes(case.graph), reverse=True):
            for new in dict.fromkeys((1, 2, 3, old // 2, old - 1)):
                if not 0 < new < old:
                    continue
                smaller = _attempt(partial(_resize_case, case, old, new))
                if failing(smaller) and smaller is not None:
                    case, changed = smaller, True
                    break
            if changed:
                break
    return case


def _weights_as_inputs(case: Case, failing: _Trials) -> Case:
    """Weights become inputs, which need no file beside the text."""
    weights = [node for node in case.graph.nodes if node.op.name == "weight"]
    if not weights:
        return case
    part = _attempt(lambda: _with_inputs(case, weights))
    return part if failing(part) and part is not None else case


def _plainer(case: Case, failing: _Trials) -> Case:
    """Inputs of plainer numbers."""
    for number in range(len(case.inputs)):
        for plain in _plain_forms(case.inputs[number]):
            inputs = (*case.inputs[:number], plain, *case.inputs[number + 1 :])
            smaller = Case(case.graph, inputs)
            if failing(smaller):
                case = smaller
                break
    return case


def _plain_forms(array: Any) -> Iterator[Any]:
    """Ones, small whole numbers, and rounded ones; not what it is already."""
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
        return
    counting = (np.arange(array.size) % 7 - 3).reshape(array.shape).astype(array.dtype)
    with np.errstate(invalid="ignore"):
        forms = [np.ones_like(array), counting, counting / 2 + array.dtype.type(0.25)]
        forms.append(np.asarray(np.round(array, 1), array.dtype))
    for form in forms:
        if np.array_equal(form, array, equal_nan=True):
            return
        yield form


def _sizes(graph: Graph) -> set[int]:
    shapes = [value.type.shape for value in graph.inputs if isinstance(value.type, TensorType)]
    return {dim for shape in shapes for dim in shape if isinstance(dim, int) and dim > 1}


def _resize_case(case: Case, old: int, new: int) -> Case:
    """The case with a size replaced in types, attributes and contents; what does not fit raises."""
    graph = Graph(case.graph.name)
    mapping: dict[Value, Value] = {}
    inputs = []
    for value, array in zip(case.graph.inputs, case.inputs, strict=True):
        cut = _cut(np.asarray(array), old, new)
        mapping[value] = graph.add_input(value.name, TensorType(value.dtype, cut.shape))
        inputs.append(cut)
    for node in case.graph.nodes:
        if node.regions:
            raise MonographError("regions keep their sizes")
        attributes = {k: _replace_size(v, old, new) for k, v in node.op.attributes().items()}
        copy = graph.create(
            make(node.op.name, **attributes),
            [mapping[operand] for operand in node.operands],
            names=[value.name for value in node.results],
        )
        mapping.update(zip(node.results, copy.results, strict=True))
    graph.set_outputs([mapping[value] for value in case.graph.outputs])
    return Case(graph, tuple(inputs))


def _replace_size(attribute: Any, old: int, new: int) -> Any:
    if isinstance(attribute, tuple):
        return tuple(new if type(each) is int and each == old else each for each in attribute)
    if isinstance(attribute, ArrayData):
        return ArrayData(_cut(attribute.array(), old, new), attribute.dtype)
    return attribute


def _cut(array: Any, old: int, new: int) -> Any:
    places = tuple(slice(0, new) if size == old else slice(None) for size in array.shape)
    return np.ascontiguousarray(array[places])


def _with_inputs(case: Case, weights: Sequence[Node]) -> Case:
    """The case with weights turned into inputs."""
    graph = Graph(case.graph.name)
    mapping: dict[Value, Value] = {}
    inputs = list(case.inputs)
    for value in case.graph.inputs:
        mapping[value] = graph.add_input(value.name, value.type)
    for node in weights:
        data = contents_of(node)
        assert data is not None
        mapping[node.result] = graph.add_input(node.result.name, node.result.type)
        inputs.append(np.array(data.array()))
    for node in case.graph.nodes:
        if node in weights:
            continue
        copy = graph.create(
            node.op,
            [mapping[operand] for operand in node.operands],
            regions=[region.clone() for region in node.regions],
            names=[value.name for value in node.results],
        )
        mapping.update(zip(node.results, copy.results, strict=True))
    graph.set_outputs([mapping[value] for value in case.graph.outputs])
    return Case(graph, tuple(inputs))


def _attempt(change: Callable[[], Case]) -> Case | None:
    """A changed case; None if the types do not allow the change."""
    try:
        return change()
    except (MonographError, ValueError, TypeError, KeyError, IndexError):
        return None
