"""Programs with several free sizes, none of which has a declared end, as ONNX files have them.

Each is compiled once and run at several sizes against the interpreter. The first ones are programs
whose sizes once could not be compiled: rows that might be fewer than none, remainders of two
sizes under a convolution. The others are drawn at random.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.errors import MonographError
from monograph.frontends.trace import trace
from monograph.ir.dims import Dim, Symbol, dim_max, dim_min
from monograph.ir.graph import Graph, Value
from monograph.ir.interpret import interpret
from monograph.ir.types import Array, TensorType, f32

TOLERANCE = 2e-3
"""Of sums of some hundred products of normal numbers in f32."""
STEPS = 5
QUICK, ALL = (1,), range(60)

Spec = tuple[int | str, ...]


def weight(*shape: int) -> Array:
    draw = np.random.default_rng(sum(shape))
    return (draw.standard_normal(shape) / max(1, np.prod(shape[1:])) ** 0.5).astype(np.float32)


def free(function: Callable[..., Any], *specs: Spec) -> Graph:
    """The graph of a function, names in its arguments' shapes being sizes from zero on."""
    types = [
        TensorType(f32, tuple(Symbol(dim, 0) if isinstance(dim, str) else dim for dim in spec))
        for spec in specs
    ]
    return trace(function, *types)


def arrays(specs: Sequence[Spec], sizes: Mapping[str, int]) -> list[Array]:
    return [weight(*(sizes[d] if isinstance(d, str) else d for d in spec)) for spec in specs]


def check(graph: Graph, specs: Sequence[Spec], sizes: Sequence[Mapping[str, int]]) -> None:
    """Compiled once, it computes at each size what the interpreter does, or both refuse."""
    executable = compile_graph(graph, Options(threads=1, cache=False))
    for each in sizes:
        inputs = arrays(specs, each)
        try:
            expected = interpret(graph, inputs)
        except MonographError:
            with pytest.raises(MonographError):
                executable.run(inputs)
            continue
        for got, wanted in zip(executable.run(inputs), expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=TOLERANCE, atol=TOLERANCE)


def convolution(x: Value, channels: int, kernel: int, stride: Any, padding: int) -> Value:
    (inputs,) = (dim for dim in x.shape[1:2] if isinstance(dim, int))
    return F.relu(F.conv(x, weight(channels, inputs, kernel, kernel), None, stride, padding))


def test_frames_of_a_free_length_of_a_free_signal() -> None:
    def frames(x: Value, window: Value) -> Value:
        length, size = window.shape[0], x.shape[1]
        count = (size - length) // 4 + 1
        starts = F.multiply(F.reshape(F.arange(count), (count, 1)), 4)
        found = F.take(x, F.add(starts, F.reshape(F.arange(length), (1, length))), axis=1)
        found = F.multiply(found, window)
        return F.matmul(found, F.transpose(found, (0, 2, 1)))

    specs = (("b", "t"), ("n",))
    sizes = [dict(b=1, t=64, n=16), dict(b=3, t=97, n=13), dict(b=2, t=31, n=31)]
    check(free(frames, *specs), specs, sizes)


def test_a_recogniser_multiplies_rows_of_which_there_might_be_fewer_than_none() -> None:
    def recogniser(x: Value) -> Value:
        x = convolution(x, 24, 2, (2, 1), 0)
        batch, channels, height, width = x.shape
        rows = F.reshape(F.transpose(x, (0, 3, 2, 1)), (batch * width * height, channels))
        return F.reshape(F.matmul(rows, weight(24, 32)), (batch, width * height, 32))

    specs = (("b", 3, "h", "w"),)
    sizes = [dict(b=1, h=4, w=9), dict(b=2, h=7, w=5)]
    check(free(recogniser, *specs), specs, sizes)


def padded(x: Value, multiple: Value) -> Value:
    """Convolutions of images that are padded to a multiple of a free size, and cut again."""
    height, width, size = x.shape[2], x.shape[3], multiple.shape[0]
    x = F.pad(x, (0, 0, 0, 0), (0, 0, -height % size, -width % size))
    x = convolution(x, 8, 3, 1, 1)
    return convolution(F.slice(x, (0, 0, 0, 0), (None, None, height, width)), 8, 3, 1, 1)


PADDED: tuple[Spec, ...] = (("b", 8, "h", "w"), ("p",))


def test_convolutions_of_images_padded_to_a_multiple_of_a_free_size_are_compiled() -> None:
    options = Options(threads=1, cache=False, strict=True)
    assert compile_graph(free(padded, *PADDED), options).program is not None


