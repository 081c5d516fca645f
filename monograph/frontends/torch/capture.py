"""From what the user has (a module, a function, an FX graph) to a program of ATen ops."""

from __future__ import annotations

import functools
import inspect
import operator
import re
import textwrap
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from monograph.errors import InputError, MonographError, UnsupportedError
from monograph.frontends.torch.caches import know_caches
from monograph.frontends.torch.capture_overrides import SpelledOut
from monograph.frontends.torch.mutation_guard import HeldTensors
from monograph.frontends.torch.notices import PACKAGES
from monograph.frontends.torch.quick_export import quick_export
from monograph.frontends.torch.shapes import tell_torch

FUNCTORCH = "torch._functorch.predispatch"
"""Where the functions live that a program calls for ``vmap``."""
GRADIENTS_INSIDE = (
    "a fake tensor in the exported program constant's list",
    "apply meta conversion to view functorch tensor",
)
"""What torch.export complains of where a program differentiates something."""
QUANTIZED_BY_TORCH = ("torch.classes.quantized", "quantized nyi in meta")
"""How torch.export complains of weights that torch packed for its own quantized kernels."""
DECIDED_BY_DATA = ("data-dependent", "data dependent", "must not be empty for symbol")
"""What it complains of where Python asks for a number that only a run can tell."""

TYPE = re.compile(r"[a-z]+\d+[a-z0-9]*\[.*\]")
"""A type in our own text form: ``f32[batch, 4]``."""

tell_torch()  # every way into the frontend, and torch's own tracing, needs these shapes


def export(
    target: Any,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    *,
    strict: bool,
    training: bool,
) -> Any:
    """``torch.export`` of a module or function, in eval or training mode."""
    if isinstance(target, torch.jit.ScriptModule):
        raise UnsupportedError(
            "a TorchScript module cannot be captured: it holds no Python for torch.export to run",
            hint="compile the module that it was made of by torch.jit.script or trace; if only the "
            "file is left, torch.onnx.export(…, dynamo=False) writes it as ONNX",
        )
    module = target if isinstance(target, torch.nn.Module) else as_module(target)
    _check_examples(inputs, kwargs)
    _check_count(target, module, inputs, kwargs)
    know_caches()
    positional, named = _clone_shared_tensors(module, (tuple(inputs), dict(kwargs or {})))
    watched = _all_watched() if strict else _watch_calls(module)
    with _mode(module, training), watched, quick_export():
        try:
            program = torch.export.export(
                module,
                positional,
                named,
                dynamic_shapes=dynamic_shapes,
                strict=strict,
            )
            if not _leaves_gradients_behind(program):
                return _run_decompositions(program)
        except UnsupportedError:
            raise
        except Exception as error:  # torch raises errors of every kind here
            if not any(complaint in str(error) for complaint in GRADIENTS_INSIDE):
                raise _not_captured(target, error) from error
        return _export_with_gradients(target, module, positional, named, dynamic_shapes)


def _check_examples(inputs: Sequence[Any], kwargs: Mapping[str, Any] | None) -> None:
    """Refuse the examples of other models: arrays, and types as text."""
    for leaf in torch.utils._pytree.tree_leaves((tuple(inputs), dict(kwargs or {}))):
        if isinstance(leaf, torch.Tensor) and (leaf.layout is not torch.strided or leaf.is_nested):
            raise UnsupportedError(
                "an example input is a nested tensor"
                if leaf.is_nested
                else f"an example input is a {leaf.layout} tensor",
                hint="pass a dense one: .to_dense() of a sparse tensor, .to_padded_tensor(0) of a "
                "nested one",
            )
        is_type = isinstance(leaf, str) and TYPE.fullmatch(leaf)
        if is_type or isinstance(leaf, np.ndarray | np.generic):
            raise InputError(
                "the example inputs of a torch model are tensors",
                expected="torch.Tensor",
                found=repr(leaf) if is_type else type(leaf).__name__,
                hint="dynamic_shapes says which of their sizes may change"
                if is_type
                else "torch.from_numpy makes a tensor of an array",
            )


