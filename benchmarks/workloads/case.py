"""What a workload is: a case to be built from seeded inputs, and the registry of them by name.

A workload is a function of a spelling (``benchmarks.spelling``) and arrays, registered with the
cases to run it on, or a builder of a torch module, for work that has one spelling only. Constants
(weights, scales and shifts of norms) are parameters of the program, as they would be in a model: a
peer may fold or pack them when it compiles.

    @workload("rows", {"softmax-4096x4096": normal(4096, 4096)})
    def softmax(xp, x):
        return xp.softmax(x)
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.spelling import Spelling, TorchSpelling

Inputs = tuple[Tensor, ...]
Function = Callable[..., Any]

SEED = 0


@dataclass(frozen=True)
class Data:
    """The arrays of a case: what a call is given, and what is known when it is compiled."""

    inputs: Inputs
    constants: Inputs = ()


@dataclass(frozen=True)
class Case:
    """A workload that is ready to be given to a contender.

    ``module`` is its torch form. ``function`` and ``constants`` are its neutral form, where it has
    one. ``exports`` holds what several contenders derive from it, so that it is derived once.
    """

    name: str
    module: nn.Module
    inputs: Inputs
    function: Function | None = None
    constants: Inputs = ()
    exports: dict[int, bytes] = field(default_factory=dict)

    def outputs(self) -> Inputs:
        """What eager gives."""
        with torch.no_grad():
            return flat(self.module(*self.inputs))

    def reference(self) -> Inputs:
        """What eager gives in float64, from the same inputs."""
        module = copy.deepcopy(self.module).double()
        with torch.no_grad():
            return flat(module(*(_widened(each) for each in self.inputs)))


@dataclass(frozen=True)
class Workload:
    """A case that has not been built yet: it may be large.

    ``group`` is its family. The ``telling`` ones are measured first, and are all that a quick run
    measures. ``flop_share`` is how much of what a naive program multiplies has to be multiplied.
    """

    name: str
    group: str
    build: Callable[[], Case]
    telling: bool = False
    flop_share: float = 1.0


class Program(nn.Module):
    """A neutral function as a torch module, its constants as buffers."""

    def __init__(self, function: Function, constants: Inputs) -> None:
        super().__init__()
        self.function = function
        self.spelling: Spelling = TorchSpelling()
        self.count = len(constants)
        for index, constant in enumerate(constants):
            self.register_buffer(f"constant{index}", constant)

    def forward(self, *inputs: Tensor) -> Any:
        """The function of the inputs and the constants."""
        constants = (getattr(self, f"constant{index}") for index in range(self.count))
        return self.function(self.spelling, *inputs, *constants)


def flat(result: Any) -> Inputs:
    """The tensors of a result, in order."""
    if isinstance(result, Tensor):
        return (result,)
    if not isinstance(result, Sequence):
        raise TypeError(f"a workload returns tensors or a sequence of them, not {type(result)}")
    return tuple(tensor for each in result for tensor in flat(each))


def _widened(x: Tensor) -> Tensor:
    return x.double() if x.is_floating_point() else x


_REGISTRY: dict[str, Workload] = {}


def _register(workload: Workload) -> None:
    if workload.name in _REGISTRY:
        raise ValueError(f"two workloads are called {workload.name}")
    _REGISTRY[workload.name] = workload


def workload(
    group: str, cases: Mapping[str, Callable[[], Data]], telling: Sequence[str] = ()
) -> Callable[[Function], Function]:
    """Register a neutral function with each of its cases, and name those that tell most."""
    _refuse_unknown(telling, cases)

    def register(function: Function) -> Function:
        for name, make in cases.items():
            build = partial(neutral_case, name, function, make)
            _register(Workload(name, group, build, name in telling))
        return function

    return register


Builder = Callable[..., tuple[nn.Module, Inputs]]


def module_workload(
    group: str,
    cases: Mapping[str, Mapping[str, Any]],
    telling: Sequence[str] = (),
    flop_share: Callable[..., float] = lambda **_: 1.0,
) -> Callable[[Builder], Builder]:
    """Register a builder of a torch module and its inputs, with each case's keyword arguments."""
    _refuse_unknown(telling, cases)

    def register(build: Builder) -> Builder:
        for name, arguments in cases.items():
            made = partial(_module_case, name, build, arguments)
            share = flop_share(**arguments)
            _register(Workload(name, group, made, name in telling, share))
        return build

    return register


def _refuse_unknown(telling: Sequence[str], cases: Mapping[str, Any]) -> None:
    unknown = [name for name in telling if name not in cases]
    if unknown:
        raise ValueError(f"{unknown[0]} is not one of these workloads")


def neutral_case(name: str, function: Function, make: Callable[[], Data]) -> Case:
    """Build a case of a neutral function."""
    torch.manual_seed(SEED)
    data = make()
    module = Program(function, data.constants).eval()
    return Case(name, module, data.inputs, function, data.constants)


def _module_case(name: str, build: Builder, arguments: Mapping[str, Any]) -> Case:
    torch.manual_seed(SEED)
    module, inputs = build(**arguments)
    return Case(name, module.eval().requires_grad_(False), inputs)


def families() -> list[str]:
    """The groups that workloads are in, in order."""
    return list(dict.fromkeys(each.group for each in _REGISTRY.values()))


def select(patterns: Sequence[str] = ()) -> list[Workload]:
    """The workloads whose name or group is or contains one of the patterns (``*`` is any text)."""
    if not patterns:
        return list(_REGISTRY.values())
    return [each for each in _REGISTRY.values() if any(_matches(each, text) for text in patterns)]


def _matches(workload: Workload, pattern: str) -> bool:
    names = (workload.name, workload.group)
    return any(pattern in name or fnmatchcase(name, pattern) for name in names)
