"""Equal layers are lowered to loops once, and compute what they did."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.ir.graph import Graph, Value
from monograph.ir.types import Array
from monograph.program.code import Launch, SlotKind
from monograph.runtime.compiled import Executable
from monograph.targets.cpu.assemble.repeats import Repeats
from monograph.targets.cpu.products import contract

X = np.cos(np.arange(32 * 64, dtype=np.float32)).reshape(32, 64)


def layers(*weights: Array) -> Graph:
    """Products with weights, one after the other."""
    graph = Graph("layers")
    x = graph.add_input("x", "f32[32, 64]")
    known: dict[int, Value] = {}
    with graph.as_current():
        for number, weight in enumerate(weights):
            if id(weight) not in known:
                known[id(weight)] = graph.add_weight(f"w{number}", weight)
            x = F.tanh(x @ known[id(weight)])
        graph.set_outputs([x])
    return graph


def weights(count: int) -> list[Array]:
    generator = np.random.default_rng(3)
    return [generator.standard_normal((64, 64)).astype(np.float32) / 8 for _ in range(count)]


def compiled(*given: Array) -> Executable:
    return compile_graph(layers(*given), Options(cache=False))


def test_equal_products_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def counted(*arguments: Any) -> Any:
        made.append(arguments)
        return product_nest(*arguments)

    product_nest = contract.product_nest
    monkeypatch.setattr(contract, "product_nest", counted)
    given = weights(4)
    executable = compiled(*given)
    assert len(made) < 4
    (got,) = executable.run([X])
    np.testing.assert_allclose(got, monograph.interpret(layers(*given), [X])[0], atol=1e-5)


def test_the_program_is_the_same_with_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    given = weights(4)
    with_repeats = compiled(*given)
    monkeypatch.setattr(Repeats, "again", lambda *_: False)
    without = compiled(*given)
    assert with_repeats.code is not None and without.code is not None
    assert with_repeats.code.steps == without.code.steps
    assert with_repeats.code.slots == without.code.slots
    assert with_repeats.code.object == without.code.object


def test_a_weight_that_is_used_again_is_packed_once() -> None:
    first, second = weights(2)
    executable = compiled(first, second, first, second)
    assert executable.code is not None
    kinds = [slot.kind for slot in executable.code.slots]
    launched = [step for step in executable.code.steps if isinstance(step, Launch)]
    assert len(launched) == 4
    assert kinds.count(SlotKind.PREPARED) == 2


def test_what_is_added_may_stand_on_either_side() -> None:
    """The kernel of a residual is one, whichever of the two is written first."""
    first, second = weights(2)
    graph = Graph("residuals")
    x = graph.add_input("x", "f32[32, 64]")
    with graph.as_current():
        y = F.tanh(x @ graph.add_weight("a", first) + x)
        graph.set_outputs([F.tanh(y + y @ graph.add_weight("b", second))])
    executable = compile_graph(graph, Options(cache=False))
    assert executable.program is not None
    assert len([each for each in executable.program.kernels if "pack" not in each.name]) == 1
    (got,) = executable.run([X])
    np.testing.assert_allclose(got, monograph.interpret(graph, [X])[0], atol=1e-5)


def test_steps_that_share_a_packed_weight_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def counted(*arguments: Any) -> Any:
        made.append(arguments)
        return product_nest(*arguments)

    product_nest = contract.product_nest
    monkeypatch.setattr(contract, "product_nest", counted)
    (weight,) = weights(1)
    executable = compiled(*[weight] * 9)
    assert len(made) <= 3  # of the input, of what is between, and the one that makes the output
    (got,) = executable.run([X])
    np.testing.assert_allclose(got, monograph.interpret(layers(*[weight] * 9), [X])[0], atol=1e-5)
    assert executable.code is not None
    assert [slot.kind for slot in executable.code.slots].count(SlotKind.PREPARED) == 1
