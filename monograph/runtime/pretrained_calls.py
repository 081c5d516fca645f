"""A model of transformers as it is called: a program for each kind of call, and ``generate``."""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch.export import Dim
from torch.utils import _pytree as pytree

from monograph.dataclass import dataclass
from monograph.errors import InputError, MonographError
from monograph.frontends.torch.caches import know_caches
from monograph.runtime.compile_report import CompileReport
from monograph.runtime.compiled import CompiledModule, Executable

MAX_KINDS = 64
"""How many kinds of calls a model keeps programs for; the one that is oldest goes first."""

Compile = Callable[[Any, Mapping[str, Any], Any], CompiledModule]
"""Compiles a module for arguments by name, some of whose sizes are free."""

Shapes = tuple[tuple[int, ...], ...]


class CompiledPretrained:
    """A model of transformers that computes by native programs: ``model`` is one as any other.

    It may be given to whatever takes a model (a pipeline, a Trainer's evaluation).
    """

    def __init__(self, model: Any, forward: CompiledForward, executable: Executable) -> None:
        self.model = model
        self.executable = executable
        """The program for the model's dummy inputs."""
        self._forward = forward

    def __repr__(self) -> str:
        return self.executable.described(f"CompiledPretrained[{type(self.model).__name__}]")

    @property
    def report(self) -> CompileReport:
        """What happened when it was compiled for the model's dummy inputs."""
        return self.executable.report

    @property
    def programs(self) -> list[CompiledModule]:
        """A program for each kind of call that was made."""
        return self._forward.programs

    @property
    def config(self) -> Any:
        """The model's configuration."""
        return self.model.config

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """What the model returns: a ``ModelOutput``."""
        return self.model(*arguments, **named)

    def generate(self, *arguments: Any, **named: Any) -> Any:
        """The model's own ``generate``, which calls the programs."""
        return self.model.generate(*arguments, **named)

    def save(self, path: str | os.PathLike[str], *, variants: bool = False) -> NoReturn:
        """Refused: a file holds one program."""
        raise InputError(
            "a model that is called in several ways has several programs, and a file holds one",
            hint="compile it for one call, and save that: monograph.compile(model, kwargs=inputs)",
        )


@dataclass(frozen=True)
class _Program:
    """A program, and the axes of its arguments' leaves whose sizes are free."""

    compiled: CompiledModule
    shapes: Shapes
    free: frozenset[tuple[int, int]]

    def takes(self, shapes: Shapes) -> bool:
        """Whether shapes differ from those it was compiled for in free sizes alone."""
        return _differences(self.shapes, shapes) <= self.free


