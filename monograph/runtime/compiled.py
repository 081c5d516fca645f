"""What compiling or loading gives: something to call as the model is called, and to save.

An ``Executable`` takes and returns what a graph does. ``CompiledFunction`` and ``CompiledModule``
add the calling convention: the nesting of arguments and results, and their kind.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from monograph.deadline import call_limit, call_limited
from monograph.errors import InputError, UnsupportedError
from monograph.ir.call_arguments import in_order
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from monograph.ir.tree import Structure, flatten, unflatten
from monograph.ir.types import Array
from monograph.program.code import Code
from monograph.program.return_forms import LIST, ONE, TUPLE
from monograph.runtime.addresses import address_of
from monograph.runtime.arguments import Arguments
from monograph.runtime.artifact import describe_target, write_artifact
from monograph.runtime.bundle import Bundle, Json
from monograph.runtime.compile_report import CompileReport, write_report
from monograph.runtime.cpu.native import Native
from monograph.runtime.cpu.quick_calls import (
    ArrayKind,
    SizedCalls,
    quick_call,
    unless_limited,
)
from monograph.runtime.cpu.torch_ranges import torch_profiler
from monograph.runtime.device import LoadedProgram, cannot
from monograph.runtime.sizes import guards_of
from monograph.runtime.storage import (
    BundleParts,
    Named,
    write_code,
    write_graph,
    write_signature,
    write_structure,
)
from monograph.targets.base import TargetRecord
from monograph.targets.names import host_record

if TYPE_CHECKING:
    from monograph.frontends.torch.notices import GradientWatch
    from monograph.inspect.profile import Profile
    from monograph.runtime.convention import Convention, LoadedModule
    from monograph.runtime.cpu.quick_calls import ArgumentKind
    from monograph.runtime.cpu.tensor_calls import TensorCalls
    from monograph.runtime.jax_calls import CompiledJax
    from monograph.runtime.pretrained_calls import CompiledPretrained
    from monograph.runtime.specialization import Alternative, Completion
    from monograph.targets.base import Program


class Profilable:
    """What can be called and profiled."""

    def profile(self, *inputs: Any, **named: Any) -> Profile:
        """Where the time of a call with these arguments goes, kernel by kernel.

        ``calls=`` and ``seconds=`` bound how often it is called (see ``inspect.profile``).
        ``print`` shows a table; ``save_trace("trace.json")`` is for ui.perfetto.dev.
        """
        from monograph.inspect.profile import profile

        model: Any = self
        return profile(model, *inputs, **named)


class Executable(Profilable):
    """A compiled graph. Call it with the graph's inputs, by position or by name.

    ``graph`` is what was compiled; of a loaded program it has the inputs alone. ``lowered`` and
    ``program`` tell how it was compiled. Where that was not necessary, because the code was in the
    cache, ``recompile`` makes them when they are first asked for.
    """

    def __init__(
        self,
        graph: Graph,
        loaded: LoadedProgram | None,
        report: CompileReport,
        *,
        lowered: Graph | None = None,
        program: Program | None = None,
        recompile: Callable[[], tuple[Graph, Program | None]] | None = None,
        stage: Completion | None = None,
        outputs: Sequence[Named] | None = None,
        again: Callable[[], tuple[Graph, Program | None]] | None = None,
    ) -> None:
        self.graph = graph
        self.again = again or recompile
        """Compiles the graph once more, for whoever watches the passes; None of a loaded one."""
        self.stage = stage
        """What completes the program when it is called; None if it is complete."""
        self.otherwise: Alternative | None = None
        """What runs where a size is zero that the program assumes not to be."""
        self.loaded = loaded
        """The program on its device; None if the interpreter runs it, or another machine."""
        self.native = native = loaded if isinstance(loaded, Native) else None
        """The same, if that is this machine's processor, which has quicker ways to be called."""
        self.target: TargetRecord | None = None
        """What it was compiled for; the machine that this is, if it does not say."""
        self.foreign: Code | None = None
        """Code that only another machine can run; it can be saved, and not called."""
        self.report = report
        report.subject = weakref.ref(self)
        self._lowered = lowered
        self._program = program
        self._recompile = recompile
        self._outputs = outputs
        self.arguments = (
            None if native is None else Arguments(graph, native.strides, native.program.sizes)
        )
        self._tensor_calls: TensorCalls | None = None
        self._quick_lists: Callable[..., Any] | None = None
        self._has_warned = False
        """Whether somebody was told that gradients stop here."""

    def __repr__(self) -> str:
        """Its inputs, and what there is of it: ``Executable(%x: f32[4]; kernels: 3)``."""
        return self.described("Executable")

    def _repr_html_(self) -> str:
        """What a notebook shows of it."""
        from monograph.report.notebook import executable_html

        return executable_html(self)

    def __copy__(self) -> Executable:
        """Itself: it is code, and nothing of it changes."""
        return self

    def __deepcopy__(self, _: object) -> Executable:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        raise InputError(
            "a compiled program cannot be pickled",
            hint="save it to a .mono file, which monograph.load reads",
        )

    def described(self, kind: str) -> str:
        """A line about it, and the class that calls it."""
        inputs = ", ".join(f"%{value.name}: {value.type}" for value in self.graph.inputs)
        parts = [f"kernels: {len(self.report.kernels)}"]
        if self.stage is not None:
            parts.append("completed by calls")
        if self.report.fallbacks:
            parts.append(f"in the interpreter: {len(self.report.fallbacks)}")
        return f"{kind}({inputs}; {', '.join(parts)})"

    @property
    def outputs(self) -> tuple[Named, ...]:
        """The names and types of what a call returns; a loaded program has no graph of them."""
        if self._outputs is not None:
            return tuple(self._outputs)
        return tuple((value.name, str(value.type)) for value in self.graph.outputs)

    @property
    def is_loaded(self) -> bool:
        """Whether it comes from a file, which has its inputs but no graph to specialize."""
        return self._outputs is not None

    @property
    def code(self) -> Code | None:
        """What runs; None if the interpreter runs all of it."""
        return self.foreign if self.loaded is None else self.loaded.program

    @property
    def program(self) -> Program | None:
        """The code and how it was made; None if the interpreter runs it, or if it was loaded."""
        self._see_that_it_is_known()
        return self._program

    @property
    def lowered(self) -> Graph:
        """The graph after all passes; of a loaded program, its inputs."""
        self._see_that_it_is_known()
        return self.graph if self._lowered is None else self._lowered

    @property
    def is_explicable(self) -> bool:
        """Whether ``program`` is, or can be made: not without weights that were let go of."""
        if self._program is not None or self.loaded is None:
            return self._program is not None
        has_let_go = self.native is not None and self.native.has_let_go
        return self._recompile is not None and not has_let_go

    def _see_that_it_is_known(self) -> None:
        if self._recompile is not None:
            self._lowered, self._program = self._recompile()
            self._recompile = None

    # Running --------------------------------------------------------------------------------------

    def __call__(self, *inputs: Any, **named: Any) -> list[Any]:
        """The graph's outputs, in order.

        ``timeout=`` is how many seconds it may take (see ``monograph.time_limit``), unless an input
        is called so.
        """
        if named:
            names = [value.name for value in self.graph.inputs]
            if "timeout" in named and "timeout" not in names:
                limited: list[Any] = call_limited(self, inputs, named)
                return limited
            inputs = in_order(names, inputs, named)
        if self._quick_lists is None:
            self._quick_lists = self.quick_arrays(LIST)
        found: list[Any] | None = self._quick_lists(*inputs)
        return self.run(inputs) if found is None else found

    def run(self, inputs: Sequence[Any] | dict[str, Any]) -> list[Any]:
        """The graph's outputs for inputs in order, or by name: torch tensors for torch tensors."""
        if self.loaded is not None and self.native is None:
            return self._run_on_device(self.loaded, inputs)
        found = None if isinstance(inputs, dict) else self.run_arrays(inputs)
        if found is not None:
            return found
        native, arguments = self.native, self.arguments
        if any_torch(inputs.values() if isinstance(inputs, dict) else inputs):
            return self._run_torch(inputs)
        if self.otherwise is not None and self.otherwise.serves(inputs):
            return self.otherwise.run(inputs)
        if self.stage is not None:
            with call_limit():  # one for all its parts
                return self.stage.call(inputs)
        if self.foreign is not None:
            raise InputError(
                "this program was compiled for another target than this machine",
                expected=str(host_record()),
                found=str(self.target),
                hint="save it, and load it there; or compile with target='cpu'",
            )
        if native is None or arguments is None:
            return interpret(self.lowered, inputs)
        arrays = arguments.converted(inputs)
        sizes = native.sizes(arrays)
        results = native.run([address_of(each) for each in arrays], sizes)
        arguments.remember(arrays, sizes)
        return results

    def _run_on_device(
        self, loaded: LoadedProgram, inputs: Sequence[Any] | dict[str, Any]
    ) -> list[Any]:
        if isinstance(inputs, dict):
            inputs = in_order([value.name for value in self.graph.inputs], (), inputs)
        if self.otherwise is not None and self.otherwise.serves(inputs):
            return self.otherwise.run(inputs)
        return loaded(inputs)

    def run_arrays(self, arrays: Sequence[Any]) -> list[Array] | None:
        """``run`` on the memory of arrays; None if that of one is not as it should be."""
        if self.native is None or self.arguments is None:
            return None
        sizes = self.arguments.fitting(arrays)
        if sizes is None:
            return None
        return self.native.run([address_of(each) for each in arrays], sizes)

    def run_tensors(self, tensors: Sequence[Any]) -> list[Any] | None:
        """``run`` on the memory of torch tensors; None if that of one is not as it should be."""
        if self.loaded is not None and self.native is None:
            return self.loaded(tensors)
        calls = self._tensor_calls
        if calls is None:
            if self.native is None or self.arguments is None:
                return None
            from monograph.runtime.cpu.tensor_calls import TensorCalls

            calls = self._tensor_calls = TensorCalls(self.native, self.arguments)
        return calls(tensors)

    def quick_arrays(self, form: int) -> Callable[..., Any]:
        """A built-in function of arrays; it returns None where it cannot do what ``run`` does."""
        return self._quick(ArrayKind(), form)

    def quick_tensors(self, form: int) -> Callable[..., Any]:
        """The same of torch tensors."""
        from monograph.runtime.cpu.tensor_calls import tensor_kind

        kind = tensor_kind()
        return cannot if kind is None else self._quick(kind, form)

    def _quick(self, kind: ArgumentKind, form: int) -> Callable[..., Any]:
        if self.native is None or self.arguments is None:
            return cannot
        if not self.native.static:
            made: Callable[..., Any] = SizedCalls(self.native, self.arguments, kind, form)
        else:
            made = quick_call(self.native, self.arguments, kind, form) or cannot
        return unless_limited(made) if self.native.has_loops and made is not cannot else made

    def _run_torch(self, inputs: Sequence[Any] | dict[str, Any]) -> list[Any]:
        from monograph.frontends.torch.notices import GradientWatch

        if not self._has_warned and GradientWatch.is_recording():
            given = inputs.values() if isinstance(inputs, dict) else inputs
            self._has_warned = GradientWatch().warns(given)
        found = None if isinstance(inputs, dict) else self.run_tensors(inputs)
        return self._run_converted(inputs) if found is None else found

    def _run_converted(self, inputs: Sequence[Any] | dict[str, Any]) -> list[Any]:
        import torch

        from monograph.frontends.torch.types import array_from_torch, array_to_torch

        def as_array(item: Any) -> Any:
            return array_from_torch(item) if isinstance(item, torch.Tensor) else item

        if isinstance(inputs, dict):
            results = self.run({name: as_array(item) for name, item in inputs.items()})
        else:
            results = self.run([as_array(item) for item in inputs])
        return [array_to_torch(x) if isinstance(x, np.ndarray) else x for x in results]

    # Saving ---------------------------------------------------------------------------------------

    def add_variant(self, sizes: Mapping[str, int]) -> None:
        """Compile a program for some sizes now, by name, which calls of these sizes then run."""
        variants = None if self.native is None else self.native.variants
        if variants is None or self.native is None:
            raise UnsupportedError(
                "this program can have no variants",
                hint="they need symbolic sizes, variants above 0, and a program that is not loaded",
            )
        names = [symbol.name for symbol in self.native.program.sizes]
        if set(names) != set(sizes):
            raise InputError(
                "a variant is for one size of each symbolic dimension",
                expected=", ".join(names),
                found=", ".join(sizes) or "none",
            )
        variants.compile_now(tuple(sizes[name] for name in names))

    def save(self, path: str | os.PathLike[str], *, variants: bool = False) -> Path:
        """Write it, weights included, to a ``.mono`` file that ``monograph.load`` reads.

        ``variants`` stores the programs for sizes that came back, too (``specialize.variants``).
        """
        return write_artifact(path, self.bundle({"kind": "graph"}, variants=variants))

    def bundle(
        self,
        call: Mapping[str, Json],
        state: Mapping[str, Array] | None = None,
        *,
        variants: bool = False,
    ) -> Bundle:
        """All of it, how it is called, and what it remembers of calls."""
        target = self.target or host_record()
        if self.foreign is not None:
            parts = write_code(self.foreign, guards=guards_of(self.graph))
        elif self.loaded is None:
            parts = write_graph(self.lowered)
        else:
            code, prepared = self.loaded.stored()
            parts = write_code(code, guards=self.loaded.guards, prepared=prepared)
        manifest: dict[str, Json] = {
            "target": describe_target(target.triple, target.cpu, target.features, target.name),
            "native": self.code is not None,
            "signature": write_signature(self.graph, self.outputs),
            "call": dict(call),
            "state": {
                name: parts.add_array(f"state.{name}", array.copy())
                for name, array in (state or {}).items()
            },
            "report": write_report(self.report),
        }
        if self.stage is not None:
            manifest["settings"] = dict(self.stage.settings)
        if variants:
            manifest["variants"] = self._write_variants(parts)
        return Bundle(manifest, parts.blobs, parts.arrays)

    def _write_variants(self, parts: BundleParts) -> list[Json]:
        if self.native is None:
            raise UnsupportedError(
                "the variants of this program cannot be saved",
                hint="calls complete it, so that its graph is saved: leave variants out",
            )
        variants = self.native.variants
        return [] if variants is None else variants.write(parts)


