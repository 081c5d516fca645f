"""Every pass keeps the meaning of every graph, says truly whether it did anything, and rests.

For each random graph and each registered pass: the interpreter's results before and after are the
same (bit for bit, or within rounding for passes that change the arithmetic), ``changed`` says
whether the text changed, a second run changes nothing, and the graph verifies. The same holds for
the levels O1 and O2, through ``optimize``, which leaves its argument alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, note, seed, settings

from monograph.api import optimize_with_report
from monograph.errors import MonographError
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from monograph.ir.text.printer import print_graph
from monograph.ir.types import Array
from monograph.ir.verify import verify
from monograph.passes.base import Pass, all_passes, make_pass
from tests.properties.draws import seed_of
from tests.properties.graphs import programs
from tests.properties.meaning import (
    Rounding,
    all_values,
    assert_same_bits,
    assert_same_values,
    with_own_names,
)

EXACT = (*("canonicalize", "cse", "dce", "fold_constants", "narrow_integer_products", "simplify"),)
"""Passes after which every result has the same bits."""

STRICT = (
    *(
        "decompose_unsupported_attention",
        "horizontal",
        "lower_composites",
        "slice_gathered_products",
        "decompose_blocked_linear",
        "decompose_group_norm",
        "separate_conv_bias",
    ),
    *("conv_transpose_to_conv", "fold_transpose_into_dot", "tile_batch"),
)
"""Passes that may round differently, but keep infinities and NaN where they are."""

LOOSE = (
    *("fold_conv_bn", "recognize", "resize_after_conv", "fold_attention_masks"),
    "split_complex_products",
)
"""Passes that may round differently, and may be finite where the original overflows."""

PARTS = 10
GRAPHS = 205
"""Distinct graphs in each part: 2,050 in all."""

USUAL = 1
"""Parts of the usual run: 205 graphs; the rest of them are slow."""

EACH_PART = [
    pytest.param(part, marks=[pytest.mark.slow] * (part >= USUAL)) for part in range(PARTS)
]

SETTINGS = settings(
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate, Phase.shrink),
)


class Program:
    """A graph, inputs, and what it computes of them; nothing if evaluation fails."""

    def __init__(self, graph: Graph, inputs: Sequence[Array]) -> None:
        self.graph = with_own_names(graph)
        self.inputs = inputs
        self.text = print_graph(self.graph)
        self.values: dict[str, Array] | None
        try:
            self.values = all_values(self.graph, inputs)
        except MonographError:
            self.values = None

    def check_pass(self, each: Pass) -> None:
        copy = self.graph.clone()
        changed = each.run(copy).changed
        verify(copy)
        text = print_graph(copy)
        assert changed == (text != self.text), f"{each} says changed={changed}\n{text}"
        if not changed:
            return
        self.check_meaning(copy, each)
        again = each.run(copy).changed
        assert not again and print_graph(copy) == text, f"{each} changes its own result\n{text}"

    def is_finite(self) -> bool:
        """Whether no value is infinite or NaN: the numbers that fast_math speaks of."""
        arrays = [value for value in (self.values or {}).values() if isinstance(value, np.ndarray)]
        floats = [array for array in arrays if array.dtype.kind in "fcV"]
        return all(np.isfinite(array.astype(np.complex128)).all() for array in floats)

    def check_level(self, level: str) -> None:
        optimized, report = optimize_with_report(self.graph, level)
        assert print_graph(self.graph) == self.text
        verify(optimized)
        text = print_graph(optimized)
        if text == self.text:
            return
        exact = all(step.name in EXACT for step in report.steps if step.changed)
        self.check_meaning(optimized, make_pass("cse" if exact else "recognize"))
        again, _ = optimize_with_report(optimized, level)
        assert print_graph(again) == text, f"{level} changes its own result\n{text}"

    def check_meaning(self, after: Graph, each: Pass) -> None:
        if self.values is None:
            return
        if each.name in EXACT and str(each) == each.name:
            expected = [self.values[value.name] for value in self.graph.outputs]
            assert_same_bits(interpret(after, self.inputs), expected)
            assert_same_values(self.values, after, self.inputs)
            return
        fast = each.name not in (*STRICT, *LOOSE)
        rounding = Rounding(self.graph, self.values, strict=each.name in STRICT, finite=fast)
        rounding.check(after, self.inputs)


def test_every_pass_says_what_it_promises() -> None:
    assert set(all_passes()) == {*EXACT, *STRICT, *LOOSE}


@pytest.mark.parametrize("part", EACH_PART)
def test_passes_keep_the_meaning_of_random_graphs(part: int) -> None:
    passes = [make_pass(name) for name in all_passes()]
    seen: set[str] = set()
    ran: set[str] = set()

    @seed(seed_of(part))
    @settings(SETTINGS, max_examples=GRAPHS + GRAPHS // 4)
    @given(programs())
    def check(drawn: tuple[Graph, list[Array]]) -> None:
        program = Program(*drawn)
        note(program.text)
        for each in passes:
            note(f"pass: {each}")
            program.check_pass(each)
        for level in ("O1", "O2"):
            note(f"level: {level}")
            program.check_level(level)
        seen.add(program.text)
        if program.values is not None:
            ran.add(program.text)

    check()
    print(f"{len(seen)} distinct graphs, {len(ran)} of them evaluated")
    assert len(seen) >= GRAPHS
    assert len(ran) >= 0.9 * len(seen)


def test_more_than_two_thousand_graphs_are_checked() -> None:
    assert PARTS * GRAPHS >= 2_000


def test_fast_math_is_right_for_finite_numbers() -> None:
    """Rules that treat floats as real numbers hold, within rounding, while nothing overflows."""
    each = make_pass("simplify{fast_math=true}")

    @seed(seed_of(PARTS))
    @settings(SETTINGS, max_examples=300)
    @given(programs(finite=True))
    def check(drawn: tuple[Graph, list[Array]]) -> None:
        program = Program(*drawn)
        note(program.text)
        if program.is_finite():
            program.check_pass(each)

    check()
