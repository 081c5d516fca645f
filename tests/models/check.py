"""Take one model of the zoo one way (torch, onnx or train) and hold what comes out against eager.

Each way ends in a ``Result``: a verdict, or the error that stopped it and at which step.
"""

from __future__ import annotations

import contextlib
import copy
import io
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from monograph.autodiff.vjp import value_and_grad
from monograph.errors import MonographError, UnsupportedError
from monograph.frontends.onnx import from_onnx
from monograph.frontends.torch import ImportedModel, InputKind, import_torch
from monograph.ir.graph import Graph
from monograph.ir.verify import verify
from tests.models.model import Flat, Model
from tests.models.verdict import Array, Verdict, Word, error_of, judge, judge_all, worst
from tests.targets.running import Runner

WAYS = ("torch", "onnx", "train")
ROUND_TRIP = "round trip"
MOVES = 6
"""How many times a training step is repeated with weights moved by a rounding."""


@dataclass
class Result:
    """What came of one model one way.

    ``seconds`` are by step. ``failure`` names the step that failed and why, ``missing`` the ops
    that have no converter, ``excuse`` why a model cannot be exported at all.
    """

    model: str
    way: str
    verdict: Verdict | None = None
    nodes: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    failure: str = ""
    excuse: str = ""
    missing: tuple[str, ...] = ()
    runner: Runner = field(default_factory=Runner)

    @property
    def is_right(self) -> bool:
        """Whether the answer is right, or not to be had from the exporter."""
        if self.excuse:
            return True
        return self.verdict is not None and self.verdict.word is not Word.WRONG

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step, and name it in the failure if it fails."""
        start = time.perf_counter()
        try:
            yield
        except Exception as error:
            self.failure = f"{name}: {describe(error)}"
            if isinstance(error, UnsupportedError):
                self.missing = tuple(problem.op for problem in error.problems)
            raise Stopped from error
        finally:
            self.seconds[name] = time.perf_counter() - start


class Stopped(Exception):
    """A step failed; the result says which and why."""


def describe(error: Exception) -> str:
    """An error in one line: its class and message, and the rest of one of ours."""
    if isinstance(error, MonographError):
        return f"{type(error).__name__}: {error}"
    return f"{type(error).__name__}: {str(error).strip() or repr(error)}"


def check(model: Model, way: str, cache: Path | None = None, target: str = "interpreter") -> Result:
    """One model, one way, on a target."""
    result = Result(model.name, way, runner=Runner(target))
    reasons = {"torch": model.no_torch, "onnx": model.no_onnx, "train": model.no_train}
    reasons[ROUND_TRIP] = model.no_torch
    excuse = reasons[way]
    if excuse is not None:
        result.excuse = excuse
        return result
    with warnings.catch_warnings(), contextlib.suppress(Stopped):
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        take = {
            "torch": _through_torch,
            "onnx": _through_onnx,
            "train": _training_step,
            ROUND_TRIP: _round_trip,
        }
        take[way](model, result, cache)
    return result


def _through_torch(model: Model, result: Result, cache: Path | None) -> None:
    module, inputs = model.build(), model.example()
    with result.step("export"):
        program = torch.export.export(module, inputs, strict=False)
    with result.step("import"):
        graph = import_torch(program).graph
    _compare_outputs(graph, list(map(to_numpy, inputs)), module, inputs, result)


def _through_onnx(model: Model, result: Result, cache: Path | None) -> None:
    module, inputs = model.build(), model.example()
    with result.step("export"):
        content = onnx_file(model, module, inputs, cache)
    with result.step("import"):
        graph = from_onnx(content)
    taken = {value.name for value in graph.inputs}
    pairs = zip(module.names, inputs, strict=True)
    arrays = {name: to_numpy(tensor) for name, tensor in pairs if name in taken}
    _compare_outputs(graph, arrays, module, inputs, result)


def _round_trip(model: Model, result: Result, cache: Path | None) -> None:
    """torch to our graph, to ONNX, to our graph again, to StableHLO, to jaxlib."""
    from monograph.exporters.onnx import to_onnx
    from monograph.exporters.runtimes import run_stablehlo
    from monograph.exporters.stablehlo import to_stablehlo

    module, inputs = model.build(), model.example()
    with result.step("torch in"):
        graph = import_torch(torch.export.export(module, inputs, strict=False)).graph
    with result.step("onnx out"):
        content = to_onnx(graph).SerializeToString()
    with result.step("onnx in"):
        again = from_onnx(content)
    with result.step("stablehlo out"):
        text = to_stablehlo(again)
    result.nodes = len(again)
    with result.step("jaxlib"):
        got = run_stablehlo(text, list(map(to_numpy, inputs)))
    _compare_with_eager(got, module, inputs, result)


def _compare_outputs(
    graph: Graph, arrays: Any, module: Flat, inputs: Sequence[Tensor], result: Result
) -> None:
    result.nodes = len(graph)
    with result.step("verify"):
        verify(graph)
    with result.step("run"):
        got = result.runner(graph, arrays)
    _compare_with_eager(got, module, inputs, result)


def _compare_with_eager(
    got: Sequence[Array], module: Flat, inputs: Sequence[Tensor], result: Result
) -> None:
    with result.step("reference"), torch.no_grad():
        eager = [to_numpy(output) for output in module(*inputs)]
        exact = [to_numpy(output) for output in doubled(module)(*map(as_double, inputs))]
    if len(got) != len(eager):
        result.failure = f"compare: {len(got)} outputs, not {len(eager)}"
        return
    result.verdict = worst(judge_all(got, eager, exact))


def onnx_file(
    model: Model, module: Flat, inputs: tuple[Tensor, ...], cache: Path | None = None
) -> bytes:
    """The model as torch's exporter writes it; kept in ``cache``, since that takes seconds."""
    path = None if cache is None else cache / f"{model.name}.onnx"
    if path is not None and path.exists():
        return path.read_bytes()
    with contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
        program = torch.onnx.export(
            module, inputs, dynamo=True, verbose=False, input_names=list(module.names)
        )
    assert program is not None
    content: bytes = program.model_proto.SerializeToString()
    if path is not None:
        path.write_bytes(content)
    return content


