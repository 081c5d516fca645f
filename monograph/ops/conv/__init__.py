"""Convolution, its transpose and its gradient by the weight, in one to three dimensions.

The three are the partial derivatives of one trilinear form: with ``y = conv(x, w)`` and a gradient
``g`` of y, ``sum(y * g)`` is linear in x, w and g. Its derivative by g is ``conv(x, w)``, by x
``conv_transpose(g, w)``, by w ``conv_weight_gradient(x, g)``; so each op's gradients are the other
two, and higher derivatives never leave the family. Weights are shared without any rearrangement.
"""

from monograph.ops.conv.convolution import Conv, conv
from monograph.ops.conv.integer import IntegerConv
from monograph.ops.conv.parts import cut_to
from monograph.ops.conv.transpose import ConvTranspose, conv_transpose
from monograph.ops.conv.weight_gradient import ConvWeightGradient

__all__ = [
    "Conv",
    "ConvTranspose",
    "ConvWeightGradient",
    "IntegerConv",
    "conv",
    "conv_transpose",
    "cut_to",
]
