"""Every op's samples in every dtype, compiled many at a time and held against the interpreter.

Compiling costs far more than running, so the samples of an op become one graph with many outputs.
What is asked of an answer depends on what computed it (see ``verdict``): integers, bools and moved
or once-rounded floats have the interpreter's bits; functions that are approximated stay within
their stated bound of the exact result; sums may be added in another order, and are held against
the same computation in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from monograph.compiler import Options, compile_graph
from monograph.errors import MonographError
from monograph.frontends.trace import trace
from monograph.fusion.prologue import is_stored
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from monograph.ir.op import Op, Sample, Trait
from monograph.ir.types import Array, dtype_of, f64, type_of_array
from monograph.kernel.lower import is_lowerable
from monograph.kernel.mathlib import BOUNDS
from monograph.kernel.scalar import BASIC
from monograph.ops.spectral import Svd
from monograph.passes.lower_composites import LowerComposites
from monograph.program.native_support import only_interpretable
from monograph.runtime.compiled import Executable
from monograph.runtime.cpu.fences import FenceError
from monograph.targets.cpu.nests.lower_loops import has_loops
from monograph.targets.cpu.target import FORMULAS
from tests.targets.running import interpreted_ops

FLOATS = ("f32", "f64", "f16", "bf16")
INTEGERS = ("i32", "i64", "i8", "i16", "u8", "u16", "u32", "u64")
AT_ONCE = 40
"""Samples that are compiled together."""
ROUNDINGS = 64
"""Units in the last place of its largest element that a result made in several steps may be off,
or four times what the interpreter is."""
SQUARED = 512
"""The same for functions of which the interpreter itself loses as many in f64."""
LOOSE = ("gelu", "igamma", "igammac", "airy_ai")
"""Those functions: a tail, exponentials of differences of logarithms, a series that cancels."""


@dataclass
class Case:
    """A sample in one dtype, with what the interpreter says of it: results or an error."""

    name: str
    sample: Sample
    graph: Graph
    expected: list[Array] | None
    whole: str | None
    """Why native code has no part in it (strings, sequences, sizes that depend on data)."""

    @property
    def operands(self) -> list[Array]:
        return [np.asarray(array) for array in self.sample.operands]


def cases(samples: Sequence[tuple[str, Sample]], *, every_dtype: bool = True) -> list[Case]:
    """Samples as they are, and in every other dtype that their op takes."""
    found = []
    for name, sample in samples:
        for dtype, variant in in_dtypes(sample) if every_dtype else [("own", sample)]:
            case = case_of(f"{name}@{dtype}", variant)
            if case is not None:
                found.append(case)
    return found


def in_dtypes(sample: Sample) -> Iterator[tuple[str, Sample]]:
    """The sample, then with its one float dtype (and its one integer dtype) exchanged."""
    yield "own", sample
    arrays = [np.asarray(array) for array in sample.operands]
    if any(array.dtype.kind == "O" for array in arrays):
        return
    for names, is_kind in ((FLOATS, _is_float), (INTEGERS, _is_integer)):
        own = {dtype_of(array.dtype).name for array in arrays if is_kind(array)}
        if len(own) != 1 or not own <= set(names):
            continue
        for name in names:
            if name not in own:
                changed = [_converted(a, name) if is_kind(a) else a for a in arrays]
                yield name, Sample(sample.apply, tuple(changed), sample.note)


def _converted(array: Array, name: str) -> Array:
    with np.errstate(all="ignore"):
        return array.astype(dtype_of(name).numpy)


def _is_float(array: Array) -> bool:
    return array.dtype.kind != "O" and dtype_of(array.dtype).is_float


def _is_integer(array: Array) -> bool:
    return array.dtype.kind != "O" and dtype_of(array.dtype).is_integer


def case_of(name: str, sample: Sample) -> Case | None:
    """What the interpreter makes of a sample; None if its op refuses the dtype."""
    types = [type_of_array(np.asarray(array)) for array in sample.operands]
    try:
        graph = trace(sample.apply, *types, name="sample")
    except MonographError:
        return None
    try:
        expected = interpret(graph, list(sample.operands))
    except MonographError:
        if not _fails_lowered(graph, sample):
            return None  # only a composite's own evaluation can tell
        expected = None
    return Case(name, sample, graph, expected, only_interpretable(graph))


def _lowered(graph: Graph) -> Graph:
    """The graph as kernels are made of it."""
    lowered = graph.clone()
    LowerComposites(keep=FORMULAS, keep_lowerable=True).run(lowered)
    return lowered


def _fails_lowered(graph: Graph, sample: Sample) -> bool:
    try:
        interpret(_lowered(graph), list(sample.operands))
    except MonographError:
        return True
    return False


# Compiling ------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What became of a case: ``problem`` is empty if its answer is right."""

    name: str
    problem: str
    interpreted: tuple[str, ...] = ()


