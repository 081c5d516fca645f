"""Small programs as built-in functions: the same results, and None for what they do not take."""

from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np
import pytest
import torch

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.config import Config
from monograph.errors import MonographError
from monograph.program.return_forms import LIST, ONE, TUPLE
from monograph.runtime.compiled import Executable
from monograph.runtime.cpu.quick_calls import (
    MOST_KNOWN,
    MOST_LEARNT,
    MOST_RECENT,
    SizedCalls,
    cannot,
)
from tests.runtime.together import on_threads

pytestmark = pytest.mark.skipif(
    Config.from_environment().fences is not None, reason="no call is quick between fences"
)
X = np.arange(12, dtype=np.float32).reshape(3, 4)
T = torch.arange(12, dtype=torch.float32).reshape(3, 4)


def compiled(function: Any, *types: str) -> Executable:
    return compile_graph(monograph.trace(function, *types), Options(cache=False))


@pytest.fixture(scope="module")
def add_one() -> Executable:
    return compiled(lambda x: x + 1, "f32[3, 4]")


@pytest.fixture(scope="module")
def two() -> Executable:
    return compiled(lambda x, y: (x + y, x * y), "f32[3, 4]", "f32[3, 4]")


def test_arrays_give_arrays(add_one: Executable) -> None:
    np.testing.assert_array_equal(add_one.quick_arrays(ONE)(X), X + 1)


def test_tensors_give_tensors(add_one: Executable) -> None:
    found = add_one.quick_tensors(ONE)(T)
    assert type(found) is torch.Tensor and found.is_contiguous()
    torch.testing.assert_close(found, T + 1)


@pytest.mark.parametrize(("form", "class_"), ((TUPLE, tuple), (LIST, list)))
def test_several_outputs_come_as_asked_for(two: Executable, form: int, class_: type) -> None:
    for found in (two.quick_arrays(form)(X, X), two.quick_tensors(form)(T, T)):
        assert type(found) is class_
        np.testing.assert_array_equal(np.asarray(found[0]), X + X)
        np.testing.assert_array_equal(np.asarray(found[1]), X * X)


@pytest.mark.parametrize(
    "dtype", (torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.uint8, torch.bool)
)
def test_every_dtype_of_torch_is_taken(dtype: torch.dtype) -> None:
    x = torch.tensor([[1, 0], [1, 1]]).to(dtype)
    run = monograph.compile(lambda x: torch.where(x == 0, x, x), x)
    call = run.executable.quick_tensors(ONE)
    assert call is not cannot
    assert torch.equal(call(x), x) and call(x).dtype is dtype


class Wrapped(torch.Tensor):
    """A subclass may mean anything."""


@pytest.mark.parametrize(
    "x",
    (
        T.double(),
        T[:2],
        T.T.contiguous().T,
        T.reshape(12),
        T.to_sparse(),
        T.to("meta"),
        torch.complex(T, -T).conj().imag,
        torch._efficientzerotensor((3, 4)),
        T.as_subclass(Wrapped),
        X,
        None,
        3.0,
    ),
    ids=lambda x: type(x).__name__,
)
def test_other_tensors_are_left_to_others(add_one: Executable, x: Any) -> None:
    assert add_one.quick_tensors(ONE)(x) is None


def test_a_tensor_without_memory_is_left_to_others(add_one: Executable) -> None:
    x = T.clone()
    x.untyped_storage().resize_(0)
    assert add_one.quick_tensors(ONE)(x) is None


@pytest.mark.parametrize(
    "x",
    (X.astype(np.float64), X[:2], X.T.copy().T, X.astype(">f4"), X.tolist(), T, None),
    ids=("dtype", "shape", "strides", "byte order", "list", "tensor", "none"),
)
def test_other_arrays_are_left_to_others(add_one: Executable, x: Any) -> None:
    assert add_one.quick_arrays(ONE)(x) is None


def test_another_number_of_arguments_is_left_to_others(add_one: Executable) -> None:
    call = add_one.quick_arrays(ONE)
    assert call() is None and call(X, X) is None


def test_a_view_is_read_where_it_begins(add_one: Executable) -> None:
    wide = torch.arange(24, dtype=torch.float32).reshape(6, 4)
    torch.testing.assert_close(add_one.quick_tensors(ONE)(wide[2:5]), wide[2:5] + 1)


def test_strides_that_were_compiled_for_are_taken() -> None:
    x = torch.arange(12.0).reshape(4, 3).T
    run = monograph.compile(lambda x: x * 2, x)
    torch.testing.assert_close(run.executable.quick_tensors(ONE)(x).T, x * 2)  # as it lies there


def test_gradients_do_not_pass(add_one: Executable) -> None:
    found = add_one.quick_tensors(ONE)(T.clone().requires_grad_())
    assert found is not None and not found.requires_grad


def test_inference_tensors_are_taken(add_one: Executable) -> None:
    with torch.inference_mode():
        torch.testing.assert_close(add_one.quick_tensors(ONE)(T.clone()), T + 1)


@pytest.mark.parametrize(
    ("function", "type_"),
    (
        (lambda x: x + 1, "f32[0, 4]"),
        (lambda x: x + 1, "f32[2, 1, 1, 1, 1, 2]"),
        (lambda x: x + 1, "c64[4]"),
    ),
    ids=("empty", "many axes", "complex"),
)
def test_programs_that_are_called_otherwise(function: Any, type_: str) -> None:
    assert compiled(function, type_).quick_tensors(ONE) is cannot


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_large_outputs_are_used_again_once_they_are_let_go(dtype: torch.dtype) -> None:
    x = torch.ones(400, 400, dtype=dtype)
    call = monograph.compile(lambda x: x + 1, x).executable.quick_tensors(ONE)
    held = [call(x * k) for k in range(3)]
    assert all(torch.equal(each, x * k + 1) for k, each in enumerate(held))
    places = {each.data_ptr() for each in held}
    assert len(places) == 3 and all(place % 64 == 0 for place in places)
    del held
    again = call(x)
    assert again.data_ptr() in places and torch.equal(again, x + 1)


