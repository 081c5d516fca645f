"""The mutable state of a compiled module: buffers that its calls update.

What is compiled is a snapshot of the module, its state included: calls change the copy and leave
the module's buffers alone, and what becomes of those does not show in calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import torch


def own_state(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copies of tensors; those that share memory share it in the copy too."""
    sharing = Counter(map(_storage, tensors.values()))
    storages: dict[int, torch.UntypedStorage] = {}
    copies = {}
    for name, tensor in tensors.items():
        given = tensor.detach()
        if sharing[_storage(given)] == 1:
            copies[name] = given.clone()
            continue
        if _storage(given) not in storages:
            whole = torch.empty(0, dtype=torch.uint8, device=given.device)
            whole = whole.set_(given.untyped_storage())
            storages[_storage(given)] = whole.clone().untyped_storage()
        copies[name] = torch.empty(0, dtype=given.dtype, device=given.device).set_(
            storages[_storage(given)], given.storage_offset(), given.shape, given.stride()
        )
    return copies


def _storage(tensor: torch.Tensor) -> int:
    """Which memory a tensor is a view of."""
    return int(tensor.untyped_storage()._cdata)
