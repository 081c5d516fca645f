"""What other packages bring by entry points: found by name, and only when it is asked for.

The packages are those of the tutorials: their listings are put into a folder as ``pip`` would.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
GRAPH = """\
graph @main(%x: f32[4, 8]) -> (f32[4, 8]) {
  %n = negate(%x) : f32[4, 8]
  %y = maximum(%x, %n) : f32[4, 8]
  return %y
}
"""
SNAKE = """\
graph @main(%x: f32[8]) -> (f32[8]) {
  %y = mine.snake(%x) {frequency = 2.0} : f32[8]
  return %y
}
"""


def install(site: Path, tutorial: str, module: str) -> None:
    """Put the first listing of a tutorial into a module, and its entry points beside it."""
    blocks = FENCE.findall((ROOT / "docs" / "tutorials" / f"{tutorial}.md").read_text())
    code = next(body for language, body in blocks if language == "python")
    toml = next(body for language, body in blocks if language == "toml")
    groups = tomllib.loads(toml)["project"]["entry-points"]
    write_package(site, module, code, groups)


def write_package(
    site: Path, module: str, code: str, groups: dict[str, dict[str, str]], version: str = "1.0"
) -> None:
    (site / f"{module}.py").write_text(code)
    info = site / f"{module}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: {version}\n")
    lines = []
    for group, points in groups.items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    install(folder, "own-pass", "my_passes")
    install(folder, "own-op", "my_ops")
    return folder


def run(site: Path, *arguments: str, code: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command line, or code, where the packages are installed."""
    program = code or "from monograph.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PYTHONPATH": f"{ROOT}:{site}", "PATH": "", "NO_COLOR": "1", "COLUMNS": "80"},
        cwd=site.parent,
    )


def test_a_pass_is_found_by_its_name(site: Path, tmp_path: Path) -> None:
    (tmp_path / "graph.ir").write_text(GRAPH)
    done = run(site, "opt", "graph.ir", "-p", "find_abs,dce")
    assert done.returncode == 0, done.stderr
    assert "abs(%x)" in done.stdout and "maximum" not in done.stdout


def test_an_op_in_a_file_is_found_by_its_name(site: Path, tmp_path: Path) -> None:
    (tmp_path / "snake.ir").write_text(SNAKE)
    done = run(site, "run", "snake.ir", "--input", "x=ones", "--no-cache")
    assert done.returncode == 0, done.stderr
    assert "1.413" in done.stdout  # 1 + sin²(2) / 2


def test_both_are_listed(site: Path) -> None:
    passes = json.loads(run(site, "list", "passes", "--json").stdout)
    assert "Write the magnitude of a number as one node." in [each["summary"] for each in passes]
    ops = json.loads(run(site, "list", "ops", "--json").stdout)
    assert "mine.snake" in [each["name"] for each in ops]
    facts = json.loads(run(site, "doctor", "--no-measure", "--json").stdout)["facts"]
    assert facts["entry points"] == "passes: find_abs, ops: mine.snake"


def test_nothing_is_looked_for_before_it_is_asked_for(site: Path) -> None:
    code = """
import sys
import numpy as np
import monograph
from monograph import entry_points, functional as F
graph = monograph.trace(lambda x: F.softmax(x * 2.0), "f32[4, 4]")
monograph.compile(graph, cache=False)(np.ones((4, 4), "f4"))
assert entry_points._find.cache_info().currsize == 0
assert "importlib.metadata" not in sys.modules
monograph.optimize(graph, passes="find_abs")
assert "my_passes" in sys.modules and "my_ops" not in sys.modules
"""
    done = run(site, code=code)
    assert done.returncode == 0, done.stderr


def test_a_package_that_is_broken_is_named(site: Path, tmp_path: Path) -> None:
    broken = {"monograph.passes": {"break_it": "broken"}, "monograph.targets": {"npu": "broken:f"}}
    write_package(site, "broken", "raise RuntimeError('not today')", broken)
    (tmp_path / "graph.ir").write_text(GRAPH)
    done = run(site, "opt", "graph.ir", "-p", "break_it")
    assert done.returncode == 1
    assert "'break_it' cannot be loaded from the package that has it" in done.stderr
    assert "RuntimeError: not today" in done.stderr and "broken of broken 1.0" in done.stderr
    well = run(site, "opt", "graph.ir", "-p", "find_abs")
    assert well.returncode == 0, well.stderr  # others go on
    examined = run(site, "doctor", "--no-measure")
    assert examined.returncode == 3
    assert "2 problems to mend" in examined.stdout


def test_two_packages_may_not_have_one_name(site: Path, tmp_path: Path) -> None:
    write_package(site, "rival", "", {"monograph.passes": {"find_abs": "rival"}})
    (tmp_path / "graph.ir").write_text(GRAPH)
    done = run(site, "opt", "graph.ir", "-p", "find_abs")
    assert done.returncode == 1
    assert "two packages have an entry point 'find_abs'" in done.stderr
    assert "my_passes 1.0" in done.stderr and "rival 1.0" in done.stderr


def test_a_target_of_a_package_compiles_and_runs(site: Path, tmp_path: Path) -> None:
    blocks = FENCE.findall((ROOT / "docs" / "16-add-a-target.md").read_text())
    groups = tomllib.loads(next(body for language, body in blocks if language == "toml"))
    code = (ROOT / "tests" / "targets" / "toy" / "target.py").read_text()
    code += (
        "\n\ndef make_target(chip):\n    assert chip in ('', 'v2'), chip\n    return ToyTarget()\n"
    )
    write_package(site, "my_target", code, groups["project"]["entry-points"])
    (tmp_path / "graph.ir").write_text(GRAPH)
    for name in ("toy", "toy:v2"):
        done = run(site, "run", "graph.ir", "--input", "x=ones", "--target", name)
        assert done.returncode == 0, done.stderr
        assert "float32" in done.stdout
    saved = run(site, "compile", "graph.ir", "--target", "toy", "-o", "toy.mono")
    assert saved.returncode == 0, saved.stderr
    again = run(site, "run", "toy.mono", "--input", "x=ones")
    assert again.returncode == 0, again.stderr
    elsewhere = run(tmp_path, "run", "toy.mono", "--input", "x=ones")
    assert elsewhere.returncode == 1
    assert "toy" in elsewhere.stderr and "Traceback" not in elsewhere.stderr


def test_what_is_no_target_is_refused(site: Path, tmp_path: Path) -> None:
    write_package(
        site, "npu", "def make(chip): return chip", {"monograph.targets": {"npu": "npu:make"}}
    )
    (tmp_path / "graph.ir").write_text(GRAPH)
    listed = run(site, "list", "targets")
    assert "npu" in listed.stdout and "from npu:make" in listed.stdout
    done = run(site, "compile", "graph.ir", "--target", "npu:small")
    assert done.returncode == 1
    assert "the entry point 'npu' makes no target" in done.stderr
    other = run(site, "compile", "graph.ir", "--target", "tpu")
    assert "npu, or one of these with a chip" in other.stderr
