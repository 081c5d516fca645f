"""What a format claims runs in its own runtime and gives what the interpreter gives."""

from __future__ import annotations

import pytest

from tests.exporters.claims import check_op, runtimes
from tests.ops.harness import samples_by_op

SAMPLES = samples_by_op()
RUNTIMES = {runtime.name: runtime for runtime in runtimes()}
QUICK = frozenset({
    "add", "cast", "concat", "conv", "dot_general", "gather", "if", "layer_norm", "max_pool",
    "pad", "scan", "scatter", "slice", "softmax", "sort", "sum", "take", "where", "while",
})  # fmt: skip
"""Ops of every kind; all others run with the slow tests."""
COMPILED = frozenset({"dot_general", "gather", "scan", "sum", "while"})
"""Of those, what XLA compiles by default, which takes it seconds."""


def is_quick(name: str, op: str) -> bool:
    """Whether it runs by default."""
    chosen = {"fx": QUICK, "torchscript": QUICK, "stablehlo": COMPILED}
    return op in chosen.get(name, ())


CASES = [
    pytest.param(name, op, marks=[pytest.mark.slow] * (not is_quick(name, op)))
    for name in RUNTIMES
    for op in SAMPLES
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "op"), CASES)
def test_samples_give_in_the_runtime_what_the_interpreter_gives(name: str, op: str) -> None:
    count = check_op(RUNTIMES[name], op, SAMPLES[op])
    if op in QUICK:
        assert count.equal, f"{name} claims no sample of {op} any more"