# One training step.


class Step(nn.Module):
    """A loss of a model: its outputs, each element times a weight of its own, summed up.

    A mean of squares would not do: behind a layer norm it is a constant, its gradients noise.
    """

    def __init__(self, model: Flat, inputs: Sequence[Tensor]) -> None:
        super().__init__()
        self.model = model
        generator = torch.Generator().manual_seed(2)
        with torch.no_grad():
            outputs = copy.deepcopy(model)(*inputs)
        self.count = len(outputs)
        for position, output in enumerate(outputs):
            weights = torch.randn(output.shape, generator=generator) / output.numel() ** 0.5
            self.register_buffer(f"loss_weights_{position}", weights)

    def forward(self, *inputs: Tensor) -> Tensor:
        """The loss, one number."""
        loss = torch.zeros((), dtype=self.get_buffer("loss_weights_0").dtype)
        for position, output in enumerate(self.model(*inputs)):
            loss = loss + (output * self.get_buffer(f"loss_weights_{position}")).sum()
        return loss


@dataclass(frozen=True)
class Trained:
    """A loss, its gradient by every parameter, and the buffers as the step left them."""

    loss: Array
    gradients: dict[str, Array]
    buffers: dict[str, Array]


def _training_step(model: Model, result: Result, cache: Path | None) -> None:
    inputs = model.example()
    step = Step(model.build(training=True), inputs)
    before = copy.deepcopy(step)
    with result.step("export"):
        program = torch.export.export(step, inputs, strict=False)
    with result.step("import"):
        imported = import_torch(program, training=True)
    with result.step("verify"):
        verify(imported.graph)
    with result.step("differentiate"):
        parameters = [each.name for each in imported.inputs if each.kind is InputKind.PARAMETER]
        graph = value_and_grad(imported.graph, parameters, loss=_loss_position(imported))
        verify(graph)
    result.nodes = len(graph)
    with result.step("run"):
        got = _run_step(graph, imported, parameters, before, inputs, result.runner)
    with result.step("reference"):
        eager = [eager_step(copy.deepcopy(before), inputs)]
        eager += [eager_step(moved(before, seed), inputs) for seed in range(MOVES)]
        exact = eager_step(doubled(before), tuple(map(as_double, inputs)))
    result.verdict = worst(_judge_step(got, eager, exact))


def _loss_position(imported: ImportedModel) -> int:
    (output,) = imported.outputs
    assert output.position is not None
    return output.position