class CompiledFunction(Profilable):
    """A traced function, compiled: the same nesting of arguments and results."""

    def __init__(self, executable: Executable, arguments: Structure, results: Structure) -> None:
        self.executable = executable
        self.arguments = arguments
        self.results = results
        self._is_flat = all(each.kind == "leaf" for each in arguments.children)
        self._is_one = results.kind == "leaf"
        self._quick: Callable[..., Any] | None = None

    def __repr__(self) -> str:
        return self.executable.described("CompiledFunction")

    def _repr_html_(self) -> str:
        return self.executable._repr_html_()

    @property
    def report(self) -> CompileReport:
        """What happened when it was compiled."""
        return self.executable.report

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """What the function returns for these arguments, by position or by name.

        ``timeout=`` is how many seconds it may take (see ``monograph.time_limit``), unless a
        parameter is called so.
        """
        if named:
            names = self._names()
            if "timeout" in named and "timeout" not in names:
                return call_limited(self, arguments, named)
            arguments = in_order(names, arguments, named)
        if self._quick is None:
            self._quick = self._quickest()
        found = self._quick(*arguments)
        return self._slowly(arguments) if found is None else found

    def _names(self) -> list[str]:
        """The parameters, which the graph's inputs are called after: ``x``, or ``x.0``, ``x.1``."""
        inputs = iter(self.executable.graph.inputs)
        names = []
        for k, each in enumerate(self.arguments.children):
            own = [next(inputs).name for _ in range(each.leaves)]
            names.append(own[0].split(".")[0] if own else f"arg{k}")
        return names

    def _quickest(self) -> Callable[..., Any]:
        """A built-in function for arguments and results that are not nested."""
        form = _form(self.results)
        return cannot if form is None or not self._is_flat else self.executable.quick_arrays(form)

    def _slowly(self, arguments: tuple[Any, ...]) -> Any:
        found = self.executable.run_arrays(arguments) if self._is_flat else None
        if found is not None:
            return found[0] if self._is_one else unflatten(self.results, found)
        arguments = in_order(self._names(), arguments, {})
        leaves, structure = flatten(arguments)
        if structure != self.arguments:
            raise InputError(
                "the arguments have another structure than the example inputs",
                expected=str(self.arguments),
                found=str(structure),
            )
        return unflatten(self.results, self.executable.run(leaves))

    def save(self, path: str | os.PathLike[str], *, variants: bool = False) -> Path:
        """Write it to a ``.mono`` file, which loads as a function of the same nesting.

        ``variants`` stores the programs for sizes that came back, too (``specialize.variants``).
        """
        call: dict[str, Json] = {
            "kind": "function",
            "arguments": write_structure(self.arguments),
            "results": write_structure(self.results),
        }
        return write_artifact(path, self.executable.bundle(call, variants=variants))


