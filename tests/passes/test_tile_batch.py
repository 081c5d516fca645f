"""Batches that are visited image by image mean the same, and only where images do not mix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from monograph.passes.tile_batch import TileBatch

Array = np.ndarray[Any, Any]
IMAGE = (4, 3, 12, 12)


def draw(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32) * 0.5


def layers(x: Any, count: int = 10, channels: int = 3) -> Any:
    for _ in range(count):
        x = F.relu(F.conv(x, draw(channels, channels, 3, 3), padding=1))
    return x


def visited(net: Callable[..., Any], *shapes: Any, **options: Any) -> tuple[Graph, Graph]:
    types = [f"f32[{', '.join(map(str, shape))}]" for shape in shapes]
    graph = monograph.trace(net, *types)
    changed = graph.clone()
    TileBatch(**{"near": 64, **options}).run(changed)
    return graph, changed


def names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def test_the_results_are_the_same() -> None:
    def net(x: Any, scale: Any) -> Any:
        first = layers(x)
        joined = F.concat([first, F.max_pool(x, 3, stride=1, padding=1)], axis=1)
        small = F.avg_pool(joined * scale, 2, stride=1)
        late = layers(small, channels=6)
        return F.mean(late, (2, 3)), F.transpose(late, (0, 2, 3, 1))

    graph, changed = visited(net, IMAGE, (4, 6, 1, 1))
    assert "scan" in names(changed) and "conv" not in names(changed)
    inputs = [draw(*IMAGE), draw(4, 6, 1, 1)]
    for got, want in zip(interpret(changed, inputs), interpret(graph, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_a_weight_with_as_many_rows_as_there_are_images_is_read_whole() -> None:
    def net(x: Any, w: Any, table: Any) -> Any:
        return layers(F.conv(x, w), channels=4) + table

    shapes = (IMAGE, (4, 3, 1, 1), (4, 1, 1))
    graph, changed = visited(net, *shapes)
    assert "scan" in names(changed)
    inputs = [draw(*shape) for shape in shapes]
    (got,), (want,) = interpret(changed, inputs), interpret(graph, inputs)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_a_constant_for_every_image_is_taken_apart() -> None:
    table = draw(4, 1, 1, 1)
    graph, changed = visited(lambda x: layers(layers(x) * table), IMAGE)
    assert "scan" in names(changed)
    (got,), (want,) = interpret(changed, [draw(*IMAGE)]), interpret(graph, [draw(*IMAGE)])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "mixing",
    [
        lambda x: F.flip(x, (0,)),
        lambda x: x - F.mean(x, (0,), keepdims=True),
        lambda x: F.transpose(x, (1, 0, 2, 3)),
        lambda x: F.concat([x, x], axis=0),
        lambda x: F.reshape(x, (2, 6, 12, 12)),
    ],
    ids=["flip", "mean", "transpose", "concat", "reshape"],
)
def test_what_mixes_images_is_left_out(mixing: Callable[[Any], Any]) -> None:
    graph, changed = visited(lambda x: mixing(layers(x)), IMAGE)
    (loop,) = [node for node in changed.nodes if node.op.name == "scan"]
    inside = {node.op.name for node in loop.regions[0].nodes}
    assert inside == {"constant", "conv", "relu"}
    (got,), (want,) = interpret(changed, [draw(*IMAGE)]), interpret(graph, [draw(*IMAGE)])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_layers_with_more_weights_than_image_keep_the_batch() -> None:
    _, changed = visited(lambda x: layers(x, channels=64), (4, 64, 4, 4))
    assert "scan" not in names(changed)


def test_values_that_others_read_keep_the_batch() -> None:
    def net(x: Any) -> Any:
        found = [x]
        for _ in range(4):
            found.append(F.conv(found[-1], draw(3, 3, 3, 3), padding=1))
        return tuple(found[1:])

    assert "scan" not in names(visited(net, IMAGE)[1])


def test_few_images_and_small_batches_stay_as_they_are() -> None:
    assert "scan" not in names(visited(layers, IMAGE, processors=8)[1])
    assert "scan" not in names(visited(layers, (1, 3, 12, 12))[1])
    assert "scan" not in names(visited(layers, IMAGE, near=1 << 20)[1])


def test_a_batch_of_any_size_is_visited_by_kernels_of_one_image() -> None:
    graph, changed = visited(layers, ("batch", 3, 12, 12))
    (loop,) = [node for node in changed.nodes if node.op.name == "scan"]
    assert loop.regions[0].inputs[0].shape == (1, 3, 12, 12)
    for count in (1, 3):
        inputs = [draw(count, 3, 12, 12)]
        (got,), (want,) = interpret(changed, inputs), interpret(graph, inputs)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
