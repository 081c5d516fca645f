"""Watch the passes at work: time them, dump every step, verify and validate each.

The block below is a transformer's feed-forward layer as it leaves a careless exporter: layer norm
and gelu are spelled out, a dropout of rate 0 is left as a product with 1, and one branch is unused.

    python examples/inspect_passes.py [folder for the dumps]
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import monograph
from monograph import functional as F
from monograph.passes.instruments import Dump, Validate, Verify

generator = np.random.default_rng(0)
W1 = generator.normal(size=(16, 64)).astype(np.float32) / 4
W2 = generator.normal(size=(64, 16)).astype(np.float32) / 8


def block(x):
    w1, w2 = x.graph.add_weight("up", W1), x.graph.add_weight("down", W2)
    centred = x - F.mean(x, axis=-1, keepdims=True)
    variance = F.mean(centred**2, axis=-1, keepdims=True)
    h = (centred / F.sqrt(variance + 1e-5)) @ w1
    h = 0.5 * h * (1.0 + F.tanh(0.7978845608 * (h + 0.044715 * h**3)))
    F.softmax(h)  # computed by mistake
    return x + (h @ w2) * 1.0


folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="monograph-"))
graph = monograph.trace(block, "f32[batch, 16]")
inputs = [generator.normal(size=(4, 16)).astype(np.float32)]

for level in ("O0", "O1", "O2", "O3"):
    result, report = monograph.optimize_with_report(
        graph, level, instruments=[Verify(), Validate(inputs), Dump(folder / level)]
    )
    print(f"{level}: {len(graph)} → {len(result)} nodes, {len(report.steps)} steps, checked")

result, report = monograph.optimize_with_report(graph)
print("\nwhat O2 did:")
for name, count in report.totals().items():
    print(f"  {name:36} {count}")
slowest = max(report.steps, key=lambda step: step.seconds)
share = slowest.seconds / report.seconds
print(
    f"\n{report.seconds * 1000:.1f} ms in all; the slowest step, {slowest.name}, took {share:.0%}"
)
print(f"the graph after each step: {len(list(folder.rglob('*.ir')))} files in {folder}\n")
print(result)
