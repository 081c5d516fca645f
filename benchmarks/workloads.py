"""What is measured: every workload, by name, built from seeded inputs.

A workload is a function of a spelling (``benchmarks.spelling``) and arrays, registered with the
cases to run it on, or a builder of a torch module, for work that has one spelling only. Constants
(scales and shifts of norms) are parameters of the program, as they would be in a model: a peer may
fold or pack them when it compiles.

    @workload("rows", {"softmax-4096x4096": normal(4096, 4096)})
    def softmax(xp, x):
        return xp.softmax(x)

Inputs are normally distributed unless a case says otherwise; ``strided`` and ``transposed`` ones
are views, which a peer that takes contiguous arrays only has to copy in every call.
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
    """A case that has not been built yet: it may be large."""

    name: str
    group: str
    build: Callable[[], Case]


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


def workload(group: str, cases: Mapping[str, Callable[[], Data]]) -> Callable[[Function], Function]:
    """Register a neutral function with each of its cases."""

    def register(function: Function) -> Function:
        for name, make in cases.items():
            _register(Workload(name, group, partial(neutral_case, name, function, make)))
        return function

    return register


def module_workload(
    group: str, cases: Mapping[str, Mapping[str, Any]]
) -> Callable[[Callable[..., tuple[nn.Module, Inputs]]], Callable[..., tuple[nn.Module, Inputs]]]:
    """Register a builder of a torch module and its inputs, with each case's keyword arguments."""

    def register(
        build: Callable[..., tuple[nn.Module, Inputs]],
    ) -> Callable[..., tuple[nn.Module, Inputs]]:
        for name, arguments in cases.items():
            _register(Workload(name, group, partial(_module_case, name, build, arguments)))
        return build

    return register


def neutral_case(name: str, function: Function, make: Callable[[], Data]) -> Case:
    """Build a case of a neutral function."""
    torch.manual_seed(SEED)
    data = make()
    module = Program(function, data.constants).eval()
    return Case(name, module, data.inputs, function, data.constants)


def _module_case(
    name: str,
    build: Callable[..., tuple[nn.Module, Inputs]],
    arguments: Mapping[str, Any],
) -> Case:
    torch.manual_seed(SEED)
    module, inputs = build(**arguments)
    return Case(name, module.eval().requires_grad_(False), inputs)


def select(patterns: Sequence[str] = ()) -> list[Workload]:
    """The workloads whose name or group is or contains one of the patterns (``*`` is any text)."""
    if not patterns:
        return list(_REGISTRY.values())
    return [each for each in _REGISTRY.values() if any(_matches(each, text) for text in patterns)]


def _matches(workload: Workload, pattern: str) -> bool:
    names = (workload.name, workload.group)
    return any(pattern in name or fnmatchcase(name, pattern) for name in names)


# Makers of arrays. Each gives a function, so that nothing is allocated before it is needed.

Make = Callable[[], Data]


def normal(*shape: int, dtype: torch.dtype = torch.float32, count: int = 1) -> Make:
    """``count`` arrays of normally distributed numbers."""
    return lambda: Data(tuple(torch.randn(shape).to(dtype) for _ in range(count)))


def uniform(*shape: int, dtype: torch.dtype = torch.float32) -> Make:
    """One array of numbers in [0, 1): sums of them are well conditioned."""
    return lambda: Data((torch.rand(shape).to(dtype),))


def normed(
    *shape: int,
    axis: int = -1,
    arrays: int = 2,
    constants: int = 2,
    dtype: torch.dtype = torch.float32,
) -> Make:
    """Arrays, and as constants a scale (and a shift) along an axis of theirs."""

    def make() -> Data:
        inputs = tuple(torch.randn(shape).to(dtype) for _ in range(arrays))
        scale = (torch.rand(shape[axis]) + 0.5).to(dtype)
        shift = torch.randn(shape[axis]).to(dtype)
        return Data(inputs, (scale, shift)[:constants])

    return make


def labelled(rows: int, classes: int) -> Make:
    """Logits, and a label for each row."""
    return lambda: Data((torch.randn(rows, classes), torch.randint(0, classes, (rows,))))


def transposed(rows: int, columns: int) -> Make:
    """A transposed view and a contiguous array of the same shape."""
    return lambda: Data((torch.randn(columns, rows).T, torch.randn(rows, columns)))


