"""Torch modules compile from the types of their inputs, free sizes included."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import monograph  # noqa: E402
from monograph.errors import InputError  # noqa: E402


class Attend(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 4)

    def forward(self, x: Any, pair: Any) -> Any:
        return self.linear(x) @ pair["other"] + pair["number"]


@pytest.mark.parametrize("batch", [1, 2, 9])
def test_free_sizes_have_names(batch: int) -> None:
    module = torch.nn.Linear(8, 4).eval()
    compiled = monograph.compile(module, "f32[batch, 8]")
    assert set(compiled.executable.graph.symbols()) == {"batch"}
    with torch.no_grad():
        x = torch.randn(batch, 8)
        torch.testing.assert_close(compiled(x), module(x))


def test_sizes_of_one_name_are_the_same_and_examples_nest() -> None:
    module = Attend().eval()
    types = ("f32[n, 8]", {"other": "f32[4, m]", "number": "f32[n, m]"})
    compiled = monograph.compile(module, *types)
    assert set(compiled.executable.graph.symbols()) == {"n", "m"}
    pair = {"other": torch.randn(4, 6), "number": torch.randn(3, 6)}
    with torch.no_grad():
        x = torch.randn(3, 8)
        torch.testing.assert_close(compiled(x, pair), module(x, pair))


def test_reading_alone_takes_types_too() -> None:
    graph = monograph.from_torch(torch.nn.Linear(8, 4).eval(), "f32[batch, 8]")
    assert str(graph.inputs[0].type) == "f32[batch, 8]"


def test_known_sizes_stay_known() -> None:
    compiled = monograph.compile(torch.nn.Linear(8, 4).eval(), "f32[5, 8]")
    assert not compiled.executable.graph.symbols()


def test_integers_are_zeros() -> None:
    module = torch.nn.Embedding(7, 3).eval()
    compiled = monograph.compile(module, "i64[rows, 2]")
    with torch.no_grad():
        x = torch.randint(0, 7, (5, 2))
        torch.testing.assert_close(compiled(x), module(x))


def test_a_size_that_is_computed_is_an_error() -> None:
    with pytest.raises(InputError, match="computed of others"):
        monograph.compile(torch.nn.Linear(8, 4).eval(), "f32[2*batch, 8]")
