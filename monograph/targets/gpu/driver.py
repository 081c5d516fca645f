"""CUDA's driver API by ctypes: devices, modules, launches, graphs, host memory.

Nothing but the driver itself (``libcuda``) is needed, so that a stored program runs where neither
Triton nor a CUDA toolkit is installed. Torch uses the same *primary context* of each device, so its
tensors are addresses here, and its streams are streams here. Every call is checked: a code other
than success raises ``GpuError`` with the driver's own words.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import (
    POINTER,
    byref,
    c_char_p,
    c_int,
    c_size_t,
    c_uint,
    c_uint64,
    c_void_p,
    pointer,
)
from functools import cache
from typing import Any

from monograph.dataclass import dataclass
from monograph.errors import GpuError, InputError

LIBRARIES = ("libcuda.so.1", "libcuda.so", "nvcuda.dll")
COMPUTE_CAPABILITY = (75, 76)
"""The attributes of a device that say its major and its minor version."""
MAX_SHARED_BYTES = 8
"""The attribute of a function that allows it more shared memory than 48 KiB."""
DEFAULT_SHARED_LIMIT = 48 * 1024
RELAXED = 2
"""How a stream is captured: other threads may call whatever they like."""
HOST_PORTABLE_AND_MAPPED = 3
NO_TIMING = 2
BEGINS_EARLY = 6
"""The attribute of a launch that need not wait for the one before (programmatic serialization)."""
EXTERNAL_EVENT = 1
"""An event that is recorded in a graph, and that the host waits for."""


class KernelNode(ctypes.Structure):
    """``CUDA_KERNEL_NODE_PARAMS``: a launch in a graph."""

    _fields_ = (
        ("function", c_void_p),
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared", c_uint),
        ("parameters", c_void_p),
        ("extra", c_void_p),
        ("kernel", c_void_p),
        ("context", c_void_p),
    )


class LaunchAttribute(ctypes.Structure):
    """``CUlaunchAttribute``: a union of 64 bytes, of which an ``int`` is set."""

    _fields_ = (
        ("kind", c_int),
        ("padding", c_uint),
        ("value", c_int),
        ("rest", c_uint * 15),
    )


class LaunchConfiguration(ctypes.Structure):
    """``CUlaunchConfig``."""

    _fields_ = (
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared", c_uint),
        ("stream", c_void_p),
        ("attributes", POINTER(LaunchAttribute)),
        ("count", c_uint),
    )


@dataclass(frozen=True)
class DeviceInfo:
    """A GPU of this machine."""

    number: int
    name: str
    capability: tuple[int, int]
    context: int

    @property
    def architecture(self) -> str:
        """As NVIDIA calls its kind of chip: ``sm_90``."""
        major, minor = self.capability
        return f"sm_{major}{minor}"


class Driver:
    """The driver of this machine, initialised."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self.call("cuInit", 0)
        count = c_int()
        self.call("cuDeviceGetCount", byref(count))
        self.count = count.value
        number = c_int()
        self.call("cuDriverGetVersion", byref(number))
        self.version = number.value
        """The newest CUDA that it knows: 13000 is 13.0."""
        self._devices: dict[int, DeviceInfo] = {}
        self.launch_function = library.cuLaunchKernel
        self.launch_function.argtypes = [
            c_void_p, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint,
            c_void_p, c_void_p, c_void_p,
        ]  # fmt: skip
        self.early_launch_function = library.cuLaunchKernelEx
        self.early_launch_function.argtypes = [
            POINTER(LaunchConfiguration), c_void_p, c_void_p, c_void_p,
        ]  # fmt: skip
        self.graph_launch_function = library.cuGraphLaunch
        self.graph_launch_function.argtypes = [c_void_p, c_void_p]

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function of the driver; an error if it does not succeed."""
        self.check(getattr(self.library, function)(*arguments), function)

    def check(self, code: int, what: str) -> None:
        """Raise what a result code says."""
        if code == 0:
            return
        name, words = c_char_p(), c_char_p()
        self.library.cuGetErrorName(code, byref(name))
        self.library.cuGetErrorString(code, byref(words))
        shown = [(each.value or b"").decode() for each in (name, words)]
        raise GpuError(f"{what}: {shown[1] or 'an unknown error'}", found=shown[0] or str(code))

    # Devices --------------------------------------------------------------------------------------

    def device(self, number: int) -> DeviceInfo:
        """A device by its number, with its primary context, which stays alive from now on."""
        found = self._devices.get(number)
        if found is not None:
            return found
        if not 0 <= number < self.count:
            raise InputError(
                "there is no such GPU", expected=f"a number under {self.count}", found=str(number)
            )
        handle, context, name = c_int(), c_void_p(), ctypes.create_string_buffer(256)
        self.call("cuDeviceGet", byref(handle), number)
        self.call("cuDeviceGetName", name, 256, handle)
        version = []
        for attribute in COMPUTE_CAPABILITY:
            value = c_int()
            self.call("cuDeviceGetAttribute", byref(value), attribute, handle)
            version.append(value.value)
        self.call("cuDevicePrimaryCtxRetain", byref(context), handle)
        made = DeviceInfo(number, name.value.decode(), (version[0], version[1]), context.value or 0)
        return self._devices.setdefault(number, made)

    @contextmanager
    def current(self, device: DeviceInfo) -> Iterator[None]:
        """Make a device's context that of this thread, and give back what was there before."""
        self.call("cuCtxPushCurrent_v2", c_void_p(device.context))
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent_v2", byref(c_void_p()))

    # Modules --------------------------------------------------------------------------------------

    def load_module(self, image: bytes) -> int:
        """The handle of machine code (a cubin) in the current context."""
        handle = c_void_p()
        self.call("cuModuleLoadData", byref(handle), image)
        return handle.value or 0

    def function(self, module: int, name: str, shared: int) -> int:
        """A kernel of a module, which may use so many bytes of shared memory."""
        handle = c_void_p()
        self.call("cuModuleGetFunction", byref(handle), c_void_p(module), name.encode())
        if shared > DEFAULT_SHARED_LIMIT:
            self.call("cuFuncSetAttribute", handle, MAX_SHARED_BYTES, shared)
        return handle.value or 0

    def launch(
        self,
        function: int,
        grid: tuple[int, int, int],
        threads: int,
        shared: int,
        stream: int,
        parameters: int,
    ) -> int:
        """Launch a kernel; ``parameters`` is where pointers to its parameters lie. The code."""
        code: int = self.launch_function(
            function, *grid, threads, 1, 1, shared, stream, parameters, None
        )
        return code

    def early_launch(
        self, function: int, grid: tuple[int, int, int], threads: int, shared: int, parameters: int
    ) -> Callable[[int], int]:
        """A launch that may begin before the one before it has ended, given a stream."""
        attribute = LaunchAttribute(kind=BEGINS_EARLY, value=1)
        configuration = LaunchConfiguration(
            (c_uint * 3)(*grid), (c_uint * 3)(threads, 1, 1), shared, None, pointer(attribute), 1
        )
        launch = self.early_launch_function

        def run(stream: int) -> int:
            configuration.stream = stream
            code: int = launch(byref(configuration), function, parameters, None)
            return code

        return run

    # Memory ---------------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> int:
        """Memory of the current device."""
        address = c_uint64()
        self.call("cuMemAlloc_v2", byref(address), c_size_t(max(nbytes, 1)))
        return address.value

    def free(self, address: int) -> None:
        """Give back memory that ``allocate`` gave."""
        self.call("cuMemFree_v2", c_uint64(address))

    def allocate_host(self, nbytes: int) -> int:
        """Memory of the host that kernels can write to, at the same address."""
        address = c_void_p()
        self.call("cuMemHostAlloc", byref(address), c_size_t(nbytes), HOST_PORTABLE_AND_MAPPED)
        ctypes.memset(address, 0, nbytes)
        return address.value or 0

    def free_host(self, address: int) -> None:
        """Give back memory that ``allocate_host`` gave."""
        self.call("cuMemFreeHost", c_void_p(address))

    def upload(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copy from the host; it may still be under way."""
        self.call(
            "cuMemcpyHtoDAsync_v2", c_uint64(target), c_void_p(source), c_size_t(nbytes),
            c_void_p(stream),
        )  # fmt: skip

    def download(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copy to the host; it may still be under way."""
        self.call(
            "cuMemcpyDtoHAsync_v2", c_void_p(target), c_uint64(source), c_size_t(nbytes),
            c_void_p(stream),
        )  # fmt: skip

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copy within the devices, in the order of the stream."""
        self.call(
            "cuMemcpyDtoDAsync_v2", c_uint64(target), c_uint64(source), c_size_t(nbytes),
            c_void_p(stream),
        )  # fmt: skip

    # Streams and events ---------------------------------------------------------------------------

    def new_stream(self) -> int:
        """A stream that does not wait for the default stream."""
        handle = c_void_p()
        self.call("cuStreamCreate", byref(handle), 1)
        return handle.value or 0

    def new_event(self) -> int:
        """An event without a clock."""
        handle = c_void_p()
        self.call("cuEventCreate", byref(handle), NO_TIMING)
        return handle.value or 0

    def destroy_event(self, event: int) -> None:
        """Let go of an event."""
        self.call("cuEventDestroy_v2", c_void_p(event))

    def record(self, event: int, stream: int, *, in_graph: bool = False) -> None:
        """Let an event happen when all that the stream was given is done."""
        flags = EXTERNAL_EVENT if in_graph else 0
        self.call("cuEventRecordWithFlags", c_void_p(event), c_void_p(stream), flags)

    def wait(self, event: int) -> None:
        """Wait until an event has happened."""
        self.call("cuEventSynchronize", c_void_p(event))

    def synchronize(self, stream: int) -> None:
        """Wait until the stream has done all that it was given."""
        self.call("cuStreamSynchronize", c_void_p(stream))

    # Graphs ---------------------------------------------------------------------------------------

    def begin_capture(self, stream: int) -> None:
        """From now on, note what the stream is given instead of doing it."""
        self.call("cuStreamBeginCapture_v2", c_void_p(stream), RELAXED)

    def end_capture(self, stream: int) -> int:
        """The graph of what was noted."""
        graph = c_void_p()
        self.call("cuStreamEndCapture", c_void_p(stream), byref(graph))
        return graph.value or 0

    def last_captured(self, stream: int) -> int:
        """The node of a graph under capture that the next one will wait for: what came last."""
        status, identity, graph = c_int(), c_uint64(), c_void_p()
        nodes, count = POINTER(c_void_p)(), c_size_t()
        self.call(
            "cuStreamGetCaptureInfo_v2", c_void_p(stream), byref(status), byref(identity),
            byref(graph), byref(nodes), byref(count),
        )  # fmt: skip
        if count.value != 1:
            raise GpuError(
                "a step was not captured as one node", expected="1", found=str(count.value)
            )
        return nodes[0] or 0

    def instantiate(self, graph: int) -> int:
        """A graph that can be launched."""
        handle = c_void_p()
        self.call("cuGraphInstantiateWithFlags", byref(handle), c_void_p(graph), c_uint64(0))
        return handle.value or 0

    def destroy_graph(self, graph: int, executable: int) -> None:
        """Let go of a graph and of what was instantiated of it."""
        if executable:
            self.call("cuGraphExecDestroy", c_void_p(executable))
        if graph:
            self.call("cuGraphDestroy", c_void_p(graph))

    def kernel_node(self, node: int) -> KernelNode:
        """The parameters of a launch in a graph."""
        found = KernelNode()
        self.call("cuGraphKernelNodeGetParams_v2", c_void_p(node), byref(found))
        return found

    def update_kernel(self, executable: int, node: int, parameters: KernelNode) -> None:
        """Let the next launches of a graph have these parameters for one of its kernels."""
        self.call(
            "cuGraphExecKernelNodeSetParams_v2", c_void_p(executable), c_void_p(node),
            byref(parameters),
        )  # fmt: skip


@cache
def driver() -> Driver:
    """The driver; an error if this machine has none, or no GPU."""
    for name in LIBRARIES:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        found = Driver(library)
        if found.count:
            return found
        raise _no_gpu("the driver finds no device")
    raise _no_gpu("libcuda is not installed")


def has_gpu() -> bool:
    """Whether this machine has a GPU that can be used."""
    try:
        return driver().count > 0
    except (InputError, GpuError):
        return False


def _no_gpu(found: str) -> InputError:
    return InputError(
        "this machine has no NVIDIA GPU",
        expected="a GPU and its driver",
        found=found,
        hint='name a chip to compile ahead, target="gpu:sm_90", and load the saved program there',
    )