def _check_count(
    target: Any, module: Any, inputs: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> None:
    """Refuse examples that the program cannot be called with, in Python's own words."""
    try:
        signature = inspect.signature(module.forward)
    except (TypeError, ValueError):  # it does not tell its arguments
        return
    try:
        signature.bind(*inputs, **dict(kwargs or {}))
    except TypeError as problem:
        named = f" and {', '.join(kwargs)}" if kwargs else ""
        name = getattr(target, "__name__", type(target).__name__)
        raise InputError(
            f"{name} cannot be called with these example inputs: {problem}",
            expected=f"an example for each of {signature}",
            found=f"{len(inputs)} by position{named}",
        ) from None


@contextmanager
def _watch_calls(module: Any) -> Iterator[None]:
    """Calls of torch are watched while the module runs, not those that torch.export makes itself.

    There are more of the latter, and each takes its time.
    """
    held = HeldTensors(later=True)
    forward = module.forward

    @functools.wraps(forward)
    def watched(*arguments: Any, **named: Any) -> Any:
        with held, SpelledOut():
            return forward(*arguments, **named)

    had_its_own = "forward" in module.__dict__
    module.forward = watched
    try:
        yield
    finally:
        if had_its_own:
            module.forward = forward
        else:
            del module.forward
        held.put_back()


@contextmanager
def _all_watched() -> Iterator[None]:
    """All calls of torch are watched, as they have to be where torch reads the module's code."""
    with HeldTensors(), SpelledOut():
        yield


def _not_captured(target: Any, error: Exception) -> MonographError:
    made = UnsupportedError(
        f"torch.export could not capture {_name(target)}: {_first_line(error)}",
        hint=_advice(str(error)),
    ).with_context(source=_line_of_user(error))
    made.found = _violations(str(error))
    return made


def _violations(complaint: str) -> str | None:
    """What torch.export found out of sizes that were to be free, a line each."""
    lines = [line.strip() for line in complaint.splitlines()]
    found = [line.removeprefix("- ") for line in lines if line.startswith("- ")]
    return "\n".join(found) or None


def _find_suggested_fixes(complaint: str) -> str | None:
    """What torch.export says would mend it: the lines after its heading, up to an empty one."""
    _, heading, after = complaint.partition("Suggested fixes:\n")
    if not heading:
        return None
    fixes = after.split("\n\n", 1)[0]
    return "torch suggests for dynamic_shapes:\n" + textwrap.indent(textwrap.dedent(fixes), "  ")


def _advice(complaint: str) -> str | None:
    """What to do about a complaint of torch.export, where that is known."""
    if any(each in complaint for each in DECIDED_BY_DATA):
        return (
            'torch.compile(..., backend="monograph") compiles what lies before and after a choice '
            "that Python makes by what a tensor holds; torch.cond and while_loop say it in the "
            "program"
        )
    if any(each in complaint for each in QUANTIZED_BY_TORCH):
        return (
            "torch.export cannot look into modules that torch.ao.quantization made: quantize the "
            "float module with monograph.quantize, or export PT2E's form of it"
        )
    return _find_suggested_fixes(complaint)


def _name(target: Any) -> str:
    return str(getattr(target, "__name__", type(target).__name__))


def _line_of_user(error: BaseException) -> str | None:
    """The innermost line in an error's traceback that is neither torch's nor this package's."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if not each.filename.startswith((*PACKAGES, "<"))]
    return f"{own[-1].filename}:{own[-1].lineno} in {own[-1].name}" if own else None


def _leaves_gradients_behind(program: Any) -> bool:
    """Whether torch.func differentiated inside of the program, which export has no notion of."""
    wrapped = map(torch._C._functorch.is_functorch_wrapped_tensor, program.constants.values())
    return any(wrapped)


def _run_decompositions(program: Any) -> Any:
    """The program with ``vmap`` carried out."""
    calls = (node.target for node in program.graph.nodes if node.op == "call_function")
    transforms = any(getattr(call, "__module__", "") == FUNCTORCH for call in calls)
    return program.run_decompositions({}) if transforms else program


def _export_with_gradients(
    target: Any, module: Any, positional: Any, named: Any, dynamic_shapes: Any
) -> Any:
    """A program that differentiates something, with the backward ops written out first.

    torch.export records above autograd, where the ops of a backward pass have no names for what
    the forward pass kept. Traced below it they are ops like any others.
    """
    hint = 'torch.compile(..., backend="monograph") can; or differentiate what is compiled'
    if dynamic_shapes:
        raise UnsupportedError(
            "torch.export cannot capture gradients of dynamic shapes inside of a program", hint=hint
        )
    leaves, structure = torch.utils._pytree.tree_flatten((positional, named))

    def call(*flat: Any) -> Any:
        arguments, keywords = torch.utils._pytree.tree_unflatten(list(flat), structure)
        return module(*arguments, **keywords)

    trace = make_fx(call, tracing_mode="fake", _allow_non_fake_inputs=True)
    try:
        with _without_onednn():
            traced = trace(*leaves)
    except Exception as error:  # torch raises errors of every kind here
        raise _not_captured(target, error) from error
    _tell_writes(traced)

    def replay(*arguments: Any, **keywords: Any) -> Any:
        flat, _ = torch.utils._pytree.tree_flatten((arguments, keywords))
        return traced(*flat)

    holder = torch.nn.Module()
    holder.traced = traced
    holder.forward = replay
    try:
        return torch.export.export(holder, positional, named, strict=False)
    except Exception as error:  # torch raises errors of every kind here
        raise _not_captured(target, error) from error


@contextmanager
def _without_onednn() -> Iterator[None]:
    """Without the library in which an LSTM is one op that tells nothing of its steps."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def _tell_writes(traced: Any) -> None:
    """Averages that a batch norm updates, by an op whose schema says so: then they are state."""
    legit = torch.ops.aten._native_batch_norm_legit.default
    for node in traced.graph.nodes:
        silent = node.target is torch.ops.aten.native_batch_norm.default
        if silent and node.args[5] and None not in node.args[3:5]:
            node.target = legit
    traced.recompile()


def _clone_shared_tensors(module: Any, examples: Any) -> Any:
    """The examples, with no tensor twice and none that is the module's own: torch.export takes
    those for one and the same, and ``x - y`` for ``y - y``.
    """
    seen = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}

    def apart(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in seen:
            seen.add(id(tensor))
            return tensor
        return tensor.detach().requires_grad_(tensor.requires_grad)

    return torch.utils._pytree.tree_map_only(torch.Tensor, apart, examples)


def as_module(function: Callable[..., Any]) -> Any:
    """A module whose ``forward`` is the function, with the function's own signature."""
    if not callable(function):
        raise InputError(
            "from_torch needs something to call",
            expected="a module, a function, an ExportedProgram or a GraphModule",
            found=type(function).__name__,
        )
    module = torch.nn.Module()
    module.forward = function if _has_signature(function) else _with_signature(function)
    remember = getattr(torch.fx.proxy, "_register_stack_trace_anchor", None)
    if remember is not None:
        remember(function)  # so that nodes know which line of the function they come from
    return module


def _has_signature(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function)
    except ValueError:  # a function written in C, as torch.tanh is
        return False
    return True


def _with_signature(function: Callable[..., Any]) -> Callable[..., Any]:
    def forward(*arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    return forward


def is_aten(module: Any) -> bool:
    """Whether every call of a GraphModule is one of ATen's (or Python's, on sizes)."""
    for node in module.graph.nodes:
        if node.op in ("call_module", "call_method"):
            return False
        if node.op == "call_function" and not _is_aten_call(node):
            return False
    return True


def with_types(module: Any, inputs: Sequence[Any]) -> Any:
    """The module with a recorded fake value on each node; computed from ``inputs`` if it lacks."""
    lacking = [
        node
        for node in module.graph.nodes
        if node.op in ("placeholder", "call_function") and "val" not in node.meta
    ]
    if not lacking:
        return module
    if not inputs:
        raise InputError(
            "this graph's nodes do not know their types",
            expected='example inputs, or meta["val"] on every node',
            found=f"{lacking[0].name} has none",
        )
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    FakeTensorProp(module).propagate(*inputs)
    return module


def symbol_names(program: Any, dynamic_shapes: Any) -> dict[str, str]:
    """torch's symbols by the names that the user gave them: ``{"s77": "batch"}``."""
    names: dict[str, str] = {}
    for fake, spec in _pair_shapes(program, dynamic_shapes):
        entries = spec.items() if isinstance(spec, Mapping) else enumerate(spec)
        for axis, dim in entries:
            name = getattr(dim, "__name__", None)
            if not -fake.ndim <= axis < fake.ndim:
                raise InputError(
                    f"dynamic_shapes speaks of dimension {axis} of an input that has no such one",
                    expected=f"0 to {fake.ndim - 1}",
                    found=str(axis),
                )
            size: Any = fake.shape[axis]
            if name is None or not isinstance(size, torch.SymInt):
                continue
            if size.node.expr.is_Symbol and str(name).isidentifier():
                names[str(size.node.expr)] = str(name)
    return names if len(set(names.values())) == len(names) else {}


def _pair_shapes(program: Any, dynamic_shapes: Any) -> Iterator[tuple[Any, Any]]:
    """Each tensor that the user passes (a fake one) with what the user says of its shape."""
    if not dynamic_shapes:
        return
    nodes = {node.name: node for node in program.graph_module.graph.nodes}
    names = [spec.arg.name for spec in program.graph_signature.input_specs if spec.target is None]
    fakes = [nodes[name].meta.get("val") for name in names]
    args, kwargs = torch.utils._pytree.tree_unflatten(fakes, program.call_spec.in_spec)
    values = [*args, *kwargs.values()]
    if isinstance(dynamic_shapes, Mapping):
        signature = program.module_call_graph[0].signature
        labels = signature.forward_arg_names or list(dynamic_shapes)
        yield from _pair_leaves(dict(zip(labels, values, strict=False)), dynamic_shapes)
    else:
        yield from _pair_leaves(values, dynamic_shapes)


def _pair_leaves(value: Any, spec: Any) -> Iterator[tuple[Any, Any]]:
    if not spec:
        return
    if isinstance(value, torch.Tensor):
        yield value, spec
    elif isinstance(value, Mapping) and isinstance(spec, Mapping):
        for key, item in value.items():
            yield from _pair_leaves(item, spec.get(key))
    elif isinstance(value, list | tuple) and isinstance(spec, list | tuple):
        for pair in zip(value, spec, strict=False):
            yield from _pair_leaves(*pair)


@contextmanager
def _mode(module: Any, training: bool) -> Iterator[None]:
    """The module in eval or training mode; every part is put back as it was afterwards."""
    before = {part: part.training for part in module.modules()}
    with suppress(NotImplementedError):  # what was exported has one mode alone, and may say so
        module.train(training)
    try:
        yield
    finally:
        for part, flag in before.items():
            part.training = flag


def _is_aten_call(node: Any) -> bool:
    target = node.target
    if isinstance(target, torch._ops.OpOverload | torch._ops.HigherOrderOperator):
        return True
    module = getattr(target, "__module__", None)
    if target is operator.getitem:
        return not isinstance(node.args[1], slice | tuple)
    return module in ("_operator", "math") or str(getattr(target, "__name__", "")).startswith("sym")


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0]
