"""Libraries of the device, reached through torch: what computes a node that no kernel of ours does.

A library's call is a step of the program: it reads and writes the program's own memory, seen as
torch tensors, on the program's stream, so that it can be captured in a graph like any kernel. The
table is asked twice: by the compiler, whether a library computes a node (that needs no torch), and
by the runtime, which runs it.
"""

from __future__ import annotations

from collections.abc import Mapping

from monograph.ir.graph import Node
from monograph.ir.types import TensorType, c64, c128
from monograph.targets.gpu.libraries import index, order, products, torch_ops
from monograph.targets.gpu.libraries.library import FLOATS, Library, LibraryTask, has_dtypes

__all__ = ["LIBRARIES", "Library", "LibraryTask", "library_of"]

LIBRARIES: Mapping[str, Library] = {
    "dot_general": Library("cuBLAS", has_dtypes(*FLOATS, c64, c128), products.dot),
    "conv": Library("cuDNN", products.is_convolution, products.convolution),
    "conv_transpose": Library("cuDNN", products.is_even, products.transposed_convolution),
    "conv_weight_gradient": Library("cuDNN", products.is_even, products.weight_gradient),
    "attention": Library("torch's attention", products.is_plain_attention, products.attention),
    "argsort": Library("torch", order.is_sortable, order.argsort),
    "top_k_indices": Library("torch", order.is_sortable, order.top_k),
    "cumsum": Library("torch", order.is_running, order.cumsum),
    "cumprod": Library("torch", order.is_running, order.cumprod),
    "cummax": Library("torch", order.is_running, order.cummax),
    "scatter": Library("torch", index.is_writable, index.scatter, checks=True),
    "put_along_axis": Library("torch", index.is_writable, index.put_along_axis, checks=True),
    "torch.call": Library("torch", lambda node: True, torch_ops.call),
}
"""By op, the library that computes it."""


def library_of(node: Node) -> Library | None:
    """The library that computes a node; None if none does."""
    found = LIBRARIES.get(node.op.name)
    values = (*node.operands, *node.results)
    if found is None or not all(isinstance(value.type, TensorType) for value in values):
        return None
    if any(0 in value.shape for value in values):
        return None  # libraries refuse what kernels of ours skip, or fill with zeros
    return found if found.computes(node) else None
