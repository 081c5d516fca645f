"""``torch.compile`` with the monograph backend: inference, training, dynamic shapes, options."""

from __future__ import annotations

import copy
import importlib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from monograph.errors import InputError
from monograph.frontends.torch.runner import TorchModel
from monograph.runtime.dynamo import Options, monograph

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Gate(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1, 2, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (torch.nn.functional.gelu(x * self.weight) + torch.exp(x)).t()


def test_inference_agrees_with_eager() -> None:
    module, x = Gate(), torch.randn(3, 4)
    compiled = torch.compile(module, backend=monograph, fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x))


def test_training_gives_the_gradients_of_eager() -> None:
    module, x = Gate(), torch.randn(3, 4, requires_grad=True)
    compiled = torch.compile(module, backend=monograph)
    weights = torch.randn(4, 3)
    got = torch.autograd.grad((compiled(x) * weights).sum(), (x, module.weight))
    expected = torch.autograd.grad((module(x) * weights).sum(), (x, module.weight))
    torch.testing.assert_close(got, expected)


def test_a_backward_pass_reads_transposed_weights_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def copied(*_: Any) -> None:
        raise AssertionError("tensors were copied to arrays")

    monkeypatch.setattr(TorchModel, "run", copied)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    compiled = torch.compile(model, backend=monograph)
    x = torch.randn(5, 8)
    expected = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    got = torch.autograd.grad(compiled(x).square().sum(), list(model.parameters()))
    for ours, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_dynamic_shapes_compile_once() -> None:
    compiles = 0

    def counting(module: Any, inputs: Any) -> Any:
        nonlocal compiles
        compiles += 1
        return monograph(module, inputs)

    module = Gate()
    compiled = torch.compile(module, backend=counting, dynamic=True)
    for size in (3, 5, 8):
        x = torch.randn(size, 4, requires_grad=True)
        y = compiled(x)
        torch.testing.assert_close(y, module(x))
        torch.testing.assert_close(
            torch.autograd.grad(y.sum(), x), torch.autograd.grad(module(x).sum(), x)
        )
    assert compiles == 1


def test_results_are_laid_out_in_memory_as_torch_expects() -> None:
    module, x = Gate(), torch.randn(3, 4)
    compiled = torch.compile(module, backend=monograph)
    assert compiled(x).stride() == module(x).stride()


def test_a_buffer_that_the_model_writes_is_written() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)
            return x * self.count

    module = Counter()
    compiled = torch.compile(module, backend=monograph)
    for step in (1, 2, 3):
        torch.testing.assert_close(compiled(torch.ones(2)), torch.full((2,), float(step)))


def test_the_seed_of_torch_governs_random_numbers() -> None:
    compiled = torch.compile(lambda x: torch.nn.functional.dropout(x), backend=monograph)
    x = torch.ones(64)
    torch.manual_seed(1)
    first, second = compiled(x), compiled(x)
    torch.manual_seed(1)
    assert torch.equal(compiled(x), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("level", ["O0", "O1", "O2", "O3"])
def test_every_level_gives_the_same_result(level: str) -> None:
    module, x = Gate(), torch.randn(3, 4)
    compiled = torch.compile(module, backend=monograph, options={"level": level})
    torch.testing.assert_close(compiled(x), module(x))


def test_wrong_options_are_errors() -> None:
    with pytest.raises(InputError, match="no option 'levle'"):
        Options.parse(None, {"levle": "O2"})
    with pytest.raises(InputError, match="no such level"):
        Options.parse(None, {"level": "O9"})
    with pytest.raises(InputError, match="no such mode"):
        Options.parse("fast", None)
    assert Options.parse("max-autotune", None).level == "O3"
    assert Options.parse("max-autotune", {"level": "O1"}).level == "O1"


def test_torch_can_find_the_backend_by_its_name() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    target = project["entry-points"]["torch_dynamo_backends"]["monograph"]
    module, name = target.split(":")
    assert getattr(importlib.import_module(module), name) is monograph


def test_a_convolutional_network_trains_as_in_eager() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(inplace=True),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(4, 4, 3, groups=2, bias=False),
        torch.nn.AdaptiveAvgPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(16, 5),
    )
    copied = copy.deepcopy(module)
    x = torch.randn(2, 3, 8, 8)
    got, expected = torch.compile(module, backend=monograph)(x), copied(x)
    torch.testing.assert_close(got, expected)
    got.square().sum().backward()
    expected.square().sum().backward()
    for a, b in zip(module.parameters(), copied.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-4)
    for a, b in zip(module.buffers(), copied.buffers(), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("heads", [4, 2], ids=["as many", "shared by two"])
def test_attention_trains_as_in_eager(heads: int) -> None:
    q = torch.randn(2, 4, 6, 4, requires_grad=True)
    k, v = (torch.randn(2, heads, 6, 4, requires_grad=True) for _ in range(2))

    def loss(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        attended = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=heads < 4
        )
        return (attended * torch.arange(4)).sum()

    compiled = torch.compile(loss, backend=monograph)
    got = torch.autograd.grad(compiled(q, k, v), (q, k, v))
    torch.testing.assert_close(got, torch.autograd.grad(loss(q, k, v), (q, k, v)))


def test_a_tensor_that_the_program_makes_of_numbers_is_read() -> None:
    def joined(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.tensor([]), x, torch.tensor([1.0, 2.0])])

    x = torch.randn(3)
    torch.testing.assert_close(torch.compile(joined, backend=monograph)(x), joined(x))
