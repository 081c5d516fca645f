"""Whole models on a GPU, held against float64 beside eager torch: inference and a training step.

``python -m tests.targets.gpu.models [NAME …]`` runs them on the GPU of this machine, in f32 and
bf16; ``TRITON_INTERPRET=1`` with ``--simulated`` on a simulated one, in f32. Each is called several
times: every call must give the same bits.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

import monograph
from benchmarks.gpu import models as m

Make = Callable[[], tuple[nn.Module, tuple[Any, ...]]]
FLOATS = {"f32": torch.float32, "bf16": torch.bfloat16}
FACTOR = 3.0
"""How many times eager's error ours may be."""
FLOOR = {"f32": 1e-6, "bf16": 4e-3}


def _tokens(count: int, batch: int = 2) -> torch.Tensor:
    return torch.randint(0, 99, (batch, count))


def _llama(cached: bool) -> tuple[nn.Module, tuple[Any, ...]]:
    model = m.Llama(2, 64, 4, 2, 96, 99)
    if not cached:
        return model, (_tokens(24), torch.arange(24))
    return model, (_tokens(1), torch.tensor([24]), torch.randn(4, 2, 2, 24, 16))


MODELS: dict[str, Make] = {
    "mlp": lambda: (m.Mlp(64, 128), (torch.randn(32, 64),)),
    "gated mlp": lambda: (m.GatedMlp(64, 96), (torch.randn(1, 64),)),
    "bert": lambda: (m.Bert(2, 64, 4, 99), (_tokens(32),)),
    "gpt": lambda: (m.Gpt(2, 64, 4, 99), (_tokens(32),)),
    "vit": lambda: (m.Vit(2, 64, 4, 64), (torch.randn(2, 3, 64, 64),)),
    "resnet": lambda: (m.ResNet((1, 1), 16), (torch.randn(2, 3, 32, 32),)),
    "llama": lambda: _llama(False),
    "llama decode": lambda: _llama(True),
}


class Checker:
    """Runs models in one place."""

    def __init__(self, device: str, target: str | None) -> None:
        self.device = device
        self.target = target
        self.wrong = 0

    def model(self, name: str, dtype: str) -> tuple[nn.Module, tuple[Any, ...]]:
        """A model and its inputs, the same in every run."""
        torch.manual_seed(0)
        model, inputs = MODELS[name]()
        if name == "resnet":
            for each in model.modules():
                if isinstance(each, nn.BatchNorm2d):
                    nn.init.uniform_(each.running_var, 0.5, 2.0)
        kind = FLOATS[dtype]
        given = tuple(
            each.to(self.device, kind) if each.is_floating_point() else each.to(self.device)
            for each in inputs
        )
        return model.to(self.device, kind).eval(), given

    def inference(self, name: str, dtype: str) -> str:
        """Compile and call; the line to print."""
        model, inputs = self.model(name, dtype)
        started = time.perf_counter()
        compiled = monograph.compile(model, *inputs, target=self.target, cache=False)
        seconds = time.perf_counter() - started
        with torch.no_grad():
            results = [_flat(compiled(*inputs)) for _ in range(4)]
            eager = _flat(model(*inputs))
            exact = _flat(copy.deepcopy(model).double()(*map(_double, inputs)))
        same = all(_equal(results[0], each) for each in results)
        ours, theirs = _error(results[0], exact), _error(eager, exact)
        hosted = compiled.report.fallbacks
        note = f"{seconds:.1f} s, {len(compiled.report.kernels)} kernels"
        note += f", on the host: {hosted}" if hosted else ""
        return self.line(f"{name} {dtype}", ours, theirs, dtype, same, note)

    def training(self, name: str, dtype: str) -> str:
        """A step of gradients through torch.compile."""
        from monograph.bindings.dynamo import monograph as backend  # named where it is installed

        model, inputs = self.model(name, dtype)
        model.train()
        exact = _gradients(copy.deepcopy(model).double(), model, inputs, _double)
        eager = _gradients(model, model, inputs, lambda each: each)
        options = {} if self.target is None else {"target": self.target}
        torch._dynamo.reset()
        compiled = torch.compile(model, backend=backend, options=options)
        started = time.perf_counter()
        first = _gradients(compiled, model, inputs, lambda each: each)
        seconds = time.perf_counter() - started
        again = _gradients(compiled, model, inputs, lambda each: each)
        ours, theirs = _error(first, exact), _error(eager, exact)
        same = _equal(first, again)
        return self.line(f"{name} {dtype} train", ours, theirs, dtype, same, f"{seconds:.1f} s")

    def line(self, name: str, ours: float, theirs: float, dtype: str, same: bool, note: str) -> str:
        """What came of a model, and in front what is wrong."""
        is_right = ours <= max(FACTOR * theirs, FLOOR[dtype]) and same
        self.wrong += not is_right
        word = "right" if is_right else "WRONG"
        word += "" if same else " (other bits in another call)"
        return f"{word} {name}: {ours:.2e} (eager {theirs:.2e}); {note}"


def _flat(result: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = torch.utils._pytree.tree_leaves(result)
    return found


def _double(item: torch.Tensor) -> torch.Tensor:
    return item.double() if item.is_floating_point() else item


def _equal(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(one, other, strict=True))


def _error(got: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> float:
    pairs = zip(got, exact, strict=True)
    return max(float((x.double() - y).norm() / y.norm().clamp(min=1e-30)) for x, y in pairs)


def _gradients(
    function: Any, model: nn.Module, inputs: Sequence[Any], convert: Any
) -> list[torch.Tensor]:
    owner = function if isinstance(function, nn.Module) and convert is _double else model
    owner.zero_grad()
    given = [convert(each) for each in inputs]
    results = _flat(function(*given))
    torch.manual_seed(1)
    draws = [torch.randn(each.shape[1:], device=each.device) for each in results]
    loss = sum((x * draw.to(x.dtype)).sum() for x, draw in zip(results, draws, strict=True))
    loss.backward()  # type: ignore[union-attr]
    return [each.grad.clone() for each in owner.parameters() if each.grad is not None]


def main(arguments: Sequence[str]) -> int:
    """Check models; 1 if any is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--simulated", action="store_true")
    parser.add_argument("--no-training", action="store_true")
    chosen = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    if chosen.simulated:
        from tests.targets.gpu.simulator import simulated_gpu

        place, checker = simulated_gpu(), Checker("cpu", "gpu:sm_90")
    else:
        place, checker = nullcontext(), Checker("cuda", None)  # type: ignore[assignment]
    ways = [checker.inference] if chosen.no_training else [checker.inference, checker.training]
    with place:
        for name in chosen.names or MODELS:
            for dtype in ("f32",) if chosen.simulated else FLOATS:
                for way in ways:
                    try:
                        print(way(name, dtype), flush=True)
                    except Exception:
                        checker.wrong += 1
                        text = "".join(traceback.format_exc().splitlines(True)[-6:])
                        print(f"WRONG {name} {dtype} {way.__name__}: {text}", flush=True)
    print(f"{checker.wrong} wrong")
    return bool(checker.wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
