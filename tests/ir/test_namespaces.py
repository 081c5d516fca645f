"""Ops of the frontends are found by name, by whoever reads a graph and whenever."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from monograph.errors import InputError, ParseError
from monograph.ir.graph import Graph
from monograph.ir.namespaces import NAMESPACES
from monograph.ir.op import lookup, registry
from monograph.ir.text.parser import parse
from monograph.ir.text.printer import print_graph

ROOT = Path(__file__).parents[2]


def deferred() -> Graph:
    """A reshape to a shape that is an input."""
    pytest.importorskip("onnx")
    from tests.frontends.onnx.models import graph_of

    return graph_of(
        "m (float[6] x, int64[2] s) => (float[a, b] y) { y = Reshape(x, s) }", domains=""
    )


def from_data() -> Graph:
    """A size that is read from data, with a check of it, and a call of torch."""
    torch = pytest.importorskip("torch")
    from monograph import from_torch

    def program(x: torch.Tensor) -> torch.Tensor:
        torch._assert_async(x[0] < 9, "too many")
        count = x[0].item()
        torch._check(count >= 0)
        torch._check(count < 10)
        return torch.ops.monograph_test.twice(torch.zeros(count))

    if not hasattr(torch.ops.monograph_test, "twice"):
        twice = torch.library.custom_op(
            "monograph_test::twice",
            lambda x: 2 * x,
            mutates_args=(),
            schema="(Tensor x) -> Tensor",
        )
        twice.register_fake(torch.empty_like)
    return from_torch(program, torch.tensor([3]))


@pytest.mark.parametrize(
    ("graph", "ops"),
    [
        (deferred, {"onnx.deferred"}),
        (from_data, {"torch.bind_dim", "torch.check", "torch.call"}),
    ],
)
def test_text_with_ops_of_a_frontend_parses_where_none_is_imported(
    graph: object, ops: set[str], tmp_path: Path
) -> None:
    assert callable(graph)
    made = graph()
    assert ops <= {node.op.name for node in made.walk()}
    path = tmp_path / "graph.ir"
    path.write_text(print_graph(made))
    program = (
        "import sys\n"
        "from monograph.ir.text.parser import parse\n"
        "from monograph.ir.text.printer import print_graph\n"
        "assert not any(name.startswith('monograph.frontends') for name in sys.modules)\n"
        "text = open(sys.argv[1]).read()\n"
        "assert print_graph(parse(text)) == text\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr


def test_every_op_of_a_frontend_is_in_its_namespace() -> None:
    for name, namespace in NAMESPACES.items():
        pytest.importorskip(namespace.package)
        for module in namespace.modules:
            import_module(module)
            assert [cls for cls in registry().values() if cls.__module__ == module], name
    outside = {
        op: cls.__module__
        for op, cls in registry().items()
        if cls.__module__.startswith("monograph.frontends.")
    }
    for op, module in outside.items():
        assert module in NAMESPACES[op.partition(".")[0]].modules, op


def test_an_unknown_op_of_a_namespace_is_an_error_like_any_other() -> None:
    pytest.importorskip("onnx")
    text = "graph @main(%x: f32[4]) -> (f32[4]) {\n  %y = onnx.defered(%x) : f32[4]\n  return %y\n}"
    with pytest.raises(ParseError, match=r"there is no op called `onnx\.defered`") as caught:
        parse(text)
    assert "onnx.deferred" in str(caught.value.hint)
    with pytest.raises(InputError, match=r"there is no op called 'nowhere\.op'"):
        lookup("nowhere.op")


@pytest.mark.parametrize("name", ["onnx.deferred", "torch.check"])
def test_a_package_that_is_not_installed_is_named(name: str) -> None:
    package = name.partition(".")[0]
    program = (
        "import sys\n"
        f"sys.modules[{package!r}] = None\n"  # as if it were not installed
        "from monograph.errors import ParseError\n"
        "from monograph.ir.text.parser import parse\n"
        "try:\n"
        f"    parse('graph @main(%x: f32[4]) -> () {{\\n  {name}(%x)\\n  return\\n}}')\n"
        "except ParseError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"the ops of {package!r} need the package {package}\n")
    assert f"pip install 'monograph[{package}]'" in done.stdout
    assert f"{name}(%x)" in done.stdout  # the line that needs it
