"""The kernel families, in the order in which they are asked."""

from __future__ import annotations

from monograph.targets.cpu.convolutions.depthwise_loops import plan_depthwise, plan_planes
from monograph.targets.cpu.convolutions.patches import plan_patches
from monograph.targets.cpu.convolutions.windows import plan_windows
from monograph.targets.cpu.convolutions.winograd import plan_winograd
from monograph.targets.cpu.plans.loops import plan_loops, plan_split_reduction, plan_transposed
from monograph.targets.cpu.plans.plan import Family
from monograph.targets.cpu.products.contract import plan_product
from monograph.targets.cpu.products.matrix_tiles import plan_matrix_tiles
from monograph.targets.cpu.products.scaled_groups import plan_scaled_groups

GROUP_FAMILIES = (
    Family("patches", plan_patches, "patch_convolutions"),
    Family("windows", plan_windows, "window_convolutions"),
    Family("depthwise planes", plan_planes, "depthwise_convolutions"),
    Family("winograd", plan_winograd, "winograd"),
)
"""Those that look at a group's nodes and layouts; a group that all refuse is lowered to kernels."""

KERNEL_FAMILIES = (
    Family("depthwise", plan_depthwise, "depthwise_convolutions"),
    Family("scaled groups", plan_scaled_groups, "tiled_products"),
    Family("matrix tiles", plan_matrix_tiles, "matrix_tiles"),
    Family("product", plan_product, "tiled_products"),
    Family("transposed operand", plan_transposed, "transposed_operands"),
    Family("split reduction", plan_split_reduction, "split_reductions"),
    Family("loops", plan_loops),
)
"""Those that look at a kernel's formulas; the last one computes any."""
