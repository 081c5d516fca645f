"""Refuses arguments that share memory with one that the program writes.

A graph reads every input as it was given, and what it writes to an input is stored when all is
computed. Where another argument lies in the same memory, eager mode would read there what was just
written: the answer would be another one, so the call is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from monograph.errors import InputError
from monograph.ir.graph import Graph

MAX_WORK = 100_000
"""Candidates that are tried to find an element which two strided arrays have in common."""


def refuse_aliases(graph: Graph, given: Sequence[Any], arguments: Collection[int]) -> None:
    """Raise an error if an argument that the graph updates shares memory with another input.

    ``arguments`` are the inputs, by number, that the caller gave; state is the program's own.
    """
    written = frozenset(graph.updates.values()).intersection(arguments)
    if not written:
        return
    spans = sorted((*_bytes_of(value), number) for number, value in enumerate(given))
    before: list[tuple[int, int]] = []
    for begin, end, number in spans:
        before = [(stop, other) for stop, other in before if stop > begin]
        for _, other in before if end > begin else ():
            pair = sorted((number, other), key=lambda each: each not in written)
            if pair[0] in written and share_memory(given[number], given[other]):
                names = [f"%{graph.inputs[each].name}" for each in pair]
                raise InputError(
                    f"the program writes to input {names[0]}, which shares memory with {names[1]}",
                    expected="memory of its own",
                    found="elements that both have",
                    hint="pass a copy of one of them (.clone() in PyTorch, .copy() in NumPy)",
                )
        before.append((end, number))


def share_memory(first: Any, second: Any) -> bool:
    """Whether two arrays or tensors have an element in common, if their bytes overlap."""
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        try:
            # NumPy's types know two of the numbers alone.
            return np.shares_memory(first, second, MAX_WORK)  # type: ignore[arg-type]
        except np.exceptions.TooHardError:
            return True
    return type(first) is type(second) and getattr(first, "device", 0) == second.device


def _bytes_of(value: Any) -> tuple[int, int]:
    """Where an array's or a tensor's memory begins and ends; nowhere, if it has none."""
    if isinstance(value, np.ndarray):
        if value.flags.c_contiguous:
            begin = int(value.__array_interface__["data"][0])
            return begin, begin + value.nbytes
        return np.lib.array_utils.byte_bounds(value)
    if not hasattr(value, "data_ptr") or not value.numel():
        return 0, 0
    begin = int(value.data_ptr())
    last = sum((size - 1) * step for size, step in zip(value.shape, value.stride(), strict=True))
    return begin, begin + (int(last) + 1) * int(value.element_size())
