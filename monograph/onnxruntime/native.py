"""Sessions and bindings as ONNX Runtime's compiled module has them.

Programs reach for them as ``session._sess`` and ``SessionIOBinding(session._sess)``. They differ
from the public ones in the order of their arguments, and name devices by ``OrtDevice``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from monograph.onnxruntime.binding import IOBinding
from monograph.onnxruntime.memory import CPU, OrtDevice, check_device
from monograph.onnxruntime.options import RunOptions
from monograph.onnxruntime.values import OrtValue, OrtValueVector

if TYPE_CHECKING:
    from monograph.onnxruntime.session import InferenceSession


class NativeSession:
    """A session whose feeds come before the names of its outputs."""

    def __init__(self, session: InferenceSession) -> None:
        self.session = session

    def run(
        self,
        output_names: Sequence[str],
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """The outputs that are named."""
        return self.session.run(output_names, input_feed, run_options)

    def run_with_ort_values(
        self,
        input_dict_ort_values: Mapping[str, OrtValue],
        output_names: Sequence[str],
        run_options: RunOptions | None = None,
    ) -> OrtValueVector:
        """The outputs of values, as values."""
        return OrtValueVector(
            self.session.run_with_ort_values(output_names, input_dict_ort_values, run_options)
        )

    def run_with_iobinding(
        self, io_binding: SessionIOBinding, run_options: RunOptions | None = None
    ) -> None:
        """Run on inputs that were bound, and keep the outputs that were asked for."""
        self.session.run_with_iobinding(io_binding.binding, run_options)


class SessionIOBinding:
    """A binding whose memory is told by device, type, shape and address."""

    def __init__(self, session: NativeSession) -> None:
        self.binding = IOBinding(session.session)

    def bind_input(self, name: str, where: Any, *memory: Any) -> None:
        """Take an array for an input; or the memory on a device: its type, shape and address."""
        if not memory:
            self.binding.bind_cpu_input(name, where)
            return
        check_device(where)
        self.binding.bind_input(name, CPU, where.device_id(), *memory)

    def bind_output(self, name: str, device: OrtDevice, *memory: Any) -> None:
        """Ask for an output, which is written to memory (type, shape, address) if it is given."""
        check_device(device)
        self.binding.bind_output(name, CPU, device.device_id(), *memory)

    def bind_ortvalue_input(self, name: str, value: OrtValue) -> None:
        """Take a value for an input."""
        self.binding.bind_ortvalue_input(name, value)

    def bind_ortvalue_output(self, name: str, value: OrtValue) -> None:
        """Ask for an output, which is written to the memory of a value."""
        self.binding.bind_ortvalue_output(name, value)

    def synchronize_inputs(self) -> None:
        """Wait for inputs; they are in memory already."""

    def synchronize_outputs(self) -> None:
        """Wait for outputs; they are in memory already."""

    def get_outputs(self) -> OrtValueVector:
        """What the last run made of the outputs that were asked for."""
        return self.binding.get_outputs_as_ortvaluevector()

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The same as arrays of their own."""
        return self.binding.copy_outputs_to_cpu()

    def clear_binding_inputs(self) -> None:
        """Forget the inputs."""
        self.binding.clear_binding_inputs()

    def clear_binding_outputs(self) -> None:
        """Forget the outputs."""
        self.binding.clear_binding_outputs()
