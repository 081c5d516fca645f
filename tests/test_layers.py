"""Imports point one way. The rooms of the package are ordered, and a module imports from its own
room and from earlier ones only, also inside functions and under ``TYPE_CHECKING``.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "monograph"

ROOMS: tuple[frozenset[str], ...] = (
    frozenset({"dataclass"}),
    frozenset({"cpu_quota", "errors"}),
    frozenset({"config", "logs", "priority", "progress", "switches"}),
    frozenset({"deadline", "entry_points"}),
    frozenset({"ir"}),
    frozenset({"ops"}),
    frozenset({"functional"}),
    frozenset({"rewrite"}),
    frozenset({"passes", "autodiff"}),
    frozenset({"frontends"}),
    frozenset({"exporters"}),
    frozenset({"fusion"}),
    frozenset({"kernel"}),
    frozenset({"program"}),
    frozenset({"targets"}),
    frozenset({"runtime"}),
    frozenset({"specialize"}),
    frozenset({"tuning"}),
    frozenset({"compiler"}),
    frozenset({"bindings"}),
    frozenset({"api", ""}),
    frozenset({"fx"}),
    frozenset({"inspect", "onnxruntime", "quantization"}),
    frozenset({"report"}),
    frozenset({"cli"}),
    frozenset({"__main__"}),
)
"""The order; rooms in one set are neighbours that do not know each other.

A module that is not in a folder is a room of its own; ``""`` is the package itself, whose
``__init__`` only lists the public names.
"""

EXCEPTIONS = {
    # Python's operators on values (`x + 1`) find their functions in a table that the ops fill;
    # the first use of an operator must see to it that they have.
    ("monograph/ir/operators.py", "monograph.ops"),
    # NumPy asks a traced value what its functions mean; what they mean is a frontend's affair.
    ("monograph/ir/operators.py", "monograph.frontends.numpy"),
    ("monograph/ir/node.py", "monograph.frontends.numpy.methods"),
    # Whoever looks an op up by name must find the registry full.
    ("monograph/ir/op.py", "monograph.ops"),
    # A notebook asks an object how it looks (`_repr_html_`), and people ask it for a drawing or a
    # report: three methods that call what draws, which nobody else has to load.
    ("monograph/ir/graph.py", "monograph.report.svg"),
    ("monograph/ir/graph.py", "monograph.report.notebook"),
    ("monograph/runtime/compile_report.py", "monograph.report.write"),
    ("monograph/runtime/compiled.py", "monograph.report.notebook"),
    # `compiled.profile(*inputs)`, for the same reason.
    ("monograph/runtime/compiled.py", "monograph.inspect.profile"),
}
"""(file, module) pairs that are allowed though they point the wrong way, each with its reason."""

HEAVY = ("torch", "onnx", "jax", "llvmlite", "triton")


class Import(NamedTuple):
    """One import statement: who imports what, and in which line."""

    file: str
    line: int
    module: str
    names: tuple[str, ...] = ()
    """What is imported from the module, in full: names, or modules inside it."""


def rank_of(room: str) -> int:
    """The place of a room in the order."""
    for rank, rooms in enumerate(ROOMS):
        if room in rooms:
            return rank
    raise AssertionError(f"monograph/{room} has no place in the order: add it to ROOMS")


def room_of(module: str) -> str:
    """``monograph.ir.graph`` is in the room ``ir``; the package itself in the room ``""``."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def imports_of(path: Path) -> Iterator[Import]:
    """The modules of this package that a file imports, wherever in the file."""
    file = path.relative_to(ROOT).as_posix()
    package = list(path.relative_to(ROOT).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text())):
        names: tuple[str, ...] = ()
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            # `from monograph import ops` imports the module monograph.ops; __version__ is a string.
            found = [alias.name for alias in node.names if alias.name != "__version__"]
            names = tuple(f"{source}.{name}" for name in found)
            modules = list(names) if source == "monograph" else [source]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            modules = [arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant)]
        else:
            continue
        for module in modules:
            if module == "monograph" or module.startswith("monograph."):
                yield Import(file, node.lineno, module, names)


@cache
def all_imports() -> tuple[Import, ...]:
    """Every import inside the package, its ``__init__`` excepted."""
    files = [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]
    return tuple(each for path in files for each in imports_of(path))


def is_allowed(each: Import) -> bool:
    """Whether an import points to its own room or to an earlier one."""
    here = room_of(each.file.removesuffix(".py").replace("/", "."))
    there = room_of(each.module)
    return here == there or rank_of(there) < rank_of(here)


def test_imports_point_one_way() -> None:
    wrong = [
        f"{each.file}:{each.line} imports {each.module}"
        for each in all_imports()
        if not is_allowed(each) and (each.file, each.module) not in EXCEPTIONS
    ]
    assert not wrong, "\n".join(wrong)


