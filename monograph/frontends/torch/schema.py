"""What torch's schemas say of an op: which arguments it overwrites, what its functional form is."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

_RUNNING = ("running_mean", "running_var")

_IMPLICIT = {
    "aten.batch_norm.default": ("training", _RUNNING),
    "aten.native_batch_norm.default": ("training", _RUNNING),
    "aten.instance_norm.default": ("use_input_stats", _RUNNING),
    "aten._batch_norm_impl_index.default": ("training", _RUNNING),
}
"""Ops that overwrite arguments without saying so in their schema, if the flag is set."""

_RENAMED = {
    "aten._native_batch_norm_legit.default": "aten._native_batch_norm_legit_functional.default",
    "aten._batch_norm_with_update.default": "aten._batch_norm_with_update_functional.default",
    "aten.normal_.default": "aten.normal_functional.default",
    "aten.rrelu_with_noise.default": "aten.rrelu_with_noise_functional.default",
    "aten.dropout_.default": "aten.dropout.default",
    "aten.feature_dropout_.default": "aten.feature_dropout.default",
    "aten.alpha_dropout_.default": "aten.alpha_dropout.default",
    "aten.feature_alpha_dropout_.default": "aten.feature_alpha_dropout.default",
}
"""Functional forms that go by another name, or whose arguments do."""


@cache
def find_mutated_arguments(op: Any) -> tuple[str, ...]:
    """The names of the arguments that an op's schema says it overwrites."""
    return tuple(
        argument.name
        for argument in op._schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def implicit_arguments(node: Any) -> tuple[str, ...]:
    """The arguments that a call overwrites though its schema does not say so."""
    found = _IMPLICIT.get(str(node.target))
    if found is None:
        return ()
    flag, names = found
    bound = bind(node, node.target._schema)
    return tuple(name for name in names if bound[flag] is True and bound[name] is not None)


def bind(node: Any, schema: Any) -> dict[str, Any]:
    """A node's arguments by the names of a schema, defaults included."""
    bound: dict[str, Any] = {}
    for position, parameter in enumerate(schema.arguments):
        if position < len(node.args) and not parameter.kwarg_only:
            bound[parameter.name] = node.args[position]
        elif parameter.name in node.kwargs:
            bound[parameter.name] = node.kwargs[parameter.name]
        else:
            bound[parameter.name] = parameter.default_value
    return bound


def overload_named(name: str) -> Any:
    """``"aten.add.Tensor"`` as torch's own object."""
    namespace, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


@cache
def functional_form(op: Any) -> Any | None:
    """The op that returns what this one writes: ``add.Tensor`` for ``add_.Tensor``; or None."""
    if str(op) in _RENAMED:
        return overload_named(_RENAMED[str(op)])
    namespace, name = op.namespace, op._schema.name.split("::")[1]
    wanted = _signature(op)
    for candidate in dict.fromkeys((name.removesuffix("_"), name)):
        packet = getattr(getattr(torch.ops, namespace), candidate, None)
        for overload in packet.overloads() if packet is not None else ():
            form = getattr(packet, overload)
            if not form._schema.is_mutable and _signature(form) == wanted:
                return form
    return None


def _signature(op: Any) -> tuple[tuple[str, str], ...]:
    """Names and types of an op's arguments, those that only receive a result left out."""
    return tuple(
        (argument.name, str(argument.type))
        for argument in op._schema.arguments
        if not argument.is_out
    )
