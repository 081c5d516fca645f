"""Connectionist temporal classification: the loss over every alignment of a short target.

The states of the recursion are the target's labels with a blank before, between and after them.
``alpha[t, s]`` is the logarithm of the probability of all ways to be in state ``s`` at time ``t``.
"""

from __future__ import annotations

from typing import Any

from monograph import functional as F
from monograph.frontends.torch.node import TorchNode
from monograph.frontends.torch.registry import converter
from monograph.ir.build import constant
from monograph.ir.graph import Value, current_graph
from monograph.ir.types import i64

_NEVER = float("-inf")


@converter("aten._ctc_loss.default", "aten._ctc_loss.Tensor")
def _ctc_loss(node: TorchNode) -> tuple[Value, Value]:
    """The negative log-likelihood of each target, and alpha as [batch, time, states]."""
    emissions: Value = node["log_probs"]
    input_lengths, target_lengths = (
        _lengths(node[name]) for name in ("input_lengths", "target_lengths")
    )
    labels = _states(node, target_lengths)
    # Emissions of each state: [time, batch, states].
    time, batch, _ = emissions.shape
    places = F.expand(F.unsqueeze(labels, 0), (time, batch, labels.shape[1]))
    emitted = F.take_along_axis(emissions, places, -1)
    alpha = _forward(emitted, labels, target_lengths)
    loss = _at_the_end(alpha, input_lengths, target_lengths)
    states = node.result_type(1).shape[-1]
    by_batch = F.swapaxes(alpha, 0, 1)
    if isinstance(states, int):
        by_batch = F.slice(by_batch, [0], [states], axes=[2])
    return loss, by_batch


def _lengths(given: Any) -> Value:
    if isinstance(given, Value):
        return F.reshape(F.cast(given, i64), (-1,))
    return constant(given, i64, current_graph())


def _states(node: TorchNode, target_lengths: Value) -> Value:
    """The label of each state, [batch, 2 * longest + 1]: blanks at even places."""
    targets: Value = node["targets"]
    (batch,) = target_lengths.shape
    longest = targets.shape[-1]
    if targets.rank == 1:  # all targets, one after the other
        starts = F.cumsum(target_lengths, 0) - target_lengths
        places = F.unsqueeze(starts, 1) + F.arange(longest, dtype=i64)
        targets = F.take(targets, F.minimum(places, node.value(longest - 1)), axis=0)
    targets = F.cast(targets, i64)
    blanks = F.full((batch, longest), int(node["blank"]), i64)
    pairs = F.reshape(F.stack([blanks, targets], 2), (batch, 2 * longest))
    return F.concat([pairs, F.full((batch, 1), int(node["blank"]), i64)], 1)


def _forward(emitted: Value, labels: Value, target_lengths: Value) -> Value:
    """alpha of every time, [time, batch, states]."""
    state = F.iota(labels.shape, 1)
    exists = F.less(state, F.unsqueeze(2 * target_lengths + 1, 1))
    # A state may be reached from two before it, unless that skips a blank between equal labels.
    differs = F.not_equal(labels, F.roll(labels, 2, 1))
    skips = F.logical_and(F.greater(state, 1), differs)

    def step(before: Value, emission: Value) -> tuple[Value, Value]:
        ways = [before, _shift_states(before, 1), F.where(skips, _shift_states(before, 2), _NEVER)]
        now = F.where(exists, _log_of_sum(ways) + emission, _NEVER)
        return now, now

    # Before the first step all probability is left of state 0, from where it reaches 0 and 1.
    first = F.take(emitted, 0, axis=0)
    start = F.where(F.logical_and(F.less(state, 2), exists), first, _NEVER)
    rest = F.slice(emitted, [1], [emitted.shape[0]], axes=[0])
    _, later = F.scan(step, start, rest)
    return F.concat([F.unsqueeze(start, 0), later], 0)


def _shift_states(alpha: Value, by: int) -> Value:
    """Each state's value from ``by`` states before it; nothing before the first."""
    kept = F.slice(alpha, [0], [alpha.shape[1] - by], axes=[1])
    return F.pad(kept, [0, by], [0, 0], _NEVER)


def _log_of_sum(ways: list[Value]) -> Value:
    """The logarithm of the sum of exponentials; where all are impossible, so is the sum."""
    largest = ways[0]
    for way in ways[1:]:
        largest = F.maximum(largest, way)
    level = F.where(F.equal(largest, _NEVER), 0.0, largest)
    total = F.exp(ways[0] - level)
    for way in ways[1:]:
        total = total + F.exp(way - level)
    return F.log(total) + level


def _at_the_end(alpha: Value, input_lengths: Value, target_lengths: Value) -> Value:
    """The loss: being in the last label or the blank after it when the input has ended."""
    _, batch, states = alpha.shape
    last = F.reshape(F.maximum(input_lengths - 1, 0), (1, batch, 1))
    final = F.squeeze(F.take_along_axis(alpha, F.expand(last, (1, batch, states)), 0), (0,))
    ends = F.unsqueeze(2 * target_lengths, 1)
    after = F.squeeze(F.take_along_axis(final, ends, 1), (1,))
    label = F.squeeze(F.take_along_axis(final, F.maximum(ends - 1, 0), 1), (1,))
    no_label = F.equal(target_lengths, 0)
    loss = F.negate(F.where(no_label, after, _log_of_sum([after, label])))
    without_input = F.where(no_label, 0.0, float("inf"))
    return F.where(F.equal(input_lengths, 0), without_input, loss)