class CompiledForward:
    """A module's ``forward``, with a program for each kind of call.

    Of one kind are calls whose arguments have the same nesting, dtypes, ranks and other values.
    """

    def __init__(self, module: Any, compile: Compile) -> None:
        self._module = module
        self._compile = compile
        self._signature = inspect.signature(module.forward)
        self._kinds: list[tuple[Any, list[_Program]]] = []
        self._lock = threading.RLock()
        self._versions = _versions(module)

    @property
    def programs(self) -> list[CompiledModule]:
        """All that were compiled."""
        return [each.compiled for _, programs in self._kinds for each in programs]

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """What the module returns for these arguments; a cache among them is brought up to date."""
        know_caches()
        given = self._by_name(arguments, named)
        result = self._run(given)
        cache = given.get("past_key_values")
        found = getattr(result, "past_key_values", None)
        if cache is not None and type(found) is type(cache) and hasattr(cache, "__dict__"):
            vars(cache).update(vars(found))  # as the module itself would have
            result.past_key_values = cache
        return result

    def program(self, given: Mapping[str, Any]) -> CompiledModule:
        """The program for such arguments, compiled if there is none."""
        know_caches()
        return self._find(given)[0].compiled

    def _by_name(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        given: dict[str, Any] = {}
        bound = self._signature.bind(*arguments, **named)
        for name, value in bound.arguments.items():
            if self._signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                given.update(value)
            elif value is not None:
                given[name] = value
        return {name: given[name] for name in sorted(given) if given[name] is not None}

    def _run(self, given: dict[str, Any]) -> Any:
        program, is_new = self._find(given)
        tensors = _with_tensors(given)
        try:
            return program.compiled(**tensors)
        except InputError:
            if is_new or not program.free:
                raise
        with self._lock:  # sizes that belong together in a way that the free ones do not
            kind, shapes = _kind_of(given)
            made = self._compile_for(given, shapes, frozenset())
            self._programs_of(kind).insert(0, made)
        return made.compiled(**tensors)

    def _find(self, given: Mapping[str, Any]) -> tuple[_Program, bool]:
        kind, shapes = _kind_of(given)
        with self._lock:
            programs = self._programs_of(kind)
            for program in programs:
                if program.takes(shapes):
                    return program, False
            free = _growing_axes(given)
            if programs:
                free |= programs[-1].free | _differences(programs[-1].shapes, shapes)
            # torch.export takes a size of 1, as of a cache after one token, for a constant
            free = {(leaf, axis) for leaf, axis in free if shapes[leaf][axis] > 1}
            made = self._compile_for(given, shapes, frozenset(free))
            programs.append(made)
            return made, True

    def _programs_of(self, kind: Any) -> list[_Program]:
        for known, programs in self._kinds:
            if known == kind:
                return programs
        if len(self._kinds) >= MAX_KINDS:
            self._kinds.pop(0)
        self._kinds.append((kind, []))
        return self._kinds[-1][1]

    def _compile_for(
        self, given: Mapping[str, Any], shapes: Shapes, free: frozenset[tuple[int, int]]
    ) -> _Program:
        if _versions(self._module) != self._versions:
            raise InputError(
                "the model's weights have changed since it was compiled, and this is a call of a "
                "kind that needs another program",
                hint="compile the model again",
            )
        tensors = _with_tensors(given)
        call = _Call(self._module, tensors, given)
        if not free:
            return _Program(self._compile(call, tensors, None), shapes, free)
        try:
            compiled = self._compile(call, tensors, _free_shapes(tensors, free))
        except MonographError:  # torch.export found that one of the sizes cannot be free
            return self._compile_for(given, shapes, frozenset())
        return _Program(compiled, shapes, free)


class _Call(torch.nn.Module):
    """One kind of call of a module: a function of those arguments that hold tensors."""

    def __init__(self, module: Any, tensors: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        super().__init__()
        self.module = module
        constants = {name: value for name, value in given.items() if name not in tensors}
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        signature = inspect.Signature([inspect.Parameter(name, kind) for name in tensors])

        def forward(*arguments: Any, **named: Any) -> Any:
            return module(**signature.bind(*arguments, **named).arguments, **constants)

        forward.__signature__ = signature  # type: ignore[attr-defined]  # torch.export reads it
        self.forward = forward
        self.train(module.training)


def _with_tensors(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are or may hold tensors: a cache does, once it is filled."""
    return {
        name: value
        for name, value in given.items()
        if isinstance(value, torch.Tensor) or not pytree.tree_structure(value).is_leaf()
    }


def _versions(module: Any) -> tuple[tuple[int, int], ...]:
    """What changes when a parameter is replaced or written to."""
    return tuple((id(each), each._version) for each in module.parameters())


def _kind_of(given: Mapping[str, Any]) -> tuple[Any, Shapes]:
    """What calls of one kind have in common, and the shapes of the tensors."""
    tensors = _with_tensors(given)
    leaves, spec = pytree.tree_flatten(tensors)
    constants = {name: value for name, value in given.items() if name not in tensors}
    kind = [
        (each.dtype, each.ndim) if isinstance(each, torch.Tensor) else (type(each), each)
        for each in leaves
    ]
    shapes = tuple(tuple(x.shape) if isinstance(x, torch.Tensor) else () for x in leaves)
    return (spec, kind, constants), shapes


def _differences(a: Shapes, b: Shapes) -> set[tuple[int, int]]:
    """The leaves and axes whose sizes differ."""
    return {
        (leaf, axis)
        for leaf, (one, other) in enumerate(zip(a, b, strict=True))
        for axis, (first, second) in enumerate(zip(one, other, strict=True))
        if first != second
    }


def _growing_axes(given: Mapping[str, Any]) -> set[tuple[int, int]]:
    """The axes that grow with every token: of a dynamic cache's tensors, and of the mask."""
    cache = given.get("past_key_values")
    if cache is None or getattr(cache, "is_compileable", False):
        return set()
    growing: set[tuple[int, int]] = set()
    place = 0
    for name, value in _with_tensors(given).items():
        leaves = pytree.tree_leaves(value)
        for number, leaf in enumerate(leaves):
            if not isinstance(leaf, torch.Tensor):
                continue
            if name == "past_key_values" and leaf.ndim == 4:
                growing.add((place + number, 2))
            elif name in ("attention_mask", "decoder_attention_mask"):
                growing.add((place + number, leaf.ndim - 1))
        place += len(leaves)
    is_filled = any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(cache))
    return growing if is_filled else set()


def _free_shapes(given: Mapping[str, Any], free: frozenset[tuple[int, int]]) -> Any:
    """The sizes that are free, as ``torch.export`` takes them: lists in the place of caches."""
    spec = pytree.tree_structure(dict(given))
    axes: dict[int, dict[int, Any]] = {}
    for place, axis in free:
        axes.setdefault(place, {})[axis] = Dim.AUTO
    return _nest_like(spec, iter(range(spec.num_leaves)), axes)


def _nest_like(spec: Any, places: Iterator[int], axes: Mapping[int, Any]) -> Any:
    if spec.is_leaf():
        return axes.get(next(places))
    parts = [_nest_like(each, places, axes) for each in spec.children()]
    if spec.type is dict:
        return dict(zip(spec.context, parts, strict=True))
    return tuple(parts) if spec.type is tuple else parts
