"""torch's own rewriting of programs: writes through views, and tensor subclasses, made explicit.

Functionalization costs seconds on a large model and most programs do not need it: plain writes in
place are handled as they are read (see ``frame``). So it runs only when a value is read that was
written through another view of its memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from monograph.errors import UnsupportedError


def functionalize_program(program: Any) -> Any:
    """An exported program with every write, and every view of what is written, made explicit."""
    try:
        return program.run_decompositions({})
    except Exception as error:  # torch raises errors of every kind here
        raise _refusal(error) from error


def unwrap_subclasses(program: Any) -> Any:
    """An exported program whose parameters are the plain tensors inside tensor subclasses.

    Quantized weights of torchao are such: integers, scales and zero points that call themselves one
    tensor of floats.
    """
    held = (*program.state_dict.values(), *program.constants.values())
    if not any(is_traceable_wrapper_subclass(each) for each in held):
        return program
    try:
        return program.run_decompositions({})
    except Exception as error:  # torch raises errors of every kind here
        kinds = {type(each).__name__ for each in held if is_traceable_wrapper_subclass(each)}
        line = str(error).strip().split("\n", 1)[0]
        raise UnsupportedError(
            f"torch could not unwrap parameters that are {', '.join(sorted(kinds))}: {line}",
            hint="torchao.utils.unwrap_tensor_subclass(model) before exporting may",
        ) from error


def functionalize_module(module: Any) -> Any:
    """A GraphModule of ATen ops with every write made explicit; arguments are written at its end.

    Its placeholders keep their number, order and types.
    """
    fakes = [node.meta["val"] for node in module.graph.nodes if node.op == "placeholder"]
    mode = torch._guards.detect_fake_mode(fakes)
    symbolic = mode is not None and mode.shape_env is not None
    trace = make_fx(
        torch.func.functionalize(module),
        tracing_mode="symbolic" if symbolic else "fake",
        _allow_non_fake_inputs=True,
    )
    try:
        return trace(*fakes)
    except Exception as error:  # torch raises errors of every kind here
        raise _refusal(error) from error


def _refusal(error: Exception) -> UnsupportedError:
    line = str(error).strip().split("\n", 1)[0]
    return UnsupportedError(f"torch could not make the writes explicit: {line}")
