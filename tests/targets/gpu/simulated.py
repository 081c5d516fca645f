"""Whole programs for a GPU, run by the runtime as it is on a simulated one (``simulator``).

``TRITON_INTERPRET=1 python -m tests.targets.gpu.simulated [NAME …]`` compiles each, calls it
several times (one step after the other, then as a graph, with inputs and outputs in new places),
and compares with NumPy's interpreter. It prints what differs, or how much was run.
"""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import monograph
from monograph import functional as F
from monograph.errors import EvaluationError, InputError
from monograph.frontends.torch import program
from monograph.ir.dims import evaluate_dim
from monograph.passes.manager import run_pipeline
from monograph.program.code import Code, Launch
from monograph.runtime.compile_report import CompileReport
from monograph.runtime.gpu import bench
from monograph.runtime.options import Options
from monograph.targets.names import resolve_target
from monograph.tuning import gpu_contests as contests
from tests.targets.gpu.simulator import SimulatedDriver, simulated_gpu

Program = tuple[Callable[..., Any], tuple[str, ...]]
CHIP = "gpu:sm_90"


def _block(x: Any, n: Any, q: Any, k: Any, v: Any, o: Any) -> Any:
    y = F.layer_norm(x, n)
    heads = [F.transpose(F.reshape(y @ w, (2, 24, 2, 16)), (0, 2, 1, 3)) for w in (q, k, v)]
    mixed = F.attention(*heads, causal=True)
    return x + F.reshape(F.transpose(mixed, (0, 2, 1, 3)), (2, 24, 32)) @ o


def _heads(x: Any) -> Any:
    """Attention whose heads lie together before and after, as models hand it to their backward."""
    q, k, v = (F.transpose(part, (0, 2, 1, 3)) for part in (x, x * 2.0, x + 1.0))
    return F.transpose(F.attention(q, k, v, causal=True), (0, 2, 1, 3))


def _gate(x: Any) -> Any:
    return F.silu(x[:, :128]) * x[:, 128:]


def _turned(x: Any, cosines: Any, sines: Any) -> Any:
    left, right = x[..., :8], x[..., 8:]
    return F.concat([left * cosines - right * sines, right * cosines + left * sines], -1)


PROGRAMS: dict[str, Program] = {
    "pointwise": (lambda x: F.relu(x * 2.0) + 1.0, ("f32[33, 65]",)),
    "mlp": (
        lambda x, v, w: F.softmax(F.gelu(x @ v) @ w, -1),
        ("f32[32, 48]", "f32[48, 64]", "f32[64, 32]"),
    ),
    "block": (_block, ("f32[2, 24, 32]", "f32[32]", *["f32[32, 32]"] * 4)),
    "conv": (
        lambda x, v, w: F.sum(F.relu(F.conv(F.relu(F.conv(x, v)), w)), axis=(2, 3)),
        ("f32[2, 4, 9, 10]", "f32[16, 4, 3, 3]", "f32[8, 16, 3, 3]"),
    ),
    "several": (
        lambda x, y: (F.sum(x @ y, axis=0), F.exp(x), F.transpose(y, (1, 0)), x),
        ("f32[32, 40]", "f32[40, 48]"),
    ),
    "sorted": (lambda x: F.exp(F.sort(x * 2.0, -1)) - F.max(x, axis=0), ("f32[20, 30]",)),
    "symbolic": (lambda x, w: F.softmax(F.exp(x) @ w, -1) * 2.0, ("f32[n, 32]", "f32[32, 48]")),
    "host": (lambda x: F.cummax(x + 1.0, 0)[0] * 2.0, ("f32[8, 9]",)),
    "heads": (lambda x: F.reshape(_heads(x), (48, 32)), ("f16[2, 24, 2, 16]",)),
    "as many heads as tokens": (_heads, ("f16[2, 4, 4, 16]",)),
    "channels last": (
        lambda x, v, w: F.transpose(F.conv(F.relu(F.conv(x, v)), w), (0, 2, 3, 1)),
        ("f16[2, 4, 10, 10]", "f16[16, 4, 3, 3]", "f16[6, 16, 3, 3]"),
    ),
    "vector": (
        lambda x, n, w, v: _gate(F.rms_norm(x, n) @ w) @ v + x,
        ("f16[1, 64]", "f16[64]", "f16[64, 256]", "f16[128, 64]"),
    ),
    "pieces": (
        lambda x, y: (x[0] * 2.0 + y, F.sum(x[1] * 3.0, axis=1), F.exp(x[2]), x[3] * 2.0 + y),
        ("f32[4, 8, 12]", "f32[8, 12]"),
    ),
    "turned": (
        lambda x, c, s: (_turned(x, c, s), _turned(x * 2.0, s, c), x + 1.0),
        ("f32[2, 4, 1, 16]", "f32[1, 8]", "f32[1, 8]"),
    ),
    "layer": (
        lambda x, w, b: F.relu(F.linear(x, w, b)),
        ("f16[32, 48]", "f16[64, 48]", "f16[64]"),
    ),
    "half": (lambda x, w: F.gelu(F.rms_norm(x, w)), ("f16[16, 64]", "f16[64]")),
}


