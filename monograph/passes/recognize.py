"""Recognition: find the composites that were spelled out in primitives."""

from __future__ import annotations

from monograph.dataclass import dataclass
from monograph.passes.base import RewritePass
from monograph.rewrite.rule import Rule
from monograph.rewrite.rules import (
    activations,
    attentions,
    convolutions,
    linears,
    norms,
    quantized,
    requantize,
    softmaxes,
)

RULES: tuple[Rule, ...] = (
    *activations.RULES,
    *softmaxes.RULES,
    *norms.RULES,
    *attentions.RULES,
    *linears.RULES,
    *convolutions.RULES,
    *quantized.RULES,
    *requantize.RULES,
)


@dataclass(frozen=True)
class Recognize(RewritePass):
    """Replace spelled-out composites by the ops that kernels and libraries are made for.

        %a = power(%x, %three)
        %b = multiply(%a, %cubic)
        %c = add(%x, %b)
        %d = multiply(%c, %root)
        %e = tanh(%d)                      ──▶      %h = gelu(%x) {approximate = "tanh"}
        %f = add(%e, %one)
        %g = multiply(%x, %half)
        %h = multiply(%g, %f)

    Finds gelu, sigmoid, silu, softplus, mish, relu and their relatives, softmax, log_softmax,
    logsumexp, layer_norm, rms_norm, attention, linear, padding of convolutions and products of
    quantized numbers, in any order of operands and in the usual spellings. The results agree within
    rounding, and each rule says where they are better; a graph that is to be differentiated is
    better differentiated first, since a composite may choose another slope at a kink. Constants are
    looked for as constants: fold them before.
    """

    name = "recognize"

    def rules(self) -> tuple[Rule, ...]:
        """The patterns of every composite."""
        return RULES
