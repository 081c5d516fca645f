"""Checks of ``out=`` arguments that torch makes when a program runs, and its tracing does not.

Tracing computes types alone; a few ops look at dtypes and memory only in their kernels. A program
that eager refuses must be refused here too, not given a meaning of our own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from monograph.errors import InputError
from monograph.frontends.torch.schema import bind
from monograph.frontends.torch.types import dtype_from_torch
from monograph.ir.graph import Value

EXACT = frozenset({"aten.aminmax.out", "aten.complex.out", "aten.multinomial.out"})
"""Ops that do not cast what they compute to the dtype of ``out``."""

APART = frozenset(
    {
        "aten.cat.out",
        "aten.gather.out",
        "aten.index_select.out",
        "aten.kthvalue.values",
        "aten.masked_select.out",
        "aten.take.out",
    }
)
"""Ops that read their operands after they have begun to write ``out``."""


def check_dtypes(node: Any, written: Mapping[str, Any]) -> None:
    """Refuse an ``out`` of another dtype than the result, where torch does."""
    if str(node.target) not in EXACT:
        return
    bound = bind(node, node.target._schema)
    for name, value in written.items():
        recorded = bound[name].meta["val"]
        dtype = dtype_from_torch(recorded.dtype)
        if isinstance(value, Value) and value.dtype is not dtype:
            raise InputError(
                f"{node.target}: {name} must have the dtype of the result",
                expected=str(value.dtype),
                found=str(dtype),
            )


def check_memory(node: Any) -> None:
    """Refuse an ``out`` that shares memory with an operand, where torch does."""
    if str(node.target) not in APART:
        return
    bound = bind(node, node.target._schema)
    outs = {argument.name for argument in node.target._schema.arguments if argument.is_out}
    written = {_storage(bound[name]) for name in outs}
    read = {
        _storage(each) for name, given in bound.items() if name not in outs for each in _list(given)
    }
    shared = (written & read) - {None}
    if shared:
        raise InputError(
            f"{node.target}: out shares memory with an operand",
            expected="memory of its own",
            hint="clone the operand first",
        )


def _list(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list | tuple) else [given]


def _storage(given: Any) -> int | None:
    """The memory of a node's recorded tensor; None for anything else, and for no elements."""
    recorded = given.meta.get("val") if isinstance(given, torch.fx.Node) else None
    if not isinstance(recorded, torch.Tensor) or recorded.numel() == 0:
        return None
    return int(recorded.untyped_storage()._cdata)
