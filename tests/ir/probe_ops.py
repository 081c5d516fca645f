"""For tests of the text form and the verifier: ops with every kind of attribute, result and region,
and the round trip that graphs must survive.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Literal

import monograph.ops  # noqa: F401  # registers the ops of the package
from monograph.ir.compare import structurally_equal
from monograph.ir.dims import Dim, Shape
from monograph.ir.graph import Graph
from monograph.ir.op import Op, Trait, op
from monograph.ir.text import parse, print_graph
from monograph.ir.types import (
    Device,
    DType,
    Layout,
    Quantization,
    SequenceType,
    TensorType,
    ValueType,
    f32,
)
from monograph.ir.verify import verify


class Mode(Enum):
    """A choice, as ops declare them."""

    FLOOR = "floor"
    CEIL = "ceil"


@op("test.probe")
class Probe(Op):
    """The identity, with an attribute of every type."""

    count: int
    ratio: float = 0.5
    flag: bool = False
    label: str = ""
    value: complex = 0j
    dtype: DType = f32
    size: Dim = 1
    shape: Shape = ()
    axes: tuple[int, ...] = ()
    ratios: tuple[float, ...] = ()
    pads: tuple[tuple[int, int], ...] = ()
    limit: float | None = None
    mode: Literal["nearest", "linear"] = "nearest"
    rounding: Mode = Mode.FLOOR
    device: Device | None = None
    type: ValueType | None = None
    layout: Layout | None = None
    quantization: Quantization | None = None

    def infer(self, x: TensorType) -> TensorType:
        return x


@op("test.pair")
class Pair(Op):
    """Its operand, twice."""

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        return x, x


@op("test.sink", traits=Trait.EFFECT)
class Sink(Op):
    """No results."""

    def infer(self, *operands: TensorType) -> tuple[TensorType, ...]:
        return ()


@op("test.sequence", traits=Trait.SEQUENCES)
class Sequence_(Op):
    """A sequence of its operands."""

    def infer(self, *operands: ValueType) -> SequenceType:
        return SequenceType(operands[0])


@op("test.region", regions=("body",))
class Region(Op):
    """Whatever its region returns."""

    def infer(self, regions: Sequence[Graph], *operands: TensorType) -> tuple[ValueType, ...]:
        return tuple(value.type for value in regions[0].outputs)


@op("test.branch", regions=("then", "else"))
class Branch(Op):
    """Two regions that return the same types."""

    flag: bool = False

    def infer(self, regions: Sequence[Graph], *operands: TensorType) -> tuple[ValueType, ...]:
        return tuple(value.type for value in regions[0].outputs)


@op("test.same")
class Same(Op):
    """Two operands of one type."""

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        if x != y:
            raise AssertionError(f"{x} is not {y}")
        return x


def round_trip(graph: Graph) -> Graph:
    """Print, parse, compare; the parsed graph."""
    text = print_graph(graph)
    again = parse(text)
    verify(again)
    assert structurally_equal(graph, again, names=True)
    assert print_graph(again) == text
    return again
