"""Choices that edits overrule, and the sites that a recorder remembers."""

from __future__ import annotations

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.runtime.cpu.native import Native
from monograph.targets.cpu.knobs import KNOBS, edit, knobs
from monograph.targets.cpu.loops.schedule import Schedule
from monograph.targets.cpu.machine import host
from monograph.targets.cpu.products.tiles import Reading, Segment, Tiling
from monograph.targets.cpu.single import KernelInputs
from monograph.targets.cpu.tuning import Recorder, Site, Tuning

WEIGHT = np.linspace(-1, 1, 64 * 96, dtype=np.float32).reshape(64, 96)

KERNEL = np.linspace(-1, 1, 32 * 3 * 3 * 3, dtype=np.float32).reshape(32, 3, 3, 3)


def _layer(x: monograph.Value) -> monograph.Value:
    return F.softmax(F.relu(x @ WEIGHT), axis=-1)


def _twice(x: monograph.Value) -> monograph.Value:
    square = np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64)
    return F.softmax(F.softmax(x @ square, axis=-1) @ (2 * square), axis=-1)


GRAPHS = {
    "product and rows": monograph.trace(_layer, "f32[24, 64]"),
    "symbolic": monograph.trace(_layer, "f32[batch, 64]"),
    "chain": monograph.trace(lambda x: F.relu(x) * 2.0, "f32[8, 40000]"),
    "column sums": monograph.trace(lambda x: F.sum(x, axis=0), "f32[300, 700]"),
    "attention": monograph.trace(
        lambda q, k, v: F.attention(q, k, v),
        *("f32[2, 70, 32]", "f32[2, 90, 32]", "f32[2, 90, 32]"),
    ),
    "transpose": monograph.trace(lambda x: F.transpose(x, (1, 0)) + 1.0, "f32[96, 160]"),
    "padded windows": monograph.trace(
        lambda x: F.relu(F.conv(x, KERNEL, stride=2, padding=1)),
        "f32[1, 3, 20, 20]",
    ),
}


def _sites(graph: monograph.Graph) -> list[Site]:
    """What compiling records; the search itself has no time at all."""
    recorder = Recorder()
    compile_graph(graph, Options(tuning=recorder, cache=False))
    return list(recorder.sites.values())


@pytest.mark.usefixtures("unfenced")  # what is measured alone writes to memory that it is given
@pytest.mark.parametrize("name", GRAPHS)
def test_every_value_of_every_knob_computes_the_same(name: str) -> None:
    sites = _sites(GRAPHS[name])
    assert sites
    for site in sites:
        stage = KernelInputs(site, host())

        def run(
            edits: dict[str, int], site: Site = site, stage: KernelInputs = stage
        ) -> list[np.ndarray]:
            single = stage.build(edit(site.choice, edits))
            for array in stage.written:
                array.fill(9)
            native = Native(single.code, single.graph, 2, guards=(), verify=False)
            native(list(single.arrays))
            return [array.copy() for array in stage.written]

        expected = run({})
        assert all((array != 9).any() for array in expected)
        for knob, values in knobs(site.choice, host()).items():
            assert knob in KNOBS
            for value in values[:2]:
                for got, wanted in zip(run({knob: value}), expected, strict=True):
                    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_equal_kernels_are_one_site_that_is_launched_twice() -> None:
    sites = _sites(monograph.trace(_twice, "f32[32, 64]"))
    assert [site.launches for site in sites] == [2, 2]


def test_what_runs_once_is_no_site() -> None:
    sites = _sites(GRAPHS["product and rows"])
    assert all("pack" not in site.name for site in sites)
    products = [site for site in sites if isinstance(site.choice, Tiling)]
    assert [site.constant for site in products] == [(False, True)]


def test_edits_change_the_program_and_its_digest_names_them() -> None:
    graph = GRAPHS["column sums"]
    (site,) = _sites(graph)
    assert isinstance(site.choice, Schedule)
    width = site.choice.width // 2
    tuning = Tuning({site.digest: {"width": width}}, edit)
    executable = compile_graph(graph, Options(tuning=tuning, cache=False))
    assert executable.program is not None
    assert [each.schedule.width for each in executable.program.kernels if each.schedule] == [width]
    assert executable.report.tuning == {site.digest: {"width": width}}
    assert Tuning().digest == ""
    assert tuning.digest == Tuning({site.digest: {"width": width}}).digest
    assert tuning.digest != Tuning({site.digest: {"width": 2 * width}}).digest


def test_another_site_keeps_its_choice() -> None:
    choice = Schedule((), 0, 0, grain=3)
    tuning = Tuning({"here": {"grain": 12}}, edit)
    assert tuning("here", choice).grain == 12
    assert tuning("there", choice) is choice


def test_a_height_cuts_all_rows_into_tiles() -> None:
    tiling = Tiling((Segment(0, 6, 4),), 6, 16, 0, 4, 2, Reading.IN_PLACE, Reading.PACKED)
    changed = edit(tiling, {"height": 5, "block_panels": 4})
    assert isinstance(changed, Tiling)
    assert sum(each.rows * each.count for each in changed.rows) == 24
    assert max(each.rows for each in changed.rows) <= 5
    assert changed.block_panels == 4 and changed.columns == 16


def test_a_tile_with_its_operands_fits_in_the_registers() -> None:
    tiling = Tiling((Segment(0, 6, 4),), 6, 16, 0, 4, 2, Reading.IN_PLACE, Reading.PACKED)
    lanes = host().vector_bytes // 4
    turned = knobs(tiling, host())
    for height in turned["height"]:
        assert (height + 1) * 16 // lanes + 1 <= host().registers
    for columns in turned["columns"]:
        assert 7 * columns // lanes + 1 <= host().registers
