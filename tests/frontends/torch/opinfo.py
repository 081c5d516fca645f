"""torch's own samples of every op, through import and interpreter, held against eager.

    python -m tests.frontends.torch.opinfo [-k op] [--workers 2] [--out file.json] [--level export]

Every float32 CPU sample of torch's OpInfo database is traced into a graph of ATen ops, imported,
interpreted and compared. A sample counts as

- agree: every result equals eager's (``torch.testing.assert_close``, or an error against float64
  no more than twice eager's own), NaN equal to NaN;
- random: the op draws random numbers (or returns memory that nobody has written): only shapes and
  dtypes can be compared, and they agree;
- mismatch, unsupported (an op has no converter), error (import or interpreter failed),
  untraceable (torch itself could not trace the sample).

With --errors the database's *wrong* inputs are run instead: each must give an error, which counts
as agree (from torch's own tracing as from our import or interpreter); a value is a mismatch.

With --fallback an unsupported op may become an opaque call of torch; that is counted apart and is
never agreement. --level export keeps composite ops (linear, layer_norm…) as torch.export does.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
)
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils import _pytree as pytree

from monograph.errors import MonographError, UnsupportedError
from monograph.frontends.torch.frame import NeedsFunctionalization
from monograph.frontends.torch.program import import_graph_module
from monograph.frontends.torch.runner import InterpretedModel

UNWRITTEN = frozenset(
    {
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
    }
)
"""Ops whose result is memory that nobody has written: its contents mean nothing."""

DATA_DEPENDENT = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    GuardOnDataDependentSymNode,
)

KINDS = ("agree", "random", "fallback", "mismatch", "unsupported", "error", "untraceable")
SECONDS = 120


@dataclass
class OpResult:
    """How the samples of one op fared."""

    name: str
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    reasons: dict[str, int] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def add(self, kind: str, reason: str = "") -> None:
        self.counts[kind] += 1
        if reason:
            text = f"{kind}: {reason}"
            self.reasons[text] = self.reasons.get(text, 0) + 1

    @property
    def samples(self) -> int:
        return sum(self.counts.values())

    @property
    def passed(self) -> int:
        return self.counts["agree"] + self.counts["random"]


@dataclass(frozen=True)
class Options:
    level: str = "dispatch"
    fallback: bool = False
    verbose: bool = False
    sample: int | None = None
    errors: bool = False


def ops() -> list[Any]:
    """The entries of the database that have float32 samples on the CPU."""
    from torch.testing._internal.common_methods_invocations import op_db

    return [op for op in op_db if torch.float32 in op.supported_dtypes("cpu")]


def label(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def run_op(index: int, options: Options) -> OpResult:
    """Run every sample of one op."""
    op = ops()[index]
    result = OpResult(label(op))
    start = time.perf_counter()
    torch.manual_seed(0)
    for number, sample in enumerate(_samples(op, options)):
        if options.sample is not None and number != options.sample:
            continue
        with _limit(SECONDS):
            run = _run_wrong if options.errors else _run_sample
            kind, reason = run(op, sample, options, result)
        result.add(kind, reason)
        if options.verbose and kind not in ("agree", "random"):
            print(f"{label(op)} #{number}: {kind}: {reason}\n    {_describe(sample)}")
    result.seconds = time.perf_counter() - start
    return result


def _run_sample(op: Any, sample: Any, options: Options, result: OpResult) -> tuple[str, str]:
    function, tensors = as_function(op.get_op(), sample)
    try:
        expected = function(*map(_copy, tensors))
    except Exception as error:
        return "untraceable", f"eager fails: {_line(error)}"
    try:
        module = trace(function, [_copy(tensor) for tensor in tensors], options.level)
    except _Timeout:
        return "untraceable", "time"
    except Exception as error:
        return "untraceable", _line(error)
    try:
        model = import_graph_module(module)
    except UnsupportedError as error:
        for name in {problem.op for problem in error.problems} or {error.message}:
            result.missing[name] = result.missing.get(name, 0) + 1
        reason = ", ".join(sorted({problem.op for problem in error.problems})) or error.message
        return _with_fallback(module, tensors, expected, reason, options)
    except (Exception, NeedsFunctionalization) as error:
        return "error", _failure("import", error, options)
    try:
        got = InterpretedModel(model)(*map(_copy, tensors))
    except Exception as error:
        return "error", _failure("run", error, options)
    if is_random(op, module):
        problem = compare(got, expected, None, values=False)
        return ("random", "no seed could agree") if problem is None else ("mismatch", problem)
    problem = compare(got, expected, lambda: _in_double(function, tensors))
    return ("agree", "") if problem is None else ("mismatch", problem)


def _samples(op: Any, options: Options) -> Iterator[Any]:
    if not options.errors:
        return iter(op.sample_inputs("cpu", torch.float32))
    if op.error_inputs_func is None:
        return iter(())
    return (error.sample_input for error in op.error_inputs("cpu"))


def _run_wrong(op: Any, sample: Any, options: Options, result: OpResult) -> tuple[str, str]:
    """A sample that eager refuses: something must refuse it here too."""
    function, tensors = as_function(op.get_op(), sample)
    try:
        function(*map(_copy, tensors))
    except Exception as error:
        expected = _line(error)
    else:
        return "untraceable", "eager gives a value"
    try:
        module = trace(function, [_copy(tensor) for tensor in tensors], options.level)
    except Exception:
        return "agree", ""
    try:
        InterpretedModel(import_graph_module(module))(*map(_copy, tensors))
    except Exception:
        return "agree", ""
    return "mismatch", f"a value where eager says {expected}"


def _with_fallback(
    module: Any, tensors: Sequence[Any], expected: Any, reason: str, options: Options
) -> tuple[str, str]:
    if not options.fallback:
        return "unsupported", reason
    try:
        got = InterpretedModel(import_graph_module(module, opaque=True))(*map(_copy, tensors))
    except Exception as error:
        return "unsupported", f"{reason}; fallback: {_line(error)}"
    problem = compare(got, expected, None)
    return ("fallback", reason) if problem is None else ("unsupported", reason)


def as_function(op: Callable[..., Any], sample: Any) -> tuple[Callable[..., Any], list[Any]]:
    """The op on a sample as a function of the sample's tensors alone."""
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def function(*tensors: Any) -> Any:
        filled = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        first, args, kwargs = pytree.tree_unflatten(filled, spec)
        return op(first, *args, **kwargs)

    return function, [leaves[place].detach() for place in places]


