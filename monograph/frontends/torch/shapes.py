"""Shapes of what torch's ops give, for ops of which torch knows no shape without data.

A program is captured on tensors without data. torch's CTC loss and least squares have kernels for
data alone, though their shapes follow from those of their arguments; told here, they are captured
like other ops. ``tell_torch`` registers them, unless torch has its own by now.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses import fake_impls


def _ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[Any, Any]:
    """A loss for each target, and alpha: targets are taken to be as long as they may be."""
    time, batch = log_probs.shape[0], log_probs.shape[1] if log_probs.ndim == 3 else 1
    longest = targets.shape[-1]
    if targets.ndim == 1 and not isinstance(target_lengths, torch.Tensor):
        longest = max(target_lengths, default=0)
    alpha = log_probs.new_empty((batch, time, 2 * longest + 1))
    return log_probs.new_empty((batch,)), alpha


def _least_squares(
    a: Any, b: Any, rcond: float | None = None, *, driver: str | None = None
) -> tuple[Any, Any, Any, Any]:
    """The solution, and what the driver tells of the matrix, which is taken to be of full rank."""
    method = driver or "gelsy"
    rows, columns = a.shape[-2:]
    is_vector = b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])
    right = () if is_vector else (b.shape[-1],)
    leading = a.shape[:-2]
    real = a.real if a.is_complex() else a
    told = rows > columns and method != "gelsy"
    residuals = real.new_empty((*leading, *(right or (1,))) if told else (0,))
    rank = a.new_empty(a.shape[:-2] if method != "gels" else (0,), dtype=torch.int64)
    values = (*a.shape[:-2], min(rows, columns)) if method in ("gelsd", "gelss") else (0,)
    return a.new_empty((*leading, columns, *right)), residuals, rank, real.new_empty(values)


SHAPES: dict[Any, Callable[..., Any]] = {
    torch.ops.aten._ctc_loss.default: _ctc_loss,
    torch.ops.aten._ctc_loss.Tensor: _ctc_loss,
    torch.ops.aten.linalg_lstsq.default: _least_squares,
}


def _register_fake(shapes: Callable[..., Any]) -> Callable[..., Any]:
    """A function of shapes as torch's tensors without data call it."""

    def fake(mode: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        with mode:
            return shapes(*args, **kwargs)

    return fake


def tell_torch() -> None:
    """Register the shapes that torch does not know; again it does nothing."""
    for op, shapes in SHAPES.items():
        if op not in fake_impls.op_implementations_dict:
            fake_impls.register_op_impl(op)(_register_fake(shapes))
