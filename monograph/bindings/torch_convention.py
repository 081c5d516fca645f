"""Saves with a program how its torch module was called: argument names, nesting, results.

What a file cannot say of a call is an error that names it: nothing is left out, since what is
loaded would then answer differently from what was saved.
"""

from __future__ import annotations

import dataclasses
import math
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import torch

from monograph.errors import UnsupportedError
from monograph.frontends.torch import ImportedModel, InputKind
from monograph.frontends.torch.program import Input
from monograph.ir.parameters import Parameters
from monograph.ir.tree import LEAF, NONE, SIMPLE, Fixed, Structure, flatten
from monograph.runtime.convention import Convention, Result, Source

PLAIN = (tuple, list, torch.Size, dict, OrderedDict, defaultdict, namedtuple)
"""What torch takes apart as Python itself would."""


def convention_of(
    imported: ImportedModel, parameters: Parameters | None, state: Mapping[str, torch.Tensor]
) -> Convention:
    """How the module is called; an ``UnsupportedError`` says what of it a file cannot hold."""
    given, returned = imported.input_spec, imported.output_spec
    if given is None or returned is None:
        raise UnsupportedError("a graph of ATen ops does not tell how its module was called")
    _check_state(state)
    # The leaves are their own numbers in torch's order, which is not ours for dicts; None is a
    # leaf to torch, and no leaf to us.
    numbered: list[int | None] = list(range(given.num_leaves))
    for each in imported.fixed:
        if each.value is None:
            numbered[each.position] = None
        else:
            _check_fixed(each)
    leaves, arguments = flatten(_nest(given, iter(numbered)))
    return Convention(
        arguments,
        tuple(_source(each, leaves) for each in imported.inputs),
        _structure(returned),
        tuple(
            Result(
                each.position,
                each.is_number,
                each.order if each.is_turned else None,
                each.is_half_complex,
                each.word,
            )
            for each in imported.outputs
        ),
        tuple(
            replace(each, position=leaves.index(each.position))
            for each in imported.fixed
            if each.value is not None
        ),
        parameters,
    )


def _source(described: Input, leaves: list[Any]) -> Source:
    if described.kind is InputKind.USER:
        return leaves.index(described.position)
    if described.kind is InputKind.RANDOM_KEY:
        return None
    if described.kind is InputKind.MEMORY:
        raise UnsupportedError(f"it reads memory around its argument {described.name!r}")
    return described.name


def _check_state(state: Mapping[str, torch.Tensor]) -> None:
    for name, tensor in state.items():
        if tensor.dtype is torch.complex32:
            raise UnsupportedError(f"its state {name!r} is of complex32")
    for (name, one), (other, another) in combinations(state.items(), 2):
        if one.untyped_storage()._cdata == another.untyped_storage()._cdata:
            raise UnsupportedError(f"its state {name!r} and {other!r} share memory")


def _check_fixed(each: Fixed) -> None:
    is_finite = not isinstance(each.value, float) or math.isfinite(each.value)
    if not isinstance(each.value, SIMPLE) or not is_finite:
        raise UnsupportedError(f"it was compiled for {each.name} = {each.value!r:.60}")


def _nest(spec: Any, leaves: Iterator[Any]) -> Any:
    """Arguments of these leaves, of plain classes: others may mind what they hold."""
    if spec.is_leaf():
        return next(leaves)
    kind: Any = spec.type
    if kind not in PLAIN and not (isinstance(kind, type) and issubclass(kind, dict)):
        raise UnsupportedError(f"it takes a {_class_name(kind)}, which only torch takes apart")
    children = [_nest(each, leaves) for each in spec.children()]
    if kind in (tuple, list, torch.Size):
        return children if kind is list else tuple(children)
    if kind is namedtuple:
        return spec.context._make(children)
    keys = spec.context[1] if kind is defaultdict else spec.context
    return dict(zip(keys, children, strict=True))


def _structure(spec: Any) -> Structure:
    """The nesting of results, with the leaves in torch's order."""
    if spec.is_leaf():
        return LEAF
    kind: Any = spec.type
    context = spec.context
    has_names = kind not in PLAIN and (dataclasses.is_dataclass(kind) or hasattr(kind, "n_fields"))
    if kind not in PLAIN and not has_names:
        raise UnsupportedError(f"it returns a {_class_name(kind)}, which only torch takes apart")
    children = tuple(_structure(each) for each in spec.children())
    if kind in (tuple, list, torch.Size):
        return Structure("list" if kind is list else "tuple", (), children)
    if kind in (dict, OrderedDict, defaultdict):
        return Structure("dict", tuple(context[1] if kind is defaultdict else context), children)
    if kind is namedtuple:
        return Structure("record", tuple(context._fields), children, context)
    if hasattr(kind, "n_fields"):  # torch.return_types
        return Structure("record", tuple(kind.__match_args__), children, kind)
    present = context if issubclass(kind, dict) else context[0]
    absent = [each.name for each in dataclasses.fields(kind) if each.name not in present]
    filled = (*children, *(NONE for _ in absent))
    return Structure("fields", (*present, *absent), filled, kind)


def _class_name(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
