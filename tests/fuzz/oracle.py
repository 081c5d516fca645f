"""Is an answer right? Compared with float64, with eager's own error beside it.

Three answers to a program are known: *eager*, what torch gives; *wide*, the same in float64; and
*noisy* ones, in float64 again, but with every value on the way rounded to its own dtype or moved by
a few ulp of it. An answer is right where

- its error is at most ``factor`` times eager's, plus a few ulp: eager rounds once a statement, and
  whoever fuses or reorders rounds elsewhere, so that eager's error can be zero by luck;
- or, in float64, it has no more ulp than eager has when it computes the same in float32: the
  reference is as wide as eager there, and says nothing about its error;
- or it is within what the noise moves: then the program magnifies rounding (a cancellation, a
  comparison of nearly equal numbers), and neither answer says anything about the compiler;
- NaN and infinities stand where they do in one of the three, or where definitions have them when
  they are carried out in the program's own dtypes; integers are equal to one of them;
- zeros have the sign that eager or float64 gives, where every statement is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tests.fuzz.programs import Watch

SMALL = 1000
"""Results of fewer elements: their error is a matter of luck, eager's as well as ours."""

ULPS = 8
"""What may differ beside eager's error, in units of eps of the value: one rounding a statement in
programs of a dozen at most, most of which cancel out."""

SINGLE_EPS = torch.finfo(torch.float32).eps
NOISE_FACTOR = 2
"""How far beyond the largest of a few noisy draws an error may be: about three deviations."""

NOISE_ULPS = 4
"""By how much noise moves what a statement computes: attention rounds several times inside."""

NOISE_DRAWS = 8
MORE_NOISE_DRAWS = 64
"""Draws before anything is called wrong: one element in a thousand may be at a boundary that few of
them cross."""


@dataclass(frozen=True)
class Answers:
    """What is known of one output. ``noisy`` computes as many draws as it is asked for."""

    eager: Tensor
    wide: Tensor
    noisy: Callable[[int], Sequence[Tensor]]
    signed_zeros: bool = False
    loose: bool = False
    """Whether floats may be treated as real numbers: O3."""
    defined: Callable[[], Sequence[Tensor]] = tuple
    """What definitions give in the dtypes of the program: a square may overflow on the way."""
    is_gradient: bool = False
    coarse: bool = False
    """Whether constants are those of float32, as attributes of ONNX are."""
    single: Callable[[], Sequence[Tensor]] = tuple
    """What eager gives in float32 for a program of float64."""


def judge(got: Tensor, answers: Answers) -> str | None:
    """What is wrong with an answer; None if it is right."""
    eager = answers.eager
    if got.shape != eager.shape:
        return f"shape {tuple(got.shape)}, not {tuple(eager.shape)}"
    if got.dtype != eager.dtype:
        return f"dtype {got.dtype}, not {eager.dtype}"
    if not eager.numel():
        return None
    if eager.is_complex():
        return _judge_floats(*_as_reals(got, answers))
    if eager.is_floating_point():
        return _judge_floats(got, answers)
    return _judge_exact(got, answers)


def _as_reals(got: Tensor, answers: Answers) -> tuple[Tensor, Answers]:
    def real(value: Tensor) -> Tensor:
        return torch.view_as_real(value.resolve_conj())

    parts = Answers(
        real(answers.eager),
        real(answers.wide),
        lambda draws: [real(each) for each in answers.noisy(draws)],
        False,
        answers.loose,
        lambda: [real(each) for each in answers.defined()],
        answers.is_gradient,
        answers.coarse,
        lambda: [real(each) for each in answers.single()],
    )
    return real(got), parts


def _judge_exact(got: Tensor, answers: Answers) -> str | None:
    wrong = (got != answers.eager) & (got != answers.wide.to(got.dtype))
    if not bool(wrong.any()):
        return None
    for other in (*answers.defined(), *answers.noisy(MORE_NOISE_DRAWS)):
        wrong &= got != other.to(got.dtype)
    return _where(wrong, got, answers.eager) if bool(wrong.any()) else None


def _judge_floats(got: Tensor, answers: Answers) -> str | None:
    wrong = _wrong_kind(got, answers)
    if bool(wrong.any()):
        return "NaN or infinity: " + _where(wrong, got, answers.eager)
    wrong = _wrong_zero(got, answers)
    if bool(wrong.any()):
        return "sign of zero: " + _where(wrong, got, answers.eager)
    return _wrong_number(got, answers)


