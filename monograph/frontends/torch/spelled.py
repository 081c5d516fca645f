"""Functions in which torch looks at values to decide what to do, spelled with ops that do not.

A program is captured without values. ``torch.cov`` compares a sum of weights with zero on the way,
and cannot be captured as it stands; the same formula without the question can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


def _cov(
    x: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None
) -> torch.Tensor:
    """The covariances of the rows of a matrix, each column counted as often as its weights say."""
    rows = x if x.ndim > 1 else x.reshape(1, -1)
    weights = fweights
    if aweights is not None:
        weights = aweights if fweights is None else fweights * aweights
    if weights is None:
        total: Any = rows.shape[1]
        centred = rows - rows.mean(1, keepdim=True)
        weighted = centred
        norm: Any = max(total - correction, 0) if isinstance(total, int) else total - correction
    else:
        total = weights.sum()
        centred = rows - ((rows * weights).sum(1, keepdim=True) / total)
        weighted = centred * weights
        norm = total - correction
        if aweights is not None and correction != 0:
            norm = total - correction * (weights * aweights).sum() / total
        norm = norm.clamp(min=0)
    products: torch.Tensor = weighted @ centred.mT.conj()
    divided: torch.Tensor = products / norm
    return divided.squeeze()


def _corrcoef(x: Any) -> torch.Tensor:
    """The covariances over the deviations of both rows."""
    shared = _cov(x)
    if shared.ndim == 0:
        return shared / shared
    deviation = shared.diagonal().sqrt().real if x.is_complex() else shared.diagonal().sqrt()
    found = shared / deviation.unsqueeze(1) / deviation.unsqueeze(0)
    if not x.is_complex():
        return found.clamp(-1, 1)
    return torch.complex(found.real.clamp(-1, 1), found.imag.clamp(-1, 1))


_SPELLED: dict[Any, Callable[..., Any]] = {
    torch.cov: _cov,
    torch.Tensor.cov: _cov,
    torch.corrcoef: _corrcoef,
    torch.Tensor.corrcoef: _corrcoef,
}


class SpelledOut(TorchFunctionMode):
    """While it is on, functions that look at values are computed by others that do not."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call what stands for a function, or the function itself."""
        return _SPELLED.get(func, func)(*args, **(kwargs or {}))
