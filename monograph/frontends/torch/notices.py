"""Warnings that a torch user gets once: gradients that stop, modules in training mode."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import torch
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

PACKAGES = (str(Path(__file__).parents[2]), str(Path(torch.__file__).parent))
"""Where files lie that are not the user's: this package's and torch's."""
_TENSOR = torch.Tensor
_SHOWN_PARTS = 3
_NOT_RUN = ("__init__", "train", "eval", "extra_repr", "__repr__", "__setstate__")
"""Methods that do not run when a module is called."""


class GradientWarning(UserWarning):
    """Gradients that would flow in eager mode, and stop at what was compiled."""


class TrainingModeWarning(UserWarning):
    """A module in training mode, which is compiled as it computes in eval mode."""


class GradientWatch:
    """Warns once if eager mode would record gradients where compiled code does not.

    ``is_trained`` says that parameters of the program require gradients.
    """

    is_recording = staticmethod(torch.is_grad_enabled)
    """Whether to ask at all; quick, since every call does."""

    def __init__(self, is_trained: bool = False) -> None:
        self._is_trained = is_trained

    def warns(self, arguments: Iterable[Any]) -> bool:
        """Warn, if there is reason to, of a call that is made while gradients are recorded."""
        of_inputs = False
        for each in arguments:
            if type(each) is _TENSOR and not each.requires_grad:  # as nearly all are
                continue
            of_inputs = of_inputs or _requires_gradients(each)
        if not of_inputs and not self._is_trained:
            return False
        what = "an input" if of_inputs else "its parameters"
        warn(
            f"gradients stop at this compiled program, and {what} would have some in eager mode: "
            "the results are detached. Call it under torch.no_grad() if none are wanted; "
            'torch.compile(model, backend="monograph") computes them',
            GradientWarning,
        )
        return True


def _requires_gradients(argument: Any) -> bool:
    if isinstance(argument, torch.Tensor):
        return argument.requires_grad
    if isinstance(argument, bool | int | float | str | None):
        return False
    leaves = torch.utils._pytree.tree_leaves(argument)
    return any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves)


def holds_trained(function: Any) -> bool:
    """Whether a function reads modules or tensors that require gradients.

    Exporting it makes constants of them, of which that is no longer known.
    """
    if isinstance(function, partial):
        values = (*function.args, *function.keywords.values())
        return holds_trained(function.func) or any(map(_is_trained, values))
    if isinstance(function, MethodType):
        return _is_trained(function.__self__)
    if not isinstance(function, FunctionType):
        return False
    held = inspect.getclosurevars(function)
    return any(map(_is_trained, (*held.nonlocals.values(), *held.globals.values())))


def _is_trained(value: Any) -> bool:
    tensors = value.parameters() if isinstance(value, torch.nn.Module) else (value,)
    return any(isinstance(each, torch.Tensor) and each.requires_grad for each in tensors)


def warn_of_training(module: Any) -> None:
    """Warn if a module would compute something else in the mode that it is in."""
    parts = [f"{name or 'the module'} ({type(part).__name__})" for name, part in _random(module)]
    if not parts:
        return
    more = f" and {len(parts) - _SHOWN_PARTS} more" if len(parts) > _SHOWN_PARTS else ""
    warn(
        f"{type(module).__name__} is in training mode, and is compiled as in eval mode: dropout is "
        "off, and norms use their averages and do not update them. This concerns "
        f"{', '.join(parts[:_SHOWN_PARTS])}{more}. Call .eval() first if that is meant; "
        'torch.compile(model, backend="monograph") trains',
        TrainingModeWarning,
    )


def _random(module: Any) -> Iterator[tuple[str, Any]]:
    """The parts that are in training mode, and compute something else in eval mode."""
    for name, part in module.named_modules():
        if part.training and _depends_on_mode(part):
            yield name, part


def _depends_on_mode(part: Any) -> bool:
    if isinstance(part, _DropoutNd):
        return part.p > 0
    if isinstance(part, _NormBase):
        return bool(part.track_running_stats)
    if isinstance(part, torch.nn.RNNBase):
        return bool(part.dropout > 0 and part.num_layers > 1)
    if isinstance(part, torch.nn.MultiheadAttention):
        return bool(part.dropout > 0)
    if isinstance(part, torch.nn.RReLU):
        return True
    return any(map(_reads_mode, type(part).__mro__))


def _reads_mode(kind: type) -> bool:
    """Whether a class of somebody's own asks for ``self.training``."""
    if kind.__module__.startswith("torch."):
        return False
    functions = [f for name, f in vars(kind).items() if name not in _NOT_RUN]
    return any(
        isinstance(each, FunctionType) and "training" in each.__code__.co_names
        for each in functions
    )


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the line outside of this package and of torch that compiles or calls."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGES):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
