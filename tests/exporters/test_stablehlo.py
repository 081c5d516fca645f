"""StableHLO text that is written here, parsed and run by jaxlib, on the samples of every op."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

jax = pytest.importorskip("jax")
from jax._src.lib import xla_client  # noqa: E402

import monograph  # noqa: E402
from monograph import functional as F  # noqa: E402
from monograph.errors import UnsupportedError  # noqa: E402
from monograph.exporters.stablehlo import DTYPES, WRITTEN, to_stablehlo  # noqa: E402
from monograph.frontends.stablehlo import from_stablehlo  # noqa: E402
from tests.ops.harness import sample_graph, samples_by_op  # noqa: E402

PRECISE = {np.dtype(np.float16): 2e-3, np.dtype(ml_dtypes.bfloat16): 2e-2}
SAMPLES = samples_by_op()
QUICK = ("add", "cast", "dot_general", "is_finite", "pad", "slice", "sum", "transpose", "where")
"""Ops of every kind that is written; the others' samples are compiled by ``make test-slow``."""


def run(text: str, arrays: list[Any]) -> list[Any]:
    """What jaxlib computes of a module."""
    device = jax.devices("cpu")[0]
    devices = xla_client.DeviceList((device,))
    with jax.enable_x64(True):
        program = device.client.compile_and_load(text, devices, xla_client.CompileOptions())
        given = [
            jax.device_put(np.ascontiguousarray(x).reshape(np.shape(x)), device) for x in arrays
        ]
        results = program.execute_sharded(given).disassemble_into_single_device_arrays()
        return [np.asarray(x[0]) for x in results]


def without_denormals(x: Any) -> Any:
    """XLA takes denormals for zeros on a CPU; what is compared has none."""
    if x.dtype.kind != "f":
        return x
    return np.where(np.abs(x) < np.finfo(x.dtype).tiny, np.copysign(0, x), x).astype(x.dtype)


def assert_close(found: Any, expected: Any) -> None:
    assert found.dtype == expected.dtype and found.shape == expected.shape
    tolerance = PRECISE.get(expected.dtype, 2e-6)
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(found.astype(wide), expected.astype(wide), tolerance, tolerance)


@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in sorted(WRITTEN & set(SAMPLES))
    ],
)
def test_samples_agree_with_jaxlib(name: str) -> None:
    tried = 0
    for _, sample in SAMPLES[name]:
        graph = sample_graph(sample)
        values = [*graph.inputs, *(value for node in graph.nodes for value in node.results)]
        if any(value.dtype.name not in DTYPES for value in values):
            continue
        arrays = [without_denormals(np.asarray(x)) for x in sample.operands]
        expected = monograph.interpret(graph, arrays)
        for found, own in zip(run(to_stablehlo(graph), arrays), expected, strict=True):
            assert_close(found, np.asarray(own))
        tried += 1
    assert tried


def test_a_model_goes_out_and_comes_back() -> None:
    def model(x: Any, w: Any) -> Any:
        hidden = F.gelu(F.layer_norm(x, axis=-1) @ w, "tanh")
        return F.softmax(hidden, -1), F.sum(F.silu(hidden), 0)

    graph = monograph.trace(model, "f32[5, 4]", "f32[4, 3]")
    arrays = [
        np.random.default_rng(k).normal(size=s).astype("f4") for k, s in ((0, (5, 4)), (1, (4, 3)))
    ]
    expected = monograph.interpret(graph, arrays)
    text = to_stablehlo(graph)
    for found in (run(text, arrays), monograph.interpret(from_stablehlo(text), arrays)):
        for a, b in zip(found, expected, strict=True):
            assert_close(a, b)


def test_an_op_that_is_not_written_is_named() -> None:
    graph = monograph.trace(lambda x: F.sort(x, 0), "f32[4]")
    with pytest.raises(UnsupportedError, match="sort"):
        to_stablehlo(graph)
