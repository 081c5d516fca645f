"""JAX functions as graphs: ``from_jax``.

A function is traced by JAX itself (``capture``), the jaxpr is looked over for primitives that have
no meaning here, then its equations are walked in order (``importer``) and each is handed to the
converter of its primitive (``lax/``, one file a family). Control flow becomes regions, calls are
taken in place, and what JAX defines by simpler primitives is traced in their terms. What XLA's
operations mean in ours is written in ``frontends.xla``, which the reader of StableHLO shares.

``jax`` itself is imported by the modules of this package, never by the package's ``__init__``.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from monograph.errors import InputError, UnsupportedError
from monograph.ir.graph import Graph

if TYPE_CHECKING:
    from monograph.frontends.jax.capture import Captured

__all__ = ["find_unsupported", "from_jax", "import_captured", "need_jax"]


def from_jax(
    function: Callable[..., Any],
    *examples: Any,
    kwargs: Mapping[str, Any] | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
) -> Graph:
    """The graph of a JAX function on examples: arrays, structs, types as text, trees of them.

    Leaves of the arguments, in JAX's order, become inputs; those of the result become outputs.
    """
    need_jax()
    from monograph.frontends.jax.capture import capture
    from monograph.frontends.jax.static_arguments import static_of

    static = static_of(function, static_argnums, static_argnames)
    free, named, values = static.split(examples, kwargs or {})
    return import_captured(capture(values.bind(function), free, named), function)


def import_captured(captured: Captured, function: Any = None) -> Graph:
    """The graph of a function that was traced."""
    from monograph.frontends.jax import importer
    from monograph.frontends.jax.types import SymbolTable
    from monograph.ir.region import declare_input

    closed = captured.jaxpr
    problems = importer.find_unsupported(closed.jaxpr)
    if problems:
        raise UnsupportedError("this JAX function has primitives without a meaning here", problems)
    name = getattr(function, "__name__", "main")
    graph = Graph(name if name.isidentifier() else "main")
    symbols = SymbolTable()
    inputs = [
        declare_input(graph, name, symbols.type(variable.aval))
        for name, variable in zip(captured.names, closed.jaxpr.invars, strict=True)
    ]
    with graph.as_current():
        reader = importer.Importer(graph, symbols)
        graph.set_outputs(reader.run(closed.jaxpr, closed.consts, inputs))
    return graph


def find_unsupported(function: Callable[..., Any], *examples: Any) -> list[Any]:
    """Every primitive of a function that ``from_jax`` would refuse; nothing is imported."""
    need_jax()
    from monograph.frontends.jax import importer
    from monograph.frontends.jax.capture import capture

    return importer.find_unsupported(capture(function, examples, {}).jaxpr.jaxpr)


def need_jax() -> None:
    """Refuse where there is no JAX."""
    if importlib.util.find_spec("jax") is None:
        raise InputError("reading JAX functions needs jax", hint="pip install 'monograph[jax]'")
