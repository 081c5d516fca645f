"""torch's own samples of every op, through import and interpreter, held against eager.

    python -m tests.frontends.torch.opinfo [-k op] [--workers 2] [--out file.json] [--level export]

Every float32 CPU sample of torch's OpInfo database is traced into a graph of ATen ops, imported,
interpreted and compared with eager. What a sample can count as, and what that means, is in
``opinfo_report.MEANINGS``; what is equal is in ``opinfo_compare``; how samples that draw random
numbers are compared is in ``opinfo_draws``.

With --errors the database's *wrong* inputs (of all ops, whatever their dtypes) are run instead:
each must give an error, of torch's tracing or of ours. They are traced as torch.export does, since
functionalization drops ``out=`` and with it what is wrong there.

With --fallback an unsupported op may become an opaque call of torch; that is counted apart and is
never agreement. --level export keeps composite ops (linear, layer_norm…) as torch.export does.

The run fails if a sample does that ``opinfo_known`` does not name.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
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
from monograph.frontends.torch.runner import TorchModel
from tests.frontends.torch.opinfo_compare import (
    SINGULAR_VECTORS,
    compare,
    compare_singular_vectors,
)
from tests.frontends.torch.opinfo_draws import random_nodes, with_draws
from tests.frontends.torch.opinfo_known import print_known, unexpected
from tests.frontends.torch.opinfo_report import PASSED, OpResult, core_ops, print_report
from tests.targets.running import TARGETS, Runner

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
UNALLOCATED = "data is not allocated yet"
"""What torch says where an op of its own reads the elements of a fake tensor."""

SECONDS = 120


@dataclass(frozen=True)
class Options:
    level: str = "dispatch"
    fallback: bool = False
    verbose: bool = False
    sample: int | None = None
    errors: bool = False
    target: str = "interpreter"
    limit: int | None = None


def runnable(model: Any, options: Options, result: OpResult | None = None) -> TorchModel:
    """An imported graph as something that runs, on the target of the options."""
    runner = Runner(options.target)

    def run(arrays: Sequence[Any]) -> list[Any]:
        outputs = runner(model.graph, arrays)
        if result is not None and runner.interpreted:
            result.interpreted.append(tuple(runner.interpreted))
        return outputs

    return TorchModel(model, run=run)


def ops(errors: bool = False) -> list[Any]:
    """The entries of the database that have float32 samples on the CPU; or those of wrong inputs.

    What is wrong with an input need not have to do with its dtype, so all ops have a part in those.
    """
    from torch.testing._internal.common_methods_invocations import op_db

    entries: list[Any] = op_db
    if errors:
        return [op for op in entries if op.error_inputs_func is not None]
    return [op for op in entries if torch.float32 in op.supported_dtypes("cpu")]


def label(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def run_op(index: int, options: Options) -> OpResult:
    """Run every sample of one op."""
    op = ops(options.errors)[index]
    result = OpResult(label(op))
    start = time.perf_counter()
    torch.manual_seed(0)
    for number, sample in enumerate(islice(_samples(op, options), options.limit)):
        if options.sample is not None and number != options.sample:
            continue
        with _limit(SECONDS):
            run = _run_wrong if options.errors else _run_sample
            kind, reason = run(op, sample, options, result)
        result.add(kind, reason)
        if options.verbose and reason and kind not in PASSED:
            print(f"{label(op)} #{number}: {kind}: {reason}\n    {_describe(sample)}")
    result.seconds = time.perf_counter() - start
    return result


def _samples(op: Any, options: Options) -> Iterator[Any]:
    if options.errors:
        return (error.sample_input for error in op.error_inputs("cpu"))
    return iter(op.sample_inputs("cpu", torch.float32))


def _run_sample(op: Any, sample: Any, options: Options, result: OpResult) -> tuple[str, str]:
    function, tensors = as_function(op.get_op(), sample)
    module, reason = None, ""
    try:
        expected = function(*copies(tensors))
        module = trace(function, copies(tensors), options.level)
    except _Timeout:
        reason = "time"
    except Exception as error:
        reason = _line(error)
    kind = "untraceable"
    if module is not None:
        kind, reason = _run_graph(op, function, tensors, module, expected, options, result)
    for name in _core_ops_of(op, module):
        result.add_core(name, kind in PASSED)
    return kind, reason


def _run_graph(
    op: Any,
    function: Callable[..., Any],
    tensors: Sequence[Any],
    module: Any,
    expected: Any,
    options: Options,
    result: OpResult,
) -> tuple[str, str]:
    try:
        model = import_graph_module(module)
    except UnsupportedError as error:
        reason = ", ".join(sorted({problem.op for problem in error.problems})) or error.message
        return _with_fallback(module, tensors, expected, reason, options)
    except (Exception, NeedsFunctionalization) as error:
        return "error", _failure("import", error, options)
    try:
        got = runnable(model, options, result)(*copies(tensors))
    except Exception as error:
        return "error", _failure("run", error, options)
    if op.name in UNWRITTEN or random_nodes(module):
        problem = compare(got, expected, None, values=False)
        if problem is not None:
            return "mismatch", problem
        return _on_draws(op, function, tensors, module, options)
    problem = _compare_values(op, got, expected, lambda: _in_double(function, tensors))
    return ("agree", "") if problem is None else ("mismatch", problem)


def _on_draws(
    op: Any, function: Callable[..., Any], tensors: Sequence[Any], module: Any, options: Options
) -> tuple[str, str]:
    """A sample that draws random numbers, on those that eager drew."""
    drawn = None if op.name in UNWRITTEN else with_draws(module, function, lambda: copies(tensors))
    if drawn is None:
        return "random", ""
    try:
        model = runnable(import_graph_module(drawn.module), options)
        got = model(*copies(tensors), *copies(drawn.draws))
    except Exception as error:
        return "error", _failure("on eager's draws", error, options)
    problem = _compare_values(
        op, got, drawn.expected, lambda: _in_double(drawn.module, [*tensors, *drawn.draws])
    )
    return ("given draws", "") if problem is None else ("mismatch", f"given draws, {problem}")


def _compare_values(
    op: Any, got: Any, expected: Any, reference: Callable[[], Any] | None
) -> str | None:
    problem = compare(got, expected, reference)
    if problem is None or op.name not in SINGULAR_VECTORS:
        return problem
    return compare_singular_vectors(got, expected, SINGULAR_VECTORS[op.name])


def _with_fallback(
    module: Any, tensors: Sequence[Any], expected: Any, reason: str, options: Options
) -> tuple[str, str]:
    if not options.fallback:
        return "unsupported", reason
    try:
        got = TorchModel(import_graph_module(module, opaque=True))(*copies(tensors))
    except Exception as error:
        return "unsupported", f"{reason}; fallback: {_line(error)}"
    problem = compare(got, expected, None)
    return ("fallback", reason) if problem is None else ("unsupported", reason)


def _run_wrong(op: Any, sample: Any, options: Options, result: OpResult) -> tuple[str, str]:
    """A sample that eager refuses: torch's tracing or an error of ours must refuse it too."""
    function, tensors = as_function(op.get_op(), sample)
    expected, refusal = None, None
    try:
        expected = function(*copies(tensors))
    except Exception as error:
        refusal = _line(error)
    if expected is NotImplemented:  # how a Python operator refuses its operands
        refusal = "NotImplemented"
    try:
        module = trace(function, copies(tensors), "export")
    except Exception as error:
        return _refused("refused by torch", refusal, error)
    try:
        model = import_graph_module(module)
    except MonographError as error:
        return _refused("refused at import", refusal, error)
    except (Exception, NeedsFunctionalization) as error:
        return "crash", _failure("import", error, options)
    try:
        got = runnable(model, options)(*copies(tensors))
    except MonographError as error:
        return _refused("refused at run", refusal, error)
    except Exception as error:
        return "crash", _failure("run", error, options)
    if refusal is not None:
        return "value", f"eager says {refusal}"
    problem = compare(got, expected, None)
    return ("eager accepts", "") if problem is None else ("value", problem)


