"""The same kernels for chips that are not here: each must give an object file of its own kind."""

from __future__ import annotations

from typing import Any

import pytest

import monograph
from monograph import functional as F
from monograph.errors import InputError
from monograph.targets.cpu.build import Program, build
from monograph.targets.cpu.machine import OTHERS, machine_named
from monograph.targets.cpu.target import LOWER_COMPOSITES

ELF_MACHINES = {"aarch64": 183, "riscv64": 243, "x86-64": 62}
PROGRAMS: dict[str, tuple[Any, ...]] = {
    "gelu": (lambda x: F.gelu(x), "f32[700]"),
    "softmax": (lambda x: F.softmax(x, -1), "f32[n, 100]"),
    "matmul": (lambda x, y: F.relu(x @ y), "f32[9, 17]", "f32[17, 33]"),
    "halves": (lambda x, y: F.cast(x, "f32") * F.cast(y, "f32"), "f16[100]", "bf16[100]"),
    "integers": (lambda x, y: x // y + x % y, "i8[64]", "i8[64]"),
    "f64": (lambda x: F.exp(x) + F.sin(x), "f64[64]"),
    "attention": (F.attention, *["f32[1, 2, n, 20]"] * 3),
    "gather": (lambda x, i: F.take(x, i, axis=0), "f32[10, 8]", "i64[5]"),
}


def built(name: str, chip: str) -> Program:
    function, *types = PROGRAMS[name]
    graph = monograph.trace(function, *types)
    LOWER_COMPOSITES.run(graph)
    return build(graph, machine_named(chip), listings=True)


@pytest.mark.parametrize("chip", OTHERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_objects_are_of_the_chip_s_own_kind(name: str, chip: str) -> None:
    program = built(name, chip)
    code = program.compiled.object
    if chip == "wasm32":
        assert code[:8] == b"\0asm\1\0\0\0"
    else:
        assert code[:4] == b"\x7fELF"
        assert int.from_bytes(code[18:20], "little") == ELF_MACHINES[chip.partition("-v")[0]]
    assert "entry" in (program.compiled.assembly or "")


@pytest.mark.parametrize(
    ("chip", "instruction"),
    [("aarch64", "fmla"), ("wasm32", "f32x4.add"), ("x86-64", "vfmadd"), ("riscv64", "fmadd")],
)
def test_vectors_of_the_chip_are_used(chip: str, instruction: str) -> None:
    assembly = built("gelu", chip).compiled.assembly
    assert instruction in (assembly or "")


def test_an_unknown_chip_is_refused() -> None:
    with pytest.raises(InputError, match="not a processor"):
        machine_named("z80")
