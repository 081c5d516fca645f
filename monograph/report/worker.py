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
from monograph.errors import MonographError, describe_error
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
    try:
        for plugin in first["plugins"]:
            load_plugin(plugin)
        bench = Workbench(first["model"], _options(first), first["sizes"])
        opened = answer_of(bench.open(first["types"]))
    except Exception as error:
        _send(answers, _error_of(error))
        return
    _send(answers, opened)
    _limit_memory()
    for line in sys.stdin:
        try:
            found: Json = answer_of(bench.edit(Edit.read(json.loads(line))))
        except Exception as error:
            found = _error_of(error)
        _send(answers, found)


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


def _send(answers: TextIO, found: Json) -> None:
    answers.write(json.dumps(found) + "\n")
    answers.flush()


def _error_of(error: Exception) -> Json:
    """The answer to what cannot be done."""
    if isinstance(error, MemoryError):
        return {"error": "MemoryError: there is not enough memory"}
    known = isinstance(error, MonographError | RecursionError)
    return {"error": str(error if known else describe_error(error))}


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
