"""A program on the GPUs of this machine: check the inputs, launch, give the outputs.

What a program needs on one GPU (modules, weights, frames) is made when it is first called with
tensors there. Work goes to the caller's current stream and is not waited for, unless arrays of the
host are asked for or an index has to be checked. Outputs are new memory in every call.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from monograph.errors import InputError
from monograph.ir.data import ArrayData
from monograph.ir.foreign_call import ForeignCall
from monograph.ir.graph import Graph, Node
from monograph.ir.interpret import bind_inputs
from monograph.ir.types import Array, DType
from monograph.program.code import Code, Interpret, Launch, LibraryCall, SlotKind, Step, walk_steps
from monograph.program.liveness import arena_requests
from monograph.runtime.device import LoadedProgram
from monograph.runtime.gpu.capture import Captures
from monograph.runtime.gpu.frame import Frame, plan_arena
from monograph.runtime.gpu.memory import POINTER_ALIGNMENT, Block, Memory, TorchMemory, memory_of
from monograph.runtime.gpu.weights import in_rows, place_weight
from monograph.runtime.sizes import Guard, SizeChecks, guards_of
from monograph.runtime.weight_ownership import read_by_calls
from monograph.targets.gpu.driver import Driver, driver
from monograph.targets.gpu.libraries import library_of
from monograph.targets.gpu.modules import read_modules

MAX_FRAMES = 8
"""For how many streams and sizes a program keeps frames, and their arenas, on a GPU."""
MAX_SIGNATURES = 1024


class OnDevice:
    """What a program holds on one GPU."""

    def __init__(self, program: Code, number: int) -> None:
        self.program = program
        self.driver: Driver = driver()
        self.device = self.driver.device(number)
        steps = tuple(walk_steps(program.steps))
        needs_torch = any(isinstance(step, LibraryCall) for step in steps)
        self.memory: Memory = memory_of(self.driver, self.device, needs_torch=needs_torch)
        self.codes = read_modules(program.object)
        with self.driver.current(self.device):
            modules = {
                image: self.driver.load_module(image)
                for image in dict.fromkeys(code.image for code in self.codes.values())
            }
            self.functions = {
                name: self.driver.function(modules[code.image], code.entry, code.shared)
                for name, code in self.codes.items()
            }
        self.turned = {s.number: s.strides for s in program.slots if s.kind is SlotKind.WEIGHT}
        """The strides of weights that do not lie row by row."""
        self.weights: dict[int, Block] = {
            k: place_weight(self.memory, program.weights[k], self.turned.get(k))
            for k in read_by_calls(program)
        }
        for weight in program.weights:
            weight.unload()
        with self.driver.current(self.device):
            self.driver.synchronize(self.memory.stream)  # calls on other streams read them too
        self.requests = arena_requests(program)
        self.may_capture = not any(map(self._asks_the_host, steps))
        self.frames: dict[tuple[int, tuple[int, ...]], tuple[Frame, Captures]] = {}
        self.lock = threading.RLock()

    def frame(self, stream: int, sizes: tuple[int, ...]) -> tuple[Frame, Captures]:
        """The frame for a stream and some sizes; those that came long before are let go."""
        found = self.frames.get((stream, sizes))
        if found is None:
            bindings = dict(zip(self.program.sizes, sizes, strict=True))
            made = Frame(self, sizes, plan_arena(self.requests, bindings))
            found = self.frames[stream, sizes] = (made, Captures(self, made))
            for oldest in list(self.frames)[:-MAX_FRAMES]:
                self.driver.synchronize(oldest[0])
                self.frames.pop(oldest)[1].close()
        return found

    def library_node(self, step: Step) -> Node:
        """The node that a library's call computes."""
        assert isinstance(step, LibraryCall)
        return self.program.fallbacks[step.call]

    def is_checked(self, step: Step) -> bool:
        """Whether a step tells of indices that are out of range."""
        if isinstance(step, LibraryCall):
            library = library_of(self.library_node(step))
            return library is not None and library.checks
        return isinstance(step, Launch) and bool(step.checked)

    def _asks_the_host(self, step: Step) -> bool:
        """Whether a step may wait for the GPU: the interpreter's, or an op of somebody's own."""
        if not isinstance(step, LibraryCall):
            return isinstance(step, Interpret)
        op = self.library_node(step).op
        return isinstance(op, ForeignCall) and not op.target.startswith("aten.")

    def clear(self, block: Block, nbytes: int) -> None:
        """Fill some memory with zeros."""
        zeros = np.zeros(nbytes, np.uint8)
        with self.driver.current(self.device):
            stream = self.memory.stream
            self.driver.upload(block.address, zeros.ctypes.data, nbytes, stream)
            self.driver.synchronize(stream)

    def tensor_at(
        self,
        address: int,
        dtype: DType,
        shape: tuple[int, ...],
    ) -> Any:
        """Memory of this GPU as a torch tensor, which does not hold it."""
        assert isinstance(self.memory, TorchMemory)
        return tensor_at(self.memory, address, dtype, shape)


