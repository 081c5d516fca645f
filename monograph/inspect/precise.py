"""Evaluates a graph in float64, and corrects for what rounding loses even there.

Answers are held against it. An answer is *exact* if it has the other's bits, *more accurate* if it
is nearer to the double precision than the other, *within rounding* if it is not much further, and
*wrong* otherwise. Errors are norms: ‖got − reference‖ / ‖reference‖.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import ml_dtypes
import numpy as np

from monograph.dataclass import dataclass
from monograph.errors import MonographError
from monograph.ir.data import ArrayData, Data
from monograph.ir.float_error import relative_norm_error
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.interpret import interpret
from monograph.ir.op import make
from monograph.ir.types import Array, DType, TensorType, ValueType, bf16, c64, c128, f16, f32, f64
from monograph.ops.distributions import Normal, Uniform
from monograph.ops.elementwise.convert import Cast

F32_ROUNDING = 1.2e-7
MIN_RELIABLE_ELEMENTS = 1000
"""Elements under which an error may be small by luck."""
SLACK_ULPS = 8
"""What may differ beside the other answer's error, in units of eps of the element."""
ACCUMULATION_ULPS = 24
"""The same for long sums, in units of eps of what elements usually are: others may sum in double
precision, and round once."""
NOISE_FACTOR = 2
"""How far beyond the largest of a few noisy answers an error may lie."""
NOISE_DRAWS = 8
MORE_NOISE_DRAWS = 32
"""Before a few elements alone are called wrong: not every draw moves each of them."""
MOST_NOISE_DRAWS = 128
"""Before some are called wrong beside others that draws explained."""
MOST_FEW_WRONG = 0.1
"""The share of elements up to which they are few."""
FEW_ELEMENTS = 64
"""How many are few, whatever their share."""
_WIDER = {f16: f64, bf16: f64, f32: f64, c64: c128}
Noise: TypeAlias = "Callable[[int], Sequence[Array]]"
"""As many answers in double precision as are asked for, with every value on the way moved a bit."""
Choices: TypeAlias = "Callable[[Array], Array]"
"""Which elements of an answer, all of them indices, choose as good a number as another does."""


@dataclass(frozen=True)
class Verdict:
    """How one answer compares with another, both held against double precision (where known)."""

    word: str
    difference: float
    """From the other answer."""
    error: float | None
    other_error: float | None
    remark: str = ""
    """Where and how it is wrong, or why a large difference is not."""


def double_precision(graph: Graph, inputs: Sequence[Any]) -> list[Array] | None:
    """The graph's outputs in double precision; None if it has no such form (it looks at bits)."""
    try:
        twin = widen_graph(graph)
        arrays = [
            np.asarray(array).astype(value.dtype.numpy)
            if isinstance(value.type, TensorType)
            else array
            for value, array in zip(twin.inputs, inputs, strict=True)
        ]
        return interpret(twin, arrays)
    except MonographError:
        return None


def widen_graph(
    graph: Graph,
    known: dict[Data, Data] | None = None,
    origins: dict[Node, Node] | None = None,
) -> Graph:
    """The graph with every float a double; ``known`` keeps contents that were widened before.

    Random numbers are drawn as the graph draws them: a double would be another number, made of
    other bits. ``origins`` is told which node each new one is the twin of.
    """
    known = {} if known is None else known
    origins = {} if origins is None else origins
    result = Graph(graph.name)
    mapping: dict[Value, Value] = {}
    for value in graph.inputs:
        mapping[value] = result.add_input(value.name, _wider_type(value.type))
    for node in graph.nodes:
        is_drawn = isinstance(node.op, Uniform | Normal)
        kept = node.op.attributes()
        changed = kept if is_drawn else {name: _wider(kept[name], known) for name in kept}
        copy = result.create(
            make(node.op.name, **changed),
            [mapping[operand] for operand in node.operands],
            regions=[widen_graph(region, known, origins) for region in node.regions],
            names=[value.name for value in node.results],
            location=node.location,
        )
        if is_drawn and copy.result.dtype in _WIDER:
            cast = Cast(_WIDER[copy.result.dtype])
            copy = result.create(cast, [copy.result], location=node.location)
        origins[copy] = node
        mapping.update(zip(node.results, copy.results, strict=True))
    result.set_outputs([mapping[value] for value in graph.outputs])
    return result


