"""Some of torch's functions, computed as they are defined.

Torch's own kernels take means of squares, which overflow or cancel; multiply a neighbour by a
weight of zero, which makes NaN of an infinity; lose the NaN of a score where an attention has fewer
keys than a vector lanes; and accumulate in wider numbers than they take. With these in the
reference and torch's own in eager, either is right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

_HALVES = (torch.float16, torch.bfloat16)


class Definitions(TorchFunctionMode):  # type: ignore[misc]
    """While it is entered, these functions are their definitions."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        definition = _DEFINITIONS.get(func)
        options = kwargs or {}
        if definition is None or not _is_real(args):
            return func(*args, **options)
        narrow = args[0].dtype
        x = args[0].float() if narrow in _HALVES else args[0]
        given = [_as(x, each) for each in args[1:]]
        named = {name: _as(x, each) for name, each in options.items()}
        return definition(x, *given, **named).to(narrow)


def _is_real(args: Sequence[Any]) -> bool:
    first = args[0] if args else None
    return isinstance(first, Tensor) and first.is_floating_point()


def _as(x: Tensor, value: Any) -> Any:
    is_number = isinstance(value, Tensor) and value.dtype is not torch.bool
    return value.to(x.dtype) if is_number else value


def _variance(
    x: Tensor,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    axes = tuple(range(x.dim())) if dim is None else dim
    lost = float(unbiased) if correction is None else correction
    squares = (x - x.mean(axes, keepdim=True)).square().sum(axes, keepdim=keepdim)
    count = x.numel() / max(squares.numel(), 1)
    return squares / max(count - lost, 0.0) if count > lost else squares * torch.nan


def _deviation(x: Tensor, *rest: Any, **options: Any) -> Tensor:
    return _variance(x, *rest, **options).sqrt()


def _normalized(x: Tensor, axes: Sequence[int], eps: float) -> Tensor:
    centred = x - x.mean(axes, keepdim=True)
    return centred / (centred.square().mean(axes, keepdim=True) + eps).sqrt()


def _layer_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    result = _normalized(x, tuple(range(-len(normalized_shape), 0)), eps)
    result = result if weight is None else result * weight
    return result if bias is None else result + bias


def _group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    if not x.numel():
        return functional.group_norm(x, num_groups, weight, bias, eps)
    grouped = x.reshape(x.shape[0], num_groups, -1)
    result = _normalized(grouped, (-1,), eps).reshape(x.shape)
    by_channel = (-1, *(1 for _ in x.shape[2:]))
    result = result if weight is None else result * weight.view(by_channel)
    return result if bias is None else result + bias.view(by_channel)


def _interpolate(x: Tensor, *rest: Any, **options: Any) -> Tensor:
    """What has no weight is not there: not even where the same element has all of it."""
    plain = functional.interpolate(x, *rest, **options)
    if bool(x.isfinite().all()):
        return plain
    clean = functional.interpolate(x.nan_to_num(0.0, 0.0, 0.0), *rest, **options)
    masks = (~x.isfinite(), x == torch.inf, x == -torch.inf, x.isnan())
    weights = [functional.interpolate(mask.to(x.dtype), *rest, **options) for mask in masks]
    if "cubic" in str(options.get("mode", "")):  # weights below zero
        return torch.where(weights[0] == 0, clean, plain)
    above, below, nan = (weight > 0 for weight in weights[1:])
    found = clean.masked_fill(above, torch.inf).masked_fill(below, -torch.inf)
    return found.masked_fill(nan | (above & below), torch.nan)


def masked_attention(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    """What a mask hides is not there; torch adds −∞ to it, which leaves NaN what it is."""
    mask = options.pop("attn_mask", None)
    if options.pop("is_causal", False):
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
    plain = mask is None or mask.dtype is not torch.bool or q.numel() * k.shape[-2] > 10**7
    if plain or all(bool(each.isfinite().all()) for each in (q, k, v)):
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)
    scores = (q @ k.mT) * options.get("scale", q.shape[-1] ** -0.5)
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    terms = weights.unsqueeze(-1) * v.unsqueeze(-3)
    return torch.where(mask.unsqueeze(-1), terms, 0.0).sum(-2)


def _attention(x: Tensor, *rest: Any, **options: Any) -> Tensor:
    """Products and a softmax, one after the other, of what no mask hides."""
    with sdpa_kernel(SDPBackend.MATH):
        return masked_attention(x, *rest, **options)


_DEFINITIONS: dict[Any, Callable[..., Tensor]] = {
    torch.var: _variance,
    Tensor.var: _variance,
    torch.std: _deviation,
    Tensor.std: _deviation,
    functional.layer_norm: _layer_norm,
    functional.group_norm: _group_norm,
    functional.interpolate: _interpolate,
    functional.scaled_dot_product_attention: _attention,
}
