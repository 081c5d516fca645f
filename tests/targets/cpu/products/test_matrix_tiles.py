"""Products of bytes by a matrix unit, which plain instructions play where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.ir.graph import Graph, Value
from monograph.kernel.contraction import as_contraction
from monograph.kernel.kernel import Kernel
from monograph.targets.cpu.machine import TileUnit, host, machine_named
from monograph.targets.cpu.nests.text import nest_text
from monograph.targets.cpu.nests.verify import ScheduleError, verify_nest
from monograph.targets.cpu.products.in_words import by_micro_kernel
from monograph.targets.cpu.products.matrix_tiles import (
    TileBlocks,
    panels_in_tiles,
    tile_nest,
)
from monograph.targets.micro_kernel import TILE_BYTES
from tests.kernel.build import flat

CHIP = "cpu:sapphirerapids"


@pytest.fixture(autouse=True)
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONOGRAPH_MATRIX_TILES", "emulated")


def draw(dtype: str, *shape: int, seed: int = 0) -> Any:
    known = np.iinfo(dtype)
    generator = np.random.default_rng(seed)
    return generator.integers(known.min, known.max + 1, shape).astype(dtype)


def multiplied(shape: Sequence[int], weight: Any, signed: bool) -> Graph:
    kind = "i8" if signed else "u8"
    return monograph.trace(
        lambda x: F.cast(x, "i32") @ F.cast(weight, "i32"), f"{kind}[{', '.join(map(str, shape))}]"
    )


def families(graph: Graph, target: str | None = None) -> list[str]:
    planned = compile_graph(graph, Options(target=target, cache=False)).program.planned
    return [each.plan.family for each in planned]


@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(48, 128, 64), (97, 200, 130), (113, 333, 96), (300, 260, 257), (55, 131, 90)],
)
@pytest.mark.parametrize("signed", [False, True])
def test_sums_are_exact_whatever_tiles_leave_over(m: int, k: int, n: int, signed: bool) -> None:
    x, weight = draw("int8" if signed else "uint8", m, k), draw("int8", k, n, seed=1)
    compiled = compile_graph(multiplied((m, k), weight, signed), Options(cache=False))
    assert [each.plan.family for each in compiled.program.planned] == ["matrix tiles"]
    expected = x.astype("i4") @ weight.astype("i4")
    (found,) = compiled(x)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("weights", [(96, 64), (3, 96, 64)])
def test_batches_share_weights_or_have_their_own(weights: tuple[int, ...]) -> None:
    x, weight = draw("uint8", 3, 48, 96), draw("int8", *weights, seed=1)
    graph = multiplied((3, 48, 96), weight, signed=False)
    assert "matrix tiles" in families(graph)
    (found,) = compile_graph(graph, Options(cache=False))(x)
    np.testing.assert_array_equal(found, x.astype("i4") @ weight.astype("i4"))


@pytest.mark.parametrize("stride", [1, 2])
def test_windows_of_an_image_are_copied(stride: int) -> None:
    weight = draw("int8", 48, 32, 3, 3, seed=1)

    def convolve(x: Value) -> Value:
        image = F.transpose(F.cast(x, "i32"), (0, 3, 1, 2))
        made = F.conv(image, F.cast(weight, "i32"), stride=(stride, stride))
        return F.transpose(made, (0, 2, 3, 1))

    graph, x = monograph.trace(convolve, "u8[2, 13, 15, 32]"), draw("uint8", 2, 13, 15, 32)
    assert "matrix tiles" in families(graph)
    (found,) = compile_graph(graph, Options(cache=False))(x)
    np.testing.assert_array_equal(found, monograph.interpret(graph, [x])[0])


def test_code_for_a_processor_that_has_one_configures_multiplies_and_releases() -> None:
    graph = multiplied((64, 256), draw("int8", 256, 64), signed=False)
    assert families(graph, CHIP) == ["matrix tiles"]
    options = Options(target=CHIP, cache=False, listings=True)
    assembly = compile_graph(graph, options).program.compiled.assembly
    names = ("ldtilecfg", "tilezero", "tileloadd", "tdpbusd", "tilestored", "tilerelease")
    places = [assembly.index(f"\t{name}") for name in names]
    assert places == sorted(places)
    assert assembly.count("\ttdpbusd") == assembly.count("\ttilezero") == 4


@pytest.mark.parametrize(
    ("shape", "columns"), [((7, 256), 64), ((64, 64), 9), ((33, 65), 65)], ids=str
)
def test_what_would_leave_tiles_empty_is_left_to_vectors(
    shape: tuple[int, int], columns: int
) -> None:
    graph = multiplied(shape, draw("int8", shape[1], columns), signed=False)
    assert "matrix tiles" not in families(graph, CHIP)


def test_the_environment_says_what_matrix_unit_the_host_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert host().tile_unit is TileUnit.EMULATED
    assert host().micro_kernels[0] is TILE_BYTES
    monkeypatch.setenv("MONOGRAPH_MATRIX_TILES", "off")
    assert host().tile_unit is TileUnit.NONE
    assert machine_named("sapphirerapids").tile_unit is TileUnit.AMX
    assert machine_named("x86-64-vnni").tile_unit is TileUnit.NONE


def nest_of(m: int, k: int, n: int, spare: int = 0) -> Any:
    found = as_contraction(
        flat(lambda a, b: F.cast(a, "i32") @ F.cast(b, "i32"), f"u8[{m}, {k}]", f"i8[{k}, {n}]")
    )
    assert found is not None
    words = by_micro_kernel(found, TILE_BYTES, is_weight=True)
    assert words is not None
    packing = panels_in_tiles(words.contraction)
    assert isinstance(packing, Kernel)
    (right,) = packing.outputs
    if spare:
        right = type(right)(right.name, right.dtype, (right.shape[0] - spare,))
    in_place = k % 64 == 0 and m % 16 == 0
    return tile_nest(words.contraction, TileBlocks(1, 1, in_place), right)


@pytest.mark.parametrize(("m", "k", "n"), [(48, 64, 32), (37, 68, 40)])
def test_tiles_stay_in_bounds(m: int, k: int, n: int) -> None:
    assert verify_nest(nest_of(m, k, n)) > m * n
    with pytest.raises(ScheduleError, match="outside its buffer"):
        verify_nest(nest_of(m, k, n, spare=1))


def test_a_listing_shows_what_tiles_are_multiplied() -> None:
    text = nest_text(nest_of(32, 128, 32))
    assert "words[1024*i_tile+512], rows 32 apart, 2 steps; right[1024*i_panel" in text
