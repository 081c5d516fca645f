"""Strings."""

from __future__ import annotations

from typing import Any

from monograph.exporters.onnx.context import ExportContext
from monograph.exporters.onnx.registry import Exported, exports
from monograph.ir.types import bool_, f32, i64, string
from monograph.ops import image
from monograph.ops import strings as s


@exports(s.StringConcat)
def concat(node: ExportContext[s.StringConcat]) -> Exported:
    """string_concat → StringConcat."""
    return node.emit("StringConcat", *node.inputs) if node.opset >= 20 else None


@exports(s.StringSplit)
def split(node: ExportContext[s.StringSplit]) -> Exported:
    """string_split → StringSplit."""
    if node.opset < 20:
        return None
    attributes: dict[str, Any] = {"delimiter": node.op.delimiter}
    if node.op.limit is not None:
        attributes["maxsplit"] = node.op.limit
    parts, count = node.write("StringSplit", node.inputs, [string, i64], attributes)
    if node.op.delimiter:  # ONNX Runtime finds no part in an empty string, where there is one
        count = node.emit("Max", count, node.number(1, i64))
    return parts, count


@exports(s.RegexFullMatch)
def full_match(node: ExportContext[s.RegexFullMatch]) -> Exported:
    """regex_full_match → RegexFullMatch."""
    if node.opset < 20:
        return None
    return node.emit("RegexFullMatch", *node.inputs, dtype=bool_, pattern=node.op.pattern)


@exports(s.StringNormalize)
def normalize(node: ExportContext[s.StringNormalize]) -> Exported:
    """string_normalize → StringNormalizer."""
    op = node.op
    attributes: dict[str, Any] = {
        "case_change_action": op.case.upper(),
        "is_case_sensitive": int(op.case_sensitive),
    }
    if op.stopwords:
        attributes["stopwords"] = list(op.stopwords)
    return node.emit("StringNormalizer", *node.inputs, **attributes)


@exports(s.CountNgrams)
def count_ngrams(node: ExportContext[s.CountNgrams]) -> Exported:
    """ONNX has all n-grams in one list, the shorter ones first."""
    op = node.op
    if not op.ngrams or len(set(op.columns)) < len(op.columns) or max(op.columns) + 1 != op.size:
        return None
    order = sorted(range(len(op.ngrams)), key=lambda place: len(op.ngrams[place]))
    longest = len(op.ngrams[order[-1]])
    pool = [item for place in order for item in op.ngrams[place]]
    starts = [
        sum(len(ngram) for ngram in op.ngrams if len(ngram) <= shorter)
        for shorter in range(longest)
    ]
    words = node.dtype is string
    attributes = {
        "mode": "TF",
        "min_gram_length": 1,
        "max_gram_length": longest,
        "max_skip_count": op.skips,
        "ngram_counts": starts,
        "ngram_indexes": [op.columns[place] for place in order],
        "pool_strings" if words else "pool_int64s": pool,
    }
    x = node.inputs[0] if words else node.as_i64(0)
    return node.write("TfIdfVectorizer", [x], [f32], attributes)[0]


@exports(image.DecodeImage)
def decode_image(node: ExportContext[image.DecodeImage]) -> Exported:
    """decode_image → ImageDecoder, which ONNX Runtime has no kernel for."""
    if node.opset < 20:
        return None
    return node.emit("ImageDecoder", *node.inputs, pixel_format=node.op.pixel_format)
