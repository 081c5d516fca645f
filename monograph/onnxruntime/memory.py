"""Devices and their memory, as ONNX Runtime names them: there is the processor's here.

A program may describe any memory and register allocators for it; the allocators are accepted
without an effect, since the memory of a call is planned when its program is compiled.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from enum import IntEnum
from functools import partial
from operator import index
from typing import Any

from monograph.onnxruntime.options import OptionWarning, PrintedMember

CPU = "cpu"
_DEVICES = {CPU: 0, "cuda": 1, "gpu": 1, "dml": 1, "fpga": 2, "npu": 3, "cann": 3, "webgpu": 1}


class OrtDeviceVendorId(IntEnum):
    """Who makes a device: the numbers that PCI gives them."""

    NONE = 0
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086


_VENDORS = {
    "cuda": OrtDeviceVendorId.NVIDIA,
    "dml": OrtDeviceVendorId.MICROSOFT,
    "cann": OrtDeviceVendorId.HUAWEI,
}
"""Of the devices that one maker alone makes."""


class OrtAllocatorType(PrintedMember):
    """How an allocator takes memory: from the device each time, or from an arena."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(PrintedMember):
    """What memory is for."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1
    DEFAULT = 0


class OrtDeviceMemoryType(PrintedMember):
    """Whether the processor reads a device's memory."""

    DEFAULT = 0
    HOST_ACCESSIBLE = 5


class OrtMemoryInfoDeviceType(PrintedMember):
    """Kinds of devices."""

    CPU = 0
    GPU = 1
    FPGA = 2
    NPU = 3


class OrtDevice:
    """Where a value lies: in the processor's memory, here."""

    def __init__(
        self, device_type: int = 0, mem_type: int = 0, device_id: int = 0, vendor_id: int = 0
    ) -> None:
        self._device_type = device_type
        self._mem_type = mem_type
        self._device_id = device_id
        self._vendor_id = vendor_id

    @staticmethod
    def make(ort_device_name: str, device_id: int = 0, vendor_id: int = -1) -> OrtDevice:
        """A device by its name."""
        number = device_number(ort_device_name)
        if vendor_id < 0:
            vendor_id = _VENDORS.get(ort_device_name.lower(), OrtDeviceVendorId.NONE)
        return OrtDevice(number, 0, device_id, vendor_id)

    cpu, cuda, gpu, dml, fpga, npu, cann, webgpu = (
        staticmethod(partial(_DEVICES.__getitem__, name)) for name in _DEVICES
    )

    @staticmethod
    def default_memory() -> int:
        """The number of ordinary memory."""
        return 0

    def device_type(self) -> int:
        """The number of its type."""
        return self._device_type

    def device_mem_type(self) -> int:
        """The number of its kind of memory."""
        return self._mem_type

    def device_id(self) -> int:
        """Which one of its type it is."""
        return self._device_id

    def device_vendor_id(self) -> int:
        """The number of its maker."""
        return self._vendor_id


class OrtMemoryInfo:
    """What memory is like: where, of what kind, and how it is allocated."""

    def __init__(
        self,
        name: str,
        allocator_type: OrtAllocatorType,
        device_id: int,
        mem_type: OrtMemType,
        /,
    ) -> None:
        if name != "Cpu":
            raise RuntimeError("Specified device is not supported. Try CreateMemoryInfo_V2.")
        self.name = name
        self.allocator_type = allocator_type
        self.device_id = device_id
        self.mem_type = mem_type
        self.device_mem_type = OrtDeviceMemoryType.DEFAULT
        self.device_vendor_id = 0

    @classmethod
    def create_v2(
        cls,
        name: str,
        device_type: OrtMemoryInfoDeviceType,
        vendor_id: int,
        device_id: int,
        device_mem_type: OrtDeviceMemoryType,
        alignment: int,
        allocator_type: OrtAllocatorType,
        /,
    ) -> OrtMemoryInfo:
        """The same of any device, under any name."""
        info = cls("Cpu", allocator_type, device_id, OrtMemType.DEFAULT)
        info.name = name
        info.device_mem_type = device_mem_type
        info.device_vendor_id = vendor_id
        return info


def session_memory() -> OrtMemoryInfo:
    """Where the inputs and outputs of every session are."""
    return OrtMemoryInfo("Cpu", OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, OrtMemType.DEFAULT)


class OrtArenaCfg:
    """How an arena grows: four numbers in this order, or a dict of any; -1 leaves it open."""

    def __init__(self, *numbers: Any) -> None:
        self.max_mem = 0
        self.arena_extend_strategy = -1
        self.initial_chunk_size_bytes = -1
        self.max_dead_bytes_per_chunk = -1
        self.initial_growth_chunk_size_bytes = -1
        self.max_power_of_two_extend_bytes = -1
        if len(numbers) == 1 and isinstance(numbers[0], dict):
            given = numbers[0]
        elif len(numbers) == 4:
            given = dict(zip(list(vars(self))[:4], numbers, strict=True))
        else:
            raise TypeError(f"OrtArenaCfg takes four numbers or a dict, not {numbers!r}")
        for name, number in given.items():
            if name not in vars(self):
                raise RuntimeError(f"Invalid OrtArenaCfg option: {name}")
            setattr(self, name, index(number))


def create_and_register_allocator(
    memory_info: OrtMemoryInfo, arena_cfg: OrtArenaCfg | None, /
) -> None:
    """Accepted: the memory of a call is planned when its program is compiled."""
    warnings.warn(
        "create_and_register_allocator: monograph.onnxruntime plans the memory of a call ahead",
        OptionWarning,
        stacklevel=2,
    )


def create_and_register_allocator_v2(
    provider: str,
    memory_info: OrtMemoryInfo,
    provider_options: Mapping[str, str],
    arena_cfg: OrtArenaCfg | None,
    /,
) -> None:
    """The same for the memory of a provider, of which there is one."""
    if provider != "CPUExecutionProvider":
        raise RuntimeError(f"{provider} is not a supported execution provider: the processor is")
    create_and_register_allocator(memory_info, arena_cfg)


def check_device(device: str | OrtDevice) -> None:
    """Refuse devices other than the processor, where no value can be."""
    number = device.device_type() if isinstance(device, OrtDevice) else device_number(device)
    if number != 0:
        raise RuntimeError(
            f"Can't allocate memory on the device {device}: monograph.onnxruntime runs models on "
            "the processor"
        )


def device_number(name: str) -> int:
    """The number of a type of device, by its name."""
    known = _DEVICES.get(name.lower())
    if known is None:
        raise RuntimeError(f"Unsupported device type: {name}")
    return known