@pytest.mark.slow
def test_convolutions_of_images_padded_to_a_multiple_of_a_free_size() -> None:
    sizes = [dict(b=1, h=4, w=5, p=4), dict(b=2, h=9, w=7, p=3), dict(b=1, h=1, w=5, p=7)]
    check(free(padded, *PADDED), PADDED, sizes)


def test_products_remainders_and_differences_of_four_sizes() -> None:
    def products(x: Value, y: Value) -> list[Value]:
        (a, b), (c, d) = x.shape, y.shape
        whole = F.reshape(
            F.multiply(F.reshape(x, (a * b, 1)), F.reshape(y, (1, c * d))), (a * b * c * d,)
        )
        count = a * b * c * d // (b + 1)
        rows = F.reshape(F.slice(whole, (0,), (count * (b + 1),)), (count, b + 1))
        rest = F.slice(whole, (0,), (a * b % (c * d + 1),))
        longer = F.slice(whole, (0,), (dim_max(a, c) - dim_min(a, c),))
        return [F.matmul(rows, F.transpose(rows, (1, 0))), rest, longer]

    specs = (("a", "b"), ("c", "d"))
    sizes = [dict(a=6, b=4, c=5, d=3), dict(a=1, b=1, c=1, d=1), dict(a=7, b=2, c=3, d=5)]
    check(free(products, *specs), specs, sizes)


def test_attention_to_no_queries_touches_nothing() -> None:
    specs = (("b", 2, "m", 16), ("b", 2, "n", 16))
    sizes = [dict(b=1, m=0, n=2), dict(b=3, m=1, n=5), dict(b=2, m=11, n=7)]
    check(free(lambda x, y: F.attention(x, y, y), *specs), specs, sizes)


# Random programs ----------------------------------------------------------------------------------


def _pooled(x: Value, draw: random.Random) -> Value:
    kernel = draw.randint(2, 3)
    return F.max_pool(x, kernel, draw.randint(1, 3), kernel // 2, ceil_mode=draw.random() < 0.5)


def _convolved(x: Value, draw: random.Random) -> Value:
    kernel = draw.randint(1, 3)
    stride = (draw.randint(1, 3), draw.randint(1, 2))
    return convolution(x, 4, kernel, stride, draw.randint(0, kernel // 2))


def _rounded_up(x: Value, draw: random.Random) -> Value:
    height, width = x.shape[2:]
    divisor: Dim = draw.choice([3, 7, x.shape[0] + 1])
    return F.pad(x, (0, 0, 0, 0), (0, 0, -height % divisor, -width % 4))


def _cut_to_the_shorter(x: Value, draw: random.Random) -> Value:
    shorter = dim_min(*x.shape[2:])
    return F.slice(x, (0, 0, 0, 0), (None, None, shorter, None))


def _beside_itself(x: Value, draw: random.Random) -> Value:
    axis = draw.choice([2, 3])
    return F.concat([x, F.slice(x, (0,), (draw.choice([1, 2]),), axes=(axis,))], axis)


def _turned(x: Value, draw: random.Random) -> Value:
    batch, channels, height, width = x.shape
    flat = F.reshape(x, (batch, channels, height * width))
    return F.transpose(F.reshape(flat, (batch, channels, height, width)), (0, 1, 3, 2))


def _repeated(x: Value, draw: random.Random) -> Value:
    return F.tile(x, (1, 1, draw.randint(1, 2), 2))


RECIPES = (
    _pooled,
    _convolved,
    _rounded_up,
    _cut_to_the_shorter,
    _beside_itself,
    _turned,
    _repeated,
)


def run_program(seed: int) -> None:
    """A random program of images, whose pixels end up as the rows of a product."""
    draw = random.Random(seed)
    recipes = draw.choices(RECIPES, k=STEPS)

    def program(x: Value) -> list[Value]:
        for recipe in recipes:
            x = recipe(x, draw)
        batch, channels, height, width = x.shape
        rows = F.reshape(F.transpose(x, (0, 2, 3, 1)), (batch * height * width, channels))
        return [x, F.matmul(rows, weight(4, 9))]

    specs: tuple[Spec, ...] = (("b", 4, "h", "w"),)
    sizes = [dict(b=1, h=13, w=17), dict(b=2, h=7, w=9), dict(b=1, h=2, w=1), dict(b=3, h=16, w=5)]
    check(free(program, *specs), specs, sizes)


@pytest.mark.parametrize("seed", QUICK)
def test_random_programs_of_free_sizes(seed: int) -> None:
    run_program(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", ALL)
def test_more_random_programs_of_free_sizes(seed: int) -> None:
    run_program(seed)
