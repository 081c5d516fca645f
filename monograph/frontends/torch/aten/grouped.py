"""Grouped matrix products, where each group of rows has a matrix of its own (experts).

torch has an op for them, and transformers one of its own for the types that torch's does not take.
"""

from __future__ import annotations

from monograph import functional as F
from monograph.errors import UnsupportedError
from monograph.frontends.torch.node import TorchNode
from monograph.frontends.torch.registry import converter
from monograph.ir.graph import Value


@converter("transformers.grouped_mm_fallback.default")
def _grouped_linear(node: TorchNode) -> Value:
    return F.grouped_matmul(node["input"], node["weight"], node["offs"])


@converter("aten._grouped_mm.default")
def _grouped_mm(node: TorchNode) -> Value:
    """Runs are of rows, of columns, or of what is summed over; without runs it is a batch."""
    left, right, ends = node["self"], node["mat2"], node["offs"]
    if node["bias"] is not None:
        raise UnsupportedError(f"{node.op_name}: a bias")
    if ends is None:
        made = F.matmul(left, right)
    elif right.rank == 3:
        made = F.grouped_matmul(left, right, ends)
    elif left.rank == 3:
        turned = F.grouped_matmul(F.transpose(right), F.transpose(left, (0, 2, 1)), ends)
        made = F.transpose(turned)
    else:
        made = F.grouped_outer(left, right, ends)
    (type_,) = node.result_types()
    return made if type_ is None else F.cast(made, type_.dtype)