def trace(function: Callable[..., Any], tensors: Sequence[Any], level: str) -> Any:
    """The function as a graph of ATen ops, nothing decomposed but what dispatch takes apart."""
    if level == "export":
        return make_fx(
            function, tracing_mode="fake", pre_dispatch=True, _allow_non_fake_inputs=True
        )(*tensors)
    functional = torch.func.functionalize(function)
    try:
        return make_fx(functional, tracing_mode="fake", _allow_non_fake_inputs=True)(*tensors)
    except DATA_DEPENDENT:
        # A check of the data in Python (`if torch.any(var < 0): raise`) needs the data.
        module = make_fx(functional, tracing_mode="real", _error_on_data_dependent_ops=False)(
            *tensors
        )
        returned = pytree.tree_leaves(next(iter(reversed(module.graph.nodes))).args)
        if not all(isinstance(leaf, torch.fx.Node | None) for leaf in returned):
            raise
        return module


def is_random(op: Any, module: Any) -> bool:
    """Whether no implementation could agree with eager on the values."""
    if op.name in UNWRITTEN:
        return True
    return any(
        torch.Tag.nondeterministic_seeded in node.target.tags
        for node in module.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload)
    )


def compare(
    got: Any, expected: Any, reference: Callable[[], Any] | None, values: bool = True
) -> str | None:
    """None if the results agree, else what differs."""
    got_leaves, expected_leaves = pytree.tree_leaves(got), pytree.tree_leaves(expected)
    if len(got_leaves) != len(expected_leaves):
        return f"{len(got_leaves)} results instead of {len(expected_leaves)}"
    for index, (a, b) in enumerate(zip(got_leaves, expected_leaves, strict=True)):
        if b is None or isinstance(b, str):
            continue
        exact = b if isinstance(b, torch.Tensor) else torch.as_tensor(b)
        if not isinstance(a, torch.Tensor):
            if isinstance(b, torch.Tensor):
                return f"result {index} is {type(a).__name__}"
            a = torch.as_tensor(a)
        if a.shape != exact.shape:
            return f"result {index} has shape {tuple(a.shape)}, not {tuple(exact.shape)}"
        if isinstance(b, torch.Tensor) and a.dtype != exact.dtype:
            return f"result {index} has dtype {a.dtype}, not {exact.dtype}"
        if not values:
            continue
        try:
            torch.testing.assert_close(
                a, exact, equal_nan=True, check_dtype=isinstance(b, torch.Tensor)
            )
        except AssertionError as error:
            if not _as_good(a, exact, index, reference):
                return f"result {index} differs: {_difference(error)}"
    return None


def _as_good(a: Any, eager: Any, index: int, reference: Callable[[], Any] | None) -> bool:
    """Whether an error against float64 is no more than twice eager's own."""
    if reference is None or a.dtype not in (torch.float32, torch.complex64):
        return False
    try:
        exact = pytree.tree_leaves(reference())[index]
    except Exception:
        return False
    if not isinstance(exact, torch.Tensor) or exact.shape != a.shape:
        return False
    if not torch.equal(a.isfinite(), eager.isfinite()):
        return False
    finite = eager.isfinite() & exact.isfinite()
    wide = torch.complex128 if a.is_complex() else torch.float64
    mine = (a[finite].to(wide) - exact[finite]).abs()
    theirs = (eager[finite].to(wide) - exact[finite]).abs()
    floor = 1e-6 * exact[finite].abs() + 1e-6
    return bool(mine.norm() <= 2 * theirs.norm() + floor.norm())


def _in_double(function: Callable[..., Any], tensors: Sequence[Any]) -> Any:
    wide = {torch.float32: torch.float64, torch.complex64: torch.complex128}
    return function(*(tensor.to(wide.get(tensor.dtype, tensor.dtype)) for tensor in tensors))


