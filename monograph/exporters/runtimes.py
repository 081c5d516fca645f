"""Runs what was exported in the format's own runtime: torch, ONNX Runtime, XLA through jaxlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from monograph.ir.types import Array


def run_torch(module: Any, arrays: Sequence[Array]) -> list[Array]:
    """What a module of torch, or a ScriptModule, returns."""
    import torch

    from monograph.frontends.torch.types import array_from_torch, array_to_torch

    with torch.no_grad():
        returned = module(*map(array_to_torch, arrays))
    results = returned if isinstance(returned, list | tuple) else (returned,)
    return [array_from_torch(each) for each in results]


def run_stablehlo(text: str, arrays: Sequence[Array]) -> list[Array]:
    """What XLA computes of a StableHLO module on the CPU."""
    import jax
    from jax._src.lib import xla_client

    device = jax.devices("cpu")[0]
    devices = xla_client.DeviceList((device,))
    with jax.enable_x64(True):
        program = device.client.compile_and_load(text, devices, xla_client.CompileOptions())
        given = [
            jax.device_put(np.ascontiguousarray(x).reshape(np.shape(x)), device) for x in arrays
        ]
        results = program.execute_sharded(given).disassemble_into_single_device_arrays()
        return [np.asarray(each[0]) for each in results]


def run_hlo(text: str, arrays: Sequence[Array]) -> list[Array]:
    """What XLA computes of an HLO module, parsed from its text."""
    from jaxlib import _hlo, _jax

    proto = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    return run_stablehlo(_jax.mlir.hlo_to_stablehlo(proto), arrays)


def run_onnx(model: bytes, arrays: Sequence[Array]) -> list[Array]:
    """What ONNX Runtime computes of a model."""
    import onnxruntime  # type: ignore[import-untyped]  # has no stubs

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    results: list[Array] = session.run(None, dict(zip(names, arrays, strict=True)))
    return results
