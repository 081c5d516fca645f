"""Control flow, and primitives that only call a jaxpr."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from monograph import functional as F
from monograph.frontends.jax.equation import Equation
from monograph.frontends.jax.registry import converter
from monograph.ir.build import cast_to
from monograph.ir.graph import Value
from monograph.ir.types import bool_, i32

CALLED = ("jaxpr", "call_jaxpr", "fun_jaxpr")
"""The parameters under which primitives keep what they call."""


@converter(
    "jit", "pjit", "closed_call", "core_call", "checkpoint", "remat", "remat2", "remat_call",
    "custom_jvp_call", "custom_jvp_call_jaxpr", "custom_vjp_call", "custom_vjp_call_jaxpr",
    "custom_lin", "xla_call", "composite", "remat_opt", "run_state", "eval_jaxpr",
)  # fmt: skip
def convert_call(equation: Equation) -> list[Value]:
    """What is called, in place: rules for derivatives have done their work by now."""
    for name in CALLED:
        if name in equation.params:
            return equation.inline(equation[name], equation.operands)
    raise KeyError(f"{equation.name} calls nothing: {sorted(equation.params)}")


@converter("linear_call")
def convert_linear_call(equation: Equation) -> list[Value]:
    """A linear function; that of its transpose is not needed any more."""
    callee = equation["callee"]
    return equation.inline(callee, equation.operands)


@converter("name", "tie")
def convert_named(equation: Equation) -> Value:
    """A name for what is to be saved; of ``tie``, the second operand."""
    return equation.operands[-1]


@converter("cond")
def convert_cond(equation: Equation) -> Sequence[Value]:
    """One of several branches; a number outside is taken for the nearest one inside."""
    which, *operands = equation.operands
    branches = list(equation["branches"])
    if not equation.types:
        return []
    return _choose(equation, which, branches, operands, 0)


def _choose(
    equation: Equation, which: Value, branches: list[Any], operands: Sequence[Value], first: int
) -> Sequence[Value]:
    """The first of the branches that are left, or one of the others."""
    if len(branches) == 1:
        return equation.inline(branches[0], operands)
    if which.dtype is bool_:
        is_first = F.logical_not(which)
    else:
        is_first = F.less_equal(cast_to(which, i32), first)

    def here() -> list[Value]:
        return equation.inline(branches[0], operands)

    def beyond() -> list[Value]:
        return list(_choose(equation, which, branches[1:], operands, first + 1))

    found: Sequence[Value] = F.cond(is_first, here, beyond)
    return found


@converter("while")
def convert_while(equation: Equation) -> Sequence[Value]:
    """A loop for as long as a condition holds."""
    in_condition, in_body = equation["cond_nconsts"], equation["body_nconsts"]
    of_condition = equation.operands[:in_condition]
    of_body = equation.operands[in_condition : in_condition + in_body]
    initial = equation.operands[in_condition + in_body :]

    def goes_on(carry: list[Value]) -> Value:
        return equation.inline(equation["cond_jaxpr"], [*of_condition, *carry])[0]

    def condition(carry: list[Value]) -> Value:
        running = goes_on(carry)
        return F.any(running, tuple(range(running.rank))) if running.rank else running

    def body(carry: list[Value]) -> list[Value]:
        made = equation.inline(equation["body_jaxpr"], [*of_body, *carry])
        if not equation["cond_jaxpr"].out_avals[0].shape:
            return made
        running = goes_on(carry)  # of a batch, those that have stopped stay as they are
        return [_where_running(running, *pair) for pair in zip(made, carry, strict=True)]

    found: Sequence[Value] = F.while_loop(condition, body, list(initial))
    return found


def _where_running(running: Value, new: Value, old: Value) -> Value:
    """New values for those elements of a batch whose loops go on."""
    trailing = (1,) * (new.rank - running.rank)
    return F.where(F.reshape(running, (*running.shape, *trailing)), new, old)


@converter("scan")
def convert_scan(equation: Equation) -> Sequence[Value]:
    """A loop over the first axis of sequences."""
    consts, carries = _scan_counts(equation.params)
    of_body = equation.operands[:consts]
    initial = equation.operands[consts : consts + carries]
    sequences = equation.operands[consts + carries :]

    def body(carry: list[Value], slices: list[Value]) -> tuple[list[Value], list[Value]]:
        made = equation.inline(equation["jaxpr"], [*of_body, *carry, *slices])
        return made[:carries], made[carries:]

    (length,) = equation.shape([equation["length"]])
    last, stacked = F.scan(
        body, list(initial), list(sequences), length=length, reverse=bool(equation["reverse"])
    )
    return [*last, *stacked]


def _scan_counts(params: Mapping[str, Any]) -> tuple[int, int]:
    """How many operands are constants of the body, and how many its first state."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    constants, state, _ = params["ft_in"].unpack()  # since JAX 0.11
    return len(constants), len(state)


@converter("dce_sink")
def convert_sink(equation: Equation) -> list[Value]:
    """Something that is to be computed though nothing uses it: nothing here has side effects."""
    return []


@converter("platform_index")
def convert_platform(equation: Equation) -> Value:
    """Which of several platforms' code to take: that of the CPU, or the default."""
    platforms = list(equation["platforms"])
    for number, names in enumerate(platforms):
        if names is None or "cpu" in names:
            return F.full((), number, equation.type.dtype)
    return F.full((), len(platforms) - 1, equation.type.dtype)
