"""Sizes that ``Dim.AUTO`` and ``Dim.DYNAMIC`` leave open and that may be 1.

``torch.export`` takes a size of 1 for a constant, since tensors of that size broadcast, and takes
every size that may change to be 2 or more. So an example of size 1 is exported as one of size 2.
Whether the program that comes of it also holds for size 1 is then looked at: it is exported again
with that size, and if it is the same calls of the same ops with the same shapes, it does. (It does
not if it squeezes the dimension away, or if Python asks for the size.) Otherwise calls with size 1
stay an error.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import torch
from torch.utils._sympy.value_ranges import ValueRanges

from monograph.errors import MonographError
from monograph.frontends.torch.importer import CHECKS

MOST_SYMBOLS = 2
"""For how many sizes all combinations of 1 and more are looked at: each is an export."""

Examples = tuple[tuple[Any, ...], dict[str, Any]]
Export = Callable[[Sequence[Any], Mapping[str, Any], Any], Any]
"""``capture.export`` of the program: of examples by position and by name, and dynamic shapes."""


def has_hints(dynamic_shapes: Any) -> bool:
    """Whether some sizes are ``Dim.AUTO`` or ``Dim.DYNAMIC``."""
    leaves = torch.utils._pytree.tree_leaves(dynamic_shapes)
    return any(map(_is_free, leaves))


def export_any_size(
    target: Any, examples: Examples, dynamic_shapes: Any, export: Export
) -> tuple[Any, dict[Any, Any]]:
    """A program for these examples, and the ranges of its sizes that may be 1 as well."""
    axes = _free_axes(target, examples, dynamic_shapes)
    larger = _resize(examples, axes, lambda size: 2 if size == 1 else size)
    try:
        program = export(*larger, dynamic_shapes)
    except MonographError:
        return export(*examples, dynamic_shapes), {}  # it is a program of size 1 alone
    symbols = _symbols(program, larger)
    if not symbols or len(symbols) > MOST_SYMBOLS:
        return program, {}
    chosen = [set(each) for n in range(len(symbols)) for each in combinations(symbols, n + 1)]
    if not all(_holds(program, larger, symbols, ones, export) for ones in chosen):
        grown = _shapes(_leaves(larger)) != _shapes(_leaves(examples))
        return (export(*examples, dynamic_shapes) if grown else program), {}
    ranges = program.range_constraints
    return program, {each: ValueRanges(1, ranges[each].upper) for each in symbols}


def _is_free(spec: Any) -> bool:
    kind = getattr(getattr(spec, "type", None), "name", "")
    return kind in ("AUTO", "DYNAMIC") and (getattr(spec, "min", None) or 0) < 2


def _free_axes(target: Any, examples: Examples, dynamic_shapes: Any) -> dict[int, set[int]]:
    """The axes of example tensors, by their ids, whose sizes are left to torch."""
    positional, named = examples
    if isinstance(dynamic_shapes, Mapping):
        called = target.forward if isinstance(target, torch.nn.Module) else target
        bound = inspect.signature(called).bind(*positional, **named)
        pairs = _pair_leaves(dict(bound.arguments), dynamic_shapes)
    else:
        pairs = _pair_leaves([*positional, *named.values()], dynamic_shapes)
    axes: dict[int, set[int]] = {}
    for tensor, spec in pairs:
        entries = spec.items() if isinstance(spec, Mapping) else enumerate(spec)
        inside = range(-tensor.ndim, tensor.ndim)
        free = {axis % tensor.ndim for axis, each in entries if _is_free(each) and axis in inside}
        axes.setdefault(id(tensor), set()).update(free)
    return axes


def _pair_leaves(value: Any, spec: Any) -> Iterator[tuple[torch.Tensor, Any]]:
    if not spec:
        return
    if isinstance(value, torch.Tensor):
        yield value, spec
    elif isinstance(value, Mapping) and isinstance(spec, Mapping):
        for key, item in value.items():
            yield from _pair_leaves(item, spec.get(key))
    elif isinstance(value, list | tuple) and isinstance(spec, list | tuple):
        for pair in zip(value, spec, strict=False):
            yield from _pair_leaves(*pair)


def _resize(
    examples: Examples, axes: Mapping[int, set[int]], size: Callable[[int], int]
) -> Examples:
    """The examples with free axes of other sizes: cut to 1, or given twice."""

    def resize(tensor: torch.Tensor) -> torch.Tensor:
        made = tensor
        for axis in axes.get(id(tensor), ()):
            before, wanted = made.shape[axis], size(made.shape[axis])
            if wanted < before:
                made = made.narrow(axis, 0, wanted).clone()
            elif wanted > before:
                made = made.repeat_interleave(wanted, axis)
        return made

    found: Examples = torch.utils._pytree.tree_map_only(torch.Tensor, resize, examples)
    return found


def _symbols(program: Any, examples: Examples) -> dict[Any, int]:
    """The sizes of the program that are 2 or more, with those of the examples."""
    found: dict[Any, int] = {}
    for node, example in zip(_inputs(program), _leaves(examples), strict=True):
        fake: Any = node.meta.get("val")
        if isinstance(fake, torch.Tensor) and isinstance(example, torch.Tensor):
            sizes: list[Any] = list(fake.shape)
            for size, number in zip(sizes, example.shape, strict=True):
                expr = size.node.expr if isinstance(size, torch.SymInt) else None
                if expr is not None and expr.is_Symbol:
                    found[expr] = number
    ranges = program.range_constraints
    return {each: n for each, n in found.items() if each in ranges and ranges[each].lower == 2}


def _inputs(program: Any) -> list[Any]:
    nodes = {node.name: node for node in program.graph.nodes}
    return [nodes[s.arg.name] for s in program.graph_signature.input_specs if s.target is None]


def _leaves(examples: Examples) -> list[Any]:
    leaves: list[Any] = torch.utils._pytree.tree_leaves(examples)
    return leaves


def _holds(
    program: Any, examples: Examples, symbols: Mapping[Any, int], ones: set[Any], export: Export
) -> bool:
    """Whether the program is the one that torch exports where some sizes are 1."""
    cut = _with_ones(program, examples, ones)
    try:
        other = export(*cut, None)
    except MonographError:
        return False
    sizes = {each: 1 if each in ones else number for each, number in symbols.items()}
    return _Comparison(sizes).is_same(program.graph, other.graph)


def _with_ones(program: Any, examples: Examples, ones: set[Any]) -> Examples:
    axes: dict[int, set[int]] = {}
    for node, example in zip(_inputs(program), _leaves(examples), strict=True):
        fake: Any = node.meta.get("val")
        if isinstance(fake, torch.Tensor):
            sizes: list[Any] = list(fake.shape)
            own = (k for k, size in enumerate(sizes) if isinstance(size, torch.SymInt))
            axes[id(example)] = {k for k in own if sizes[k].node.expr in ones}
    return _resize(examples, axes, lambda _: 1)


class _Comparison:
    """Whether a graph of symbolic sizes is another one, of numbers, for these sizes."""

    def __init__(self, sizes: Mapping[Any, int]) -> None:
        self.sizes = sizes
        self.twins: dict[Any, Any] = {}

    def is_same(self, symbolic: Any, static: Any) -> bool:
        """The same ops of the same operands, with the same shapes, one after another."""
        first, second = _tensor_nodes(symbolic), _tensor_nodes(static)
        return len(first) == len(second) and all(map(self._are_twins, first, second))

    def _are_twins(self, a: Any, b: Any) -> bool:
        self.twins[a] = b
        return (
            a.op == b.op
            and (a.op == "placeholder" or a.target == b.target)
            and self._equal(a.args, b.args)
            and self._equal(dict(a.kwargs), dict(b.kwargs))
            and self._equal(_shapes(a.meta.get("val")), _shapes(b.meta.get("val")))
        )

    def _equal(self, a: Any, b: Any) -> bool:
        a, b = (_source(each) if isinstance(each, torch.fx.Node) else each for each in (a, b))
        if isinstance(a, torch.fx.Node) and a not in self.twins:
            a = a.meta.get("val")  # a size, or arithmetic of sizes
        if isinstance(b, torch.fx.Node) and not isinstance(a, torch.fx.Node):
            b = b.meta.get("val")
        if isinstance(a, torch.fx.Node):
            return self.twins[a] is b
        if isinstance(a, list | tuple) and isinstance(b, list | tuple):
            return len(a) == len(b) and all(map(self._equal, a, b))
        if isinstance(a, dict) and isinstance(b, dict):
            return a.keys() == b.keys() and all(self._equal(a[key], b[key]) for key in a)
        return bool(self._number(a) == b)

    def _number(self, value: Any) -> Any:
        if not isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            return value
        found = value.node.expr.subs(self.sizes)
        return value.node.pytype(found) if found.is_number or found.is_Boolean else found


def _tensor_nodes(graph: Any) -> list[Any]:
    """The nodes that are not about sizes alone."""
    scalars = (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)
    return [
        node
        for node in graph.nodes
        if node.op == "placeholder"
        or not (
            isinstance(node.meta.get("val", node), scalars)
            or str(node.target) in CHECKS
            or _source(node) is not node
        )
    ]


def _source(node: Any) -> Any:
    """What a node is all of: ``x[:]`` is recorded where a size is symbolic, and not else."""
    while node.target is torch.ops.aten.slice.Tensor and node.args[4:] in ((), (1,)):
        whole, part = (str(each.meta["val"].shape) for each in (node.args[0], node))
        if whole != part:
            return node
        node = node.args[0]
    return node


def _shapes(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tuple(value.shape)
    if isinstance(value, list | tuple):
        return [_shapes(each) for each in value]
    return None
