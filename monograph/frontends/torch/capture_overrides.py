"""Functions of torch that branch on values, replaced while capturing by ops that do not.

A program is captured without values. ``torch.cov`` compares a sum of weights with zero on the way,
and cannot be captured as it stands; the same formula without the question can.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
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


def _gaussian_nll_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    var: torch.Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> torch.Tensor:
    """The formula, with the variances checked when the program runs."""
    if isinstance(var, float):
        return F.gaussian_nll_loss(input, target, var, full=full, eps=eps, reduction=reduction)
    torch._assert_async(torch.logical_not(torch.any(var < 0)), "var has negative entry/entries")
    if var.shape != input.shape and var.shape == input.shape[:-1]:
        var = var.unsqueeze(-1)
    differing = [b for a, b in zip(input.shape, var.shape, strict=False) if a != b]
    if var.ndim != input.ndim or differing not in ([], [1]):
        raise ValueError("var is of incorrect size")
    clamped = var + (var.clamp(min=eps) - var).detach()  # the gradient does not see the limit
    loss = 0.5 * (torch.log(clamped) + (input - target) ** 2 / clamped)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return _reduce_loss(loss, reduction)


def _tensor_split(input: Any, indices_or_sections: Any, dim: int = 0) -> Any:
    """Parts between places that a tensor names: each has the indices that lie in it."""
    places = indices_or_sections
    if not isinstance(places, torch.Tensor):
        return torch.tensor_split(input, places, dim)
    if places.ndim == 0:
        return torch.tensor_split(input, int(places.item()), dim)
    size = input.shape[dim]
    known = torch.where(places < 0, places + size, places).clamp(0, size)
    every = torch.arange(size)
    edges = [every.new_zeros(()), *known.unbind(), every.new_full((), size)]
    parts = []
    for start, end in itertools.pairwise(edges):
        inside = torch.logical_and(every >= start, every < end)
        parts.append(input.index_select(dim, inside.nonzero().squeeze(1)))
    return tuple(parts)


def _combinations(input: Any, r: int = 2, with_replacement: bool = False) -> torch.Tensor:
    """Elements at places that are written out: torch finds them by a mask, as many as are set."""
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    if r == 0 or not isinstance(input.shape[0], int):
        return torch.combinations(input, r, with_replacement)
    places = list(choose(range(input.shape[0]), r))
    chosen: torch.Tensor = input[torch.tensor(places, dtype=torch.int64).reshape(-1, r)]
    return chosen


def _unfold(x: Any, dimension: int, size: int, step: int) -> torch.Tensor:
    """Windows of those elements alone that lie in one, where others are known to be left over.

    Where windows are written, torch's functionalization gives what lies in none of them 0.
    """
    unfold = torch.Tensor.unfold
    length = x.shape[dimension] if x.ndim else 1
    if not isinstance(length, int) or step <= 0 or not 0 < size <= length:
        return unfold(x, dimension, size, step)
    count = (length - size) // step + 1
    if step <= size and (count - 1) * step + size < length:
        return unfold(x.narrow(dimension, 0, (count - 1) * step + size), dimension, size, step)
    if step > size and count * step <= length:
        return unfold(x.narrow(dimension, 0, count * step), dimension, step, step)[..., :size]
    return unfold(x, dimension, size, step)


def _reduce_loss(loss: torch.Tensor, reduction: str) -> torch.Tensor:
    if reduction == "none":
        return loss
    return loss.mean() if reduction == "mean" else loss.sum()


def _with_lengths_as_tensors(loss: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A CTC loss that writes no list of lengths into a tensor that has no data."""

    def ctc_loss(
        log_probs: Any,
        targets: Any,
        input_lengths: Any,
        target_lengths: Any,
        *args: Any,
        **named: Any,
    ) -> torch.Tensor:
        inputs, labels = map(torch.as_tensor, (input_lengths, target_lengths))
        return loss(log_probs, targets, inputs, labels, *args, **named)

    return ctc_loss


_SPELLED: dict[Any, Callable[..., Any]] = {
    torch.cov: _cov,
    torch.Tensor.cov: _cov,
    torch.corrcoef: _corrcoef,
    F.gaussian_nll_loss: _gaussian_nll_loss,
    F.ctc_loss: _with_lengths_as_tensors(F.ctc_loss),
    torch.ctc_loss: _with_lengths_as_tensors(torch.ctc_loss),
    torch.Tensor.corrcoef: _corrcoef,
    torch.combinations: _combinations,
    torch.tensor_split: _tensor_split,
    torch.Tensor.tensor_split: _tensor_split,
    torch.Tensor.unfold: _unfold,
    # The same memory without a gradient: torch.export loses sight of what `data` returns.
    torch.Tensor.data.__get__: torch.Tensor.detach,  # type: ignore[attr-defined]  # a descriptor
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
