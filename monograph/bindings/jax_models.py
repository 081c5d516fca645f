"""JAX functions, traced on examples and compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from monograph.bindings.jax_jit import JitFunction
from monograph.compiler import compile_graph
from monograph.frontends.jax import import_captured
from monograph.frontends.jax.capture import capture
from monograph.frontends.jax.static_arguments import StaticValues, check_hashable, static_of
from monograph.runtime.arguments import element_strides
from monograph.runtime.jax_calls import CompiledJax
from monograph.runtime.options import Options


def compile_jax(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    options: Options | None = None,
    keywords: Mapping[str, Any] | None = None,
) -> CompiledJax:
    """Trace a JAX function on examples and compile it; what its jit calls static stays as it is."""
    parameters = static_of(function)
    if isinstance(function, JitFunction):
        parameters, function = function.static, function.function
    free, named, static = parameters.split(arguments, keywords or {})
    check_hashable(static)
    return compile_bound(function, free, options, named, static)


def compile_bound(
    function: Callable[..., Any],
    free: Sequence[Any],
    options: Options | None,
    named: Mapping[str, Any],
    static: StaticValues,
) -> CompiledJax:
    """The same, of arguments that are told apart from the static ones."""
    bound = static.bind(function)
    captured = capture(bound, free, named)
    graph = import_captured(captured, bound)
    strides = ((k, element_strides(example)) for k, example in enumerate(captured.structs))
    known = tuple((k, each) for k, each in strides if each is not None)
    chosen = replace(options or Options(), strides=known)
    executable = compile_graph(graph, chosen, owned=True)

    def compile_too(other: Callable[..., Any], examples: Sequence[Any]) -> CompiledJax:
        return compile_jax(other, examples, options)

    return CompiledJax(executable, captured, bound, compile_too, static)
