"""Compiled torch programs take their arguments by position or by name, as the programs do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import monograph
from monograph.errors import InputError, UnsupportedError


class Blend(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor, *, by: torch.Tensor) -> torch.Tensor:
        return x - y * by


X, Y, BY = torch.arange(3.0), torch.ones(3), torch.tensor([1.0, 2.0, 3.0])


def test_arguments_may_be_named_though_the_examples_were_not() -> None:
    compiled = monograph.compile(Blend(), X, Y, kwargs={"by": BY})
    expected = X - Y * BY
    torch.testing.assert_close(compiled(X, y=Y, by=BY), expected)
    torch.testing.assert_close(compiled(by=BY, y=Y, x=X), expected)


def test_arguments_may_have_no_names_though_the_examples_had() -> None:
    compiled = monograph.compile(Blend(), kwargs={"y": Y, "by": BY, "x": X})
    torch.testing.assert_close(compiled(X, Y, by=BY), X - Y * BY)


@pytest.mark.parametrize(
    ("named", "problem"),
    [
        ({}, "missing arguments: 'by'"),
        ({"z": BY}, "unexpected keyword argument 'z'"),
        ({"x": X, "by": BY}, "multiple values for argument 'x'"),
    ],
)
def test_arguments_that_are_not_the_programs_are_named(
    named: dict[str, torch.Tensor], problem: str
) -> None:
    compiled = monograph.compile(Blend(), X, Y, kwargs={"by": BY})
    with pytest.raises(InputError, match=problem) as caught:
        compiled(X, Y, **named)
    assert caught.value.expected == "(x, y, by=), of (x, y, *, by)"


class Optional(torch.nn.Module):
    def forward(self, x: Any, y: Any = None, *, double: bool = True) -> Any:
        result = x * 2 if double else x
        return result if y is None else result + y


def test_a_default_may_be_said_or_left_out() -> None:
    compiled = monograph.compile(Optional(), X)
    for returned in (compiled(X, None), compiled(X, double=True), compiled(x=X, y=None)):
        torch.testing.assert_close(returned, X * 2)
    compiled = monograph.compile(Optional(), X, None, kwargs={"double": True})
    torch.testing.assert_close(compiled(X), X * 2)


def test_another_value_than_the_default_is_refused() -> None:
    compiled = monograph.compile(Optional(), X)
    with pytest.raises(InputError, match="'double' was not among the example inputs"):
        compiled(X, double=False)
    with pytest.raises(InputError, match="'y' was not among the example inputs"):
        compiled(X, Y)
    with pytest.raises(InputError, match="one value of double"):
        monograph.compile(Optional(), X, kwargs={"double": False})(X)


def test_more_arguments_than_a_program_of_any_number_was_compiled_for_are_refused() -> None:
    compiled = monograph.compile(lambda *parts: sum(parts), X, Y)
    torch.testing.assert_close(compiled(X, Y), X + Y)
    with pytest.raises(InputError, match="another structure"):
        compiled(X, Y, BY)


def test_an_exported_program_is_called_by_the_names_of_its_module() -> None:
    program = torch.export.export(Blend(), (X, Y), {"by": BY})
    compiled = monograph.compile(program)
    torch.testing.assert_close(compiled(X, y=Y, by=BY), X - Y * BY)
    with pytest.raises(InputError, match="unexpected keyword argument 'z'"):
        compiled(X, Y, by=BY, z=Y)


def test_a_word_is_returned_as_it_is() -> None:
    compiled = monograph.compile(lambda x: {"name": "double", "value": (x * 2, None)}, X)
    returned = compiled(X)
    assert returned["name"] == "double" and returned["value"][1] is None
    torch.testing.assert_close(returned["value"][0], X * 2)


def test_examples_of_other_models_are_refused() -> None:
    with pytest.raises(InputError, match="example inputs of a torch model are tensors"):
        monograph.compile(torch.nn.Linear(3, 2), X.numpy())


def test_a_choice_that_python_makes_has_a_hint() -> None:
    with pytest.raises(UnsupportedError, match=r"torch\.cond"):
        monograph.compile(lambda x: x if x.sum() > 0 else -x, X)


@pytest.mark.parametrize("x", [None, "photo", {"x": 1}, X.to("meta")])
def test_what_is_no_array_is_called_so(x: object) -> None:
    compiled = monograph.compile(lambda x: x * 2, X)
    with pytest.raises((InputError, UnsupportedError), match=r"no array|not an array|structure"):
        compiled(x)


@pytest.mark.filterwarnings("ignore:.*nested tensors")
@pytest.mark.parametrize(
    "made", [lambda x: x.to_sparse(), lambda x: torch.nested.nested_tensor([x])]
)
def test_tensors_that_are_no_arrays_are_refused(made: Any) -> None:
    compiled = monograph.compile(lambda x: x * 2, X)
    with pytest.raises(UnsupportedError, match="is not an array"):
        compiled(made(X))
    with pytest.raises(UnsupportedError, match="an example input is a"):
        monograph.compile(lambda x: x * 2, made(X))


def test_a_dimension_that_an_input_does_not_have_is_named() -> None:
    with pytest.raises(InputError, match="dimension 7 of an input"):
        monograph.compile(lambda x: x * 2, X, dynamic_shapes=({7: torch.export.Dim.AUTO},))


def doubled_then_read(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return y + x.sum()


@pytest.mark.parametrize("route", ["compiled", "loaded"])
@pytest.mark.parametrize("seen", [slice(0, 3), slice(2, 5), slice(None, None, 2)])
def test_an_argument_that_is_written_has_memory_of_its_own(
    route: str, seen: slice, tmp_path: Path
) -> None:
    program = monograph.compile(doubled_then_read, torch.ones(6), torch.ones(3))
    if route == "loaded":
        program = monograph.load(program.save(tmp_path / "program.mono"))
    memory = torch.ones(6)
    with pytest.raises(InputError, match=r"writes to input %x, which shares memory with %y"):
        program(memory, memory[seen])
    assert memory.tolist() == [1.0] * 6


@pytest.mark.parametrize("route", ["compiled", "loaded"])
def test_views_that_have_no_element_in_common_may_lie_between_each_other(
    route: str, tmp_path: Path
) -> None:
    program = monograph.compile(doubled_then_read, torch.ones(6), torch.ones(3))
    if route == "loaded":
        program = monograph.load(program.save(tmp_path / "program.mono"))
    memory = torch.ones(12)
    assert program(memory[::2], memory[1:6:2]).tolist() == [13.0] * 3
    assert memory.tolist() == [2.0, 1.0] * 6
