"""Strings."""

from __future__ import annotations

import numpy as np

from monograph import functional as F
from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import apply
from monograph.ir.graph import Value, current_graph
from monograph.ir.types import f32
from monograph.ops import strings


@converter("StringConcat")
def string_concat(node: OnnxNode) -> Value:
    """Two strings, one after the other."""
    return apply(strings.StringConcat(), node.input(0), node.input(1))


@converter("StringSplit")
def string_split(node: OnnxNode) -> tuple[Value, ...]:
    """The parts of strings, and how many each has."""
    limit = node.integer("maxsplit") if node.has("maxsplit") else None
    op = strings.StringSplit(node.fresh("parts"), node.string("delimiter", ""), limit)
    return current_graph().create(op, (node.input(0),)).results


@converter("RegexFullMatch")
def regex_full_match(node: OnnxNode) -> Value:
    """Whether a regular expression matches the whole string."""
    return apply(strings.RegexFullMatch(node.string("pattern")), node.input(0))


@converter("StringNormalizer")
def string_normalizer(node: OnnxNode) -> Value:
    """Words in one case, without accents and stop words."""
    case = node.string("case_change_action", "NONE").lower()
    if case not in ("none", "lower", "upper"):
        raise node.error("an unknown case_change_action", found=case.upper())
    op = strings.StringNormalize(
        node.fresh("words", 1),
        case,  # type: ignore[arg-type]  # just checked
        node.strings("stopwords", ()),
        bool(node.integer("is_case_sensitive", 0)),
    )
    return apply(op, node.input(0))


@converter("TfIdfVectorizer")
def tf_idf_vectorizer(node: OnnxNode) -> Value:
    """How often n-grams occur, weighted."""
    columns = node.ints("ngram_indexes")
    longest, shortest = node.integer("max_gram_length"), node.integer("min_gram_length")
    ngrams = _ngrams(node)
    if len(ngrams) != len(columns) or not columns or min(columns) < 0:
        raise node.error("one index is needed for each n-gram", found=f"{len(columns)} indexes")
    wanted = [
        (ngram, column)
        for ngram, column in zip(ngrams, columns, strict=True)
        if shortest <= len(ngram) <= longest
    ]
    size = max(columns) + 1
    if size > 10_000_000:
        raise node.error("too many columns", found=str(size))
    op = strings.CountNgrams(
        tuple(ngram for ngram, _ in wanted),
        tuple(column for _, column in wanted),
        size,
        node.integer("max_skip_count"),
    )
    return _weigh_counts(node, apply(op, node.input(0)), columns, size)


def _ngrams(node: OnnxNode) -> list[tuple[str | int, ...]]:
    """The n-grams of the pool: all of one item, then all of two…"""
    pool: tuple[str | int, ...] = (
        node.strings("pool_strings") if node.has("pool_strings") else node.ints("pool_int64s")
    )
    starts = node.ints("ngram_counts")
    ngrams = []
    for length, start in enumerate(starts, 1):
        end = starts[length] if length < len(starts) else len(pool)
        if not 0 <= start <= end <= len(pool):
            raise node.error("ngram_counts does not fit the pool", found=str(starts))
        ngrams += [pool[at : at + length] for at in range(start, end - length + 1, length)]
    return ngrams


def _weigh_counts(node: OnnxNode, counts: Value, columns: tuple[int, ...], size: int) -> Value:
    mode = node.string("mode")
    if mode not in ("TF", "IDF", "TFIDF"):
        raise node.error("an unknown mode", expected="TF, IDF or TFIDF", found=mode)
    if mode == "TF":
        return counts
    present = F.cast(F.greater(counts, 0.0), f32) if mode == "IDF" else counts
    if not node.has("weights"):
        return present
    weights = np.zeros(size, np.float32)
    weights[list(columns)] = node.floats("weights")
    return F.multiply(present, weights)
