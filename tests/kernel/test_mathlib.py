"""Every function of the math library against more digits than its result has.

The formulas run in NumPy (``evaluate_expr``) over a sample of the whole range, and compiled over a
denser one. Compiled f64 must equal NumPy's, bit for bit.
"""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

import monograph
from monograph import functional
from monograph.errors import InputError
from monograph.ir.types import DType, bf16, f32, f64
from monograph.kernel.expr import Apply, Expr, apply, variable, walk
from monograph.kernel.mathlib import BOUNDS, FORMULAS, ZEROS_INSIDE, expand
from monograph.kernel.scalar import APPROXIMATED, BASIC
from tests.kernel.evaluate_expr import evaluate
from tests.kernel.mathlib_references import LIMITS, WIDE, distance, exact, trusted

Array = np.ndarray[Any, Any]

BINARY = ("atan2", "power")
NOT_OPS = ("decay",)
UNARY = sorted(set(FORMULAS) - set(BINARY) - set(NOT_OPS))
FLOATS = (f32, f64)
LARGE, TINY = 3e38, 1e-45

# Where a zero of the formula may have the other sign than the interpreter's: -log(1 + e^-x) is
# computed as 0 - 0 where e^-x underflows.
ZEROS_OF_EITHER_SIGN = ("log_sigmoid",)


def expansion(name: str, dtype: DType) -> tuple[Expr, tuple[Expr, ...]]:
    """The formula of a function and its variables."""
    count = 2 if name in BINARY else 1
    operands = tuple(variable(f"x{position}", dtype) for position in range(count))
    applied = apply(name, *operands)
    assert isinstance(applied, Apply)
    return expand(applied), operands


def run(name: str, *arrays: Array) -> Array:
    """The formula's values."""
    dtype = f32 if arrays[0].dtype == np.float32 else f64
    root, operands = expansion(name, dtype)
    return evaluate(root, dict(zip(operands, arrays, strict=True)))


def compiled(name: str, *arrays: Array) -> Array:
    """What the compiled op computes."""

    def called(*operands: Any) -> Any:
        if name.startswith("gelu"):
            return functional.gelu(*operands, approximate="none" if name == "gelu_erf" else "tanh")
        if name == "softplus":
            return functional.softplus(*operands, threshold=float("inf"))
        return getattr(functional, name)(*operands)

    result = monograph.compile(called, *arrays, strict=True)(*arrays)
    return np.asarray(result)


def specials(kind: type[np.floating[Any]]) -> Array:
    """Zeros, infinities, NaN, the ends of the range, and numbers where formulas change."""
    facts = np.finfo(kind)
    sizes = [0.0, 1.0, 0.5, 2.0, 3.0, np.inf, facts.tiny, facts.smallest_subnormal, facts.max]
    sizes += [np.pi, np.sqrt(0.5), np.sqrt(2.0), facts.eps, 0.625, 0.85, 20.0, 100.0, 1000.0]
    positive = np.array(sizes, kind)
    return np.concatenate([positive, -positive, np.array([np.nan], kind)])


def all_f32(step: int) -> Array:
    """Every ``step``-th of the 2^32 patterns of bits."""
    patterns = np.arange(0, 1 << 32, step, dtype=np.uint64).astype(np.uint32)
    return np.concatenate([patterns.view(np.float32), specials(np.float32)])


def sample_f64(count: int) -> Array:
    """Numbers of every exponent, and many of ordinary size."""
    draw = np.random.default_rng(0)
    bits = draw.integers(0, 1 << 64, count, dtype=np.uint64).view(np.float64)
    near = [draw.uniform(-1, 1, count), draw.uniform(-40, 40, count), draw.normal(size=count)]
    near += [np.exp(draw.uniform(-30, 7, count)), 1 + draw.uniform(-1e-3, 1e-3, count)]
    numbers = np.concatenate([bits, *near])
    return numbers[np.isfinite(numbers)]


