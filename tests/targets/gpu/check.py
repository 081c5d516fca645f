"""Every op's samples through ``monograph.compile(target="gpu")``, held against the interpreter.

``python -m tests.targets.gpu.check [OP …]`` runs them on the GPU of this machine;
``TRITON_INTERPRET=1`` with ``--simulated`` on a simulated one. ``--dtypes`` takes every dtype that
an op has, ``--every N`` one sample in N, ``--seconds S`` ends in time. It prints what is wrong as
it finds it, then which ops libraries and the host computed.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np

from monograph.compiler import Options, compile_graph
from monograph.errors import MonographError
from monograph.program.code import Interpret, LibraryCall
from tests.ops.harness import samples_by_op
from tests.targets.cpu.samples import Case, cases, together, verdicts
from tests.targets.gpu.samples import _is_beyond_the_interpreter

AT_ONCE = 24
OPTIONS = Options(target="gpu:sm_90", cache=False)


class Checker:
    """Counts what was right, wrong, and computed by whom."""

    def __init__(self, simulated: bool, options: Options) -> None:
        self.simulated = simulated
        self.options = options
        self.count = 0
        self.wrong: list[str] = []
        self.by: Counter[tuple[str, str]] = Counter()

    def batch(self, batch: Sequence[Case]) -> None:
        """Check cases together, or one by one if that fails."""
        try:
            executable = compile_graph(together(batch), self.options)
            results = executable.run([array for case in batch for array in case.operands])
        except Exception as problem:
            if len(batch) > 1:
                half = len(batch) // 2
                self.batch(batch[:half])
                self.batch(batch[half:])
                return
            self.count += 1
            text = f"{type(problem).__name__}: {str(problem)[:300]}"
            if batch[0].expected is not None or not isinstance(problem, MonographError):
                self.report(f"{batch[0].name}: {text}")
            return
        code = executable.code
        assert code is not None
        for step in code.steps:
            if isinstance(step, Interpret | LibraryCall):
                who = step.library if isinstance(step, LibraryCall) else "the host"
                self.by[who, code.fallbacks[step.call].op.name] += 1
        for case in batch:
            self.count += 1
            if case.expected is None:
                self.report(f"{case.name}: an error of the interpreter is none here")
                continue
            own, results = results[: len(case.expected)], results[len(case.expected) :]
            if self.simulated and _is_beyond_the_interpreter(case):
                continue
            problem = verdicts(case, own)
            if problem:
                self.report(f"{case.name}: {problem}")

    def report(self, line: str) -> None:
        """Print what is wrong at once."""
        self.wrong.append(line)
        print(line, flush=True)


def main(arguments: Sequence[str]) -> int:
    """Check samples; 1 if any is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ops", nargs="*")
    parser.add_argument("--simulated", action="store_true")
    parser.add_argument("--dtypes", action="store_true")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9)
    chosen = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    until = time.monotonic() + chosen.seconds
    if chosen.simulated:
        from tests.targets.gpu.simulator import simulated_gpu

        place = simulated_gpu()
    else:
        place = nullcontext()  # type: ignore[assignment]
    checker = Checker(chosen.simulated, OPTIONS)
    samples = samples_by_op()
    pairs = [pair for name in (chosen.ops or samples) for pair in samples[name]][:: chosen.every]
    with place, np.errstate(all="ignore"):
        found: list[Case] = []
        for k, pair in enumerate(pairs):
            if time.monotonic() > until:
                print(f"the time is up after {k} of {len(pairs)} samples")
                break
            for case in cases([pair], every_dtype=chosen.dtypes):
                if case.whole is not None:
                    continue
                if case.expected is None:
                    checker.batch([case])
                else:
                    found.append(case)
            if len(found) >= AT_ONCE or k == len(pairs) - 1:
                checker.batch(found)
                found = []
    for (who, op), times in sorted(checker.by.items()):
        print(f"by {who}: {op} ({times})")
    print(f"{checker.count} samples, {len(checker.wrong)} wrong")
    return bool(checker.wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
