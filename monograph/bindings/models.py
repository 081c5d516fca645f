"""Compiled models, called as the model was: torch in, torch out; arrays in, arrays out.

Whatever a model is (a torch module or function, a traced function, a graph, an ONNX file), it
becomes a graph and an ``Executable`` of it, and what the graph does not say of the calling
convention (the nesting of arguments and results, and their kind) is wrapped around that.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from monograph.bindings.device_of import target_of_tensors
from monograph.bindings.jax_jit import JitFunction
from monograph.bindings.model_sources import (
    check_onnx_path,
    is_exported,
    load_exported,
    refuse_foreign,
    refuse_other,
)
from monograph.compiler import Options, compile_graph
from monograph.errors import InputError, UnsupportedError
from monograph.frontends.jax.static_arguments import is_jitted
from monograph.frontends.trace import trace_with_structure
from monograph.ir.graph import Graph
from monograph.ir.tree import Structure, flatten
from monograph.runtime.arguments import element_strides
from monograph.runtime.compiled import CompiledFunction, CompiledModel, CompiledModule, Executable
from monograph.runtime.thread_count import torch_threads

if TYPE_CHECKING:
    from monograph.runtime.pretrained_calls import CompiledPretrained


def compile_model(
    model: Any,
    *examples: Any,
    options: Options | None = None,
    dynamic_shapes: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    in_rows: bool = False,
) -> CompiledModel:
    """Compile anything that is a model.

    With ``in_rows`` the outputs of the executable itself have the dimensions of the results, for
    those who run that; else they may lie as torch's results do, of which the model gives views.
    """
    _check_kwargs(kwargs)
    if isinstance(model, Graph):
        _refuse_examples(examples, "a graph")
        return compile_graph(model, options)
    if isinstance(model, str | Path) and is_exported(model):
        model = load_exported(model)
    if isinstance(model, str | Path) and Path(model).suffix == ".mlir":
        return _compile_stablehlo(model, examples, options)
    if isinstance(model, str | Path | bytes | bytearray) or _is_onnx(model):
        return _compile_onnx(model, examples, options)
    refuse_foreign(model, flatten((examples, dict(kwargs or {})))[0])
    if is_jax(model, examples, kwargs):
        return _compile_jax(model, examples, options, dynamic_shapes, kwargs)
    if not examples and kwargs is None and dynamic_shapes is None and _is_pretrained(model):
        return _compile_pretrained(model, options)
    if _is_torch(model, examples, kwargs):
        return _compile_torch(model, examples, options, dynamic_shapes, kwargs, in_rows)
    refuse_other(model)
    if dynamic_shapes is not None or kwargs is not None:
        raise InputError(
            "dynamic_shapes and kwargs are for torch models",
            hint='give a symbolic type as the example instead: "f32[batch, 4]"',
        )
    graph, arguments, results = _trace(model, examples)
    chosen = _with_strides(options, flatten(examples)[0])
    return CompiledFunction(compile_graph(graph, chosen, owned=True), arguments, results)


def _trace(model: Any, examples: tuple[Any, ...]) -> tuple[Graph, Structure, Structure]:
    """A function of Monograph's own ops as a graph; one of torch's is told apart by its error."""
    try:
        return trace_with_structure(model, *examples)
    except TypeError as error:
        if "jax" in sys.modules and ("JAX" in str(error) or "jax.jit" in str(error)):
            raise InputError(
                "this is a function of JAX's ops, and its example inputs are not JAX's",
                expected="jax arrays, jax.ShapeDtypeStruct, or a function wrapped in jax.jit",
                found=str(error).splitlines()[0],
                hint="monograph.compile(jax.jit(function), ...), or monograph.jit(function)",
            ) from error
        if "torch" not in sys.modules or "Tensor, not Value" not in str(error):
            raise
        raise InputError(
            "this is a function of torch's ops, and its example inputs are types",
            expected="tensors, and dynamic_shapes for sizes that are free",
            found=str(error),
            hint="or make the function the forward of a torch.nn.Module, which takes types, too",
        ) from error


def _compile_onnx(model: Any, examples: tuple[Any, ...], options: Options | None) -> Executable:
    if isinstance(model, str | Path):
        check_onnx_path(model)
    _refuse_examples(examples, "an ONNX model")
    from monograph.frontends import onnx

    return compile_graph(onnx.from_onnx(model), options, owned=True)


def _compile_stablehlo(
    path: str | Path, examples: tuple[Any, ...], options: Options | None
) -> Executable:
    from monograph.frontends.stablehlo import from_stablehlo

    _refuse_examples(examples, "a StableHLO module")
    return compile_graph(from_stablehlo(Path(path)), options, owned=True)


def _compile_jax(
    model: Any,
    examples: tuple[Any, ...],
    options: Options | None,
    dynamic_shapes: Any,
    kwargs: Mapping[str, Any] | None,
) -> CompiledModel:
    from monograph.bindings.jax_models import compile_jax

    if dynamic_shapes is not None:
        raise InputError(
            "dynamic_shapes are for torch models",
            hint='give a symbolic type as the example instead: "f32[batch, 4]"',
        )
    return compile_jax(model, examples, options, kwargs)


def _compile_torch(
    model: Any,
    examples: tuple[Any, ...],
    options: Options | None,
    dynamic_shapes: Any,
    kwargs: Mapping[str, Any] | None,
    in_rows: bool,
) -> CompiledModule:
    import torch

    from monograph.bindings.torch_convention import convention_of
    from monograph.frontends.torch import InputKind, import_torch
    from monograph.frontends.torch.calling import parameters_of
    from monograph.frontends.torch.memory_order import order_of, turn_outputs
    from monograph.frontends.torch.notices import GradientWatch, holds_trained
    from monograph.frontends.torch.runner import TorchModel
    from monograph.frontends.torch.state import own_state
    from monograph.frontends.torch.typed_examples import example_tensors, has_types
    from monograph.frontends.torch.types import array_from_torch

    if has_types(examples) and dynamic_shapes is None:
        examples, dynamic_shapes = example_tensors(examples)
    imported = import_torch(
        model, *examples, dynamic_shapes=dynamic_shapes, kwargs=kwargs, opaque=True
    )
    leaves = torch.utils._pytree.tree_leaves((examples, dict(kwargs or {})))
    if not in_rows and not imported.graph.updates:
        orders = {order for order in map(order_of, leaves) if order is not None}
        imported = turn_outputs(imported, orders)
    places = [each.position if each.kind is InputKind.USER else None for each in imported.inputs]
    given = [leaves[k] if k is not None and k < len(leaves) else None for k in places]
    on_host = [
        array_from_torch(x) if isinstance(x, torch.Tensor) and x.device.type == "cpu" else None
        for x in given
    ]
    chosen = _with_strides(options, on_host)
    chosen = replace(chosen, threads=torch_threads(chosen.threads))
    if chosen.target is None:
        held = model.state_dict().values() if isinstance(model, torch.nn.Module) else ()
        chosen = replace(chosen, target=target_of_tensors((*leaves, *held)))
    executable = compile_graph(imported.graph, chosen, owned=True)
    state = dict(imported.state)
    if isinstance(model, torch.nn.Module):
        own = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        state |= {name: tensor for name, tensor in own.items() if name in state}
    state = own_state(state)
    parameters = parameters_of(model, examples, kwargs or {})
    call = TorchModel(imported, state, executable.run, executable.run_tensors, parameters)
    watch = GradientWatch(imported.is_trained or holds_trained(model))
    convention, obstacle = None, ""
    try:
        convention = convention_of(imported, parameters, state)
    except UnsupportedError as reason:
        obstacle = reason.message
    return CompiledModule(
        executable,
        call,
        convention,
        call.returned,
        call.names,
        watch,
        state=call.state,
        obstacle=obstacle,
    )


def _is_pretrained(model: Any) -> bool:
    if "transformers" not in sys.modules:
        return False
    from monograph.bindings.transformers_models import is_pretrained

    return is_pretrained(model)


def _compile_pretrained(model: Any, options: Options | None) -> CompiledPretrained:
    from monograph.bindings.transformers_models import compile_pretrained

    def compile_call(module: Any, given: Mapping[str, Any], dynamic_shapes: Any) -> CompiledModule:
        return _compile_torch(module, (), options, dynamic_shapes, given, False)

    return compile_pretrained(model, compile_call)


def _with_strides(options: Options | None, examples: Sequence[Any]) -> Options:
    """The options, with the arrangement in memory of the example inputs."""
    found = ((k, element_strides(example)) for k, example in enumerate(examples))
    strides = tuple((k, each) for k, each in found if each is not None)
    return replace(options or Options(), strides=strides)


def _check_kwargs(kwargs: object) -> None:
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise InputError(
            "kwargs are example inputs by name", expected="a dict", found=type(kwargs).__name__
        )


def _refuse_examples(examples: tuple[Any, ...], what: str) -> None:
    if examples:
        raise InputError(
            f"{what} knows the types of its inputs", found=f"{len(examples)} example inputs"
        )


def _is_onnx(model: Any) -> bool:
    onnx = sys.modules.get("onnx")
    return onnx is not None and isinstance(model, onnx.ModelProto)


def is_jax(model: Any, examples: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> bool:
    """Whether it is a function that JAX has wrapped, or has an example that is JAX's."""
    jax = sys.modules.get("jax")
    if jax is None or not callable(model) or not hasattr(jax, "tree_util"):
        return False
    if is_jitted(model) or isinstance(model, JitFunction):
        return True
    leaves = jax.tree_util.tree_leaves((examples, dict(kwargs or {})))
    return any(isinstance(leaf, jax.Array | jax.ShapeDtypeStruct) for leaf in leaves)


def _is_torch(model: Any, examples: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> bool:
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    if isinstance(model, torch.nn.Module | torch.export.ExportedProgram):
        return True
    if not callable(model):
        return False
    leaves = torch.utils._pytree.tree_leaves((examples, dict(kwargs or {})))
    return any(isinstance(leaf, torch.Tensor) for leaf in leaves)
