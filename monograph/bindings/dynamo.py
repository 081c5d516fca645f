"""``torch.compile(model, backend="monograph")``, for inference and for training.

Dynamo hands over the graphs that it finds in a program; AOTAutograd makes them functional and,
where gradients are wanted, splits them into a forward and a backward graph. Each is imported,
optimised and run on torch tensors. The backend registers itself through the entry point
``torch_dynamo_backends``, so that torch finds it by name wherever Monograph is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch.utils._python_dispatch import _disable_current_modes

from monograph.bindings.compiled_graphs import Origin, origin_of, remember
from monograph.bindings.device_of import target_of_tensors
from monograph.bindings.freezing import FrozenGraph, static_places
from monograph.compiler import Options as CompileOptions
from monograph.compiler import compile_graph
from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.frontends.torch.memory_order import transpose_back, turn_outputs
from monograph.frontends.torch.notices import GradientWarning, warn
from monograph.frontends.torch.program import (
    ImportedModel,
    InputKind,
    Output,
    import_graph_module,
)
from monograph.frontends.torch.result_views import split_results, view_results
from monograph.frontends.torch.runner import TorchModel
from monograph.program.return_forms import LIST
from monograph.runtime.device import cannot
from monograph.runtime.thread_count import torch_threads

LEVELS = ("O0", "O1", "O2", "O3")
MODES = {
    "default": "O2",
    "reduce-overhead": "O2",
    "max-autotune": "O3",
    "max-autotune-no-cudagraphs": "O3",
}
"""torch's modes, and the level that each stands for."""


@dataclass(frozen=True)
class Options:
    """What ``torch.compile(..., options={...})`` may set."""

    level: str = "O2"
    """How hard to optimise: O0 to O3."""
    target: str | None = None
    """What to compile for, as ``monograph.compile`` takes it."""
    threads: int | None = None
    """How many threads to use; as many as torch if None."""
    strict: bool = False
    """Whether a node that has no native code is an error."""
    winograd_tolerance: float | None = None
    """The error, over the largest result, that a convolution may have to be faster."""
    budget: float | None = None
    """Seconds to search for better schedules; none below O3 unless it is given."""
    freeze: bool = False
    """Whether parameters and buffers are constants where no gradients are wanted, packed at the
    first call; those that are seen to have changed are packed again (``bindings.freezing``)."""

    @classmethod
    def parse(cls, mode: str | None, options: Mapping[str, Any] | None) -> Options:
        """The options that torch.compile was given; a key or value that we do not know is an error.

        A mode is a level under torch's own name; an explicit level wins over it.
        """
        if mode is not None and mode not in MODES:
            raise InputError(
                "the monograph backend has no such mode", expected=", ".join(MODES), found=mode
            )
        given = dict(options or {})
        known = [field.name for field in fields(cls)]
        unknown = [key for key in given if key not in known]
        if unknown:
            raise InputError(
                f"the monograph backend has no option {unknown[0]!r}",
                expected=", ".join(known),
                found=", ".join(map(str, given)),
            )
        level = given.get("level", MODES["default" if mode is None else mode])
        if level not in LEVELS:
            raise InputError("no such level", expected=", ".join(LEVELS), found=repr(level))
        for name in ("strict", "freeze"):
            if not isinstance(given.get(name, False), bool):
                raise InputError(
                    f"the option {name!r} of the monograph backend is yes or no",
                    expected="True or False",
                    found=repr(given[name]),
                )
        return cls(**{**given, "level": level})


def monograph(
    module: Any,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """The backend: what torch.compile runs in place of a graph that Dynamo found."""
    settings = Options.parse(mode, options)
    origin = origin_of(module)

    def compiler(role: str) -> Callable[[Any, Sequence[Any]], Callable[..., Any]]:
        def compile_module(graph_module: Any, _: Sequence[Any]) -> Callable[..., Any]:
            if settings.freeze and role == "forward":
                _warn_of_gradients(origin)
            places = static_places(graph_module) if settings.freeze and role == "inference" else ()
            make = partial(CompiledGraph, graph_module, settings, origin, role)
            if places:
                return _box_arguments(
                    FrozenGraph(origin.name, places, partial(_without_modes, make))
                )
            return _box_arguments(_without_modes(make, {}))

        return compile_module

    backend = aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
    )
    compiled: Callable[..., Any] = backend(module, example_inputs)
    return compiled


