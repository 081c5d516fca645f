"""Grouping nodes into kernels, by what their data movement costs.

Every value that stays inside a kernel is neither written to memory nor read back. So each node
begins as a kernel of its own, and takes in the kernels that make its operands, the one that saves
the most bytes first, as long as

- their elements lie in one index space (``places``), so that nothing is computed twice; or what
  would be computed again costs less than the round trip through memory;
- nothing outside needs to run in between (no cycle);
- a value that others need too can be written along the way.

Each decision is kept as a sentence: why nodes share a kernel, and why others do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from monograph.fusion.axis_map import (
    AxisMap,
    compose_axis_maps,
    cuts_rows_anew,
    identity,
    joint_rows,
    joint_space,
    move_axis_map,
    move_rows,
    operand_axis_map,
    pads_rows,
    reduction_axes,
)
from monograph.fusion.cost import (
    amount,
    is_free,
    nbytes,
    work,
)
from monograph.fusion.group import Fusion, Group, GroupKind
from monograph.fusion.limits import FusionLimits
from monograph.fusion.prologue import (
    bytes_read,
    is_image,
    is_prologue,
    is_stored,
    is_widened_for_products,
)
from monograph.ir.dims import Shape, provably_equal, shape_product
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.op import Trait
from monograph.ir.types import TensorType
from monograph.ops.conv import Conv
from monograph.ops.elementwise.convert import Cast
from monograph.ops.shape import Reshape, Transpose
from monograph.switches import is_on

FEW_LONG_ROWS = "its few long rows are split among threads"


def fuse(
    graph: Graph,
    can_lower: Mapping[Node, bool] | None = None,
    limits: FusionLimits | None = None,
    *,
    enabled: bool = True,
) -> Fusion:
    """Group the nodes of a graph (its composites lowered) into kernels.

    ``can_lower`` says which nodes the kernel layer can compute; the others stay alone. With
    ``enabled=False`` every node is a kernel of its own.
    """
    return _Fuser(graph, can_lower or {}, limits or FusionLimits(), enabled).run()


class _Fuser:
    def __init__(
        self, graph: Graph, can_lower: Mapping[Node, bool], limits: FusionLimits, enabled: bool
    ) -> None:
        self.graph = graph
        self.can_lower = can_lower
        self.limits = limits
        self.enabled = enabled
        self.home: dict[Node, Group] = {}
        self.order: dict[Node, int] = {}
        self.exported: set[Value] = set()
        self.read: dict[Group, tuple[int, Sequence[Node]]] = {}

    def run(self) -> Fusion:
        for number, node in enumerate(self.graph.nodes):
            self.order[node] = number
            if is_stored(node):
                continue
            self.add(node)
        if self.enabled and is_on("sibling_fusion"):
            self.join_siblings()
        groups = list(dict.fromkeys(self.home.values()))
        for group in groups:
            group.joined[:0] = group.savings()
        return Fusion(tuple(self.sorted(self.without_unused(groups))))

    def without_unused(self, groups: list[Group]) -> list[Group]:
        """Groups whose every result was taken in as a copy by its readers have nothing to do."""
        needed: list[Group] = []
        read: set[Value] = {operand for operand in self.graph.output_node.operands}
        for group in reversed(self.sorted(groups)):
            effect = any(node.has_effect for node in group.nodes)
            if effect or any(v in read for node in group.nodes for v in node.results):
                needed.append(group)
                read.update(group.inputs())
        return list(reversed(needed))

    def add(self, node: Node) -> None:
        """A new group for the node, which takes in what it can of its producers."""
        group = self.alone(node)
        group.exported = self.exported
        self.home[node] = group
        if not self.enabled or group.kind is GroupKind.OPAQUE:
            return
        widened = is_widened_for_products(node)
        for operand in sorted(dict.fromkeys(node.operands), key=nbytes, reverse=True):
            producer = operand.producer
            if producer is None or is_stored(producer):
                continue
            if widened and not producer.op.has(Trait.MOVE):
                group.apart.append(f"%{operand.name} is kept in few bits for the product")
                continue
            source = self.home[producer]
            if cuts_rows_anew(node) and any(map(pads_rows, source.nodes)):
                group.apart.append(f"%{operand.name} is read from memory: its rows are cut anew")
                continue
            if isinstance(node.op, Conv) and self.is_view(source):
                group.apart.append(f"%{operand.name} is read from memory: it is a view")
                continue
            if source.kind is GroupKind.CONTRACTION and _is_made_for_rows(
                node, self.limits.max_recomputed_instructions
            ):
                group.apart.append(f"%{operand.name} is read from memory: it is written anyway")
                continue
            self.try_fuse(source, self.home[node], operand, node)

    def alone(self, node: Node) -> Group:
        result = node.results[0] if node.results else None
        shape = result.shape if result is not None and isinstance(result.type, TensorType) else ()
        places: dict[Value, AxisMap | None] = {
            value: identity(shape)
            for value in node.results
            if isinstance(value.type, TensorType) and value.shape == shape
        }
        if not self.can_lower.get(node, True):
            return Group([node], GroupKind.OPAQUE, shape, {})
        if node.op.has(Trait.CONTRACTION):
            return Group([node], GroupKind.CONTRACTION, shape, places)
        if node.op.has(Trait.WINDOW):
            return Group([node], GroupKind.WINDOW, shape, places)
        if node.op.has(Trait.REDUCTION):
            return self.reduction(node)
        for k, operand in enumerate(node.operands):
            places.setdefault(operand, operand_axis_map(node, k))
        return Group([node], GroupKind.POINTWISE, shape, places)

    def reduction(self, node: Node) -> Group:
        space = node.operands[0].shape
        axes = reduction_axes(node)
        kept = [axis for axis in range(len(space)) if axis not in axes]
        result = node.results[0]
        if result.rank == len(space):
            place: AxisMap = tuple(
                None if axis in axes or space[axis] == 1 else axis for axis in range(len(space))
            )
        else:
            place = tuple(None if space[axis] == 1 else axis for axis in kept)
        rows = frozenset(axis for axis in kept if space[axis] != 1)
        places: dict[Value, AxisMap | None] = {value: place for value in node.results}
        places[node.operands[0]] = identity(space)
        return Group([node], GroupKind.ROWS, space, places, rows)

    # Taking a producer in -------------------------------------------------------------------------

    def try_fuse(self, source: Group, group: Group, value: Value, reader: Node) -> None:
        """Merge the producer's group into the reader's, or say why not."""
        if source is group:
            return
        reason = self.fusion_blocker(source, group)
        if reason is None and self.is_shared_move(source, group, value):
            reason = "others read it too"
        if reason is None:
            merged = self.merge_spaces(source, group, value, reader)
            if isinstance(merged, Group):
                self.replace(source, group, merged, value)
                return
            reason = merged
        if self.copy(source, group, value):
            return
        group.apart.append(f"%{value.name} is read from memory: {reason}")

    def fusion_blocker(self, source: Group, group: Group) -> str | None:
        """What forbids a merge whatever the places are."""
        if source.kind is GroupKind.OPAQUE:
            return f"{source.nodes[0].op.name} has no loops to share"
        if _are_too_long(self.limits.max_kernel_work, source, group):
            return "together they would be too long a formula"
        if source.kind is GroupKind.WINDOW or group.kind is GroupKind.WINDOW:
            return "a window has loops of its own"
        if group.kind is GroupKind.CONTRACTION:
            if is_image(source.nodes, group.nodes):
                return "a window looks for its elements as they lie"
            if all(each.op.has(Trait.MOVE) or isinstance(each.op, Cast) for each in source.nodes):
                return None
            if self.is_prologue(source, group):
                return None
            return "a contraction reads each element many times"
        if source.kind is GroupKind.CONTRACTION and group.rows is not None:
            return "a row of a contraction's result is needed whole"
        if self.reaches(source, group):
            return "another kernel has to run in between"
        return None

    def is_view(self, source: Group) -> bool:
        """Whether a group only gives the result of a loop or an interpreted node another shape."""
        if len(source.nodes) != 1 or not isinstance(source.nodes[0].op, Reshape):
            return False
        producer = source.nodes[0].operands[0].producer
        return producer in self.home and self.home[producer].kind is GroupKind.OPAQUE

    def is_prologue(self, source: Group, group: Group) -> bool:
        """Whether a product had better make its operand itself, of what a pointwise group reads."""
        if source.kind is not GroupKind.POINTWISE or group.kind is not GroupKind.CONTRACTION:
            return False
        if not is_on("prologue_fusion"):
            return False
        return is_prologue(
            source.nodes,
            source.inputs(),
            source.outputs(),
            group.nodes,
            self.limits.max_recomputed_instructions,
        )

    def merge_spaces(self, source: Group, group: Group, value: Value, reader: Node) -> Group | str:
        """The two groups as one, in one index space, or why that cannot be."""
        reading = self.reading(group, value, reader)
        made_at = source.places.get(value)
        if reading is None or made_at is None:
            return self.inlined(source, group, value)
        joint = joint_space(source.space, made_at, group.space, reading)
        if joint is None:
            return self.inlined(source, group, value)
        if source.kind is GroupKind.CONTRACTION and _grows(
            value, group
        ):  # a gate of whole channels
            return "each element is read several times, and costs more to compute than to read"
        space, source_axes, group_axes = joint
        places = {v: move_axis_map(p, source_axes) for v, p in source.places.items()}
        places |= {v: move_axis_map(p, group_axes) for v, p in group.places.items()}
        rows = joint_rows(move_rows(source.rows, source_axes), move_rows(group.rows, group_axes))
        if rows == "different":
            return "its reductions keep other axes"
        assert not isinstance(rows, str)
        both = self.union(source, group, space, places, rows)
        return self.checked(both, source.rows is not None and group.rows is not None)

    def reading(self, group: Group, value: Value, reader: Node) -> AxisMap | None:
        """Where in the reader's space the value is read."""
        if reader.op.has(Trait.REDUCTION):
            return identity(value.shape) if value is reader.operands[0] else None
        if group.kind is GroupKind.CONTRACTION and reader.op.has(Trait.CONTRACTION):
            return None
        places = [operand_axis_map(reader, k) for k, v in enumerate(reader.operands) if v is value]
        if any(place is None or place != places[0] for place in places):
            return None
        result_place = group.places.get(reader.results[0])
        return None if result_place is None else compose_axis_maps(places[0], result_place)

    def union(
        self,
        source: Group,
        group: Group,
        space: Shape,
        places: dict[Value, AxisMap | None],
        rows: frozenset[int] | None,
    ) -> Group:
        nodes = sorted({*source.nodes, *group.nodes}, key=self.order.__getitem__)
        kinds = {source.kind, group.kind}
        kind = next(
            (k for k in (GroupKind.CONTRACTION, GroupKind.ROWS) if k in kinds), GroupKind.POINTWISE
        )
        return Group(
            nodes,
            kind,
            space,
            places,
            rows,
            source.joined + group.joined,
            source.apart + group.apart,
            taken_in=source.taken_in + group.taken_in,
            exported=self.exported,
            copies=(source.copies | group.copies)
            - (set(source.nodes) - source.copies)
            - (set(group.nodes) - group.copies),
        )

    def checked(self, both: Group, reduce: bool) -> Group | str:
        """Every value that leaves must be writable on the way, and rows must be worth it.

        Few long rows are split among threads, which one reduction can be (``reduce``: both sides
        have some), with what is computed of its result, but nothing that is written along a row.
        """
        few = _has_few_long_rows(both, self.limits)
        for output in both.outputs():
            place = both.places.get(output)
            if place is None:
                return f"%{output.name} is needed elsewhere and has no place in this index space"
            axes = {axis for axis in place if axis is not None}
            whole = {axis for axis, dim in enumerate(both.space) if dim != 1}
            if axes != whole and (both.rows is None or axes != both.rows):
                return f"%{output.name} is needed elsewhere and would be written many times"
            if few and axes == whole:
                return FEW_LONG_ROWS
        return FEW_LONG_ROWS if few and reduce else both

    def inlined(self, source: Group, group: Group, value: Value) -> Group | str:
        """Compute the producer's elements where they are read, whatever their arrangement."""
        if source.kind is not GroupKind.POINTWISE:
            return "its elements are read in another arrangement"
        if any(output is not value for output in source.outputs()):
            return "its kernel has other results"
        if value in self.exported or any(use.node not in group.nodes for use in value.uses):
            return "others read it too"
        is_dear = source.work() > self.limits.max_recomputed_instructions and not self.is_prologue(
            source, group
        )
        if _grows(value, group) and is_dear:
            return "each element is read several times, and costs more to compute than to read"
        places: dict[Value, AxisMap | None] = dict.fromkeys(source.places)
        return self.union(source, group, group.space, places | group.places, group.rows)

    def is_shared_move(self, source: Group, group: Group, value: Value) -> bool:
        """Whether rows are moved for this kernel and for others that read a part of each.

        Those could not share its loops, so that the rows would be written for them.
        """
        if group.kind is not GroupKind.POINTWISE or value in self.exported:
            return False
        readers = [use.node for use in value.uses]
        if self.graph.output_node in readers or not all(map(_moves_rows, source.nodes)):
            return False
        others = (reader for reader in readers if self.home.get(reader) is not group)
        return any(reader.op.has(Trait.MOVE) for reader in others)

    def copy(self, source: Group, group: Group, value: Value) -> bool:
        """Compute a cheap producer again instead of reading it."""
        if source.kind is not GroupKind.POINTWISE or group.kind is GroupKind.OPAQUE:
            return False
        if is_image(source.nodes, group.nodes):
            return False
        free = all(map(is_free, source.nodes))
        limit = (
            0
            if group.kind in (GroupKind.CONTRACTION, GroupKind.WINDOW)
            else self.limits.max_recomputed_instructions
        )
        if self.is_prologue(source, group):
            limit = self.limits.max_recomputed_instructions
        if not free and (source.work() > limit or bytes_read(source.inputs()) > nbytes(value)):
            return False
        if any(node.has_effect for node in source.nodes):
            return False
        for node in source.nodes:
            if node not in group.nodes:
                group.nodes.append(node)
                group.copies.add(node)
        self.exported.update(source.inputs())
        group.nodes.sort(key=self.order.__getitem__)
        group.places = dict.fromkeys(source.places) | group.places
        group.joined.append(f"%{value.name} is computed again: that is cheaper than reading it")
        return True

    def replace(self, source: Group, group: Group, merged: Group, value: Value) -> None:
        merged.taken_in.append(value)
        for node in merged.nodes:
            if node not in merged.copies:
                self.home[node] = merged

    # Siblings -------------------------------------------------------------------------------------

    def join_siblings(self) -> None:
        """Merge kernels that read the same large value in the same order: it is then read once."""
        for value in self.read_values():
            if nbytes(value) < self.limits.min_shared_bytes:
                continue
            readers = dict.fromkeys(
                self.home[use.node] for use in value.uses if use.node in self.home
            )
            groups = [group for group in readers if _may_join(group)]
            while len(groups) > 1:
                first, *others = groups
                groups = others
                for other in others:
                    merged = self.join(first, other, value)
                    if merged is None:
                        continue
                    merged.joined.append(
                        f"%{value.name} is read once for both: {amount(nbytes(value))} not read"
                    )
                    for node in merged.nodes:
                        if node not in merged.copies:
                            self.home[node] = merged
                    groups = [merged, *(g for g in others if g is not other)]
                    break

    def read_values(self) -> list[Value]:
        """Every value that nodes read, the largest first."""
        values = [*self.graph.inputs, *(v for node in self.graph.nodes for v in node.results)]
        return sorted((v for v in values if len(v.uses) > 1), key=nbytes, reverse=True)

    def join(self, first: Group, second: Group, value: Value) -> Group | None:
        """Two kernels that do not need each other as one."""
        if len(first.nodes) + len(second.nodes) > self.limits.max_sibling_nodes:
            return None
        a, b = first.places.get(value), second.places.get(value)
        if a is None or b is None or self.needs(first, second) or self.needs(second, first):
            return None
        joint = joint_space(first.space, a, second.space, b)
        if joint is None:
            return None
        space, first_axes, second_axes = joint
        places = {v: move_axis_map(p, first_axes) for v, p in first.places.items()}
        places |= {v: move_axis_map(p, second_axes) for v, p in second.places.items()}
        rows = joint_rows(move_rows(first.rows, first_axes), move_rows(second.rows, second_axes))
        if isinstance(rows, str):
            return None
        reduce = first.rows is not None and second.rows is not None
        both = self.checked(self.union(first, second, space, places, rows), reduce)
        return None if isinstance(both, str) else both

    def needs(self, group: Group, other: Group) -> bool:
        """Whether a group depends on another, directly or through others."""
        return any(each is other for each in self.producers(group)) or self.reaches(other, group)

    # Order ----------------------------------------------------------------------------------------

    def producers(self, group: Group) -> Iterable[Group]:
        return map(self.home.__getitem__, self.read_nodes(group))

    def read_nodes(self, group: Group) -> Sequence[Node]:
        """The nodes whose results a group reads, kept as long as it has no others."""
        size, found = self.read.get(group, (0, ()))
        if size != len(group.nodes):
            producers = (value.producer for value in group.inputs())
            found = [node for node in producers if node is not None and not is_stored(node)]
            self.read[group] = len(group.nodes), found
        return found

    def reaches(self, source: Group, group: Group) -> bool:
        """Whether some third group needs ``source`` and is needed by ``group``."""
        earliest = self.order[next(n for n in source.nodes if n not in source.copies)]
        stack = [other for other in self.producers(group) if other is not source]
        seen: set[int] = {id(group)}
        while stack:
            other = stack.pop()
            if other is source:
                return True
            if id(other) in seen or self.order[other.nodes[-1]] < earliest:
                continue
            seen.add(id(other))
            stack.extend(self.producers(other))
        return False

    def sorted(self, groups: Sequence[Group]) -> list[Group]:
        """Groups in an order in which each runs after those it reads from."""
        done: dict[int, Group] = {}
        result: list[Group] = []
        for root in groups:
            stack = [(root, False)]
            while stack:
                group, ready = stack.pop()
                if ready:
                    result.append(group)
                    continue
                if id(group) in done:
                    continue
                done[id(group)] = group
                stack.append((group, True))
                stack.extend((each, False) for each in self.producers(group))
        return result


