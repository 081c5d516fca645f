"""Collectives of StableHLO in a program of one device, where every group is that device.

Each then gives what it was given. A group of several devices is refused by name: a graph that is
read from StableHLO has one.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from monograph import functional as F
from monograph.errors import UnsupportedError
from monograph.frontends.stablehlo.attributes import dense_array
from monograph.frontends.stablehlo.operation import Operation, converter
from monograph.ir.build import constant
from monograph.ir.graph import Value
from monograph.ir.types import u32


@converter("stablehlo.partition_id", "stablehlo.replica_id")
def convert_own_number(operation: Operation) -> Value:
    """The number of the device, of which there is one."""
    return constant(0, u32)


@converter(
    "stablehlo.all_gather",
    "stablehlo.all_reduce",
    "stablehlo.all_to_all",
    "stablehlo.reduce_scatter",
)
def convert_collective(operation: Operation) -> list[Value]:
    """What the only device of each group gives it."""
    groups = ir.DenseElementsAttr(operation.attribute("replica_groups"))
    if ir.RankedTensorType(groups.type).get_dim_size(1) > 1:
        raise UnsupportedError(
            f"{operation.name} of several devices has no meaning here",
            hint="export the program for one device",
        )
    return operation.operands


@converter("stablehlo.collective_permute")
def convert_permute(operation: Operation) -> Value:
    """Its own elements, if the device sends them to itself; zeros, if nobody sends any."""
    pairs = dense_array(operation.attribute("source_target_pairs")).reshape(-1, 2).tolist()
    if pairs not in ([], [[0, 0]]):
        raise UnsupportedError(
            f"{operation.name} of several devices has no meaning here",
            hint="export the program for one device",
        )
    return operation.operand if pairs else F.zeros_like(operation.operand)
