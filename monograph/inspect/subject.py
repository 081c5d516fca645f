"""The model under inspection: its graph, given inputs, and the framework's own answer.

From Python a model is what ``monograph.compile`` takes, with its example inputs; on the command
line it is named. Either way there is a graph, and a function that answers as the framework does:
torch for a torch model, ONNX Runtime for an ONNX file where it is installed, and the interpreter
otherwise.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from monograph.bindings.models import is_jax
from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.frontends.trace import trace
from monograph.inspect.models import Model, find_model
from monograph.inspect.python_files import blaming, folder_on_path, no_notices
from monograph.ir.graph import Graph
from monograph.ir.tree import flatten
from monograph.ir.types import Array, TensorType, ValueType
from monograph.progress import announce

Framework = Callable[[Sequence[Any]], list[Array]]


@dataclass(frozen=True)
class Subject:
    """A graph and where it came from."""

    name: str
    graph: Graph
    given: tuple[Any, ...] = ()
    """The caller's inputs, one for every input of the graph; empty if there are none."""
    state: Mapping[int, Any] = field(default_factory=dict)
    """Inputs of the graph, by number, that are no arguments of the model: its buffers."""
    framework: Framework | None = None
    framework_name: str = "the interpreter"


def load_subject(text: str, types: Sequence[str] = ()) -> Subject:
    """The model that the command line names."""
    return subject_of(find_model(text, types))


def subject_from(model: Any, inputs: Sequence[Any], *, dynamic_shapes: Any = None) -> Subject:
    """The model that a Python program gives, as ``monograph.compile`` takes it."""
    if isinstance(model, Subject):
        return model
    name = getattr(model, "__name__", None) or type(model).__name__
    path = Path(model) if isinstance(model, str | Path) else Path("model.py")
    if isinstance(model, str | Path):
        return load_subject(str(model), [each for each in inputs if isinstance(each, str)])
    is_torch = _is_torch(model, inputs)
    found = Model(str(name), path, model, tuple(inputs), is_torch, dynamic_shapes)
    return subject_of(found)


def subject_of(model: Model) -> Subject:
    """The graph of a model, and what its framework answers."""
    announce("reading the model")
    if model.is_compiled:
        raise InputError(
            f"{model.name} holds code, and no graph", hint="give the model it was compiled from"
        )
    if isinstance(model.subject, Graph):
        given = tuple(each for each in model.examples if not isinstance(each, str))
        return Subject(model.name, model.subject, given)
    if isinstance(model.subject, Path):
        return _onnx_subject(model)
    blame = blaming(model.path, "the model cannot be captured", only_own=True)
    with folder_on_path(model.path), no_notices(), blame:
        if _is_torch(model.subject, model.examples):
            return _torch_subject(model)
        if is_jax(model.subject, model.examples, None):
            return _jax_subject(model)
        graph = trace(model.subject, *model.examples)
    leaves = flatten(model.examples)[0]
    given = () if any(isinstance(each, str) for each in leaves) else tuple(leaves)
    return Subject(model.name, graph, given)


def _onnx_subject(model: Model) -> Subject:
    from monograph.frontends.onnx import from_onnx

    graph = from_onnx(model.path)
    if importlib.util.find_spec("onnxruntime") is None:
        return Subject(model.name, graph)
    import onnxruntime  # type: ignore[import-untyped]  # has no stubs

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised, too
    try:
        session = onnxruntime.InferenceSession(
            str(model.path), options, providers=["CPUExecutionProvider"]
        )
    except Exception:  # its errors have no class in common; it lacks some ops for some dtypes
        return Subject(
            model.name, graph, framework_name="the interpreter, as ONNX Runtime cannot load it"
        )
    names = [each.name for each in session.get_inputs()]

    def call(arrays: Sequence[Any]) -> list[Array]:
        results: list[Array] = session.run(None, dict(zip(names, arrays, strict=True)))
        return results

    return Subject(model.name, graph, (), {}, call, "ONNX Runtime")


