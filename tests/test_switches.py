"""Switches: without any one of the optimisations the answer is the same, and nothing is cached."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.errors import InputError
from monograph.ir.graph import Graph, Value
from monograph.ir.interpret import interpret
from monograph.switches import SWITCHES, any_off, is_on, switch_off
from monograph.targets.cpu.plans.families import GROUP_FAMILIES, KERNEL_FAMILIES

GENERATOR = np.random.default_rng(0)
IMAGE = GENERATOR.normal(size=(1, 16, 20, 20)).astype("f4")
FILTER = GENERATOR.normal(size=(16, 16, 3, 3)).astype("f4") / 12
MATRIX = GENERATOR.normal(size=(160, 160)).astype("f4") / 12


def network(x: Value) -> Value:
    """A convolution, attention, products with a prologue, siblings and long sums."""
    graph = x.graph
    image = F.relu(F.conv(x, graph.add_weight("f", FILTER), padding=((1, 1), (1, 1))))
    each = graph.add_weight("d", FILTER[:, :1])
    image = F.conv(image, each, padding=((1, 1), (1, 1)), groups=16)
    rows = F.reshape(image, (1, 4, 160, 10))
    rows = F.attention(rows, rows, rows, causal=True)
    square = F.reshape(rows, (40, 160)) @ graph.add_weight("m", MATRIX)
    mixed = F.silu(square) @ graph.add_weight("n", MATRIX.T.copy())
    return F.softmax(mixed + F.sum(mixed, axis=-1, keepdims=True) * 0.001, axis=-1)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return monograph.trace(network, "f32[1, 16, 20, 20]")


@pytest.mark.parametrize("name", SWITCHES)
def test_the_answer_is_the_same_without_it(name: str, graph: Graph) -> None:
    expected = interpret(graph, [IMAGE])[0]
    with switch_off(name):
        assert not is_on(name)
        found = monograph.compile(graph)(IMAGE)[0]
    assert is_on(name)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_the_switches_that_matter_here_change_the_program(graph: Graph) -> None:
    def notes() -> list[str]:
        executable = compile_graph(graph, Options(cache=False))
        return [f"{each.kind} {each.how}" for each in executable.report.kernels]

    usual = notes()
    for name in ("tiled_products", "winograd", "depthwise_convolutions", "streaming_attention"):
        with switch_off(name):
            assert notes() != usual, name


def test_every_family_but_the_last_can_be_switched_off() -> None:
    families = (*GROUP_FAMILIES, *KERNEL_FAMILIES)
    assert [each.name for each in families if each.switch is None] == ["loops"]
    assert {each.switch for each in families[:-1]} <= set(SWITCHES)


@pytest.mark.parametrize(
    ("name", "function", "shapes"),
    [
        ("patch_convolutions", partial(F.conv, stride=(4, 4)), [(1, 3, 32, 32), (32, 3, 4, 4)]),
        ("window_convolutions", partial(F.conv, stride=(2, 2)), [(1, 3, 37, 37), (32, 3, 6, 6)]),
        (
            "transposed_operands",
            lambda x, y: F.max(F.unsqueeze(x, 1) + F.unsqueeze(y, 0), axis=-1),
            [(40, 64), (48, 64)],
        ),
    ],
)
def test_without_a_family_others_compute_the_same(
    name: str, function: Callable[..., Value], shapes: list[tuple[int, ...]]
) -> None:
    arrays = [GENERATOR.normal(size=shape).astype("f4") for shape in shapes]
    graph = monograph.trace(function, *(f"f32{list(shape)}" for shape in shapes))
    expected = interpret(graph, arrays)[0]
    with switch_off(name):
        found = compile_graph(graph, Options(cache=False)).run(arrays)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_nothing_is_reused_in_an_arena_without_reuse(graph: Graph) -> None:
    from monograph.program.arena import Request, plan

    requests = [Request("a", 64, 0, 1), Request("b", 64, 1, 2), Request("c", 64, 2, 3)]
    assert plan(requests).peak < 192
    with switch_off("arena_reuse"):
        assert plan(requests).peak == 192


def test_what_is_compiled_without_something_stays_out_of_the_cache() -> None:
    assert Options(cache=True).may_cache
    with switch_off("in_place"):
        assert any_off()
        assert not Options(cache=True).may_cache


def test_a_switch_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(InputError, match="no switch"), switch_off("quantum"):
        pass
