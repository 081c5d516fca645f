"""Every op that a format claims, run in the format's own runtime, on the op's samples.

python -m tests.exporters.claims                # all formats: ops claimed, samples equal
python -m tests.exporters.claims torchscript sum
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

import monograph
from monograph.errors import UnsupportedError
from monograph.exporters.runtimes import run_hlo, run_stablehlo, run_torch
from monograph.ir.graph import Graph
from monograph.ir.op import Sample
from tests.ops.harness import sample_graph, samples_by_op

TOLERANCES = {
    np.dtype(np.float16): 4e-3,
    np.dtype(ml_dtypes.bfloat16): 3e-2,
    np.dtype(np.float64): 1e-9,
    np.dtype(np.complex128): 1e-9,
}
"""Of a number and of its smallest neighbours; 1e-5 for the others."""
NARROW = 0.2  # floats of 8 bits have two or three digits in base two

Run = Callable[[Any, Sequence[np.ndarray]], list[np.ndarray]]


@dataclass(frozen=True)
class Runtime:
    """A format: how a graph is written, how what is written runs, and where it may differ.

    ``differs`` names ops or samples whose answers are the runtime's own, with the reason;
    ``loose`` are tolerances of functions that the runtime has less accurate ones of.
    """

    name: str
    write: Callable[[Graph], Any]
    run: Run
    differs: dict[str, str] = field(default_factory=dict)
    loose: dict[str, float] = field(default_factory=dict)
    prepare: Callable[[np.ndarray], np.ndarray] = lambda array: array


@dataclass
class Count:
    """What became of an op's samples."""

    equal: int = 0
    refused: int = 0
    """By the exporter, with an error that names the op."""
    different: int = 0
    """Where the table says why."""


def check_op(runtime: Runtime, op: str, samples: Sequence[tuple[str, Sample]]) -> Count:
    """Export and run every sample; an AssertionError names the first that is wrong."""
    count = Count()
    for name, sample in samples:
        graph = sample_graph(sample)
        arrays = [runtime.prepare(np.array(each)) for each in sample.operands]
        try:
            written = runtime.write(graph)
        except UnsupportedError:
            count.refused += 1
            continue
        if name in runtime.differs or op in runtime.differs:
            count.different += 1
            continue
        expected = monograph.interpret(graph, arrays)
        try:
            got = runtime.run(written, arrays)
            for one, other in zip(got, expected, strict=True):
                assert_close(one, np.asarray(other), runtime.loose.get(op))
        except Exception as error:
            raise AssertionError(f"{runtime.name}, {name}: {error}") from error
        count.equal += 1
    return count


def assert_close(got: np.ndarray, expected: np.ndarray, loose: float | None = None) -> None:
    """The same dtype, shape, integers, NaNs and infinities; floats within rounding."""
    assert got.dtype == expected.dtype and got.shape == expected.shape, (
        f"{got.dtype}{list(got.shape)} instead of {expected.dtype}{list(expected.shape)}"
    )
    if expected.dtype.kind in "iub":
        np.testing.assert_array_equal(got, expected)
        return
    tolerance = loose or TOLERANCES.get(expected.dtype, 1e-5)
    if expected.dtype.itemsize == 1:
        tolerance = NARROW
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(got.astype(wide), expected.astype(wide), tolerance, tolerance)


def torch_runtimes() -> list[Runtime]:
    """FX and TorchScript."""
    from monograph.exporters.fx import to_fx, to_torchscript

    infinite = "torch's own function gives NaN at an infinity, where ours has its limit"
    differs = {
        **dict.fromkeys(
            (
                *("airy_ai-4-special", "bessel_i0-4-special", "bessel_i1-4-special"),
                *("bessel_j0-4-special", "bessel_j1-4-special", "bessel_y0-4-special"),
                *("bessel_y1-4-special", "gelu-4-none-special", "gelu-11-tanh-special"),
                *("hardswish-4-special", "mish-4-special", "silu-4-special"),
                "softsign-4-special",
            ),
            infinite,
        ),
        **dict.fromkeys(("eigh", "svd", "eig"), "vectors are unique up to their sign"),
    }
    loose = {"bessel_j1": 2e-6, "bessel_y1": 2e-6, "bessel_j0": 2e-6, "bessel_y0": 2e-6}
    return [
        Runtime("fx", to_fx, run_torch, differs, loose),
        Runtime("torchscript", to_torchscript, run_torch, differs, loose),
    ]


def without_denormals(x: np.ndarray) -> np.ndarray:
    """XLA takes denormals for zeros on a CPU; what is compared has none."""
    if x.dtype.kind != "f" or x.dtype.itemsize == 1:
        return x
    return np.where(np.abs(x) < ml_dtypes.finfo(x.dtype).tiny, np.copysign(0, x), x).astype(x.dtype)


def xla_runtimes() -> list[Runtime]:
    """StableHLO and HLO, both run by jaxlib; none where it is not installed."""
    import importlib.util

    if importlib.util.find_spec("jaxlib") is None:
        return []
    from monograph.exporters.hlo import to_hlo
    from monograph.exporters.stablehlo import to_stablehlo

    differs = {
        "digamma-4-special": "XLA gives NaN at both zeros and at infinity",
        "polygamma-4-special": "XLA gives NaN at infinity",
        **dict.fromkeys(("power-9-i32", "power-11-u8"), "XLA's own answer for large exponents"),
        "triangular_solve-30-singular": "XLA multiplies by the inverse of a block",
    }
    loose: dict[str, float] = {}
    return [
        Runtime("stablehlo", to_stablehlo, run_stablehlo, differs, loose, without_denormals),
        Runtime("hlo", to_hlo, run_hlo, differs, loose, without_denormals),
    ]


def runtimes() -> list[Runtime]:
    """Every format with a runtime on this machine."""
    return [*torch_runtimes(), *xla_runtimes()]


def main(names: Sequence[str]) -> int:
    """Print the counts; the number of ops that are wrong."""
    warnings.simplefilter("ignore")
    samples = samples_by_op()
    wrong = 0
    chosen = [each for each in names if each in samples]
    for runtime in runtimes():
        if names and runtime.name not in names and len(chosen) < len(names):
            continue
        total, claimed = Count(), 0
        for op in chosen or samples:
            try:
                count = check_op(runtime, op, samples[op])
            except AssertionError as error:
                wrong += 1
                print(f"  WRONG {str(error)[:600]}")
                continue
            claimed += count.equal > 0 or count.different > 0
            total.equal += count.equal
            total.refused += count.refused
            total.different += count.different
        print(
            f"{runtime.name}: {claimed} of {len(chosen or samples)} ops claimed, {total.equal} "
            f"samples equal, {total.different} differ as the table says, {total.refused} refused"
        )
    return wrong


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
