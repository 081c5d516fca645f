"""Unrolls the innermost loop by several iterations.

A sum over k multiplies and adds a dozen vectors a step. What counts the steps, compares them and
finds their places takes a fifth as many instructions again, and a core that shares its decoders
with another thread feels each of them:

    for k < 256:                      for s < 64:
      v0 += a[k] * b[k]       ─▶        v0 += a[4*s] * b[4*s]
      v1 += …                           v1 += …
                                        v0 += a[4*s + 1] * b[4*s + 1]; …

The compiler does not do so by itself: it takes such a body for long enough. The order in which
numbers are added stays the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from monograph.ir.dims import Dim, Symbol
from monograph.kernel import expr as e
from monograph.targets.cpu.loops.nest import substitute_statement
from monograph.targets.cpu.nests.loop_nest import Loop, Statement

UNROLLED_STEPS = 4
"""Steps in a round; more of them take longer to compile and are hardly any faster."""


def unroll(
    loop: Loop, steps: int = UNROLLED_STEPS, once: Sequence[Statement] = ()
) -> tuple[Loop, ...]:
    """The rounds of a loop, and then the steps that are left over, if there may be some.

    What is done ``once`` a round is told the first step of it.
    """
    if steps == 1:
        return (replace(loop, body=(*once, *loop.body)),)
    several = e.axis("_r_several", loop.extent // steps)
    first = loop.start + several.symbol * steps
    body = [substitute_statement(each, {loop.symbol: first}) for each in once]
    for step in range(steps):
        at: dict[Symbol, Dim] = {loop.symbol: first + step}
        body += [substitute_statement(each, at) for each in loop.body]
    rounds = Loop(several.symbol, 0, several.extent, tuple(body))
    done = several.extent * steps
    if loop.extent == done:
        return (rounds,)
    return rounds, replace(loop, start=loop.start + done, extent=loop.extent - done)
