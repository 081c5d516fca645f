"""Can this model be compiled? Every op that cannot, at once, before any work is done.

A model is named as on the command line: the path of an ONNX or ``.ir`` file, or a Python file and
the name of a module, function or class in it (``model.py:net``). A Python model needs example
inputs: types on the command line, or ``example_inputs`` in the file.

A Python file is run as its own program would run it, its folder first on the path. What goes wrong
in it is told as an error of ours that names its line, with the user's own error as the cause.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import shlex
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from monograph.errors import InputError, MonographError, Problem, UnsupportedError
from monograph.ir.dims import is_static
from monograph.ir.text.files import load_graph
from monograph.ir.text.parser import parse_type
from monograph.ir.types import TensorType
from monograph.ir.verify import verify

_WHAT_IT_TAKES = "a .onnx or .ir file, or file.py:name of a module or function"


@dataclass(frozen=True)
class CheckReport:
    """What stands in the way of a model, and what to run next.

    ``next_step`` is a command, or a call from Python: how to go on with a model whose every op is
    supported, or how to check another again once it has been changed. ``opaque`` are ops of the
    user's own that are no obstacle, but stay calls of torch, which nothing here can make faster.
    """

    model: str
    problems: tuple[Problem, ...]
    next_step: str
    opaque: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The report in one line."""
        if not self.problems:
            return f"{self.model}: every op is supported"
        ops, places = len(self.problems), sum(problem.count for problem in self.problems)
        return f"{self.model}: {_count(ops, 'unsupported op')}, in {_count(places, 'place')}"

    def raise_problems(self) -> None:
        """Raise the report as an error, if there is anything to report."""
        if self.problems:
            hint = f"change these, then run: {self.next_step}"
            raise UnsupportedError(self.summary, self.problems, hint=hint)


def check(model: str, inputs: Sequence[str] = ()) -> CheckReport:
    """Look a model over; nothing is imported into a graph, and nothing is run but the exporter."""
    path, colon, name = model.rpartition(":")
    if colon and path.endswith(".py"):
        return _check_python(model, Path(path), name, inputs)
    found = Path(model)
    if not found.is_file():
        what = f"{model!r} is a folder" if found.is_dir() else f"there is no file {model!r}"
        raise InputError(what, expected=_WHAT_IT_TAKES)
    if found.suffix == ".py":
        raise _unnamed(model)
    if inputs:
        raise InputError(
            "example inputs are for Python models only",
            found=f"{model}, which says of itself what it takes",
        )
    if found.suffix == ".ir":
        verify(load_graph(found))
        return CheckReport(model, (), f"monograph opt {shlex.quote(model)} -O O2")
    from monograph.frontends import onnx

    problems = tuple(onnx.find_unsupported(found))
    going_on = f"monograph.from_onnx({model!r})"
    return CheckReport(model, problems, _again(model) if problems else going_on)


def _check_python(model: str, path: Path, name: str, inputs: Sequence[str]) -> CheckReport:
    if not name:
        raise _unnamed(str(path))
    if not path.is_file():
        raise InputError(f"there is no file {str(path)!r}", expected="a Python file")
    if importlib.util.find_spec("torch") is None:
        raise InputError(
            "checking a Python model needs torch", hint="pip install 'monograph[torch]'"
        )
    from monograph.frontends.torch import capture, find_unsupported

    with _folder_on_path(path), _no_notices():
        namespace = _load(path)
        target, spelled = _target(namespace, path, name), name
        if isinstance(target, type):
            with _blaming(path, f"{name}() cannot be made", "name an object or a function instead"):
                target, spelled = target(), f"{name}()"
        if inputs:
            examples: Sequence[Any] = [_example(text) for text in inputs]
        else:
            examples = _declared_examples(namespace, path, model)
        program = _captured(capture.export, target, examples, path)
        problems = tuple(find_unsupported(program.graph_module))
    going_on = f"monograph.from_torch({spelled}, *example_inputs)"
    next_step = _again(model, inputs) if problems else going_on
    return CheckReport(model, problems, next_step, _opaque_calls(program.graph_module))


def _captured(export: Any, target: Any, examples: Sequence[Any], path: Path) -> Any:
    """The program that torch's exporter makes of the model; what stops it names the user's line."""
    try:
        with _blaming(path, "the model cannot be captured"):
            return export(target, examples, None, None, strict=False, training=False)
    except UnsupportedError as error:
        raise error.with_context(source=_line_in(path, error.__cause__)) from error.__cause__


