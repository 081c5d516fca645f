"""Tile a batch of images: run several layers on one image at a time, while it is in cache.

Between two layers of a convolutional network a batch is tens of megabytes: every kernel waits for
memory, and reads what another processor has written. One image's share stays in a processor's own
caches. So a run of nodes that treat all images alike becomes a loop over the batch, whose steps are
independent: each processor takes images, and takes them through all of these nodes.

It does not pay where the weights of a layer are more than an image: those would be read once for
every image, and the batch is what makes them cheap. A network begins with large images and small
weights and ends the other way round; so a run ends at the first layer that has more weights than
image, and a new one begins where images are clearly larger again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import ClassVar

from monograph.dataclass import dataclass
from monograph.errors import MonographError
from monograph.ir.dims import Dim, SymbolicDim
from monograph.ir.graph import Graph, Node, Value, copy_node, infer_types
from monograph.ir.op import Op, Trait
from monograph.ir.types import TensorType, ValueType, symbols_of
from monograph.ops.control import Scan
from monograph.ops.conv import Conv, ConvTranspose
from monograph.ops.joining import Concat
from monograph.ops.linalg import DotGeneral
from monograph.ops.pool import AvgPool, MaxPool
from monograph.ops.resize import Resize
from monograph.ops.rules import normalize_axes
from monograph.ops.shape import Expand, Reshape, Transpose, reshape
from monograph.ops.slicing import Pad
from monograph.passes.base import Pass, PassResult

CONVOLUTIONS = (Conv, ConvTranspose)
PRODUCTS = (*CONVOLUTIONS, DotGeneral)
"""Ops that read weights."""
MIN_IMAGE_TO_WEIGHT_RATIO = 4
"""How many times larger than its weights an image is where a run begins."""
LIKELY_SIZE = 32
"""What a size that is not known is taken for."""
MIN_CONVOLUTIONS = 4
"""Convolutions of a run that are worth the loop."""
MIN_REUSE_RATIO = 8
"""How many times less than it makes a run reads and hands on: that enters and leaves row-major."""
WINOGRAD_PLANES_RATIO = 2
"""How many times larger than a window of 3×3 taps is what it is transformed to."""


@dataclass(frozen=True)
class TileBatch(Pass):
    """Turn runs of nodes that treat every image alike into loops over the batch.

        %a = conv(%x, %v)                  %x1 = reshape(%x) : f32[8, 1, 3, 224, 224]
        %b = conv(%a, %w)                  %b1 = scan(%x1) {carries = 0, sequences = 1}
                                  ─▶         (%x: f32[1, 3, 224, 224]) {
                                               %a = conv(%x, %v)
                                               %b = conv(%a, %w)
                                               return %b }
                                           %b = reshape(%b1) : f32[8, 64, 56, 56]

    ``near`` is how many bytes a processor keeps near; batches that fit stay as they are. So do
    those with fewer images than there are ``processors``.
    """

    name: ClassVar[str] = "tile_batch"

    near: int = 1 << 19
    processors: int = 1

    def run(self, graph: Graph) -> PassResult:
        """Change the graph itself; regions are left alone."""
        found = [run for run in _Runs(graph, self.near).runs if self._pays(run)]
        for each in found:
            _Loop(graph, each).build()
        counters = {"loops": len(found), "nodes": sum(len(run.ops) for run in found)}
        return PassResult(bool(found), counters)

    def _pays(self, run: _Run) -> bool:
        if isinstance(run.batch, int) and run.batch < max(2, self.processors):
            return False
        images = run.batch if isinstance(run.batch, int) else LIKELY_SIZE
        if MIN_REUSE_RATIO * sum(map(_piece_bytes, (*run.images(), *run.results()))) > run.made:
            return False
        return run.convolutions >= MIN_CONVOLUTIONS and run.largest * images > 2 * self.near


@dataclass
class _Run:
    """Consecutive nodes that treat every image alike, each with its op for a single one."""

    batch: Dim
    ops: dict[Node, Op] = field(default_factory=dict)
    convolutions: int = 0
    largest: int = 0
    """Bytes of the largest value of one image."""
    made: int = 0
    """Bytes of all of them."""

    def images(self) -> list[Value]:
        """What it reads of outside, a piece for every image."""
        found: dict[Value, None] = {}
        for node in self.ops:
            for position in images_among(node):
                if node.operands[position].producer not in self.ops:
                    found[node.operands[position]] = None
        return list(found)

    def results(self) -> list[Value]:
        """What others read."""
        return [
            value
            for node in self.ops
            for value in node.results
            if any(use.node not in self.ops for use in value.uses)
        ]


class _Runs:
    """Finds the runs of a graph, in order."""

    def __init__(self, graph: Graph, near: int) -> None:
        self.near = near
        self.runs: list[_Run] = []
        self.open: _Run | None = None
        for node in graph.nodes:
            if node.operands and not self._goes_on(node):
                self.open = None
                self._begins(node)

    def _begins(self, node: Node) -> None:
        """Begin a run at a convolution of images that are much larger than its weights."""
        if not isinstance(node.op, CONVOLUTIONS) or not _is_batched(node.results[0].type):
            return
        if MIN_IMAGE_TO_WEIGHT_RATIO * _weight_bytes(node) > _image_bytes(node):
            return
        self.open = _Run(node.results[0].shape[0])
        if self._goes_on(node):
            self.runs.append(self.open)
        else:
            self.open = None

    def _goes_on(self, node: Node) -> bool:
        """Take a node into the run that is open, if it belongs there."""
        run = self.open
        if run is None:
            return False
        op = _for_one(node, run)
        if op is None:
            return False
        weights = _weight_bytes(node)
        if weights > max(_image_bytes(node), self.near // 4):
            return False
        run.ops[node] = op
        run.convolutions += isinstance(node.op, CONVOLUTIONS)
        for value in node.results:
            run.largest = max(run.largest, _piece_bytes(value))
            run.made += _piece_bytes(value)
        return True


# What one image needs -----------------------------------------------------------------------------


def _is_batched(type_: ValueType) -> bool:
    return isinstance(type_, TensorType) and type_.rank >= 3


def _bytes(shape: tuple[Dim, ...], value: Value) -> int:
    size = value.dtype.numpy.itemsize
    for dim in shape:
        size *= dim if isinstance(dim, int) else LIKELY_SIZE
    return size


def _piece_bytes(value: Value) -> int:
    return _bytes(value.shape[1:], value)


def _weight_bytes(node: Node) -> int:
    """Bytes that are read once for every image."""
    op = node.op
    if not isinstance(op, PRODUCTS):
        return 0
    given = sum(_bytes(value.shape, value) for value in node.operands[1:])
    if not isinstance(op, Conv) or op.groups != 1 or set(op.stride) != {1}:
        return given
    return given * WINOGRAD_PLANES_RATIO if node.operands[1].shape[2:] == (3, 3) else given


def _image_bytes(node: Node) -> int:
    values = (node.operands[0], *node.results)
    return sum(map(_piece_bytes, values))


def _for_one(node: Node, run: _Run) -> Op | None:
    """The node's op for a single image; None if images are not treated alike and apart."""
    types = [value.type for value in (*node.operands, *node.results)]
    if not all(isinstance(type_, TensorType) for type_ in types) or node.regions:
        return None
    if not all(_leads(value, run.batch) for value in node.results):
        return None
    op = _alone(node)
    if op is None:
        return None
    apart = images_among(node)
    for position, value in enumerate(node.operands):
        inside = value.producer in run.ops
        if position in apart and not _leads(value, run.batch):
            return None
        if position not in apart and inside:
            return None
    given = [
        _of_one(value) if position in apart else value.type
        for position, value in enumerate(node.operands)
    ]
    try:
        made = infer_types(op, given, ())
    except MonographError:
        return None
    return op if list(made) == [_of_one(value) for value in node.results] else None


