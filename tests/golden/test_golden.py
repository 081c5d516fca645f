"""Runs the golden files; see ``filecheck`` for what is in one."""

from __future__ import annotations

from pathlib import Path

import pytest

from monograph.passes.base import all_passes
from tests.golden.filecheck import Directive, mismatch, read, run

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*/*.ir"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_golden(path: Path) -> None:
    golden = read(path)
    output = run(golden)
    problem = mismatch(golden.checks, output)
    assert problem is None, f"{golden.title}\n{path}, {problem}; the graph is\n\n{output}"


@pytest.mark.parametrize("name", all_passes())
def test_every_pass_has_golden_files(name: str) -> None:
    files = sorted((FOLDER / name).glob("*.ir"))
    assert len(files) >= 3
    assert all(name in read(path).passes for path in files)


OUTPUT = """graph @main(%x: f32[4]) -> (f32[4]) {
  %a = relu(%x) : f32[4]
  %b = exp(%a) : f32[4]
  return %b
}
"""


def checks(*lines: str) -> tuple[Directive, ...]:
    pairs = [line.split(": ", 1) for line in lines]
    return tuple(Directive(kind, text, n) for n, (kind, text) in enumerate(pairs, 1))


@pytest.mark.parametrize(
    "lines",
    [
        ("CHECK: %a = relu(%x)", "CHECK-NEXT: exp", "CHECK-NEXT: return %b"),
        ("CHECK: relu", "CHECK-NOT: relu", "CHECK: return"),
        ("CHECK-NOT: tanh",),
        ("CHECK: exp", "CHECK-NOT: relu"),
    ],
)
def test_output_that_is_as_it_should_be(lines: tuple[str, ...]) -> None:
    assert mismatch(checks(*lines), OUTPUT) is None


@pytest.mark.parametrize(
    "lines, problem",
    [
        (("CHECK: tanh",), "line 1: CHECK: 'tanh' is not in a later line"),
        (("CHECK: exp", "CHECK: relu"), "line 2: CHECK: 'relu' is not in a later line"),
        (("CHECK: graph", "CHECK-NEXT: exp"), "line 2: CHECK-NEXT: 'exp' is not in the next line"),
        (("CHECK-NOT: exp",), "line 1: CHECK-NOT: 'exp' is in '%b = exp(%a) : f32[4]'"),
        (("CHECK-NOT: relu", "CHECK: exp"), "line 1: CHECK-NOT: 'relu' is in '%a = relu(%x)"),
        (("CHECK: relu", "CHECK-NOT: exp", "CHECK: return"), "line 2: CHECK-NOT: 'exp' is in"),
    ],
)
def test_output_that_is_not(lines: tuple[str, ...], problem: str) -> None:
    found = mismatch(checks(*lines), OUTPUT)
    assert found is not None and problem in found


@pytest.mark.parametrize(
    "text, problem",
    [
        ("// A title.\n// RUN: dce\n", "checks nothing"),
        ("// A title.\n// CHECK: x\n", "0 RUN lines"),
        ("// RUN: dce\n// CHECK: x\n", "no title"),
        ("// A title.\n// RUN: dce\n// CHECK-NEVER: x\n", "there is no CHECK-NEVER"),
    ],
)
def test_a_file_that_tests_nothing_is_refused(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.ir"
    path.write_text(text)
    with pytest.raises(AssertionError, match=problem):
        read(path)
