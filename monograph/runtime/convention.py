"""How a torch module is called, kept where torch may not be: in a saved program.

A graph takes and returns flat lists. A module takes positional and named arguments, nested as its
author liked, and returns a dict, say; it may keep state from call to call, and draw random numbers.
A ``Convention`` remembers both nestings, and of each input of the graph whether it is an argument,
state or a key, so that a loaded module is called as the module was: with arrays, or with torch
tensors where there is torch.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from monograph.dataclass import dataclass
from monograph.deadline import call_limited
from monograph.errors import InputError
from monograph.ir.aliasing import refuse_aliases
from monograph.ir.parameters import Parameters
from monograph.ir.tree import SIMPLE, Fixed, Structure, flatten, unflatten
from monograph.ir.types import Array
from monograph.program.records import require_type, unreadable
from monograph.runtime.artifact import write_artifact
from monograph.runtime.bundle import Json
from monograph.runtime.compile_report import CompileReport
from monograph.runtime.compiled import Executable, Profilable, any_torch
from monograph.runtime.storage import read_structure, write_structure
from monograph.runtime.stored_parameters import read_parameters, write_parameters

Source: TypeAlias = int | str | None
"""What an input of the graph is: a leaf of the arguments, by place, or state, by name, or a key to
draw random numbers with."""


@dataclass(frozen=True)
class Result:
    """A leaf of what is returned: an output of the graph, or a word, or None.

    It may be a Python number, or what torch has as complex32 and we as c64. ``order`` has the
    dimensions in the order in which the output has them, if it is another.
    """

    output: int | None
    is_number: bool = False
    order: tuple[int, ...] | None = None
    is_half_complex: bool = False
    word: str | None = None

    def of(self, outputs: Sequence[Any]) -> Any:
        """The leaf: of tensors or arrays."""
        if self.output is None:
            return self.word
        found = outputs[self.output]
        if self.is_number:
            return found.item()
        if self.is_half_complex and not isinstance(found, np.ndarray):
            import torch

            found = found.to(torch.complex32)
        if self.order is None:
            return found
        inverse = [self.order.index(axis) for axis in range(len(self.order))]
        return found.transpose(inverse) if isinstance(found, np.ndarray) else found.permute(inverse)

    def write(self) -> Json:
        """As a manifest holds it."""
        order = None if self.order is None else list(self.order)
        return [self.output, self.is_number, order, self.is_half_complex, self.word]


@dataclass(frozen=True)
class Convention:
    """The nesting of ``(arguments, named arguments)`` and of the results.

    ``inputs`` says what each input of the graph is, ``outputs`` what each leaf of the results is,
    and ``fixed`` has the leaves that the program holds for one value of. ``parameters`` lets
    arguments be given in other forms than the example inputs were.
    """

    arguments: Structure
    inputs: tuple[Source, ...]
    results: Structure
    outputs: tuple[Result, ...]
    fixed: tuple[Fixed, ...] = ()
    parameters: Parameters | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """What arguments may be called, as far as that is known."""
        known = self.parameters
        of_signature = () if known is None else tuple(known.signature.parameters)
        return (*of_signature, *self.arguments.children[1].keys)

    def leaves(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> list[Any]:
        """The leaves of some arguments; an error if they are not those of the module."""
        leaves, structure = flatten((arguments, dict(named)))
        if structure != self.arguments and self.parameters is not None:
            arranged = self.parameters.arranged(arguments, named)
            if arranged is not None:
                leaves, structure = flatten(arranged)
        if structure != self.arguments:
            raise InputError(
                "the arguments have another structure than the example inputs",
                expected=str(self.arguments),
                found=str(structure),
            )
        for each in self.fixed:
            each.check(leaves[each.position])
        return leaves

    def write(self) -> dict[str, Json]:
        """As a manifest holds it."""
        return {
            "kind": "module",
            "arguments": write_structure(self.arguments),
            "inputs": list(self.inputs),
            "results": write_structure(self.results),
            "outputs": [each.write() for each in self.outputs],
            "fixed": [[each.name, each.position, each.value] for each in self.fixed],
            "parameters": None if self.parameters is None else write_parameters(self.parameters),
        }


def read_convention(call: dict[str, Json], inputs: int, outputs: int) -> Convention:
    """What ``write`` wrote, of a graph with so many inputs and outputs."""
    arguments = read_structure(call.get("arguments"))
    results = read_structure(call.get("results"))
    sources = tuple(
        _read_source(each, arguments.leaves) for each in require_type(call.get("inputs"), list)
    )
    leaves = tuple(_read_result(each, outputs) for each in require_type(call.get("outputs"), list))
    fixed = tuple(
        _read_fixed(each, arguments.leaves) for each in require_type(call.get("fixed"), list)
    )
    if len(sources) != inputs:
        raise unreadable("its arguments are not the program's inputs")
    if len(leaves) != results.leaves:
        raise unreadable("its results are not the program's outputs")
    if arguments.kind != "tuple" or [c.kind for c in arguments.children] != ["tuple", "dict"]:
        raise unreadable("its arguments are not positional and named ones")
    parameters = call.get("parameters")
    known = None if parameters is None else read_parameters(parameters)
    return Convention(arguments, sources, results, leaves, fixed, known)


def _read_source(value: Json, leaves: int) -> Source:
    if value is None or isinstance(value, str):
        return value
    place = require_type(value, int)
    if not 0 <= place < leaves:
        raise unreadable("its arguments are not the program's inputs")
    return place


def _read_fixed(value: Json, leaves: int) -> Fixed:
    parts = require_type(value, list)
    if len(parts) != 3 or not isinstance(parts[2], SIMPLE):
        raise unreadable("an argument of one value is described in an unknown way")
    position = require_type(parts[1], int)
    if not 0 <= position < leaves:
        raise unreadable("a value is given for an argument that there is not")
    return Fixed(require_type(parts[0], str), position, parts[2])


def _read_result(value: Json, outputs: int) -> Result:
    parts = require_type(value, list)
    if len(parts) != 5:
        raise unreadable("a result is described in an unknown way")
    number, half = require_type(parts[1], bool), require_type(parts[3], bool)
    if parts[0] is None:
        return Result(None, number, word=None if parts[4] is None else require_type(parts[4], str))
    output = require_type(parts[0], int)
    if not 0 <= output < outputs:
        raise unreadable("a result is an output that the program does not have")
    return Result(output, number, _read_order(parts[2]), half)


def _read_order(value: Json) -> tuple[int, ...] | None:
    if value is None:
        return None
    order = tuple(require_type(each, int) for each in require_type(value, list))
    if sorted(order) != list(range(len(order))):
        raise unreadable("the dimensions of a result are in no order")
    return order


class LoadedModule(Profilable):
    """A torch module that was compiled and saved: called as it was, without gradients.

    ``state`` holds the buffers that calls change, as they were when it was saved. Random numbers
    follow torch's generator where tensors are given, and NumPy's (``np.random.seed``) for arrays.
    """

    def __init__(
        self,
        executable: Executable,
        convention: Convention,
        state: Mapping[str, Array] | None = None,
    ) -> None:
        self.executable = executable
        self.convention = convention
        self.state: dict[str, Array] = dict(state or {})
        updates = executable.graph.updates
        self._is_plain = not updates and all(isinstance(each, int) for each in convention.inputs)

    def __repr__(self) -> str:
        return self.executable.described("LoadedModule")

    @property
    def report(self) -> CompileReport:
        """What the file tells of how it was compiled."""
        return self.executable.report

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """What the module returns for these arguments: tensors for tensors, arrays for arrays.

        ``timeout=`` is how many seconds it may take (see ``monograph.time_limit``), unless it has
        an argument that is called so.
        """
        if "timeout" in named and "timeout" not in self.convention.names:
            return call_limited(self, arguments, named)
        leaves = self.convention.leaves(arguments, named)
        if self._is_plain:
            places = [each for each in self.convention.inputs if isinstance(each, int)]
            found = self.executable.run([leaves[place] for place in places])
        else:
            found = self._run_with_state(leaves)
        results = [each.of(found) for each in self.convention.outputs]
        return unflatten(self.convention.results, results)

    def _run_with_state(self, leaves: Sequence[Any]) -> list[Any]:
        """The graph's outputs; state, and arguments that the module writes, are updated."""
        is_torch = any_torch(leaves)
        given = [self._input(each, leaves, is_torch) for each in self.convention.inputs]
        arrays = [_as_array(each) for each in given]
        inputs = enumerate(self.convention.inputs)
        arguments = [number for number, each in inputs if isinstance(each, int)]
        refuse_aliases(self.executable.graph, arrays, arguments)
        found = self.executable.run(arrays)
        for output, position in self.executable.graph.updates.items():
            _overwrite(given[position], found[output])
        return [_as_tensor(each) for each in found] if is_torch else found

    def _input(self, source: Source, leaves: Sequence[Any], is_torch: bool) -> Any:
        if isinstance(source, int):
            return leaves[source]
        return _fresh_key(is_torch) if source is None else self.state[source]

    def save(self, path: str | os.PathLike[str], *, variants: bool = False) -> Path:
        """Write it, and its state as it is now, to a ``.mono`` file, which loads as this did.

        ``variants`` stores those that it was loaded with, too.
        """
        call = self.convention.write()
        return write_artifact(path, self.executable.bundle(call, self.state, variants=variants))


def _fresh_key(is_torch: bool) -> Array:
    if not is_torch:
        return np.random.randint(0, 2**31, 2).astype(np.uint32)
    from monograph.frontends.torch.runner import fresh_key

    return fresh_key()


def _as_array(item: Any) -> Any:
    if not any_torch((item,)):
        return item
    from monograph.frontends.torch.types import array_from_torch

    return array_from_torch(item)


def _as_tensor(array: Array) -> Any:
    from monograph.frontends.torch.types import array_to_torch

    return array_to_torch(array)


def _overwrite(target: Any, value: Array) -> None:
    """Give state, or an argument, its new contents."""
    if any_torch((target,)):
        from monograph.frontends.torch.runner import overwrite

        overwrite(target, _as_tensor(value))
        return
    if not isinstance(target, np.ndarray) or not target.flags.writeable:
        raise InputError(
            "the program writes to one of its arguments",
            expected="a tensor, or an array that can be written to",
            found=type(target).__name__,
        )
    if target.shape != value.shape:
        raise InputError(
            "the program gives one of its arguments another shape, which an array cannot take",
            expected="a tensor",
            found=f"an array of {target.shape} for {value.shape}",
        )
    target[...] = value