def _refused(kind: str, refusal: str | None, error: Exception) -> tuple[str, str]:
    """An error that is right if eager gives one too."""
    if refusal is not None:
        return kind, ""
    return "crash", f"eager gives a value, we say {_line(error)}"


def as_function(op: Callable[..., Any], sample: Any) -> tuple[Callable[..., Any], list[Any]]:
    """The op on a sample as a function of the sample's tensors alone, each of them once."""
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    numbers = {id(leaf): None for leaf in (leaves[place] for place in places)}
    order = {key: number for number, key in enumerate(numbers)}
    distinct = {order[id(leaves[place])]: leaves[place] for place in places}

    def function(*tensors: Any) -> Any:
        filled = list(leaves)
        for place in places:
            filled[place] = tensors[order[id(leaves[place])]]
        first, args, kwargs = pytree.tree_unflatten(filled, spec)
        return op(first, *args, **kwargs)

    return function, [tensor.detach() for tensor in distinct.values()]


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
        module = _trace_on_data(functional, tensors)
        returned = pytree.tree_leaves(next(iter(reversed(module.graph.nodes))).args)
        if not all(isinstance(leaf, torch.fx.Node | None) for leaf in returned):
            raise
        return module
    except RuntimeError as error:
        if UNALLOCATED not in str(error):
            raise
        return _trace_on_data(function, tensors)