def worst(name: str, got: Array, reference: Array, *operands: Array) -> tuple[float, str]:
    """The largest distance, and where it is."""
    wide = got.dtype == np.float64
    apart = distance(got, reference, floor=1.0 if wide and name in ZEROS_INSIDE else 0.0)
    apart = np.where(np.isnan(apart), np.inf, apart)
    place = int(np.argmax(apart))
    arguments = ", ".join(repr(operand[place]) for operand in operands)
    found = f"{name}({arguments}) = {got[place]!r}, not {reference[place]!r}"
    return float(apart[place]), found


def test_there_is_a_formula_and_a_bound_for_every_approximated_function() -> None:
    assert set(FORMULAS) == APPROXIMATED
    assert set(BOUNDS) == APPROXIMATED
    assert all(set(bounds) == {"f32", "f64"} for bounds in BOUNDS.values())


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", sorted(FORMULAS))
def test_formulas_are_made_of_basic_functions(name: str, dtype: DType) -> None:
    root, _ = expansion(name, dtype)
    functions = {expr.function for expr in walk((root,)) if isinstance(expr, Apply)}
    assert functions <= BASIC
    assert root.dtype is dtype


def test_a_function_without_formula_is_refused() -> None:
    unknown = apply("no_such_function", variable("x", f32))
    narrow = apply("exp", variable("x", bf16))
    for wrong in (unknown, narrow):
        assert isinstance(wrong, Apply)
        with pytest.raises(InputError, match="there is no formula"):
            expand(wrong)


@pytest.mark.parametrize("name", UNARY)
def test_f32_over_the_whole_range(name: str) -> None:
    x = trusted(name, all_f32(50_021))
    with np.errstate(all="ignore"):
        reference = WIDE[name](x.astype(np.float64))
    error, found = worst(name, run(name, x), reference, x)
    assert error <= BOUNDS[name]["f32"], found


@pytest.mark.parametrize("name", UNARY)
def test_f64_over_the_whole_range(name: str) -> None:
    x = trusted(name, sample_f64(20 if name in LIMITS else 200))
    error, found = worst(name, run(name, x), exact(name, x), x)
    assert error <= BOUNDS[name]["f64"], found


def pairs(kind: type[np.floating[Any]], count: int) -> tuple[Array, Array]:
    """Operands of every exponent, of ordinary size, and whose power is just in range."""
    draw = np.random.default_rng(1)
    whole = np.uint32 if kind is np.float32 else np.uint64
    bits = draw.integers(0, np.iinfo(whole).max, (2, count), dtype=whole).view(kind)
    base = np.exp(draw.normal(size=count) * 3).astype(kind)
    limit = float(np.log2(np.finfo(kind).max))
    with np.errstate(all="ignore"):
        edge = (draw.uniform(-limit, limit, count) / np.log2(base)).astype(kind)
    small = draw.integers(-12, 12, (2, count)).astype(kind)
    first = np.concatenate([bits[0], base, base, small[0], -base])
    second = np.concatenate([bits[1], draw.normal(size=count).astype(kind), edge, small[1], edge])
    return first, second


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_operands_in_f32(name: str) -> None:
    a, b = pairs(np.float32, 20_000)
    with np.errstate(all="ignore"):
        reference = WIDE[name](a.astype(np.float64), b.astype(np.float64))
    error, found = worst(name, run(name, a, b), reference, a, b)
    assert error <= BOUNDS[name]["f32"], found


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_operands_in_f64(name: str) -> None:
    a, b = pairs(np.float64, 150)
    kept = np.isfinite(a) & np.isfinite(b) & (a != 0) & (b != 0)
    if name == "power":
        with np.errstate(all="ignore"):
            kept &= np.abs(b * np.log2(np.abs(a))) < 1100
    a, b = a[kept], b[kept]
    error, found = worst(name, run(name, a, b), exact(name, a, b), a, b)
    assert error <= BOUNDS[name]["f64"], found


