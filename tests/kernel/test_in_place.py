"""An output takes an input's memory only where no element is read after it was written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.ir.interpret import interpret
from monograph.ir.types import f16, i32
from monograph.kernel import expr as e
from monograph.kernel.in_place import is_one_to_one, overwritable_inputs
from monograph.kernel.parse import parse_kernel
from tests.kernel.build import flat


def overwritable(function: Any, *types: str, memory: tuple[int, ...] | None = None) -> Any:
    kernel = flat(function, *types)
    return overwritable_inputs(kernel, memory or tuple(range(len(kernel.inputs))))


def test_elements_that_are_read_where_they_are_written_may_be_overwritten() -> None:
    assert overwritable(lambda x, y: x * 2.0 + y, "f32[6, 8]", "f32[6, 8]") == (0, 1)


def test_sizes_may_be_symbolic() -> None:
    assert overwritable(lambda x, y: x * 2.0 + y, "f32[n, m, 3]", "f32[m, 3]") == (0,)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + x[0],
        lambda x: x + F.flip(x, (0,)),
        lambda x: F.transpose(x, (1, 0)),
        lambda x: x + x[:, :1],
        lambda x: F.transpose(x, (1, 0)) + x,
    ],
)
def test_elements_that_others_read_may_not(function: Any) -> None:
    assert overwritable(function, "f32[8, 8]") == ()


def test_what_two_buffers_name_is_one_memory() -> None:
    def rows(x: Any, first: Any) -> Any:
        return x - first

    types = ("f32[32, 64]", "f32[64]")
    assert overwritable(rows, *types) == (0,)
    assert overwritable(rows, *types, memory=(7, 7)) == ()


def test_an_empty_output_beside_another_is_one_as_well() -> None:
    text = (
        "kernel k(b0: f32[8]) -> (%so1: f32[8]):\n  for i0 < 8:\n    o1[i0] = (b0[i0] * 2.0:f32)\n"
    )
    assert overwritable_inputs(parse_kernel(text % ""), (0,)) == (0,)
    assert overwritable_inputs(parse_kernel(text % "o0: f32[0], "), (0,)) == ()


def test_another_number_of_bytes_is_no_place_to_write_to() -> None:
    assert overwritable(lambda x: F.cast(x, f16), "f32[64]") == ()
    assert overwritable(lambda x: F.cast(x, i32), "f32[64]") == (0,)


def test_a_reduction_is_not_done_in_place() -> None:
    assert overwritable(lambda x: x - F.max(x, axis=-1, keepdims=True), "f32[4, 8]") == ()


def test_positions_that_meet_are_not_one_to_one() -> None:
    i, j = e.axis("i", 4), e.axis("j", 8)
    assert is_one_to_one(e.index(i.symbol * 8 + j.symbol), (i, j))
    assert is_one_to_one(e.index(i.symbol + j.symbol * 5), (i, j))
    assert not is_one_to_one(e.index(i.symbol * 7 + j.symbol), (i, j))
    assert not is_one_to_one(e.index(j.symbol), (i, j))
    assert not is_one_to_one(e.index(i.symbol * 8 + j.symbol % 4), (i, j))


def norm(x: Any) -> Any:
    return F.layer_norm(x)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: F.relu(norm(x)[None] - norm(x)[0]) @ w,
        lambda x, w: F.flip(F.mean(F.unsqueeze(norm(x), 1) + norm(x)[0], axis=1), (1,)) @ w,
        lambda x, w: F.cumsum(norm(x)[None] * norm(x)[-1:], axis=1),
        lambda x, w: norm(F.reshape(norm(x), (1, 32, 64)) + norm(x)[3]),
        lambda x, w: F.softmax(F.reshape(norm(x), (32, 1, 64)) - norm(x)[::-1][0], -1) @ w,
    ],
)
def test_what_is_read_at_two_places_is_not_written_over(function: Any, threads: int) -> None:
    graph = monograph.trace(function, "f32[32, 64]", "f32[64, 64]")
    generator = np.random.default_rng(0)
    given = [generator.normal(size=s).astype(np.float32) for s in ((32, 64), (64, 64))]
    (got,) = compile_graph(graph, Options(threads=threads))(*given)
    (want,) = interpret(graph, given)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
