"""The key-value caches of transformers, flattened and rebuilt as torch's pytrees are.

``torch.export`` takes and returns tensors in structures that it knows. A cache is an object of
layers, which are objects that hold tensors among numbers and flags. It is taken apart by what its
objects hold, whatever their classes are: tensors are leaves, all else is part of the structure, so
that a call with a cache of another kind or state is another structure, and refused.

A compiled model returns a new cache; the one that it is given stays as it was.
"""

from __future__ import annotations

import sys
from copy import copy
from typing import Any

import torch
from torch.utils import _pytree as pytree

from monograph.dataclass import dataclass

_MODULE = "transformers.cache_utils"
_BASES = ("Cache", "CacheLayerMixin", "LinearAttentionCacheLayerMixin")


@dataclass(frozen=True)
class _Skeleton:
    """An object without its tensors: its class, their names, and all else that it holds."""

    kind: type
    tensors: tuple[str, ...]
    other: tuple[tuple[str, Any], ...]


def know_caches() -> None:
    """Let torch's pytrees take apart the caches of transformers, if somebody has imported it."""
    module = sys.modules.get(_MODULE)
    if module is None:
        return
    bases = tuple(getattr(module, name) for name in _BASES if hasattr(module, name))
    for kind in vars(module).values():
        if (
            isinstance(kind, type)
            and issubclass(kind, bases)
            and kind not in pytree.SUPPORTED_NODES
        ):
            pytree.register_pytree_node(
                kind,
                _take_apart,
                _put_together,
                serialized_type_name=f"{_MODULE}.{kind.__name__}",
                flatten_with_keys_fn=_take_apart_with_keys,
            )


def _take_apart(whole: Any) -> tuple[list[Any], _Skeleton]:
    held = dict(vars(whole))
    names = tuple(name for name, value in held.items() if _has_tensors(value))
    other = tuple((name, copy(value)) for name, value in held.items() if name not in names)
    return [held[name] for name in names], _Skeleton(type(whole), names, other)


def _take_apart_with_keys(whole: Any) -> tuple[list[Any], _Skeleton]:
    parts, skeleton = _take_apart(whole)
    keys = [pytree.GetAttrKey(name) for name in skeleton.tensors]
    return list(zip(keys, parts, strict=True)), skeleton


def _has_tensors(value: Any) -> bool:
    """Whether a value is or holds something to take apart: a tensor, or layers."""
    if isinstance(value, torch.Tensor):
        return True
    if isinstance(value, list | tuple | dict):
        return any(map(_has_tensors, value.values() if isinstance(value, dict) else value))
    return type(value) in pytree.SUPPORTED_NODES and type(value).__module__ == _MODULE


def _put_together(parts: Any, skeleton: _Skeleton) -> Any:
    whole: Any = object.__new__(skeleton.kind)
    vars(whole).update((name, copy(value)) for name, value in skeleton.other)
    vars(whole).update(zip(skeleton.tensors, parts, strict=True))
    return whole
