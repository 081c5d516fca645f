"""What compiling or loading gives: something to call as the model is called, and to save.

An ``Executable`` takes and returns what a graph does. ``CompiledFunction`` and ``CompiledModule``
add the calling convention: the nesting of arguments and results, and their kind.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from monograph.errors import InputError
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from monograph.ir.tree import Structure, flatten, unflatten
from monograph.ir.types import Array
from monograph.runtime.addresses import address_of
from monograph.runtime.arguments import Arguments
from monograph.runtime.artifact import describe_target, write_artifact
from monograph.runtime.bundle import Bundle, Json
from monograph.runtime.edits import read_edits
from monograph.runtime.executable import Native
from monograph.runtime.records import typed
from monograph.runtime.storage import write_code, write_graph, write_signature, write_structure
from monograph.targets.cpu.machine import host
from monograph.targets.program import Code

if TYPE_CHECKING:
    from monograph.passes.manager import Report
    from monograph.runtime.convention import Convention, LoadedModule
    from monograph.runtime.tensor_calls import TensorCalls
    from monograph.runtime.tuning import TuningReport
    from monograph.targets.cpu.build import Program


@dataclass
class CompileReport:
    """What happened: seconds a stage, the passes, and what runs in the interpreter."""

    passes: Report | None = None
    """None if nothing was compiled, but found in the cache or loaded."""
    seconds: dict[str, float] = field(default_factory=dict)
    nodes_before: int = 0
    nodes_after: int = 0
    fallbacks: tuple[str, ...] = ()
    """Nodes that run in the interpreter, as text; ``whole`` says why if it is all of them."""
    whole: str | None = None
    tuning: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Choices of schedules that measurements overruled, by site (``targets.cpu.tuning``)."""
    search: TuningReport | None = None
    """What a search found, if this compilation made one."""
    cache: str = "off"
    """``hit`` if the program came from the disk cache, ``miss`` if it went there, or ``off``."""


