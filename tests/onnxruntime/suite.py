"""ONNX Runtime's own tests of its Python API, run on ``monograph.onnxruntime``.

    python -m tests.onnxruntime.suite PATH/onnxruntime/test/python [FILE …] [-k name] [--theirs]

The folder is that of a checkout of ONNX Runtime, of which nothing is kept here; its models are in
``testdata`` beside it. The tests import ``onnxruntime``, and get our module in its place; with
``--theirs`` they get ONNX Runtime itself, which tells what can pass on this machine at all.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FILES = tuple(
    f"onnxruntime_test_python{part}.py" for part in ("", "_iobinding", "_global_threadpool")
)


class Counter:
    """A plugin that counts how tests end, and takes what the parts of one say for the whole."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        known = self.outcomes.get(report.nodeid)
        if report.failed:
            self.outcomes[report.nodeid] = "failed"
        elif report.skipped and known is None:
            self.outcomes[report.nodeid] = "skipped"
        elif report.when == "call" and known is None:
            self.outcomes[report.nodeid] = "passed"

    def count(self, outcome: str) -> int:
        return sum(each == outcome for each in self.outcomes.values())


def take_its_place() -> None:
    """Make ``import onnxruntime`` find our module, and its parts by their names there."""
    parts = ("_pybind_state", "onnxruntime_inference_collection", "onnxruntime_pybind11_state")
    for name in ("", ".capi", *(f".capi.{part}" for part in parts)):
        sys.modules[f"onnxruntime{name}"] = importlib.import_module(f"monograph.onnxruntime{name}")
    missing = ModuleType("onnxruntime.missing")
    sys.modules.setdefault("onnxruntime.missing", missing)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("files", nargs="*", default=FILES)
    parser.add_argument("-k", default="")
    parser.add_argument("--theirs", action="store_true", help="run them on ONNX Runtime itself")
    given = parser.parse_args(arguments)
    if not given.theirs:
        take_its_place()
    folder = given.folder.resolve()
    sys.path.insert(0, str(folder))
    counter = Counter()
    options = ["-q", "-n0", "-p", "no:cacheprovider", f"--rootdir={folder}", "--tb=short"]
    options += ["-k", given.k] if given.k else []
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch, "testdata").symlink_to(folder.parent / "testdata")
        os.chdir(scratch)  # the tests write models and profiles to where they run
        pytest.main([*options, *(str(folder / name) for name in given.files)], plugins=[counter])
        os.chdir(folder)
    passed, failed = counter.count("passed"), counter.count("failed")
    print(f"{passed} passed, {failed} failed, {counter.count('skipped')} skipped")
    return 0 if not failed else 1


if __name__ == "__main__":
    sys.exit(main())
