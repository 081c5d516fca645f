"""Keeps the tensors that a function closes over unchanged while it is traced.

A tracer computes with tensors that have data when it is sure of them: a counter that the program
increments (a batch norm's number of batches) would be incremented by the trace itself too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes


class _Held(NamedTuple):
    """A tensor, what it was, and how often it had been written."""

    tensor: torch.Tensor
    before: torch.Tensor
    version: int


class HeldTensors(TorchFunctionMode):
    """While it is on, what calls may write is remembered; at its end it is put back.

    Those are tensors of one element, and larger ones that a call names as its target. ``later``
    leaves it to ``put_back``, where the end is still a part of what is traced.
    """

    def __init__(self, *, later: bool = False) -> None:
        super().__init__()
        self._later = later
        self._held: dict[int, _Held] = {}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Remember what a call may write, and make the call."""
        if not torch.compiler.is_dynamo_compiling():
            target = args[0] if args and _writes(func) else None
            self._remember([x for x in args if _has_data(x) and (x is target or x.numel() == 1)])
        return func(*args, **(kwargs or {}))

    def __exit__(self, *raised: Any) -> None:
        """Put back what was written."""
        super().__exit__(*raised)  # type: ignore[no-untyped-call]  # torch is not typed
        if not self._later:
            self.put_back()

    def put_back(self) -> None:
        """Let the tensors that were written be as they were."""
        with torch.no_grad():
            for tensor, before, version in self._held.values():
                if tensor._version != version:
                    tensor.copy_(before)

    def _remember(self, tensors: Sequence[torch.Tensor]) -> None:
        for given in tensors:
            if id(given) in self._held:
                continue
            with _disable_current_modes():
                before = given.detach().clone()
            self._held[id(given)] = _Held(given, before, given._version)


def _writes(func: Any) -> bool:
    """Whether a call names its first argument as its target: ``add_``, ``+=``, ``x[i] = y``."""
    name = getattr(func, "__name__", "")
    if name.startswith("__"):
        return name == "__setitem__" or name.startswith("__i")
    return bool(name.endswith("_"))


def _has_data(given: Any) -> bool:
    """Whether something is a tensor that has data and counts its writes."""
    if type(given) not in (torch.Tensor, torch.nn.Parameter) or given.layout is not torch.strided:
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(given) and not given.is_inference()