class GpuProgram(LoadedProgram):
    """A program that GPUs run."""

    def __init__(self, program: Code, graph: Graph, guards: tuple[Guard, ...] | None) -> None:
        self.program = program
        self.graph = graph
        self.static = not program.sizes
        if guards is None:
            guards = () if self.static else guards_of(graph)
        self.guards = guards
        self._checks = SizeChecks(guards)
        self._on: dict[int, OnDevice] = {}
        self._lock = threading.Lock()
        self._signatures: dict[tuple[Any, ...], tuple[int, ...]] = {}
        slots = program.slots
        outputs = [(k, s) for k, s in enumerate(slots) if s.kind is SlotKind.OUTPUT]
        self.inputs = [(k, s.number) for k, s in enumerate(slots) if s.kind is SlotKind.INPUT]
        self.outputs = sorted(outputs, key=lambda each: each[1].number)
        self.on(self._default_device())

    def on(self, number: int) -> OnDevice:
        """What it holds on a GPU, made when that is first used."""
        with self._lock:
            found = self._on.get(number)
            if found is None:
                found = self._on[number] = OnDevice(self.program, number)
        return found

    def _default_device(self) -> int:
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_available():
            return int(torch.cuda.current_device())
        return 0

    def stored(self) -> tuple[Code, dict[int, Array] | None]:
        """The code, with the weights as the GPU has them."""
        held = next(iter(self._on.values()))
        weights = list(self.program.weights)
        for k, block in held.weights.items():
            data = weights[k]
            array = held.memory.download(block.address, data.dtype, data.type.static_shape())
            array = in_rows(array, held.turned.get(k))
            weights[k] = ArrayData(array, data.dtype, private=True)
        return replace(self.program, weights=tuple(weights)), None

    # Calls ----------------------------------------------------------------------------------------

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Torch tensors on the GPU for such, arrays for arrays, torch's on the host for those."""
        torch = sys.modules.get("torch")
        tensors = [] if torch is None else [x for x in inputs if isinstance(x, torch.Tensor)]
        places = {x.device.index for x in tensors if x.is_cuda}
        if len(places) > 1:
            raise InputError(
                "the inputs are on several GPUs",
                expected="one", found=", ".join(f"cuda:{k}" for k in sorted(places)),
            )  # fmt: skip
        held = self.on(places.pop() if places else self._default_device())
        on_gpu = any(x.is_cuda for x in tensors)
        if not tensors and not isinstance(held.memory, TorchMemory):
            return self._run_arrays(held, inputs)
        results = self._run_tensors(held, inputs)
        if on_gpu:
            return results
        on_host = [each.cpu() for each in results]
        if tensors:
            return on_host
        from monograph.frontends.torch.types import array_from_torch

        pairs = zip(on_host, self.outputs, strict=True)
        return [array_from_torch(each).view(slot.dtype.numpy) for each, (_, slot) in pairs]

    def sizes(self, inputs: Sequence[Any]) -> tuple[int, ...]:
        """What the symbolic dimensions are for inputs of these shapes and dtypes; errors if none.

        Inputs that fit are remembered by shape and dtype.
        """
        signature = tuple([(x.shape, x.dtype) if hasattr(x, "dtype") else x for x in inputs])
        try:
            found = self._signatures.get(signature)
        except TypeError:  # a list, which has no hash
            found, signature = None, ()
        if found is not None:
            return found
        _, bindings = bind_inputs(self.graph, [_stand_in(x) for x in inputs])
        self._checks.check(bindings)
        made = tuple(bindings[symbol] for symbol in self.program.sizes)
        if signature:
            if len(self._signatures) >= MAX_SIGNATURES:
                self._signatures.clear()
            self._signatures[signature] = made
        return made

    def _run_tensors(self, held: OnDevice, inputs: Sequence[Any]) -> list[Any]:
        memory = held.memory
        assert isinstance(memory, TorchMemory)
        sizes = self.sizes(inputs)
        given = [
            _as_tensor(memory, item, self.program.slots[slot].dtype)
            for (slot, _), item in zip(self.inputs, inputs, strict=True)
        ]
        stream = memory.stream
        with held.lock:
            frame, captures = held.frame(stream, sizes)
            results = [
                memory.torch.empty(
                    frame.shapes[k], dtype=torch_dtype(slot.dtype), device=memory.place
                )
                for k, slot in self.outputs
            ]
            addresses = [each.data_ptr() for each in (*given, *results)]
            self._launch(held, frame, captures, addresses, stream)
            for number, (k, _) in enumerate(self.outputs):
                if k in frame.given:
                    results[number] = _in_place_of(results[number], frame.given.pop(k))
            frame.forget()
        return results

    def _run_arrays(self, held: OnDevice, inputs: Sequence[Any]) -> list[Array]:
        sizes = self.sizes(inputs)
        memory = held.memory
        given = [
            memory.upload(np.asarray(item, self.program.slots[slot].dtype.numpy))
            for (slot, _), item in zip(self.inputs, inputs, strict=True)
        ]
        with held.lock:
            frame, captures = held.frame(memory.stream, sizes)
            results = []
            for k, slot in self.outputs:
                count = int(np.prod(frame.shapes[k], dtype=np.int64))
                results.append(memory.allocate(count * slot.dtype.numpy.itemsize))
            addresses = [each.address for each in (*given, *results)]
            self._launch(held, frame, captures, addresses, memory.stream)
        return [
            memory.download(block.address, slot.dtype, frame.shapes[k])
            for block, (k, slot) in zip(results, self.outputs, strict=True)
        ]

    def _launch(
        self,
        held: OnDevice,
        frame: Frame,
        captures: Captures,
        addresses: Sequence[int],
        stream: int,
    ) -> None:
        """Write where inputs and outputs lie, and run."""
        slots = [k for k, _ in (*self.inputs, *self.outputs)]
        for slot, address in zip(slots, addresses, strict=True):
            frame.words[slot] = address
        with held.driver.current(held.device):
            captures.run(stream)
        if frame.flags is not None:
            frame.flags.look()


