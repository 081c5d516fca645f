"""``options={"freeze": True}`` of ``torch.compile``: parameters are constants, never old ones."""

from __future__ import annotations

import copy
import gc
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from monograph.bindings.compiled_graphs import graphs_of
from monograph.bindings.dynamo import Options
from monograph.errors import InputError
from monograph.frontends.torch.notices import GradientWarning

FREEZE = {"freeze": True}
X = torch.linspace(-1, 1, 8).reshape(2, 4)


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        yield
    torch._dynamo.reset()


class Net(torch.nn.Module):
    """A product, a norm whose statistics are buffers, and a buffer that calls change."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        self.calls.add_(1)
        return self.norm(self.linear(x)) + self.calls


def frozen(module: Any) -> Any:
    return torch.compile(module, backend="monograph", options=FREEZE)


def inputs_of(compiled: Any) -> list[list[str]]:
    return [[value.name for value in each.executable.graph.inputs] for each in graphs_of(compiled)]


def test_parameters_are_weights_of_the_program_and_state_is_not() -> None:
    model = Net().eval()
    same, compiled = copy.deepcopy(model), frozen(model)
    for _ in range(3):
        torch.testing.assert_close(compiled(X), same(X))
    (taken,) = inputs_of(compiled)
    assert len(taken) == 2  # x and the counter
    assert model.calls == 3


def test_without_the_option_parameters_are_passed() -> None:
    model = Net().eval()
    compiled = torch.compile(model, backend="monograph")
    torch.testing.assert_close(compiled(X), copy.deepcopy(model)(X) - 1)
    assert len(inputs_of(compiled)[0]) == 8


def _step(model: Any) -> None:
    with torch.enable_grad():
        model.linear(X).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.5).step()


def _load(model: Any) -> None:
    model.load_state_dict({name: value + 1 for name, value in model.state_dict().items()})


def _give_data(model: Any) -> None:
    model.linear.weight.data = torch.ones(4, 4)


def _give_parameter(model: Any) -> None:
    model.linear.weight = torch.nn.Parameter(torch.full((4, 4), 2.0))


def _buffers(model: Any) -> None:
    model.norm.running_mean.add_(3)


@pytest.mark.parametrize("change", [_step, _load, _give_data, _give_parameter, _buffers])
def test_parameters_that_change_are_frozen_again(change: Any) -> None:
    model = Net().eval()
    same, compiled = copy.deepcopy(model), frozen(model)
    torch.testing.assert_close(compiled(X), same(X))
    for _ in range(2):
        for each in (model, same):
            change(each)
        torch.testing.assert_close(compiled(X), same(X))


def test_parameters_that_keep_changing_are_passed(caplog: pytest.LogCaptureFixture) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    compiled = frozen(model)
    with caplog.at_level(logging.WARNING, logger="monograph"):
        for _ in range(8):
            model[0].weight.add_(1)
            torch.testing.assert_close(compiled(X), model(X))
    messages = [each.getMessage() for each in caplog.records]
    assert len([each for each in messages if "frozen no longer" in each]) == 1
    assert len(inputs_of(compiled)[-1]) == 3


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.linear(x).tanh()


def test_layers_that_share_a_graph_have_their_own_weights() -> None:
    model = torch.nn.Sequential(*[Block() for _ in range(6)])
    same = copy.deepcopy(model)
    for block in model:
        block.compile(backend="monograph", options=FREEZE)
    for _ in range(2):
        torch.testing.assert_close(model(X), same(X))


def test_what_dies_is_let_go_of() -> None:
    def run(block: Any, x: Any) -> Any:
        return block(x)

    compiled = frozen(run)
    for _ in range(3):
        block = Block()
        torch.testing.assert_close(compiled(block, X), block(X))
        del block
        gc.collect()
    assert len(graphs_of(compiled)) <= 1


def test_results_that_are_parameters_are_these() -> None:
    class Returning(Block):
        def forward(self, x: Any) -> Any:
            return self.linear(x), self.linear.weight, self.linear.weight.t()

    model = Returning()
    _, weight, transposed = frozen(model)(X)
    assert weight is model.linear.weight
    assert transposed.data_ptr() == weight.data_ptr()


def test_parameters_that_count_no_versions() -> None:
    with torch.inference_mode():
        model = Block()
        compiled = frozen(model)
        for _ in range(2):
            torch.testing.assert_close(compiled(X), model(X))


def test_free_sizes() -> None:
    model = Block()
    compiled = torch.compile(model, backend="monograph", options=FREEZE, dynamic=True)
    for size in (2, 3, 5):
        x = torch.randn(size, 4)
        torch.testing.assert_close(compiled(x), model(x))


def test_where_gradients_are_wanted_nothing_is_frozen_and_that_is_said() -> None:
    model = Block()
    compiled = frozen(model)
    with torch.enable_grad(), pytest.warns(GradientWarning, match="not frozen") as noted:
        compiled(X).sum().backward()
    assert noted[0].filename == __file__
    expected = copy.deepcopy(model)
    expected.zero_grad()
    with torch.enable_grad():
        expected(X).sum().backward()
    torch.testing.assert_close(model.linear.bias.grad, expected.linear.bias.grad)
    with warnings.catch_warnings():
        warnings.simplefilter("error", GradientWarning)
        torch.testing.assert_close(compiled(X), model(X))


@pytest.mark.parametrize("name", ["freeze", "strict"])
def test_options_are_yes_or_no(name: str) -> None:
    with pytest.raises(InputError, match="yes or no"):
        Options.parse(None, {name: "yes"})
