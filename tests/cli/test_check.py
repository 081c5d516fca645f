"""``monograph check``, as a person reads it: what it prints, at 80 columns, and its exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_cli import monograph

NET = """\
import torch


def net(x):
    return torch.relu(x.to_sparse().to_dense())


example_inputs = (torch.ones(2, 2),)
"""


def write_onnx(path: Path, body: str) -> None:
    onnx = pytest.importorskip("onnx")
    header = '<ir_version: 10, opset_import: ["" : 20, "com.example.accelerated" : 1]>\n'
    model = onnx.parser.parse_model(f"{header}m (float[2] x) => (float[2] y) {{ {body} }}")
    path.write_bytes(model.SerializeToString())


def test_a_model_that_is_supported_exits_with_0_and_names_the_next_step(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    write_onnx(path, "y = Relu(x)")
    done = monograph("check", str(path))
    assert done.returncode == 0, done.stderr
    assert done.stdout == (f"{path}: every op is supported\nnext: monograph.from_onnx('{path}')\n")


def test_a_report_on_an_onnx_model_reads_top_to_bottom(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    write_onnx(path, "a = Reluu(x) b = Reluu(a) y = com.example.accelerated.Frob(b)")
    done = monograph("check", str(path))
    assert done.returncode == 1
    assert done.stderr == ""
    assert (
        done.stdout
        == f"""\
{path}: 2 unsupported ops, in 3 places

ai.onnx.Reluu, 2 times
  first at  Reluu that makes 'a'
  why       ONNX has no such op in opset 20
  nearest   Relu

com.example.accelerated.Frob, once
  first at  com.example.accelerated.Frob that makes 'y'
  why       no converter is written for it
  nearest   no supported op has a name like it

next: replace these ops, then run
  monograph check {path}
"""
    )


def test_a_report_on_a_python_model_shows_the_line_of_code(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "net.py"
    path.write_text(NET)
    done = monograph("check", f"{path}:net")
    assert done.returncode == 1
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == f"{path}:net: 2 unsupported ops, in 2 places"
    first = lines.index("aten.to_sparse.default, once")
    assert f"{path}:5 in net" in " ".join(" ".join(lines[first + 1 : first + 3]).split())
    assert "              return torch.relu(x.to_sparse().to_dense())" in lines
    assert "aten._to_dense.default, once" in lines
    assert lines[-1] == f"  monograph check {path}:net"


def test_a_report_fits_80_columns(tmp_path: Path) -> None:
    """All but paths and names, which stay whole so that they can be copied."""
    path = tmp_path / "model.onnx"
    node = "encoder_layer_eleven_attention_self_query_projection_with_a_name_that_goes_on"
    write_onnx(path, f"{node} = com.example.accelerated.Frob(x) y = Relu({node})")
    done = monograph("check", str(path))
    body = [line for line in done.stdout.splitlines() if str(path) not in line]
    assert any(node in line for line in body)
    assert [line for line in body if len(line) > 80 and node not in line] == []
    assert [line for line in body if line != line.rstrip()] == []


def test_ops_that_stay_calls_of_torch_are_told(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "custom.py"
    path.write_text(
        "import torch\n"
        "@torch.library.custom_op('mine::twice', mutates_args=())\n"
        "def twice(x: torch.Tensor) -> torch.Tensor:\n"
        "    return 2 * x\n"
        "twice.register_fake(torch.empty_like)\n"
        "def net(x):\n"
        "    return twice(x)\n"
    )
    done = monograph("check", f"{path}:net", "--input", "f32[4]")
    assert done.returncode == 0, done.stderr
    assert "opaque: mine.twice.default, which stay calls of torch" in done.stdout


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ("{folder}/absent.onnx", "there is no file '{folder}/absent.onnx'"),
        ("{folder}/words.onnx", "{folder}/words.onnx: this is not an ONNX model"),
        ("{folder}/absent.py:net", "there is no file '{folder}/absent.py'"),
        ("{folder}/net.py:absent", "{folder}/net.py has nothing called 'absent'"),
        ("{folder}/net.py", "'{folder}/net.py' holds many things"),
        ("{folder}/damaged.py:net", "{folder}/damaged.py cannot be imported"),
    ],
)
def test_what_cannot_be_checked_is_one_message(tmp_path: Path, model: str, problem: str) -> None:
    pytest.importorskip("torch")
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "words.onnx").write_text("These are words, not a model. " * 10)
    (tmp_path / "damaged.py").write_text("import nothing_called_so\n")
    done = monograph("check", model.format(folder=tmp_path))
    assert done.returncode == 1
    assert done.stdout == ""
    told = " ".join(done.stderr.split())
    assert told.startswith(f"error: {problem.format(folder=tmp_path)}")
    assert "Traceback" not in done.stderr


def test_a_function_of_our_own_ops_is_traced(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(
        "def double(x): return x * 2\ndef add(x, y): return x + y\nexample_inputs = ('f32[n]',)\n"
    )
    found = monograph("check", f"{path}:double")
    assert found.returncode == 0 and "every op is supported" in found.stdout
    found = monograph("check", f"{path}:add")
    assert found.returncode == 1 and "is not called with 1 arguments" in found.stderr


def test_types_that_do_not_fit_exit_with_an_error_that_names_the_node(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    write_onnx(path, "a = Unsqueeze(x, x) y = Relu(a)")
    done = monograph("check", str(path))
    assert done.returncode != 0
    assert "Unsqueeze that makes 'a'" in done.stderr
    assert done.stdout == ""


def test_what_is_wrong_without_harm_is_a_note(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    write_onnx(path, "y = Unsqueeze<axes = [0]>(x)")
    done = monograph("check", str(path))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"{path}: every op is supported"
    assert lines[1].startswith("note: Unsqueeze that makes 'y' is no node of opset 20")
