"""How a program is compiled and called: the ways that a user has, as values."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.fuzz.programs import Model, Program
from tests.fuzz.values import COMPLEX, FLOATS

ROUTES = ("compile", "torch.compile", "onnx", "mono")
_ROUTE_WEIGHTS = (9, 7, 1, 2)
LEVELS = ("O0", "O1", "O2", "O2", "O2", "O3")


@dataclass(frozen=True)
class Mode:
    """A route, and how it is taken.

    ``symbolic`` are the sizes of inputs that are declared as unknown; ``gradients`` compares those
    as well; with more than one of ``threads``, one thread must give the same bits.
    """

    route: str = "compile"
    level: str = "O2"
    threads: int = 1
    symbolic: tuple[int, ...] = ()
    gradients: bool = False

    def to_json(self) -> dict[str, Any]:
        """A form that ``from_json`` reads."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Mode:
        """What ``to_json`` wrote."""
        return Mode(**{**data, "symbolic": tuple(data["symbolic"])})


def draw_mode(random: Random, program: Program, route: str | None = None) -> Mode:
    """A way to run a program that suits it."""
    chosen = route or random.choices(ROUTES, _ROUTE_WEIGHTS)[0]
    level = random.choice(LEVELS)
    awkward = any(each.contents == "special" for each in program.sources)
    if level == "O3" and awkward:
        level = "O2"  # O3 treats floats as real numbers: awkward ones have no right answer
    if level == "O3" and chosen == "torch.compile":
        level = "O2"  # it would search for schedules, and no option says for how long
    differentiable = any(each.dtype in (*FLOATS, *COMPLEX) for each in program.sources)
    return Mode(
        chosen,
        level,
        random.choice((1, 1, 1, 1, 2, 3)),
        _symbolic(random, program) if random.random() < 0.2 and chosen != "onnx" else (),
        # Nor is there one slope at a NaN or an infinity: torch's own formulas differ.
        chosen == "torch.compile" and differentiable and not awkward and random.random() < 0.6,
    )


def _symbolic(random: Random, program: Program) -> tuple[int, ...]:
    """Sizes of inputs that no weight has: those that may be declared as unknown."""
    fixed = {size for each in program.parameters for size in each.shape}
    sizes = {size for each in program.inputs for size in each.shape if size > 1} - fixed
    return tuple(size for size in sorted(sizes) if random.random() < 0.7)


def compiled(program: Program, mode: Mode, *, threads: int | None = None) -> Model:
    """The program through its route, as a function of tensors."""
    count = mode.threads if threads is None else threads
    return _ROUTES[mode.route](program, mode, count)


def _compile(program: Program, mode: Mode, threads: int) -> Any:
    import monograph

    return monograph.compile(
        program.build(program.weights()),
        *program.arguments(),
        level=mode.level,
        threads=threads,
        budget=0.0,
        dynamic_shapes=dynamic_shapes(program, mode),
    )


def _torch_compile(program: Program, mode: Mode, threads: int) -> Model:
    from monograph.bindings.dynamo import monograph  # its name is known where it is installed

    model: Model = torch.compile(
        program.build(program.weights()),
        backend=monograph,
        options={"level": mode.level, "threads": threads},
        dynamic=bool(mode.symbolic),
        fullgraph=True,
    )
    return model


def _mono(program: Program, mode: Mode, threads: int) -> Model:
    import monograph

    model = _compile(program, mode, threads)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        path = Path(folder) / "program.mono"
        model.save(path)
        loaded: Model = monograph.load(path)
    if program.inputs:
        return loaded
    return _on_arrays(loaded)  # who passes no tensors gets arrays


def _onnx(program: Program, mode: Mode, threads: int) -> Model:
    import monograph

    return _on_arrays(
        monograph.compile(exported_onnx(program), level=mode.level, threads=threads, budget=0.0)
    )


def exported_onnx(program: Program) -> Any:
    """The program as torch exports it to ONNX."""
    module = as_module(program.build(program.weights()))
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        exported = torch.onnx.export(
            module.eval(), tuple(program.arguments()), dynamo=True, verbose=False
        )
    return exported.model_proto  # type: ignore[union-attr]


def onnx_dtype(dtype: torch.dtype) -> int:
    """ONNX's number for a dtype of torch."""
    from torch.onnx import JitScalarType

    return int(JitScalarType.from_dtype(dtype).onnx_type())


