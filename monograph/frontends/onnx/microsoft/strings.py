"""The tokenizer of ``com.microsoft``: strings as rows of tokens, as long as the longest."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from monograph.frontends.onnx.node import NotStatic, OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.graph import Value, current_graph
from monograph.ir.types import TensorType, string

START, END = "\x02", "\x03"
"""What stands around the tokens of a string, if ``mark`` asks for it."""


@converter("Tokenizer", domain="com.microsoft")
def tokenizer(node: OnnxNode) -> Value:
    """Strings cut at separators, or the parts of them that an expression matches."""
    x, known = node.input(0), node.constant(0)
    cut = _cutter(node)
    if known is None:
        types = [TensorType(string, (*x.shape, node.fresh("tokens")))]
        raise NotStatic(f"{node.name}: its strings are not known before it runs", types=types)
    shortest = node.integer("mincharnum")
    rows = [[token for token in cut(item) if len(token) >= shortest] for item in known.reshape(-1)]
    if node.integer("mark"):
        rows = [[START, *row, END] for row in rows]
    longest = max(map(len, rows), default=0)
    made = np.full((len(rows), longest), node.string("pad_value"), object)
    for position, row in enumerate(rows):
        made[position, : len(row)] = row
    return current_graph().add_constant(made.reshape(*known.shape, longest), string)


def _cutter(node: OnnxNode) -> Callable[[str], list[str]]:
    """What makes tokens of a string: characters, matches, or what lies between separators."""
    separators, expression = node.strings("separators", ()), node.string("tokenexp", "")
    if bool(separators) == bool(expression):
        raise node.error("either separators or tokenexp is needed")
    if expression == "." or separators == ("",):
        return list
    if expression:
        pattern = _compile_pattern(node, expression)
        return lambda text: [found[0] for found in pattern.finditer(text) if found[0]]
    patterns = [_compile_pattern(node, each) for each in separators]

    def cut(text: str) -> list[str]:
        parts = [text]
        for each in patterns:
            parts = [part for whole in parts for part in _between(each, whole)]
        return parts

    return cut


def _between(separator: re.Pattern[str], text: str) -> list[str]:
    """What lies between the matches of a separator; empty parts are none."""
    start, parts = 0, []
    for found in separator.finditer(text):
        parts.append(text[start : found.start()])
        start = found.end()
    return [part for part in (*parts, text[start:]) if part]


def _compile_pattern(node: OnnxNode, expression: str) -> re.Pattern[str]:
    try:
        return re.compile(expression)
    except re.error as error:
        raise node.error("not a regular expression", found=f"{expression!r}: {error}") from None
