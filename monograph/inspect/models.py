"""A model as the command line names it, compiled.

``model.onnx``, ``graph.ir``, ``program.mono`` (compiled before), or ``file.py:name`` of a torch
module, a torch function, a function of Monograph's own ops, or a graph.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.inspect.python_files import (
    blaming,
    check_named,
    declared_examples,
    find_target,
    folder_on_path,
    load_file,
    made,
    no_notices,
    other_file,
    split_name,
    torch_example,
    uses_torch,
)
from monograph.ir.graph import Graph
from monograph.ir.text.files import load_graph
from monograph.ir.verify import verify
from monograph.progress import announce
from monograph.runtime.compile import Options
from monograph.runtime.compiled import CompiledModel, Executable
from monograph.runtime.loading import load
from monograph.runtime.models import compile_model

WHAT_IT_TAKES = "a .onnx, .ir or .mono file, or file.py:name of a module or function"


@dataclass(frozen=True)
class Model:
    """Something to compile: what ``monograph.compile`` takes, and where it came from.

    ``subject`` is None for a ``.mono`` file, which is compiled already. ``is_torch`` says that the
    subject can also be called by torch, on ``examples``.
    """

    name: str
    path: Path
    subject: Any
    examples: tuple[Any, ...] = ()
    is_torch: bool = False

    @property
    def is_compiled(self) -> bool:
        """Whether it is a ``.mono`` file."""
        return self.subject is None

    def compiled(self, options: Options) -> CompiledModel:
        """Compile it, or load it if that was done before."""
        announce("reading the model")
        if self.subject is None:
            return load(self.path, threads=options.threads)
        if self.path.suffix != ".py":
            return compile_model(self.subject, options=options)
        blame = blaming(self.path, "the model cannot be captured", only_own=True)
        with folder_on_path(self.path), no_notices(), blame:
            return compile_model(self.subject, *self.examples, options=options, in_rows=True)


def find_model(text: str, types: Sequence[str] = ()) -> Model:
    """The model that a person means; ``types`` are the example inputs of a Python model."""
    named = split_name(text)
    if named is not None:
        return _python_model(text, *named, types)
    path = other_file(text, types, WHAT_IT_TAKES, "--input name=file.npy gives an input a value")
    if path.suffix == ".mono":
        return Model(text, path, None)
    if path.suffix == ".ir":
        graph = load_graph(path)
        verify(graph)
        return Model(text, path, graph)
    if importlib.util.find_spec("onnx") is None:
        raise InputError("reading ONNX models needs onnx", hint="pip install 'monograph[onnx]'")
    return Model(text, path, path)


def _python_model(text: str, path: Path, name: str, types: Sequence[str]) -> Model:
    check_named(path, name)
    with folder_on_path(path), no_notices():
        namespace = load_file(path)
        subject, _ = made(find_target(namespace, path, name), path, name)
        if isinstance(subject, Graph):
            return Model(text, path, subject)
        is_torch = uses_torch(namespace, subject, ())
        if types:
            examples = tuple(torch_example(each) if is_torch else each for each in types)
            _refuse_free_sizes(subject, is_torch, examples)
        else:
            examples = tuple(declared_examples(namespace, path, text))
        return Model(text, path, subject, examples, uses_torch(namespace, subject, examples))


def _refuse_free_sizes(subject: Any, is_torch: bool, examples: Sequence[Any]) -> None:
    """A plain function of torch's, known by the tensors that it is given, needs all their sizes."""
    free = [each for each in examples if isinstance(each, str)]
    if is_torch and free and not hasattr(subject, "named_parameters"):
        raise InputError(
            "free sizes are for torch modules, and this is a function",
            expected="a type with numbers alone, such as f32[1, 4]",
            found=free[0],
            hint="make the function the forward of a torch.nn.Module",
        )


def executable_of(compiled: CompiledModel) -> Executable:
    """The executable inside a compiled model: flat inputs, flat outputs."""
    return compiled if isinstance(compiled, Executable) else compiled.executable
