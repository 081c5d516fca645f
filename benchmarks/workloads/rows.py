"""Rows and sums: softmax, norms, losses, and reductions along either axis."""

from __future__ import annotations

from typing import Any

from benchmarks.spelling import Spelling
from benchmarks.workloads.case import workload
from benchmarks.workloads.makers import ROWS, SIDE, in_halves, labelled, normal, normed, uniform


@workload(
    "rows",
    {
        **{f"softmax-{rows}x{columns}": normal(rows, columns) for rows, columns in ROWS},
        "softmax-1009x4093": normal(1009, 4093),
        "softmax-64x64": normal(64, 64),
        **in_halves("softmax-4096x4096", normal, SIDE, SIDE),
    },
    telling=("softmax-4096x4096",),
)
def softmax(xp: Spelling, x: Any) -> Any:
    """Softmax of each row."""
    return xp.softmax(x)


@workload(
    "rows", {f"log-softmax-{rows}x{columns}": normal(rows, columns) for rows, columns in ROWS}
)
def log_softmax(xp: Spelling, x: Any) -> Any:
    """The logarithm of softmax of each row."""
    return xp.log_softmax(x)


@workload(
    "rows",
    {
        "add-layer-norm-2048x1024": normed(2048, 1024),
        "add-layer-norm-4096x4096": normed(SIDE, SIDE),
        "add-layer-norm-1009x1009": normed(1009, 1009),
        "add-layer-norm-64x64": normed(64, 64),
        **in_halves("add-layer-norm-4096x4096", normed, SIDE, SIDE),
    },
    telling=("add-layer-norm-2048x1024",),
)
def add_layer_norm(xp: Spelling, x: Any, residual: Any, scale: Any, shift: Any) -> Any:
    """A residual added, then layer norm."""
    return xp.layer_norm(x + residual, scale, shift)


@workload(
    "rows",
    {"rms-norm-2048x4096": normed(2048, 4096, arrays=1, constants=1)},
    telling=("rms-norm-2048x4096",),
)
def rms_norm(xp: Spelling, x: Any, scale: Any) -> Any:
    """RMS norm alone."""
    return xp.rms_norm(x, scale)


@workload("rows", {"add-rms-norm-2048x4096": normed(2048, 4096, constants=1)})
def add_rms_norm(xp: Spelling, x: Any, residual: Any, scale: Any) -> Any:
    """A residual added, then RMS norm; the sum is kept for the next residual."""
    added = x + residual
    return xp.rms_norm(added, scale), added


@workload("rows", {"add-group-norm-8x320x64x64": normed(8, 320, 64, 64, axis=1)})
def add_group_norm(xp: Spelling, x: Any, residual: Any, scale: Any, shift: Any) -> Any:
    """A residual added, then group norm in 32 groups."""
    return xp.group_norm(x + residual, 32, scale, shift)


@workload("rows", {"cross-entropy-512x32000": labelled(512, 32000)})
def cross_entropy(xp: Spelling, logits: Any, labels: Any) -> Any:
    """The mean loss over a vocabulary of 32,000."""
    return xp.cross_entropy(logits, labels)


@workload("rows", {"argmax-4096x4096": normal(SIDE, SIDE), "argmax-512x32000": normal(512, 32000)})
def argmax(xp: Spelling, x: Any) -> Any:
    """The position of each row's largest element."""
    return xp.argmax(x)


@workload(
    "sums",
    {
        "sum-4096x4096": uniform(SIDE, SIDE),
        "sum-64": uniform(64),
    },
    telling=("sum-4096x4096",),
)
def full_sum(xp: Spelling, x: Any) -> Any:
    """The sum of everything."""
    return xp.sum(x)


@workload(
    "sums",
    {
        "mean-4096x4096": uniform(SIDE, SIDE),
        **in_halves("mean-4096x4096", uniform, SIDE, SIDE),
    },
)
def full_mean(xp: Spelling, x: Any) -> Any:
    """The mean of everything."""
    return xp.mean(x)


@workload(
    "sums",
    {"column-sum-4096x4096": uniform(SIDE, SIDE), "column-sum-4093x1009": uniform(4093, 1009)},
)
def column_sum(xp: Spelling, x: Any) -> Any:
    """The sum of each column."""
    return xp.sum(x, 0)