def _form(results: Structure) -> int | None:
    """What a built-in function is to return; None for what it cannot."""
    if results.kind == "leaf":
        return ONE
    if any(each.kind != "leaf" for each in results.children):
        return None
    return {"tuple": TUPLE, "list": LIST}.get(results.kind)


class CompiledModule(Profilable):
    """A torch module or function, compiled: tensors in, tensors out, without gradients.

    ``returned`` says what becomes of the graph's outputs where the arguments are its inputs in
    order: a class (a tensor, or a tuple or list of them in order), or a function that nests them.
    ``names`` are what its arguments may be called; ``gradients`` warns once where they stop.
    Without a convention it cannot be saved; ``obstacle`` says why.
    """

    def __init__(
        self,
        executable: Executable,
        call: Callable[..., Any],
        convention: Convention | None = None,
        returned: type | Callable[[list[Any]], Any] | None = None,
        names: Sequence[str] = (),
        gradients: GradientWatch | None = None,
        *,
        state: Mapping[str, Any] | None = None,
        obstacle: str = "",
    ) -> None:
        self.executable = executable
        self.convention = convention
        self.state: Mapping[str, Any] = dict(state or {})
        """The buffers that calls change, as tensors of its own: to look at, to reset."""
        self._obstacle = obstacle
        self._gradients = gradients
        self._call = call
        self._returned = returned
        self._profiler = torch_profiler()
        self._has_timeout = "timeout" in names
        self._quick: Callable[..., Any] | None = None

    def __repr__(self) -> str:
        return self.executable.described("CompiledModule")

    def _repr_html_(self) -> str:
        return self.executable._repr_html_()

    @property
    def report(self) -> CompileReport:
        """What happened when it was compiled: seconds, passes, what runs in the interpreter."""
        return self.executable.report

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """What the module returns for these arguments.

        ``timeout=`` is how many seconds it may take (see ``monograph.time_limit``), unless it has
        an argument that is called so.
        """
        watch = self._gradients
        if watch is not None and watch.is_recording():
            given = (*arguments, *named.values()) if named else arguments
            self._gradients = None if watch.warns(given) else watch
        if named:
            if "timeout" in named and not self._has_timeout:
                return call_limited(self, arguments, named)
            return self._call(*arguments, **named)
        if self._quick is None:
            self._quick = self._quickest()
        watched = self._profiler._is_profiler_enabled  # then kernels are shown, the slower way
        found = None if watched else self._quick(*arguments)
        return self._call(*arguments) if found is None else found

    def _quickest(self) -> Callable[..., Any]:
        returned = self._returned
        if returned is None:
            return cannot
        if isinstance(returned, type):
            forms: dict[type, int] = {tuple: TUPLE, list: LIST}
            return self.executable.quick_tensors(forms.get(returned, ONE))
        return _nesting(self.executable.quick_tensors(LIST), returned)

    def save(self, path: str | os.PathLike[str], *, variants: bool = False) -> Path:
        """Write it to a ``.mono`` file, which loads as something to call as the module is called.

        That takes and returns torch tensors or arrays, and needs torch for the former alone; it has
        the state that this has now. Named tuples and dataclasses come back with the same names, but
        not of the same class (``monograph.ir.named``). What a file cannot hold is an error.
        ``variants`` stores the programs for sizes that came back, too (``specialize.variants``).
        """
        if self.convention is None:
            reason = self._obstacle or "it does not tell how it is called"
            raise UnsupportedError(
                f"this module cannot be saved: {reason}",
                hint="executable.save(path) saves its graph alone, with flat inputs and outputs",
            )
        from monograph.frontends.torch.types import array_from_torch

        state = {name: array_from_torch(tensor) for name, tensor in self.state.items()}
        bundle = self.executable.bundle(self.convention.write(), state, variants=variants)
        return write_artifact(path, bundle)


def _nesting(call: Callable[..., Any], nest: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    """A call whose outputs are nested."""
    if call is cannot:
        return cannot

    def nested(*arguments: Any) -> Any:
        found = call(*arguments)
        return None if found is None else nest(found)

    return nested


CompiledModel: TypeAlias = (
    "Executable | CompiledFunction | CompiledJax | CompiledModule | CompiledPretrained"
    "| LoadedModule"
)


def any_torch(items: Any) -> bool:
    """Whether any of these is a torch tensor; there is none where nobody has imported torch."""
    torch = sys.modules.get("torch")
    return torch is not None and any(isinstance(item, torch.Tensor) for item in items)
