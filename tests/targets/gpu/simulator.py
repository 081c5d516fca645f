"""A GPU that is simulated: CUDA's driver with Triton's interpreter in place of a chip.

The runtime runs on it as it is: address tables, parameters, graphs that are captured and patched,
flags of checked indices, library calls on torch tensors. "Machine code" is the number of a Triton
kernel, and device memory is the host's. A graph's nodes keep the parameters that they were captured
with, as CUDA's do, until they are updated: what the runtime forgets to update stays wrong.

It needs ``TRITON_INTERPRET=1`` (``tests.targets.gpu.simulated``).
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from monograph.runtime.gpu import capture, device, frame, memory, program
from monograph.targets.gpu import target
from monograph.targets.gpu.chip import Chip
from monograph.targets.gpu.cubin import import_kernel, parameter_kinds
from monograph.targets.gpu.driver import DeviceInfo, KernelNode
from monograph.targets.gpu.modules import MachineCode
from monograph.targets.gpu.overlap import CONSTANT
from monograph.targets.gpu.source import TritonKernel

KERNELS: list[TritonKernel] = []
FOLDER = tempfile.TemporaryDirectory()
GPU = DeviceInfo(0, "a simulated GPU", (9, 0), 1)


def compile_kernels(kernels: Sequence[TritonKernel], chip: Chip) -> list[MachineCode]:
    """Each kernel's number in place of machine code."""
    codes = []
    for kernel in kernels:
        number = str(len(KERNELS)).encode()
        KERNELS.append(kernel)
        codes.append(MachineCode(number, kernel.name, 128, 0, parameter_kinds(kernel)))
    return codes


@dataclass
class Node:
    """A step of a graph: a launch with values of its parameters, or something else."""

    kernel: int = -1
    grid: tuple[int, ...] = ()
    values: list[int] = field(default_factory=list)
    action: Any = None


