"""A JAX function, traced: its jaxpr, the names of its leaves, and the nesting of both sides."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import export

from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.ir.types import TensorType, dtype_of

_TYPE = re.compile(r"^\s*(?P<dtype>\w+)\[(?P<shape>[^\[\]]*)\]\s*$")


@dataclass(frozen=True)
class Captured:
    """A jaxpr and what it does not say: trees of arguments and results, and names of inputs."""

    jaxpr: Any
    arguments: Any
    results: Any
    names: tuple[str, ...]
    structs: tuple[Any, ...]


def capture(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
) -> Captured:
    """Trace a function on examples: arrays, structs, types as text, or trees of them."""
    if not callable(function):
        raise InputError(
            "this is not a function", expected="a function of JAX's", found=type(function).__name__
        )
    examples = _structs((tuple(arguments), dict(keywords)))

    def call(*leaves: Any) -> Any:
        own, named = jax.tree_util.tree_unflatten(tree, leaves)
        return function(*own, **named)

    paths, tree = jax.tree_util.tree_flatten_with_path(examples)
    leaves = [leaf for _, leaf in paths]
    jaxpr, shapes = jax.make_jaxpr(call, return_shape=True)(*leaves)
    labels = argument_names(function, len(arguments))
    names = tuple(_name(path, labels) for path, _ in paths)
    return Captured(jaxpr, tree, jax.tree_util.tree_structure(shapes), names, tuple(leaves))


def _structs(examples: Any) -> Any:
    """The examples as JAX's types; symbolic sizes of one name are one dimension."""
    scope = export.SymbolicScope()

    def struct(leaf: Any) -> Any:
        if isinstance(leaf, str):
            return _parse(leaf, scope)
        if isinstance(leaf, TensorType):
            return _parse(str(leaf), scope)
        if isinstance(leaf, jax.ShapeDtypeStruct | jax.Array):
            return leaf
        if isinstance(leaf, bool | int | float | complex | np.ndarray | np.generic):
            return leaf
        if hasattr(leaf, "__array__") or hasattr(leaf, "__jax_array__"):
            return leaf
        raise InputError(
            "an example for a JAX function is an array",
            expected='an array, a jax.ShapeDtypeStruct, or a type such as "f32[batch, 4]"',
            found=f"{type(leaf).__name__}: {leaf!r:.60}",
            hint="arguments that are no arrays are static: name them in static_argnums",
        )

    return jax.tree_util.tree_map(struct, examples)


def _parse(text: str, scope: Any) -> Any:
    found = _TYPE.match(text)
    if found is None:
        raise InputError(
            f"{text!r} is no type of an array", expected='text such as "f32[batch, 4]"', found=text
        )
    sizes = found["shape"].strip()
    try:
        shape = export.symbolic_shape(sizes, scope=scope) if sizes else ()
    except ValueError as error:
        raise InputError(f"{text!r} has sizes that JAX cannot read", found=str(error)) from error
    return jax.ShapeDtypeStruct(shape, dtype_of(found["dtype"]).numpy)


def argument_names(function: Callable[..., Any], count: int) -> list[str]:
    """The function's own parameter names where it has that many; else arg0, arg1…"""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    own = [parameter.name for parameter in parameters if parameter.kind in kinds]
    return [own[place] if place < len(own) else f"arg{place}" for place in range(count)]


def _name(path: Sequence[Any], labels: Sequence[str]) -> str:
    """``params.layers.0.w`` for a leaf inside nested arguments."""
    side, *rest = path
    parts = [_key(each) for each in rest]
    if side.idx == 0 and parts:
        parts[0] = labels[int(parts[0])]
    return re.sub(r"[^\w.]", "_", ".".join(parts)) or "x"


def _key(entry: Any) -> str:
    for attribute in ("idx", "key", "name"):
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    return str(entry)
