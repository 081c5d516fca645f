"""Passes by name: spelling, options, errors that list what there is."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from monograph.errors import InputError
from monograph.ir.graph import Graph
from monograph.passes.base import Pass, PassResult, all_passes, make_pass, pass_named
from monograph.passes.simplify import Simplify


def test_a_pass_is_found_by_the_name_of_its_file():
    assert pass_named("simplify") is Simplify
    assert all(cls.name == name for name, cls in all_passes().items())
    assert all(cls.__module__ == f"monograph.passes.{name}" for name, cls in all_passes().items())


def test_options_stand_in_braces():
    assert make_pass("simplify") == Simplify()
    assert make_pass("simplify{fast_math=true}") == Simplify(fast_math=True)
    assert make_pass(" simplify { fast_math = False } ") == Simplify()
    assert make_pass("simplify", fast_math=True) == Simplify(fast_math=True)
    assert make_pass("lower_composites{keep=('softmax','gelu')}").keep == ("softmax", "gelu")


def test_a_pass_prints_as_it_is_spelled():
    for spelling in ("simplify", "simplify{fast_math=true}", "fold_constants{limit=10}"):
        assert str(make_pass(spelling)) == spelling
    kept = "lower_composites{keep=('softmax', 'gelu')}"
    assert make_pass(str(make_pass(kept))) == make_pass(kept)


@pytest.mark.parametrize(
    "spelling, message",
    [
        ("simplfy", "did you mean simplify"),
        ("simplify{fast=true}", "has no option 'fast'"),
        ("simplify{fast_math=1}", "wrong type"),
        ("fold_constants{limit=many}", "wrong type"),
        ("simplify{fast_math}", "is not an option"),
        ("simplify{", "does not name a pass"),
    ],
)
def test_wrong_spellings_say_what_is_right(spelling, message):
    with pytest.raises(InputError) as caught:
        make_pass(spelling)
    assert message in str(caught.value)


def test_two_passes_cannot_share_a_name():
    with pytest.raises(ValueError, match="two passes are called 'simplify'"):

        @dataclass(frozen=True)
        class Other(Pass):
            name = "simplify"

            def run(self, graph: Graph) -> PassResult:
                return PassResult(False)

    assert pass_named("simplify") is Simplify


def test_a_result_counts_rules_and_their_time():
    graph = Graph()
    x = graph.add_input("x", "f32[4]")
    graph.set_outputs([x * 1.0])
    result = Simplify().run(graph)
    assert result.changed and result.counters == {"multiply_by_one": 1}
    count = result.rules["multiply_by_one"]
    assert (count.attempts, count.hits, count.refused) == (1, 1, 0)
    assert count.seconds > 0
