"""How a torch program may be called: by position or by name, as its own signature allows.

torch.export keeps the form of one call, that with the example inputs. A module takes the same
arguments in other forms too (``model(ids)`` and ``model(input_ids=ids)``), and so does what is
compiled from it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from monograph.ir.parameters import Parameters


def parameters_of(
    model: Any, arguments: Sequence[Any], named: Mapping[str, Any]
) -> Parameters | None:
    """The parameters of a module or function, as it was called; None if it does not tell them."""
    if isinstance(model, torch.export.ExportedProgram):
        return _read_parameters(model)
    called = model.forward if isinstance(model, torch.nn.Module) else model
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):  # a function written in C
        return None
    plain = [
        each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()
    ]
    return Parameters(inspect.Signature(plain), len(arguments), tuple(named))


def _read_parameters(program: Any) -> Parameters | None:
    """Those of the module that was exported, whose names the program keeps."""
    known = program.module_call_graph[0].signature
    names = known and known.forward_arg_names
    if not names or not all(name.isidentifier() for name in names):
        return None
    positional, named = program.call_spec.in_spec.children()
    if len(names) != positional.num_children + named.num_children:
        return None
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    return Parameters(signature, positional.num_children, tuple(named.context))


def reorder_dicts(tree: Any, spec: Any) -> Any:
    """Arguments with their dicts in the order of those that were captured, which torch minds."""
    if spec.is_leaf() or type(tree) is not spec.type:
        return tree
    children = spec.children()
    if spec.type is dict and tree.keys() == set(spec.context):
        pairs = zip(spec.context, children, strict=True)
        return {key: reorder_dicts(tree[key], each) for key, each in pairs}
    if spec.type in (tuple, list) and len(tree) == len(children):
        return spec.type(map(reorder_dicts, tree, children))
    return tree


def call_text(spec: Any) -> str:
    """The form of a call, with a star for each tensor or number: ``(*, [*, *], mask=*)``."""
    positional, named = spec.children()
    parts = [_text(each) for each in positional.children()]
    pairs = zip(named.context, named.children(), strict=True)
    parts += [f"{name}={_text(each)}" for name, each in pairs]
    return f"({', '.join(parts)})"


def _text(spec: Any) -> str:
    if spec.is_leaf():
        return "*"
    inner = [_text(each) for each in spec.children()]
    if spec.type is dict:
        pairs = zip(spec.context, inner, strict=True)
        return "{" + ", ".join(f"{key}: {each}" for key, each in pairs) + "}"
    if spec.type is list:
        return f"[{', '.join(inner)}]"
    name = "" if spec.type is tuple else spec.type.__name__
    return f"{name}({', '.join(inner)}{',' if len(inner) == 1 and not name else ''})"