def _leads(value: Value, batch: Dim) -> bool:
    """Whether a value is a piece for every image, and the pieces do not depend on how many."""
    if value.rank < 1 or value.shape[0] != batch:
        return False
    if not isinstance(batch, SymbolicDim):
        return True
    counted = set(symbols_of(value.tensor.with_shape((batch,))))
    return not counted & set(symbols_of(value.tensor.with_shape(value.shape[1:])))


def _of_one(value: Value) -> ValueType:
    return value.tensor.with_shape((1, *value.shape[1:]))


def images_among(node: Node) -> frozenset[int]:
    """The positions of the operands that every image has a piece of."""
    if isinstance(node.op, Concat):
        return frozenset(range(len(node.operands)))
    if not node.op.has(Trait.ELEMENTWISE):
        return frozenset((0,))
    (result, *_) = node.results
    return frozenset(
        position
        for position, value in enumerate(node.operands)
        if value.rank == result.rank and value.shape[0] == result.shape[0]
    )


def _alone(node: Node) -> Op | None:
    """The op, with the batch left out of its attributes, if it does not mix images."""
    op, rank = node.op, node.operands[0].rank
    if op.has(Trait.ELEMENTWISE):
        return op
    rule = _RULES.get(type(op))
    if rule is not None:
        return rule(op, rank)
    attributes = op.attributes()
    if op.has(Trait.REDUCTION) and "axes" in attributes:
        axes = normalize_axes(op.name, attributes["axes"], rank)
        return op if 0 not in axes else None
    return None


