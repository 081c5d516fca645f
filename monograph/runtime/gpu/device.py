"""The NVIDIA GPUs of this machine as a device."""

from __future__ import annotations

from monograph.errors import ArtifactError
from monograph.ir.graph import Graph
from monograph.program.code import Code
from monograph.runtime.device import Device, Loading
from monograph.runtime.gpu.program import GpuProgram
from monograph.targets.base import TargetRecord
from monograph.targets.gpu.driver import driver


class GpuDevice(Device):
    """CUDA's driver, and the chips that it finds."""

    def check(self, record: TargetRecord) -> None:
        """There must be a GPU, and its chip must be the one that the code is for."""
        here = driver().device(0)
        if here.architecture != record.cpu:
            raise ArtifactError(
                "this program was compiled for another GPU",
                expected=f"{here.architecture} ({here.name})",
                found=record.cpu,
                hint=f'compile it with target="gpu:{here.architecture}"',
            )

    def load(self, code: Code, graph: Graph, loading: Loading) -> GpuProgram:
        """Modules and weights on the GPU that is current."""
        return GpuProgram(code, graph, loading.guards)
