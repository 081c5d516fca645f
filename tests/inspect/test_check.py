"""``check``: what stands in the way of a model, all at once, and the same as an error."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import monograph
from monograph.errors import InputError, MonographError, ParseError, UnsupportedError
from monograph.inspect.check import CheckReport, check
from monograph.ir.graph import Graph
from monograph.ir.text import parse_type
from monograph.passes.base import PassResult
from monograph.passes.dce import DeadCodeElimination

MODEL = """\
import torch
import neighbour


class Net(torch.nn.Module):
    def forward(self, x):
        first = x.to_sparse()
        second = x.to_sparse()
        return torch.relu(first.to_dense() + second.to_dense())


class NeedsWidth(torch.nn.Module):
    def __init__(self, width):
        super().__init__()


def good(x):
    return torch.relu(x) + neighbour.ONE


def wrong_shapes(x):
    return x @ torch.ones(7, 7)


def raises(x):
    return x.nonsense()


def leaves(x):
    raise SystemExit(3)


net = Net()
number = 3
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    pytest.importorskip("torch")
    (tmp_path / "neighbour.py").write_text("ONE = 1\n")
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return str(path)


def line_of(text: str) -> int:
    return 1 + next(i for i, line in enumerate(MODEL.splitlines()) if text in line)


def onnx_file(path: Path, text: str) -> Path:
    onnx = pytest.importorskip("onnx")
    header = '<ir_version: 10, opset_import: ["" : 20, "other" : 1]>\n'
    model = onnx.parser.parse_model(header + text)
    path.write_bytes(model.SerializeToString())
    return path


# What is reported.


def test_every_unsupported_op_of_a_module_comes_with_its_line(program: str) -> None:
    report = check(f"{program}:net", ["f32[4, 4]"])
    assert [(each.op, each.count) for each in report.problems] == [
        ("aten.to_sparse.default", 2),
        ("aten._to_dense.default", 2),
    ]
    for problem, text in zip(report.problems, ("first = ", "return torch.relu(f"), strict=True):
        assert problem.where == f"{program}:{line_of(text)} in forward"
    assert "sparse" in report.problems[0].reason
    assert report.next_step == f"monograph check {program}:net --input 'f32[4, 4]'"


def test_a_module_by_its_class_is_made_first(program: str) -> None:
    report = check(f"{program}:Net", ["f32[4, 4]"])
    assert len(report.problems) == 2


def test_a_supported_function_names_the_call_that_comes_next(program: str) -> None:
    report = check(f"{program}:good", ["f32[4]"])
    expected = "monograph.from_torch(good, *example_inputs)"
    assert report == CheckReport(f"{program}:good", (), expected)


def test_ops_of_the_users_own_are_named_as_calls_of_torch(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "custom.py"
    path.write_text(
        "import torch\n"
        "@torch.library.custom_op('monograph_check::twice', mutates_args=())\n"
        "def twice(x: torch.Tensor) -> torch.Tensor:\n"
        "    return 2 * x\n"
        "twice.register_fake(torch.empty_like)\n"
        "def model(x):\n"
        "    return twice(torch.relu(x))\n"
    )
    report = check(f"{path}:model", ["f32[4]"])
    assert report.problems == ()
    assert report.opaque == ("monograph_check.twice.default",)


@pytest.mark.parametrize(
    "declared",
    ["torch.ones(4)", "(torch.ones(4),)", "lambda: [torch.ones(4)]"],
    ids=["a tensor", "a tuple", "a function"],
)
def test_example_inputs_may_stand_in_the_file(program: str, declared: str) -> None:
    Path(program).write_text(f"{MODEL}example_inputs = {declared}\n")
    assert check(f"{program}:good").problems == ()


def test_every_unsupported_op_of_an_onnx_model_is_reported(tmp_path: Path) -> None:
    text = "m (float[2] x) => (float[2] y) { a = Frob(x) b = Frob(a) c = other.Op(b) y = Reluu(c) }"
    path = onnx_file(tmp_path / "model.onnx", text)
    report = check(str(path))
    assert [(each.op, each.count, each.where, each.nearest) for each in report.problems] == [
        ("ai.onnx.Frob", 2, "Frob that makes 'a'", None),
        ("other.Op", 1, "other.Op that makes 'c'", None),
        ("ai.onnx.Reluu", 1, "Reluu that makes 'y'", "Relu"),
    ]
    assert report.next_step == f"monograph check {path}"


TRACE = """File "/home/me/model.py", line 7, in forward
    return helper(x)
  File "/home/me/layers.py", line 3, in helper
    return F.frob(x)
  File "/usr/lib/python3/site-packages/torch/nn/functional.py", line 99, in frob
    return torch.frob(x)"""


@pytest.mark.parametrize(
    ("key", "note", "line"),
    [
        ("pkg.torch.onnx.stack_trace", TRACE, "/home/me/layers.py:3 in helper"),
        ("monograph.source", "net.py:12 in forward (block.0)", "net.py:12 in forward (block.0)"),
    ],
)
def test_an_onnx_model_that_knows_the_users_line_tells_it(
    tmp_path: Path, key: str, note: str, line: str
) -> None:
    onnx = pytest.importorskip("onnx")
    path = onnx_file(tmp_path / "m.onnx", "m (float[2] x) => (float[2] y) { y = Frob(x) }")
    proto = onnx.load(path)
    proto.graph.node[0].metadata_props.add(key=key, value=note)
    onnx.save(proto, path)
    (problem,) = check(str(path)).problems
    assert problem.where == f"{line} (Frob that makes 'y')"


def test_weights_need_not_be_there_to_check_an_onnx_model(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    path = onnx_file(tmp_path / "m.onnx", "m (float[2] x) => (float[2] y) { y = Add(x, w) }")
    proto = onnx.load(path)
    weight = proto.graph.initializer.add(name="w", data_type=1, dims=[2], data_location=1)
    weight.external_data.add(key="location", value="absent.bin")
    path.write_bytes(proto.SerializeToString())
    assert check(str(path)).problems == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m (float[2, 3] x) => (y) { y = MatMul(x, x) }", "matmul"),
        ("m (float[2] x, double[2] z) => (y) { y = Add(x, z) }", "different dtypes"),
        ("m (float[4] x) => (y) { s = Constant<value_ints = [3]>() y = Reshape(x, s) }", "reshape"),
        ("m (float[4] x) => (y) { y = Softmax<axis = 3>(x) }", "axis"),
    ],
)
def test_types_that_do_not_fit_are_the_error_that_compiling_gives(
    tmp_path: Path, text: str, message: str
) -> None:
    path = onnx_file(tmp_path / "m.onnx", text)
    with pytest.raises(MonographError, match=message) as caught:
        check(str(path))
    with pytest.raises(MonographError) as compiling:
        monograph.compile(path)
    assert str(caught.value) == str(compiling.value)
    assert caught.value.source is not None and str(path) in caught.value.source