def _box_arguments(program: Callable[..., Any]) -> Callable[..., Any]:
    boxed: Callable[..., Any] = make_boxed_func(program)
    return boxed


def _without_modes(make: Callable[..., CompiledGraph], weights: Mapping[int, Any]) -> CompiledGraph:
    """Compile with real weights: torch's fake tensors are of no use here."""
    with _disable_current_modes():
        return make(weights)


def _warn_of_gradients(origin: Origin) -> None:
    warn(
        f"{origin.name}: gradients are wanted, so its parameters are not frozen. Call it under "
        "torch.no_grad() if none are",
        GradientWarning,
    )


class CompiledGraph:
    """One functional graph of ATen ops, compiled, as a callable on torch tensors.

    ``weights`` are arguments, by number, that are constants: of calls they are not read.
    """

    def __init__(
        self,
        module: Any,
        options: Options,
        origin: Origin,
        role: str,
        weights: Mapping[int, torch.Tensor],
    ) -> None:
        self.origin = origin
        self.role = role
        self._parts = split_results(module)
        module = self._parts.module
        imported = import_graph_module(module, opaque=True, weights=weights)
        self.model: ImportedModel = turn_outputs(imported)
        self._expanded = _find_expanded_axes(module)
        is_dense = not any(self._expanded)
        self._is_laid_out = is_dense and all(each.order is None for each in self.model.outputs)
        settings = CompileOptions(
            options.level,
            threads=torch_threads(options.threads),
            strict=options.strict,
            strides=tuple(_strides(self.model, module)),
            winograd_tolerance=options.winograd_tolerance,
            budget=options.budget,
            target=options.target or target_of_tensors(_read_recorded(module)),
        )
        executable = compile_graph(self.model.graph, settings, owned=bool(weights))
        self._taken = _arguments_to_take(self.model, module)
        program = TorchModel(_taking_all(self.model), run=executable.run)
        self._run = program.run
        self.executable = executable
        order = program.order
        self._is_plain = order is not None
        # A backward pass returns None for what needs no gradient.
        in_order = order == list(range(len(self.model.graph.outputs)))
        self._order = None if in_order else order
        self._quick: Callable[..., Any] | None = None
        remember(self)

    @property
    def opaque_calls(self) -> tuple[str, ...]:
        """The ops that are left to torch."""
        return self.model.opaque_calls

    def __call__(self, *arguments: Any) -> list[Any]:
        """The graph's results, laid out in memory as torch expects them."""
        computed = self._compute(_as_taken(self._taken, arguments) if self._taken else arguments)
        return view_results(self._parts, arguments, computed) if self._parts.views else computed

    def _compute(self, arguments: Sequence[Any]) -> list[Any]:
        found = self._native(arguments)
        results = self._run(arguments) if found is None else found
        if self._is_laid_out:
            return results
        pairs = zip(results, self.model.outputs, self._expanded, strict=True)
        return [
            _overlapping(_lay_out(result, output, found is not None), axes)
            for result, output, axes in pairs
        ]

    def _native(self, arguments: Sequence[Any]) -> list[Any] | None:
        """The results as native code gives them; None if it cannot take the arguments."""
        if self._quick is None:
            self._quick = self._quickest()
        watched = torch.autograd.profiler._is_profiler_enabled
        results: list[Any] | None = None if watched else self._quick(*arguments)
        if results is None and self._is_plain:
            results = self.executable.run_tensors(arguments)
        if results is None or self._order is None:
            return results
        return [None if k is None else results[k] for k in self._order]

    def _quickest(self) -> Callable[..., Any]:
        """A built-in function, where tensors are passed and returned as they are."""
        return self.executable.quick_tensors(LIST) if self._is_plain else cannot


