"""What the machine can do is measured by loops whose results can be checked, and kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from monograph.inspect import roofline
from monograph.inspect.roofline import (
    MemoryLevel,
    Roofline,
    load_or_measure_roofline,
    measure_roofline,
)
from monograph.inspect.stream_kernels import ARRAYS_MOVED, STEP, StreamKernels

ROOFS = Roofline(
    "a machine",
    2,
    100e9,
    (
        MemoryLevel("L2", 1 << 20, 200e9),
        MemoryLevel("L3", 1 << 24, 50e9),
        MemoryLevel("memory", None, 25e9),
    ),
)


@pytest.mark.parametrize("name", ARRAYS_MOVED)
def test_a_stream_moves_all_of_its_arrays(name: str) -> None:
    """A loop that skipped some would measure too high a rate."""
    kernels = StreamKernels()
    rng = np.random.default_rng(0)
    room = rng.standard_normal((3, 4 * STEP + 16)).astype(np.float32)
    a, b, c = (row[-row.ctypes.data % 64 // 4 :][: 4 * STEP] for row in room)
    kernels.kernels[name](a.ctypes.data, b.ctypes.data, c.ctypes.data, a.size, 2)
    expected = {"copy": b, "triad": b + c, "cached_triad": b + c}
    if name in expected:
        np.testing.assert_array_equal(a, expected[name])
    else:
        np.testing.assert_allclose(a[:8].sum(), b.sum(), rtol=1e-3, atol=1e-3)


def test_what_multiplies_does_as_much_as_it_counts() -> None:
    kernels = StreamKernels()
    a, b, c = (np.zeros(16, np.float32) for _ in range(3))
    b[:], c[:] = 2, 3
    kernels.kernels["multiply"](a.ctypes.data, b.ctypes.data, c.ctypes.data, 5, 3)
    assert a[: kernels.lanes].sum() * 2 / 6 == kernels.flops(5)


def test_the_lowest_roof_bounds_a_kernel() -> None:
    small = ROOFS.place(flops=1000, traffic=[(1 << 19, 1 << 19)], seconds=1e-3)
    large = ROOFS.place(flops=1000, traffic=[(1 << 26, 1 << 26)], seconds=2 * (1 << 26) / 25e9)
    product = ROOFS.place(flops=10**9, traffic=[(1 << 20, 1 << 20)], seconds=0.02)
    assert small is not None and small.bound == "L2"
    assert large is not None and (large.bound, large.reached) == ("memory", pytest.approx(0.5))
    assert product is not None and (product.bound, product.reached) == ("compute", 0.5)
    assert ROOFS.place(flops=0, traffic=[], seconds=1.0) is None


def test_weights_come_from_memory_where_all_of_them_fit_nowhere_nearer() -> None:
    weights, others = (1 << 20, 1 << 30), (1 << 20, 1 << 21)
    least, bound = ROOFS.floor(0, [weights, others])
    assert bound == "memory"
    assert least == pytest.approx((1 << 20) / 25e9 + (1 << 20) / 50e9)


def test_this_machine_has_roofs_in_order() -> None:
    found = measure_roofline(1, rounds=1)
    assert found.flops > 1e8
    cached = found.levels[0].bandwidth
    assert cached > found.bandwidth / 2 > 1e8, "half: others may have the core for a while"
    assert "GFLOP/s" in str(found)


def test_the_figures_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONOGRAPH_CACHE", "1")
    monkeypatch.setenv("MONOGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(roofline, "measure_roofline", lambda *_: ROOFS)
    assert load_or_measure_roofline(2) == ROOFS
    lower = Roofline("a machine", 2, 50e9, ROOFS.levels)
    monkeypatch.setattr(roofline, "measure_roofline", lambda *_: lower)
    assert load_or_measure_roofline(2) == ROOFS
    assert load_or_measure_roofline(2, again=True) == ROOFS
    higher = Roofline("a machine", 2, 150e9, ROOFS.levels)
    monkeypatch.setattr(roofline, "measure_roofline", lambda *_: higher)
    assert load_or_measure_roofline(2, again=True) == higher
    assert load_or_measure_roofline(2) == higher
