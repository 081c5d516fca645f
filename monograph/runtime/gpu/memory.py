"""Memory of a GPU: from torch's caching allocator where torch is in use, else from the driver."""

from __future__ import annotations

import sys
import weakref
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from monograph.dataclass import dataclass
from monograph.ir.types import Array, DType
from monograph.targets.gpu.driver import DeviceInfo, Driver

ALIGNMENT = 256
POINTER_ALIGNMENT = 16
"""Bytes that what kernels read and write begins at a multiple of."""


@dataclass(eq=False)
class Block:
    """Some bytes of a GPU, for as long as somebody holds this."""

    address: int
    nbytes: int
    owner: Any = None
    """What holds the memory: a torch tensor, if it is torch's."""


class Memory(ABC):
    """Where a program's memory on one GPU comes from, and the stream that work is given to."""

    def __init__(self, driver: Driver, device: DeviceInfo) -> None:
        self.driver = driver
        self.device = device

    @abstractmethod
    def allocate(self, nbytes: int) -> Block:
        """Some memory; its content is anything."""

    @property
    @abstractmethod
    def stream(self) -> int:
        """The caller's current stream on this GPU."""

    def upload(self, array: Array) -> Block:
        """A copy of an array, which is there when this returns."""
        given = np.ascontiguousarray(array)
        block = self.allocate(given.nbytes)
        if given.nbytes:
            with self.driver.current(self.device):
                self.driver.upload(block.address, given.ctypes.data, given.nbytes, self.stream)
                self.driver.synchronize(self.stream)
        return block

    def download(self, address: int, dtype: DType, shape: tuple[int, ...]) -> Array:
        """What lies at an address, once all that the stream was given is done."""
        found = np.empty(shape, dtype.numpy)
        if found.nbytes:
            with self.driver.current(self.device):
                self.driver.download(found.ctypes.data, address, found.nbytes, self.stream)
                self.driver.synchronize(self.stream)
        return found


class DriverMemory(Memory):
    """Memory of the driver's, in a process that does not use torch."""

    def allocate(self, nbytes: int) -> Block:
        """Memory that is given back to the driver when nobody holds it any more."""
        with self.driver.current(self.device):
            address = self.driver.allocate(nbytes)
        block = Block(address, nbytes)
        weakref.finalize(block, _free, self.driver, self.device, address)
        return block

    @property
    def stream(self) -> int:
        """The default stream."""
        return 0


def _free(driver: Driver, device: DeviceInfo, address: int) -> None:
    with driver.current(device):
        driver.free(address)


class TorchMemory(Memory):
    """Memory of torch's allocator, on torch's current stream."""

    def __init__(self, driver: Driver, device: DeviceInfo) -> None:
        super().__init__(driver, device)
        import torch

        self.torch: Any = torch
        self.place = torch.device("cuda", device.number)
        with torch.cuda.device(self.place):
            torch.empty(0, device=self.place)  # torch starts CUDA

    def allocate(self, nbytes: int) -> Block:
        """Bytes as a tensor that holds them."""
        held = self.torch.empty(max(nbytes, 1), dtype=self.torch.uint8, device=self.place)
        return Block(held.data_ptr(), nbytes, held)

    def address_of(self, tensor: Any) -> int:
        """Where a tensor lies, to be read there: ``data_ptr`` would copy one that is shared."""
        found: int = self.torch._C._data_address(tensor)
        return found

    @property
    def stream(self) -> int:
        """Torch's current stream on this GPU."""
        found: int = self.torch._C._cuda_getCurrentRawStream(self.device.number)
        return found


def memory_of(driver: Driver, device: DeviceInfo, *, needs_torch: bool) -> Memory:
    """Torch's memory if torch is in use in this process, or needed; else the driver's own."""
    torch = sys.modules.get("torch")
    if needs_torch or (torch is not None and torch.cuda.is_available()):
        return TorchMemory(driver, device)
    return DriverMemory(driver, device)