@np.errstate(all="ignore")  # NaN, infinities and squares beyond the range are judged as they are
def judge(
    got: Array,
    other: Array,
    reference: Array | None,
    noisy: Noise | None = None,
    choices: Choices | None = None,
) -> Verdict:
    """The word for an answer.

    NaN and infinities must stand where they do in one of the others. Before an answer is called
    wrong, ``noisy`` is asked whether the program magnifies rounding (a cancellation, a comparison
    of nearly equal numbers) so much that neither answer says anything. Of an answer that is made of
    indices, ``choices`` says which of them choose something as good as the reference's do.
    """
    if got.shape != other.shape or got.dtype != other.dtype:
        found = f"{got.dtype}{list(got.shape)}, not {other.dtype}{list(other.shape)}"
        return Verdict("wrong", np.inf, None, None, found)
    difference = relative_error(got, other)
    error = None if reference is None else relative_error(got, reference)
    other_error = None if reference is None else relative_error(other, reference)
    if np.array_equal(got, other, equal_nan=is_float(got)):
        return Verdict("exact", 0.0, error, other_error, _sign_remark(got, other))
    if reference is None or error is None or other_error is None:
        limit = 100 * F32_ROUNDING if got.dtype.itemsize >= 4 else 0.02
        word = "within rounding" if difference <= limit else "wrong"
        return Verdict(word, difference, error, other_error)
    wrong = _wrong_elements(got, other, reference)
    if not wrong.any():
        word = "more accurate" if error <= other_error else "within rounding"
        return Verdict(word, difference, error, other_error)
    remark = "the program magnifies rounding"
    if choices is not None and wrong.any():
        wrong &= ~choices(got)
    elif noisy is not None and wrong.any():
        wrong &= ~_is_explained(got, reference, wrong, noisy)
    if wrong.any():
        remark = _first_of(wrong, got, other)
    word = "wrong" if wrong.any() else "within rounding"
    return Verdict(word, difference, error, other_error, remark)


def _wrong_elements(got: Array, other: Array, reference: Array) -> Array:
    """Where an answer is further from the reference than the other one's errors allow."""
    if not is_float(got):
        return np.asarray((got != other) & (got != reference.astype(got.dtype)))
    kinds = [_kinds(each) for each in (got, other, reference.astype(got.dtype))]
    wrong = (kinds[0] != kinds[1]) & (kinds[0] != kinds[2])
    finite = np.isfinite(_wide(got)) & np.isfinite(_wide(reference))
    error = np.where(finite, abs(_wide(got) - _wide(reference)), 0)
    both = finite & np.isfinite(_wide(other))
    other_error = np.where(both, abs(_wide(other) - _wide(reference)), 0)
    slack = np.where(finite, _slack(got, reference), 0)
    factor = 3 if got.size < MIN_RELIABLE_ELEMENTS or got.dtype.itemsize < 4 else 2
    apart = error > factor * other_error.max(initial=0.0) + slack
    allowed = factor * np.linalg.norm(other_error) + np.linalg.norm(slack)
    if not apart.any() and np.linalg.norm(error) > allowed:
        apart = error > other_error + slack
    return np.asarray(wrong | apart)


def _slack(got: Array, reference: Array) -> Array:
    """A few units in the last place of each element, and of what elements usually are."""
    eps, tiny, _ = precision_of(got.dtype)
    exact = abs(_wide(reference))
    finite = exact[np.isfinite(exact)]
    usual = float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0
    each = SLACK_ULPS * eps * (exact + tiny)
    return np.asarray(each + ACCUMULATION_ULPS * eps * (usual if np.isfinite(usual) else 0.0))


def _is_explained(got: Array, reference: Array, wrong: Array, noisy: Noise) -> Array:
    """Where noise explains what is wrong, with more draws for the few elements that are left.

    Most draws are made only where some explained something: noise that does nothing to a program
    does not begin to.
    """
    found = _is_within_noise(got, reference, noisy(NOISE_DRAWS))
    for draws in (MORE_NOISE_DRAWS, MOST_NOISE_DRAWS):
        left = int((wrong & ~found).sum())
        if not 0 < left <= max(MOST_FEW_WRONG * wrong.size, FEW_ELEMENTS):
            break
        if draws == MOST_NOISE_DRAWS and not (wrong & found).any():
            break
        found |= _is_within_noise(got, reference, noisy(draws))
    return found


