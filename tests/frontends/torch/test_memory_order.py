"""Results that lie in memory as torch's do: computed in the order that the arguments have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as functional

import monograph
from monograph.frontends.torch import import_torch
from monograph.frontends.torch.memory_order import order_of, turn_outputs
from monograph.frontends.torch.runner import TorchModel

LAST = torch.channels_last


def image(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator).to(memory_format=LAST)


def compiled(function: Callable[..., Any], *examples: Any) -> Any:
    return monograph.compile(function, *examples, cache=False)


@pytest.mark.parametrize(
    "function",
    [
        functional.relu,
        lambda x: functional.avg_pool2d(x, 2),
        lambda x: functional.max_pool2d(x, 3, 2, 1),
        lambda x: functional.pad(x, (1, 2, 3, 1), mode="reflect"),
        lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
        lambda x: functional.adaptive_avg_pool2d(x, 3),
        lambda x: functional.group_norm(x, 2),
        lambda x: torch.cat([x, x * 2], 1),
        lambda x: x.permute(0, 2, 3, 1),
        lambda x: x.transpose(2, 3) + 1,
        lambda x: functional.conv2d(x, torch.ones(4, 8, 3, 3), padding=1),
    ],
)
def test_an_image_with_its_channels_last_stays_one(function: Callable[..., Any]) -> None:
    x = image(2, 8, 10, 7)
    model = compiled(function, x)
    for given in (x, x.contiguous()):
        result, expected = model(given), function(given)
        torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)
    assert model(x).stride() == function(x).stride()


def test_no_kernel_is_left_for_a_transpose_that_is_undone() -> None:
    program = compiled(lambda x: functional.relu(x).transpose(1, 2), torch.ones(2, 3, 4))
    assert [note.name for note in program.executable.report.kernels] == ["k0_relu"]


def test_a_factor_of_a_matrix_in_rows_is_given_in_rows() -> None:
    model = import_torch(torch.linalg.inv, torch.eye(3))
    assert model.outputs[0].order == (1, 0)
    assert not turn_outputs(model, []).outputs[0].is_turned
    assert turn_outputs(model).outputs[0].is_turned


def test_the_interpreter_turns_results_back() -> None:
    x = image(1, 3, 4, 5)
    model = turn_outputs(import_torch(lambda x: {"y": x + 1, "n": 2}, x), [(0, 2, 3, 1)])
    assert model.graph.outputs[0].shape == (1, 4, 5, 3)
    assert torch.equal(TorchModel(model)(x)["y"], x + 1)


def test_a_result_that_is_given_twice_stays_as_it_is() -> None:
    def twice(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x + 1
        return y, y

    x = image(1, 3, 4, 5)
    for result in compiled(twice, x)(x):
        assert torch.equal(result, x + 1)


def test_a_saved_module_gives_its_results_in_their_own_order(tmp_path: Path) -> None:
    x = image(2, 3, 4, 5)
    model = compiled(lambda x: [x + 1, x.sum()], x)
    loaded = monograph.load(model.save(tmp_path / "model.mono"))
    assert torch.equal(loaded(x)[0], x + 1)
    np.testing.assert_array_equal(loaded(x.numpy())[0], (x + 1).numpy())


def test_orders_are_told_of_strides() -> None:
    assert order_of(torch.ones(2, 3)) is None
    assert order_of(torch.ones(2, 3).t()) == (1, 0)
    assert order_of(image(2, 3, 4, 5)) == (0, 2, 3, 1)


@pytest.mark.parametrize("dim", [0, 2])
def test_symbolic_sizes_of_an_image_with_its_channels_last(dim: int) -> None:
    x = image(2, 3, 4, 5)
    size = torch.export.Dim("size", min=2, max=64)
    shapes = ({dim: size},)
    model = monograph.compile(lambda x: x * 2 + 1, x, dynamic_shapes=shapes, cache=False)
    for count in (4, 9, 3):
        shape = [2, 3, 4, 5]
        shape[dim] = count
        y = image(*shape)
        torch.testing.assert_close(model(y), y * 2 + 1)
        torch.testing.assert_close(model(y.contiguous()), y * 2 + 1)


def test_an_expanded_example_says_nothing_of_other_arguments() -> None:
    example, other = torch.ones(3, 1).expand(3, 4), torch.arange(12.0).reshape(3, 4)
    model = compiled(lambda x: x * 2 + 1, example)
    torch.testing.assert_close(model(other), other * 2 + 1)
    torch.testing.assert_close(model(example), example * 2 + 1)
