"""The same kernels for chips that are not here: each must give an object file of its own kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.errors import ArtifactError, InputError
from monograph.runtime.artifact import check_processor
from monograph.targets.cpu.build import Program, build
from monograph.targets.cpu.machine import OTHERS, machine_named
from monograph.targets.cpu.target import LOWER_COMPOSITES
from monograph.targets.names import resolve_target

ELF_MACHINES = {"aarch64": 183, "riscv64": 243, "x86_64": 62}
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
        architecture = machine_named(chip).triple.split("-")[0]
        assert int.from_bytes(code[18:20], "little") == ELF_MACHINES[architecture]
    assert "entry" in (program.compiled.assembly or "")


@pytest.mark.parametrize(
    ("chip", "instruction"),
    [("aarch64", "fmla"), ("wasm32", "f32x4.add"), ("x86-64", "vfmadd"), ("riscv64", "fmadd")],
)
def test_vectors_of_the_chip_are_used(chip: str, instruction: str) -> None:
    assembly = built("gelu", chip).compiled.assembly
    assert instruction in (assembly or "")


def test_a_description_records_the_vectors_that_its_code_needs() -> None:
    needed = {32: "+avx2", 64: "+avx512f"}
    wide = [machine for machine in map(machine_named, OTHERS) if machine.vector_bytes > 16]
    assert {machine.vector_bytes for machine in wide} == {32, 64}
    for machine in wide:
        assert needed[machine.vector_bytes] in machine.features.split(","), machine


def test_code_for_wider_vectors_is_refused_where_there_are_none() -> None:
    old = resolve_target("cpu:x86-64-v2").record
    with pytest.raises(ArtifactError, match="avx2"):
        check_processor(resolve_target("cpu:x86-64").record, old)


@pytest.mark.parametrize(
    ("chip", "dtype", "instruction", "plain"),
    [
        ("x86-64-vnni", "u8", "vpdpbusd", "x86-64-v4"),
        ("aarch64-dotprod", "i8", "sdot", "aarch64"),
    ],
)
def test_chips_differ_in_the_instructions_that_multiply_bytes(
    chip: str, dtype: str, instruction: str, plain: str
) -> None:
    assert machine_named(chip).dots != machine_named(plain).dots
    weight = np.random.default_rng(0).integers(-128, 128, (32, 32), np.int8)

    def product(x: Any) -> Any:
        return F.matmul(F.cast(x, "i32"), F.cast(weight, "i32"))

    for name, is_expected in ((chip, True), (plain, False)):
        options = Options(target=f"cpu:{name}", listings=True, cache=False)
        program = compile_graph(monograph.trace(product, f"{dtype}[64, 32]"), options).program
        assert isinstance(program, Program)
        assert (instruction in (program.compiled.assembly or "")) == is_expected, name


def test_an_unknown_chip_is_refused() -> None:
    with pytest.raises(InputError, match="not a processor"):
        machine_named("z80")