def _run_step(
    graph: Graph,
    imported: ImportedModel,
    parameters: Sequence[str],
    module: nn.Module,
    inputs: Sequence[Tensor],
    run: Runner,
) -> Trained:
    """Run the differentiated graph; gradients of tied parameters are added up."""
    state = {**dict(module.named_parameters(remove_duplicate=False)), **_buffers(module)}
    arrays = [
        to_numpy(inputs[each.position]) if each.position is not None else to_numpy(state[each.name])
        for each in imported.inputs
    ]
    outputs = run(graph, arrays)
    own = len(imported.graph.outputs)
    names = {id(tensor): name for name, tensor in module.named_parameters()}
    gradients: dict[str, Array] = {}
    for name, gradient in zip(parameters, outputs[own:], strict=True):
        first = names[id(state[name])]
        gradients[first] = gradients[first] + gradient if first in gradients else gradient
    updated = {
        imported.inputs[position].name: outputs[output]
        for output, position in imported.graph.updates.items()
    }
    untouched = {name: to_numpy(tensor) for name, tensor in _buffers(module).items()}
    return Trained(outputs[_loss_position(imported)], gradients, {**untouched, **updated})


def eager_step(module: nn.Module, inputs: Sequence[Tensor]) -> Trained:
    """One step in eager mode; parameters that the loss does not depend on get zeros."""
    loss = module(*inputs)
    loss.backward()
    gradients = {
        name: to_numpy(torch.zeros_like(tensor) if tensor.grad is None else tensor.grad)
        for name, tensor in module.named_parameters()
        if tensor.requires_grad
    }
    buffers = {name: to_numpy(tensor) for name, tensor in _buffers(module).items()}
    return Trained(to_numpy(loss), gradients, buffers)


def moved(module: nn.Module, seed: int) -> nn.Module:
    """A copy of a module with each parameter moved by about half a rounding."""
    generator = torch.Generator().manual_seed(seed)
    copied = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.mul_(1 + 6e-8 * torch.randn(parameter.shape, generator=generator))
    return copied


def _judge_step(got: Trained, eager: Sequence[Trained], exact: Trained) -> list[Verdict]:
    """Verdicts on the loss, every gradient and every buffer.

    ``eager`` holds several steps, of the module itself and of copies that differ from it by
    roundings: behind a kink (a ReLU at 0) or in a small batch norm, eager's own gradients vary a
    lot with them, and one sample does not show it.
    """
    first = eager[0]
    floor = 1e-2 * max(float(np.linalg.norm(each)) for each in exact.gradients.values())
    spread = {
        name: max(error_of(each.gradients[name], twin, floor) for each in eager)
        for name, twin in exact.gradients.items()
    }
    level = float(np.quantile(list(spread.values()), 0.9))
    widest = max(error_of(each.loss, exact.loss) for each in eager)
    verdicts = [judge(got.loss, first.loss, exact.loss, level=level, spread=widest).about("loss")]
    for name, gradient in first.gradients.items():
        if name in got.gradients:
            found = judge(
                got.gradients[name], gradient, exact.gradients[name],
                floor=floor, level=level, spread=spread[name],
            )  # fmt: skip
            verdicts.append(found.about(f"gradient of {name}"))
        elif np.any(gradient):
            verdicts.append(Verdict(Word.WRONG, np.inf, 0.0, f"no gradient of {name}"))
    level = max(error_of(each, exact.buffers[name]) for name, each in first.buffers.items())
    for name, buffer in first.buffers.items():
        twin = exact.buffers[name]
        widest = max(error_of(each.buffers[name], twin) for each in eager)
        found = judge(got.buffers[name], buffer, twin, level=level, spread=widest)
        verdicts.append(found.about(f"buffer {name}"))
    return verdicts


# Between torch and NumPy.


def to_numpy(tensor: Tensor) -> Array:
    """A tensor's contents, apart from the tensor."""
    return tensor.detach().clone().numpy()


def as_double(tensor: Tensor) -> Tensor:
    """A float tensor in double precision, others as they are."""
    return tensor.double() if tensor.is_floating_point() else tensor


def doubled(module: nn.Module) -> nn.Module:
    """A copy of a module in double precision, which torch's grouped product does not know."""
    twin = copy.deepcopy(module).double()
    for part in twin.modules():
        grouped = getattr(vars(part).get("config"), "_experts_implementation", "") == "grouped_mm"
        if grouped and hasattr(part, "set_experts_implementation"):
            part.set_experts_implementation("batched_mm")
    return twin


def _buffers(module: nn.Module) -> dict[str, Tensor]:
    return dict(module.named_buffers(remove_duplicate=False))