def run_onnx_elsewhere(program: Program, arguments: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """What others make of the exported program: whether the export itself is right.

    That is ONNX Runtime, or the reference of ONNX where that has no kernels for the dtype.
    """
    from onnx.reference import ReferenceEvaluator
    from onnxruntime import InferenceSession
    from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

    model = exported_onnx(program)
    given = {}
    for number, (source, argument) in enumerate(zip(program.inputs, arguments, strict=True)):
        given[source.name] = given[f"arguments_{number}"] = _to_array(argument)
    feed = {each.name: given[each.name] for each in model.graph.input}
    try:
        session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    except NoKernel:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(model).run(None, feed)
    else:
        results = session.run(None, feed)
    return tuple(map(_to_tensor, results))


def as_module(model: Model) -> torch.nn.Module:
    """A model as a module, which is what torch exports."""
    return model if isinstance(model, torch.nn.Module) else _AsModule(model)


class _AsModule(torch.nn.Module):
    def __init__(self, function: Model) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        results: tuple[Tensor, ...] = self.function(*arguments)
        return results


def _on_arrays(model: Callable[..., Any]) -> Model:
    """A function of arrays as one of tensors; bfloat16 has no NumPy type of torch's own."""

    def call(*arguments: Tensor) -> tuple[Tensor, ...]:
        results = model(*map(_to_array, arguments))
        several = results if isinstance(results, (tuple, list)) else (results,)
        return tuple(map(_to_tensor, several))

    return call


def _to_array(tensor: Tensor) -> Any:
    if tensor.dtype != torch.bfloat16:
        return tensor.numpy()
    import ml_dtypes

    return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)


def _to_tensor(array: Any) -> Tensor:
    if array.dtype.name != "bfloat16":
        return torch.from_numpy(np.array(array))
    return torch.from_numpy(np.array(array).view(np.int16)).view(torch.bfloat16)


_ROUTES: dict[str, Callable[[Program, Mode, int], Model]] = {
    "compile": _compile,
    "torch.compile": _torch_compile,
    "onnx": _onnx,
    "mono": _mono,
}


def dynamic_shapes(program: Program, mode: Mode) -> tuple[Any, ...] | None:
    """What ``torch.export`` is told of the sizes; None if they are all fixed."""
    if not mode.symbolic:
        return None
    from torch.export import Dim

    dims = {size: Dim(f"n{size}", min=2, max=4096) for size in mode.symbolic}
    return tuple(
        {axis: dims[size] for axis, size in enumerate(each.shape) if size in dims}
        for each in program.inputs
    )


def other_sizes(mode: Mode) -> Iterator[dict[int, int]]:
    """Sizes to call a program with that was compiled for symbolic ones."""
    for shift in (-1, 9):
        yield {size: max(2, size + shift) for size in mode.symbolic}


def results_and_gradients(model: Model, arguments: Sequence[Tensor]) -> list[Tensor]:
    """Outputs, then the gradients of arguments and weights; a missing gradient is zero.

    The outputs are weighted by fixed numbers, so that no two elements count alike.
    """
    leaves = [each.detach() for each in arguments]
    wanted = [each.requires_grad_() for each in leaves if _differentiable(each)]
    outputs = model(*leaves)
    wanted += [each for each in _parameters(model) if each.requires_grad]
    terms = [_weighted(each) for each in outputs if each.requires_grad]
    if not terms:
        return [each.detach() for each in outputs]
    loss = torch.stack([term.double() for term in terms]).sum()
    found = torch.autograd.grad(loss, wanted, allow_unused=True)
    gradients = [
        torch.zeros_like(w) if g is None else g for g, w in zip(found, wanted, strict=True)
    ]
    return [each.detach() for each in (*outputs, *gradients)]


def _weighted(output: Tensor) -> Tensor:
    real = torch.view_as_real(output.resolve_conj()) if output.is_complex() else output
    weights = torch.cos(torch.arange(real.numel(), dtype=torch.float32)).to(real.dtype)
    return (real * weights.view(real.shape)).sum()


def _differentiable(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _parameters(model: Model) -> list[Tensor]:
    return list(model.parameters()) if isinstance(model, torch.nn.Module) else []