def _opaque_calls(program: Any) -> tuple[str, ...]:
    """The ops of a captured program, and of the bodies in it, that stay calls of torch."""
    import torch

    from monograph.frontends.torch.custom_ops import is_custom
    from monograph.frontends.torch.registry import find_converter

    graphs = [part.graph for part in program.modules() if isinstance(part, torch.fx.GraphModule)]
    targets = {node.target: None for graph in graphs for node in graph.nodes}
    return tuple(
        str(target)
        for target in targets
        if isinstance(target, torch._ops.OpOverload)
        and is_custom(target)
        and not find_converter(str(target))
    )


def _again(model: str, inputs: Sequence[str] = ()) -> str:
    """The command that makes this report."""
    options = [part for text in inputs for part in ("--input", text)]
    return shlex.join(["monograph", "check", model, *options])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _unnamed(path: str) -> InputError:
    return InputError(f"{path!r} holds many things", hint=f"say which: {path}:name_of_the_model")


# The user's file.


def _load(path: Path) -> ModuleType:
    """The user's file, imported under a name of its own."""
    spec = importlib.util.spec_from_file_location(f"checked_{path.stem}", path)
    assert spec is not None and spec.loader is not None  # a .py file always has a loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        with _blaming(path, f"{path} cannot be imported"):
            spec.loader.exec_module(module)
    except InputError:
        del sys.modules[spec.name]
        raise
    return module


def _target(namespace: ModuleType, path: Path, name: str) -> Any:
    if not hasattr(namespace, name):
        own = [key for key, value in vars(namespace).items() if _may_be_meant(value, namespace)]
        raise InputError(
            f"{path} has nothing called {name!r}",
            expected=f"one of {', '.join(own)}" if own else "the name of a module or function",
        )
    return getattr(namespace, name)


def _may_be_meant(value: Any, namespace: ModuleType) -> bool:
    """Whether something in a file is a model or a function that the file itself defines."""
    import torch

    defined_here = getattr(value, "__module__", None) == namespace.__name__
    return isinstance(value, torch.nn.Module) or (callable(value) and defined_here)


def _declared_examples(namespace: ModuleType, path: Path, model: str) -> Sequence[Any]:
    declared = getattr(namespace, "example_inputs", None)
    if declared is None:
        raise InputError(
            "a Python model needs example inputs",
            hint=f"monograph check {model} --input 'f32[1, 4]', or define example_inputs there",
        )
    if not callable(declared):
        given = declared
    else:
        with _blaming(path, "example_inputs() cannot be called"):
            given = declared()
    return given if isinstance(given, tuple | list) else (given,)


def _example(text: str) -> Any:
    """A tensor of the type that was named: random floats, or zeros."""
    import torch

    from monograph.frontends.torch.types import dtype_to_torch

    type_ = parse_type(text, {})
    if not isinstance(type_, TensorType) or not is_static(type_.shape):
        raise InputError(
            f"{text!r} is not the type of an example", expected="a tensor type such as f32[1, 4]"
        )
    dtype = dtype_to_torch(type_.dtype)
    if type_.dtype.is_float:
        return torch.randn(type_.shape).to(dtype)
    return torch.zeros(type_.shape, dtype=dtype)


@contextlib.contextmanager
def _folder_on_path(path: Path) -> Iterator[None]:
    """Let the file import its neighbours, as it could if it were run."""
    before = list(sys.path)
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        yield
    finally:
        sys.path[:] = before


@contextlib.contextmanager
def _no_notices() -> Iterator[None]:
    """Keep torch from logging the tracebacks of errors that are reported anyway."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def _blaming(path: Path, what: str, hint: str | None = None) -> Iterator[None]:
    """Tell what the user's code raises as an error that names the user's line."""
    try:
        yield
    except MonographError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(
            what,
            found=f"{type(error).__name__}: {error}".strip(": "),
            source=_line_in(path, error),
            hint=hint,
        ) from error


def _line_in(path: Path, error: BaseException | None) -> str | None:
    """The innermost line of the user's file in an error's traceback."""
    if error is None:
        return None
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename) in (path, path.resolve())]
    return f"{path}:{own[-1].lineno} in {own[-1].name}" if own else None
