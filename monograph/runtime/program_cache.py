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
from dataclasses import dataclass, replace
from typing import Any, cast

import ml_dtypes
import numpy as np

from monograph.config import Config
from monograph.errors import MonographError
from monograph.ir.data import Data, raw_bytes
from monograph.ir.graph import Graph
from monograph.ir.op import make
from monograph.ir.text.printer import print_graph
from monograph.ir.types import Array
from monograph.runtime.bundle import Bundle, Json
from monograph.runtime.cache import Cache, cache_key, open_cache, toolchain
from monograph.runtime.records import typed
from monograph.runtime.storage import read_code, stored_data, write_code
from monograph.targets.cpu.machine import Machine
from monograph.targets.program import Code


class Watched(Data):
    """A weight that notes whether anybody looked at its contents."""

    def __init__(self, source: Data) -> None:
        self.dtype = source.dtype
        self.shape = source.shape
        self.source = source
        self.was_read = False

    def array(self) -> Array:
        """The contents, which somebody now knows."""
        self.was_read = True
        return self.source.array()

    @property
    def digest(self) -> str:  # type: ignore[override]  # as costly as reading, and remembered below
        """The contents' digest."""
        self.was_read = True
        return self.source.digest

    @property
    def splat(self) -> Any | None:  # type: ignore[override]  # same
        """The element that fills it, if one does."""
        self.was_read = True
        return self.source.splat


class _Unread(Data):
    """A weight of which only the type is known; it has no contents, not even a digest."""

    def __init__(self, source: Data) -> None:
        self.dtype = source.dtype
        self.shape = source.shape

    @property
    def digest(self) -> str:  # type: ignore[override]  # nothing to compute
        """Nothing."""
        return ""

    def array(self) -> Array:
        """Never asked for: a weight is printed by name and digest."""
        raise AssertionError("the text of a graph has the contents of a weight in it")


def watched(graph: Graph) -> Graph:
    """A copy of the graph whose weights are watched."""
    copy = graph.clone()
    _replace_weights(copy, Watched)
    return copy


def unwatched(graph: Graph, code: Code | None) -> tuple[frozenset[str], Code | None]:
    """End the watch, in a lowered graph and its code: the labels of the weights that were read."""


def _replace_weights(graph: Graph, wrap: Any) -> None:
    for node in graph.walk():
        if node.op.name == "weight":
            attributes = node.op.attributes()
            node.op = make("weight", label=attributes["label"], data=wrap(attributes["data"]))
