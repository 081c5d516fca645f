"""The line of the user's program that a node came from, where its exporter wrote it down.

Our own exporter notes the line as it is (``monograph.source``); torch's notes the whole stack trace
(``pkg.torch.onnx.stack_trace``), of which the innermost line outside all libraries is taken.
"""

from __future__ import annotations

import re

from onnx import NodeProto

OURS = "monograph.source"
STACK_TRACE = "pkg.torch.onnx.stack_trace"

_FRAME = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>\S+)')
_LIBRARIES = re.compile(r"[/\\]site-packages[/\\]")
_LONGEST_TRACE = 100_000
_LONGEST_LINE = 400
"""A model may hold anything at all under these keys: more than that is no line of a program."""


def source_line(node: NodeProto) -> str | None:
    """The user's line as ``file:line in function``; None if the model does not say."""
    notes = {entry.key: entry.value for entry in node.metadata_props}
    ours, trace = notes.get(OURS), notes.get(STACK_TRACE)
    if isinstance(ours, str) and ours:  # text that does not decode is handed out as bytes
        return ours if len(ours) <= _LONGEST_LINE else None
    if not isinstance(trace, str):
        return None
    frames = list(_FRAME.finditer(trace[-_LONGEST_TRACE:]))
    own = [frame for frame in frames if not _LIBRARIES.search(frame["file"])]
    if not frames:
        return None
    frame = (own or frames)[-1]
    line = f"{frame['file']}:{frame['line']} in {frame['function']}"
    return line if len(line) <= _LONGEST_LINE else None
