"""Checks whether a model can be compiled: unsupported ops, then types, then passes.

Everything up to the generation of code is done: the model is imported, every type is inferred, and
the passes run with the verifier behind each, so that what passes here compiles.

A model is named as on the command line: the path of an ONNX or ``.ir`` file, or a Python file and
the name of a module, function or class in it (``model.py:net``). A Python model needs example
inputs: types on the command line, or ``example_inputs`` in the file.
"""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from monograph.bindings.model_sources import refuse_suffix
from monograph.bindings.models import is_jax
from monograph.dataclass import dataclass
from monograph.errors import Problem, UnsupportedError
from monograph.frontends.jax import from_jax
from monograph.frontends.onnx.external import AbsentData
from monograph.frontends.trace import trace
from monograph.inspect.python_files import (
    as_jax,
    blaming,
    check_named,
    check_types,
    find_target,
    folder_on_path,
    line_in,
    load_file,
    make_model,
    no_notices,
    other_file,
    read_examples,
    split_name,
    torch_example,
    uses_torch,
)
from monograph.ir.graph import Graph
from monograph.ir.text.files import load_graph
from monograph.ir.verify import verify
from monograph.passes.instruments import Verify
from monograph.passes.manager import Pipeline, run_pipeline
from monograph.passes.pipeline import pipeline_for
from monograph.targets.names import resolve_target

_WHAT_IT_TAKES = "a .onnx or .ir file, or file.py:name of a module or function"


@dataclass(frozen=True)
class CheckReport:
    """What stands in the way of a model, and what to run next.

    ``next_step`` is a command, or a call from Python: how to go on with a model whose every op is
    supported, or how to check another again once it has been changed. ``opaque`` are ops of the
    user's own that are no obstacle, but stay calls of torch, which nothing here can make faster.
    ``notes`` are what the model gets wrong without harm.
    """

    model: str
    problems: tuple[Problem, ...]
    next_step: str
    opaque: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

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


def check(model: str, inputs: Sequence[str] = (), *, target: str | None = None) -> CheckReport:
    """Look a model over, up to the generation of code; nothing is run but the exporter.

    What is wrong with its types is raised as the error that compiling would raise.
    """
    named, pipeline = split_name(model), (*pipeline_for("O2"), *resolve_target(target).lowering())
    if named is not None:
        return _check_python(model, *named, inputs, pipeline)
    found = other_file(model, inputs, _WHAT_IT_TAKES)
    refuse_suffix(found, _WHAT_IT_TAKES, known=(".ir",))
    if found.suffix == ".ir":
        _check_graph(load_graph(found), pipeline)
        return CheckReport(model, (), f"monograph opt {shlex.quote(model)} -O O2")
    return _check_onnx(model, found, pipeline)


def _check_onnx(model: str, path: Path, pipeline: Pipeline) -> CheckReport:
    """Report unsupported ops; without any, import the model. Its weights need not be there."""
    from monograph.frontends import onnx

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", onnx.ModelWarning)
        problems = tuple(onnx.find_unsupported(path))
        if problems:
            return CheckReport(model, problems, _again(model))
        graph = onnx.from_onnx(path, weights_may_be_absent=True)
    _check_graph(graph, pipeline)
    notes = tuple(dict.fromkeys(str(each.message) for each in caught))
    return CheckReport(model, (), f"monograph.from_onnx({model!r})", notes=notes)


def _check_graph(graph: Graph, pipeline: Pipeline) -> None:
    """Verify a graph, and what the passes make of it."""
    verify(graph)
    stored = (getattr(node.op, "data", None) for node in graph.walk())
    if not any(isinstance(data, AbsentData) for data in stored):
        run_pipeline(graph, pipeline, (Verify(),))


def _check_python(
    model: str, path: Path, name: str, inputs: Sequence[str], pipeline: Pipeline
) -> CheckReport:
    check_named(path, name)
    with folder_on_path(path), no_notices():
        namespace = load_file(path)
        target, spelled = make_model(find_target(namespace, path, name), path, name)
        check_types(inputs)
        is_torch = uses_torch(namespace, target, ())
        examples: Sequence[Any] = [torch_example(text) if is_torch else text for text in inputs]
        if not examples and not isinstance(target, Graph):
            examples = read_examples(namespace, path, model, target)
        # Types with free sizes stay types, and say nothing of whose model it is.
        if not (is_torch if inputs else uses_torch(namespace, target, examples)):
            return _check_own(model, as_jax(target), examples, path, pipeline)
        return _check_torch(model, spelled, target, examples, path, inputs, pipeline)


def _check_own(
    model: str, target: Any, examples: Sequence[Any], path: Path, pipeline: Pipeline
) -> CheckReport:
    """A graph, or a function of JAX's or our own ops: what can be traced can be compiled."""
    with blaming(path, "the model cannot be traced"):
        if isinstance(target, Graph):
            graph = target.clone()
        elif is_jax(target, tuple(examples), None):
            graph = from_jax(target, *examples)
        else:
            graph = trace(target, *examples)
    _check_graph(graph, pipeline)
    return CheckReport(model, (), f"monograph compile {shlex.quote(model)}")


def _check_torch(
    model: str,
    spelled: str,
    target: Any,
    examples: Sequence[Any],
    path: Path,
    inputs: Sequence[str],
    pipeline: Pipeline,
) -> CheckReport:
    from monograph.frontends.torch import capture, find_unsupported, from_torch
    from monograph.frontends.torch.typed_examples import example_tensors

    tensors, free = example_tensors(examples)
    program = _capture(capture.export, target, tensors, free, path)
    problems = tuple(find_unsupported(program.graph_module))
    if not problems:
        _check_graph(from_torch(program), pipeline)
    going_on = f"monograph.from_torch({spelled}, *example_inputs)"
    next_step = _again(model, inputs) if problems else going_on
    return CheckReport(model, problems, next_step, _opaque_calls(program.graph_module))


def _capture(export: Any, target: Any, examples: Sequence[Any], free: Any, path: Path) -> Any:
    """The program that torch's exporter makes of the model; what stops it names the user's line."""
    try:
        with blaming(path, "the model cannot be captured"):
            return export(target, examples, None, free, strict=False, training=False)
    except UnsupportedError as error:
        raise error.with_context(source=line_in(path, error.__cause__)) from error.__cause__


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
