"""``monograph.quantize``: profile, convert, and measure what quantization costs.

profile = monograph.quantize.profile(model, batches)
graph = monograph.quantize(model, profile)
compiled = monograph.compile(graph)
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any, TypeAlias

from monograph.errors import InputError
from monograph.ir.graph import Graph
from monograph.ir.types import Array
from monograph.quantization.convert import convert
from monograph.quantization.equalize import apply_smoothing, smoothing_factors
from monograph.quantization.equalize import equalize as equalize_layers
from monograph.quantization.export import export_quantized
from monograph.quantization.prepare import digest_of, prepare
from monograph.quantization.profile import Profile
from monograph.quantization.profiling import profile_graph
from monograph.quantization.report import QuantizationReport
from monograph.quantization.scheme import SCHEMES, Scheme, scheme_of
from monograph.quantization.sensitivity import (
    SensitivityReport,
    Trial,
    choose_layers,
    measure_layers,
)
from monograph.quantization.weight_only import quantize_weights

AnyProfile: TypeAlias = Profile | str | os.PathLike[str] | None
AnyScheme: TypeAlias = Scheme | str
Taken: TypeAlias = Profile


class Quantize:
    """The function ``monograph.quantize``, with what belongs to it."""

    Scheme = Scheme
    Profile = Profile
    schemes = SCHEMES
    to_onnx = staticmethod(export_quantized)

    def __call__(
        self,
        model: Any,
        profile: AnyProfile = None,
        scheme: AnyScheme = "int8",
        *,
        examples: tuple[Any, ...] = (),
    ) -> Graph:
        """A graph that computes what ``model`` does with small integers.

        ``model`` is a ``Graph``, an ONNX model (path, bytes or ``ModelProto``) or a torch module
        with ``examples``. ``profile`` is one of this model, or a file of one; schemes that store
        weights alone need none, but are smoothed or equalized as a given one was. ``scheme`` is a
        ``Scheme`` or a name of ``schemes``.
        """
        return self.with_report(model, profile, scheme, examples=examples)[0]

    def with_report(
        self,
        model: Any,
        profile: AnyProfile = None,
        scheme: AnyScheme = "int8",
        *,
        examples: tuple[Any, ...] = (),
    ) -> tuple[Graph, QuantizationReport]:
        """Like calling ``quantize``, with a report of each layer and the conversions left."""
        chosen = scheme_of(scheme)
        graph = prepare(model, examples)
        found = _profile_for(graph, profile, chosen)
        if found is None:
            return graph, quantize_weights(graph, chosen)
        return graph, convert(graph, found, chosen)

    def profile(
        self,
        model: Any,
        batches: Iterable[Any],
        *,
        per_channel: bool = False,
        equalize: bool = False,
        smoothing: float | None = None,
        examples: tuple[Any, ...] = (),
        progress: bool | None = None,
    ) -> Taken:
        """The ranges of the model's activations on these batches.

        A batch is an array (of a model with one input), a tuple of them in order, or a dict by
        input name. ``per_channel`` also keeps the range and mean of every channel. ``progress``
        shows a bar; None does so on a terminal.

        ``equalize`` moves ranges between layers that follow each other, and ``smoothing`` (0.5 is
        usual for transformers) from activations after norms to weights, before the ranges are
        taken; quantizing with the profile does the same. Smoothing runs the batches twice.

        ``examples`` are what a torch module is read with: the first batch, if there are none.
        """
        if not examples:
            batches, examples = _peek(batches)
        graph = prepare(model, examples)
        digest = digest_of(graph)
        if equalize:
            equalize_layers(graph)
        factors: dict[str, Array] = {}
        if smoothing is not None:
            batches = list(batches)
            first = profile_graph(graph, batches, by_channel=True, progress=progress)
            factors = smoothing_factors(graph, first, smoothing)
            apply_smoothing(graph, factors)
        taken = profile_graph(graph, batches, by_channel=per_channel, progress=progress)
        return replace(taken, model=digest, equalized=equalize, smoothing=factors)

    def sensitivity(
        self,
        model: Any,
        profile: AnyProfile,
        batches: Iterable[Any],
        scheme: AnyScheme = "int8",
        *,
        examples: tuple[Any, ...] = (),
    ) -> SensitivityReport:
        """The error and the time of the model with each of its layers quantized alone."""
        return measure_layers(_trial(model, profile, batches, scheme, examples))

    def mixed(
        self,
        model: Any,
        profile: AnyProfile,
        batches: Iterable[Any],
        scheme: AnyScheme = "int8",
        *,
        max_error: float | None = None,
        speedup: float | None = None,
        examples: tuple[Any, ...] = (),
    ) -> tuple[Graph, QuantizationReport]:
        """A model of mixed precision, within an error or at a speed, and a report of its layers.

        ``max_error`` bounds ‖got − float‖ / ‖float‖ on the batches: the most sensitive layers stay
        in float. ``speedup`` asks for a time: the least sensitive layers are quantized until it is
        reached.
        """
        trial = _trial(model, profile, batches, scheme, examples)
        return choose_layers(trial, measure_layers(trial), max_error, speedup)


def _peek(batches: Iterable[Any]) -> tuple[Iterable[Any], tuple[Any, ...]]:
    """The batches, none of them lost, and the first one's inputs if it has them in order."""
    if isinstance(batches, str | bytes | Mapping) or not isinstance(batches, Iterable):
        return batches, ()  # profiling says what is wrong with them
    if isinstance(batches, Sequence):
        first = list(batches[:1])
    else:
        rest = iter(batches)
        first = list(islice(rest, 1))
        batches = chain(first, rest)
    if not first or isinstance(first[0], Mapping):
        return batches, ()
    return batches, tuple(first[0]) if isinstance(first[0], tuple | list) else (first[0],)


def _trial(
    model: Any,
    profile: AnyProfile,
    batches: Iterable[Any],
    scheme: AnyScheme,
    examples: tuple[Any, ...],
) -> Trial:
    chosen = scheme_of(scheme)
    graph = prepare(model, examples)
    return Trial(graph, _profile_for(graph, profile, chosen), chosen, batches)


def _profile_for(graph: Graph, profile: AnyProfile, scheme: Scheme) -> Profile | None:
    """The profile that a scheme needs, once the graph is changed as before it was taken."""
    if profile is None and scheme.weight_only:
        return None
    found = load_profile(profile)
    check_model(graph, found)
    _equalize_as(graph, found)
    return None if scheme.weight_only else found


def _equalize_as(graph: Graph, profile: Profile) -> None:
    """Change a graph as it was before the profile was taken."""
    if profile.equalized:
        equalize_layers(graph)
    apply_smoothing(graph, profile.smoothing)


def load_profile(profile: Profile | str | os.PathLike[str] | None) -> Profile:
    """A profile, or the file of one."""
    if isinstance(profile, Profile):
        return profile
    if isinstance(profile, str | os.PathLike):
        return Profile.load(profile)
    raise InputError(
        "quantizing activations needs a profile of them",
        expected="what monograph.quantize.profile(model, batches) returns, or its file",
        found=type(profile).__name__,
    )


def check_model(graph: Graph, profile: Profile) -> None:
    """Refuse the profile of another model, or of this one with other weights."""
    digest = digest_of(graph)
    if profile.model != digest:
        raise InputError(
            "this profile is of another model",
            expected=f"model {digest}",
            found=f"model {profile.model}",
            hint="profile this model, with the weights that it has now",
        )


quantize = Quantize()
"""The public function."""
