"""Can this model be compiled? Every op that cannot, at once, before any work is done.

A model is named as on the command line: the path of an ONNX or ``.ir`` file, or a Python file and
the name of a module, function or class in it (``model.py:net``). A Python model needs example
inputs: types on the command line, or ``example_inputs`` in the file.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from monograph.errors import InputError, Problem
from monograph.ir.dims import is_static
from monograph.ir.text.files import load_graph
from monograph.ir.text.parser import parse_type
from monograph.ir.types import TensorType
from monograph.ir.verify import verify


@dataclass(frozen=True)
class CheckReport:
    """What stands in the way of a model, and the call that comes next if nothing does."""

    model: str
    problems: tuple[Problem, ...]
    next_step: str


def check(model: str, inputs: Sequence[str] = ()) -> CheckReport:
    """Look a model over; nothing is imported into a graph, and nothing is run but the exporter."""
    path, colon, name = model.rpartition(":")
    if colon and path.endswith(".py"):
        return _check_python(model, Path(path), name, inputs)
    found = Path(model)
    if not found.is_file():
        raise InputError(
            f"there is no file {model!r}",
            expected="a .onnx or .ir file, or file.py:name of a module or function",
        )
    if found.suffix == ".ir":
        verify(load_graph(found))
        return CheckReport(model, (), f"monograph opt {model} -O O2")
    if found.suffix == ".py":
        raise InputError(
            f"{model!r} holds many things", hint=f"say which: {model}:name_of_the_model"
        )
    from monograph.frontends import onnx

    problems = tuple(onnx.find_unsupported(found))
    return CheckReport(model, problems, f'monograph.from_onnx("{model}")')


def _check_python(model: str, path: Path, name: str, inputs: Sequence[str]) -> CheckReport:
    if importlib.util.find_spec("torch") is None:
        raise InputError(
            "checking a Python model needs torch", hint="pip install 'monograph[torch]'"
        )
    from monograph.frontends.torch import capture, find_unsupported

    namespace = _load(path)
    if not hasattr(namespace, name):
        public = ", ".join(key for key in vars(namespace) if not key.startswith("_"))
        raise InputError(f"{path} has nothing called {name!r}", expected=public)
    target = getattr(namespace, name)
    target = target() if isinstance(target, type) else target
    if inputs:
        examples: Sequence[Any] = [_example(text) for text in inputs]
    else:
        examples = _declared_examples(namespace, model)
    program = capture.export(target, examples, None, None, strict=False, training=False)
    problems = tuple(find_unsupported(program.graph_module))
    return CheckReport(model, problems, f"monograph.from_torch({name}, *example_inputs)")


def _load(path: Path) -> Any:
    """The user's file, imported under a name of its own; what it raises is the user's to see."""
    if not path.is_file():
        raise InputError(f"there is no file {str(path)!r}", expected="a Python file")
    spec = importlib.util.spec_from_file_location(f"checked_{path.stem}", path)
    assert spec is not None and spec.loader is not None  # a .py file always has a loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _declared_examples(namespace: Any, model: str) -> Sequence[Any]:
    declared = getattr(namespace, "example_inputs", None)
    if declared is None:
        raise InputError(
            "a Python model needs example inputs",
            hint=f"monograph check {model} --input 'f32[1, 4]', or define example_inputs there",
        )
    given = declared() if callable(declared) else declared
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
