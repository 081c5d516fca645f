"""Products of integers with scales by block: by the instruction, without one, for free sizes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.errors import TypeRuleError
from monograph.frontends.trace import trace
from monograph.ir.graph import Graph, Value
from monograph.ir.interpret import interpret
from monograph.targets.cpu.build import build
from monograph.targets.cpu.machine import AVX2_BYTES, Machine, host, machine_named
from monograph.targets.cpu.target import LOWER_COMPOSITES

OUTPUTS, INPUTS, BLOCK = 70, 96, 32


def layer(spec: str, dtype: str = "u4") -> Graph:
    random = np.random.default_rng(0)
    weight = random.integers(0, 16, (OUTPUTS, INPUTS))
    scale = random.uniform(0.01, 0.1, (OUTPUTS, INPUTS // BLOCK)).astype(np.float32)
    point = random.integers(0, 16, scale.shape)

    def model(x: Value) -> Value:
        points = F.cast(point, dtype)
        return F.blocked_linear(x, F.cast(weight, dtype), scale, points, block=BLOCK)

    return trace(model, spec)


@pytest.mark.parametrize("rows", [1, 2, 5, 9])
def test_a_free_number_of_rows(rows: int) -> None:
    graph = layer("f32[rows, 96]")
    x = np.random.default_rng(1).normal(size=(rows, INPUTS)).astype(np.float32)
    (expected,) = interpret(graph, [x])
    (found,) = monograph.compile(graph, cache=False, strict=True)(x)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_no_rows_and_blocks_that_do_not_fit() -> None:
    (found,) = monograph.compile(layer("f32[0, 96]"), cache=False, strict=True)(
        np.zeros((0, 96), "f4")
    )
    assert found.shape == (0, OUTPUTS)
    with pytest.raises(TypeRuleError, match="k is a number of whole blocks"):
        trace(
            lambda x: F.blocked_linear(x, np.zeros((3, 30), "i1"), np.ones((3, 1)), block=30),
            "f32[2, 30]",
        )


def test_without_an_instruction_it_is_decomposed(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = layer("f32[3, 96]")
    x = np.random.default_rng(1).normal(size=(3, INPUTS)).astype(np.float32)
    (expected,) = interpret(graph, [x])
    monkeypatch.setattr(Machine, "dots", {})
    compiled = monograph.compile(graph, cache=False, strict=True)
    np.testing.assert_allclose(compiled(x)[0], expected, rtol=1e-4, atol=1e-4)
    assert not any("blocked" in kernel.name for kernel in compiled.report.kernels)


@pytest.mark.parametrize(
    ("chip", "features", "instruction"),
    [
        ("x86-64", "+avx512vnni,+avx512vl,+avx512bw", "vpdpbusd"),
        ("x86-64", "+avx2", "vpmaddubsw"),
        ("aarch64", "+dotprod", "sdot"),
    ],
)
def test_four_bits_are_unpacked_in_registers(chip: str, features: str, instruction: str) -> None:
    machine = replace(machine_named(chip), features=features)
    graph = layer("f32[1, 96]")
    LOWER_COMPOSITES.run(graph)
    program = build(graph, machine, listings=True)
    assembly = program.compiled.assembly
    assert assembly is not None and instruction in assembly
    (kernel,) = [each for each in program.kernels if each.name.endswith("blocked")]
    assert "unpack(u4" in kernel.summary


@pytest.mark.skipif("+avx2" not in host().features.split(","), reason="runs AVX2's instructions")
@pytest.mark.parametrize("dtype", ["u4", "i4", "u8"])
def test_pairs_of_sixteen_bits_are_exact(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Machine, "dots", {AVX2_BYTES.function: AVX2_BYTES})
    least, most = (-8, 7) if dtype == "i4" else (0, 15)
    weight = np.where(np.arange(64 * 32).reshape(64, 32) % 2, least, most)
    graph = trace(
        lambda x: F.blocked_linear(x, F.cast(weight, dtype), np.ones((64, 1), "f4"), block=32),
        "f32[2, 32]",
    )
    x = np.array([[127.0] * 32, [-127.0] * 32], np.float32)
    (expected,) = interpret(graph, [x])
    compiled = monograph.compile(graph, cache=False, strict=True)
    np.testing.assert_array_equal(compiled(x)[0], expected)
    assert any("unpack" in str(each) for each in compiled.report.kernels) == (dtype != "u8")


def test_each_block_of_a_row_is_rounded_by_itself() -> None:
    graph = layer("f32[1, 96]")
    x = np.zeros((1, INPUTS), np.float32)
    x[0, :BLOCK] = 1e-6
    x[0, BLOCK : 2 * BLOCK] = 1e6
    (y,) = monograph.compile(graph, cache=False)(x)
    alone = np.where(np.arange(INPUTS) < BLOCK, x, 0).astype(np.float32)
    (small,) = monograph.compile(graph, cache=False)(alone)
    (reference,) = interpret(graph, [alone])
    np.testing.assert_allclose(small, reference, rtol=1e-4, atol=1e-9)
    assert np.isfinite(y).all()
