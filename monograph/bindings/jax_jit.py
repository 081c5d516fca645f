"""``monograph.jit``: a JAX function that is compiled when it is called, once for each signature."""

from __future__ import annotations

import functools
import threading
import types
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from monograph.errors import InputError
from monograph.frontends.jax import need_jax
from monograph.frontends.jax.static_arguments import (
    StaticParameters,
    StaticValues,
    check_hashable,
    static_of,
)
from monograph.runtime.options import Options

PERMISSIONS = frozenset({"donate_argnames", "donate_argnums", "inline", "keep_unused"})
"""Options of ``jax.jit`` that change no result: leave to use memory again, and how JAX calls."""

MAX_SIGNATURES = 256
"""How many programs one function keeps; the one that was called longest ago goes first."""


class JitFunction:
    """A function that compiles itself for the types of its arguments, as ``jax.jit`` does."""

    def __init__(
        self,
        function: Callable[..., Any],
        options: Options,
        static: StaticParameters,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.static = static
        self._options = options
        self._programs: dict[Any, Any] = {}
        self._lock = threading.Lock()

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """The function as a method: the instance is its first argument."""
        return self if instance is None else types.MethodType(self, instance)

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

        from monograph.frontends.jax.types import as_array

        free, keywords, static = self.static.split(arguments, named)
        check_hashable(static)
        free, keywords = jax.tree_util.tree_map(as_array, (free, keywords))
        paths, tree = jax.tree_util.tree_flatten_with_path((free, keywords))
        types = tuple(_signature(leaf, path) for path, leaf in paths)
        is_wide = jax.dtypes.canonicalize_dtype(np.float64) == np.float64
        key = (tree, types, static.key, is_wide)
        found = self._programs.get(key)
        if found is None:
            found = self._compile(free, keywords, static, key)
        return free, keywords, found

    def _compile(
        self, free: list[Any], keywords: dict[str, Any], static: StaticValues, key: Any
    ) -> Any:
        import jax

        from monograph.bindings.jax_models import compile_bound

        examples, named = jax.tree_util.tree_map(_struct, (free, keywords))
        with self._lock:
            found = self._programs.get(key)
            if found is None:
                found = compile_bound(self.function, examples, self._options, named, static)
                while len(self._programs) >= MAX_SIGNATURES:
                    self._programs.pop(next(iter(self._programs)))
                self._programs[key] = found
        return found


def _signature(leaf: Any, path: Sequence[Any]) -> Any:
    """What two leaves of one program have in common: shape, dtype, and whether that is weak."""
    from monograph.frontends.jax.types import array_dtype

    is_number = isinstance(leaf, int | float | complex)
    weak = getattr(getattr(leaf, "aval", None), "weak_type", is_number)
    return np.shape(leaf), str(array_dtype(leaf, _name(path))), weak


def _name(path: Sequence[Any]) -> str:
    """``1['w']`` for a leaf of the second argument, ``scale`` for a named one."""
    import jax

    side, first, *rest = path
    label = str(first.idx if side.idx == 0 else first.key)
    return label + str(jax.tree_util.keystr(tuple(rest)))


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
    ``strict``, ``cache``…; those of ``jax.jit`` that change no result are accepted, and arguments
    that may be donated stay as they are. It may be called inside other JAX programs and
    differentiated in reverse mode; see ``monograph.runtime.jax_calls``.
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
    static = static_of(function, static_argnums, static_argnames)
    own = {name: given for name, given in options.items() if name not in PERMISSIONS}
    unknown = own.keys() - {each.name for each in fields(Options)}
    if unknown:
        raise InputError(
            f"monograph.jit has no option {min(unknown)!r}",
            expected=", ".join(each.name for each in fields(Options)),
        )
    return JitFunction(function, Options(**own), static)
