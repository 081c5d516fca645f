"""Inputs that find faults: ordinary ones, awkward numbers, and sizes at the ends of their ranges.

Floats are drawn in several ways: normal ones, magnitudes far apart, all equal (variances vanish),
both zeros with subnormals, and NaN and infinities among others. Integers are 0 and 1, which suits
masks, then small ones of both signs, then the ends of their range. Indices stay inside the table
that they are looked up in, its first and last row among them. Symbolic sizes are the usual ones,
the smallest, the largest, and an odd one that fills no vector.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.inspect.inputs import USUAL_SIZE, choose_sizes
from monograph.inspect.precise import precision_of
from monograph.ir.dims import Dim, Symbol, evaluate_dim
from monograph.ir.graph import Graph, Value
from monograph.ir.op import Family
from monograph.ir.types import Array, TensorType, string

MOST_ELEMENTS = 1 << 22
"""Of one input at the largest sizes."""
LARGE_SIZE = 131
"""For a symbolic dimension that is not bounded: prime, so that nothing divides it."""
ODD_SIZE = 7
CONTENTS = ("normal", "specials", "zeros", "wide", "equal")
"""How floats are drawn."""
INTEGERS = ("integers", "ends")
"""How integers are drawn that are no indices, beside 0 and 1; floats are normal ones then."""
MAX_SMALL_INTEGER = 9
"""Small integers lie between this and its negative."""
SHARE_OF_AWKWARD = 0.25
_TABLES = {"embedding": (0, 1), "take": (0, 1), "take_along_axis": (0, 1)}
"""Ops that look indices up: the operands that are the table and the indices."""


@dataclass(frozen=True)
class Sample:
    """Inputs for a graph, and how they were made."""

    name: str
    arrays: tuple[Any, ...]
    sizes: Mapping[str, int]


def draw_samples(
    graph: Graph,
    given: Sequence[Any] = (),
    sizes: Mapping[str, int] | None = None,
    seed: int = 0,
    state: Mapping[int, Any] | None = None,
) -> Iterator[Sample]:
    """Samples, the most telling first.

    ``given`` are the caller's inputs, which make the first sample, unless each is one number over
    and over: such ones were made up of a type, and come last. ``state`` are those inputs that are
    always the same (a model's buffers), by number. Of the symbols, ``sizes`` fixes some.
    """
    fixed = dict(sizes or {})
    known = dict(state or {})
    own = [array for k, array in enumerate(given) if k not in known]
    is_telling = any(not isinstance(each, np.ndarray) or _varies(each) for each in own)
    if given and (is_telling or not own):
        yield Sample("given", tuple(given), {})
    usual = choose_sizes(graph, fixed)
    makers = [("normal", usual)]
    makers += [("normal", each) for each in _extreme_sizes(graph, fixed)]
    makers += [(contents, usual) for contents in CONTENTS[1:]]
    makers += [(contents, usual) for contents in INTEGERS]
    if given and is_telling:  # which is an ordinary sample already
        makers.append(makers.pop(0))
    drawn = [value for k, value in enumerate(graph.inputs) if k not in known]
    has_floats = any(isinstance(x.type, TensorType) and x.dtype.is_float for x in drawn)
    has_integers = any(_is_number(value) for value in drawn)
    for number, (contents, bindings) in enumerate(makers):
        if given and not drawn:
            break
        if contents in CONTENTS[1:] and not has_floats:
            continue
        if contents in INTEGERS and not has_integers:
            continue
        generator = np.random.default_rng(seed + number)
        arrays = tuple(
            known[k] if k in known else draw(value, contents, bindings, generator)
            for k, value in enumerate(graph.inputs)
        )
        named = {symbol.name: size for symbol, size in bindings.items()}
        yield Sample(_name(contents, bindings), arrays, named)
    if own and not is_telling:
        yield Sample("given", tuple(given), {})


def _varies(array: Array) -> bool:
    """Whether it is more than one number over and over."""
    flat = array.reshape(-1)
    return bool((flat != flat[:1]).any())


def list_oversized(graph: Graph, sizes: Mapping[str, int] | None = None) -> list[str]:
    """The samples that are not drawn, because an input of them would be too large."""
    extremes = _extreme_sizes(graph, dict(sizes or {}), fitting=False)
    return [_name("normal", bindings) for bindings in extremes]


def _name(contents: str, bindings: Mapping[Symbol, int]) -> str:
    shown = ", ".join(f"{symbol.name}={size}" for symbol, size in bindings.items())
    return f"{contents} ({shown})" if shown else contents


def _extreme_sizes(
    graph: Graph, fixed: Mapping[str, int], *, fitting: bool = True
) -> Iterator[dict[Symbol, int]]:
    """The smallest, the largest and an odd size of each symbol: those that fit, or the others."""
    free = [symbol for symbol in graph.symbols().values() if symbol.name not in fixed]
    if not free:
        return
    seen = [choose_sizes(graph, fixed)]
    for pick in (_smallest, _odd, _largest):
        chosen = {symbol.name: pick(symbol) for symbol in free}
        bindings = choose_sizes(graph, {**fixed, **chosen})
        if bindings not in seen and _fits(graph, bindings) == fitting:
            seen.append(bindings)
            yield bindings


def _smallest(symbol: Symbol) -> int:
    return symbol.lower


def _odd(symbol: Symbol) -> int:
    upper = ODD_SIZE if symbol.upper is None else symbol.upper
    return max(symbol.lower, min(ODD_SIZE, upper))


def _largest(symbol: Symbol) -> int:
    if symbol.upper is None:
        return max(LARGE_SIZE, symbol.lower + LARGE_SIZE - USUAL_SIZE)
    return symbol.upper


def _fits(graph: Graph, bindings: Mapping[Symbol, int]) -> bool:
    tensors = [value.type for value in graph.inputs if isinstance(value.type, TensorType)]
    counts = [math.prod(evaluate_dim(dim, bindings) for dim in each.shape) for each in tensors]
    return max(counts, default=0) <= MOST_ELEMENTS


def draw(
    value: Value, contents: str, bindings: Mapping[Symbol, int], generator: np.random.Generator
) -> Any:
    """An input of the value's type."""
    if not isinstance(value.type, TensorType) or value.dtype is string:
        raise InputError(f"input {value.name!r} cannot be made up", found=str(value.type))
    shape = tuple(evaluate_dim(dim, bindings) for dim in value.type.shape)
    dtype = value.dtype.numpy
    if dtype.kind == "c":
        parts = [_floats(shape, contents, np.dtype("f4"), generator) for _ in range(2)]
        return (parts[0] + 1j * parts[1]).astype(dtype)
    if value.dtype.is_float:
        return _floats(shape, contents, dtype, generator)
    bound = index_bound(value, bindings)
    if bound is None and contents in INTEGERS and _is_number(value):
        return _integers(shape, contents, dtype, generator)
    bound = 2 if bound is None else bound
    drawn = generator.integers(0, bound, shape)
    flat = drawn.reshape(-1)
    if flat.size > 1:
        flat[0], flat[-1] = 0, bound - 1
    return drawn.astype(dtype)


def _is_number(value: Value) -> bool:
    """Whether an input is of integers that are not looked up in a table."""
    if not isinstance(value.type, TensorType) or not value.dtype.is_integer:
        return False
    return not any(True for _ in _tables(value))


def index_bound(value: Value, bindings: Mapping[Symbol, int]) -> int | None:
    """The size of the smallest table that an integer input indexes; None if it indexes none."""
    bounds = [max(1, evaluate_dim(size, bindings)) for size in _tables(value)]
    return min(bounds, default=None)


def _tables(value: Value) -> Iterator[Dim]:
    """The sizes of the tables that an input's integers are looked up in.

    The way to the table may lead through ops that move elements without changing them.
    """
    pending, seen = [value], {value}
    while pending:
        each = pending.pop()
        for use in each.uses:
            node = use.node
            table, indices = _TABLES.get(node.op.name, (-1, -1))
            if table >= 0 and node.operands[indices] is each:
                axis = int(node.op.attributes().get("axis", 0))
                yield node.operands[table].tensor.shape[axis]
            elif node.op.family is Family.SHAPE or node.op.name == "cast":
                found = [result for result in node.results if result not in seen]
                seen.update(found)
                pending += found


def _integers(
    shape: tuple[int, ...], contents: str, dtype: np.dtype[Any], generator: np.random.Generator
) -> Array:
    """Small integers of both signs, or those with the ends of the range among them."""
    info = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    low, high = max(int(info.min), -MAX_SMALL_INTEGER), min(int(info.max), MAX_SMALL_INTEGER)
    made = generator.integers(low, high + 1, shape).astype(dtype)
    if contents == "ends":
        ends = np.array([info.min, info.max, info.min + 1, info.max - 1]).astype(dtype)
        chosen = ends[generator.integers(0, len(ends), shape)]
        made = np.where(generator.random(shape) < SHARE_OF_AWKWARD, chosen, made)
    return np.asarray(made)


def _floats(
    shape: tuple[int, ...], contents: str, dtype: np.dtype[Any], generator: np.random.Generator
) -> Array:
    numbers = generator.normal(size=shape)
    if contents == "wide":
        numbers = np.sign(numbers) * np.exp2(generator.uniform(-16, 6, shape))
    elif contents == "equal":
        numbers = np.full(shape, 0.75)
    with np.errstate(over="ignore"):
        made = numbers.astype(dtype)
    if contents in ("zeros", "specials"):
        awkward = np.array(_awkward(dtype, contents), dtype)
        chosen = awkward[generator.integers(0, len(awkward), shape)]
        made = np.where(generator.random(shape) < SHARE_OF_AWKWARD, chosen, made)
    return np.asarray(made, dtype)


def _awkward(dtype: np.dtype[Any], contents: str) -> list[float]:
    eps, tiny, largest = precision_of(dtype)
    finite = [0.0, -0.0, 1.0, -1.0, tiny, -tiny / 4, eps]
    if contents == "zeros":
        return finite
    is_widest = eps <= np.finfo(np.float64).eps  # nothing wider says what should not overflow
    large = math.sqrt(largest) if is_widest else largest
    return [*finite, large / 1024, math.nan, math.inf, -math.inf]
