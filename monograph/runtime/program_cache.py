"""The disk cache, asked with a graph: the code that compiling it would give, without compiling.

Whether the cache was warm must never show in a result, and yet nobody wants to read gigabytes of
weights to find a few kilobytes of code. So the key covers the graph as text with its weights by
name and type alone, and while a graph is compiled its weights are *watched*: whichever the compiler
reads (to fold a batch norm into a convolution, to compare, to look for zeros) is a weight that the
code depends on, whatever the reason. If it read none, the code serves every model of that
structure. If it read some, the entry under that key only lists them, and the code lies under a key
that covers their contents too. The rule is the same for every pass, those not yet written included.

An entry holds no weight that the model has: they are taken from the model that is being compiled.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from monograph.config import Config
from monograph.dataclass import dataclass
from monograph.errors import MonographError
from monograph.ir.contents import contents_of, give
from monograph.ir.data import ArrayData, Data, MissingData, raw_bytes
from monograph.ir.graph import Graph
from monograph.ir.lazy_data import LazyData
from monograph.ir.text.printer import print_graph
from monograph.ir.types import Array
from monograph.ops.data import Weight
from monograph.program.code import Code
from monograph.program.records import require_type
from monograph.runtime.bundle import Bundle, Json
from monograph.runtime.cache import Cache, cache_key, open_cache, toolchain
from monograph.runtime.storage import list_data, read_code, write_code
from monograph.targets.base import Target

LONGEST_NAME = 200
"""Characters of a model's name that its entries note."""


class Watched(Data):
    """A weight that notes whether anybody looked at its contents.

    ``number`` is its place among the weights and constants of the model.
    """

    def __init__(self, source: Data, number: int) -> None:
        self.dtype = source.dtype
        self.shape = source.shape
        self.source = source
        self.number = number
        self.was_read = False

    def array(self) -> Array:
        """The contents, which somebody now knows."""
        self.was_read = True
        return self.source.array()

    @property
    def digest(self) -> str:
        """The contents' digest."""
        self.was_read = True
        return self.source.digest

    @property
    def splat(self) -> Any | None:
        """The element that fills it, if one does."""
        self.was_read = True
        return self.source.splat


class Watch:
    """A copy of a model to compile, in which every weight is watched."""

    def __init__(self, model: Graph) -> None:
        self.graph = model.clone()
        self._weights: list[Watched] = []
        stored = [node for node in self.graph.walk() if contents_of(node) is not None]
        for number, node in enumerate(stored):
            if isinstance(node.op, Weight):
                weight = Watched(node.op.data, number)
                self._weights.append(weight)
                give(node, weight)

    @property
    def read(self) -> tuple[int, ...]:
        """The numbers of the weights that have been read."""
        return tuple(weight.number for weight in self._weights if weight.was_read)

    @property
    def unread(self) -> frozenset[int]:
        """The identities of the model's weights that nobody has read."""
        return frozenset(id(weight.source) for weight in self._weights if not weight.was_read)

    def end(self) -> None:
        """Put the weights themselves back; what has been read stays known."""
        for node in self.graph.walk():
            data = contents_of(node)
            if isinstance(data, Watched | LazyData):
                give(node, _unwatch(data))


def unwatch_weights(weights: Sequence[Data], model: Graph, watch: Watch) -> tuple[Data, ...]:
    """A program's weights without the watch: each is one of the model's, or a copy of its own.

    What a pass made of a weight may be a view of it, and would change with it if its owner wrote
    to it, but only until it came from the cache. All of a weight in another shape is that weight,
    since code knows addresses alone; a view of a part of one is copied. Of what nobody has read,
    there is no view.
    """
    plain = [_unwatch(each) for each in weights]
    stored = list_data(model)
    known = {id(data) for data in stored}
    if all(id(each) in known or isinstance(each, LazyData) for each in plain):
        return tuple(plain)
    unread = watch.unread
    seen = [data for data in stored if id(data) not in unread]
    arrays = [data.array() for data in seen]
    places = {_place(array): data for array, data in zip(arrays, seen, strict=True)}
    return tuple(
        each if id(each) in known or isinstance(each, LazyData) else _own(each, arrays, places)
        for each in plain
    )


def _unwatch(data: Data) -> Data:
    """The contents without the watch, on whatever they are computed of too."""
    if isinstance(data, Watched):
        return data.source
    return data.of(_unwatch) if isinstance(data, LazyData) else data


