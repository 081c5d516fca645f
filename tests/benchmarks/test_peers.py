"""The contenders on small cases: right answers, and reasons where there are none."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace

import pytest
import torch

from benchmarks import workloads
from benchmarks.aten_to_jax import UnknownOp, convert
from benchmarks.contender import Unsupported
from benchmarks.measure import error
from benchmarks.peers import PEERS, Iree, Monograph, Peer, Prepared, Xla, quickest
from benchmarks.prepacked import Prepacked
from benchmarks.workloads import Case, neutral_case, normal, normed

QUICK_TO_COMPILE = {"eager"}


def _peers() -> list[object]:
    return [
        pytest.param(
            peer, id=peer.name, marks=() if peer.name in QUICK_TO_COMPILE else pytest.mark.slow
        )
        for peer in PEERS
    ]


CASES = {
    "norm": (workloads.add_rms_norm, normed(5, 7, constants=1)),
    "view": (workloads.strided_argument, workloads.strided(4, 6)),
    "loss": (workloads.cross_entropy, workloads.labelled(3, 11)),
    "argmax": (workloads.argmax, normal(3, 5)),
    "bf16": (workloads.four_op_chain, normal(33, dtype=torch.bfloat16)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("peer", _peers())
def test_answers_are_right(peer: Peer, name: str) -> None:
    reason = peer.available()
    if reason is not None:
        pytest.skip(reason)
    if not peer.takes("rows"):
        pytest.skip("it takes part in other families only")
    if (peer.name, name) == ("ort", "bf16"):
        pytest.skip("ONNX Runtime has no kernels for it")
    function, make = CASES[name]
    case = neutral_case(name, function, make)
    with torch.no_grad():
        prepared = peer.prepare(case)
        first, second = (prepared.read(prepared.call()) for _ in range(2))
    reference = case.reference()
    assert error(first, reference) < (1e-2 if name == "bf16" else 1e-6)
    assert error(second, reference) < (1e-2 if name == "bf16" else 1e-6)


def test_libraries_multiply_by_packed_weights() -> None:
    case = neutral_case("small", workloads.linear, workloads.weighted(4, 32, 16, constant=True))
    prepared = Prepacked().prepare(case)
    assert error(prepared.read(prepared.call()), case.reference()) < 1e-6


def test_libraries_convolve_with_packed_weights() -> None:
    module, inputs = workloads.convolution(3, 8, 16, 9, 2, groups=2)
    case = Case("small", module.eval().requires_grad_(False), inputs)
    prepared = Prepacked().prepare(case)
    assert error(prepared.read(prepared.call()), case.reference()) < 1e-6


def test_what_is_not_known_ahead_is_not_packed() -> None:
    make = workloads.weighted(4, 32, 16, constant=False)
    with pytest.raises(Unsupported, match="known ahead"):
        Prepacked().prepare(neutral_case("dynamic", workloads.linear, make))


def test_a_missing_package_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert Xla().available() == "jax is not installed (make bench-setup)"
    assert "iree is not installed" in (Iree().available() or "")


def test_monograph_without_its_public_call_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    import monograph

    monkeypatch.setattr(monograph, "compile", lambda *_, **__: None, raising=False)
    assert Monograph().available() is None
    monkeypatch.delattr(monograph, "compile")
    monkeypatch.setitem(monograph._HOMES, "compile", "monograph.errors")
    assert "monograph.compile" in (Monograph().available() or "")


def test_monograph_is_called_with_its_examples_and_two_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import monograph

    seen: list[object] = []

    class Compiled:
        executable = SimpleNamespace(report=SimpleNamespace(fallbacks=("a", "b")))

        def __init__(self, module: torch.nn.Module, *examples: torch.Tensor, threads: int) -> None:
            seen.append((len(examples), threads))
            self.module = module

        def __call__(self, *inputs: torch.Tensor) -> object:
            return self.module(*inputs)

    monkeypatch.setattr(monograph, "compile", Compiled, raising=False)
    case = neutral_case("tiny", workloads.tiny, normal(16))
    prepared = Monograph().prepare(case)
    assert seen == [(1, 2)]
    assert prepared.remark == "2 nodes run in the interpreter"
    assert error(prepared.read(prepared.call()), case.reference()) < 1e-6


def test_the_quickest_way_that_works_is_taken() -> None:
    import time

    def broken() -> Prepared:
        raise ValueError("cannot")

    slow = Prepared(lambda: time.sleep(0.005))
    quick = Prepared(lambda: None)
    assert quickest([lambda: slow, broken, lambda: quick]) is quick
    with pytest.raises(ValueError, match="cannot"):
        quickest([broken])


def test_a_model_runs_in_jax() -> None:
    pytest.importorskip("jax")
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, stride=2, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(32, 5),
        torch.nn.LayerNorm(5),
    ).eval()
    case = Case("model", module.requires_grad_(False), (torch.randn(2, 3, 8, 8),))
    prepared = Xla().prepare(case)
    assert error(prepared.read(prepared.call()), case.reference()) < 1e-5


def test_an_op_without_a_jax_form_is_named() -> None:
    pytest.importorskip("jax")
    with pytest.raises(UnknownOp, match=r"aten\.erfinv"):
        convert(Inverse(), (torch.ones(3),))


class Inverse(torch.nn.Module):
    """An op that no model of the benchmarks uses."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.erfinv(x)