def check(chosen: Sequence[Case], options: Options) -> list[Outcome]:
    """Compile cases together; those of a batch that fails are tried one by one."""
    outcomes = [Outcome(c.name, "", ("(whole)",)) for c in chosen if c.whole is not None]
    native = [case for case in chosen if case.whole is None]
    outcomes += [_check_alone(case, options) for case in native if case.expected is None]
    answered = [case for case in native if case.expected is not None]
    for start in range(0, len(answered), AT_ONCE):
        outcomes += _check_batch(answered[start : start + AT_ONCE], options)
    return outcomes


def _check_batch(batch: Sequence[Case], options: Options) -> list[Outcome]:
    try:
        executable = compile_graph(together(batch), options)
        results = executable.run([array for case in batch for array in case.operands])
    except Exception:
        if len(batch) > 1:
            return [outcome for case in batch for outcome in _check_batch([case], options)]
        return [_check_alone(batch[0], options)]
    outcomes = []
    for case in batch:
        assert case.expected is not None
        own, results = results[: len(case.expected)], results[len(case.expected) :]
        outcomes.append(Outcome(case.name, verdicts(case, own)))
    if interpreted_ops(executable):
        for case, outcome in zip(batch, outcomes, strict=True):
            outcome.interpreted = _interpreted(case)
    return outcomes


def together(batch: Sequence[Case]) -> Graph:
    """One graph of all samples, one after the other."""

    def everything(*values: Any) -> list[Any]:
        given = list(values)
        results: list[Any] = []
        for case in batch:
            count = len(case.sample.operands)
            result = case.sample.apply(*given[:count])
            del given[:count]
            results += result if isinstance(result, tuple | list) else [result]
        return results

    types = [type_of_array(array) for case in batch for array in case.operands]
    return trace(everything, *types, name="samples")


def _interpreted(case: Case) -> tuple[str, ...]:
    """The ops of a case that kernels do not compute, once its composites are lowered."""
    return tuple(
        sorted(
            {
                node.op.name
                for node in _lowered(case.graph).walk()
                if not (node.regions or is_stored(node) or is_lowerable(node) or has_loops(node))
            }
        )
    )


def _check_alone(case: Case, options: Options) -> Outcome:
    """A case by itself: an error of the interpreter must be one of the compiled graph too."""
    executable: Executable | None = None
    try:
        executable = compile_graph(case.graph, options)
        results = executable.run(case.operands)
    except FenceError as error:  # never what was to be expected
        return Outcome(case.name, f"an error: {error}")
    except MonographError as error:
        touched = () if executable is None else tuple(interpreted_ops(executable))
        problem = "" if case.expected is None else f"an error: {error}"
        return Outcome(case.name, problem, touched)
    except Exception as error:
        return Outcome(case.name, f"{type(error).__name__}: {error}")
    touched = tuple(interpreted_ops(executable))
    if case.expected is None:
        return Outcome(case.name, "an error of the interpreter is none here", touched)
    return Outcome(case.name, verdicts(case, results), touched)


# Comparing --------------------------------------------------------------------------------------


def verdicts(case: Case, results: Sequence[Array]) -> str:
    """What is wrong with the results of a case; nothing if they are as right as they should be."""
    assert case.expected is not None
    reference = _Reference(case)
    results = comparable(case.sample, results, case.expected)
    problems = [
        f"output {k}: {problem}"
        for k, (got, expected) in enumerate(zip(results, case.expected, strict=True))
        if (problem := verdict(case, got, expected, lambda k=k: reference.output(k)))
    ]
    return "; ".join(problems)


def comparable(
    sample: Sample, results: Sequence[Array], expected: Sequence[Array]
) -> Sequence[Array]:
    """Results with what they are free to choose chosen as expected: factors of singular vectors.

    Vectors without a singular value only span a space: of those that are expected, what lies in
    the space of the results is taken.
    """
    if not isinstance(sample.apply, Svd) or not all(array.size for array in expected):
        return results
    (u, s, vh), count = results, expected[1].shape[-1]
    v = vh.conj().swapaxes(-1, -2)
    expected_v = expected[2].conj().swapaxes(-1, -2)
    along = np.sum(u[..., :count].conj() * expected[0][..., :count], axis=-2, keepdims=True)
    turned = []
    for got, wanted in ((u, expected[0]), (v, expected_v)):
        kept, rest = got[..., :count] * (along / np.abs(along)), got[..., count:]
        within = rest @ (rest.conj().swapaxes(-1, -2) @ wanted[..., count:])
        turned.append(np.concatenate([kept, within], axis=-1).astype(got.dtype))
    return [turned[0], s, turned[1].conj().swapaxes(-1, -2)]