def _in_place_of(result: Any, given: Any) -> Any:
    """The memory of what a library gave, as the result that it is.

    That is another view of it where attention or a convolution is turned at a program's end: the
    library's own strides are those of heads or images that lie token by token, or channels last.
    """
    return given.as_strided(result.shape, result.stride(), given.storage_offset())


def _stand_in(item: Any) -> Any:
    """An array of the shape and dtype of an input that need not be on the host."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(item, torch.Tensor):
        return item
    from monograph.frontends.torch.types import dtype_from_torch

    empty = np.empty((), dtype_from_torch(item.dtype).numpy)
    return np.broadcast_to(empty, tuple(item.shape))


def _as_tensor(memory: TorchMemory, item: Any, dtype: DType) -> Any:
    """An input on the GPU, its rows one after the other, at an address that kernels can read."""
    torch = memory.torch
    if not isinstance(item, torch.Tensor):
        array = np.asarray(item, dtype.numpy)
        raw = np.array(array, order="C").reshape(-1).view(np.uint8)
        item = torch.from_numpy(raw).view(torch_dtype(dtype)).view(array.shape)
    found = item.detach()
    if not found.is_cuda:
        found = found.to(memory.place)
    found = found.resolve_conj().resolve_neg().contiguous()
    return found.clone() if found.data_ptr() % POINTER_ALIGNMENT else found


def torch_dtype(dtype: DType) -> Any:
    """torch's dtype for ours; bytes for what torch has none for."""
    import torch

    from monograph.errors import UnsupportedError
    from monograph.frontends.torch.types import dtype_to_torch

    try:
        return dtype_to_torch(dtype)
    except UnsupportedError:
        return torch.uint8


class _Memory:
    """Memory that is not torch's own, as torch reads of it (``__cuda_array_interface__``)."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 2,
        }


def tensor_at(memory: TorchMemory, address: int, dtype: DType, shape: tuple[int, ...]) -> Any:
    """Memory of a GPU as a torch tensor, which does not hold it."""
    torch = memory.torch
    kind = torch_dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    if count == 0:
        return torch.empty(shape, dtype=kind, device=memory.place)
    seen = torch.as_tensor(_Memory(address, count * kind.itemsize), device=memory.place)
    return seen.view(kind).view(shape)
