"""Each layer alone, and mixed precision under a budget."""

from __future__ import annotations

import json

import numpy as np
import pytest

import monograph
from monograph.errors import InputError
from monograph.quantization.distribution import summarize_activation
from monograph.quantization.scheme import Scheme
from tests.quantization.models import batches, perceptron, profile_of, relative_error


def test_every_layer_is_measured_alone() -> None:
    graph = perceptron()
    report = monograph.quantize.sensitivity(graph, profile_of(perceptron), batches(graph, 2))
    assert len(report.layers) == 3 and report.float_seconds > 0
    assert all(0 < each.error < 0.1 and each.seconds > 0 for each in report.layers)
    # Independent errors add up as squares: all layers lose more than any, and less than the sum.
    alone = [each.error for each in report.layers]
    assert max(alone) * 0.7 < report.quantized_error < sum(alone) * 1.3
    assert json.loads(report.dumps())["layers"][0]["name"] == report.layers[0].name
    assert str(report).splitlines()[-1].startswith("none")


def test_histograms_show_what_each_layer_multiplies() -> None:
    graph, taken = perceptron(), profile_of(perceptron)
    report = monograph.quantize.sensitivity(graph, taken, batches(graph, 2))
    first = report.layers[0]
    given, weights = first.distributions
    seen = taken.activations[graph.inputs[0].name]
    assert (given.kind, weights.kind) == ("activation", "weight")
    assert sum(given.counts) == seen.count and sum(weights.counts) == 32 * 16
    assert (given.low, given.high) == (seen.low, seen.high)
    step = (seen.high - seen.low) / 255
    assert abs(given.stored_low - seen.low) < step and abs(given.stored_high - seen.high) < step
    cut = summarize_activation("x", seen, Scheme("u8", calibration="percentile", percentile=90))
    assert "stored" in cut.text() and "stored" not in given.text()
    lines = str(report).splitlines()
    assert sum("▕" in line for line in lines) == 6 and any("█" in line for line in lines)
    _, made = monograph.quantize.mixed(graph, taken, batches(graph, 2), max_error=1e-6)
    page = report.to_html(made)
    assert page.count("<tr>") == 4 and page.count('role="img"') == 6
    assert "stored" in page and "more than the budget" in page and "http" not in page


def test_weights_alone_and_constant_activations_are_drawn() -> None:
    graph = perceptron()
    zeros = [np.zeros((4, 16), np.float32)]
    report = monograph.quantize.sensitivity(graph, None, zeros, "w4")
    assert [len(each.distributions) for each in report.layers] == [1, 1, 1]
    taken = monograph.quantize.profile(graph, zeros)
    constant = monograph.quantize.sensitivity(graph, taken, zeros).layers[0].distributions[0]
    assert constant.low < 0 < constant.high and max(constant.counts) == 64


def test_the_error_stays_within_its_budget() -> None:
    graph, given = perceptron(), batches(perceptron(), 2)
    taken = profile_of(perceptron)
    report = monograph.quantize.sensitivity(graph, taken, given)
    budget = sorted(each.error for each in report.layers)[1]
    mixed, described = monograph.quantize.mixed(graph, taken, given, max_error=budget)
    expected = np.concatenate([monograph.interpret(graph, [x])[0] for x in given])
    got = np.concatenate([monograph.interpret(mixed, [x])[0] for x in given])
    assert relative_error(got, expected) <= budget * 1.02
    kept = [layer for layer in described.layers if layer.precision == "float"]
    assert kept and all("budget" in layer.reason for layer in kept)
    assert described.quantized


def test_an_impossible_budget_is_named() -> None:
    graph, taken = perceptron(), profile_of(perceptron)
    with pytest.raises(InputError, match="not reached"):
        monograph.quantize.mixed(graph, taken, batches(graph, 1), speedup=1e6)
    with pytest.raises(InputError, match="an error or a speed"):
        monograph.quantize.mixed(graph, taken, batches(graph, 1))
    for budget in (-1.0, 0.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="more than 0"):
            monograph.quantize.mixed(graph, taken, batches(graph, 1), max_error=budget)
    with pytest.raises(InputError, match="no batches"):
        monograph.quantize.sensitivity(graph, taken, [])
    with pytest.raises(InputError, match="one after the other"):
        monograph.quantize.sensitivity(graph, taken, 3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="wrong rank"):
        monograph.quantize.sensitivity(graph, taken, batches(graph, 1)[0])