class _Reference:
    """The sample in float64, computed when it is first asked for."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.outputs: list[Array] | None = None

    def output(self, k: int) -> Array | None:
        if self.outputs is None:
            self.outputs = self._computed()
        return self.outputs[k] if k < len(self.outputs) else None

    def _computed(self) -> list[Array]:
        wide = [a.astype(np.float64) if _is_float(a) else a for a in self.case.operands]
        try:
            graph = trace(self.case.sample.apply, *map(type_of_array, wide), name="reference")
            return interpret(graph, wide)
        except MonographError:
            return []


def verdict(case: Case, got: Array, expected: Array, reference: Callable[[], Array | None]) -> str:
    """What is wrong with an answer; nothing if it is as right as it should be."""
    if got.dtype != expected.dtype or got.shape != expected.shape:
        return f"{got.dtype}{got.shape}, not {expected.dtype}{expected.shape}"
    if got.dtype.kind == "c":
        parts = ((got.real, expected.real), (got.imag, expected.imag))
        return "; ".join(filter(None, (verdict(case, *part, lambda: None) for part in parts)))
    if not _is_float(got):
        return _differences(got, expected, got != expected)
    same = _same_bits(got, expected)
    if same.all():
        return ""
    op = case.sample.apply
    if isinstance(op, Op) and op.name in BASIC and op.name != "fma" and not _is_complex(case):
        return _differences(got, expected, ~same)
    if isinstance(op, Op) and op.has(Trait.REDUCTION):  # of two zeros, either is the maximum
        same |= (got == 0) & (expected == 0)
    exact = reference()
    if exact is None or exact.shape != got.shape or exact.dtype.kind != "f":
        exact = expected.astype(np.float64)
    return _differences(got, expected, ~same & ~_near(case, got, expected, exact))


def _near(case: Case, got: Array, expected: Array, exact: Array) -> Array:
    """Where an answer is within what its computation may be off."""
    with np.errstate(all="ignore"):
        g, e = got.astype(np.float64), expected.astype(np.float64)
        alike = (np.isnan(g) == np.isnan(e)) & (np.isinf(g) == np.isinf(e))
        alike &= ~np.isinf(e) | (g == e)
        error, own_error = np.abs(g - exact), np.abs(e - exact)
        unit = _units(got, e)
        op = case.sample.apply
        if isinstance(op, Op) and op.name in BOUNDS:
            return alike & (_within_bound(op.name, got, e, exact, unit) | (error <= own_error))
        finite = np.isfinite(e)
        largest = np.max(np.abs(e), where=finite, initial=0.0)
        scale = float(ml_dtypes.finfo(got.dtype).eps) * max(largest, _largest(case))
        units = SQUARED if isinstance(op, Op) and op.name in LOOSE else ROUNDINGS
        allowed = units * unit if _is_elementwise(case) else ROUNDINGS * scale
        worst = np.max(own_error, where=finite & np.isfinite(exact), initial=0.0)
        return alike & (~finite | (error <= np.maximum(4 * worst, allowed)))


def _within_bound(name: str, got: Array, expected: Array, exact: Array, unit: Array) -> Array:
    """Where an approximated function is as near as it promises.

    In f64 there is nothing better to hold it against than the interpreter, which rounds too: a
    little relative to the result, and near a root of the function relative to its slope.
    """
    g = got.astype(np.float64)
    if not _is_wide(got):
        return np.abs(g - exact) <= unit
    if dtype_of(got.dtype) is not f64:
        return np.abs(g - exact) <= (BOUNDS[name]["f32"] + 0.5) * unit
    own = 32 * unit + 8 * float(np.finfo(np.float64).eps)
    return np.abs(g - expected) <= BOUNDS[name]["f64"] * unit + own


def _is_complex(case: Case) -> bool:
    return any(array.dtype.kind == "c" for array in case.operands)


def _is_elementwise(case: Case) -> bool:
    return isinstance(case.sample.apply, Op) and case.sample.apply.has(Trait.ELEMENTWISE)


def _is_wide(array: Array) -> bool:
    return dtype_of(array.dtype).bits >= 32


def _largest(case: Case) -> float:
    """The largest finite number that goes in: sums may cancel."""
    found = 0.0
    for array in case.operands:
        if _is_float(array):
            wide = np.abs(array.astype(np.float64))
            found = max(found, float(np.max(wide, where=np.isfinite(wide), initial=0.0)))
    return found


def _units(got: Array, expected: Array) -> Array:
    """A unit in the last place of ``got``'s dtype, at each number."""
    info = ml_dtypes.finfo(got.dtype)
    smallest = float(info.smallest_subnormal)
    _, exponent = np.frexp(np.abs(np.where(np.isfinite(expected), expected, 1.0)))
    return np.maximum(np.ldexp(float(info.eps), exponent - 1), smallest)


def _same_bits(got: Array, expected: Array) -> Array:
    """Where two arrays of floats have the same bits, or a NaN each."""
    kind = f"u{got.dtype.itemsize}"
    bits = np.ascontiguousarray(got).view(kind) == np.ascontiguousarray(expected).view(kind)
    return (bits | (np.isnan(got) & np.isnan(expected))).reshape(got.shape)


def _differences(got: Array, expected: Array, wrong: Array) -> str:
    if not wrong.any():
        return ""
    count = f"{int(wrong.sum())} of {wrong.size}"
    return f"{count} wrong: {got[wrong][:3]} is not {expected[wrong][:3]}"
