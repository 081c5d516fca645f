"""Decomposes attention that a target's streaming kernel does not support to products and a softmax.

A streaming kernel keeps a tile of queries and its result in a core's cache, so it has a limit on
the size of a head; and below some number of scores a head's whole score matrix stays in the cache
anyway, so that streaming it gains nothing. Both limits are the target's.
"""

from __future__ import annotations

from typing import ClassVar

from monograph.dataclass import dataclass
from monograph.ir.decompose import decompose_node
from monograph.ir.dims import Dim
from monograph.ir.graph import Graph, Node
from monograph.ir.types import DType, TensorType, bool_
from monograph.ops.attention import Attention
from monograph.passes.base import Pass, PassResult
from monograph.switches import is_on


@dataclass(frozen=True)
class DecomposeUnsupportedAttention(Pass):
    """Decompose each attention that the target has no streaming kernel for.

        %y = attention(%q, %k, %v)     ─▶     %s = dot_general(%q, %k)
                                              %p = softmax(%s)
                                              %y = dot_general(%p, %v)

    ``head_size`` is the largest head that a kernel takes, ``scores`` the number of scores of a
    head up to which matrix products are at least as quick.
    """

    name: ClassVar[str] = "decompose_unsupported_attention"

    head_size: int = 512
    scores: int = 64

    def run(self, graph: Graph) -> PassResult:
        """Decompose, in regions too."""
        found = [
            node
            for node in graph.walk()
            if isinstance(node.op, Attention) and not self.is_supported(node)
        ]
        for node in found:
            decompose_node(node)
        return PassResult(bool(found), {"attention": len(found)} if found else {})

    def is_supported(self, node: Node) -> bool:
        """Whether a node is an attention that the target's streaming kernel computes."""
        if not isinstance(node.op, Attention) or not is_on("streaming_attention"):
            return False
        values = (*node.operands, *node.results)
        if not all(isinstance(value.type, TensorType) for value in values):
            return False
        if not all(_is_supported_dtype(value.dtype) for value in values):
            return False
        query, key, value = node.operands[:3]
        if any(dim == 0 for dim in (*query.shape, *key.shape, *value.shape)):
            return False
        sizes = (query.shape[-1], value.shape[-1])
        if not all(isinstance(size, int) and size <= self.head_size for size in sizes):
            return False
        return node.op.causal or not self._is_small(query.shape[-2], key.shape[-2])

    def _is_small(self, queries: Dim, keys: Dim) -> bool:
        """Whether all scores of a head stay in a core's cache anyway."""
        if not isinstance(queries, int) or not isinstance(keys, int):
            return False
        return queries * keys <= self.scores


def _is_supported_dtype(dtype: DType) -> bool:
    """Numbers to compute with, or a mask."""
    return dtype is bool_ or (dtype.is_float and dtype.bits >= 16) or dtype.is_integer