def _own(data: Data, arrays: Sequence[Array], places: Mapping[tuple[int, int] | int, Data]) -> Data:
    """Contents that are one of the model's arrays, all of it, or share no memory with any."""
    array = data.array()
    if array.size and _place(array) in places:
        return places[_place(array)]
    if any(np.may_share_memory(array, other) for other in arrays):
        array = array.copy()
    return ArrayData(array, data.dtype, private=True)


def _place(array: Array) -> tuple[int, int] | int:
    """Where an array lies, if its elements follow one another; else something of its own."""
    return (array.ctypes.data, array.nbytes) if array.flags.c_contiguous else id(array)


@dataclass(frozen=True)
class CachedProgram:
    """A program out of the cache, and what was noted when it was compiled."""

    code: Code
    note: Json


class ProgramCache:
    """The cache's entries for one model, compiled in one way."""

    def __init__(self, cache: Cache, key: str, model: Graph, target: str = "") -> None:
        self._cache = cache
        self._key = key
        self._model = model
        self._about = {"kind": "program", "model": model.name[:LONGEST_NAME], "target": target}

    def find(self) -> CachedProgram | None:
        """The program, if it is there; what cannot be read is as good as not there."""
        bundle = self._cache.get(self._key)
        if bundle is None:
            return None
        try:
            read = _numbers(bundle)
            if read:
                bundle = self._cache.get(self._key_with(read))
            if bundle is None:
                return None
            return CachedProgram(read_code(bundle, self._model), bundle.manifest.get("note"))
        except MonographError:
            return None

    def keep(self, code: Code, read: Sequence[int], note: Json) -> None:
        """Store a program for which the compiler read these weights, by number."""
        parts = write_code(code, self._model)
        about: Json = {**self._about, "nodes": len(self._model)}
        bundle = Bundle({"note": note, "about": about}, parts.blobs, parts.arrays)
        if not read:
            self._cache.put(self._key, bundle)
            return
        # What is read may depend on what was read before: list all that any compilation read.
        known = self._cache.get(self._key)
        listed = sorted({*read, *([] if known is None else _numbers(known))})
        self._cache.put(self._key_with(listed), bundle)
        self._cache.put(
            self._key, Bundle({"read": list(listed), "about": {**self._about, "kind": "index"}})
        )

    def _key_with(self, numbers: Sequence[int]) -> str:
        """The key that covers the contents of these weights."""
        stored = list_data(self._model)
        if numbers and not 0 <= min(numbers) <= max(numbers) < len(stored):
            raise MonographError("an entry lists a weight that the model does not have")
        return cache_key(
            {"entry": self._key, **{str(k): contents_digest(stored[k]) for k in numbers}}
        )


def program_cache(
    model: Graph, target: Target, settings: Mapping[str, str], wanted: bool | None
) -> ProgramCache | None:
    """The cache for a model, or None if it is not to be used for this one.

    ``wanted`` overrules the environment. A run that is to be verified or dumped pass by pass is
    compiled afresh, and so is one with ops or for a target from outside the package: those may have
    changed.
    """
    config = Config.from_environment()
    if wanted is not None:
        config = replace(config, cache=wanted)
    ours = _is_ours(target) and all(_is_ours(node.op) for node in model.walk())
    if config.verify or config.dump is not None or not ours:
        return None
    cache = open_cache(config)
    if cache is None:
        return None
    parts = {
        "model": text_without_weights(model),
        "target": target.name,
        "machine": target.description,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "ml_dtypes": ml_dtypes.__version__,
        **{f"toolchain {name}": version for name, version in toolchain().items()},
        **{f"setting {name}": value for name, value in settings.items()},
    }
    return ProgramCache(cache, cache_key(parts), model, str(target.record))


def text_without_weights(model: Graph) -> str:
    """The text of a graph in which weights have a name and a type, but no contents."""
    copy = model.clone()
    for node in copy.walk():
        if isinstance(node.op, Weight):
            give(node, MissingData(node.op.data.type, ""))
    return print_graph(copy)


def contents_digest(data: Data) -> str:
    """A SHA-256 of what a weight holds now; never remembered, since its owner may write to it."""
    array = data.array()
    state = hashlib.sha256(str(data.type).encode())
    if array.dtype.hasobject:
        state.update(raw_bytes(array))
    elif array.size > 0:
        state.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return state.hexdigest()


def _is_ours(part: object) -> bool:
    return type(part).__module__.startswith("monograph.")


def _numbers(bundle: Bundle) -> list[int]:
    """The weights that an entry lists; an entry that holds a program lists none."""
    return [
        require_type(number, int) for number in require_type(bundle.manifest.get("read", []), list)
    ]