def _is_within_noise(got: Array, reference: Array, draws: Sequence[Array]) -> Array:
    """Where noise on the way moves the reference as far as an answer is from it.

    Near the edge of what has a value (a root of what should be zero), draws are numbers as well as
    NaN or infinite. An answer may be either there, and a number must be like those drawn.
    """
    if not draws:
        return np.zeros(got.shape, bool)
    if not is_float(got):
        return np.asarray(np.any([got == each.astype(got.dtype) for each in draws], axis=0))
    kinds = _kinds(got)
    same = np.any([kinds == _kinds(each.astype(got.dtype)) for each in draws], axis=0)
    exact, answer = _wide(reference), _wide(got)
    spread = np.fmax.reduce([abs(_wide(each) - exact) for each in draws])
    near = abs(answer - exact) <= NOISE_FACTOR * spread + _slack(got, reference)
    if answer.dtype.kind != "c":
        near |= ~np.isfinite(exact) & _among(answer, draws)
    return np.asarray(np.where(kinds == 0, near, same))


def _among(answer: Array, draws: Sequence[Array]) -> Array:
    """Where an answer is among those draws that are numbers, or not far from them."""
    numbers = [np.where(np.isfinite(_wide(each)), _wide(each), np.nan) for each in draws]
    low, high = np.fmin.reduce(numbers), np.fmax.reduce(numbers)
    reach = (NOISE_FACTOR - 1) * (high - low)
    return np.asarray((low - reach <= answer) & (answer <= high + reach))


def _kinds(array: Array) -> Array:
    """0 for a number, 1 for NaN, 2 and 3 for the infinities.

    A complex number is one, or it is not: which of its parts are NaN, and which infinite, depends
    on the formula that multiplies.
    """
    wide = _wide(array)
    if wide.dtype.kind == "c":
        return np.asarray(~np.isfinite(wide)).astype(np.int64)
    return np.asarray(np.isnan(wide) + 2 * np.isposinf(wide) + 3 * np.isneginf(wide))


def _wide(array: Array) -> Array:
    wide: Array = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    return wide


def is_float(array: Array) -> bool:
    """Whether it holds floats or complex numbers, NumPy's own or ``ml_dtypes``'s."""
    return array.dtype.kind in "fcV" or array.dtype.name.startswith(("bfloat", "float"))


class Precision(NamedTuple):
    """Of a float dtype: the distance from 1 to the next number, and the ends of its range."""

    eps: float
    smallest_normal: float
    largest: float


def precision_of(dtype: np.dtype[Any]) -> Precision:
    """What numbers of a float or complex dtype can tell apart, NumPy's own or ``ml_dtypes``'s."""
    info: Any
    if dtype.kind in "fc":
        info = np.finfo(dtype)
    else:
        info = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]  # has no types
    return Precision(float(info.eps), float(info.smallest_normal), float(info.max))


def _sign_remark(got: Array, other: Array) -> str:
    """Zeros whose sign changed, in an answer that is otherwise the same."""
    if got.dtype.kind != "f":
        return ""
    changed = (np.signbit(got) != np.signbit(other)) & (got == 0)
    return f"{int(changed.sum())} zeros have another sign" if changed.any() else ""


def _first_of(wrong: Array, got: Array, other: Array) -> str:
    place = tuple(int(each) for each in np.argwhere(wrong)[0])
    where = f"{int(wrong.sum()):,} of {wrong.size:,} wrong, first at {list(place)}"
    return f"{where}: {got[place]:.9g}, not {other[place]:.9g}"


def relative_error(got: Array, reference: Array) -> float:
    """‖got − reference‖ / ‖reference‖; for whole numbers, the share that differs."""
    if not is_float(got):
        return float(np.mean(got != reference)) if got.size else 0.0
    return relative_norm_error(got, reference)


def _wider_type(type_: ValueType) -> ValueType:
    if not isinstance(type_, TensorType):
        return type_
    return TensorType(_WIDER.get(type_.dtype, type_.dtype), type_.shape)


def _wider(attribute: Any, known: dict[Data, Data]) -> Any:
    if isinstance(attribute, DType):
        return _WIDER.get(attribute, attribute)
    if isinstance(attribute, Data) and attribute.dtype in _WIDER:
        if attribute not in known:
            dtype = _WIDER[attribute.dtype]
            known[attribute] = ArrayData(attribute.array().astype(dtype.numpy), dtype)
        return known[attribute]
    return attribute
