"""Random graphs that are valid and well typed, and inputs to run them on.

A graph is drawn as a short list of small numbers: the inputs, then one (recipe, seed) pair for each
step, then the outputs. Hypothesis shrinks that list, so a failure comes back as a few nodes.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from hypothesis import strategies as st

from monograph.errors import MonographError
from monograph.ir.dims import Dim, Symbol, evaluate_dim
from monograph.ir.graph import Graph, Value
from monograph.ir.types import Array, DType, TensorType, dtype_of, symbols_of
from tests.properties import rule_patterns, traps
from tests.properties.builder import Builder, Unfit, drop_oversized, last_node
from tests.properties.recipes import RECIPES, SMOOTH

assert traps and rule_patterns  # their recipes are registered now

BATCH = Symbol("n")
LENGTH = Symbol("m", 0, 9)
DTYPES = ("f32", "f32", "f32", "f64", "f16", "bf16", "i32", "i64", "u8", "bool")
SIZES = (2, 3, 1, 5, 7, 0)
ODD_NAMES = ("a b", "x.1", "é", "", '"', "a->b", "%", "\u2028", "-", "1", "return", "a:b", ":")
MAX_NODES = 40

STEP = st.tuples(st.integers(0, len(RECIPES) - 1), st.integers(0, 2**16 - 1))
STEPS = st.one_of(
    st.lists(STEP, min_size=1, max_size=8),
    st.lists(STEP, min_size=8, max_size=16),
    st.lists(STEP, min_size=16, max_size=32),
)


@st.composite
def graphs(draw: Any, *, smooth: bool = False, odd_names: bool = False) -> Graph:
    """A graph of 1 to about 40 nodes.

    ``smooth`` ones have f64 inputs and ops that finite differences can follow; ``odd_names`` gives
    some values names that the text form has to quote.
    """
    choices = random.Random(draw(st.integers(0, 2**16 - 1)))
    graph = Graph("main")
    builder = Builder(graph, [], choices, smooth, symbols=() if smooth else (BATCH, LENGTH))
    _declare_inputs(builder, draw(st.integers(1, 5)))
    for number, seed in draw(STEPS):
        if len(graph) >= MAX_NODES:
            break
        choices.seed(seed)
        grow(builder, number)
    choices.seed(draw(st.integers(0, 2**16 - 1)))
    _declare_outputs(builder)
    if odd_names:
        for value in choices.sample(builder.values, min(3, len(builder.values))):
            graph.rename(value, choices.choice(ODD_NAMES))
    return graph


def grow(builder: Builder, number: int) -> None:
    """Follow one recipe; what the type rules refuse of it is not added."""
    recipes = SMOOTH if builder.smooth else RECIPES
    before = last_node(builder.graph)
    try:
        made = recipes[number % len(recipes)](builder)
        drop_oversized(builder, before)
        builder.values.extend(builder.grown(made))
    except (MonographError, Unfit):
        return


def _declare_inputs(builder: Builder, count: int) -> None:
    """Inputs of several dtypes whose shapes share a few sizes, so that they meet in ops."""
    p, q = builder.random.choices(SIZES, weights=(4, 4, 2, 2, 1, 1), k=2)
    rows: Dim = builder.choose((p, p, p, BATCH, BATCH, LENGTH)) if builder.symbols else p
    columns: Dim = q
    shapes: list[tuple[Dim, ...]] = [
        *((rows, columns), (rows, columns), (columns,), (rows,), (), (1, columns), (rows, 1)),
        *((columns, rows), (2, rows, columns), (columns, columns), (rows, 2, 5, 5)),
        *((3, 3, 3), (rows, rows)),
    ]
    for index in range(count):
        dtype = "f64" if builder.smooth else builder.choose(DTYPES)
        type_ = TensorType(dtype_of(dtype), builder.choose(shapes))
        donate = builder.chance(0.05)
        builder.values.append(builder.graph.add_input(f"x{index}", type_, donate=donate))


def _declare_outputs(builder: Builder) -> None:
    """The last value and some others, perhaps twice, perhaps an input; or all that is unused."""
    graph, values = builder.graph, builder.values
    outputs = [values[-1], *builder.random.choices(values, k=builder.random.randint(0, 3))]
    if builder.chance(0.6):  # nothing is dead but what recipes left unfinished
        outputs.extend(value for value in values if not value.is_used and value not in outputs)
    graph.set_outputs(outputs)
    taken: set[int] = set()
    for position, output in enumerate(outputs):
        matching = [i for i, x in enumerate(graph.inputs) if x.type == output.type]
        if matching and builder.chance(0.1) and matching[0] not in taken:
            graph.updates[position] = matching[0]
            taken.add(matching[0])


@st.composite
def inputs_for(draw: Any, graph: Graph, *, finite: bool = False) -> list[Array]:
    """Arrays for a graph's inputs: ordinary numbers, and special ones unless ``finite``."""
    generator = np.random.default_rng(draw(st.integers(0, 2**16 - 1)))
    symbols = dict.fromkeys(s for value in graph.inputs for s in symbols_of(value.type))
    sizes = {s: draw(st.integers(s.lower, min(s.upper or 7, 7))) for s in symbols}
    special = 0.0 if finite else draw(st.sampled_from((0.0, 0.2, 0.6, 1.0)))
    return [_array(value, sizes, special, generator) for value in graph.inputs]


@st.composite
def programs(draw: Any, *, finite: bool = False) -> tuple[Graph, list[Array]]:
    """A graph and inputs for it."""
    graph = draw(graphs())
    return graph, draw(inputs_for(graph, finite=finite))


def _array(
    value: Value, sizes: dict[Symbol, int], special: float, generator: np.random.Generator
) -> Array:
    shape = tuple(evaluate_dim(dim, sizes) for dim in value.shape)
    dtype = value.dtype
    with np.errstate(all="ignore"):
        ordinary = _ordinary(dtype, shape, generator)
        odd = generator.choice(_specials(dtype), shape)
        return np.where(generator.random(shape) < special, odd, ordinary)


def _ordinary(dtype: DType, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    if dtype.is_float:
        numbers = generator.normal(size=shape) * generator.choice((0.5, 1.0, 4.0))
        return numbers.astype(dtype.numpy)
    low = 0 if dtype.name in ("u8", "bool") else -5
    return generator.integers(low, 9, shape).astype(dtype.numpy)


def _specials(dtype: DType) -> Array:
    """The elements at which rules go wrong."""
    if dtype.name == "bool":
        return np.array([False, True])
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        return np.array([info.min, info.max, 0, 1], dtype.numpy)
    real = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-40, -1e-310, 1e30, -6e4])
    return real.astype(dtype.numpy)