class SimulatedDriver:
    """What the runtime asks of ``Driver``."""

    def __init__(self) -> None:
        self.capturing: list[Node] | None = None
        self.graphs: dict[int, list[Node]] = {}
        self.functions: list[Any] = []
        self.held: dict[int, Any] = {}
        self.launches = 0
        self.graph_launches = 0
        self.updates = 0
        self.events = 0

    def device(self, number: int) -> DeviceInfo:
        assert number == 0
        return GPU

    @contextmanager
    def current(self, device: DeviceInfo) -> Iterator[None]:
        yield

    def check(self, code: int, what: str) -> None:
        assert code == 0, what

    def load_module(self, image: bytes) -> int:
        return int(image)

    def function(self, module: int, name: str, shared: int) -> int:
        kernel = KERNELS[module]
        assert kernel.name == name
        self.functions.append(import_kernel(kernel, Path(FOLDER.name) / str(module)))
        self.held[len(self.functions)] = kernel
        return len(self.functions)

    # Launches -------------------------------------------------------------------------------------

    def launch_function(self, function: int, *arguments: Any) -> int:
        values = self._values(function, arguments[-2])
        self._do(Node(function, tuple(arguments[:3]), values))
        return 0

    def _values(self, function: int, parameters: int) -> list[int]:
        kernel = self.held[function]
        count = len(kernel.parameters)
        pointers = (ctypes.c_void_p * (count + 2)).from_address(parameters)
        words = [ctypes.c_uint64.from_address(each).value for each in pointers]
        assert words[-1] == 0, "memory for profiles, of Triton's own, is never given"
        return words[:count]

    def _do(self, node: Node) -> None:
        if self.capturing is not None:
            self.capturing.append(node)
        else:
            self._run(node)

    def _run(self, node: Node) -> None:
        self.launches += 1
        if node.action is not None:
            node.action()
            return
        kernel, function = self.held[node.kernel], self.functions[node.kernel - 1]
        arguments: list[Any] = []
        dtypes = [buffer.dtype for buffer in kernel.kernel.buffers]
        for k, word in enumerate(node.values):
            if k < len(dtypes):
                assert word % 16 == 0, f"{kernel.name}: an address that is not aligned"
                kind = _torch_kind(dtypes[k])
                arguments.append(_at(word, kind) if word else torch.empty(1, dtype=kind))
            elif kernel.checks and k == len(dtypes):
                arguments.append(_at(word, torch.int32))
            else:
                arguments.append(word)
        # Nothing overlaps on a host, and the interpreter has no word for waiting.
        blocks = kernel.blocks | ({CONSTANT: 0} if CONSTANT in kernel.blocks else {})
        function[node.grid](*arguments, **blocks)

    def call_library(self, library: Any, task: Any) -> Any:
        """Libraries run now; in a graph, again whenever it is launched, into the same memory."""
        given = library.run(task)

        def again() -> None:
            for kept, new in zip(given or (), library.run(task) or (), strict=True):
                kept.copy_(new)

        if self.capturing is not None:
            self.capturing.append(Node(action=again))
        return given

    def write_back(self, place: Any, given: Any) -> None:
        """A copy, which a graph repeats."""
        self._do(Node(action=lambda: place.copy_(given)))
        if self.capturing is not None:
            place.copy_(given)

    # Memory ---------------------------------------------------------------------------------------

    def allocate_host(self, nbytes: int) -> int:
        held = (ctypes.c_char * nbytes)()
        self.held[ctypes.addressof(held)] = held
        return ctypes.addressof(held)

    def free_host(self, address: int) -> None:
        del self.held[address]

    def destroy_event(self, event: int) -> None:
        self.events -= 1

    def upload(self, target: int, source: int, nbytes: int, stream: int) -> None:
        ctypes.memmove(target, source, nbytes)

    def download(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self.copy(target, source, nbytes, stream)

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self._do(Node(action=lambda: ctypes.memmove(target, source, nbytes)))

    def synchronize(self, stream: int) -> None:
        assert self.capturing is None, "waiting while a graph is captured"

    def new_event(self) -> int:
        self.events += 1
        return 1

    def record(self, event: int, stream: int, *, in_graph: bool = False) -> None:
        assert in_graph == (self.capturing is not None)

    def wait(self, event: int) -> None:
        assert self.capturing is None

    # Graphs ---------------------------------------------------------------------------------------

    def last_captured(self, stream: int) -> int:
        assert self.capturing
        return len(self.capturing)

    def instantiate(self, graph: int) -> int:
        return graph

    def destroy_graph(self, graph: int, executable: int) -> None:
        del self.graphs[executable]

    def kernel_node(self, node: int) -> KernelNode:
        return KernelNode()

    def update_kernel(self, executable: int, node: int, parameters: KernelNode) -> None:
        self.updates += 1
        found = self.graphs[executable][node - 1]
        found.values = self._values(found.kernel, parameters.parameters)

    def graph_launch_function(self, executable: int, stream: int) -> int:
        self.graph_launches += 1
        for node in self.graphs[executable]:
            self._run(node)
        return 0


def _torch_kind(dtype: Any) -> Any:
    return torch.int8 if dtype.name == "bool" else program.torch_dtype(dtype)


def _at(address: int, kind: Any) -> Any:
    """One element at an address; kernels find the others by their own arithmetic."""
    memory_ = (ctypes.c_char * kind.itemsize).from_address(address)
    return torch.frombuffer(memory_, dtype=kind)


class HostMemory(memory.TorchMemory):
    """Torch's memory on the host, in place of a GPU's."""

    def __init__(self, driver: Any, device: DeviceInfo) -> None:
        self.driver, self.device, self.torch = driver, device, torch
        self.place = torch.device("cpu")

    def allocate(self, nbytes: int) -> memory.Block:
        held = torch.full((max(nbytes, 1) + 256,), 0x7F, dtype=torch.uint8)  # anything
        address = -(-held.data_ptr() // 256) * 256
        return memory.Block(address, nbytes, held)

    @property
    def stream(self) -> int:
        return 0


def _tensor_at(held: Any, address: int, dtype: Any, shape: tuple[int, ...]) -> Any:
    kind = program.torch_dtype(dtype)
    count = 1
    for size in shape:
        count *= size
    if not count:
        return torch.empty(shape, dtype=kind)
    memory_ = (ctypes.c_char * (count * kind.itemsize)).from_address(address)
    return torch.frombuffer(memory_, dtype=kind).view(shape)


@contextmanager
def _capturing(self: Any) -> Iterator[tuple[int, list[Any]]]:
    """Steps of libraries run when the graph is launched, as on a GPU."""
    simulated, found = self.held.driver, list[Any]()
    simulated.capturing = []
    yield 0, found
    number = len(simulated.graphs) + 1000
    simulated.graphs[number] = simulated.capturing
    simulated.capturing = None
    found += [number, None]


@contextmanager
def simulated_gpu() -> Iterator[SimulatedDriver]:
    """Let the runtime find a simulated GPU; nothing that is compiled for it is kept on disk."""
    made = SimulatedDriver()
    replaced = [
        (program, "driver", lambda: made),
        (device, "driver", lambda: made),
        (frame, "call_library", made.call_library),
        (frame, "write_back", made.write_back),
        (program, "memory_of", lambda driver, device, needs_torch: HostMemory(driver, device)),
        (program, "tensor_at", _tensor_at),
        (capture.Captures, "capturing", _capturing),
        (target, "compile_kernels", compile_kernels),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in replaced]
    for owner, name, value in replaced:
        setattr(owner, name, value)
    try:
        with patch.dict(os.environ, {"MONOGRAPH_CACHE": "0"}):
            yield made
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