def assert_same_special_values(name: str, got: Array, expected: Array) -> None:
    """NaN, infinities and zeros are the same; other numbers have the same sign."""
    special = ~np.isfinite(expected) | (expected == 0)
    np.testing.assert_array_equal(got[special], expected[special])
    zero = expected == 0
    if name not in ZEROS_OF_EITHER_SIGN:
        np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(expected[zero]))
    np.testing.assert_array_equal(np.sign(got[~special]), np.sign(expected[~special]))


def interpreted(name: str, *operands: Array) -> Array:
    """What the interpreter computes."""
    from monograph.ir.op import registry
    from monograph.ops.activation import Gelu, Softplus

    if name.startswith("gelu"):
        op: Any = Gelu("none" if name == "gelu_erf" else "tanh")
    elif name == "softplus":
        op = Softplus(threshold=float("inf"))
    else:
        op = registry()[name]()
    with np.errstate(all="ignore"):
        return np.asarray(op.evaluate(*operands))


@pytest.mark.parametrize("kind", (np.float32, np.float64))
@pytest.mark.parametrize("name", UNARY)
def test_special_values_are_the_interpreters(name: str, kind: type[np.floating[Any]]) -> None:
    x = specials(kind)
    if name in ("silu", "gelu_erf", "gelu_tanh"):  # half of the smallest number rounds either way
        x = x[np.abs(x) != np.finfo(kind).smallest_subnormal]
    if name in LIMITS:  # at the ends of the range the interpreter's own formulas overflow
        ends = (np.finfo(kind).smallest_subnormal, np.finfo(kind).tiny, np.finfo(kind).max)
        x = x[~np.isin(np.abs(x), ends)]
    assert_same_special_values(name, run(name, x), interpreted(name, x))


@pytest.mark.parametrize("kind", (np.float32, np.float64))
@pytest.mark.parametrize("name", BINARY)
def test_special_pairs_are_the_interpreters(name: str, kind: type[np.floating[Any]]) -> None:
    a, b = (grid.ravel() for grid in np.meshgrid(specials(kind), specials(kind)))
    assert_same_special_values(name, run(name, a, b), interpreted(name, a, b))


@pytest.mark.parametrize("name", UNARY)
def test_compiled_f32_over_the_whole_range(name: str) -> None:
    assert_compiled_f32_is_within_its_bound(name, trusted(name, all_f32(10_007)))


@pytest.mark.slow
@pytest.mark.parametrize("name", UNARY)
def test_compiled_f32_over_the_whole_range_densely(name: str) -> None:
    assert_compiled_f32_is_within_its_bound(name, trusted(name, all_f32(1009)))


def assert_compiled_f32_is_within_its_bound(name: str, x: Array) -> None:
    with np.errstate(all="ignore"):
        reference = WIDE[name](x.astype(np.float64))
    error, found = worst(name, compiled(name, x), reference, x)
    assert error <= BOUNDS[name]["f32"], found


@pytest.mark.parametrize("name", UNARY)
def test_compiled_f64_equals_the_formula(name: str) -> None:
    x = np.concatenate([sample_f64(1000), specials(np.float64)])
    x = x[~(np.abs(x) < 1e-290) | (x == 0)]  # where NumPy's fma is exact
    np.testing.assert_array_equal(compiled(name, x), run(name, x))


@pytest.mark.parametrize("name", BINARY)
def test_compiled_functions_of_two_operands(name: str) -> None:
    a, b = pairs(np.float32, 200_000)
    with np.errstate(all="ignore"):
        reference = WIDE[name](a.astype(np.float64), b.astype(np.float64))
    error, found = worst(name, compiled(name, a, b), reference, a, b)
    assert error <= BOUNDS[name]["f32"], found
    wide_a, wide_b = pairs(np.float64, 1000)
    np.testing.assert_array_equal(compiled(name, wide_a, wide_b), run(name, wide_a, wide_b))