def run(name: str, gpu: SimulatedDriver) -> str:
    """What is wrong with a program's results, if anything."""
    function, types = PROGRAMS[name]
    compiled = monograph.compile(function, *types, target="gpu:sm_90", cache=False)
    graph = monograph.trace(function, *types)
    rng = np.random.default_rng(0)
    before: list[tuple[Any, Any]] = []
    for turn in range(5):
        sizes = {symbol: (16, 21)[turn % 2] for symbol in graph.symbols().values()}
        arrays = [
            rng.normal(size=tuple(evaluate_dim(dim, sizes) for dim in value.shape)).astype(
                value.dtype.numpy
            )
            for value in graph.inputs
        ]
        given = [torch.from_numpy(each) for each in arrays]
        kept = compiled.executable.run(given)
        for got, expected in zip(kept, monograph.interpret(graph, arrays), strict=True):
            exact = expected.astype(np.float64)
            error = np.linalg.norm(got.numpy() - exact) / np.linalg.norm(exact)
            if not error < (1e-3 if expected.dtype == np.float16 else 2e-6):
                return f"turn {turn}: off by {error}"
        if not all(torch.equal(result, copy) for result, copy in before):
            return f"turn {turn}: an output of the call before was overwritten"
        before = [(each, each.clone()) for each in kept]
    return ""


def refuses_indices(gpu: SimulatedDriver) -> str:
    """Whether an index out of range is an error of the call that has it, and of no other."""
    compiled = monograph.compile(
        lambda x, i: F.softmax(F.sort(F.take(x, i, axis=0), -1) @ x, -1),
        "f32[20, 20]", "i64[32]", target="gpu:sm_90", cache=False,
    ).executable  # fmt: skip
    x, good = torch.randn(20, 20), torch.arange(32) % 20
    for turn in range(6):
        bad = turn % 2 == 1
        try:
            compiled.run([x, good + 5 if bad else good])
        except EvaluationError as error:
            if not bad or "take" not in str(error):
                return f"turn {turn}: {error}"
        else:
            if bad:
                return f"turn {turn}: not refused"
    try:
        compiled.run([x, good[:5]])
    except InputError:
        return ""
    return "a wrong shape was taken"


def contenders_agree(gpu: SimulatedDriver) -> str:
    """Whether all contenders of a choice run, and compute the same, as they are measured."""
    compiled = monograph.compile(
        lambda x, w, b, v: F.gelu(F.linear(x, w, b), approximate="tanh") @ v,
        "f16[32, 48]", "f16[64, 48]", "f16[64]", "f16[64, 48]", target=CHIP, cache=False,
    ).executable  # fmt: skip
    graph, wrong = compiled.graph.clone(), list[str]()
    target = resolve_target(CHIP)
    run_pipeline(graph, target.lowering())

    def run_each(codes: Mapping[str, Code]) -> dict[str, float]:
        torch.manual_seed(0)
        sets = bench.operand_sets(next(iter(codes.values())), "cpu")[:2]
        found = {}
        for name, code in codes.items():
            rotation = bench.Rotation(code, sets, 0)
            last = code.steps[-1]
            slot = last.slots[-1] if isinstance(last, Launch) else last.outputs[0]  # type: ignore[union-attr]
            for turn in range(3):
                rotation.run(turn, 0)
            found[name] = rotation.frame.tensor(slot, rotation.frame.shapes[slot], ()).clone()
        first = next(iter(found.values())).reshape(-1).float()
        for name, each in found.items():
            off = float((each.reshape(-1).float() - first).norm() / first.norm())
            wrong.extend([] if off < 2e-3 else [f"{name}: off by {off}"])
        return dict.fromkeys(codes, 1.0)

    before, contests._TABLES = contests._TABLES, {}
    try:
        with patch.object(contests, "machine_text", lambda: "a simulated GPU"):
            options = Options(target=CHIP, level="O3", cache=False)
            chosen = contests.measure_target(target, graph, options, CompileReport(), run_each)
    finally:
        contests._TABLES = before
    if not any("cuBLASLt" in times for times in chosen.chip.measured.sites.values()):
        wrong.append("the library's epilogue was no contender")
    return "; ".join(wrong)


def shares_weights(gpu: SimulatedDriver) -> str:
    """Whether weights are read where a module has them, and are a snapshot of it all the same."""
    module = torch.nn.Sequential(
        torch.nn.Linear(32, 48), torch.nn.ReLU(), torch.nn.Conv2d(2, 4, 3)
    ).eval()  # fmt: skip
    x = torch.randn(1, 2, 8, 32)
    address = torch._C._data_address
    wanted, places = module(x), [address(each) for each in module.parameters()]
    with patch.object(program, "is_on_device", lambda tensor: True):
        compiled = monograph.compile(module, x, target=CHIP, cache=False)
    before = compiled(x)
    held = compiled.executable.loaded.on(0).weights.values()
    if not {block.address for block in held} & set(places):
        return "no weight is read where the module has it"
    if [address(each) for each in module.parameters()] != places:
        return "the module's weights were moved by compiling"
    with torch.no_grad():
        for each in module.parameters():
            each.data.mul_(3)
    after = compiled(x)
    if not torch.allclose(before, wanted, atol=1e-5) or not torch.equal(before, after):
        return "a program saw what became of the module after it was compiled"
    return ""


def main(names: Sequence[str]) -> int:
    """Run these programs; without names all of them, and what must be refused."""
    problems = []
    with simulated_gpu() as gpu:
        for name in names or PROGRAMS:
            try:
                problem = run(name, gpu)
            except Exception:
                problem = traceback.format_exc()
            problems += [f"{name}: {problem}"] if problem else []
        problem = "" if names else refuses_indices(gpu)
        problems += [f"indices: {problem}"] if problem else []
        gc.collect()
        problems += ["words of the host are never given back"] if gpu.events else []
        problem = "" if names else shares_weights(gpu)
        problems += [f"weights: {problem}"] if problem else []
        problem = "" if names else contenders_agree(gpu)
        problems += [f"contenders: {problem}"] if problem else []
    print("\n".join(problems) or "all agree")
    print(f"{gpu.launches} launches, {gpu.graph_launches} graphs, {gpu.updates} updates")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
