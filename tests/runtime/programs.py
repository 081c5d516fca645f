"""Graphs for the tests of storing programs: one for each thing that a program may hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from monograph import functional as F
from monograph.frontends.trace import trace
from monograph.ir.data import raw_bytes
from monograph.ir.graph import Graph, Value
from monograph.ir.text.parser import parse
from monograph.ir.types import Array
from monograph.targets.cpu.assemble import steps

_numbers = np.random.default_rng(7)


def floats(*shape: int) -> Array:
    """Ordinary numbers."""
    return _numbers.standard_normal(shape).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """A graph, and inputs that show what it does."""

    graph: Callable[[], Graph]
    inputs: tuple[tuple[Array, ...], ...]


def several_outputs() -> Graph:
    """A chain and a reduction of it, with one output twice."""

    def function(x: Value) -> tuple[Value, ...]:
        y = F.tanh(x * 2.0 + 1.0)
        return y, F.sum(y, -1), y

    return trace(function, "f32[6, 40]")


def symbolic() -> Graph:
    """Sizes that a call decides, in a declared range."""
    return parse(
        """
        graph @rows(%x: f32[batch, 2*n+1]) -> (f32[batch], i64[]) where 2 <= batch <= 64 {
          %y = exp(%x) : f32[batch, 2*n+1]
          %s = sum(%y) {axes = [1]} : f32[batch]
          %d = dim() {value = batch*n} : i64[]
          return %s, %d
        }
        """
    )


def looping() -> Graph:
    """A scan in reverse, a loop that data ends, and a branch."""
    return parse(
        """
        graph @control(%x: f32[5, 3], %flag: bool[]) -> (f32[3], f32[5, 3], f32[3]) {
          %z = full() {shape = [3], value = 0.0, dtype = f32} : f32[3]
          %last, %all = scan(%z, %x) {carries = 1, sequences = 1, reverse = true}
            : f32[3], f32[5, 3] {
            graph @body(%c: f32[3], %e: f32[3]) -> (f32[3], f32[3]) {
              %n = add(%c, %e) : f32[3]
              return %n, %n
            }
          }
          %done = while(%last) : f32[3] {
            graph @condition(%c: f32[3]) -> (bool[]) {
              %s = sum(%c) {axes = [0]} : f32[]
              %k = constant(100.0) : f32[]
              %t = less(%s, %k) : bool[]
              return %t
            }
            graph @body(%c: f32[3]) -> (f32[3]) {
              %a = abs(%c) : f32[3]
              %o = constant(1.0) : f32[]
              %n = add(%a, %o) : f32[3]
              return %n
            }
          }
          %chosen = if(%flag, %done) : f32[3] {
            graph @then(%c: f32[3]) -> (f32[3]) {
              %n = negate(%c) : f32[3]
              return %n
            }
            graph @otherwise(%c: f32[3]) -> (f32[3]) {
              return %c
            }
          }
          return %last, %all, %chosen
        }
        """
    )


def spread() -> Graph:
    """A scan that carries nothing: its runs are independent, and have memory of their own."""

    def one(carry: tuple[()], row: Value) -> tuple[tuple[()], Value]:
        return carry, row - F.max(F.cumsum(row, 0), 0)

    return trace(lambda x: F.scan(one, (), x)[1], "f32[5, 30]")


def side_by_side() -> Graph:
    """Two scans that do not wait for each other, each with a state that is handed on."""

    def one(state: Value, row: Value) -> tuple[Value, Value]:
        following = F.tanh(state @ np.eye(64, dtype=np.float32) + row)
        return following, following

    def both(x: Value) -> tuple[Value, Value]:
        first = F.zeros((16, 64), dtype="f32")
        return F.scan(one, first, x)[1], F.scan(one, first, F.flip(x, (0,)))[1]

    return trace(both, "f32[5, 16, 64]")


def interpreted_node() -> Graph:
    """A node in the middle that has no native code: see ``let_interpret``."""
    return trace(lambda x: F.atan(x + 1.0) * 2.0, "f32[4, 4]")


def let_interpret(patch: pytest.MonkeyPatch) -> None:
    """Take the native code of ``atan`` away; no op can be counted on to have none."""
    lowerable = steps.is_lowerable
    patch.setattr(steps, "is_lowerable", lambda node: node.op.name != "atan" and lowerable(node))


def strings() -> Graph:
    """What only the interpreter runs."""
    return parse(
        """
        graph @words(%x: string[2]) -> (string[2]) {
          %c = constant(["!", "größer"]) : string[2]
          %y = string_concat(%x, %c) : string[2]
          return %y
        }
        """
    )


def updating() -> Graph:
    """State: the second output replaces the second input."""
    graph = trace(lambda x, state: (x + state, state * 0.5 + x), "f32[7]", "f32[7]")
    graph.updates = {1: 1}
    return graph


def layered(seed: int = 0, *, channels: int = 8) -> Graph:
    """Convolution and batch norm, which fold, and a linear layer, which does not."""
    numbers = np.random.default_rng(seed)

    def weight(name: str, *shape: int) -> Value:
        array = numbers.standard_normal(shape).astype(np.float32)
        return graph.add_weight(name, np.abs(array) if name == "variance" else array)

    graph = Graph("layers")
    x = graph.add_input("x", "f32[1, 3, 9, 9]")
    with graph.as_current():
        y = F.conv(x, weight("conv", channels, 3, 3, 3))
        statistics = [weight(name, channels) for name in ("scale", "bias", "mean", "variance")]
        y = F.relu(F.batch_norm(y, *statistics))
        y = F.reshape(y, (1, channels * 49))
        graph.set_outputs([F.linear(y, weight("linear", 5, channels * 49), weight("last", 5))])
    return graph


def packed() -> Graph:
    """A product with a weight that is worth being packed ahead of all calls."""
    graph = Graph("product")
    x = graph.add_input("x", "f32[64, 256]")
    weight = graph.add_weight("w", np.random.default_rng(5).random((256, 256), np.float32))
    graph.set_outputs([x @ weight])
    return graph


CASES = {
    "several outputs": Case(several_outputs, ((floats(6, 40),), (floats(6, 40),))),
    "symbolic": Case(symbolic, ((floats(3, 5),), (floats(64, 9),), (floats(2, 3),))),
    "control flow": Case(
        looping, ((floats(5, 3), np.array(True)), (floats(5, 3), np.array(False)))
    ),
    "independent runs": Case(spread, ((floats(5, 30),),)),
    "side by side": Case(side_by_side, ((floats(5, 16, 64),),)),
    "interpreted node": Case(interpreted_node, ((floats(4, 4),),)),
    "strings": Case(strings, ((np.array(["a", "b"], np.object_),),)),
    "updates": Case(updating, ((floats(7), floats(7)),)),
    "packed": Case(packed, ((floats(64, 256),),)),
    "weights": Case(layered, ((floats(1, 3, 9, 9),),)),
}


def same(one: Sequence[Array], other: Sequence[Array]) -> bool:
    """Whether results are equal, to the bit."""
    return len(one) == len(other) and all(map(_equal, one, other))


def _equal(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and raw_bytes(a) == raw_bytes(b)
