"""A target is one folder: the toy runs op samples and a model by the road that all targets take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.errors import InputError, MonographError
from monograph.fusion.limits import FusionLimits
from monograph.ir.interpret import interpret
from monograph.runtime.device import DEVICES
from monograph.targets.names import KINDS
from tests.ops.harness import assert_close, sample_graph, samples_by_op
from tests.targets.toy.target import ToyDevice, ToyTarget

WEIGHT = np.random.default_rng(0).standard_normal((16, 16), np.float32) / 4


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target and its device, registered by name."""
    monkeypatch.setitem(KINDS, "toy", lambda _: ToyTarget())
    monkeypatch.setitem(DEVICES, "toy", ToyDevice)


def model(x: Any) -> Any:
    """Attention and a gate, with a loop and a sort that no kernel computes."""
    scores = F.softmax(F.matmul(x, F.swapaxes(F.matmul(x, WEIGHT), -1, -2)), -1)
    mixed = F.layer_norm(x + F.matmul(scores, x), WEIGHT[0], WEIGHT[1])
    return F.sort(F.gelu(F.matmul(mixed, WEIGHT)), -1), mixed


def test_it_is_one_short_folder() -> None:
    files = [path for path in Path(__file__).parent.glob("*.py") if path.name != "test_toy.py"]
    assert sum(len(path.read_text().splitlines()) for path in files) < 150


SAMPLES = samples_by_op()


@pytest.mark.parametrize("op", SAMPLES)
def test_op_samples(op: str) -> None:
    for _, sample in SAMPLES[op][:3]:
        try:
            graph = sample_graph(sample)
            expected = interpret(graph, list(sample.operands))
        except MonographError:
            continue  # of an op on sequences or strings
        got = compile_graph(graph, Options(target="toy", cache=False))(*sample.operands)
        for one, other in zip(got, expected, strict=True):
            if isinstance(other, np.ndarray):
                assert_close(one, other, relative=1e-4, special=True)


@pytest.mark.parametrize("type_", ["f32[8, 16]", "f32[n, 16]"])
def test_a_model_by_name(type_: str) -> None:
    x = np.random.default_rng(1).standard_normal((8, 16), np.float32)
    made = monograph.compile(model, type_, target="toy")
    assert made.executable.target.name == "toy"
    for got, expected in zip(made(x), interpret(monograph.trace(model, type_), [x]), strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-5)
    assert [text.split("(")[0] for text in made.report.fallbacks] == ["%argsort = argsort"]
    assert "7 launches" in str(monograph.explain(made))


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    x = np.ones((8, 16), np.float32)
    made = monograph.compile(model, "f32[8, 16]", target="toy")
    again = monograph.load(made.save(tmp_path / "model.mono"))
    for got, expected in zip(again(x), made(x), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_fusion_asks_it_for_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = "f32[64]"
    joined = monograph.compile(lambda x: F.exp(F.tanh(x)), chain, target="toy", cache=False)
    monkeypatch.setattr(ToyTarget, "fusion_limits", FusionLimits(max_kernel_work=2))
    apart = monograph.compile(lambda x: F.exp(F.tanh(x)), chain, target="toy", cache=False)
    assert [len(each.executable.program.steps) for each in (joined, apart)] == [1, 2]


def test_it_has_nothing_to_search() -> None:
    made = monograph.compile(model, "f32[8, 16]", target="toy", level="O3")
    assert made.report.search is None
    with pytest.raises(InputError, match="no schedules to search"):
        monograph.compile(model, "f32[8, 16]", target="toy", budget=1)


def test_every_stage_is_dumped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONOGRAPH_DUMP", str(tmp_path))
    monograph.compile(model, "f32[8, 16]", target="toy")
    stages = [path.name.split("_", 1)[1] for path in sorted(tmp_path.iterdir())][-5:]
    assert stages == ["groups.txt", "kernels.txt", "plans.txt", "assembled.txt", "code.txt"]
