"""Keeps the numbers that a function closes over as they are while it is traced.

A tracer computes with tensors of one element when it is sure of them: a counter that the program
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


class HeldNumbers(TorchFunctionMode):
    """While it is on, tensors of one element are remembered; at its end they are put back."""

    def __init__(self) -> None:
        super().__init__()
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
            self._remember(args)
        return func(*args, **(kwargs or {}))

    def __exit__(self, *raised: Any) -> None:
        """Put back what was written."""
        super().__exit__(*raised)  # type: ignore[no-untyped-call]  # torch is not typed
        with torch.no_grad():
            for tensor, before, version in self._held.values():
                if tensor._version != version:
                    tensor.copy_(before)

    def _remember(self, args: Sequence[Any]) -> None:
        for given in args:
            if id(given) in self._held or not _is_number(given):
                continue
            with _disable_current_modes():
                before = given.detach().clone()
            self._held[id(given)] = _Held(given, before, given._version)


def _is_number(given: Any) -> bool:
    """Whether something is a tensor of one element that has data and counts its writes."""
    if type(given) not in (torch.Tensor, torch.nn.Parameter) or given.layout is not torch.strided:
        return False
    if torch._C._functorch.is_functorch_wrapped_tensor(given) or given.is_inference():
        return False
    return bool(given.numel() == 1)