def _copy(tensor: Any) -> Any:
    if tensor.layout is not torch.strided:
        return tensor
    storage = tensor.untyped_storage()
    if storage.nbytes() == tensor.numel() * tensor.itemsize:
        return tensor.clone()
    view = (tensor.storage_offset(), tensor.shape, tensor.stride())
    return torch.empty(0, dtype=tensor.dtype).set_(storage.clone(), *view)


def _line(error: BaseException) -> str:
    text = str(error).strip().split("\n", 1)[0]
    return f"{type(error).__name__}: {text}"[:160]


def _difference(error: AssertionError) -> str:
    lines = [line for line in str(error).split("\n") if "difference" in line or "Mismatch" in line]
    return "; ".join(line.strip() for line in lines)[:160] or _line(error)


def _failure(when: str, error: BaseException, options: Options) -> str:
    if options.verbose:
        traceback.print_exception(error)
    where = f" at {error.where}" if isinstance(error, MonographError) and error.where else ""
    return f"{when}: {_line(error)}{where}"[:220]


def _describe(sample: Any) -> str:
    def shape(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}"
        return leaf

    return str(pytree.tree_map(shape, (sample.input, sample.args, sample.kwargs)))


class _Timeout(Exception):
    pass


class _limit:
    """Raise in the main thread once a sample has taken too long."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds

    def __enter__(self) -> None:
        def expire(*_: Any) -> None:
            raise _Timeout(f"more than {self.seconds} s")

        signal.signal(signal.SIGALRM, expire)
        signal.alarm(self.seconds)

    def __exit__(self, *_: Any) -> None:
        signal.alarm(0)


def _start() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")


def _task(argument: tuple[int, Options]) -> OpResult:
    try:
        return run_op(*argument)
    except Exception as error:
        failed = OpResult(label(ops()[argument[0]]))
        failed.add("error", f"the runner failed: {_line(error)}")
        return failed


def run(indices: Sequence[int], options: Options, workers: int) -> Iterator[OpResult]:
    """The results of these ops, as they come."""
    tasks = [(index, options) for index in indices]
    if workers == 1:
        _start()
        yield from map(_task, tasks)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, initializer=_start, maxtasksperchild=60) as pool:
        yield from pool.imap_unordered(_task, tasks, chunksize=1)


def print_report(results: Sequence[OpResult], everything: bool) -> None:
    """A line for each op that is not whole (or for all), then totals and missing overloads."""
    columns = " ".join(f"{kind:>11}" for kind in KINDS)
    print(f"{'op':<48} {'samples':>7} {columns}  reasons")
    for result in sorted(results, key=lambda each: each.name):
        if result.passed == result.samples and not everything:
            continue
        cells = " ".join(f"{result.counts[kind]:>11}" for kind in KINDS)
        worst = sorted(result.reasons.items(), key=lambda pair: -pair[1])[:2]
        reasons = " | ".join(f"{count}x {text}" for text, count in worst)
        print(f"{result.name:<48} {result.samples:>7} {cells}  {reasons}")
    total = {kind: sum(result.counts[kind] for result in results) for kind in KINDS}
    samples = sum(total.values())
    passed = total["agree"] + total["random"]
    whole = sum(result.passed == result.samples for result in results)
    print(f"\n{len(results)} ops, {samples} samples: {total}")
    print(
        f"agree or random: {passed} of {samples} ({100 * passed / max(samples, 1):.2f} %); ", end=""
    )
    print(f"whole ops: {whole} of {len(results)}")
    missing: Counter[str] = Counter()
    for result in results:
        missing.update(result.missing)
    if missing:
        print("missing:", ", ".join(f"{name} ({count})" for name, count in missing.most_common()))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-k", default=None, help="only ops whose name contains this; a=b is exact")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", default=None, help="write the results as JSON")
    parser.add_argument("--level", choices=("dispatch", "export"), default="dispatch")
    parser.add_argument("--fallback", action="store_true")
    parser.add_argument("--errors", action="store_true")
    parser.add_argument("--sample", type=int, default=None, help="only the sample of this number")
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("--all", action="store_true", help="list whole ops too")
    given = parser.parse_args(arguments)
    options = Options(given.level, given.fallback, given.verbose, given.sample, given.errors)
    names = [label(op) for op in ops()]
    chosen = [index for index, name in enumerate(names) if _wanted(name, given.k)]
    results = []
    for result in run(chosen, options, given.workers):
        results.append(result)
        if len(chosen) > 20:
            print(f"\r{len(results)}/{len(chosen)} {result.name:<50}", end="", file=sys.stderr)
    print(file=sys.stderr)
    print_report(results, given.all or len(chosen) <= 20)
    if given.out:
        with open(given.out, "w") as file:
            json.dump([asdict(result) for result in results], file, indent=1)
    return 0


def _wanted(name: str, pattern: str | None) -> bool:
    if pattern is None:
        return True
    if pattern.startswith("="):
        return name in pattern[1:].split(",")
    return any(part in name for part in pattern.split(","))


if __name__ == "__main__":
    sys.exit(main())
