"""Memory that a program writes or reads beside its own operands: ``out=``, views, as_strided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from monograph.errors import InputError, UnsupportedError
from monograph.frontends.torch.program import import_graph_module
from monograph.frontends.torch.runner import TorchModel


def imported(function: Callable[..., Any], *tensors: Any) -> TorchModel:
    """The function as torch.export would trace it: writes in place stay."""
    module = make_fx(function, tracing_mode="fake", pre_dispatch=True)(*tensors)
    return TorchModel(import_graph_module(module))


def test_an_out_of_another_dtype_is_refused_where_torch_refuses_it() -> None:
    x, out = torch.ones(3, dtype=torch.float64), torch.ones(3, dtype=torch.complex64)
    with pytest.raises(InputError, match="dtype of the result"):
        imported(lambda x, out: torch.complex(x, x, out=out), x, out)


def test_an_out_that_is_cast_to_is_written() -> None:
    x, out = torch.ones(3), torch.zeros(3, dtype=torch.float64)
    model = imported(lambda x, out: torch.add(x, 1, out=out), x, out)
    model(x, out)
    assert out.tolist() == [2.0, 2.0, 2.0]


def test_an_out_that_is_an_operand_is_refused_where_torch_refuses_it() -> None:
    x = torch.arange(6.0)
    with pytest.raises(InputError, match="shares memory"):
        imported(lambda x: torch.cat([x, x[:0]], out=x), x)


def test_an_in_place_view_is_another_view_and_no_write() -> None:
    def function(x: Any) -> Any:
        y = x + 1
        row = y[0]
        y.squeeze_(1).transpose_(0, 1)
        y.mul_(2)
        return y, row, x

    x = torch.arange(6.0).reshape(2, 1, 3)
    got = imported(function, x)(x.clone())
    torch.testing.assert_close(tuple(got), function(x))


def test_as_strided_reads_the_memory_around_an_argument() -> None:
    memory = torch.arange(20.0)
    x = memory[5:15]
    model = imported(lambda x: x.as_strided((2, 2), (1, 2), 0), x)
    assert model(x).tolist() == [[0.0, 2.0], [1.0, 3.0]]


def test_as_strided_refuses_an_argument_that_lies_elsewhere() -> None:
    memory = torch.arange(20.0)
    model = imported(lambda x: x.as_strided((2, 2), (1, 2), 0), memory[5:15])
    with pytest.raises(InputError, match="lies elsewhere"):
        model(memory[6:16])


def test_as_strided_outside_memory_that_was_written_is_unsupported() -> None:
    def function(x: Any) -> Any:
        x.add_(1)
        return x.as_strided((2, 2), (1, 2), 0)

    with pytest.raises(UnsupportedError, match="not in its operand"):
        imported(function, torch.arange(20.0)[5:15])


@pytest.mark.parametrize("norm", ["layer", "group", "rms"])
def test_a_negative_epsilon_means_what_it_does_in_torch(norm: str) -> None:
    functions: dict[str, Callable[[Any], Any]] = {
        "layer": lambda x: torch.nn.functional.layer_norm(x, (4,), eps=-0.5),
        "group": lambda x: torch.nn.functional.group_norm(x, 2, eps=-0.5),
        "rms": lambda x: torch.nn.functional.rms_norm(x, (4,), eps=-0.5),
    }
    torch.manual_seed(0)
    x = torch.randn(3, 4)
    expected = functions[norm](x)
    assert expected.isnan().any()
    torch.testing.assert_close(imported(functions[norm], x)(x), expected, equal_nan=True)
