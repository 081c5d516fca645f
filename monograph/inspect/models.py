"""A model as the command line names it, compiled.

``model.onnx``, ``graph.ir``, ``program.mono`` (compiled before), or ``file.py:name`` of a torch
module, a torch function, a function of Monograph's own ops, or a graph.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from monograph.bindings.loading import load
from monograph.bindings.model_sources import is_exported, load_exported, refuse_suffix
from monograph.bindings.models import compile_model
from monograph.compiler import Options
from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.inspect.python_files import (
    as_jax,
    blaming,
    check_named,
    check_types,
    find_target,
    folder_on_path,
    load_file,
    make_model,
    no_notices,
    other_file,
    read_examples,
    split_name,
    torch_examples,
    uses_torch,
)
from monograph.ir.graph import Graph
from monograph.ir.text.files import load_graph
from monograph.ir.verify import verify
from monograph.progress import announce
from monograph.runtime.compiled import CompiledModel, Executable

WHAT_IT_TAKES = "a .onnx, .ir, .mlir, .pt2 or .mono file, or file.py:name of a module or function"


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
    dynamic_shapes: Any = None
    """Which sizes of torch examples are free, as ``torch.export`` says it."""

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
            return compile_model(
                self.subject,
                *self.examples,
                options=options,
                dynamic_shapes=self.dynamic_shapes,
                in_rows=True,
            )


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
    if path.suffix == ".mlir":
        from monograph.frontends.stablehlo import from_stablehlo

        return Model(text, path, from_stablehlo(path))
    if is_exported(path):
        with no_notices():
            program = load_exported(path)
        arguments, keywords = program.example_inputs or ((), {})
        return Model(text, path, program, (*arguments, *keywords.values()), is_torch=True)
    refuse_suffix(path, WHAT_IT_TAKES, (".mono", ".ir"))
    if importlib.util.find_spec("onnx") is None:
        raise InputError("reading ONNX models needs onnx", hint="pip install 'monograph[onnx]'")
    return Model(text, path, path)


def _python_model(text: str, path: Path, name: str, types: Sequence[str]) -> Model:
    check_named(path, name)
    with folder_on_path(path), no_notices():
        namespace = load_file(path)
        subject, _ = make_model(find_target(namespace, path, name), path, name)
        if isinstance(subject, Graph):
            return Model(text, path, subject)
        if not callable(subject):
            raise InputError(
                f"{text} is not a model",
                expected="a module, a function or a graph",
                found=type(subject).__name__,
            )
        check_types(types)
        if not types:
            examples = tuple(read_examples(namespace, path, text, subject))
            return Model(text, path, subject, examples, uses_torch(namespace, subject, examples))
        if not uses_torch(namespace, subject, ()):
            return Model(text, path, as_jax(subject), tuple(types))
        tensors, free = torch_examples(types)
        return Model(text, path, subject, tensors, is_torch=True, dynamic_shapes=free)


def executable_of(compiled: CompiledModel) -> Executable:
    """The executable inside a compiled model: flat inputs, flat outputs."""
    return compiled if isinstance(compiled, Executable) else compiled.executable