def _tile_reshape(op: Op, rank: int) -> Op | None:
    assert isinstance(op, Reshape)
    return replace(op, shape=(1, *op.shape[1:]))


def _tile_expand(op: Op, rank: int) -> Op | None:
    assert isinstance(op, Expand)
    return replace(op, shape=(1, *op.shape[1:])) if rank == len(op.shape) else None


def _tile_concatenate(op: Op, rank: int) -> Op | None:
    assert isinstance(op, Concat)
    return op if op.axis % rank != 0 else None


def _tile_transpose(op: Op, rank: int) -> Op | None:
    assert isinstance(op, Transpose)
    return op if op.permutation[0] % rank == 0 else None


def _tile_matmul(op: Op, rank: int) -> Op | None:
    assert isinstance(op, DotGeneral)
    contracted = {axis % rank for axis in op.lhs_contracting}
    return op if not op.lhs_batch and 0 not in contracted else None


def _tile_resize(op: Op, rank: int) -> Op | None:
    assert isinstance(op, Resize)
    return op if 0 not in {axis % rank for axis in op.axes} else None


def _tile_pad(op: Op, rank: int) -> Op | None:
    assert isinstance(op, Pad)
    untouched = op.low[0] == 0 and op.high[0] == 0 and not (op.interior and op.interior[0])
    return op if untouched else None


def _tile_window(op: Op, rank: int) -> Op | None:
    return op


_RULES: Mapping[type[Op], Callable[[Op, int], Op | None]] = {
    Conv: _tile_window,
    ConvTranspose: _tile_window,
    AvgPool: _tile_window,
    MaxPool: _tile_window,
    Reshape: _tile_reshape,
    Expand: _tile_expand,
    Concat: _tile_concatenate,
    Transpose: _tile_transpose,
    DotGeneral: _tile_matmul,
    Resize: _tile_resize,
    Pad: _tile_pad,
}
"""Ops that may work on one image at a time, besides those of elements and reductions."""


# The loop -----------------------------------------------------------------------------------------


class _Loop:
    """Puts a loop over the batch in place of a run."""

    def __init__(self, graph: Graph, run: _Run) -> None:
        self.graph = graph
        self.ops = run.ops
        self.batch = run.batch
        self.results = run.results()

    def build(self) -> None:
        """Make the loop, let others read its results, and erase the run."""
        results = self.results
        images, whole = self._operands()
        region = self._body(images, whole)
        last = list(self.ops)[-1]
        with self.graph.inserting_before(last.next, last.location):
            apart = [reshape(value, (self.batch, 1, *value.shape[1:])) for value in images]
            scan = Scan(carries=0, sequences=len(images))
            loop = self.graph.create(scan, (*apart, *whole), regions=(region,))
            made = [reshape(new, old.shape) for old, new in zip(results, loop.results, strict=True)]
        for old, new in zip(results, made, strict=True):
            for use in old.uses:
                if use.node not in self.ops:
                    use.node.set_operand(use.position, new)
        sources = {v.producer for node in self.ops for v in node.operands if _is_source(v)}
        for node in reversed(list(self.ops)):
            self.graph.erase(node)
        for source in sources:
            if source is not None and not source.is_used:
                self.graph.erase(source)

    def _operands(self) -> tuple[list[Value], list[Value]]:
        """What is read of outside: values with a piece for every image, and others."""
        images: dict[Value, None] = {}
        whole: dict[Value, None] = {}
        for node in self.ops:
            apart = images_among(node)
            for position, value in enumerate(node.operands):
                if value.producer in self.ops or (position not in apart and _is_source(value)):
                    continue
                (images if position in apart else whole)[value] = None
        return list(images), list(whole)

    def _body(self, images: list[Value], whole: list[Value]) -> Graph:
        """The run for one image; what nothing is read for (weights) is in it too."""
        region = Graph("image")
        apart = {v: region.add_input(v.name, _of_one(v)) for v in images}
        known = {v: region.add_input(v.name, v.type) for v in whole}
        for node, op in self.ops.items():
            positions = images_among(node)
            operands = []
            for position, value in enumerate(node.operands):
                if value.producer in self.ops or (position in positions and value in apart):
                    operands.append(apart[value])
                    continue
                if value not in known:
                    assert value.producer is not None
                    copy_node(value.producer, region, known)
                operands.append(known[value])
            names = [value.name for value in node.results]
            made = region.create(op, operands, names=names, location=node.location)
            apart.update(zip(node.results, made.results, strict=True))
        region.set_outputs([apart[value] for value in self.results])
        return region


def _is_source(value: Value) -> bool:
    """Whether a value is made of nothing: a weight or a constant, which the loop has inside."""
    return value.producer is not None and not value.producer.operands
