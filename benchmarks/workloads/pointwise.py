"""Element by element: chains, GELU, views, and what a call costs."""

from __future__ import annotations

from typing import Any

from benchmarks.spelling import Spelling
from benchmarks.workloads.case import workload
from benchmarks.workloads.makers import SIDE, in_halves, normal, strided, transposed


@workload(
    "pointwise",
    {
        "chain4-4096x4096": normal(SIDE, SIDE),
        "chain4-4093x4093": normal(4093, 4093),
        "chain4-1009x1009": normal(1009, 1009),
        "chain4-64x64": normal(64, 64),
        "chain4-64": normal(64),
        **in_halves("chain4-4096x4096", normal, SIDE, SIDE),
    },
    telling=("chain4-4096x4096", "chain4-64x64"),
)
def four_op_chain(xp: Spelling, x: Any) -> Any:
    """sigmoid(2 relu(x) + 1), one op after another."""
    return xp.sigmoid(xp.relu(x) * 2.0 + 1.0)


@workload("pointwise", {"chain5-4096x4096": normal(SIDE, SIDE)})
def five_op_chain(xp: Spelling, x: Any) -> Any:
    """sigmoid(relu(2x + 1) / 2), one op after another."""
    return xp.sigmoid(xp.relu(x * 2.0 + 1.0) * 0.5)


@workload(
    "pointwise",
    {
        "gelu-tanh-1024x1024": normal(1024, 1024),
        "gelu-tanh-4096x4096": normal(SIDE, SIDE),
        **in_halves("gelu-tanh-4096x4096", normal, SIDE, SIDE),
    },
    telling=("gelu-tanh-1024x1024",),
)
def gelu_tanh(xp: Spelling, x: Any) -> Any:
    """GELU by its approximation with tanh, as one op of the framework."""
    return xp.gelu(x, tanh=True)


@workload(
    "pointwise",
    {"gelu-erf-1024x1024": normal(1024, 1024), "gelu-erf-4096x4096": normal(SIDE, SIDE)},
)
def gelu_erf(xp: Spelling, x: Any) -> Any:
    """GELU as it is defined, as one op of the framework."""
    return xp.gelu(x, tanh=False)


@workload("pointwise", {"gelu-spelt-4096x4096": normal(SIDE, SIDE)})
def gelu_spelt(xp: Spelling, x: Any) -> Any:
    """GELU by its approximation with tanh, written out."""
    return 0.5 * x * (1.0 + xp.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


@workload("pointwise", {"tiny-call-16": normal(16)}, telling=("tiny-call-16",))
def tiny(xp: Spelling, x: Any) -> Any:
    """Two ops on next to nothing: what a call costs."""
    return xp.relu(x * 2.0)


@workload(
    "layout",
    {"transpose-inside-4096x4096": normal(SIDE, SIDE, count=2)},
    telling=("transpose-inside-4096x4096",),
)
def transpose_inside(xp: Spelling, x: Any, y: Any) -> Any:
    """A transpose in the program, between pointwise ops."""
    return xp.relu(x.T * 2.0 + y)


@workload("layout", {"transposed-argument-4096x4096": transposed(SIDE, SIDE)})
def transposed_argument(xp: Spelling, x: Any, y: Any) -> Any:
    """Pointwise ops on an argument that is a transposed view."""
    return xp.relu(x * 2.0 + y)


@workload("layout", {"stride-inside-4096x8192": normal(SIDE, 2 * SIDE)})
def stride_inside(xp: Spelling, x: Any) -> Any:
    """Every other column, taken in the program."""
    return xp.relu(x[:, ::2] * 2.0 + 1.0)


@workload("layout", {"strided-argument-4096x4096": strided(SIDE, SIDE)})
def strided_argument(xp: Spelling, x: Any) -> Any:
    """Pointwise ops on an argument that is a strided view."""
    return xp.relu(x * 2.0 + 1.0)
