"""Products of bytes by each processor's instruction, and right without one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.frontends.trace import trace
from monograph.ir.graph import Graph, Value
from monograph.ir.interpret import interpret
from monograph.passes.narrow_integer_products import NarrowIntegerProducts
from monograph.targets.cpu.build import build
from monograph.targets.cpu.machine import Machine, machine_named
from monograph.targets.cpu.target import LOWER_COMPOSITES

CHIPS = {
    "AVX2": ("x86-64", "+avx2", 32, None),
    "AVX-VNNI": ("x86-64", "+avxvnni", 32, "vpdpbusd"),
    "AVX-512 VNNI": ("x86-64", "+avx512vnni,+avx512vl,+avx512bw", 64, "vpdpbusd"),
    "NEON": ("aarch64", "+neon", 16, None),
    "NEON dotprod": ("aarch64", "+neon,+dotprod", 16, "sdot"),
}


def convolution(groups: int = 1) -> Graph:
    weight = np.random.default_rng(0).integers(-128, 128, (32, 32 // groups, 3, 3), np.int8)

    def model(x: Value) -> Value:
        return F.conv(F.cast(x, "i32") - 7, F.cast(weight, "i32"), padding=1, groups=groups)

    return trace(model, "u8[1, 32, 8, 9]")


@pytest.mark.parametrize("name", CHIPS)
def test_a_description_says_which_instruction_there_is(name: str) -> None:
    chip, features, vector_bytes, instruction = CHIPS[name]
    machine = replace(machine_named(chip), features=features, vector_bytes=vector_bytes)
    graph = convolution()
    LOWER_COMPOSITES.run(graph)
    NarrowIntegerProducts().run(graph)
    assembly = build(graph, machine, listings=True).compiled.assembly
    assert assembly is not None
    found = {each for each in ("vpdpbusd", "sdot") if each in assembly}
    assert found == ({instruction} if instruction else set())


@pytest.mark.parametrize("groups", [1, 32])
def test_sums_are_the_same_without_an_instruction(
    groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = convolution(groups)
    image = np.random.default_rng(1).integers(0, 256, (1, 32, 8, 9), np.uint8)
    (expected,) = interpret(graph, [image])
    monkeypatch.setattr(Machine, "dots", {})
    (found,) = monograph.compile(graph, cache=False)(image)
    assert np.array_equal(found, expected)
