"""Ways to run a case, and what each says is wrong: the tests that reduction and bisection repeat.

``check_pass`` interprets a graph before and after a pass, ``check_program`` calls what is
compiled of it, ``check_gradient`` differentiates it and compares with finite differences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from monograph.autodiff.vjp import pullback
from monograph.compiler import Options, compile_graph
from monograph.errors import MonographError
from monograph.inspect.evaluate import Evaluator
from monograph.inspect.extract import Case
from monograph.inspect.precise import widen_graph
from monograph.inspect.reference import Reference
from monograph.inspect.stages import record_stages, specials_changed
from monograph.ir.data import raw_bytes
from monograph.ir.graph import Graph, Value
from monograph.ir.types import TensorType
from monograph.ir.verify import verify
from monograph.passes.base import Pass
from monograph.runtime.compiled import Executable

CALLS = 3
"""How often a program is called: what depends on threads may be right once."""
CALLS_AT_FIRST = 12
"""How often the whole program is called before it is said to be right."""
CALLS_TO_BE_SURE = 40
"""How often it is called before something is said to cure it."""
SLOPE_STEP = 2.0**-20
"""How far inputs are moved to measure a slope in double precision."""
MAX_SLOPE_ERROR = 1e-4


def check_pass(each: Pass, case: Case) -> str | None:
    """What a pass does to the answer of a graph; None if it keeps it."""
    after = case.graph.clone()
    try:
        with specials_changed() as changed:
            each.run(after)
        verify(after)
    except Exception as problem:  # whatever a pass raises is what was looked for
        return f"{type(problem).__name__}: {problem}".splitlines()[0]
    evaluator = Evaluator()
    try:
        got = evaluator.run(after, case.inputs)
    except MonographError as problem:
        return problem.message
    return _compare(evaluator, case, got, [after] if changed else [])


def check_program(
    options: Options, case: Case, calls: int = CALLS, later: Sequence[Graph] = ()
) -> str | None:
    """What is wrong with the answers of a compiled program; None if they are right.

    ``later`` are forms of the graph as for ``wrong_answers``, beside those that compiling makes: a
    program from the disk cache makes none.
    """
    compilation = record_stages(lambda: compile_graph(case.graph, options))
    problem = compilation.error
    if problem is not None:  # whatever compiling raises is what was looked for
        return f"{type(problem).__name__}: {problem}".splitlines()[0]
    later = [*later, *compilation.changing_specials]
    return wrong_answers(compilation.made, case, calls, later)


def wrong_answers(
    executable: Executable, case: Case, calls: int = CALLS, later: Sequence[Graph] = ()
) -> str | None:
    """What is wrong with the answers of a program in several calls; None if they are right.

    ``later`` are forms of the graph that answer otherwise at NaN and infinities, as rules say.
    Before each, the program is called with other inputs: what a kernel forgets to write, or reads
    too early, is then left of those, and not by chance what it should be.
    """
    evaluator = Evaluator()
    right: list[bytes] | None = None
    for _ in range(calls):
        try:
            leave_other_results(executable, case.inputs)
            got = [np.array(each) for each in executable.run(list(case.inputs))]
        except MonographError as problem:
            return problem.message
        bits = [raw_bytes(each) for each in got]
        if bits == right:  # judged before: a large graph takes long in double precision
            continue
        found = _compare(evaluator, case, got, later)
        if found is not None:
            return found
        right = bits
    return None


def assert_right(graph: Graph, inputs: Sequence[Any], found: Sequence[Any]) -> None:
    """Raise an error that says what is wrong with a graph's answers, as bisection judges them."""
    problem = _compare(Evaluator(), Case(graph, tuple(inputs)), found, ())
    if problem is not None:
        raise AssertionError(problem)


def leave_other_results(executable: Executable, inputs: Sequence[Any]) -> None:
    """Fill the memory that a program uses with what it computes of other inputs.

    That of its results, which the next call gets again, is filled with NaN (and -1): there would be
    what an earlier call left, right by chance, wherever a kernel forgets to write.
    """
    others = [
        np.asarray(0.7 - 1.5 * array.astype(np.float64)).astype(array.dtype)
        if isinstance(array, np.ndarray) and array.dtype.kind == "f"
        else array
        for array in inputs
    ]
    with np.errstate(all="ignore"), suppress(MonographError):  # an op may refuse other inputs
        for result in executable.run(others):
            is_input = any(np.may_share_memory(result, each) for each in inputs)
            if result.dtype.kind not in "OSU" and result.flags.writeable and not is_input:
                result.reshape(-1).view(np.uint8)[:] = 0xFF


def check_gradient(case: Case) -> str | None:
    """Where the gradient is not the slope; None if it is, or if there is none.

    Of all float elements of the outputs, each times a number of its own: in double precision, its
    gradient times a direction is compared with what moving a little in that direction changes. The
    numbers enter as gradients of the outputs, so that no op is differentiated but the case's own.
    """
    graph = widen_graph(case.graph)
    floats = [k for k, value in enumerate(graph.inputs) if _is_float(value)]
    arrays = [
        np.asarray(array).astype(value.dtype.numpy)
        for value, array in zip(graph.inputs, case.inputs, strict=True)
    ]
    evaluator, generator = Evaluator(), np.random.default_rng(0)
    try:
        gradients = pullback(graph, floats)
        factors = {
            k: generator.normal(size=array.shape) if _is_float(output) else np.zeros_like(array)
            for k, (output, array) in enumerate(
                zip(graph.outputs, evaluator.run(graph, arrays), strict=True)
            )
            if output.dtype.is_differentiable
        }
        found = evaluator.run(gradients, [*arrays, *factors.values()])
        for number, place in enumerate(floats):
            direction = generator.normal(size=arrays[place].shape)
            slope = _slope(evaluator, graph, arrays, factors, place, direction)
            claimed = float(np.sum(found[number] * direction))
            scale = max(abs(slope), abs(claimed), 1e-3)
            if np.isfinite(slope) and not abs(claimed - slope) <= MAX_SLOPE_ERROR * scale:
                name = graph.inputs[place].name
                return f"the gradient of %{name} is {claimed:.6g}, the slope {slope:.6g}"
    except MonographError:
        return None
    return None


def _slope(
    evaluator: Evaluator,
    graph: Graph,
    arrays: Sequence[Any],
    factors: Mapping[int, Any],
    place: int,
    direction: Any,
) -> float:
    sides = []
    for sign in (1, -1):
        moved = [*arrays]
        moved[place] = arrays[place] + sign * SLOPE_STEP * direction
        outputs = evaluator.run(graph, moved)
        with np.errstate(all="ignore"):
            sums = [np.sum(each * outputs[k]).real for k, each in factors.items()]
            sides.append(float(sum(sums)))
    return (sides[0] - sides[1]) / (2 * SLOPE_STEP)


def _is_float(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.dtype.is_float


def _compare(
    evaluator: Evaluator, case: Case, got: Sequence[Any], later: Sequence[Graph]
) -> str | None:
    """What is wrong with answers, held against the interpreter's and double precision."""
    expected = evaluator.run(case.graph, case.inputs)
    reference = Reference(case.graph, case.inputs, evaluator)
    for graph in later:
        reference.allow_specials(graph)
    for k, (found, other) in enumerate(zip(got, expected, strict=True)):
        verdict = reference.judge(k, found, other)
        if verdict.word == "wrong":
            return verdict.remark or f"off by {verdict.difference:.1e}"
    return None


def without_passes(options: Options) -> Options:
    """The same options with nothing done to the graph before it is lowered."""
    return replace(options, passes=())
