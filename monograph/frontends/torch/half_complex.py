"""torch's complex32, which NumPy does not have: a c64 whose parts are rounded to f16.

A tensor of that dtype comes in as c64. Whatever torch records as complex32 is computed in c64, and
its parts are rounded as soon as it is computed, as torch's own kernels do; where the program
returns it, it is complex32 again. Only what looks at the bytes cannot be had so, and is refused.
"""

from __future__ import annotations

from typing import Any

import torch

from monograph import functional as F
from monograph.frontends.torch import custom_ops
from monograph.ir.build import cast_to
from monograph.ir.graph import Value
from monograph.ir.types import f16, f32

BITCASTS = frozenset({"aten.view.dtype", "aten.view_copy.dtype"})


def is_half_complex(node: Any) -> bool:
    """Whether torch has recorded a complex32 tensor for a node."""
    recorded = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return isinstance(recorded, torch.Tensor) and recorded.dtype is torch.complex32


def round_parts(value: Value) -> Value:
    """A c64 value with its parts rounded to f16."""
    parts = (cast_to(cast_to(part, f16), f32) for part in (F.real(value), F.imag(value)))
    return F.complex(*parts)


def refusal(node: Any) -> str | None:
    """Why a call cannot have complex32 among its operands and results; None if it can."""
    target = node.target
    if str(target) not in BITCASTS and not custom_ops.is_custom(target):
        return None
    if not any(map(is_half_complex, (node, *node.all_input_nodes))):
        return None
    return "torch.complex32 is carried in wider numbers here, and this op looks at its bytes"
