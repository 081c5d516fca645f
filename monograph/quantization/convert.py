"""Conversion: a float graph, a profile and a scheme make a graph of small integers.

    %y = conv(%x, %w, %b)                  %q = quantize(%x, %s, %z) {dtype = u8}
    %r = relu(%y)                          %d = dequantize(%q, %s, %z)
    %p = max_pool(%r)               ─▶     %v = dequantize(%w8, %t) {axis = 0}
    return linear(%p, %v)                  %y = conv(%d, %v, %b)
                                           %r = relu(%y)
                                           %k = quantize(%r, %u, %n) {dtype = u8}
                                           %p = max_pool(%k) : u8
                                           return linear(dequantize(%p, %u, %n), …)

This is the form that quantized ONNX models have, so ONNX Runtime reads what is exported, and the
rules of ``rewrite.rules.quantized`` make products of integers of it, with a requantizing epilogue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

import numpy as np

from monograph import functional as F
from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.ir.data import ArrayData
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.types import Array, i32
from monograph.ops.conv import Conv
from monograph.ops.quant import Dequantize, Quantize
from monograph.passes.cse import CommonSubexpressionElimination
from monograph.passes.dce import DeadCodeElimination
from monograph.quantization.calibrate import Parameters, choose_range, parameters_for
from monograph.quantization.observers import observable
from monograph.quantization.placement import Placement, element_count, place
from monograph.quantization.profile import Activation, Profile
from monograph.quantization.report import LayerReport, QuantizationReport
from monograph.quantization.roles import (
    Role,
    input_channel_axis,
    output_channel_axis,
    role_of,
    weight_of,
)
from monograph.quantization.scheme import Scheme
from monograph.quantization.weights import StoredWeight, contents, restore, store_symmetric

LARGEST_SUM = (1 << 31) - 1
"""What a sum of products has to stay below, whatever the activations."""


@dataclass
class _Conversion:
    """A graph while it is converted."""

    graph: Graph
    profile: Profile
    scheme: Scheme
    placement: Placement
    weights: dict[Node, StoredWeight]
    parameters: dict[Value, Parameters] = field(default_factory=dict)
    stored: dict[Value, Value] = field(default_factory=dict)
    real: dict[Value, Value] = field(default_factory=dict)
    """The dequantized form of what is stored, once it is needed."""


def convert(
    graph: Graph,
    profile: Profile,
    scheme: Scheme,
    only: Callable[[Node], bool] = lambda _: True,
) -> QuantizationReport:
    """Quantize a prepared graph in place; ``only`` says which of its layers."""
    _check_profile(graph, profile)
    _check_names(graph, scheme.skip)
    usable = {v for v in observable(graph) if not profile.activations[v.name].infinite}
    layers = [node for node in graph.nodes if role_of(node) is Role.CONTRACTION]
    weights: dict[Node, StoredWeight] = {}
    reasons: dict[Node, str] = {}
    for node in layers:
        reason = "left out" if not only(node) else _obstacle(node, scheme, usable, weights)
        if reason:
            reasons[node] = reason
    chosen = [node for node in layers if node not in reasons]
    placement = place(
        graph,
        chosen,
        usable,
        elementwise=scheme.elementwise,
        stored_bytes=scheme.activation_dtype.bits / 8,
    )
    work = _Conversion(graph, profile, scheme, placement, weights)
    _choose_parameters(work)
    described = [_describe(node, work, reasons.get(node, "")) for node in layers]
    _rewrite(work)
    CommonSubexpressionElimination().run(graph)
    DeadCodeElimination().run(graph)
    return _report(graph, described)


def layer_name(node: Node) -> str:
    """What a layer is called in reports and in ``Scheme.skip``: the name of its result."""
    return node.result.name


def _check_profile(graph: Graph, profile: Profile) -> None:
    if not profile.activations or not profile.batches:
        raise InputError(
            "the profile is empty",
            expected="the ranges of the model's activations",
            hint="monograph.quantize.profile(model, batches) takes them",
        )
    missing = [v.name for v in observable(graph) if v.name not in profile.activations]
    if missing:
        raise InputError(
            f"the profile lacks the activation %{missing[0]}",
            found=f"{len(missing)} are missing",
            hint="profile this model again",
        )
    for value in observable(graph):
        _check_activation(value, profile.activations[value.name])


def _check_activation(value: Value, seen: Activation) -> None:
    """Refuse what was written into a profile by something else than profiling."""
    channels = seen.channels
    if channels is not None:
        is_axis = 0 <= channels.axis < value.rank
        size = value.shape[channels.axis] if is_axis else None
        if not is_axis or (isinstance(size, int) and channels.mean.shape != (size,)):
            raise InputError(
                f"the profile's channels of %{value.name} do not fit this model",
                expected=f"those of {value.type}",
                found=f"{channels.mean.size} along axis {channels.axis}",
            )


def _check_names(graph: Graph, names: tuple[str, ...]) -> None:
    known = [layer_name(n) for n in graph.nodes if role_of(n) is Role.CONTRACTION]
    for name in names:
        if name not in known:
            raise InputError(
                f"no layer is called {name!r}", expected=", ".join(known)[:400], found=name
            )


def _obstacle(
    node: Node, scheme: Scheme, usable: set[Value], weights: dict[Node, StoredWeight]
) -> str:
    """Why a layer has to stay in float; empty if it need not. Stores its weight on the way."""
    if layer_name(node) in scheme.skip:
        return "skipped, as the scheme says"
    weight = weight_of(node)
    operands = node.operands[:1] if weight is not None else node.operands[:2]
    for operand in operands:
        if operand not in usable:
            return f"%{operand.name} was infinite"
    is_integer = scheme.weight_dtype.is_integer and scheme.activation_dtype.is_integer
    small = scheme.weight_dtype.bits <= 8 and scheme.activation_dtype.bits <= 8
    if weight is None:
        depth = node.operands[0].shape[-1]
        if not isinstance(depth, int):
            return "the number of products in a sum is not known"
        if is_integer and small and depth * 255 * 255 > LARGEST_SUM:
            return f"a sum of {depth} products may overflow 32 bits"
        return ""
    axis = output_channel_axis(node) if scheme.per_channel else None
    stored = store_symmetric(contents(weight), scheme.weight_dtype, axis)
    if is_integer and small and _largest_sums(node, stored).max(initial=0) > LARGEST_SUM:
        return "its sums may overflow 32 bits"
    weights[node] = stored
    return ""


def _largest_sums(node: Node, weight: StoredWeight) -> Array:
    """What the sums of each output channel may be, whatever the activations of eight bits."""
    along = tuple(k for k in range(weight.stored.ndim) if k != output_channel_axis(node))
    sums: Array = np.abs(weight.stored, dtype=np.int16).sum(along, dtype=np.int64) * 255
    return sums


def _choose_parameters(work: _Conversion) -> None:
    """One scale and zero point for each group of activations that share them."""
    ranges: dict[Value, tuple[float, float]] = {}
    for value, first in work.placement.groups.items():
        low, high = choose_range(work.profile.activations[value.name], work.scheme)
        old = ranges.get(first, (0.0, 0.0))
        ranges[first] = min(old[0], low), max(old[1], high)
    for value, first in work.placement.groups.items():
        work.parameters[value] = parameters_for(*ranges[first], work.scheme)


def _rewrite(work: _Conversion) -> None:
    """Quantize what is stored, and let every reader have the form that it wants."""
    graph = work.graph
    for value in graph.inputs:
        if value in work.placement.stored:
            _store(work, value, next(iter(graph.nodes), None))
    for node in list(graph.nodes):
        if node in work.placement.passing:
            with graph.inserting_before(node.next, node.location):
                operands = [work.stored[operand] for operand in node.operands]
                work.stored[node.result] = graph.create(node.op, operands).result
                _give_floats(work, node.result)
            continue
        if node in work.placement.contractions:
            _quantize_layer(work, node)
        elif node in work.placement.reading:
            for position, operand in enumerate(node.operands):
                if operand in work.stored:
                    _read(work, node, position)
        for result in node.results:
            if result in work.placement.stored:
                _store(work, result, node.next)


def _store(work: _Conversion, value: Value, before: Node | None) -> None:
    chosen = work.parameters[value]
    with work.graph.inserting_before(before):
        scale = np.asarray(chosen.scale, np.float32)
        work.stored[value] = F.quantize(value, scale, _point(chosen), chosen.dtype)


def _point(chosen: Parameters) -> Array | None:
    if chosen.dtype.is_float:
        return None
    return np.asarray(chosen.zero_point, chosen.dtype.numpy)


def _give_floats(work: _Conversion, value: Value) -> None:
    """Let readers of floats have what an op on integers passed on."""
    for use in value.uses:
        is_output = use.node is work.graph.output_node
        if is_output or not work.placement.reads_integers(use.node, use.position):
            use.node.set_operand(use.position, _real(work, value))


def _read(work: _Conversion, node: Node, position: int) -> None:
    """Let a node read integers."""
    value = node.operands[position]
    if value not in work.real:
        with work.graph.inserting_before(node, node.location):
            _real(work, value)
    node.set_operand(position, work.real[value])


def _real(work: _Conversion, value: Value) -> Value:
    if value not in work.real:
        chosen = work.parameters[value]
        scale = np.asarray(chosen.scale, np.float32)
        work.real[value] = F.dequantize(work.stored[value], scale, _point(chosen))
    return work.real[value]


def _quantize_layer(work: _Conversion, node: Node) -> None:
    x, weight = node.operands[0], weight_of(node)
    _read(work, node, 0)
    if weight is None:
        _read(work, node, 1)
        return
    stored = work.weights[node]
    graph = work.graph
    with graph.inserting_before(node, node.location):
        bits = ArrayData(stored.stored, work.scheme.weight_dtype, private=True)
        name = getattr(weight.op, "label", weight.name)
        held = graph.add_weight(f"{name}.{work.scheme.weights}", bits)
        node.set_operand(1, F.dequantize(held, stored.scale, None, axis=stored.axis))
    bias = contents(node.operands[2]) if _has_known_bias(node) else None
    if work.scheme.bias_correction:
        correction = _correction(work, node, x, contents(weight), restore(stored))
        bias = correction if bias is None else bias + correction
    if bias is not None and (len(node.operands) == 3 or work.scheme.bias_correction):
        _set_bias(work, node, bias, stored, work.parameters[x])


def _has_known_bias(node: Node) -> bool:
    from monograph.quantization.roles import is_known

    return len(node.operands) == 3 and is_known(node.operands[2])


def _set_bias(
    work: _Conversion, node: Node, bias: Array, stored: StoredWeight, chosen: Parameters
) -> None:
    """Give a layer a bias: integers in the scale of its sums, where 32 bits hold them."""
    graph = work.graph
    steps = np.float32(chosen.scale) * stored.scale
    whole = np.round(bias / np.broadcast_to(steps, bias.shape).astype(np.float64))
    fits = chosen.dtype.is_integer and chosen.dtype.bits <= 8 and stored.axis != 1
    fits = fits and bool((np.abs(whole) + _largest_sums(node, stored) <= LARGEST_SUM).all())
    with graph.inserting_before(node, node.location):
        if fits:
            integers = graph.add_constant(whole.astype(np.int32), i32)
            scales = np.broadcast_to(steps, bias.shape).astype(np.float32)
            value = F.dequantize(integers, scales, None, axis=0)
        else:
            value = graph.add_constant(bias.astype(np.float32))
        if len(node.operands) == 3:
            node.set_operand(2, value)
            return
        operands = (*node.operands, value)
        new = graph.create(node.op, operands, location=node.location).result
    graph.replace_all_uses(node.result, new)


def _correction(work: _Conversion, node: Node, x: Value, weight: Array, rounded: Array) -> Array:
    """What the mean of each output loses by the rounding of the weights."""
    channels = work.profile.activations[x.name].channels
    if channels is None or channels.axis != input_channel_axis(node):
        raise InputError(
            "bias correction needs the mean of every channel",
            hint="profile the model with per_channel=True",
        )
    error = weight - rounded
    if isinstance(node.op, Conv):
        taps = error.reshape(*error.shape[:2], -1).sum(2)
        mean = channels.mean.reshape(node.op.groups, -1)
        grouped = taps.reshape(node.op.groups, -1, taps.shape[1])
        conv: Array = np.einsum("goc,gc->go", grouped, mean).reshape(-1)
        return conv
    if output_channel_axis(node) == 0:
        linear: Array = error @ channels.mean
        return linear
    raise InputError(
        "bias correction is for convolutions and linear layers",
        found=f"{layer_name(node)}: a product without a bias",
        hint="leave it out with Scheme(skip=…), or correct no biases",
    )


def _describe(node: Node, work: _Conversion, reason: str) -> LayerReport:
    weight = weight_of(node)
    before = 0 if weight is None else element_count(weight) * 4
    if reason:
        return LayerReport(layer_name(node), node.op.name, "float", reason, before, before)
    after = 0 if weight is None else work.weights[node].nbytes
    second = work.scheme.activations if weight is None else work.scheme.weights
    precision = f"{work.scheme.activations} × {second}"
    return LayerReport(layer_name(node), node.op.name, precision, "", before, after)


def _report(graph: Graph, layers: list[LayerReport]) -> QuantizationReport:
    """Count the conversions of activations that are left."""
    quantizes = [n for n in graph.nodes if isinstance(n.op, Quantize)]
    dequantizes = [
        n
        for n in graph.nodes
        if isinstance(n.op, Dequantize)
        and n.operands[0].op is not None
        and n.operands[0].op.name not in ("weight", "constant")
    ]
    taken = (Role.CONTRACTION, Role.ELEMENTWISE)
    outputs = graph.output_node
    alone = sum(n.operands[0].producer is None for n in quantizes) + sum(
        any(user is outputs or role_of(user) not in taken for user in n.result.users)
        for n in dequantizes
    )
    moved = sum(
        element_count(n.result) * (n.operands[0].dtype.bits + n.result.dtype.bits) // 8
        for n in (*quantizes, *dequantizes)
    )
    return QuantizationReport(tuple(layers), len(quantizes), len(dequantizes), alone, moved)
