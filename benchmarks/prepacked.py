"""MKL and oneDNN called by their own names, with weights that were packed for them ahead.

PyTorch's own layers give these libraries their weights as they are; this is the best that they can
do for one layer, and what torch.compile with freezing makes of a whole model.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.contender import Peer, Prepared, Unsupported, quickest
from benchmarks.workloads import Case


class Prepacked(Peer):
    """The libraries below PyTorch themselves, with a weight that was packed for them before."""

    name = "prepacked"
    form = "torch.ops.mkl._mkl_linear or torch.ops.mkldnn's, weights packed ahead"
    families = ("matmul", "convolution")

    def prepare(self, case: Case) -> Prepared:
        if isinstance(case.module, torch.nn.Sequential):
            return self.convolution(case)
        if not case.constants:
            raise Unsupported("no factor of this product is known ahead")
        (x,), (weight,) = case.inputs, case.constants
        return quickest([partial(way, x, weight) for way in (self.mkl, self.onednn)])

    def mkl(self, x: Tensor, weight: Tensor) -> Prepared:
        """MKL's product with a packed matrix."""
        rows, multiply = x.shape[0], torch.ops.mkl._mkl_linear
        packed = torch.ops.mkl._mkl_reorder_linear_weight(weight, rows)
        return Prepared(lambda: multiply(x, packed, weight, None, rows))

    def onednn(self, x: Tensor, weight: Tensor) -> Prepared:
        """oneDNN's product with a weight in the layout that it prefers."""
        multiply = torch.ops.mkldnn._linear_pointwise
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, x.shape[0])
        return Prepared(lambda: multiply(x, packed, None, "none", [], ""))

    def convolution(self, case: Case) -> Prepared:
        """oneDNN's convolution with bias and relu, in either layout of images."""
        assert isinstance(case.module, torch.nn.Sequential)
        layer: Any = case.module[0]
        apply = torch.ops.mkldnn._convolution_pointwise
        reorder = torch._C._nn.mkldnn_reorder_conv2d_weight
        where = (layer.padding, layer.stride, layer.dilation, layer.groups)

        def way(memory: torch.memory_format) -> Prepared:
            x = case.inputs[0].contiguous(memory_format=memory)
            packed = reorder(layer.weight.to_mkldnn(), *where, list(x.shape))
            return Prepared(lambda: apply(x, packed, layer.bias, *where, "relu", [], ""))

        return quickest(
            [partial(way, each) for each in (torch.contiguous_format, torch.channels_last)]
        )
