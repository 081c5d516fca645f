"""Which rewrite rules are proved, and why the others are not.

Every rule of ``canonicalize`` and ``simplify`` is either proved by z3 in the tests
(``tests/rewrite/test_proofs.py``) or has a reason here; a rule with neither fails a test. Exact
rules are proved for integers of their own width and for IEEE floats of 4 and 4 bits, every NaN,
infinity and zero among them; ``fast_math`` rules for real numbers, wherever the left side is
defined. Rules of other passes are tested alone: what they recognise is made of functions (``exp``,
``erf``) and of rounded constants, of which z3 knows nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

PROVED_PASSES = ("canonicalize", "simplify")
"""Passes of which every rule has a proof, or a reason."""

_NO_POWER = (
    "floats: z3 has no pow (C99 defines pow(x, 0), pow(1, x) and pow(x, 1)); integers are proved"
)
_INVERSE = "it says that one function is the other's inverse, which is how they are defined"

UNPROVED: Mapping[str, str] = {
    "power_zero": _NO_POWER,
    "power_negative_zero": "floats: z3 has no pow; C99 defines pow(x, -0) as 1",
    "power_one": _NO_POWER,
    "power_two": "floats: z3 has no pow, which libraries round as they like; integers are proved",
    "power_minus_one": "floats: z3 has no pow, which libraries round as they like",
    "power_of_one": _NO_POWER,
    "clip_window": "windows of pools have no term: compared with the interpreter bit for bit",
    "pool_padding": "windows of pools have no term: compared with the interpreter bit for bit",
    "exp_of_log": _INVERSE,
    "log_of_exp": _INVERSE,
    "exp2_of_log2": _INVERSE,
    "log2_of_exp2": _INVERSE,
    "expm1_of_log1p": _INVERSE,
    "log1p_of_expm1": _INVERSE,
    "product_of_exp": "it says that exp turns sums into products, which is how it is defined",
}
"""Rules of those passes that are not proved, and why."""


def proof_status(pass_name: str, rule: str) -> str:
    """``proved``, ``unproved``, or ``tested`` for rules of passes that are not held to proofs."""
    if pass_name not in PROVED_PASSES:
        return "tested"
    return "unproved" if rule in UNPROVED else "proved"