def test_a_function_outlives_what_it_was_made_of() -> None:
    call = compiled(lambda x: F.flip(F.softmax(x, -1), 0), "f32[3, 4]").quick_arrays(ONE)
    gc.collect()
    expected = np.exp(X) / np.exp(X).sum(-1, keepdims=True)
    np.testing.assert_allclose(call(X), expected[::-1], rtol=1e-5)


def test_large_arrays_too() -> None:
    x = np.ones((400, 400), np.float32)
    call = compiled(lambda x: x + 1, "f32[400, 400]").quick_arrays(ONE)
    assert {call(x * k).ctypes.data for k in range(4)} == {call(x).ctypes.data}


def test_sizes_that_came_twice_have_a_function() -> None:
    run = compiled(lambda x: x + 1, "f32[n, 2]")
    call = run.quick_tensors(ONE)
    small, large = torch.ones(3, 2), torch.ones(7, 2)
    assert call(small) is None
    for x in (small, large):
        torch.testing.assert_close(run.run([x])[0], x + 1)
    assert call(small) is None
    torch.testing.assert_close(call(small), small + 1)
    assert call(large) is None
    torch.testing.assert_close(call(large), large + 1)
    torch.testing.assert_close(call(small), small + 1)
    assert call(torch.ones(9, 2)) is None and call(3.0) is None


def test_few_functions_are_kept() -> None:
    run = compiled(lambda x: x + 1, "f32[n]")
    call = run.quick_arrays(ONE)
    for n in range(1, MOST_KNOWN + 3):
        x = np.ones(n, np.float32)
        run.run([x])
        assert call(x) is None
        if n > MOST_KNOWN:  # it takes another's place once it comes again soon
            assert call(x) is None
        np.testing.assert_array_equal(call(x), x + 1)
    assert isinstance(call, SizedCalls) and len(call._functions) == MOST_KNOWN


def test_sizes_that_go_round_and_round_do_not_take_one_anothers_place() -> None:
    run = compiled(lambda x: x + 1, "f32[n]")
    call = run.quick_arrays(ONE)
    arrays = [np.ones(n, np.float32) for n in range(1, 2 * MOST_RECENT)]
    for x in arrays:
        run.run([x])
    for x in arrays * 3:
        call(x)
    assert isinstance(call, SizedCalls) and call._left == MOST_LEARNT - MOST_KNOWN


def test_a_failing_call_leaves_nothing_behind() -> None:
    run = compiled(lambda x, i: F.take(x, i, axis=0), "f32[4]", "i64[2]")
    call = run.quick_arrays(ONE)
    x, inside, outside = np.arange(4, dtype=np.float32), np.array([1, 2]), np.array([1, 9])
    assert call(x, outside) is None
    np.testing.assert_array_equal(call(x, inside), [1, 2])
    with pytest.raises(MonographError):
        run(x, outside)


def test_references_are_counted(two: Executable) -> None:
    call = two.quick_tensors(TUPLE)
    x = T.clone()
    before = sys.getrefcount(x), sys.getrefcount(None)
    results = [call(x, x) for _ in range(50)]
    refused = [call(x, None) for _ in range(50)]
    assert all(each is None for each in refused)
    assert sys.getrefcount(results[0]) == sys.getrefcount(results[-1])
    del results, refused
    after = sys.getrefcount(x), sys.getrefcount(None)
    assert after[0] == before[0] and abs(after[1] - before[1]) < 10


def test_outputs_that_are_held_lie_apart(add_one: Executable) -> None:
    call = add_one.quick_tensors(ONE)
    held = [call(T * k) for k in range(32)]
    assert len({each.data_ptr() for each in held}) == 32
    assert all(torch.equal(each, T * k + 1) for k, each in enumerate(held))


def test_threads_do_not_meet_in_one_table() -> None:
    run = compiled(lambda x: F.flip(F.softmax(x, -1), 0) + 1, "f32[32, 32]")
    call = run.quick_arrays(ONE)
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=(32, 32)).astype(np.float32) for _ in range(4)]
    expected = [run.run([x])[0] for x in inputs]
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(500):
            found = call(inputs[k])
            if found is not None and not np.array_equal(found, expected[k]):
                wrong.append(k)

    on_threads(work, range(4))
    assert not wrong


def test_a_module_may_nest_what_it_returns() -> None:
    run = monograph.compile(lambda x: {"b": x + 1, "a": (x * 2, [x - 3])}, T)
    for _ in range(2):
        found = run(T)
        assert list(found) == ["b", "a"]
        torch.testing.assert_close(found["a"][1][0], T - 3)
        torch.testing.assert_close(found["b"], T + 1)


def test_a_module_that_returns_one_tensor_twice() -> None:
    def twice(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x + 1
        return y, y

    run = monograph.compile(twice, T)
    torch.testing.assert_close(run(T), (T + 1, T + 1))


def test_arguments_may_still_be_named() -> None:
    class Subtract(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x - y

    run = monograph.compile(Subtract(), T, T + 1, kwargs=None)
    torch.testing.assert_close(run(T, T + 2), T - (T + 2))
    by_name = monograph.compile(Subtract(), T, kwargs={"y": T + 1})
    torch.testing.assert_close(by_name(T, y=T + 2), T - (T + 2))
