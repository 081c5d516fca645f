"""The text of the functions that Python calls: it is LLVM's, for any processor."""

from __future__ import annotations

import llvmlite.binding as llvm
import pytest

from monograph.targets.cpu.entry_point.python_call import ArrayLayout, TensorLayout, call_module
from monograph.targets.cpu.machine import machine_named

ARRAY = ArrayLayout(data=16, axes=24, sizes=32, strides=40, dtype=56)
TENSOR = TensorLayout(
    tensor=16, storage=16, axes=56, offset=144, dtype=160, keys_at=168, data=16, keys=(5, 1)
)


@pytest.mark.parametrize("chip", ("x86-64", "aarch64", "riscv64"))
@pytest.mark.parametrize(("tensor", "name"), ((None, "call_arrays"), (TENSOR, "call_tensors")))
def test_it_assembles(chip: str, tensor: TensorLayout | None, name: str) -> None:
    machine = machine_named(chip)
    module = llvm.parse_assembly(call_module(machine.triple, ARRAY, tensor))
    module.verify()
    assert name in machine.target_machine(0).emit_assembly(module)