def test_angles_next_to_multiples_of_half_pi_are_reduced_exactly() -> None:
    # The f64 that are nearest to a multiple of π/2 relative to their size (Kahan's and Muller's).
    hard = [6381956970095103 * 2.0**797, 5261692873635770 * 2.0**499, 2.0**1023, 1e22]
    halves = np.random.default_rng(2).integers(1, 1 << 45, 100) * (np.pi / 2)
    x = np.concatenate([np.array(hard), halves])
    for name in ("sin", "cos", "tan"):
        error, found = worst(name, run(name, x), exact(name, x), x)
        assert error <= BOUNDS[name]["f64"], found


def test_the_negative_tail_of_gelu_keeps_its_relative_accuracy() -> None:
    x = np.linspace(-13.0, -3.0, 2001).astype(np.float32)
    for name in ("gelu_erf", "gelu_tanh"):
        reference = WIDE[name](x.astype(np.float64))
        assert np.all(reference < 0)
        error, found = worst(name, run(name, x), reference, x)
        assert error <= BOUNDS[name]["f32"], found


@pytest.mark.parametrize("kind", (np.float32, np.float64))
def test_decay_is_exp_of_what_is_not_positive(kind: type[np.floating[Any]]) -> None:
    lowest = float(np.log(np.finfo(kind).tiny))
    x = np.concatenate([np.linspace(lowest + 0.2, 0, 20_001), -np.geomspace(1e-30, 80, 2000)])
    x = x.astype(kind)
    error, found = worst("decay", run("decay", x), exact("exp", x), x)
    assert error <= BOUNDS["decay"]["f32" if kind is np.float32 else "f64"], found


@pytest.mark.parametrize("kind", (np.float32, np.float64))
def test_decay_is_zero_where_exp_is_next_to_it(kind: type[np.floating[Any]]) -> None:
    facts = np.finfo(kind)
    far = np.array([-np.inf, facts.min, -1e4, np.log(facts.smallest_subnormal)], kind)
    np.testing.assert_array_equal(run("decay", far), np.zeros(4, kind))
    bits = np.array([0x7FC00001, 0xFFC12345], np.uint32).view(np.float32).astype(kind)
    assert np.isnan(run("decay", bits)).all()


def test_gelu_by_tanh_is_accurate_where_it_matters() -> None:
    x = np.linspace(-2.0, 12.0, 100_001).astype(np.float32)
    error, found = worst("gelu_tanh", run("gelu_tanh", x), WIDE["gelu_tanh"](x.astype(float)), x)
    assert error <= 3.0, found


def test_the_reference_is_wider_than_what_it_judges() -> None:
    with mpmath.workdps(30):
        third = exact("reciprocal", np.array([3.0]))[0]
        if np.finfo(np.longdouble).nmant > 52:
            assert third != np.float64(1 / 3)
    ahead = np.nextafter(np.float32(1), np.float32(2))
    assert distance(np.array([ahead]), np.array([1.0]))[0] == 1.0


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_remainder_is_exact(dtype: DType) -> None:
    generator = np.random.default_rng(0)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 3.0, -0.1, LARGE, TINY]
    x, y = (each.ravel().astype(dtype.numpy) for each in np.meshgrid(special, special))
    far = (generator.normal(size=4096) * 10.0 ** generator.uniform(-9, 30, 4096)).astype(x.dtype)
    near = generator.integers(-5000, 5000, 4096).astype(x.dtype) * dtype.numpy.type(0.1)
    x, y = np.concatenate([x, far, near]), np.concatenate([y, far[::-1], near[::-1]])
    compiled = monograph.compile(functional.fmod, f"{dtype}[n]", f"{dtype}[n]")
    with np.errstate(all="ignore"):
        expected = np.fmod(x, y)
    got = compiled(x, y)
    np.testing.assert_array_equal(got, expected)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(expected[known]))
