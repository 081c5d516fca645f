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

from monograph.bindings.dynamo import Options, monograph
from monograph.errors import InputError
from monograph.frontends.torch.runner import TorchModel

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


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_gradients_of_eigenvalues(dtype: torch.dtype) -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        values, vectors = torch.linalg.eig(x)
        return values.abs().sum() + (vectors.abs() ** 3).sum()

    torch.manual_seed(0)
    x = torch.randn(5, 5, dtype=dtype, requires_grad=True)
    compiled = torch.compile(loss, backend=monograph)
    torch.testing.assert_close(torch.autograd.grad(compiled(x), x), torch.autograd.grad(loss(x), x))


def test_an_optimizer_compiles_too() -> None:
    def stepped(compiler: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 3)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        step = compiler(optimizer.step)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).square().sum().backward()
            step()
        return [each.detach() for each in model.parameters()]

    got = stepped(lambda step: torch.compile(step, backend=monograph))
    torch.testing.assert_close(got, stepped(lambda step: step))


def test_a_weight_of_normed_direction_trains_as_in_eager() -> None:
    layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(4, 3))
    x, weights = torch.randn(2, 4), torch.randn(2, 3)
    parameters = list(layer.parameters())
    compiled = torch.compile(layer, backend=monograph)
    got = torch.autograd.grad((compiled(x) * weights).sum(), parameters)
    torch.testing.assert_close(got, torch.autograd.grad((layer(x) * weights).sum(), parameters))


def test_an_op_without_a_converter_is_left_to_torch() -> None:
    def loss(x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.multi_margin_loss(x, targets)

    x, targets = torch.randn(3, 4, requires_grad=True), torch.tensor([0, 3, 1])
    got = torch.autograd.grad(torch.compile(loss, backend=monograph)(x, targets), x)
    torch.testing.assert_close(got, torch.autograd.grad(loss(x, targets), x))


def test_sizes_that_shapes_tell_are_no_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = torch.compile(torch.nn.Linear(4, 3), backend=monograph, dynamic=True)
    with torch.no_grad():
        for _ in range(2):
            compiled(torch.ones(5, 4))
        monkeypatch.setattr(TorchModel, "run", None)  # nothing is converted any more
        assert compiled(torch.ones(5, 4)).shape == (5, 3)


def test_a_number_that_no_shape_tells_is_passed() -> None:
    def scaled(x: torch.Tensor, by: int) -> torch.Tensor:
        return x * by

    compiled = torch.compile(scaled, backend=monograph, dynamic=True)
    for by in (3, 5, 7):
        torch.testing.assert_close(compiled(torch.ones(4), by), torch.full((4,), float(by)))


def test_numbers_drawn_of_constants_have_nothing_to_read() -> None:
    def drawn(x: torch.Tensor) -> torch.Tensor:
        return x + torch.multinomial(torch.ones(6), 4)

    found = torch.compile(drawn, backend=monograph)(torch.zeros(4))
    assert len(set(found.tolist())) == 4 and 0 <= found.min() <= found.max() < 6


def test_elements_that_share_memory_may_come_apart_where_they_are_equal() -> None:
    """A backward pass was recorded with an overlapping tensor, and is given its conjugate."""

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * x.conj() + x.conj()[:, :1] * y.conj()

    x = torch.randn(8, dtype=torch.complex64).as_strided((2, 7), (1, 1))
    y = torch.randn(1, dtype=torch.complex64).expand(2, 1)
    weights = torch.arange(14.0).view(2, 7)
    found = []
    for function in (program, torch.compile(program, backend=monograph)):
        leaves = [each.detach().requires_grad_() for each in (x, y)]
        loss = (torch.view_as_real(function(*leaves)).sum(-1) * weights).sum()
        found.append(torch.autograd.grad(loss, leaves))
    torch.testing.assert_close(found[1], found[0])


def test_attention_takes_heads_of_any_depth() -> None:
    def attended(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(x, x * 2, x + 1, is_causal=True)

    compiled = torch.compile(attended, backend=monograph, dynamic=True)
    for shape in ((2, 3, 9, 8), (3, 2, 4, 33)):
        found = []
        for function in (attended, compiled):
            x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_()
            result = function(x)
            found.append((result, *torch.autograd.grad(result.square().sum(), x)))
        torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("step", [2, 3])
def test_an_op_that_is_taken_apart_takes_elements_at_any_distance(step: int) -> None:
    """The size is known, and the step from one element to the next is not."""

    def normed(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x, (3,))

    weights = torch.tensor([1.0, 2.0, 5.0])
    found = []
    for function in (normed, torch.compile(normed, backend=monograph, dynamic=True)):
        x = torch.arange(9.0).sin()[: 3 * step : step].requires_grad_()
        found.append(torch.autograd.grad((function(x) * weights).sum(), x)[0])
    torch.testing.assert_close(found[1], found[0])
