"""Blocks of products for many threads: all of them have work, and results stay the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.targets.cpu import machine as machines
from monograph.targets.cpu.machine import Machine, host
from monograph.targets.cpu.products.grid import ProductSize, choose_grid, is_cache_crowded

SIZES = [(14, 0, 14, 32), (9, 11, 13, 24), (3, 7, 14, 16), (224, 0, 14, 8), (1, 0, 14, 64)]


def with_threads(count: int) -> Machine:
    return replace(host(), threads=count)


@pytest.mark.parametrize("threads", [3, 8, 16, 96])
@pytest.mark.parametrize(("tiles", "tail", "height", "panels"), SIZES)
def test_blocks_leave_few_threads_idle(
    tiles: int, tail: int, height: int, panels: int, threads: int
) -> None:
    size = ProductSize(tiles, tail, height, panels, 32, 256, 1, 4)
    grid = choose_grid(size, with_threads(threads), most_tiles=tiles, most_sums=1 << 20)
    blocks = -(-tiles // grid.tiles) * -(-panels // grid.panels)
    rounds = -(-blocks // threads)
    work = rounds * threads * grid.tiles * grid.panels
    least = max(tiles * panels, threads)  # a tile of one panel is not cut
    assert work <= 1.5 * least + threads


def test_blocks_stay_within_their_bounds() -> None:
    size = ProductSize(100, 0, 14, 100, 32, 4096, 1, 4)
    grid = choose_grid(size, with_threads(16), most_tiles=7, most_sums=20)
    assert grid.tiles <= 7 and grid.tiles * grid.panels <= 20


def test_a_few_threads_do_not_crowd_the_last_cache() -> None:
    assert not is_cache_crowded(with_threads(2))
    assert is_cache_crowded(with_threads(64))


def test_results_are_the_same_bits_on_any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 197
    generator = np.random.default_rng(rows)
    shapes = ((48, 96), (96, 64), (64, 33))
    weights = [generator.normal(size=shape).astype(np.float32) for shape in shapes]
    image = [generator.normal(size=(32, 16, 3, 3)), generator.normal(size=(64, 32, 1, 1))]
    filters = [each.astype(np.float32) for each in image]

    def layers(x: monograph.Value) -> monograph.Value:
        for weight in weights:
            x = F.relu(x @ weight)
        return x

    def picture(x: monograph.Value) -> monograph.Value:
        x = F.relu(F.conv(x, filters[0], padding=((1, 1), (1, 1))))
        return F.relu(F.conv(x, filters[1]))

    x = generator.normal(size=(rows, 48)).astype(np.float32)
    y = generator.normal(size=(1, 16, rows, 13)).astype(np.float32)
    found = []
    for threads in (2, 61):
        monkeypatch.setattr(machines, "processor_count", lambda threads=threads: threads)
        assert host().threads == threads
        found.append(
            [
                np.asarray(monograph.compile(layers, f"f32[{rows}, 48]")(x)),
                np.asarray(monograph.compile(picture, f"f32[1, 16, {rows}, 13]")(y)),
            ]
        )
    for got, expected in zip(*found, strict=True):
        np.testing.assert_array_equal(got, expected)
