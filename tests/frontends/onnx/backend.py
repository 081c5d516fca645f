"""Monograph as a backend of ONNX's own test suite: import, then interpret or compile."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto
from onnx.backend.base import Backend, BackendRep

from monograph.frontends.onnx import from_onnx
from monograph.ir.graph import Graph
from tests.targets.running import Runner

RUNNER = Runner()
"""What models run on; ``conformance`` puts another in its place."""


class MonographRep(BackendRep):
    """A model that has been imported; ``run`` runs it on the target of the day."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        return tuple(RUNNER(self.graph, [as_input(item) for item in inputs]))


class MonographBackend(Backend):
    """Nothing is excluded and nothing declined: a model that does not import is a failure."""

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> MonographRep:
        return MonographRep(from_onnx(model))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


def as_input(item: Any) -> Any:
    """Strings as the interpreter holds them, also inside sequences."""
    if isinstance(item, list):
        return [as_input(each) for each in item]
    if item is None:
        return None
    array = np.asarray(item)
    return array.astype(object) if array.dtype.kind in "US" else array
