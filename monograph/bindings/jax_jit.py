"""``monograph.jit``: a JAX function that is compiled when it is called, once for each signature."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from monograph.errors import InputError
from monograph.frontends.jax import need_jax
from monograph.runtime.options import Options

MAX_SIGNATURES = 256
"""How many programs one function keeps; the one that was called longest ago goes first."""


class JitFunction:
    """A function that compiles itself for the types of its arguments, as ``jax.jit`` does."""

    def __init__(
        self,
        function: Callable[..., Any],
        options: Options,
        static_argnums: Sequence[int],
        static_argnames: Sequence[str],
    ) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._options = options
        self._static_argnums = tuple(static_argnums)
        self._static_argnames = tuple(static_argnames)
        self._programs: dict[Any, Any] = {}
        self._lock = threading.Lock()

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """What the function returns; compiled first if there is no program for these types."""
        free, keywords, compiled = self._find(arguments, named)
        return compiled(*free, **keywords)

    def compiled(self, *arguments: Any, **named: Any) -> Any:
        """The program for arguments of these types, which need not be called."""
        return self._find(arguments, named)[2]

    def _find(
        self, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any], Any]:
        import jax

        numbers = {number % max(len(arguments), 1) for number in self._static_argnums}
        free = [each for number, each in enumerate(arguments) if number not in numbers]
        keywords = {k: v for k, v in named.items() if k not in self._static_argnames}
        fixed = {k: v for k, v in named.items() if k in self._static_argnames}
        numbered = [(n, arguments[n]) for n in sorted(numbers) if n < len(arguments)]
        static = (*numbered, *sorted(fixed.items()))
        leaves, tree = jax.tree_util.tree_flatten((free, keywords))
        key = (tree, tuple(map(_signature, leaves)), static)
        try:
            found = self._programs.get(key)
        except TypeError as error:
            raise InputError(
                "a static argument must be hashable", found=str(error), hint="use a tuple"
            ) from error
        if found is None:
            found = self._compile(arguments, keywords, fixed, key)
        return free, keywords, found

    def _compile(
        self,
        arguments: tuple[Any, ...],
        keywords: dict[str, Any],
        fixed: dict[str, Any],
        key: Any,
    ) -> Any:
        import jax

        from monograph.bindings.jax_models import compile_jax

        function = functools.partial(self._function, **fixed) if fixed else self._function
        static = {number % max(len(arguments), 1) for number in self._static_argnums}
        examples = [
            each if number in static else jax.tree_util.tree_map(_struct, each)
            for number, each in enumerate(arguments)
        ]
        named = jax.tree_util.tree_map(_struct, keywords)
        with self._lock:
            found = self._programs.get(key)
            if found is None:
                found = compile_jax(function, examples, self._options, named, self._static_argnums)
                while len(self._programs) >= MAX_SIGNATURES:
                    self._programs.pop(next(iter(self._programs)))
                self._programs[key] = found
        return found


def _signature(leaf: Any) -> Any:
    """What two leaves of one program have in common: shape, dtype, and whether that is weak."""
    import jax

    is_number = isinstance(leaf, int | float | complex)
    weak = getattr(getattr(leaf, "aval", None), "weak_type", is_number)
    return np.shape(leaf), str(jax.dtypes.result_type(leaf)), weak


def _struct(leaf: Any) -> Any:
    """An example's type: a tracer's contents must not be kept, and a number keeps its weakness."""
    import jax

    if isinstance(leaf, jax.core.Tracer):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=leaf.aval.weak_type)
    return leaf


def jit(
    function: Callable[..., Any] | None = None,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    **options: Any,
) -> Any:
    """A JAX function that compiles itself when it is called, as ``jax.jit`` does: a decorator.

        @monograph.jit
        def step(params, x): ...

    There is a program for each signature (tree, shapes and dtypes of the arguments, and values of
    static ones). ``options`` are those of ``monograph.compile``: ``level``, ``threads``,
    ``strict``, ``cache``… It may be called inside other JAX programs and differentiated in reverse
    mode; see ``monograph.runtime.jax_calls``.
    """
    need_jax()
    if function is None:
        return functools.partial(
            jit, static_argnums=static_argnums, static_argnames=static_argnames, **options
        )
    if not callable(function):
        raise InputError(
            "jit takes a function", expected="a function of JAX's", found=type(function).__name__
        )
    numbers = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    return JitFunction(function, Options(**options), numbers, names)
