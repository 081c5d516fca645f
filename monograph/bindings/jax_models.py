"""JAX functions, traced on examples and compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from monograph.compiler import compile_graph
from monograph.frontends.jax import import_captured
from monograph.frontends.jax.capture import capture
from monograph.runtime.arguments import element_strides
from monograph.runtime.jax_calls import CompiledJax
from monograph.runtime.options import Options


def compile_jax(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    options: Options | None = None,
    keywords: Mapping[str, Any] | None = None,
    static_argnums: Sequence[int] = (),
) -> CompiledJax:
    """Trace a JAX function on examples and compile it."""
    captured = capture(function, arguments, keywords or {}, static_argnums)
    graph = import_captured(captured, function)
    strides = ((k, element_strides(example)) for k, example in enumerate(captured.structs))
    known = tuple((k, each) for k, each in strides if each is not None)
    chosen = replace(options or Options(), strides=known)
    executable = compile_graph(graph, chosen, owned=True)

    def compile_too(other: Callable[..., Any], examples: Sequence[Any]) -> CompiledJax:
        return compile_jax(other, examples, options)

    return CompiledJax(executable, captured, function, compile_too)
