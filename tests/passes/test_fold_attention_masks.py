"""Masks that are known when a program is compiled are left out, or make an attention causal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.ir.graph import Graph, Node
from monograph.ir.interpret import interpret
from monograph.passes.fold_attention_masks import FoldAttentionMasks

SHAPES = ("f32[2, 3, 5, 4]", "f32[2, 3, 5, 4]", "f32[2, 3, 5, 4]")
TRIANGLE = np.tri(5, dtype=np.bool_)


def attention_of(graph: Graph) -> Node:
    (found,) = (node for node in graph.nodes if node.op.name == "attention")
    return found


def settled(mask: Callable[..., Any], *more: str, shapes: tuple[str, ...] = SHAPES) -> Node:
    """The attention after the pass, which must not change the result."""

    def program(q: Any, k: Any, v: Any, *rest: Any) -> Any:
        return F.attention(q, k, v, mask(q, *rest))

    graph = monograph.trace(program, *shapes, *more)
    generator = np.random.default_rng(0)
    sizes = {"s": 5}
    inputs: list[Any] = []
    for value in graph.inputs:
        shape = [sizes.get(str(dim), dim) for dim in value.shape]
        drawn = generator.normal(size=shape)
        inputs.append(drawn > -0.8 if value.dtype.name == "bool" else drawn.astype(np.float32))
    before = interpret(graph, inputs)
    FoldAttentionMasks().run(graph)
    np.testing.assert_allclose(interpret(graph, inputs)[0], before[0], rtol=1e-6, atol=1e-7)
    return attention_of(graph)


def positions(axis: int, length: Any = 5) -> Any:
    shape = [1, 1, 1, 1]
    shape[axis] = length
    return F.reshape(F.iota((length,)), tuple(shape))


def weight(q: Any, array: Any) -> Any:
    return q.graph.add_weight("mask", np.asarray(array))


NOTHING: dict[str, Callable[..., Any]] = {
    "ones": lambda q: np.ones((5, 5), np.bool_),
    "zeros": lambda q: np.zeros((1, 1, 5, 5), np.float32),
    "weight": lambda q: weight(q, np.zeros((1, 1, 5, 5), np.float32)),
    "positions": lambda q: F.expand(F.less_equal(0, positions(3)), (2, 1, 5, 5)),
    "computed": lambda q: F.equal(F.cumsum(F.full((5, 5), 0), 0), 0),
}
CAUSAL: dict[str, Callable[..., Any]] = {
    "bools": lambda q: TRIANGLE,
    "floats": lambda q: np.where(TRIANGLE, 0, -np.inf).astype(np.float32),
    "lowest": lambda q: weight(q, np.where(TRIANGLE, 0, -3e38).astype(np.float32)),
    "positions": lambda q: F.less_equal(positions(3), positions(2)),
    "turned": lambda q: F.greater_equal(positions(2), positions(3)),
    "and": lambda q: F.less_equal(positions(3), positions(2)) & np.ones((5, 5), np.bool_),
}


@pytest.mark.parametrize("name", NOTHING)
def test_a_mask_that_hides_nothing_is_left_out(name: str) -> None:
    node = settled(NOTHING[name])
    assert len(node.operands) == 3
    assert not node.op.attributes()["causal"]


@pytest.mark.parametrize("name", CAUSAL)
def test_a_mask_of_all_that_comes_later_is_causal(name: str) -> None:
    node = settled(CAUSAL[name])
    assert len(node.operands) == 3
    assert node.op.attributes()["causal"]


def test_positions_are_compared_whatever_the_length() -> None:
    shapes = ("f32[2, 3, s, 4]",) * 3

    def later(q: Any) -> Any:
        length = q.shape[2]
        every = F.less_equal(0, positions(3, length))
        return F.less_equal(positions(3, length), positions(2, length)) & every

    node = settled(later, shapes=shapes)
    assert len(node.operands) == 3
    assert node.op.attributes()["causal"]


def test_what_is_not_known_stays_beside_what_is() -> None:
    node = settled(lambda q, m: F.less_equal(positions(3), positions(2)) & m, "bool[2, 1, 1, 5]")
    assert node.op.attributes()["causal"]
    assert node.operands[3].name == "arg3"


def test_a_known_mask_that_hides_more_stays_and_is_causal_too() -> None:
    banded = TRIANGLE & ~np.tri(5, k=-2, dtype=np.bool_)
    node = settled(lambda q: banded)
    assert node.op.attributes()["causal"]
    assert len(node.operands) == 4


@pytest.mark.parametrize(
    "mask",
    [
        ~TRIANGLE | np.eye(5, dtype=np.bool_),
        np.where(TRIANGLE, 0, -5).astype(np.float32),
        np.ones((5, 5), np.float32),
    ],
)
def test_other_masks_stay_as_they_are(mask: Any) -> None:
    node = settled(lambda q: mask)
    assert len(node.operands) == 4
    assert not node.op.attributes()["causal"]


def test_a_mask_that_is_given_stays_as_it_is() -> None:
    assert len(settled(lambda q, m: m, "bool[5, 5]").operands) == 4
