"""Equalization: moves range from channels that are hard to store to those that are easy.

*Cross-layer*: of two layers with nothing or a relu between them, a channel of the first may be
divided by a number by which the second multiplies. Both ranges of each channel become equal.

*Smoothing*: a norm before linear layers divides each channel, and the layers' weights multiply, so
that activations with a few large channels, as transformers have, lose less. How far is ``alpha``:
0 leaves the activations as they are, 1 makes all of their channels alike.

Results stay the same up to rounding.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from monograph.errors import InputError
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.types import Array
from monograph.ops.conv import Conv
from monograph.ops.linalg import Linear
from monograph.ops.norm import LayerNorm, RmsNorm
from monograph.ops.rectifier import Relu
from monograph.passes.dce import DeadCodeElimination
from monograph.quantization.profile import Profile
from monograph.quantization.roles import Role, is_known, role_of, weight_of
from monograph.quantization.weights import column, contents

LARGEST_FACTOR = 1e4
"""Channels are moved by at most this much, either way."""


def equalize(graph: Graph) -> int:
    """Equalize pairs of layers in place; how many."""
    pairs = [
        (first, second)
        for first in graph.nodes
        if _is_plain(first)
        for second in [_follower(first)]
        if second is not None
    ]
    for first, second in pairs:
        before, after = contents(first.operands[1]), contents(second.operands[1])
        outgoing = np.abs(before.reshape(before.shape[0], -1)).max(1)
        incoming = np.abs(np.moveaxis(after, 1, 0).reshape(after.shape[1], -1)).max(1)
        both = (outgoing > 0) & (incoming > 0)
        ratio = outgoing.astype(np.float64) / np.where(both, incoming, 1.0)
        factors = _clamp_factors(np.sqrt(np.where(both, ratio, 1.0)))
        _scale(first, 1, 0, 1 / factors)
        if len(first.operands) == 3:
            _scale(first, 2, 0, 1 / factors)
        _scale(second, 1, 1, factors)
    DeadCodeElimination().run(graph)
    return len(pairs)


def smoothing_factors(graph: Graph, profile: Profile, alpha: float) -> dict[str, Array]:
    """By which to divide each channel of what norms give to linear layers, by the norm's name."""
    if not 0.0 <= alpha <= 1.0:
        raise InputError("smoothing is a share", expected="0 to 1", found=repr(alpha))
    found = {}
    for norm in graph.nodes:
        layers = _find_layers_to_smooth(norm)
        if not layers:
            continue
        name = norm.result.name
        channels = profile.activations[name].channels
        assert channels is not None  # the profile was taken by channel for this
        seen = np.maximum(np.abs(channels.low), np.abs(channels.high))
        weights = np.max([np.abs(contents(layer.operands[1])).max(0) for layer in layers], 0)
        both = (seen > 0) & (weights > 0)
        powers = np.where(both, seen, 1.0) ** alpha / np.where(both, weights, 1.0) ** (1 - alpha)
        # Only the differences between channels matter; the smallest stays as it is.
        found[name] = _clamp_factors(np.maximum(powers / powers.min(initial=np.inf), 1.0))
    return found


def apply_smoothing(graph: Graph, factors: Mapping[str, Array]) -> None:
    """Divide what norms give by these factors, and multiply the weights that read it."""
    norms = {node.result.name: node for node in graph.nodes if _find_layers_to_smooth(node)}
    for name, each in factors.items():
        norm = norms.get(name)
        if norm is None or each.shape != (norm.result.shape[-1],) or not (each > 0).all():
            raise InputError(
                f"the profile's smoothing of %{name} does not fit this model",
                expected="a positive factor for each channel of a norm before linear layers",
            )
        for layer in _find_layers_to_smooth(norm):
            _scale(layer, 1, 1, each)
        for position in range(1, len(norm.operands)):
            _scale(norm, position, 0, 1 / each)
    DeadCodeElimination().run(graph)


def _is_plain(node: Node) -> bool:
    """Whether a layer has a weight and, if any, a bias that are known, and one group."""
    if role_of(node) is not Role.CONTRACTION or not isinstance(node.op, Conv | Linear):
        return False
    if isinstance(node.op, Conv) and node.op.groups != 1:
        return False
    return weight_of(node) is not None and all(map(is_known, node.operands[1:]))


def _follower(first: Node) -> Node | None:
    """The layer that alone reads a layer's result, perhaps after a relu, along its channels."""
    value: Value = first.result
    if len(value.uses) == 1 and isinstance(value.users[0].op, Relu):
        value = value.users[0].result
    if len(value.uses) != 1 or value.uses[0].position != 0:
        return None
    second = value.users[0]
    if second is first.graph.output_node or not _is_plain(second):
        return None
    return second if type(second.op) is type(first.op) else None


def _find_layers_to_smooth(norm: Node) -> list[Node]:
    """The linear layers that read a norm, if nobody else does and its parameters are known."""
    if not isinstance(norm.op, LayerNorm | RmsNorm) or len(norm.operands) < 2:
        return []
    users = [user for user in norm.result.users if user is not norm.graph.output_node]
    if len(users) != len(norm.result.uses) or not all(map(is_known, norm.operands[1:])):
        return []
    if any(operand.rank != 1 for operand in norm.operands[1:]):
        return []
    plain = all(isinstance(user.op, Linear) and _is_plain(user) for user in users)
    return users if plain else []


def _scale(node: Node, position: int, axis: int, factors: Array) -> None:
    """Multiply a weight of a node along an axis."""
    old = node.operands[position]
    array = contents(old)
    made = (array * factors.reshape(column(array.ndim, axis))).astype(np.float32)
    with node.graph.inserting_before(node, node.location):
        name = f"{getattr(old.op, 'label', old.name)}.scaled"
        node.set_operand(position, node.graph.add_weight(name, made))


def _clamp_factors(factors: Array) -> Array:
    return np.clip(factors, 1 / LARGEST_FACTOR, LARGEST_FACTOR)
