"""Running sums, interpreted and compiled: how exact they are."""

from __future__ import annotations

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.ir.interpret import interpret
from monograph.ir.types import TensorType, dtype_of


@pytest.mark.parametrize("dtype", ["f32", "c64"])
@pytest.mark.parametrize(("shape", "axis"), [((20_000,), 0), ((300, 16), 0), ((16, 300), 1)])
def test_long_running_sums_round_once(dtype: str, shape: tuple[int, ...], axis: int) -> None:
    """Each result is rounded from a running sum that is more precise, as torch's is."""
    x = np.random.default_rng(0).normal(size=shape).astype(dtype_of(dtype).numpy)
    exact = np.cumsum(x.astype(np.complex128), axis)
    graph = monograph.trace(lambda x: F.cumsum(x, axis), TensorType(dtype_of(dtype), shape))
    for (got,) in (interpret(graph, [x]), compile_graph(graph, Options(cache=False)).run([x])):
        assert np.max(np.abs(got - exact)) <= np.finfo(np.float32).eps * np.max(np.abs(exact))
