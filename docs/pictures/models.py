"""What the pictures show: ``digits`` as graph and as programs, for a described processor."""

from __future__ import annotations

from functools import cache
from typing import Any

import monograph
from examples.digits import digits
from monograph.compiler import Options, compile_graph
from monograph.ir.graph import Graph
from monograph.runtime.compiled import Executable

ANY_BATCH = "f32[batch, 1, 28, 28]"
SIXTEEN = "f32[16, 1, 28, 28]"
PROCESSOR = "cpu:x86-64"
"""Eight floats a vector and 16 vector registers; the same on every machine that draws."""


def traced(images: str = ANY_BATCH) -> Graph:
    """The graph as the function gives it."""
    return monograph.trace(digits, images)


@cache
def executable(images: str = SIXTEEN) -> Executable:
    """The program for the described processor."""
    return compile_graph(traced(images), Options(target=PROCESSOR, listings=True, cache=False))


def program(images: str = SIXTEEN) -> Any:
    """Its kernels, slots and steps."""
    return executable(images).program
