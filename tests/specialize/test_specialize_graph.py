"""Graphs made again with more known of their inputs."""

from __future__ import annotations

import numpy as np

from monograph.ir.graph import Graph
from monograph.ir.text.parser import parse
from monograph.ir.verify import verify
from monograph.specialize.specialize_graph import SpecializedGraph, specialize
from monograph.specialize.split_graph import cut, not_native
from monograph.specialize.stage_inputs import leaves_of, nest_results, structure_of


def settled(
    text: str, *structures: object, known: dict[int, object] | None = None
) -> SpecializedGraph:
    graph = parse(text)
    given = [*structures, *[None] * (len(graph.inputs) - len(structures))]
    made = specialize(graph, given, {k: np.asarray(v) for k, v in (known or {}).items()})
    verify(made.graph)
    return made


def ops_of(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes if node.is_used]


BRANCH = """
graph @f(%p: bool[], %x: f32[4]) -> (f32[4]) {
  %y = if(%p, %x) : f32[4] {
    graph @then(%x: f32[4]) -> (f32[4]) {
      %e = exp(%x) : f32[4]
      return %e
    }
    graph @else(%x: f32[4]) -> (f32[4]) {
      %n = negate(%x) : f32[4]
      return %n
    }
  }
  return %y
}
"""


def test_a_branch_that_is_known_is_taken() -> None:
    assert ops_of(settled(BRANCH, known={0: True}).graph) == ["exp"]
    assert ops_of(settled(BRANCH, known={0: False}).graph) == ["negate"]


def test_a_branch_that_native_code_has_is_left_alone() -> None:
    made = settled(BRANCH)
    assert ops_of(made.graph) == ["if"] and not made.asked


SEQUENCE = """
graph @f(%s: sequence<f32[*]>, %k: i64[]) -> (f32[*]) {
  %y = sequence_at(%s, %k) : f32[*]
  return %y
}
"""


def test_a_rank_that_is_known_gets_sizes_of_its_own() -> None:
    graph = settled(SEQUENCE, (2, 1), known={1: -2}).graph
    first, second = graph.inputs
    assert (first.rank, second.rank) == (2, 1)
    assert graph.outputs == (first,)


def test_a_position_that_is_not_known_is_asked_for() -> None:
    made = settled(SEQUENCE, (1, 1))
    ((node, values),) = made.asked.items()
    assert node.op.name == "sequence_at"
    assert [value.name for value in values] == ["k"]


def test_a_size_that_turns_out_is_put_in_its_place_everywhere() -> None:
    made = settled(
        """
        graph @f(%s: sequence<f32[*]>) -> (f32[n], i64[]) where 0 <= n {
          %c = concat_from_sequence(%s) {axis = 0, size = n} : f32[*]
          %x = declare(%c) {type = f32[n]} : f32[n]
          %e = exp(%x) : f32[n]
          %d = dim() {value = n} : i64[]
          return %e, %d
        }
        """,
        (1, 1),
    )
    result, size = made.graph.outputs
    assert str(result.shape[0]) == "s_0_size0+s_1_size0"
    assert size.op is not None and size.op.attributes()["value"] == result.shape[0]
    assert not not_native(made.graph)


def test_arguments_are_taken_apart_as_results_are_put_together() -> None:
    graph = parse(SEQUENCE)
    item = [np.zeros((2, 3)), np.zeros(4)]
    assert structure_of(graph.inputs[0].type, item) == (2, 1)
    assert [leaf.shape for leaf in leaves_of([item, None])] == [(2, 3), (4,)]
    assert nest_results([0, [1, None]], "ab") == ["a", ["b", None]]


CHOSEN = """
graph @f(%x: f32[8], %w: f32[8]) -> (f32[n], f32[8]) where 0 <= n <= 8 {
  %e = exp(%x) : f32[8]
  %rows = nonzero(%e) {count = n} : i64[n, 1]
  %v = gather(%e, %rows) : f32[n]
  %s = sqrt(%w) : f32[8]
  return %v, %s
}
"""


def test_a_cut_computes_before_it_only_what_it_needs_and_nothing_twice() -> None:
    graph = parse(CHOSEN)
    made = cut(graph, not_native(graph), {})
    assert [node.op.name for node in made.between] == ["nonzero"]
    assert "exp" in ops_of(made.before) and "sqrt" not in ops_of(made.before)
    assert ops_of(made.after) == ["gather", "sqrt"]
    assert [value.name for value in made.handed] == ["e", "rows"]
    assert list(made.bounded) == list(made.between)
    verify(made.before)
    verify(made.after)
