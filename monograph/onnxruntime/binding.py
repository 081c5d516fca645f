"""``IOBinding``: inputs that are set once, and memory that outputs are written to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from monograph.ir.types import Array
from monograph.onnxruntime.memory import CPU, check_device
from monograph.onnxruntime.values import OrtValue, OrtValueVector, element_dtype, memory_at

if TYPE_CHECKING:
    from monograph.onnxruntime.session import InferenceSession


class IOBinding:
    """The inputs and outputs of ``InferenceSession.run_with_iobinding``."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self.inputs: dict[str, OrtValue] = {}
        self.targets: dict[str, OrtValue | None] = {}
        """The outputs that are wanted; memory to write them to, where it was given."""
        self._results: list[OrtValue] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: Array) -> None:
        """Take an array for an input."""
        self.bind_ortvalue_input(name, OrtValue.ortvalue_from_numpy(arr_on_cpu))

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Any,
        buffer_ptr: int,
    ) -> None:
        """Take the memory at an address for an input; the caller keeps it alive."""
        check_device(device_type)
        self.bind_ortvalue_input(name, OrtValue(memory_at(buffer_ptr, shape, element_type)))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Take a value for an input."""
        self._check_is_input(name)
        self.inputs[name] = ortvalue

    def bind_output(
        self,
        name: str,
        device_type: str = CPU,
        device_id: int = 0,
        element_type: Any = None,
        shape: Any = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Ask for an output, which is written to the memory at an address if one is given."""
        check_device(device_type)
        target = None
        if shape is not None and element_type is not None:
            if buffer_ptr is None:
                target = OrtValue(np.empty(tuple(shape), element_dtype(element_type)))
            else:
                target = OrtValue(memory_at(buffer_ptr, shape, element_type))
        self.targets[name] = target

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Ask for an output, which is written to the memory of a value."""
        self.targets[name] = ortvalue

    def synchronize_inputs(self) -> None:
        """Wait for inputs; they are in memory already."""

    def synchronize_outputs(self) -> None:
        """Wait for outputs; they are in memory already."""

    def get_outputs(self) -> list[OrtValue]:
        """What the last run made of the outputs that were asked for, in that order."""
        return list(self._results)

    def get_outputs_as_ortvaluevector(self) -> OrtValueVector:
        """The same."""
        return OrtValueVector(self._results)

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The same as arrays of their own."""
        return [np.array(value.numpy()) for value in self._results]

    def clear_binding_inputs(self) -> None:
        """Forget the inputs."""
        self.inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forget the outputs."""
        self.targets.clear()
        self._results = []

    def take(self, results: list[Any]) -> None:
        """Keep the results of a run, each in the memory that was given for it."""
        self._results = [
            _place(name, result, target)
            for (name, target), result in zip(self.targets.items(), results, strict=True)
        ]

    def _check_is_input(self, name: str) -> None:
        session = self._session
        known = (*session.get_inputs(), *session.get_overridable_initializers())
        if all(each.name != name for each in known):
            raise RuntimeError(f"Failed to find NodeArg with name: {name} in the def list")


def _place(name: str, result: Any, target: OrtValue | None) -> OrtValue:
    if target is None:
        return OrtValue(result)
    memory = target.numpy()
    if memory.shape != result.shape or memory.dtype != result.dtype:
        raise RuntimeError(
            f"Error in execution: the output {name} is {result.dtype}{list(result.shape)}, and the "
            f"memory that was bound to it {memory.dtype}{list(memory.shape)}"
        )
    memory[...] = result
    return target
