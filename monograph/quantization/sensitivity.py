"""Sensitivity: the error and the speed-up of quantizing each layer alone.

A layer's error is measured on real batches: the model with that layer quantized against the float
model, ‖got − expected‖ / ‖expected‖ over all outputs. Mixed precision starts from the model with
every layer quantized, and gives layers back to float, the most sensitive first, until the error is
within a budget; or quantizes layers, the least sensitive first, until a speed is reached.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from monograph.api import compile
from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.ir.float_error import relative_norm_error
from monograph.ir.graph import Graph, Node
from monograph.ir.types import Array
from monograph.progress import announce
from monograph.quantization.convert import convert, layer_name
from monograph.quantization.distribution import (
    Distribution,
    summarize_activation,
    summarize_weight,
)
from monograph.quantization.profile import Profile
from monograph.quantization.profiling import batch_arrays, check_batches
from monograph.quantization.report import QuantizationReport
from monograph.quantization.roles import Role, role_of, weight_of
from monograph.quantization.scheme import Scheme
from monograph.quantization.sensitivity_page import write_page
from monograph.quantization.weight_only import quantize_weights
from monograph.quantization.weights import contents

TIMED_CALLS = 7
"""Calls of which the quickest counts."""


@dataclass(frozen=True)
class LayerSensitivity:
    """What one layer does to the model's results and time when it alone is quantized."""

    name: str
    op: str
    error: float
    seconds: float
    reason: str = ""
    """Why it was left in float, where it had to be."""
    distributions: tuple[Distribution, ...] = ()
    """What it multiplies: activations as they were profiled, and the weight."""


@dataclass(frozen=True)
class SensitivityReport:
    """Every layer, and the float and the wholly quantized model beside them."""

    layers: tuple[LayerSensitivity, ...]
    float_seconds: float
    quantized_error: float
    quantized_seconds: float

    def to_json(self) -> dict[str, Any]:
        """For a program to read."""
        return {
            "float_seconds": self.float_seconds,
            "quantized_error": self.quantized_error,
            "quantized_seconds": self.quantized_seconds,
            "layers": [
                {
                    "name": each.name,
                    "op": each.op,
                    "error": each.error,
                    "seconds": each.seconds,
                    "reason": each.reason,
                    "distributions": [drawn.to_json() for drawn in each.distributions],
                }
                for each in self.layers
            ],
        }

    def dumps(self) -> str:
        """``to_json`` as text."""
        return json.dumps(self.to_json(), indent=2)

    def to_html(self, made: QuantizationReport | None = None) -> str:
        """A page with histograms; with the report of a model, also which layers are float, why."""
        return write_page(self, made)

    def __str__(self) -> str:
        width = max((len(each.name) for each in self.layers), default=5)
        lines = [f"{'layer':<{width}}  {'error':>10}  {'ms':>8}"]
        for each in sorted(self.layers, key=lambda layer: -layer.error):
            figures = f"{each.error:>10.2e}  {each.seconds * 1e3:>8.3f}"
            lines.append(f"{each.name:<{width}}  {figures}  {each.reason}".rstrip())
            lines += [f"  {drawn.kind:<10} {drawn.text()}" for drawn in each.distributions]
        whole = f"{self.quantized_error:>10.2e}  {self.quantized_seconds * 1e3:>8.3f}"
        lines.append(f"{'all':<{width}}  {whole}")
        lines.append(f"{'none':<{width}}  {0.0:>10.2e}  {self.float_seconds * 1e3:>8.3f}")
        return "\n".join(lines)


class Trial:
    """Quantizes parts of one prepared graph and measures each against float."""

    def __init__(
        self, graph: Graph, profile: Profile | None, scheme: Scheme, batches: Iterable[Any]
    ) -> None:
        check_batches(batches)
        self.graph, self.profile, self.scheme = graph, profile, scheme
        names = [value.name for value in graph.inputs]
        self.inputs = [batch_arrays(batch, names, k) for k, batch in enumerate(batches)]
        if not self.inputs:
            raise InputError("there are no batches to measure with", expected="one or more")
        run: Any = compile(graph)
        self.expected = [run.run(dict(batch)) for batch in self.inputs]
        self.float_seconds = self._time(run)

    @property
    def layers(self) -> list[Node]:
        """The contractions of the graph."""
        return [node for node in self.graph.nodes if role_of(node) is Role.CONTRACTION]

    def quantize(self, chosen: Callable[[str], bool]) -> tuple[Graph, QuantizationReport]:
        """The graph with these layers quantized."""
        copy = self.graph.clone()
        if self.scheme.weight_only:
            return copy, quantize_weights(copy, self.scheme, lambda n: chosen(layer_name(n)))
        assert self.profile is not None
        report = convert(copy, self.profile, self.scheme, lambda n: chosen(layer_name(n)))
        return copy, report

    def measure(self, chosen: Callable[[str], bool]) -> tuple[float, float, QuantizationReport]:
        """The error and the time of the graph with these layers quantized."""
        made, report = self.quantize(chosen)
        run: Any = compile(made)
        error = relative_error([run.run(dict(batch)) for batch in self.inputs], self.expected)
        return error, self._time(run), report

    def distributions(self, node: Node) -> Iterator[Distribution]:
        """What a layer multiplies, as far as this scheme quantizes it."""
        weight = weight_of(node)
        for operand in dict.fromkeys(node.operands[:2]):
            if operand is weight:
                yield summarize_weight(weight.name, contents(weight))
            elif self.profile is not None and operand.name in self.profile.activations:
                seen = self.profile.activations[operand.name]
                yield summarize_activation(operand.name, seen, self.scheme)

    def _time(self, run: Any) -> float:
        batch = self.inputs[0]
        taken = []
        for _ in range(TIMED_CALLS):
            start = time.perf_counter()
            run.run(dict(batch))
            taken.append(time.perf_counter() - start)
        return min(taken)


