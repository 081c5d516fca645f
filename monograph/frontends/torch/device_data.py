"""Lazy weights on a GPU: copied to the host only when something reads them there.

A program for that GPU reads them where they lie, and is a snapshot all the same: torch has storage
that is copied when it is written to. A lazy clone has the same memory; who writes to either tensor,
or asks for a pointer to write by, gets memory of its own first. So weights are in memory once for
as long as nobody trains the module.
"""

from __future__ import annotations

import torch

from monograph.frontends.torch.types import array_from_torch, dtype_from_torch
from monograph.ir.data import ArrayData, Data
from monograph.ir.types import Array


class DeviceData(Data):
    """The contents of a torch tensor that is not on the host."""

    def __init__(self, tensor: torch.Tensor, *, private: bool = False) -> None:
        self.tensor = tensor.detach().resolve_conj().resolve_neg()
        self.dtype = dtype_from_torch(tensor.dtype)
        self.shape = tuple(tensor.shape)
        self._is_private = private
        self._array: Array | None = None

    @property
    def device_tensor(self) -> torch.Tensor:
        """The tensor itself."""
        return self.tensor

    def array(self) -> Array:
        """A copy on the host, which is kept until ``unload``."""
        if self._array is None:
            self._array = ArrayData(array_from_torch(self.tensor), self.dtype).array()
        return self._array

    @property
    def is_private(self) -> bool:
        """Whether writing to the tensor that it was made of does not show here."""
        return self._is_private

    def snapshot(self) -> Data:
        """The contents as they are now, copied when somebody writes to them."""
        return self if self._is_private else DeviceData(_share(self.tensor), private=True)

    def reread(self) -> Data:
        """The contents as they are now: nothing is remembered of them."""
        return self if self._is_private else DeviceData(self.tensor)

    def unload(self) -> None:
        """Let go of the copy on the host."""
        self._array = None

    def __repr__(self) -> str:
        return f"DeviceData({self.type})"


def is_on_device(tensor: torch.Tensor) -> bool:
    """Whether a weight lies on a GPU, in a form that a program can read there."""
    is_plain = tensor.layout is torch.strided and not tensor.is_quantized and not tensor.is_nested
    return tensor.is_cuda and is_plain and tensor.dtype is not torch.complex32


def _share(tensor: torch.Tensor) -> torch.Tensor:
    """The same contents in the same memory, whoever writes to the tensor later.

    A copy, where the tensor is a view of a part of its memory (all of it would be held), or
    torch cannot share that memory, since it is another process's or another library's.
    """
    if tensor.nbytes != tensor.untyped_storage().nbytes():
        return tensor.clone()
    try:
        return torch._lazy_clone(tensor)
    except (AttributeError, RuntimeError):  # an older torch; memory that is not torch's own
        return tensor.clone()
