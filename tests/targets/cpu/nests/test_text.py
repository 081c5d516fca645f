"""Loop nests as text: what people read, and what caches hash."""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent

from monograph.ir.dims import Symbol
from monograph.ir.types import bool_, f32, i64
from monograph.kernel import expr as e
from monograph.kernel.expr import Buffer
from monograph.targets.cpu.nests.loop_nest import (
    Assign,
    Declare,
    If,
    Let,
    Loop,
    LoopKind,
    LoopNest,
    Prefetch,
    While,
    Write,
)


def test_every_statement_prints() -> None:
    x, y = Buffer("b0", f32, (64,)), Buffer("o0", f32, (64,))
    i, p = Symbol("_i0", 0, 63), Symbol("_p", 0, 0)
    v, w = e.variable("v0", f32), e.variable("w", i64)
    element = e.load(x, (e.index(i),))
    more = e.apply("less", w, e.index(3), dtype=bool_)
    nest = LoopNest(
        "shown",
        (x,),
        (y,),
        (Buffer("row0", f32, (8,)),),
        (),
        p,
        1,
        5,
        (
            Declare(w, e.index(0)),
            While((), more, (Assign(w, w + 1),)),
            Loop(
                i,
                16,
                32,
                (
                    Let(v, element),
                    Prefetch(x, e.index(i + 64)),
                    If(more, (Write(y, e.index(i), v, streaming=True),)),
                ),
                LoopKind.VECTOR,
                8,
            ),
        ),
    )
    assert str(nest) == dedent("""\
        nest shown(b0: f32[64], o0: f32[64]):
          scratch row0: f32[8]
          parallel _p < 1 in steps of 5:
            w: i64 = 0
            while:
            holds (w < 3), do:
              w := (w + 1)
            vector i0 from 16 < 32 by 8:
              v0 = b0[i0]
              prefetch b0[i0+64]
              if (w < 3):
                o0[i0] = v0  (streaming)
    """)
    assert replace(nest, name="other").digest == nest.digest
    assert replace(nest, grain=6).digest != nest.digest