def _kind(value: Tensor) -> Tensor:
    """0 for a number, 1 for NaN, 2 and 3 for the infinities."""
    kinds = value.isnan().int()
    return kinds + 2 * value.isposinf().int() + 3 * value.isneginf().int()


def _wrong_kind(got: Tensor, answers: Answers) -> Tensor:
    kinds, narrow = _kind(got), answers.wide.to(got.dtype)
    eager, wide = _kind(answers.eager), _kind(narrow)
    wrong = (kinds != eager) & (kinds != wide)
    # Sums of products that overflow are an infinity or NaN by the order that they are added in.
    overflows = answers.wide.isfinite() & ~narrow.isfinite()
    wrong &= ~(overflows & (kinds != 0))
    if answers.loose:
        wrong &= (eager == 0) & (wide == 0)
    if not bool(wrong.any()):
        return wrong
    for defined in answers.defined():
        wrong &= kinds != _kind(defined.to(got.dtype))
    for noisy in answers.noisy(MORE_NOISE_DRAWS):
        wrong &= kinds != _kind(noisy.to(got.dtype))
    return wrong


def _wrong_zero(got: Tensor, answers: Answers) -> Tensor:
    if not answers.signed_zeros or answers.loose:
        return torch.zeros_like(got, dtype=torch.bool)
    zero = (got == 0) & (answers.eager == 0) & (answers.wide == 0)
    sign = got.signbit()
    return zero & (sign != answers.eager.signbit()) & (sign != answers.wide.signbit())


def _wrong_number(got: Tensor, answers: Answers) -> str | None:
    finite = got.isfinite() & answers.eager.isfinite() & answers.wide.isfinite()
    wide = answers.wide.double()
    info = torch.finfo(got.dtype)
    error = _difference(got, wide, finite)
    eager_error = _difference(answers.eager, wide, finite)
    narrow = got.dtype in (torch.float16, torch.bfloat16) or got.numel() < SMALL
    factor = (3 if narrow else 2) * (4 if answers.loose else 1)
    magnitude = torch.where(finite, wide.abs(), 0)
    # In float64 eager is as wide as the reference: its error is not known. A gradient is what is
    # left of larger terms, in the backward of a norm say.
    if got.dtype is torch.float64 or answers.is_gradient:
        magnitude = magnitude.amax().expand_as(magnitude)
    eps = torch.finfo(torch.float32).eps if answers.coarse else info.eps
    slack = ULPS * max(eps, info.eps) * magnitude + ULPS * info.tiny * info.eps
    if answers.is_gradient:
        slack = 2 * slack  # it comes back through every statement
    wrong = error > factor * eager_error.max() + slack
    total, allowed = error.norm(), factor * eager_error.norm() + slack.norm()
    if not bool(wrong.any()) and total <= allowed:
        return None
    for each in answers.defined():  # another who rounds on the way
        wrong &= (
            error > factor * _difference(each, wide, finite).nan_to_num(torch.inf).max() + slack
        )
    if not bool(wrong.any()):
        return None
    if got.dtype is torch.float64:
        for each in answers.single():
            ulps = _difference(each, wide, finite).nan_to_num(0.0, 0.0) / SINGLE_EPS
            wrong &= error > factor * info.eps * ulps.max() + slack
    for draws in (NOISE_DRAWS, MORE_NOISE_DRAWS):
        wrong &= error > NOISE_FACTOR * _spread(answers.noisy(draws), wide) + slack
        if not bool(wrong.any()):
            return None
    return f"off by {error[wrong].max():.3g} (eager {eager_error.max():.3g}): " + _where(
        wrong, got, answers.wide
    )


def _spread(noisy: Sequence[Tensor], wide: Tensor) -> Tensor:
    """How far noise moves each element at most."""
    spread = torch.zeros_like(wide)
    for each in noisy:
        moved = (each.double() - wide).abs()
        spread = torch.maximum(spread, torch.where(moved.isfinite(), moved, torch.inf))
    return spread


def _difference(value: Tensor, wide: Tensor, finite: Tensor) -> Tensor:
    return torch.where(finite, (value.double() - wide).abs(), 0)