def test_what_a_model_gets_wrong_without_harm_is_noted(tmp_path: Path) -> None:
    path = onnx_file(tmp_path / "m.onnx", "m (float[2] x) => (float[3] y) { y = Relu(x) }")
    report = check(str(path))
    assert report.problems == ()
    (note,) = report.notes
    assert note.startswith("the output 'y' is declared to be another type than it is")


def test_a_pass_that_breaks_a_graph_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_types(self: DeadCodeElimination, graph: Graph) -> PassResult:
        graph.outputs[0].type = parse_type("i8[]")
        return PassResult(True)

    monkeypatch.setattr(DeadCodeElimination, "run", break_types)
    path = onnx_file(tmp_path / "m.onnx", "m (float[2] x) => (float[2] y) { y = Relu(x) }")
    with pytest.raises(MonographError) as caught:
        check(str(path))
    assert caught.value.during == "dce"


def test_a_graph_in_text_form_is_verified(tmp_path: Path) -> None:
    path = tmp_path / "graph.ir"
    path.write_text("graph @main(%x: f32[4]) -> (f32[4]) {\n  return %x\n}\n")
    assert check(str(path)).next_step == f"monograph opt {path} -O O2"
    path.write_text("graph @main(%x: f32[4]) -> (f32[4]) {\n  return %y\n}\n")
    with pytest.raises(ParseError, match="%y"):
        check(str(path))


# The same report as an error.


def test_the_report_of_a_module_is_the_error_of_from_torch(program: str) -> None:
    import torch

    from monograph import from_torch

    report = check(f"{program}:net", ["f32[4, 4]"])
    namespace = sys.modules["checked_model"]
    with pytest.raises(UnsupportedError) as caught:
        from_torch(namespace.net, torch.ones(4, 4))
    assert caught.value.problems == report.problems


def test_the_report_of_an_onnx_model_is_the_error_of_from_onnx(tmp_path: Path) -> None:
    from monograph import from_onnx

    path = onnx_file(
        tmp_path / "m.onnx", "m (float[2] x) => (float[2] y) { a = Frob(x) y = Reluu(a) }"
    )
    report = check(str(path))
    with pytest.raises(UnsupportedError, match="2 ops that are not supported") as caught:
        from_onnx(path)
    assert caught.value.problems == report.problems
    assert str(caught.value.hint).endswith(f"; then run: {report.next_step}")


def test_a_report_raises_what_it_holds(tmp_path: Path) -> None:
    text = "m (float[2] x) => (float[2] y) { a = Frob(x) y = Frob(a) }"
    report = check(str(onnx_file(tmp_path / "m.onnx", text)))
    with pytest.raises(UnsupportedError, match="1 unsupported op, in 2 places") as caught:
        report.raise_problems()
    assert caught.value.problems == report.problems
    assert caught.value.hint == f"change these, then run: {report.next_step}"
    CheckReport("model.onnx", (), "").raise_problems()


