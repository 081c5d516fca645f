"""How a torch module is called, kept where torch may not be: in a saved program.

A graph takes and returns flat lists. A module takes positional and named arguments, nested as its
author liked, and returns a dict, say. A ``Convention`` remembers both nestings and which leaf is
which input or output, so that a loaded module is called as the module was: with arrays, or with
torch tensors where there is torch.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from monograph.dataclass import dataclass
from monograph.deadline import call_limited
from monograph.errors import InputError
from monograph.ir.tree import SIMPLE, Fixed, Structure, flatten, unflatten
from monograph.runtime.artifact import write_artifact
from monograph.runtime.bundle import Json
from monograph.runtime.compiled import Executable
from monograph.runtime.records import typed, unreadable
from monograph.runtime.storage import read_structure, write_structure


@dataclass(frozen=True)
class Result:
    """A leaf of what is returned: an output of the graph, or None; perhaps a Python number.

    ``order`` has the dimensions in the order in which the output has them, if it is another.
    """

    output: int | None
    is_number: bool = False
    order: tuple[int, ...] | None = None

    def of(self, outputs: Sequence[Any]) -> Any:
        """The leaf: of tensors or arrays."""
        if self.output is None:
            return None
        found = outputs[self.output]
        if self.is_number:
            return found.item()
        if self.order is None:
            return found
        inverse = [self.order.index(axis) for axis in range(len(self.order))]
        return found.transpose(inverse) if isinstance(found, np.ndarray) else found.permute(inverse)


@dataclass(frozen=True)
class Convention:
    """The nesting of ``(arguments, named arguments)`` and of the results.

    ``inputs`` has the leaf that each input of the graph is, ``outputs`` what each leaf of the
    results is, and ``fixed`` the leaves that the program holds for one value of.
    """

    arguments: Structure
    inputs: tuple[int, ...]
    results: Structure
    outputs: tuple[Result, ...]
    fixed: tuple[Fixed, ...] = ()

    def write(self) -> dict[str, Json]:
        """As a manifest holds it."""
        return {
            "kind": "module",
            "arguments": write_structure(self.arguments),
            "inputs": list(self.inputs),
            "results": write_structure(self.results),
            "outputs": [
                [each.output, each.is_number, None if each.order is None else list(each.order)]
                for each in self.outputs
            ],
            "fixed": [[each.name, each.position, each.value] for each in self.fixed],
        }


def read_convention(call: dict[str, Json], inputs: int, outputs: int) -> Convention:
    """What ``write`` wrote, of a graph with so many inputs and outputs."""
    arguments = read_structure(call.get("arguments"))
    results = read_structure(call.get("results"))
    places = tuple(typed(each, int) for each in typed(call.get("inputs"), list))
    leaves = tuple(_read_result(each, outputs) for each in typed(call.get("outputs"), list))
    fixed = tuple(_read_fixed(each, arguments.leaves) for each in typed(call.get("fixed"), list))
    if len(places) != inputs or not all(0 <= place < arguments.leaves for place in places):
        raise unreadable("its arguments are not the program's inputs")
    if len(leaves) != results.leaves:
        raise unreadable("its results are not the program's outputs")
    if arguments.kind != "tuple" or [c.kind for c in arguments.children] != ["tuple", "dict"]:
        raise unreadable("its arguments are not positional and named ones")
    return Convention(arguments, places, results, leaves, fixed)


def _read_fixed(value: Json, leaves: int) -> Fixed:
    parts = typed(value, list)
    if len(parts) != 3 or not isinstance(parts[2], SIMPLE):
        raise unreadable("an argument of one value is described in an unknown way")
    position = typed(parts[1], int)
    if not 0 <= position < leaves:
        raise unreadable("a value is given for an argument that there is not")
    return Fixed(typed(parts[0], str), position, parts[2])


def _read_result(value: Json, outputs: int) -> Result:
    parts = typed(value, list)
    if len(parts) != 3:
        raise unreadable("a result is described in an unknown way")
    number = typed(parts[1], bool)
    if parts[0] is None:
        return Result(None, number)
    output = typed(parts[0], int)
    if not 0 <= output < outputs:
        raise unreadable("a result is an output that the program does not have")
    return Result(output, number, _read_order(parts[2]))


def _read_order(value: Json) -> tuple[int, ...] | None:
    if value is None:
        return None
    order = tuple(typed(each, int) for each in typed(value, list))
    if sorted(order) != list(range(len(order))):
        raise unreadable("the dimensions of a result are in no order")
    return order


class LoadedModule:
    """A torch module that was compiled and saved: called as it was, without gradients."""

    def __init__(self, executable: Executable, convention: Convention) -> None:
        self.executable = executable
        self.convention = convention

    def __repr__(self) -> str:
        return self.executable.described("LoadedModule")

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """What the module returns for these arguments: tensors for tensors, arrays for arrays.

        ``timeout=`` is how many seconds it may take (see ``monograph.time_limit``), unless it has
        an argument that is called so.
        """
        if "timeout" in named and "timeout" not in self.convention.arguments.children[1].keys:
            return call_limited(self, arguments, named)
        leaves, structure = flatten((arguments, named))
        if structure != self.convention.arguments:
            raise InputError(
                "the arguments have another structure than the example inputs",
                expected=str(self.convention.arguments),
                found=str(structure),
            )
        for each in self.convention.fixed:
            each.check(leaves[each.position])
        found = self.executable.run([leaves[place] for place in self.convention.inputs])
        return unflatten(self.convention.results, self._leaves(found))

    def _leaves(self, found: Sequence[Any]) -> list[Any]:
        return [each.of(found) for each in self.convention.outputs]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it to a ``.mono`` file, which loads as this did."""
        return write_artifact(path, self.executable.bundle(self.convention.write()))
