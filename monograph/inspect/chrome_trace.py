"""A profile as a Chrome trace: the JSON that chrome://tracing and ui.perfetto.dev open.

Every thread is a track with the kernels that it ran; the calling thread's kernels lie in their
launches, whose rest is waiting. A counter shows the bytes of the arena that are alive. The format:
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from monograph.runtime.bundle import Json

if TYPE_CHECKING:
    from monograph.inspect.profile import Profile
    from monograph.inspect.timeline import Span

MOST_NODES = 20
"""Nodes that a span names."""


def chrome_trace(profile: Profile) -> dict[str, Json]:
    """The trace of a profile's quickest call; times are microseconds from its begin."""
    call, process = profile.call, os.getpid()
    begin = call.began
    nodes = {each.name: each.nodes for each in profile.kernels}

    def micro(instant: float) -> float:
        return round((instant - begin) * 1e6, 3)

    def complete(span: Span, category: str, name: str | None = None) -> dict[str, Json]:
        known = nodes.get(span.name, ())
        more = [f"and {len(known) - MOST_NODES} more"] if len(known) > MOST_NODES else []
        arguments: dict[str, Json] = {"busy_us": round(span.busy * 1e6, 3), "pieces": span.pieces}
        if known:
            arguments["nodes"] = [*known[:MOST_NODES], *more]
        return {
            "ph": "X",
            "name": name or span.name,
            "cat": category,
            "ts": micro(span.began),
            "dur": round(span.seconds * 1e6, 3),
            "pid": process,
            "tid": span.thread,
            "args": arguments,
        }

    def counter(instant: float, nbytes: int) -> dict[str, Json]:
        event: dict[str, Json] = {"ph": "C", "name": "arena", "ts": micro(instant)}
        return event | {"pid": process, "tid": 0, "args": {"bytes": nbytes}}

    numbers = sorted({0, *(span.thread for span in (*call.threads, *call.launches))})
    events: list[Json] = [
        _metadata(process, 0, "process_name", f"monograph {profile.model}"),
        *(
            _metadata(process, each, "thread_name", f"worker {each}" if each else "caller")
            for each in numbers
        ),
        *(_metadata(process, each, "thread_sort_index", each) for each in numbers),
        {
            "ph": "X",
            "name": f"call {profile.model}",
            "cat": "call",
            "ts": 0.0,
            "dur": round(call.seconds * 1e6, 3),
            "pid": process,
            "tid": 0,
        },
        *(complete(span, "region") for span in call.regions),
        *(complete(span, "launch", f"launch {span.name}") for span in call.launches),
        *(complete(span, "kernel") for span in call.threads),
        *(counter(instant, nbytes) for instant, nbytes in call.memory),
    ]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "model": profile.model,
            "recorded over plain": round(profile.overhead, 4),
            "records lost": profile.lost,
        },
    }


def write_chrome_trace(path: str | Path, profile: Profile) -> Path:
    """Write the trace to a file."""
    chosen = Path(path)
    chosen.write_text(json.dumps(chrome_trace(profile)), encoding="utf-8")
    return chosen


def _metadata(process: int, thread: int, what: str, value: Json) -> dict[str, Json]:
    key = "sort_index" if what.endswith("index") else "name"
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {key: value}}
