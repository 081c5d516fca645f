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


def run_stablehlo(module: str | bytes, arrays: Sequence[Array]) -> list[Array]:
    """What XLA computes of a StableHLO module on the CPU; of text, for the sizes of the arrays."""
    import jax
    from jax._src.lib import xla_client

    device = jax.devices("cpu")[0]
    devices = xla_client.DeviceList((device,))
    with jax.enable_x64(True):
        if isinstance(module, str) and ("dynamic_" in module or "?x" in module):
            module = _refine(module, arrays)
        program = device.client.compile_and_load(module, devices, xla_client.CompileOptions())
        given = [
            jax.device_put(np.ascontiguousarray(x).reshape(np.shape(x)), device) for x in arrays
        ]
        results = program.execute_sharded(given).disassemble_into_single_device_arrays()
        return [np.asarray(each[0]) for each in results]


def _refine(text: str, arrays: Sequence[Array]) -> bytes:
    """The module with sizes in the place of free ones: XLA itself compiles none that are free.

    A new main function takes the arrays' types and calls the old one; XLA's pass does the rest.
    """
    from jax._src.interpreters import mlir
    from jaxlib import _jax
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import func, stablehlo

    with mlir.make_ir_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        free = ir.SymbolTable(module.operation)["main"]
        declared = free.type
        ir.SymbolTable.set_symbol_name(free, "free_main")
        ir.SymbolTable.set_visibility(free, "private")
        types = [
            ir.RankedTensorType.get(np.shape(array), ir.RankedTensorType(type_).element_type)
            for array, type_ in zip(arrays, declared.inputs, strict=True)
        ]
        with ir.InsertionPoint(module.body):
            main = func.FuncOp("main", (types, declared.results))
            main.attributes["sym_visibility"] = ir.StringAttr.get("public")
            block = main.add_entry_block()
        with ir.InsertionPoint(block):
            pairs = zip(block.arguments, declared.inputs, strict=True)
            given = [x if x.type == type_ else stablehlo.convert(type_, x) for x, type_ in pairs]
            func.ReturnOp(func.CallOp(free, given).results)
        refined: bytes = _jax.mlir.refine_polymorphic_shapes(
            mlir.module_to_bytecode(module),
            enable_shape_assertions=True,
            validate_static_shapes=True,
        )
        return refined


def run_hlo(text: str, arrays: Sequence[Array]) -> list[Array]:
    """What XLA computes of an HLO module, parsed from its text."""
    from jaxlib import _hlo, _jax

    proto = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    return run_stablehlo(_jax.mlir.hlo_to_stablehlo(proto), arrays)


def run_onnx(model: bytes, arrays: Sequence[Array]) -> list[Array]:
    """What ONNX Runtime computes of a model."""
    import onnxruntime  # type: ignore[import-untyped]  # has no stubs

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised, too
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    results: list[Array] = session.run(None, dict(zip(names, arrays, strict=True)))
    return results
