"""The process in which the explorer compiles: one line of JSON in, one out, until its input ends.

It is a process of its own so that what takes too long, or crashes, can be ended without ending the
server. Whatever else writes to the standard output goes to the standard error instead.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, TextIO

from monograph.api import as_pipeline
from monograph.compiler import Options
from monograph.errors import MonographError
from monograph.inspect.plugins import load_plugin
from monograph.report.workbench import Edit, Workbench, answer_of
from monograph.runtime.bundle import Json

MEMORY_HEADROOM_BYTES = 16 * 2**30
"""Address space that an edit may take beyond what the open model has."""


def main() -> None:
    """Open the model that the first line names, then answer edits."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    first = json.loads(sys.stdin.readline())
    for plugin in first["plugins"]:
        load_plugin(plugin)
    bench = Workbench(first["model"], _options(first), first["sizes"])
    is_open = _answer(answers, lambda: answer_of(bench.open(first["types"])))
    if not is_open:
        return
    _limit_memory()
    for line in sys.stdin:
        given = json.loads(line)
        _answer(answers, lambda given=given: answer_of(bench.edit(Edit.read(given))))


def _options(first: dict[str, Any]) -> Options:
    passes = first["passes"]
    return Options(
        first["level"],
        first["threads"],
        cache=False,
        listings=True,
        keep_weights=True,
        passes=None if passes is None else as_pipeline(passes),
        target=first["target"],
    )


def _answer(answers: TextIO, work: Any) -> bool:
    """Write what some work gives, or the error that it ends in; whether it gave something."""
    found: Json
    try:
        found = work()
    except (MonographError, MemoryError, RecursionError) as error:
        found = {"error": str(error) or f"{type(error).__name__}: there is not enough memory"}
    answers.write(json.dumps(found) + "\n")
    answers.flush()
    return not (isinstance(found, dict) and "error" in found)


def _limit_memory() -> None:
    """Bound what an edit may allocate, where the system can."""
    if sys.platform != "linux":
        return
    import resource

    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[0])
    wanted = pages * resource.getpagesize() + MEMORY_HEADROOM_BYTES
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    limit = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    resource.setrlimit(resource.RLIMIT_AS, (limit, most))


if __name__ == "__main__":
    main()
