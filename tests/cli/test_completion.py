"""What the shell completes, asked as bash asks it: commands, options, and their values."""

from __future__ import annotations

import shlex

import pytest
from typer.testing import CliRunner

from monograph.cli.main import app


def completed(line: str) -> list[str]:
    """What bash is offered for the last word of a line."""
    words = shlex.split(line) + ([""] if line.endswith(" ") else [])
    asked = {
        "_MONOGRAPH_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    done = CliRunner().invoke(app, [], env=asked, prog_name="monograph")
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("monograph ab", ["ablate"]),
        ("monograph explain --th", ["--threads"]),
        ("monograph list tar", ["targets"]),
        ("monograph explain m.onnx --level O", ["O0", "O1", "O2", "O3"]),
        ("monograph opt g.ir --passes cs", ["cse"]),
        ("monograph ablate g.ir --passes dce,cs", ["dce,cse"]),
        ("monograph ablate g.ir --passes cse,cs", []),
        ("monograph compare m.onnx --with torch,onnx", ["torch,onnxruntime"]),
        ("monograph report m.onnx --compare ire", ["iree"]),
        ("monograph compile m.onnx --target gpu:sm_9", ["gpu:sm_90"]),
        ("monograph convert m.onnx m.x --to o", ["onnx"]),
        ("monograph inspect m.onnx --as fx,sta", ["fx,stablehlo"]),
        ("monograph ops --family sh", ["shape"]),
        ("monograph ops softm", ["softmax"]),
        ("monograph quantize m.onnx --scheme w4a", ["w4a8"]),
        ("monograph bench m.onnx --against iree", ["iree"]),
    ],
)
def test_the_shell_completes(line: str, offered: list[str]) -> None:
    assert completed(line) == offered