def _jax_subject(model: Model) -> Subject:
    import jax

    from monograph.frontends.jax import from_jax

    graph = from_jax(model.subject, *model.examples)
    leaves, structure = jax.tree_util.tree_flatten(model.examples)
    if len(leaves) != len(graph.inputs):
        return Subject(model.name, graph)
    given = () if any(isinstance(leaf, str) for leaf in leaves) else tuple(map(np.asarray, leaves))

    def call(arrays: Sequence[Any]) -> list[Array]:
        returned = model.subject(*jax.tree_util.tree_unflatten(structure, arrays))
        return [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(returned)]

    return Subject(model.name, graph, given, {}, call, "JAX")


def _torch_subject(model: Model) -> Subject:
    import torch

    from monograph.frontends.torch import InputKind, import_torch
    from monograph.frontends.torch.typed_examples import example_tensors, has_types
    from monograph.frontends.torch.types import array_from_torch

    examples, shapes = model.examples, model.dynamic_shapes
    typed = has_types(examples)
    if typed and shapes is None:
        examples, shapes = example_tensors(examples)
    subject = model.subject
    if isinstance(subject, torch.nn.Module):
        subject.eval()
    if isinstance(subject, torch.export.ExportedProgram):
        imported, subject = import_torch(subject), subject.module()
    else:
        imported = import_torch(subject, *examples, dynamic_shapes=shapes)
    leaves = torch.utils._pytree.tree_leaves(tuple(examples))
    state, given = {}, []
    for number, each in enumerate(imported.inputs):
        if each.kind is InputKind.USER and each.position is not None:
            given.append(array_from_torch(leaves[each.position].detach()))
        elif each.name in imported.state:
            state[number] = array_from_torch(imported.state[each.name].detach())
            given.append(state[number])
        else:
            return Subject(model.name, imported.graph)
    places = [each.position for each in imported.outputs]
    is_plain = all(isinstance(each, torch.Tensor) for each in leaves)
    answers = None
    if is_plain and not imported.graph.updates and None not in places:
        answers = _torch_answers(
            subject,
            [each.position or 0 for each in imported.outputs],
            [value.type for value in imported.graph.outputs],
        )
    chosen = () if typed else tuple(given)
    name = "torch" if answers is not None else "the interpreter"
    return Subject(model.name, imported.graph, chosen, state, answers, name)


def _torch_answers(subject: Any, places: Sequence[int], types: Sequence[ValueType]) -> Framework:
    """Eager's results, in the order of the graph's outputs."""
    import torch

    from monograph.frontends.torch.types import array_from_torch, array_to_torch

    def array(leaf: Any, type_: ValueType) -> Array:
        """A result; a number of Python has no dtype, and takes the one that the graph gives it."""
        if isinstance(leaf, torch.Tensor):
            return array_from_torch(leaf)
        number = np.asarray(leaf)
        if isinstance(type_, TensorType) and np.can_cast(number, type_.dtype.numpy, "same_kind"):
            return number.astype(type_.dtype.numpy)
        return number

    def call(arrays: Sequence[Any]) -> list[Array]:
        tensors = [array_to_torch(np.asarray(each, order="C")) for each in arrays]
        with torch.no_grad():
            leaves = torch.utils._pytree.tree_leaves(subject(*tensors))
        pairs = sorted(zip(places, leaves, strict=True), key=lambda pair: pair[0])
        return [array(leaf, types[place]) for place, leaf in pairs]

    return call


def _is_torch(subject: Any, examples: Sequence[Any]) -> bool:
    import sys

    torch = sys.modules.get("torch")
    if torch is None:
        return False
    leaves = torch.utils._pytree.tree_leaves(tuple(examples))
    is_module = isinstance(subject, torch.nn.Module | torch.export.ExportedProgram)
    return is_module or any(isinstance(each, torch.Tensor) for each in leaves)
