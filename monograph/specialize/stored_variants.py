"""Variants in ``.mono`` files: programs for some sizes, stored beside the program for all of them.

Each has blobs of its own, ``variants/0/program.o`` and so on; weights and packed weights that are
equal are stored once for all. A file has no graph to specialize: a loaded program runs the variants
that it was saved with, and the program for all sizes at others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from monograph.ir.dims import Symbol
from monograph.ir.graph import Graph
from monograph.ir.specialize import specialize
from monograph.ir.types import Array
from monograph.program.code import Code
from monograph.program.records import require_type, unreadable
from monograph.runtime.bundle import Bundle, Json
from monograph.runtime.device import LoadedProgram, Loading
from monograph.runtime.storage import BundleParts, Named, read_code, read_prepared, write_code
from monograph.specialize.variants import Variants

if TYPE_CHECKING:
    from monograph.runtime.compiled import Executable

MOST_STORED = 1000
"""How many variants a file may have."""


class SharedParts(BundleParts):
    """Parts in which an array that is there already is not stored again."""

    def __init__(self, parts: BundleParts) -> None:
        super().__init__(parts.blobs, parts.arrays)
        self._names = {_identity(array): name for name, array in parts.arrays.items()}

    def add_array(self, name: str, array: Array) -> str:
        """Store an array under this name, or give the name of an equal one."""
        identity = _identity(array)
        if identity not in self._names:
            self._names[identity] = super().add_array(name, array)
        return self._names[identity]


def _identity(array: Array) -> tuple[str, tuple[int, ...], str]:
    """What is the same for equal arrays alone."""
    if array.dtype.hasobject:
        state = hashlib.sha256(repr(array.tolist()).encode())
    else:
        state = hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return array.dtype.name, array.shape, state.hexdigest()


def write_variants(variants: Variants, parts: BundleParts) -> list[Json]:
    """Add the variants that are ready to the parts of a program; what the manifest says of them.

    Those for some of the sizes are not stored: a loaded program runs the one for all sizes then.
    """
    from monograph.runtime.compile_report import write_report

    ready = variants.states()
    shared = SharedParts(parts)
    stored: list[Json] = []
    for sizes, variant in ready.items():
        own = None if variant.executable is None else variant.executable.native
        if own is None or variant.executable is None or None in sizes:
            continue
        made = write_code(own.program, prepared=own.prepared(), arrays=shared)
        folder = _folder(len(stored))
        parts.blobs.update({f"{folder}{name}": blob for name, blob in made.blobs.items()})
        stored.append({"sizes": list(sizes), "report": write_report(variant.executable.report)})
    return stored


def read_variants(
    bundle: Bundle,
    signature: Graph,
    symbols: Sequence[Symbol],
    load: Callable[[Code, Graph, Loading], LoadedProgram],
    threads: int | None,
    outputs: Sequence[Named],
) -> Variants | None:
    """The variants that were stored with a program; None if there are none."""
    stored = require_type(bundle.manifest.get("variants", []), list)
    if not stored:
        return None
    if len(stored) > MOST_STORED:
        raise unreadable(f"it has {len(stored)} variants")
    found = Variants(len(stored), None)
    for number, each in enumerate(stored):
        given = require_type(each, dict)
        sizes = tuple(require_type(size, int) for size in require_type(given.get("sizes"), list))
        same = _specialize(signature, symbols, sizes)
        own, code = _read_variant(bundle, number)
        loaded = load(code, same, Loading(threads, (), read_prepared(own, code)))
        found.add(sizes, _executable(loaded, same, given, outputs))
    return found


def _specialize(signature: Graph, symbols: Sequence[Symbol], sizes: tuple[int, ...]) -> Graph:
    """The signature for these sizes."""
    fit = len(sizes) == len(symbols) and all(
        symbol.lower <= size and (symbol.upper is None or size <= symbol.upper)
        for symbol, size in zip(symbols, sizes, strict=False)
    )
    if not fit:
        raise unreadable(f"it has a variant for sizes that it cannot have: {list(sizes)}")
    return specialize(signature, dict(zip(symbols, sizes, strict=True)))


def _read_variant(bundle: Bundle, number: int) -> tuple[Bundle, Code]:
    """What is stored of a variant, and its code."""
    folder = _folder(number)
    blobs = {
        name.removeprefix(folder): blob
        for name, blob in bundle.blobs.items()
        if name.startswith(folder)
    }
    own = Bundle({}, blobs, bundle.arrays)
    code = read_code(own)
    if code.sizes:
        raise unreadable("a variant has sizes that are not known")
    return own, code


def _executable(
    loaded: LoadedProgram, graph: Graph, given: dict[str, Json], outputs: Sequence[Named]
) -> Executable:
    from monograph.runtime.compile_report import read_report
    from monograph.runtime.compiled import Executable

    return Executable(graph, loaded, read_report(given.get("report")), outputs=outputs)


def _folder(number: int) -> str:
    return f"variants/{number}/"