def strided(rows: int, columns: int) -> Make:
    """Every other column of an array twice as wide."""
    return lambda: Data((torch.randn(rows, 2 * columns)[:, ::2],))


HALVES = {"bf16": torch.bfloat16, "f16": torch.float16}
SIDE = 4096
ROWS = tuple((16 * 2**20 // columns, columns) for columns in (1024, 4096, 16384, 65536))


def _in_halves(
    name: str, make: Callable[..., Make], *shape: int, **options: Any
) -> dict[str, Make]:
    """The same case in each type of 16 bits."""
    return {
        f"{name}-{suffix}": make(*shape, dtype=dtype, **options) for suffix, dtype in HALVES.items()
    }


# Pointwise


@workload(
    "pointwise",
    {
        "chain4-4096x4096": normal(SIDE, SIDE),
        "chain4-4093x4093": normal(4093, 4093),
        "chain4-1009x1009": normal(1009, 1009),
        "chain4-64x64": normal(64, 64),
        "chain4-64": normal(64),
        **_in_halves("chain4-4096x4096", normal, SIDE, SIDE),
    },
)
def four_op_chain(xp: Spelling, x: Any) -> Any:
    """sigmoid(2 relu(x) + 1), one op after another."""
    return xp.sigmoid(xp.relu(x) * 2.0 + 1.0)


@workload("pointwise", {"chain5-4096x4096": normal(SIDE, SIDE)})
def five_op_chain(xp: Spelling, x: Any) -> Any:
    """sigmoid(relu(2x + 1) / 2), one op after another."""
    return xp.sigmoid(xp.relu(x * 2.0 + 1.0) * 0.5)


@workload(
    "pointwise",
    {
        "gelu-tanh-1024x1024": normal(1024, 1024),
        "gelu-tanh-4096x4096": normal(SIDE, SIDE),
        **_in_halves("gelu-tanh-4096x4096", normal, SIDE, SIDE),
    },
)
def gelu_tanh(xp: Spelling, x: Any) -> Any:
    """GELU by its approximation with tanh, as one op of the framework."""
    return xp.gelu(x, tanh=True)


@workload(
    "pointwise",
    {"gelu-erf-1024x1024": normal(1024, 1024), "gelu-erf-4096x4096": normal(SIDE, SIDE)},
)
def gelu_erf(xp: Spelling, x: Any) -> Any:
    """GELU as it is defined, as one op of the framework."""
    return xp.gelu(x, tanh=False)


@workload("pointwise", {"gelu-spelt-4096x4096": normal(SIDE, SIDE)})
def gelu_spelt(xp: Spelling, x: Any) -> Any:
    """GELU by its approximation with tanh, written out."""
    return 0.5 * x * (1.0 + xp.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


@workload("pointwise", {"tiny-call-16": normal(16)})
def tiny(xp: Spelling, x: Any) -> Any:
    """Two ops on next to nothing: what a call costs."""
    return xp.relu(x * 2.0)


# Layout


@workload("layout", {"transpose-inside-4096x4096": normal(SIDE, SIDE, count=2)})
def transpose_inside(xp: Spelling, x: Any, y: Any) -> Any:
    """A transpose in the program, between pointwise ops."""
    return xp.relu(x.T * 2.0 + y)


@workload("layout", {"transposed-argument-4096x4096": transposed(SIDE, SIDE)})
def transposed_argument(xp: Spelling, x: Any, y: Any) -> Any:
    """Pointwise ops on an argument that is a transposed view."""
    return xp.relu(x * 2.0 + y)


@workload("layout", {"stride-inside-4096x8192": normal(SIDE, 2 * SIDE)})
def stride_inside(xp: Spelling, x: Any) -> Any:
    """Every other column, taken in the program."""
    return xp.relu(x[:, ::2] * 2.0 + 1.0)


@workload("layout", {"strided-argument-4096x4096": strided(SIDE, SIDE)})
def strided_argument(xp: Spelling, x: Any) -> Any:
    """Pointwise ops on an argument that is a strided view."""
    return xp.relu(x * 2.0 + 1.0)


# Rows


@workload(
    "rows",
    {
        **{f"softmax-{rows}x{columns}": normal(rows, columns) for rows, columns in ROWS},
        "softmax-1009x4093": normal(1009, 4093),
        "softmax-64x64": normal(64, 64),
        **_in_halves("softmax-4096x4096", normal, SIDE, SIDE),
    },
)
def softmax(xp: Spelling, x: Any) -> Any:
    """Softmax of each row."""
    return xp.softmax(x)


@workload(
    "rows", {f"log-softmax-{rows}x{columns}": normal(rows, columns) for rows, columns in ROWS}
)
def log_softmax(xp: Spelling, x: Any) -> Any:
    """The logarithm of softmax of each row."""
    return xp.log_softmax(x)


@workload(
    "rows",
    {
        "add-layer-norm-2048x1024": normed(2048, 1024),
        "add-layer-norm-4096x4096": normed(SIDE, SIDE),
        "add-layer-norm-1009x1009": normed(1009, 1009),
        "add-layer-norm-64x64": normed(64, 64),
        **_in_halves("add-layer-norm-4096x4096", normed, SIDE, SIDE),
    },
)
def add_layer_norm(xp: Spelling, x: Any, residual: Any, scale: Any, shift: Any) -> Any:
    """A residual added, then layer norm."""
    return xp.layer_norm(x + residual, scale, shift)


@workload("rows", {"rms-norm-2048x4096": normed(2048, 4096, arrays=1, constants=1)})
def rms_norm(xp: Spelling, x: Any, scale: Any) -> Any:
    """RMS norm alone."""
    return xp.rms_norm(x, scale)


@workload("rows", {"add-rms-norm-2048x4096": normed(2048, 4096, constants=1)})
def add_rms_norm(xp: Spelling, x: Any, residual: Any, scale: Any) -> Any:
    """A residual added, then RMS norm; the sum is kept for the next residual."""
    added = x + residual
    return xp.rms_norm(added, scale), added


@workload("rows", {"add-group-norm-8x320x64x64": normed(8, 320, 64, 64, axis=1)})
def add_group_norm(xp: Spelling, x: Any, residual: Any, scale: Any, shift: Any) -> Any:
    """A residual added, then group norm in 32 groups."""
    return xp.group_norm(x + residual, 32, scale, shift)


@workload("rows", {"cross-entropy-512x32000": labelled(512, 32000)})
def cross_entropy(xp: Spelling, logits: Any, labels: Any) -> Any:
    """The mean loss over a vocabulary of 32,000."""
    return xp.cross_entropy(logits, labels)


@workload("rows", {"argmax-4096x4096": normal(SIDE, SIDE), "argmax-512x32000": normal(512, 32000)})
def argmax(xp: Spelling, x: Any) -> Any:
    """The position of each row's largest element."""
    return xp.argmax(x)


# Sums


@workload(
    "sums",
    {
        "sum-4096x4096": uniform(SIDE, SIDE),
        "sum-64": uniform(64),
    },
)
def full_sum(xp: Spelling, x: Any) -> Any:
    """The sum of everything."""
    return xp.sum(x)


@workload(
    "sums",
    {
        "mean-4096x4096": uniform(SIDE, SIDE),
        **_in_halves("mean-4096x4096", uniform, SIDE, SIDE),
    },
)
def full_mean(xp: Spelling, x: Any) -> Any:
    """The mean of everything."""
    return xp.mean(x)


@workload(
    "sums",
    {"column-sum-4096x4096": uniform(SIDE, SIDE), "column-sum-4093x1009": uniform(4093, 1009)},
)
def column_sum(xp: Spelling, x: Any) -> Any:
    """The sum of each column."""
    return xp.sum(x, 0)


# Whole models


class Encoder(nn.Module):
    """BERT from tokens to its last hidden states, as tensors."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        config = BertConfig(num_hidden_layers=layers)
        self.model = BertModel(config)  # type: ignore[no-untyped-call]

    def forward(self, tokens: Tensor) -> Tensor:
        """The last hidden states."""
        states: Tensor = self.model(input_ids=tokens).last_hidden_state
        return states


@module_workload("models", {"bert-base-1x128": {"batch": 1, "tokens": 128}})
def bert(batch: int, tokens: int, layers: int = 12) -> tuple[nn.Module, Inputs]:
    """BERT-base with random weights."""
    return Encoder(layers), (torch.randint(0, 30000, (batch, tokens)),)
