"""Inputs for a graph, from what a person says of them: a file, or how to make one up.

``x=photo.npy`` reads a file, and ``inputs.npz`` all that a file has, each by its name;
``x=random``, ``x=zeros`` and ``x=ones`` make one up, and
``ids=random:0:30000`` whole numbers from a range. What nobody mentions is random: floats from a
normal distribution, whole numbers 0 or 1, which is in the range of every table. Symbolic sizes come
from the files, from what was said (``batch=8``), or are the nearest to 64 that their range allows.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from monograph.errors import InputError
from monograph.ir.dims import Symbol, evaluate_dim
from monograph.ir.graph import Graph, Value
from monograph.ir.interpret import check_range
from monograph.ir.specialize import SizeRange
from monograph.ir.types import Array, TensorType, string

USUAL_SIZE = 64
"""The size of a symbolic dimension that nobody has said anything about."""
_RANDOM = re.compile(r"random(?::(?P<low>-?\d+):(?P<high>-?\d+))?")
_WAYS = "a .npy file, random, random:LOW:HIGH, zeros or ones"
ALL = ""
"""Stands for the inputs that a ``.npz`` file has, each by its own name."""


def split_inputs(given: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """What was said of inputs by name (``x=zeros``), and the others: types of examples.

    A ``.npz`` file says it of all that it has (``ALL``).
    """
    named = [text.partition("=") for text in given if "=" in text]
    ways = {name: way for name, _, way in named}
    others = [text for text in given if "=" not in text]
    files = [text for text in others if text.endswith(".npz")]
    if len(files) > 1:
        raise InputError("inputs come from one .npz file", found=", ".join(files))
    if files:
        ways[ALL] = files[0]
    return ways, [text for text in others if text not in files]


_SIZE_RANGE = re.compile(
    r"(?P<name>[^=]+)=(?P<low>[0-9]{1,18})(?:\.\.(?P<high>[0-9]{1,18}))?", re.ASCII
)


def parse_sizes(given: Sequence[str]) -> dict[str, int]:
    """``batch=8`` as a name and a number."""
    sizes = {}
    for text in given:
        name, _, number = text.partition("=")
        if not number.isascii() or not number.isdecimal():
            raise InputError(f"{text!r} is not a size", expected="a name and a number: batch=8")
        sizes[name] = int(number)
    return sizes


def parse_size_ranges(given: Sequence[str]) -> dict[str, SizeRange]:
    """``batch=8`` as a name and a number, ``height=32..640`` as one and a range."""
    found: dict[str, SizeRange] = {}
    for text in given:
        match = _SIZE_RANGE.fullmatch(text)
        if match is None:
            raise InputError(
                f"{text!r} is not a size", expected="batch=8, or a range: height=32..640"
            )
        name, low, high = match["name"], int(match["low"]), match["high"]
        found[name] = low if high is None else (low, int(high))
    return found


def choose_sizes(
    graph: Graph, given: Mapping[str, int], arrays: Mapping[str, Array] | None = None
) -> dict[Symbol, int]:
    """A size for every symbol of a graph."""
    symbols = graph.symbols()
    unknown = [name for name in given if name not in symbols]
    if unknown:
        raise InputError(
            f"no dimension is called {unknown[0]!r}",
            expected=", ".join(symbols) or "nothing: every size is known",
        )
    wrong = [name for name, size in given.items() if type(size) is not int or size < 0]
    if wrong:
        raise InputError(
            f"the size of {wrong[0]!r} is no size",
            expected="0 or more",
            found=repr(given[wrong[0]]),
        )
    for name, size in given.items():
        check_range(symbols[name], size, f"{name}={size}")
    chosen = {symbol: _usual(symbol) for symbol in symbols.values()}
    for value in graph.inputs:
        array = (arrays or {}).get(value.name)
        if array is None or not isinstance(value.type, TensorType):
            continue
        pairs = zip(value.type.shape, array.shape, strict=False)
        found = {dim: size for dim, size in pairs if isinstance(dim, Symbol)}
        for symbol, size in found.items():
            if given.get(symbol.name, size) != size:
                raise InputError(
                    f"two sizes are given for {symbol.name!r}",
                    expected=f"{size}, as the file of {value.name!r} has it",
                    found=f"{symbol.name}={given[symbol.name]}",
                )
        chosen |= found
    return chosen | {symbols[name]: size for name, size in given.items()}


def make_inputs(
    graph: Graph, ways: Mapping[str, str], sizes: Mapping[str, int], seed: int = 0
) -> list[Array]:
    """An array for every input of the graph, in order."""
    names = [value.name for value in graph.inputs]
    read = _read_all(ways[ALL]) if ALL in ways else {}
    read |= {name: _read(name, way) for name, way in ways.items() if way.endswith(".npy")}
    unknown = [name for name in (*ways, *read) if name not in (*names, ALL)]
    if unknown:
        raise InputError(f"there is no input {unknown[0]!r}", expected=", ".join(names))
    bindings = choose_sizes(graph, sizes, read)
    generator = np.random.default_rng(seed)
    arrays = []
    for value in graph.inputs:
        made = _make_input(value, ways.get(value.name, "random"), bindings, generator)
        arrays.append(read.get(value.name, made))
    return arrays


def _usual(symbol: Symbol) -> int:
    largest = USUAL_SIZE if symbol.upper is None else symbol.upper
    return max(symbol.lower, min(USUAL_SIZE, largest))


def _read(name: str, way: str) -> Array:
    if not Path(way).is_file():
        raise InputError(f"input {name!r}: there is no file {way!r}", expected=_WAYS)
    try:
        array: Array = np.load(way, allow_pickle=False)
    except (ValueError, EOFError, OSError) as problem:
        raise InputError(
            f"input {name!r}: {way} is not a NumPy file", found=_describe_problem(problem)
        ) from None
    return array


def _describe_problem(problem: Exception) -> str:
    """What is wrong with a file; NumPy takes what it does not know for a pickle."""
    return "bytes of another kind" if "pickled" in str(problem) else str(problem)


def _read_all(path: str) -> dict[str, Array]:
    """The arrays of a ``.npz`` file, by name."""
    if not Path(path).is_file():
        raise InputError(f"there is no file {path!r}", expected="a .npz file of inputs")
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as problem:
        raise InputError(
            f"{path} is not a .npz file of arrays", found=_describe_problem(problem)
        ) from None


def _make_input(
    value: Value, way: str, bindings: Mapping[Symbol, int], generator: np.random.Generator
) -> Array:
    """An array of the value's type."""
    if not isinstance(value.type, TensorType) or value.dtype is string:
        raise InputError(f"input {value.name!r} cannot be made up", found=str(value.type))
    shape = tuple(evaluate_dim(dim, bindings) for dim in value.type.shape)
    try:
        return _fill_input(value, way, shape, generator)
    except (MemoryError, ValueError) as problem:  # also of more elements than an index counts
        raise InputError(
            f"input {value.name!r} is too large to be made up", found=f"{list(shape)}: {problem}"
        ) from None


def _fill_input(
    value: Value, way: str, shape: tuple[int, ...], generator: np.random.Generator
) -> Array:
    dtype = value.dtype.numpy
    if way.endswith(".npy") or way == "zeros":
        return np.zeros(shape, dtype)
    if way == "ones":
        return np.ones(shape, dtype)
    limits = _RANDOM.fullmatch(way)
    if limits is None:
        raise InputError(f"input {value.name!r} cannot be {way!r}", expected=_WAYS)
    if value.dtype.is_float and limits["low"] is None:
        return generator.normal(size=shape).astype(dtype)
    low, high = int(limits["low"] or 0), int(limits["high"] or 2)
    if low >= high:
        raise InputError(f"input {value.name!r}: {way!r} is an empty range", expected="LOW < HIGH")
    if value.dtype.is_float:
        return generator.uniform(low, high, shape).astype(dtype)
    return generator.integers(low, high, shape).astype(dtype)