def _arguments_to_take(model: ImportedModel, module: Any) -> list[tuple[int, torch.dtype | None]]:
    """The arguments that the graph takes, with a dtype for numbers; empty if all of them, as given.

    It takes no sizes that shapes tell.
    """
    nodes = [node for node in module.graph.nodes if node.op == "placeholder"]
    taken = []
    for place in _places(model):
        recorded = nodes[place].meta.get("val")
        kinds = ((torch.SymInt, torch.int64), (torch.SymFloat, torch.float64))
        found = [dtype for kind, dtype in kinds if isinstance(recorded, kind)]
        taken.append((place, found[0] if found else None))
    return [] if taken == [(k, None) for k in range(len(nodes))] else taken


def _places(model: ImportedModel) -> list[int]:
    return sorted({each.position for each in model.inputs if each.position is not None})


def _taking_all(model: ImportedModel) -> ImportedModel:
    """The model as one of those arguments alone that it takes."""
    numbers = {place: k for k, place in enumerate(_places(model))}
    inputs = tuple(
        each if each.position is None else replace(each, position=numbers[each.position])
        for each in model.inputs
    )
    return replace(model, inputs=inputs)


def _as_taken(
    taken: Sequence[tuple[int, torch.dtype | None]], arguments: Sequence[Any]
) -> list[Any]:
    return [
        arguments[place] if dtype is None else torch.tensor(arguments[place], dtype=dtype)
        for place, dtype in taken
    ]


def _strides(model: ImportedModel, module: Any) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The inputs that are not row-major: a backward pass reads many a weight transposed."""
    nodes = [node for node in module.graph.nodes if node.op == "placeholder"]
    for number, each in enumerate(model.inputs):
        if each.kind is not InputKind.USER or each.position is None:
            continue
        fake = nodes[each.position].meta.get("val")
        if not isinstance(fake, torch.Tensor) or fake.layout is not torch.strided:
            continue
        known = all(isinstance(size, int) for size in (*fake.shape, *fake.stride()))
        if known and fake.numel() > 0 and not fake.is_contiguous():
            yield number, tuple(fake.stride())


def _read_recorded(module: Any) -> list[Any]:
    """What torch recorded of each argument."""
    nodes = [node for node in module.graph.nodes if node.op == "placeholder"]
    return [node.meta.get("val") for node in nodes]


def _find_expanded_axes(module: Any) -> list[tuple[int, ...]]:
    """For each result, the axes along which all of its elements are one in memory."""
    output = next(iter(reversed(module.graph.nodes)))
    return [_overlaps(leaf) for leaf in torch.utils._pytree.tree_leaves(output.args[0])]


def _overlaps(leaf: Any) -> tuple[int, ...]:
    fake = leaf.meta.get("val") if isinstance(leaf, torch.fx.Node) else None
    if not isinstance(fake, torch.Tensor) or fake.layout is not torch.strided:
        return ()
    pairs = enumerate(zip(fake.shape, fake.stride(), strict=True))
    return tuple(k for k, (size, step) in pairs if type(step) is int and step == 0 and size != 1)


def _overlapping(result: Any, axes: tuple[int, ...]) -> Any:
    """A result with one element in memory along these axes, as torch lays it out.

    Where it is a view of an argument, torch makes it of that argument by these very strides.
    """
    if not axes or not isinstance(result, torch.Tensor) or 0 in result.shape:
        return result
    first = result
    for axis in axes:
        first = first.narrow(axis, 0, 1)
    first = first.contiguous()
    steps = [0 if k in axes else step for k, step in enumerate(first.stride())]
    made = torch.empty_strided(result.shape, steps, dtype=result.dtype, device=result.device)
    whole = made
    for axis in axes:
        whole = whole.narrow(axis, 0, 1)
    whole.copy_(first)
    return made


def _lay_out(result: Any, output: Output, is_native: bool) -> Any:
    """A result as it lies in torch's memory."""
    if output.order is None or not isinstance(result, torch.Tensor):
        return result
    if output.is_turned:
        return transpose_back(result, output) if is_native else result
    laid_out = result.permute(output.order).contiguous()
    return transpose_back(laid_out, replace(output, is_turned=True))
