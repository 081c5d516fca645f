"""Every op's samples by their Triton kernels, held against the interpreter.

``TRITON_INTERPRET=1 python -m tests.targets.gpu.samples [OP …]`` runs them in Triton's interpreter,
``--device cuda`` on a GPU; ``--dtypes`` takes every dtype that an op has. It prints what is wrong,
which ops ran without a kernel, and why, and counts.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import numpy as np

from monograph.errors import InputError
from monograph.ir.graph import Graph
from monograph.ops.attention import Attention
from monograph.passes.lower_composites import decompose_composites
from monograph.targets.gpu import products, reductions
from tests.ops.harness import samples_by_op
from tests.targets.cpu.samples import Case, cases, verdicts
from tests.targets.gpu.running import Run, run_graph


def lower(graph: Graph) -> Graph:
    """The graph as kernels are made of it."""
    from monograph.kernel.lower import is_scalar_function

    lowered = graph.clone()
    decompose_composites(
        lowered, lambda op: op.has_lowering() or is_scalar_function(op) or op is Attention
    )
    return lowered


def check(case: Case, folder: Path, device: str) -> tuple[str, Run]:
    """What is wrong with a case, if anything, and how it ran."""
    run = Run()
    try:
        run = run_graph(lower(case.graph), case.operands, folder, device)
    except InputError as error:
        return ("" if case.expected is None else f"an error: {error}"), run
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[-300:]}", run
    if case.expected is None:
        return ("" if run.on_host else "an error of the interpreter is none here"), run
    if device == "cpu" and _is_beyond_the_interpreter(case):
        return "", run
    return verdicts(case, run.results), run


def _is_beyond_the_interpreter(case: Case) -> bool:
    """Whether Triton's interpreter computes a case otherwise than a GPU would.

    It cuts floats off to bf16 instead of rounding them, and has NumPy's maximum, of which the sign
    of a zero is the first operand's.
    """
    assert case.expected is not None
    if any(array.dtype == ml_dtypes.bfloat16 for array in case.expected):
        return True
    return case.name.split("-")[0] in ("maximum", "minimum") and "special" in case.name


def main(arguments: Sequence[str]) -> int:
    """Check samples; 1 if any is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ops", nargs="*")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtypes", action="store_true")
    parser.add_argument(
        "--blocks", action="store_true", help="rows and tensor cores for the smallest samples, too"
    )
    parser.add_argument("--every", type=int, default=1, help="take one sample in so many")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    if options.blocks:
        reductions.MIN_LANES, products.MIN_SIDES = 1, [1, 1, 1]
    samples = samples_by_op()
    names = options.ops or list(samples)
    wrong, hosted, families, count = [], Counter[str](), Counter[str](), 0
    reasons: dict[str, str] = {}
    pairs = [pair for name in names for pair in samples[name]][:: options.every]
    with tempfile.TemporaryDirectory() as folder, np.errstate(all="ignore"):
        for pair in pairs:
            for case in cases([pair], every_dtype=options.dtypes):
                if case.whole is not None:
                    continue
                count += 1
                problem, run = check(case, Path(folder), options.device)
                hosted.update(run.on_host.keys())
                reasons |= run.on_host
                families.update(kernel.family for kernel in run.kernels)
                if problem:
                    wrong.append(f"{case.name}: {problem}")
                    print(wrong[-1], flush=True)
    for op, times in hosted.most_common():
        print(f"on the host: {op} ({times}): {reasons[op][-120:]}")
    print(f"{count} samples, {len(wrong)} wrong, kernels: {dict(families)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