class Executable:
    """A compiled graph. Call it with the graph's inputs, by position or by name.

    ``graph`` is what was compiled; of a loaded program it has the inputs alone. ``lowered`` and
    ``program`` tell how it was compiled. Where that was not necessary, because the code was in the
    cache, ``recompile`` makes them when they are first asked for.
    """

    def __init__(
        self,
        graph: Graph,
        native: Native | None,
        report: CompileReport,
        *,
        lowered: Graph | None = None,
        program: Program | None = None,
        recompile: Callable[[], tuple[Graph, Program | None]] | None = None,
    ) -> None:
        self.graph = graph
        self.native = native
        self.report = report
        self._lowered = lowered
        self._program = program
        self._recompile = recompile
        self.arguments = None if native is None else Arguments(graph, native.strides)
        self._tensor_calls: TensorCalls | None = None

    @property
    def code(self) -> Code | None:
        """What runs; None if the interpreter runs all of it."""
        return None if self.native is None else self.native.program

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

    def _see_that_it_is_known(self) -> None:
        if self._recompile is not None:
            self._lowered, self._program = self._recompile()
            self._recompile = None

    # Running --------------------------------------------------------------------------------------

    def __call__(self, *inputs: Any, **named: Any) -> list[Any]:
        """The graph's outputs, in order."""
        return self.run({**named} if named and not inputs else inputs)

    def run(self, inputs: Sequence[Any] | dict[str, Any]) -> list[Any]:
        """The graph's outputs for inputs in order, or by name: torch tensors for torch tensors."""
        found = None if isinstance(inputs, dict) else self.run_arrays(inputs)
        if found is not None:
            return found
        native, arguments = self.native, self.arguments
        if _any_torch(inputs.values() if isinstance(inputs, dict) else inputs):
            return self._run_torch(inputs)
        if native is None or arguments is None:
            return interpret(self.lowered, inputs)
        arrays = arguments.converted(inputs)
        sizes = native.sizes(arrays)
        results = native.run([address_of(each) for each in arrays], sizes)
        arguments.remember(arrays, sizes)
        return results

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
        calls = self._tensor_calls
        if calls is None:
            if self.native is None or self.arguments is None:
                return None
            from monograph.runtime.tensor_calls import TensorCalls

            calls = self._tensor_calls = TensorCalls(self.native, self.arguments)
        return calls(tensors)

    def _run_torch(self, inputs: Sequence[Any] | dict[str, Any]) -> list[Any]:
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

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it, weights included, to a ``.mono`` file that ``monograph.load`` reads."""
        return write_artifact(path, self.bundle({"kind": "graph"}))

    def bundle(self, call: Mapping[str, Json]) -> Bundle:
        """All of it, with what is to be said of how it is called."""
        machine = host()
        if self.native is None:
            parts = write_graph(self.lowered)
        else:
            parts = write_code(self.native.program, guards=self.native.guards)
        manifest: dict[str, Json] = {
            "target": describe_target(machine.triple, machine.cpu, machine.features),
            "native": self.code is not None,
            "signature": write_signature(self.graph),
            "call": dict(call),
            "report": write_report(self.report),
        }
        return Bundle(manifest, parts.blobs, parts.arrays)


def write_report(report: CompileReport) -> dict[str, Json]:
    """What of a report holds for a stored program as well."""
    return {
        "nodes_before": report.nodes_before,
        "nodes_after": report.nodes_after,
        "fallbacks": list(report.fallbacks),
        "whole": report.whole,
        "tuning": {site: dict(edits) for site, edits in report.tuning.items()},
    }


def read_report(value: Json) -> CompileReport:
    """What ``write_report`` wrote."""
    given = typed(value, dict)
    whole = given.get("whole")
    return CompileReport(
        nodes_before=typed(given.get("nodes_before"), int),
        nodes_after=typed(given.get("nodes_after"), int),
        fallbacks=tuple(typed(each, str) for each in typed(given.get("fallbacks"), list)),
        whole=None if whole is None else typed(whole, str),
        tuning={
            typed(site, str): read_edits(edits)
            for site, edits in typed(given.get("tuning"), dict).items()
        },
    )


class CompiledFunction:
    """A traced function, compiled: the same nesting of arguments and results."""

    def __init__(self, executable: Executable, arguments: Structure, results: Structure) -> None:
        self.executable = executable
        self.arguments = arguments
        self.results = results
        self._is_flat = all(each.kind == "leaf" for each in arguments.children)
        self._is_one = results.kind == "leaf"

    def __call__(self, *arguments: Any) -> Any:
        """What the function returns for these arguments."""
        found = self.executable.run_arrays(arguments) if self._is_flat else None
        if found is not None:
            return found[0] if self._is_one else unflatten(self.results, found)
        leaves, structure = flatten(arguments)
        if structure != self.arguments:
            raise InputError(
                "the arguments have another structure than the example inputs",
                expected=str(self.arguments),
                found=str(structure),
            )
        return unflatten(self.results, self.executable.run(leaves))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it to a ``.mono`` file, which loads as a function of the same nesting."""
        call: dict[str, Json] = {
            "kind": "function",
            "arguments": write_structure(self.arguments),
            "results": write_structure(self.results),
        }
        return write_artifact(path, self.executable.bundle(call))


class CompiledModule:
    """A torch module or function, compiled: tensors in, tensors out, without gradients."""

    def __init__(
        self,
        executable: Executable,
        call: Callable[..., Any],
        convention: Convention | None = None,
    ) -> None:
        self.executable = executable
        self.convention = convention
        self._call = call

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """What the module returns for these arguments."""
        return self._call(*arguments, **named)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it to a ``.mono`` file, which loads as something to call as the module is called.

        That takes and returns torch tensors or arrays, and needs torch for the former alone. A
        module with state of its own (statistics that it updates, random numbers) loads as an
        executable: flat inputs and outputs, the state among them.
        """
        if self.convention is None:
            return self.executable.save(path)
        return write_artifact(path, self.executable.bundle(self.convention.write()))


CompiledModel: TypeAlias = "Executable | CompiledFunction | CompiledModule | LoadedModule"


def _any_torch(items: Any) -> bool:
    """Whether any of these is a torch tensor; there is none where nobody has imported torch."""
    torch = sys.modules.get("torch")
    return torch is not None and any(isinstance(item, torch.Tensor) for item in items)