def _are_too_long(max_work: int, *groups: Group) -> bool:
    """Whether the formulas of groups are too long together: what lowering and emitting them takes.

    Of a join of thousands, no more is counted than that takes.
    """
    sizes = (max(1, work(node) // 2) for group in groups for node in group.nodes)
    return any(total > max_work for total in accumulate(sizes))


def _is_made_for_rows(node: Node, max_instructions: int) -> bool:
    """Whether reductions alone read what a node makes, cheaply, of what others read as well."""
    readers = [use.node for result in node.results for use in result.uses]
    if not readers or not all(reader.op.has(Trait.REDUCTION) for reader in readers):
        return False
    shared = (any(use.node is not node for use in operand.uses) for operand in node.operands)
    return work(node) <= max_instructions and all(shared)


def _moves_rows(node: Node) -> bool:
    """Whether a node gives its operand's rows in another order, each as it is."""
    if not isinstance(node.op, Reshape | Transpose):
        return False
    (source,), (result,) = node.operands, node.results
    last = result.rank - 1
    if isinstance(node.op, Transpose):
        return last >= 0 and node.op.permutation[last] == last
    return last >= 0 and bool(source.shape)


def _may_join(group: Group) -> bool:
    return group.kind in (GroupKind.POINTWISE, GroupKind.ROWS)


def _has_few_long_rows(group: Group, limits: FusionLimits) -> bool:
    if group.rows is None:
        return False
    rows = shape_product(group.space[axis] for axis in group.rows)
    row = shape_product(dim for axis, dim in enumerate(group.space) if axis not in group.rows)
    return (
        isinstance(rows, int)
        and isinstance(row, int)
        and rows < limits.min_parallel_rows
        and row > limits.min_split_row_elements
    )


def _grows(value: Value, group: Group) -> bool:
    """Whether the space is visited more often than the value has elements."""
    size, space = shape_product(value.shape), shape_product(group.space)
    if isinstance(size, int) and isinstance(space, int):
        return space > size
    return not provably_equal(size, space)
