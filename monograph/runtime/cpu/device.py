"""The processor of this machine as a device."""

from __future__ import annotations

from monograph.ir.graph import Graph
from monograph.program.code import Code
from monograph.runtime.artifact import check_processor
from monograph.runtime.cpu.native import Native
from monograph.runtime.device import Device, Loading
from monograph.runtime.weight_ownership import own_weights
from monograph.targets.base import TargetRecord
from monograph.targets.names import host_record


class CpuDevice(Device):
    """Machine code in this process."""

    def check(self, record: TargetRecord) -> None:
        """The system must be this one, and the processor must have what the code needs."""
        check_processor(record, host_record())

    def load(self, code: Code, graph: Graph, loading: Loading) -> Native:
        """The object linked into this process."""
        return Native(
            own_weights(code) if loading.snapshot else code,
            graph,
            loading.threads,
            loading.guards,
            prepared=None if loading.prepared is None else dict(loading.prepared),
            lets_go=loading.lets_go,
        )
