"""Relay's text and Graphviz's, by their form: nothing on this machine runs them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.errors import UnsupportedError
from monograph.exporters.dot import to_dot
from monograph.exporters.relay import RelayModule, to_relay
from tests.ops.harness import sample_graph, samples_by_op

LINE = re.compile(r"  (%\d+) = ([a-z0-9_.]+)\((.*)\) /\* ty=(.+) \*/;")


def layer(x: Any) -> Any:
    graph = x.graph
    w = graph.add_weight("dense.weight", np.ones((3, 4), np.float32))
    return F.softmax(F.relu(F.linear(x, w)), -1)


def check_form(module: RelayModule) -> None:
    """Every value is bound before it is read, and every parameter is declared with its array."""
    version, head, *body = module.text.strip().split("\n")
    assert version == '#[version = "0.0.5"]' and body[-1] == "}"
    known = set(re.findall(r"(%\w+): Tensor\[\([\d, ?]*\), \w+\]", head))
    assert {f"%{name}" for name in module.parameters} <= known
    for line in body[:-2]:
        matched = LINE.fullmatch(line)
        assert matched is not None, line
        assert set(re.findall(r"%\w+", matched[3])) <= known, line
        known.add(matched[1])
    assert set(re.findall(r"%\w+", body[-2])) <= known


def test_a_layer_reads_as_relay_writes_it() -> None:
    graph = monograph.trace(layer, "f32[2, 4]")
    module = to_relay(graph)
    assert module.text == (
        '#[version = "0.0.5"]\n'
        "def @main(%x: Tensor[(2, 4), float32], %dense_weight: Tensor[(3, 4), float32]) "
        "-> Tensor[(2, 3), float32] {\n"
        "  %0 = nn.dense(%x, %dense_weight, units=3) /* ty=Tensor[(2, 3), float32] */;\n"
        "  %1 = nn.relu(%0) /* ty=Tensor[(2, 3), float32] */;\n"
        "  %2 = nn.softmax(%1, axis=1) /* ty=Tensor[(2, 3), float32] */;\n"
        "  %2\n}\n"
    )
    np.testing.assert_array_equal(module.parameters["dense_weight"], np.ones((3, 4)))


@pytest.mark.parametrize(
    ("ops", "least"),
    [
        pytest.param(("attention", "conv", "layer_norm", "max_pool", "take"), 20, id="some"),
        pytest.param(None, 900, id="all", marks=pytest.mark.slow),
    ],
)
def test_samples_that_relay_claims_are_well_formed(ops: Any, least: int) -> None:
    written = 0
    known = samples_by_op()
    for name in ops or known:
        for _, sample in known[name]:
            try:
                module = to_relay(sample_graph(sample))
            except UnsupportedError:
                continue
            check_form(module)
            written += 1
    assert written >= least


def test_a_running_sum_from_the_end_is_one_of_the_reversed_axis() -> None:
    module = to_relay(monograph.trace(lambda x: F.cumsum(x, -1, True, True), "f32[2, 3]"))
    check_form(module)
    calls = [line.split(" = ")[1].split(" /*")[0] for line in module.text.split("\n")[2:5]]
    assert calls == [
        "reverse(%x, axis=1)", "cumsum(%0, axis=1, exclusive=True)", "reverse(%1, axis=1)"
    ]  # fmt: skip


def test_what_relay_lacks_is_named() -> None:
    graph = monograph.trace(lambda x: F.fft(F.complex(x, x)), "f32[4]")
    with pytest.raises(UnsupportedError, match="Relay"):
        to_relay(graph)


def test_dot_has_a_node_for_each_op_and_an_edge_for_each_use() -> None:
    text = to_dot(monograph.trace(layer, "f32[2, 4]"))
    assert text.startswith("digraph") and text.count(" -> ") == 4
    assert re.findall(r'label="(\w+)", shape=box', text) == ["linear", "relu", "softmax"]