# What cannot be checked.


@pytest.mark.parametrize(
    ("name", "message", "found"),
    [
        ("missing", "has nothing called 'missing'", None),
        ("number", "needs something to call", "int"),
        ("NeedsWidth", r"NeedsWidth\(\) cannot be made", "'width'"),
        ("", "holds many things", None),
    ],
)
def test_a_name_that_is_no_model_is_refused(
    program: str, name: str, message: str, found: str | None
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        check(f"{program}:{name}", ["f32[4]"])
    assert found is None or found in str(caught.value.found)


def test_a_missing_name_lists_what_the_file_defines(program: str) -> None:
    with pytest.raises(InputError) as caught:
        check(f"{program}:missing", ["f32[4]"])
    expected = "one of Net, NeedsWidth, good, wrong_shapes, raises, leaves, net"
    assert caught.value.expected == expected


@pytest.mark.parametrize(
    ("name", "message", "text"),
    [
        ("wrong_shapes", "same reduction dim", "x @ torch.ones"),
        ("raises", "no attribute 'nonsense'", "x.nonsense"),
        ("leaves", "cannot be captured", "raise SystemExit"),
    ],
)
def test_what_torch_cannot_capture_names_the_users_line(
    program: str, name: str, message: str, text: str
) -> None:
    with pytest.raises(MonographError, match=message) as caught:
        check(f"{program}:{name}", ["f32[4, 4]"])
    assert caught.value.source == f"{program}:{line_of(text)} in {name}"
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    ("content", "found", "line"),
    [
        ("x = 1\nimport nothing_called_so\n", "ModuleNotFoundError: No module named", 2),
        ("def model(:\n", "SyntaxError: invalid syntax", 1),
        ("import sys\n\nsys.exit(2)\n", "SystemExit: 2", 3),
    ],
)
def test_a_file_that_cannot_be_imported_names_the_users_line(
    tmp_path: Path, content: str, found: str, line: int
) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "damaged.py"
    path.write_text(content)
    before = list(sys.path)
    with pytest.raises(InputError, match="cannot be imported") as caught:
        check(f"{path}:model", ["f32[4]"])
    assert str(caught.value.found).startswith(found)
    assert str(caught.value.source).startswith(f"{path}:{line}")
    assert sys.path == before
    assert "checked_damaged" not in sys.modules


def test_example_inputs_that_fail_name_the_users_line(program: str) -> None:
    Path(program).write_text(f"{MODEL}def example_inputs():\n    return 1 / 0\n")
    with pytest.raises(InputError, match="cannot be called") as caught:
        check(f"{program}:good")
    assert caught.value.found == "ZeroDivisionError: division by zero"
    assert "in example_inputs" in str(caught.value.source)


def test_a_python_model_needs_example_inputs(program: str) -> None:
    with pytest.raises(InputError, match="needs example inputs") as caught:
        check(f"{program}:good")
    assert "--input 'f32[1, 4]'" in str(caught.value.hint)


def test_an_example_needs_a_tensor_type(program: str) -> None:
    with pytest.raises(MonographError, match="type"):
        check(f"{program}:good", ["seq<f32[4]>"])


def test_an_example_of_a_module_or_function_may_have_a_free_size(program: str) -> None:
    Path(program).write_text(f"{MODEL}relu = torch.nn.ReLU()\n")
    for name in ("relu", "good"):
        assert check(f"{program}:{name}", ["f32[n]"]).problems == ()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("{folder}/absent.onnx", "there is no file"),
        ("{folder}/absent.py:net", "there is no file"),
        ("{folder}", "is a folder"),
        ("{folder}/words.onnx", "this is not an ONNX model"),
        ("{folder}/empty.onnx", "holds no graph"),
        ("{folder}/words.ir", "expected"),
        ("{folder}/bytes.ir", "bytes.ir"),
        ("{folder}/script.py", "holds many things"),
        ("", "no model is named"),
    ],
)
def test_what_is_no_model_is_refused(tmp_path: Path, model: str, message: str) -> None:
    pytest.importorskip("onnx")
    (tmp_path / "words.onnx").write_text("These are words, not a model. " * 10)
    (tmp_path / "empty.onnx").write_bytes(b"")
    (tmp_path / "words.ir").write_text("These are words, not a graph.\n")
    (tmp_path / "bytes.ir").write_bytes(b"\xff\xfe\x00graph")
    (tmp_path / "script.py").write_text("")
    with pytest.raises(MonographError, match=message):
        check(model.format(folder=tmp_path))


def test_example_inputs_are_refused_where_the_model_has_its_own(tmp_path: Path) -> None:
    path = onnx_file(tmp_path / "m.onnx", "m (float[2] x) => (float[2] y) { y = Relu(x) }")
    with pytest.raises(InputError, match="for Python models only"):
        check(str(path), ["f32[4]"])