PROCESSOR = ("monograph.targets.cpu", "monograph.runtime.cpu")
KNOW_THE_PROCESSOR = {
    # Quick calls: a built-in function of Python that enters native code itself.
    "monograph/runtime/compiled.py",
    # Searching: knobs of schedules and tilings, and kernels that are measured alone.
    "monograph/tuning/programs.py",
    "monograph/tuning/search.py",
    # Tools that show or measure this machine's code: listings, records of threads, roofs.
    "monograph/inspect/ablate.py",
    "monograph/inspect/catalogue.py",
    "monograph/inspect/doctor.py",
    "monograph/inspect/editable_schedules.py",
    "monograph/inspect/listings.py",
    "monograph/inspect/roofline.py",
    "monograph/inspect/stream_kernels.py",
    "monograph/inspect/timeline.py",
}
"""Files that still import the processor's target or its runtime: none may be added."""
FIND_BY_NAME = ("monograph/targets/names.py", "monograph/runtime/device.py")
"""Files in which targets and devices are found by their names."""


def test_the_compiler_and_all_before_it_know_no_processor() -> None:
    own = ("monograph/targets/cpu/", "monograph/runtime/cpu/", *FIND_BY_NAME)
    found = {
        each.file
        for each in all_imports()
        if knows_the_processor(each) and not each.file.startswith(own)
    }
    assert found == KNOW_THE_PROCESSOR


def knows_the_processor(each: Import) -> bool:
    """Whether an import reaches the processor's target or its runtime."""
    return any(name.startswith(PROCESSOR) for name in (each.module, *each.names))


@pytest.mark.parametrize(
    "text",
    [
        "from monograph.targets import cpu\n",
        "from monograph.targets.cpu import machine\n",
        "from monograph import runtime, targets\nimport monograph.runtime.cpu.native\n",
        "def f():\n    from ..targets import cpu as processor\n",
        "import importlib\nimportlib.import_module('monograph.targets.cpu.build')\n",
    ],
)
def test_who_imports_the_processor_is_found(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    path = tmp_path / "monograph" / "tuning" / "search.py"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert any(map(knows_the_processor, imports_of(path)))


def test_every_exception_is_needed() -> None:
    pointing_back = {(each.file, each.module) for each in all_imports() if not is_allowed(each)}
    assert pointing_back >= EXCEPTIONS


@pytest.mark.parametrize(
    "text, file",
    [
        ("import monograph.ops\n", "monograph/ir/graph.py"),
        ("def f():\n    from monograph.passes.cse import run\n", "monograph/ops/data.py"),
        ("from ..api import compile\n", "monograph/targets/base.py"),
        ("from monograph import cli\n", "monograph/api.py"),
        ("import importlib\nimportlib.import_module('monograph.cli')\n", "monograph/api.py"),
        ("from monograph.autodiff.vjp import grad\n", "monograph/passes/cse.py"),
        ("import monograph\n", "monograph/ir/graph.py"),
    ],
)
def test_a_wrong_import_is_found(
    text: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert not all(map(is_allowed, imports_of(path)))


def run_python(program: str) -> str:
    """What a program prints in a fresh interpreter."""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_package_is_quick() -> None:
    program = (
        "import time; start = time.perf_counter(); import monograph; "
        "print(time.perf_counter() - start)"
    )
    best = min(float(run_python(program)) for _ in range(5))
    assert best < 0.3, f"import monograph took {best:.3f} s at best"


FIRST = """
import time
import numpy as np
from monograph import functional as F
{load}
import monograph
x = np.ones((64, 256), np.float32)
start = time.process_time()
monograph.compile(lambda x: F.tanh(F.relu(x * 2 + 1)) * x, x, cache=False)(x)
print(time.process_time() - start)
"""


@pytest.mark.parametrize("load, most", [("from monograph import compile", 0.5), ("", 1.2)])
def test_the_first_program_is_compiled_soon(load: str, most: float) -> None:
    best = min(float(run_python(FIRST.format(load=load))) for _ in range(3))
    assert best < most, f"the first program took {best:.3f} s of processor time"


@pytest.mark.parametrize("module", ["monograph", "monograph.api", "monograph.functional"])
def test_importing_loads_no_framework_and_no_target(module: str) -> None:
    loaded = run_python(f"import sys, {module}; print(*sys.modules)").split()
    assert not set(HEAVY) & set(loaded)


def test_loading_the_compiler_leaves_the_garbage_collector_as_it_was() -> None:
    program = "import gc, monograph; {}monograph.compile; print(gc.isenabled())"
    assert run_python(program.format("")).strip() == "True"
    assert run_python(program.format("gc.disable(); ")).strip() == "False"
