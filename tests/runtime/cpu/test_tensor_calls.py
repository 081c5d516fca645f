"""Calls with torch tensors: which memory is passed as it is, and what becomes of the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import monograph
from monograph.compiler import Options, compile_graph
from monograph.errors import MonographError
from monograph.runtime.compiled import Executable

X = torch.arange(12, dtype=torch.float32).reshape(3, 4)


def compiled(type_: str) -> Executable:
    return compile_graph(monograph.trace(lambda x: x + 1, type_), Options(cache=False))


@pytest.fixture(scope="module")
def add_one() -> Executable:
    return compiled("f32[3, 4]")


def test_a_tensor_is_passed_as_it_is(add_one: Executable) -> None:
    found = add_one.run_tensors([X])
    assert found is not None
    torch.testing.assert_close(found[0], X + 1)


def test_a_parameter_is_too(add_one: Executable) -> None:
    found = add_one.run_tensors([torch.nn.Parameter(X)])
    assert found is not None and not found[0].requires_grad
    torch.testing.assert_close(found[0], X + 1)


class Wrapped(torch.Tensor):
    """A subclass may mean anything."""


@pytest.mark.parametrize(
    "x",
    (
        X.double(),
        X[:2],
        X.T.contiguous().T,
        X.to_sparse(),
        X.to("meta"),
        torch.complex(X, -X).conj().imag,
        X.as_subclass(Wrapped),
        X.numpy(),
        3.0,
    ),
    ids=("dtype", "shape", "strides", "sparse", "device", "negated", "subclass", "array", "number"),
)
def test_what_is_not_as_expected_is_left_to_others(add_one: Executable, x: Any) -> None:
    assert add_one.run_tensors([x]) is None


def test_too_many_are_left_to_others(add_one: Executable) -> None:
    assert add_one.run_tensors([X, X]) is None
    with pytest.raises(MonographError, match="takes 1 input"):
        add_one(X, X)


def test_a_negated_view_is_read_as_what_it_means(add_one: Executable) -> None:
    view = torch.complex(X, -X).conj().imag
    assert view.is_neg()
    torch.testing.assert_close(add_one(view)[0], X + 1)


@pytest.mark.parametrize("dtype", ("f64", "f16", "bf16", "i64", "i32", "u8"))
def test_outputs_have_their_dtype(dtype: str) -> None:
    names = {"f64": "float64", "f16": "float16", "bf16": "bfloat16", "i64": "int64"}
    names |= {"i32": "int32", "u8": "uint8"}
    x = X.to(getattr(torch, names[dtype]))
    found = compiled(f"{dtype}[3, 4]").run_tensors([x])
    assert found is not None
    torch.testing.assert_close(found[0], x + 1)


def test_outputs_that_are_held_are_not_written_again(add_one: Executable) -> None:
    held = [add_one(X * k)[0] for k in range(16)]
    for k, output in enumerate(held):
        torch.testing.assert_close(output, X * k + 1)


def test_so_are_large_ones() -> None:
    x = torch.ones(64, 1024)
    program = compiled("f32[64, 1024]")
    held = [program(x * k)[0] for k in range(4)]
    assert [float(each.sum()) for each in held] == [65536.0 * (k + 1) for k in range(4)]


def test_symbolic_sizes_are_found_where_tensors_lie() -> None:
    program = compiled("f32[n, 4]")
    for rows in (3, 2, 3):
        found = program.run_tensors([X[:rows]])
        assert found is not None
        torch.testing.assert_close(found[0], X[:rows] + 1)
    assert program.run_tensors([X[:, :3].contiguous()]) is None


def test_a_known_size_does_not_excuse_another_dtype() -> None:
    program = compiled("f32[n, 4]")
    program(X)
    with pytest.raises(MonographError):
        program(X.long())
    np.testing.assert_array_equal(program(X.numpy())[0], X.numpy() + 1)


def test_a_tensor_that_a_function_holds_and_changes_is_state_of_the_program() -> None:
    total = torch.zeros(4)

    def add_up(x: torch.Tensor) -> torch.Tensor:
        total.sub_(1)
        total.add_(1)
        total.add_(x)
        return total * 2

    add = monograph.compile(add_up, X[1])
    assert not total.any()
    torch.testing.assert_close(add(X[1]), X[1] * 2)
    torch.testing.assert_close(add(X[1]), X[1] * 4)
    assert not total.any()


def test_complex_tensors_are_taken_and_conjugate_views_left_to_others() -> None:
    executable = compiled("c64[3, 4]")
    z = torch.complex(X, -X)
    found = executable.run_tensors([z])
    assert found is not None
    torch.testing.assert_close(found[0], z + 1)
    assert executable.run_tensors([z.conj()]) is None
    torch.testing.assert_close(executable(z.conj())[0], z.conj() + 1)
