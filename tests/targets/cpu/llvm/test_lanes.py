"""Variables of a vector loop: which of them are the same in every lane."""

from __future__ import annotations

from monograph.ir.types import f32, i64
from monograph.kernel import expr as e
from monograph.kernel.expr import Buffer
from monograph.targets.cpu.llvm.lanes import lanewise_variables
from monograph.targets.cpu.nests.loop_nest import Assign, Declare, Loop, LoopKind, While


def test_a_counter_is_one_number_and_a_sum_of_elements_one_a_lane() -> None:
    axis = e.axis("i", 16)
    counter, total = e.variable("counter", i64), e.variable("total", f32)
    element = e.load(Buffer("b0", f32, (64,)), (e.index(axis.symbol) + counter,))
    body = (
        Declare(counter, e.index(0)),
        Declare(total, e.literal(0.0, f32)),
        While(
            (),
            e.apply("less", counter, e.index(4)),
            (
                Assign(total, e.apply("add", total, element)),
                Assign(counter, counter + 1),
            ),
        ),
    )
    loop = Loop(axis.symbol, 0, 16, body, LoopKind.VECTOR, 8)
    assert lanewise_variables(loop) == {"total"}
