"""Families of ops, by which drawings of a graph choose colours."""

from __future__ import annotations

from monograph.ir.op import Family, Op, Trait

CONTRACTIONS = frozenset(
    (
        "attention",
        "conv",
        "conv_transpose",
        "dot_general",
        "einsum",
        "grouped_product",
        "linear",
        "matmul",
    )
)
"""Ops that multiply and sum: where most of the arithmetic is."""
NORMALIZATIONS = frozenset(
    (
        "batch_norm",
        "group_norm",
        "instance_norm",
        "layer_norm",
        "log_softmax",
        "rms_norm",
        "softmax",
    )
)
"""Ops that visit each row several times: they are drawn as the reductions that they are."""
_NAMES = {
    Family.DATA: "data",
    Family.SHAPE: "shape",
    Family.CONTROL: "control",
    Family.MEMORY: "memory",
}


def family_of(op: Op) -> str:
    """``contraction``, ``reduction``, ``pointwise``, ``shape``, ``data``, ``control``, ``memory``
    or ``other``.
    """
    if op.name in CONTRACTIONS:
        return "contraction"
    if op.name in NORMALIZATIONS or op.has(Trait.REDUCTION):
        return "reduction"
    if op.family in _NAMES:
        return _NAMES[op.family]
    return "pointwise" if op.has(Trait.ELEMENTWISE) else "other"
