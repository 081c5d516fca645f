"""The limits that fusion asks a target for (``Target.fusion_limits``).

They say where a round trip through memory, another launch or an idle thread costs more than a
larger kernel. The defaults are those of processors with a few cores.
"""

from __future__ import annotations

from monograph.dataclass import dataclass


@dataclass(frozen=True)
class FusionLimits:
    """From which sizes on nodes share a kernel, and up to which."""

    min_parallel_rows: int = 16
    """Fewer rows than this keep too few threads busy to be worth one visit each."""
    min_split_row_elements: int = 1 << 15
    """Elements from which a row is worth splitting among threads."""
    min_shared_bytes: int = 1 << 16
    """Bytes from which reading a value once instead of twice is worth a larger kernel."""
    max_sibling_nodes: int = 40
    """Nodes up to which kernels are joined for what they read in common."""
    max_kernel_work: int = 96
    """How large a kernel may grow, in pairs of instructions and at least one a node: by then its
    arithmetic outweighs a round trip."""
    max_recomputed_instructions: int = 4
    """Instructions an element up to which computing again beats a round trip through memory."""
