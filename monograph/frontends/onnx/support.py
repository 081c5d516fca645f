"""Finds every unsupported op of a model before importing any node."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

from onnx import NodeProto

from monograph.errors import Problem
from monograph.frontends.onnx import functions
from monograph.frontends.onnx.mixed_opsets import exists_elsewhere
from monograph.frontends.onnx.model import (
    FunctionKey,
    LoadedModel,
    canonical_domain,
    opset_versions,
)
from monograph.frontends.onnx.order import LONGEST_NAME, describe_node, shorten, walk_nodes
from monograph.frontends.onnx.registry import converter_names, find_converter
from monograph.frontends.onnx.source import source_line

_Op = tuple[str, str, int | None]


def find_unsupported_ops(model: LoadedModel) -> list[Problem]:
    """Every op that has neither a converter nor a body, with where it first stands."""
    verdicts: dict[_Op, bool] = {}
    places: dict[_Op, tuple[str, int]] = {}
    for node, opsets, where in _nodes(model):
        if model.functions and functions.function_key(node) in model.functions:
            continue
        domain = canonical_domain(node.domain)
        op = (domain, node.op_type, opsets.get(domain))
        verdict = verdicts.get(op)
        if verdict is None:
            verdict = verdicts[op] = is_supported(*op)
        if not verdict:
            first, count = places.get(op) or (_place(node, where), 0)
            places[op] = first, count + 1
    return [
        Problem(
            f"{domain or 'ai.onnx'}.{shorten(op)}",
            where,
            count,
            _reason(domain, op, version),
            _nearest(op),
        )
        for (domain, op, version), (where, count) in places.items()
    ]


def _nodes(model: LoadedModel) -> Iterator[tuple[NodeProto, Mapping[str, int], str]]:
    """Every node of the model and of the functions that it calls, with the opsets in use there."""
    called: dict[FunctionKey, None] = {}
    for node in walk_nodes(model.proto.graph.node):
        if model.functions:
            called[functions.function_key(node)] = None
        yield node, model.opsets, ""
    pending = [key for key in called if key in model.functions]
    while pending:
        function = model.functions[pending.pop()]
        imports = opset_versions(function.opset_import, f"the function {function.name!r}")
        for node in walk_nodes(function.node):
            yield node, {**model.opsets, **imports}, f" in {function.name}"
            key = functions.function_key(node)
            if key in model.functions and key not in called:
                called[key] = None
                pending.append(key)


def _place(node: NodeProto, where: str) -> str:
    """Where a node stands: the user's line, if the model tells it, and the node itself."""
    described = f"{describe_node(node)}{where}"
    source = source_line(node)
    return described if source is None else f"{source} ({described})"


def is_supported(domain: str, op: str, version: int | None) -> bool:
    """Whether an op can be converted at this version of its domain; None: it is not imported."""
    if version is None:
        return False
    schema = functions.schema_of(domain, op, version)
    if schema is None and domain in STANDARD:
        other = exists_elsewhere(domain, op, version)
        if other is None:  # none of ONNX's own, but of what ONNX Runtime puts among them
            return find_converter(domain, op, version) is not None
        return is_supported(domain, op, other)
    if find_converter(domain, op, version) is not None:
        return True
    return schema is not None and functions.has_body(schema)


NCHWC = "com.microsoft.nchwc"
_SEARCH = "it runs a whole model in a loop: export that model, and search outside of it"
_MAPS = "maps are not supported: export with zipmap=False, or without the ops around it"
REFUSED = {
    ("com.microsoft", "AttnLSTM"): "no exporter writes it: export an LSTM and its attention apart",
    ("com.microsoft", "VarlenNGramHashMapping"): (
        "sequences of one packed buffer are not supported: use NGramHashMapping"
    ),
    ("com.microsoft", "BeamSearch"): _SEARCH,
    ("com.microsoft", "GreedySearch"): _SEARCH,
    ("com.microsoft", "Sampling"): _SEARCH,
    ("com.microsoft", "WhisperBeamSearch"): _SEARCH,
    ("com.microsoft", "MatMulFpQ4"): "its weights are packed for one processor: use MatMulNBits",
    ("com.microsoft", "MaxpoolWithMask"): "it is for internal use of ONNX Runtime",
    ("com.microsoft", "SparseToDenseMatMul"): "sparse tensors are not supported at run time",
    ("ai.onnx.ml", "CastMap"): _MAPS,
    ("ai.onnx.ml", "DictVectorizer"): _MAPS,
    ("ai.onnx.ml", "ZipMap"): _MAPS,
}
"""Ops that ONNX Runtime runs on a CPU and that are refused here on purpose, and why."""

STANDARD = ("", "ai.onnx.ml")
"""The domains whose ops ONNX itself defines."""


def _reason(domain: str, op: str, version: int | None) -> str:
    if domain == NCHWC:
        return (
            "it is made by ONNX Runtime for one kind of processor: save the model with at most "
            "ORT_ENABLE_EXTENDED"
        )
    if (domain, op) in REFUSED:
        return REFUSED[domain, op]
    if version is None:
        return f"the model imports no opset of the domain {domain or 'ai.onnx'!r}"
    if functions.schema_of(domain, op, version) is None and domain in STANDARD:
        return f"ONNX has no such op in opset {version}"
    return "no converter is written for it"


def _nearest(op: str) -> str | None:
    """A supported op of nearly the same name."""
    if len(op) > LONGEST_NAME:
        return None
    names = sorted(converter_names())
    near = [name for name in difflib.get_close_matches(op, names, 1, 0.75) if name != op]
    return near[0] if near else None
