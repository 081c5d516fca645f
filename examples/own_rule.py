"""Write a rewrite rule, prove it on awkward numbers, and run it over a model.

Some exporters spell out leaky relu as ``max(x, 0) + slope * min(x, 0)``: five nodes where one will
do. The rule below finds them, whatever the slope.

    python examples/own_rule.py
"""

import numpy as np

import monograph
from monograph import functional as F
from monograph.ops.elementwise import FLOATS
from monograph.rewrite import AnyConstant, Rule, rewrite_graph, watch_rewrites
from monograph.rewrite.constants import real_splat


def is_slope(match):
    """Whether the constant is one positive, finite number; the rule is wrong for others."""
    slope = real_splat(match.slope)
    return slope is not None and 0.0 < slope < float("inf")


spelled_leaky_relu = Rule(
    "spelled_leaky_relu",
    pattern=lambda x: F.maximum(x, 0.0) + F.minimum(x, 0.0) * AnyConstant("slope"),
    replacement=lambda x, slope: F.leaky_relu(x, real_splat(slope)),
    guard=is_slope,
    kinds=FLOATS,
    floats="exact, but that 0.0 becomes -0.0 where slope * x is -0.0",
    fast_math=True,  # because of that zero
)


def model(x, w1, w2):
    hidden = x @ w1
    hidden = F.maximum(hidden, 0.0) + 0.1 * F.minimum(hidden, 0.0)
    y = hidden @ w2
    return F.minimum(y, 0.0) * 0.2 + F.maximum(y, 0.0)


graph = monograph.trace(model, "f32[batch, 8]", "f32[8, 8]", "f32[8, 2]")
rewritten = graph.clone()


def log(rule, node, values):
    """Called before each rewrite; False would forbid it."""
    print(f"{rule.name}: {node} becomes {values[0].producer}")
    return True


with watch_rewrites(log):
    report = rewrite_graph(rewritten, [spelled_leaky_relu], during="own_rule")
rewritten = monograph.optimize(rewritten, passes="dce")
monograph.verify(rewritten)
count = report.rules["spelled_leaky_relu"]
print(f"tried {count.attempts} times, fired {count.hits} times: {len(graph)} → {len(rewritten)}")
print(rewritten)

# Is it what `floats` says? Ask the interpreter, on every number that is likely to disagree.
awkward = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 1.5, -2.0], np.float32)
before = monograph.trace(lambda x: F.maximum(x, 0.0) + 0.1 * F.minimum(x, 0.0), "f32[n]")
after = before.clone()
rewrite_graph(after, [spelled_leaky_relu], during="own_rule")
old, new = (monograph.interpret(each, [awkward])[0] for each in (before, after))
differ = [
    f"{float(x):g} gave {a} and gives {b}"
    for x, a, b in zip(awkward, old, new, strict=True)
    if a.tobytes() != b.tobytes() and not (np.isnan(a) and np.isnan(b))
]
print("differences:", "; ".join(differ) or "none")
