"""What few models hold is imported when a model holds it, and not before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnx")

from monograph.frontends.onnx.registry import converters
from monograph.ir.op import all_ops

ROOT = Path(__file__).resolve().parent.parent.parent.parent
PROGRAM = """
import sys
from onnx import helper
import monograph

op, domain = sys.argv[1:]
ends = [helper.make_tensor_value_info(name, 1, [2, 3]) for name in "xy"]
node = helper.make_node(op, ["x"], ["y"], domain=domain)
graph = helper.make_graph([node], "g", ends[:1], ends[1:])
opsets = [helper.make_opsetid("", 20)]
if domain:
    opsets.append(helper.make_opsetid(domain, 1))
monograph.from_onnx(helper.make_model(graph, opset_imports=opsets))
ours = [name for name in sys.modules if name.startswith("monograph.frontends.onnx.")]
folders = {name.split(".")[3] for name in ours}
print(*sorted(folders & {"microsoft", "ml", "uncommon"}))
print("monograph.ops.strings" in sys.modules, "monograph.ops.image" in sys.modules)
"""


@pytest.mark.parametrize(
    "op, domain, folders",
    [
        ("Softmax", "", ""),
        ("Erf", "", ""),
        ("QuickGelu", "com.microsoft", "microsoft"),
        ("Normalizer", "ai.onnx.ml", "ml"),
    ],
)
def test_converters_are_imported_when_a_model_asks(op: str, domain: str, folders: str) -> None:
    command = [sys.executable, "-c", PROGRAM, op, domain]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found, ops = done.stdout.splitlines()
    assert found == folders
    assert ops == "False False"


def test_an_op_is_in_one_place() -> None:
    """What an op of ours names as its own is found before what is imported on demand."""
    derived = {op.onnx_name.rpartition("::")[::2] for op in all_ops().values() if op.onnx_name}
    for key, versions in converters().items():
        folders = {each.convert.__module__.split(".")[3] for each in versions}
        assert len(folders) == 1, key
        assert folders == {"converters"} or key not in derived, key