def _where(wrong: Tensor, got: Tensor, expected: Tensor) -> str:
    place = tuple(int(each[0]) for each in wrong.nonzero(as_tuple=True)) if wrong.dim() else ()
    count = f"{int(wrong.sum())} of {wrong.numel()}"
    return f"{count}, first at {list(place)}: {got[place].item()}, not {expected[place].item()}"


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Whether two results are the same; one NaN is as good as another."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if left.is_complex():
        left, right = (
            torch.view_as_real(left.resolve_conj()),
            torch.view_as_real(right.resolve_conj()),
        )
    if not left.is_floating_point():
        return bool((left == right).all())
    both_nan = left.isnan() & right.isnan()
    equal = (left == right) & (left.signbit() == right.signbit())
    return bool((both_nan | equal).all())


class _Nudge(torch.autograd.Function):
    """Rounding, or a change by a few ulp, of a value and of its gradient on the way back."""

    @staticmethod
    def forward(ctx, value, dtype, generator, exact):  # type: ignore[no-untyped-def]
        ctx.dtype, ctx.generator = dtype, generator
        return nudge(value, dtype, generator, exact)

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        return nudge(gradient, ctx.dtype, ctx.generator, True), None, None, None


def nudge(value: Tensor, dtype: torch.dtype, generator: torch.Generator, exact: bool) -> Tensor:
    """``value`` rounded to ``dtype``, or moved by a few ulp of it, by the toss of a coin.

    A zero moves as well, unless it is ``exact``: it may be what underflow or cancellation left.
    By another toss subnormals become zeros, as those of a softmax do.
    """
    if not (value.is_floating_point() or value.is_complex()):
        return value.clone()
    if dtype.is_floating_point and float(torch.rand((), generator=generator)) < 0.5:
        value = torch.where(value.abs() < torch.finfo(dtype).tiny, 0 * value, value)
    narrower = dtype in (torch.float32, torch.float16, torch.bfloat16, torch.complex64)
    if narrower and float(torch.rand((), generator=generator)) < 0.5:
        return value.to(dtype).to(value.dtype)
    if not (dtype.is_floating_point or dtype.is_complex):
        return value.clone()
    if not exact:
        value = _any_nan(value, generator)
    info = torch.finfo(dtype)
    noise = torch.rand(value.shape, generator=generator, dtype=torch.float64) * 2 - 1
    if exact:
        return value * (1 + info.eps * noise)
    return value * (1 + NOISE_ULPS * info.eps * noise) + info.tiny * noise


def _any_nan(value: Tensor, generator: torch.Generator) -> Tensor:
    """The same with any sign of NaNs, which no operation promises."""
    if value.is_complex() or not bool(value.isnan().any()):
        return value
    sign = torch.rand(value.shape, generator=generator, dtype=torch.float64) - 0.5
    return torch.where(value.isnan(), torch.copysign(value.detach(), sign.to(value.dtype)), value)


def noise(dtypes: Mapping[str, torch.dtype], exact: Container[str], seed: int) -> Watch:
    """What makes a program noisy: it is told each value and gives back another one.

    The zeros of values that are ``exact`` stay. A view is left alone, because to copy it would part
    it from what is later changed in place.
    """
    generator = torch.Generator().manual_seed(seed)

    def watch(name: str, value: Tensor) -> Tensor:
        if value._base is not None or name not in dtypes:
            return value
        settled = name in exact
        moved: Tensor = _Nudge.apply(value, dtypes[name], generator, settled)  # type: ignore[no-untyped-call]
        return moved

    return watch


def rounding_by_use(dtypes: Mapping[str, torch.dtype], seed: int) -> Watch:
    """What rounds values of 16 bits for some of those who read them, by as much as rounding can.

    A kernel that computes a value and goes on with it has all its digits; who reads it from memory
    has those of its dtype.
    """
    generator = torch.Generator().manual_seed(~seed)  # other tosses than the noise has

    def use(name: str, value: Tensor) -> Tensor:
        dtype = dtypes.get(name)
        if dtype not in (torch.float16, torch.bfloat16) or not value.is_floating_point():
            return value
        if float(torch.rand((), generator=generator)) < 0.5:
            return value
        side = torch.rand(value.shape, generator=generator, dtype=torch.float64) - 0.5
        moved = value * (1 + torch.finfo(dtype).eps / 2 * side.sign())
        return torch.where(value.to(dtype) == value, value, moved)

    return use