def relative_error(got: Sequence[Sequence[Array]], expected: Sequence[Sequence[Array]]) -> float:
    """‖got − expected‖ / ‖expected‖ over the float outputs of all batches."""
    pairs = [
        (a.reshape(-1), b.reshape(-1))
        for ours, theirs in zip(got, expected, strict=True)
        for a, b in zip(ours, theirs, strict=True)
        if np.issubdtype(b.dtype, np.floating)
    ]
    if not pairs:
        return 0.0
    found, exact = (np.concatenate(arrays) for arrays in zip(*pairs, strict=True))
    return relative_norm_error(found, exact)


def measure_layers(trial: Trial) -> SensitivityReport:
    """Quantize every layer alone, and all of them."""
    found = []
    layers = trial.layers
    for number, node in enumerate(layers):
        name = layer_name(node)
        announce("quantizing layers alone", number, len(layers))
        error, seconds, report = trial.measure(lambda each, name=name: each == name)  # type: ignore[misc]
        (own,) = (layer for layer in report.layers if layer.name == name)
        drawn = tuple(trial.distributions(node))
        found.append(LayerSensitivity(name, node.op.name, error, seconds, own.reason, drawn))
    error, seconds, _ = trial.measure(lambda _: True)
    return SensitivityReport(tuple(found), trial.float_seconds, error, seconds)


def choose_layers(
    trial: Trial, report: SensitivityReport, most_error: float | None, speedup: float | None
) -> tuple[Graph, QuantizationReport]:
    """A mixed model: within an error, with as many layers quantized as that allows; or as fast as
    asked, with as few of them.
    """
    if (most_error is None) == (speedup is None):
        raise InputError("a budget is an error or a speed", expected="max_error or speedup")
    budget = most_error if speedup is None else speedup
    if budget is None or not 0.0 < budget < math.inf:
        raise InputError("a budget is a number", expected="more than 0", found=repr(budget))
    order = sorted((each for each in report.layers if not each.reason), key=lambda e: e.error)
    names = [each.name for each in order]
    if most_error is not None:
        return _within_error(trial, names, most_error)
    assert speedup is not None
    return _fast_enough(trial, names, speedup)


def _within_error(trial: Trial, names: list[str], most: float) -> tuple[Graph, QuantizationReport]:
    """Errors of layers add up roughly as squares, so the count is found by bisection."""
    low, high = 0, len(names)
    while low < high:
        count = (low + high + 1) // 2
        kept = set(names[:count])
        error, _, _ = trial.measure(lambda each, kept=kept: each in kept)  # type: ignore[misc]
        low, high = (count, high) if error <= most else (low, count - 1)
    chosen = set(names[:low])
    graph, report = trial.quantize(lambda each: each in chosen)
    return graph, _add_reason(report, f"more than the budget of {most:g} would be lost")


def _fast_enough(
    trial: Trial, names: list[str], speedup: float
) -> tuple[Graph, QuantizationReport]:
    for count in range(1, len(names) + 1):
        kept = set(names[:count])
        _, seconds, _ = trial.measure(lambda each, kept=kept: each in kept)  # type: ignore[misc]
        if trial.float_seconds / seconds >= speedup:
            graph, report = trial.quantize(lambda each, kept=kept: each in kept)  # type: ignore[misc]
            return graph, _add_reason(report, f"{speedup:g} times float's speed is reached")
    raise InputError(
        "this speed is not reached with every layer quantized",
        expected=f"{speedup:g} times as fast as float",
        found=f"{trial.float_seconds / seconds:.2f} times" if names else "no layer to quantize",
    )


def _add_reason(report: QuantizationReport, reason: str) -> QuantizationReport:
    layers = tuple(
        replace(each, reason=reason) if each.reason == "left out" else each
        for each in report.layers
    )
    return replace(report, layers=layers)