def _trace_on_data(function: Callable[..., Any], tensors: Sequence[Any]) -> Any:
    """The function as a graph for just this data, where torch's own code looks at it."""
    return make_fx(function, tracing_mode="real", _error_on_data_dependent_ops=False)(*tensors)


def _core_ops_of(op: Any, module: Any) -> set[str]:
    """The ops of core ATen that a sample is one of: by its entry's name, or alone in its graph."""
    names = {
        node.target._schema.name.removeprefix("aten::")
        for node in (() if module is None else module.graph.nodes)
        if isinstance(node.target, torch._ops.OpOverload)
    }
    alone = names if len(names) == 1 else set()
    return (alone | {op.aten_name}) & core_ops()


def _in_double(function: Callable[..., Any], tensors: Sequence[Any]) -> Any:
    wide = {torch.float32: torch.float64, torch.complex64: torch.complex128}
    return function(*(tensor.to(wide.get(tensor.dtype, tensor.dtype)) for tensor in tensors))


def copies(tensors: Sequence[Any]) -> list[Any]:
    """Tensors of the same contents and strides; those that share memory share it here too."""
    storages: dict[int, Any] = {}
    made = []
    for tensor in tensors:
        if tensor.layout is not torch.strided:
            made.append(tensor)
            continue
        storage = tensor.untyped_storage()
        copy = storages.setdefault(storage._cdata, storage.clone())
        view = (tensor.storage_offset(), tensor.shape, tensor.stride())
        made.append(torch.empty(0, dtype=tensor.dtype).set_(copy, *view))
    return made


def _line(error: BaseException) -> str:
    text = str(error).strip().split("\n", 1)[0]
    return f"{type(error).__name__}: {text}"[:160]


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
    logging.disable(logging.CRITICAL)  # torch logs every wrong input that its tracing refuses


def _task(argument: tuple[int, Options]) -> OpResult:
    index, options = argument
    try:
        return run_op(index, options)
    except Exception as error:
        failed = OpResult(label(ops(options.errors)[index]))
        failed.add("crash" if options.errors else "error", f"the runner failed: {_line(error)}")
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


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-k", default=None, help="only ops whose name contains this; =a,b is exact")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", default=None, help="write the results as JSON")
    parser.add_argument("--level", choices=("dispatch", "export"), default="dispatch")
    parser.add_argument("--fallback", action="store_true")
    parser.add_argument("--errors", action="store_true", help="run wrong inputs instead")
    parser.add_argument("--sample", type=int, default=None, help="only the sample of this number")
    parser.add_argument("--limit", type=int, default=None, help="only so many samples of each op")
    parser.add_argument("--target", choices=TARGETS, default="interpreter")
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("--all", action="store_true", help="list every entry")
    given = parser.parse_args(arguments)
    options = Options(
        given.level,
        given.fallback,
        given.verbose,
        given.sample,
        given.errors,
        given.target,
        given.limit,
    )
    names = [label(op) for op in ops(given.errors)]
    chosen = [index for index, name in enumerate(names) if _wanted(name, given.k)]
    results: list[OpResult] = []
    for result in run(chosen, options, given.workers):
        results.append(result)
        if len(chosen) > 20:
            print(f"\r{len(results)}/{len(chosen)} {result.name:<50}", end="", file=sys.stderr)
        if given.out:
            _store(given.out, results)  # each time, so that a run that is stopped leaves something
    print(file=sys.stderr)
    print_report(results, given.all or len(chosen) <= 20, given.errors)
    if not given.errors:
        print_known(results)
    failures = unexpected(results)
    for line in failures:
        print(f"FAILED: {line}")
    return 1 if failures else 0


def _store(path: str, results: Sequence[OpResult]) -> None:
    with open(path, "w") as file:
        json.dump([asdict(result) for result in results], file, indent=1)


def _wanted(name: str, pattern: str | None) -> bool:
    if pattern is None:
        return True
    if pattern.startswith("="):
        return name in pattern[1:].split(",")
    return any(part in name for part in pattern.split(","))


if __name__ == "__main__":
    sys.exit(main())
