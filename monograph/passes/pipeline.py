"""The pipelines, as ordered lists: what each optimisation level runs.

====  ====================================================================================
O0    nothing: the graph as the frontend made it
O1    cheap and exact: fold constants, merge and remove nodes
O2    O1, with algebra, folded batch norms, recognised composites, known masks and joined layers;
      the default
O3    O2, with rules that treat floats as real numbers (``fast_math``)
====  ====================================================================================

A level that a program was tested at gives the same results as O0 up to rounding, O3 excepted.
"""

from __future__ import annotations

from collections.abc import Mapping

from monograph.errors import InputError
from monograph.passes.canonicalize import Canonicalize
from monograph.passes.cse import CommonSubexpressionElimination
from monograph.passes.dce import DeadCodeElimination
from monograph.passes.fold_attention_masks import FoldAttentionMasks
from monograph.passes.fold_constants import FoldConstants
from monograph.passes.fold_conv_bn import FoldConvBatchNorm
from monograph.passes.horizontal import HorizontalFusion
from monograph.passes.manager import FixedPoint, Pipeline
from monograph.passes.recognize import Recognize
from monograph.passes.resize_after_conv import ResizeAfterConv
from monograph.passes.simplify import Simplify
from monograph.passes.slice_gathered_products import SliceGatheredProducts

O0: Pipeline = ()

O1: Pipeline = (
    DeadCodeElimination(),
    FixedPoint(
        (
            FoldConstants(),
            CommonSubexpressionElimination(),
            DeadCodeElimination(),
        )
    ),
)


def _thorough(simplify: Simplify) -> Pipeline:
    """Everything, with these algebraic rules."""
    return (
        DeadCodeElimination(),
        FixedPoint(
            (
                Canonicalize(),
                FoldConstants(),
                simplify,
                CommonSubexpressionElimination(),
                DeadCodeElimination(),
            )
        ),
        SliceGatheredProducts(),
        FixedPoint(
            (
                Recognize(),
                FoldConvBatchNorm(),
                Canonicalize(),
                FoldConstants(),
                simplify,
                CommonSubexpressionElimination(),
                DeadCodeElimination(),
            )
        ),
        FoldAttentionMasks(),
        ResizeAfterConv(),
        HorizontalFusion(),
        FoldConstants(),
        DeadCodeElimination(),
    )


O2: Pipeline = _thorough(Simplify())
O3: Pipeline = _thorough(Simplify(fast_math=True))

LEVELS: Mapping[str, Pipeline] = {"O0": O0, "O1": O1, "O2": O2, "O3": O3}


def pipeline_for(level: str) -> Pipeline:
    """The pipeline of a level; an unknown one is an error that lists them."""
    if level not in tuple(LEVELS):  # which asks for no hash: anything may come from a caller
        raise InputError(
            f"{level!r} is not an optimisation level", expected=", ".join(LEVELS), found=repr(level)
        )
    return LEVELS[level]
