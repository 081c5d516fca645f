"""Compiled JAX functions: called with the same trees of arrays, by a program or inside of one.

Outside of JAX's transformations a call is one native call on the memory of the arrays. Inside of
them (``jax.jit``, ``jax.grad``, ``jax.vmap``, ``jax.lax.scan``…) the arguments are tracers, and the
call becomes a ``jax.pure_callback``. Its gradient in reverse mode is that of the JAX function,
compiled as well, of which there is a gradient in turn; there is none in forward mode
(``jax.jvp``, ``jax.hessian``), which JAX says when it is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from monograph.deadline import call_limited
from monograph.errors import InputError, UnsupportedError
from monograph.frontends.jax.capture import Captured, argument_names
from monograph.frontends.jax.static_arguments import StaticValues
from monograph.frontends.jax.types import array_dtype, as_array, is_key, key_words
from monograph.ir.interpret import bind_shapes
from monograph.ir.tree import LEAF, NONE, Structure
from monograph.ir.types import Array
from monograph.runtime.artifact import write_artifact
from monograph.runtime.bundle import Json
from monograph.runtime.compile_report import CompileReport
from monograph.runtime.compiled import Executable, Profilable
from monograph.runtime.storage import write_structure

Compile = Callable[[Callable[..., Any], Sequence[Any]], "CompiledJax"]
"""Compiles a function on examples, as the one that was compiled first."""


class CompiledJax(Profilable):
    """A JAX function, compiled: the same trees in and out, of JAX's arrays."""

    def __init__(
        self,
        executable: Executable,
        captured: Captured,
        function: Callable[..., Any],
        compile: Compile,
        static: StaticValues,
    ) -> None:
        self.executable = executable
        self.captured = captured
        self._compile = compile
        self._static = static
        self._gradients: dict[Any, CompiledJax] = {}
        self._avals = captured.jaxpr.in_avals
        self._function = function
        self._dtypes = [value.dtype.numpy for value in executable.graph.inputs]
        self._keys = [aval.dtype if is_key(aval) else None for aval in captured.jaxpr.out_avals]
        self._has_keys = any(each is not None for each in self._keys)
        self._differentiable: Callable[..., Any] | None = None

    def __repr__(self) -> str:
        return self.executable.described("CompiledJax")

    @property
    def report(self) -> CompileReport:
        """What happened when it was compiled."""
        return self.executable.report

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """What the function returns for these arguments; static ones may be left out.

        ``timeout=`` is how many seconds it may take (see ``monograph.time_limit``), unless a
        parameter is called so.
        """
        if "timeout" in named and "timeout" not in argument_names(self._function, 99):
            return call_limited(self, arguments, named)
        leaves, tree = jax.tree_util.tree_flatten((arguments, named))
        if tree != self.captured.arguments:
            arguments, named = self._static.remove(arguments, named)
            leaves, tree = jax.tree_util.tree_flatten((arguments, named))
        if tree != self.captured.arguments:
            raise InputError(
                "the arguments have another structure than the example inputs",
                expected=str(self.captured.arguments),
                found=str(tree),
            )
        leaves = list(map(self._fit_leaf, leaves, range(len(leaves))))
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            results = self._in_program(leaves)
        else:
            results = self.run(leaves)
        return jax.tree_util.tree_unflatten(self.captured.results, results)

    def _fit_leaf(self, leaf: Any, place: int) -> Any:
        """A leaf of the arguments, if its dtype is what the program takes there.

        As in JAX, another dtype is another program, but a Python number takes the dtype that it
        would take beside an array of the program's.
        """
        expected = self._avals[place].dtype
        if getattr(leaf, "dtype", None) == expected:
            return leaf
        name = self.captured.names[place]
        leaf = as_array(leaf)
        found = array_dtype(leaf, name)
        is_number = isinstance(leaf, int | float | complex) and not isinstance(leaf, bool)
        if is_number and not is_key(self._avals[place]):
            found = jax.numpy.result_type(leaf, expected)
        if found != expected:
            raise InputError(
                f"argument {name} has another dtype than its example",
                expected=str(expected),
                found=str(found),
                hint="convert it; or monograph.jit(function), which makes a program for each dtype",
            )
        return leaf

    def run(self, leaves: Sequence[Any]) -> list[Any]:
        """The leaves of the result, as JAX's arrays, for leaves of the arguments."""
        found = jax.device_put(self.run_arrays(leaves))
        if not self._has_keys:
            return list(found)
        return [
            each if dtype is None else jax.random.wrap_key_data(each, impl=dtype._impl.name)
            for each, dtype in zip(found, self._keys, strict=True)
        ]

    def run_arrays(self, leaves: Sequence[Any]) -> list[Array]:
        """The same in NumPy's arrays, of the dtypes of the program (f32 for f64 without x64)."""
        given = [
            np.asarray(key_words(leaf), dtype)
            for leaf, dtype in zip(leaves, self._dtypes, strict=True)
        ]
        return self.executable.run(given)

    # Inside a JAX program -------------------------------------------------------------------------

    def _in_program(self, leaves: Sequence[Any]) -> Sequence[Any]:
        if self._has_keys or any(map(is_key, self.captured.jaxpr.in_avals)):
            raise UnsupportedError(
                "a compiled function of typed keys cannot be called inside a JAX program",
                hint="give it jax.random.key_data(key), or call it outside of jax.jit",
            )
        shapes = [np.shape(leaf) for leaf in leaves]
        if all(isinstance(size, int) for shape in shapes for size in shape):
            bind_shapes(self.executable.graph, shapes)  # an error now, not in the callback
        if self._differentiable is None:
            self._differentiable = self._with_gradient()
        found: Sequence[Any] = self._differentiable(*leaves)
        return found

    def _with_gradient(self) -> Callable[..., Any]:
        """The call as a function of JAX's that has a gradient in reverse mode.

        What it keeps for the gradient comes from a call that has a gradient itself, so that
        ``jax.grad(jax.grad(f))`` finds one.
        """

        def forward(*leaves: Any) -> tuple[Sequence[Any], Any]:
            return call(*leaves), leaves

        def backward(leaves: Any, gradients: Any) -> tuple[Any, ...]:
            return self._pull_back(leaves, gradients)

        call = jax.custom_vjp(lambda *leaves: self._callback(leaves))
        call.defvjp(forward, backward)
        wrapped: Callable[..., Any] = call
        return wrapped

    def _callback(self, leaves: Sequence[Any]) -> Sequence[Any]:
        structs = [
            jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in self._result_types(leaves)
        ]

        def host(*given: Any) -> list[Array]:
            return self.run_arrays(given)

        found: Sequence[Any] = jax.pure_callback(host, structs, *leaves, vmap_method="sequential")
        return found

    def _result_types(self, leaves: Sequence[Any]) -> Sequence[Any]:
        """The types of the results for these arguments; symbolic sizes are worked out by JAX."""
        avals: Sequence[Any] = self.captured.jaxpr.out_avals
        if all(isinstance(size, int) for aval in avals for size in aval.shape):
            return avals
        types: Sequence[Any] = jax.tree_util.tree_leaves(jax.eval_shape(self._flat, *leaves))
        return types

    def _flat(self, *leaves: Any) -> Any:
        """The function that was compiled, of leaves, returning leaves."""
        arguments, named = jax.tree_util.tree_unflatten(self.captured.arguments, leaves)
        return jax.tree_util.tree_leaves(self._function(*arguments, **named))

    def _pull_back(self, leaves: Sequence[Any], gradients: Sequence[Any]) -> tuple[Any, ...]:
        """The gradients by the arguments: the function's own, compiled for these types."""
        floats = [k for k, leaf in enumerate(leaves) if _is_inexact(leaf)]
        sensitive = [k for k, each in enumerate(gradients) if each.dtype != jax.dtypes.float0]

        def pull(given: Sequence[Any], arriving: Sequence[Any]) -> list[Any]:
            def of_floats(*chosen: Any) -> list[Any]:
                whole = list(given)
                for place, leaf in zip(floats, chosen, strict=True):
                    whole[place] = leaf
                results = self._flat(*whole)
                return [results[k] for k in sensitive]

            _, transpose = jax.vjp(of_floats, *(given[k] for k in floats))
            return list(transpose(list(arriving)))

        arriving = [gradients[k] for k in sensitive]
        structs = jax.tree_util.tree_map(_struct, (list(leaves), arriving))
        types = ((each.shape, each.dtype) for each in jax.tree_util.tree_leaves(structs))
        key = (*sensitive, *types)
        if key not in self._gradients:
            self._gradients[key] = self._compile(pull, structs)
        compiled = self._gradients[key]
        made = iter(compiled(list(leaves), arriving))
        return tuple(
            next(made) if k in floats else np.zeros(np.shape(leaf), jax.dtypes.float0)
            for k, leaf in enumerate(leaves)
        )

    # Saving ---------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, variants: bool = False) -> Path:
        """Write it to a ``.mono`` file, which loads, without JAX, as a function of NumPy's arrays.

        The trees must be of tuples, lists, dicts and None. ``variants`` stores the programs for
        sizes that came back, too.
        """
        positional, named = _children(self.captured.arguments)
        if named.num_leaves:
            raise UnsupportedError(
                "a function with named arguments cannot be saved",
                hint="compile it with positional ones; executable.save(path) saves its graph alone",
            )
        call: dict[str, Json] = {
            "kind": "function",
            "arguments": write_structure(structure_of(positional)),
            "results": write_structure(structure_of(self.captured.results)),
        }
        return write_artifact(path, self.executable.bundle(call, variants=variants))


def _is_inexact(leaf: Any) -> bool:
    return bool(jax.numpy.issubdtype(jax.dtypes.result_type(leaf), jax.numpy.inexact))


def _struct(leaf: Any) -> Any:
    return jax.ShapeDtypeStruct(np.shape(leaf), jax.dtypes.result_type(leaf))


def _children(tree: Any) -> list[Any]:
    return list(tree.children())


def structure_of(tree: Any) -> Structure:
    """A tree of JAX's as a structure of ours, if it is of tuples, lists, dicts and None."""
    if jax.tree_util.treedef_is_leaf(tree) and tree.num_leaves == 1:
        return LEAF
    kind, keys = tree.node_data() or (None, None)
    children = tuple(map(structure_of, _children(tree)))
    if kind is None and not children:
        return NONE
    if kind in (tuple, list):
        return Structure("tuple" if kind is tuple else "list", (), children)
    if kind is dict:
        return Structure("dict", tuple(keys or ()), children)
    raise UnsupportedError(
        f"a {getattr(kind, '__name__', kind)} cannot be held by a file",
        hint="take and return tuples, lists and dicts; executable.save(path) saves the graph alone",
    )
