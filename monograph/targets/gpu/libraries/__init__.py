"""Libraries of the device, reached through torch: what computes a node that no kernel of ours does.

A library's call is a step of the program: it reads and writes the program's own memory, seen as
torch tensors, on the program's stream, so that it can be captured in a graph like any kernel. The
table is asked twice: by the compiler, whether a library computes a node (that needs no torch), and
by the runtime, which runs it.
"""

from __future__ import annotations

from collections.abc import Mapping

from monograph.ir.foreign_call import ForeignCall
from monograph.ir.graph import Node
from monograph.ir.op import Op
from monograph.ir.types import TensorType, bf16, c64, c128, f16, f32
from monograph.ops.attention import Attention
from monograph.ops.conv import Conv, ConvTranspose
from monograph.ops.conv.weight_gradient import ConvWeightGradient
from monograph.ops.cumulative import Cummax, Cumprod, Cumsum
from monograph.ops.index.writing import PutAlongAxis, Scatter
from monograph.ops.linalg import DotGeneral
from monograph.ops.linear_activation import LinearActivation
from monograph.ops.sorting import Argsort, TopKIndices
from monograph.targets.gpu.libraries import index, order, products, torch_ops
from monograph.targets.gpu.libraries.library import FLOATS, Library, LibraryTask, has_dtypes

__all__ = ["LIBRARIES", "Library", "LibraryTask", "find_library", "library_of"]

LIBRARIES: Mapping[type[Op], Library] = {
    DotGeneral: Library("cuBLAS", has_dtypes(*FLOATS, c64, c128), products.dot),
    LinearActivation: Library("cuBLASLt", has_dtypes(f32, f16, bf16), products.linear_activation),
    Conv: Library("cuDNN", products.is_convolution, products.convolution),
    ConvTranspose: Library("cuDNN", products.is_even, products.convolve_transposed),
    ConvWeightGradient: Library("cuDNN", products.is_even, products.weight_gradient),
    Attention: Library("torch's attention", products.is_plain_attention, products.attention),
    Argsort: Library("torch", order.is_sortable, order.argsort),
    TopKIndices: Library("torch", order.is_sortable, order.top_k),
    Cumsum: Library("torch", order.is_running, order.cumsum),
    Cumprod: Library("torch", order.is_running, order.cumprod),
    Cummax: Library("torch", order.is_running, order.cummax),
    Scatter: Library("torch", index.is_writable, index.scatter, checks=True),
    PutAlongAxis: Library("torch", index.is_writable, index.put_along_axis, checks=True),
    ForeignCall: Library("torch", lambda node: True, torch_ops.call),
}
"""By op, the library that computes it."""


def find_library(op: Op) -> Library | None:
    """The library that knows an op, whatever its operands."""
    return LIBRARIES.get(ForeignCall if isinstance(op, ForeignCall) else type(op))


def library_of(node: Node) -> Library | None:
    """The library that computes a node; None if none does."""
    found = find_library(node.op)
    values = (*node.operands, *node.results)
    if found is None or not all(isinstance(value.type, TensorType) for value in values):
        return None
    if any(0 in value.shape for value in values):
        return None  # libraries refuse what kernels of ours skip, or fill with zeros
    return found if found.computes(node) else None
