"""Which nodes share a kernel, and the sentence that says why the others do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import monograph
from monograph import functional as F
from monograph.fusion.fuse import fuse
from monograph.fusion.group import GroupKind
from tests.fusion.grouping import apart, fused, grouped, ops, outputs

# Pointwise chains.


def test_a_pointwise_chain_is_one_kernel() -> None:
    assert grouped(lambda x: F.tanh(x + 1.0) * x, "f32[64, 64]") == [["add", "tanh", "multiply"]]


def test_a_broadcast_is_taken_in_without_growing_the_space() -> None:
    (group,) = fused(lambda x, b: F.tanh(x) + F.exp(b), "f32[64, 32]", "f32[32]").groups
    assert ops(group) == ["tanh", "exp", "add"]
    assert group.space == (64, 32)
    assert group.places[group.nodes[1].results[0]] == (1,)


def test_both_arms_of_a_diamond_share_a_kernel() -> None:
    def diamond(x: Any) -> Any:
        top = F.exp(x)
        return F.tanh(top) + F.sin(top)

    (group,) = fused(diamond, "f32[64, 32]").groups
    assert ops(group) == ["exp", "tanh", "sin", "add"]
    assert outputs(group) == ["add"]


def test_a_value_that_is_used_outside_as_well_is_one_more_output() -> None:
    def two(x: Any) -> Any:
        inner = F.exp(x)
        return inner, F.tanh(inner)

    (group,) = fused(two, "f32[64, 32]").groups
    assert outputs(group) == ["exp", "tanh"]
    assert group.joined == ["%exp is used as it is made: 8.0 KiB not read back"]


def test_a_value_that_others_do_not_need_is_said_to_stay_inside_once() -> None:
    def twice(x: Any) -> Any:
        inner = F.exp(x)
        return F.tanh(inner) * F.sin(inner)

    (group,) = fused(twice, "f32[64, 32]").groups
    assert group.joined.count("%exp stays inside: 8.0 KiB not written") == 1


def test_transposes_and_slices_are_taken_in_as_index_arithmetic() -> None:
    def moved(x: Any) -> Any:
        return F.exp(F.slice(F.transpose(x, (1, 0)), [1], [9], axes=[0]))

    assert grouped(moved, "f32[16, 32]") == [["transpose", "slice", "exp"]]


def test_symbolic_sizes_that_are_equal_share_a_kernel() -> None:
    assert grouped(lambda x, y: F.exp(x) + F.tanh(y), "f32[n, 8]", "f32[n, 8]") == [
        ["exp", "tanh", "add"]
    ]


def test_groups_are_the_same_each_time() -> None:
    def branches(x: Any, y: Any) -> Any:
        a, b = F.exp(x), F.tanh(y)
        return F.transpose(a, (1, 0)) @ b, a + b, a * F.sum(b, axis=1, keepdims=True)

    texts = {str(fused(branches, "f32[32, 32]", "f32[32, 32]")) for _ in range(8)}
    assert len(texts) == 1


# Rows.


def test_softmax_is_one_kernel_of_rows() -> None:
    (group,) = fused(lambda x: F.softmax(x, -1), "f32[64, 128]").groups
    assert group.kind is GroupKind.ROWS
    assert group.rows == {0}
    assert outputs(group) == ["softmax"]


def test_layer_norm_with_its_residual_is_one_kernel() -> None:
    def block(x: Any, residual: Any, scale: Any, bias: Any) -> Any:
        total = x + residual
        return total, F.relu(F.layer_norm(total, scale, bias))

    types = ("f32[64, 128]", "f32[64, 128]", "f32[128]", "f32[128]")
    (group,) = fused(block, *types).groups
    assert group.kind is GroupKind.ROWS
    assert ops(group)[0] == "add" and ops(group)[-1] == "relu"
    assert outputs(group)[0] == "add"


def test_a_reduction_takes_in_what_comes_before_and_after_it() -> None:
    def norm(x: Any) -> Any:
        return F.sqrt(F.sum(F.exp(x) * x, axis=1)) + 1.0

    (group,) = fused(norm, "f32[64, 128]").groups
    assert ops(group) == ["exp", "multiply", "sum", "sqrt", "add"]
    assert group.places[group.outputs()[0]] == (0,)


def test_reductions_of_other_axes_stay_apart() -> None:
    def both(x: Any) -> Any:
        return F.sum(x / F.sum(x, axis=0, keepdims=True), axis=1)

    fusion = fused(both, "f32[64, 64]")
    assert [ops(group) for group in fusion.groups] == [["sum", "divide"], ["sum"]]
    assert apart(fusion) == ["its reductions keep other axes"]


def test_few_long_rows_are_left_to_be_split_among_threads() -> None:
    fusion = fused(lambda x: F.softmax(x, -1), "f32[4, 65536]")
    assert len(fusion.groups) > 1
    assert apart(fusion).count("its few long rows are split among threads") == 3


def test_what_is_computed_of_a_long_row_s_sum_stays_with_it() -> None:
    assert grouped(lambda x: F.sqrt(F.sum(F.exp(x))), "f32[65536]") == [["exp", "sum", "sqrt"]]


def test_a_long_row_is_not_written_by_the_kernel_that_reduces_it() -> None:
    """One thread would do all of it: the reduction could not be split."""

    def both(x: Any) -> Any:
        return F.tanh(x), F.sum(x)

    assert sorted(grouped(both, "f32[65536]")) == [["sum"], ["tanh"]]


def test_many_long_rows_are_visited_whole() -> None:
    assert len(fused(lambda x: F.softmax(x, -1), "f32[16, 65536]").groups) == 1


# Siblings and copies.


def test_siblings_that_read_the_same_large_value_share_a_kernel() -> None:
    (group,) = fused(lambda x: (F.tanh(x), F.exp(x)), "f32[256, 256]").groups
    assert ops(group) == ["tanh", "exp"]
    assert group.joined == ["%x is read once for both: 256.0 KiB not read"]


def test_siblings_of_a_small_value_stay_apart() -> None:
    assert grouped(lambda x: (F.tanh(x), F.exp(x)), "f32[8, 8]") == [["tanh"], ["exp"]]


def test_siblings_that_need_each_other_are_not_joined_around_a_third() -> None:
    def around(x: Any, w: Any) -> Any:
        first = F.exp(x)
        return first, F.tanh(x) + F.sin(first @ w)

    fusion = fused(around, "f32[256, 256]", "f32[256, 256]")
    position = {name: k for k, group in enumerate(fusion.groups) for name in ops(group)}
    assert position["exp"] < position["dot_general"] <= position["sin"]


def test_a_cheap_producer_is_computed_again_rather_than_read() -> None:
    def cheap(x: Any) -> Any:
        shifted = x + 1.0
        return shifted, F.exp(F.flip(shifted, 0))

    fusion = fused(cheap, "f32[32, 64]")
    assert [ops(group) for group in fusion.groups] == [["add"], ["add", "flip", "exp"]]
    again = fusion.groups[1]
    assert [node.op.name for node in again.copies] == ["add"]
    assert outputs(again) == ["exp"]
    assert "%add is computed again: that is cheaper than reading it" in again.joined


def test_arithmetic_of_positions_is_computed_wherever_it_is_a_subscript() -> None:
    def shifted(x: Any, y: Any) -> Any:
        places = F.iota((64,))
        at = F.minimum(F.relu(places * 3 + 1 - places - places), 63) * 1 + 0
        return F.sum(F.exp(F.take(x, at)), axis=0), F.transpose(F.exp(F.take(y, at)))

    fusion = fused(shifted, "f32[64, 32]", "f32[64, 48]")
    assert all("iota" in ops(group) for group in fusion.groups)
    assert len(fusion.groups) == 2


def test_rows_that_are_only_moved_are_not_written_for_several_readers() -> None:
    def rotated(x: Any, w: Any) -> Any:
        heads = F.transpose(F.reshape(x @ w, (32, 4, 16)), (1, 0, 2))
        low, high = (F.slice(heads, [k], [k + 8], axes=[2]) for k in (0, 8))
        return heads * 2.0 + F.concat([-high, low], axis=2)

    product, rest = fused(rotated, "f32[32, 64]", "f32[64, 64]").groups
    assert outputs(product) == ["matmul"]
    assert outputs(rest) == ["add"]


def test_rows_that_are_moved_for_whole_readers_are_read_once() -> None:
    def both(x: Any) -> Any:
        moved = F.transpose(x, (1, 0, 2))
        return F.exp(moved), F.tanh(moved)

    (group,) = fused(both, "f32[32, 4, 16]").groups
    assert outputs(group) == ["exp", "tanh"]


def test_generators_are_never_read_from_memory() -> None:
    def counted(x: Any) -> Any:
        numbers = F.cast(F.iota((64,)), "f32")
        return x * numbers, F.max_pool(F.reshape(x, (1, 1, 64, 64)), 2), F.sum(numbers)

    fusion = fused(counted, "f32[64, 64]")
    assert ["iota"] not in [ops(group) for group in fusion.groups]


def test_an_expensive_producer_is_read_rather_than_computed_again() -> None:
    def costly(x: Any) -> Any:
        made = F.tanh(x)
        return made, F.exp(F.flip(made, 0))

    fusion = fused(costly, "f32[32, 64]")
    assert [ops(group) for group in fusion.groups] == [["tanh"], ["flip", "exp"]]
    assert apart(fusion) == ["others read it too"]


# Contractions.


def test_a_contraction_takes_in_its_epilogue() -> None:
    (group,) = fused(
        lambda x, w, b: F.relu(x @ w + b), "f32[16, 16]", "f32[16, 16]", "f32[16]"
    ).groups
    assert group.kind is GroupKind.CONTRACTION
    assert ops(group) == ["dot_general", "add", "relu"]


@pytest.mark.parametrize(("window", "kernels"), [(3, 2), (1, 1)])
def test_windows_look_at_an_image_as_it_lies(window: int, kernels: int) -> None:
    def convolved(x: Any, w: Any) -> Any:
        return F.conv(F.reshape(x, (1, 16, 8, 8)), w, padding=window // 2, groups=16)

    *_, product = groups = fused(
        convolved, "f32[1, 16, 64]", f"f32[16, 1, {window}, {window}]"
    ).groups
    assert len(groups) == kernels and ("reshape" in ops(product)) == (kernels == 1)


def test_a_contraction_whose_result_is_stretched_is_computed_once() -> None:
    def gated(x: Any, pooled: Any, weight: Any) -> Any:
        gate = F.sigmoid(F.matmul(pooled, weight))
        return x * F.reshape(gate, (1, 32, 1, 1))

    found = grouped(gated, "f32[1, 32, 56, 56]", "f32[1, 8]", "f32[8, 32]")
    assert [("multiply" in names, "sigmoid" in names) for names in found] == [
        (False, True),
        (True, False),
    ]


def test_a_contraction_takes_in_moves_of_its_operands() -> None:
    assert grouped(lambda x, w: F.transpose(x, (1, 0)) @ w, "f32[16, 16]", "f32[16, 16]") == [
        ["transpose", "dot_general"]
    ]


def test_what_is_computed_is_not_computed_inside_a_contraction() -> None:
    fusion = fused(lambda x, w: F.exp(x) @ w, "f32[16, 16]", "f32[16, 16]")
    assert [ops(group) for group in fusion.groups] == [["exp"], ["dot_general"]]
    assert apart(fusion) == ["a contraction reads each element many times"]


def test_a_row_of_a_contraction_is_needed_whole() -> None:
    fusion = fused(lambda x, w: F.softmax(x @ w, -1), "f32[16, 16]", "f32[16, 16]")
    assert ops(fusion.groups[0]) == ["dot_general"]
    assert "a row of a contraction's result is needed whole" in apart(fusion)


def test_a_product_does_not_write_squares_that_only_a_sum_reads() -> None:
    def normed(x: Any, w: Any) -> Any:
        made = x @ w
        return made * F.sum(made * made, axis=-1, keepdims=True)

    groups = grouped(normed, "f32[32, 16]", "f32[16, 64]")
    assert groups == [["dot_general"], ["multiply", "sum", "multiply"]]


def test_two_contractions_are_two_kernels() -> None:
    types = ("f32[16, 16]", "f32[16, 16]", "f32[16, 16]")
    found = grouped(lambda x, v, w: F.relu(x @ v) @ w + x, *types)
    assert found == [["dot_general", "relu"], ["dot_general", "add"]]


# What stays apart.


def test_no_kernel_is_joined_around_another_that_runs_in_between() -> None:
    def around(x: Any, w: Any) -> Any:
        inner = F.exp(x)
        return F.tanh(inner) * F.sum(inner @ w, axis=1, keepdims=True)

    fusion = fused(around, "f32[32, 32]", "f32[32, 32]")
    assert "another kernel has to run in between" in apart(fusion)
    made: set[str] = set()
    for group in fusion.groups:
        read = {value.name for value in group.inputs() if value.producer is not None}
        assert read <= made
        made |= set(outputs(group))


def test_a_producer_in_another_arrangement_stays_apart() -> None:
    def turned(x: Any) -> Any:
        return F.flip(F.softmax(x, -1), 1) + 1.0

    fusion = fused(turned, "f32[32, 32]")
    assert len(fusion.groups) == 2
    assert "its elements are read in another arrangement" in apart(fusion)


def test_an_expensive_producer_that_is_read_several_times_stays_apart() -> None:
    def repeated(x: Any) -> Any:
        return F.tile(F.exp(x), (4, 1))

    fusion = fused(repeated, "f32[32, 32]")
    assert [ops(group) for group in fusion.groups] == [["exp"], ["tile"]]
    assert apart(fusion) == [
        "each element is read several times, and costs more to compute than to read"
    ]


def test_windows_stay_apart_because_they_overlap() -> None:
    fusion = fused(lambda x: F.max_pool(F.exp(x), 2) + 1.0, "f32[1, 1, 16, 16]")
    assert [ops(group) for group in fusion.groups] == [["exp"], ["max_pool"], ["add"]]
    assert set(apart(fusion)) == {"a window has loops of its own"}


@pytest.mark.parametrize(("function", "most"), [(F.abs, 96), (F.exp, 16)])
def test_a_kernel_grows_only_so_far(function: Callable[[Any], Any], most: int) -> None:
    def chain(x: Any) -> Any:
        for _ in range(200):
            x = function(x)
        return x

    fusion = fused(chain, "f32[64]")
    assert max(len(group.nodes) for group in fusion.groups) == most
    assert set(apart(fusion)) == {"together they would be too long a formula"}


def test_a_node_without_loops_stays_alone() -> None:
    graph = monograph.trace(lambda x: F.tanh(F.exp(x) + 1.0), "f32[8]")
    blocked = {node: node.op.name != "add" for node in graph.nodes}
    fusion = fuse(graph, blocked)
    assert [ops(group) for group in fusion.groups] == [["exp"], ["add"], ["tanh"]]
    assert fusion.groups[1].kind is GroupKind.OPAQUE
    assert apart(fusion) == ["add has no loops to share"]


def test_without_fusion_every_node_is_a_kernel() -> None:
    def both(x: Any) -> Any:
        return F.softmax(F.tanh(x) * 2.0, -1)

    found = grouped(both, "f32[64, 128]", enabled=False)
    assert len(found) == 7
    assert all(len(names) == 1 for names in found)


def test_every_node_that_is_needed_is_computed_in_exactly_one_group() -> None:
    def network(x: Any, w: Any) -> Any:
        hidden = F.gelu(x @ w)
        scaled = hidden / F.sum(hidden, axis=1, keepdims=True)
        return F.transpose(scaled, (1, 0)), F.max(scaled, axis=0), hidden

    fusion = fused(network, "f32[64, 64]", "f32[64, 64]")
    owned = [
        value.name
        for group in fusion.groups
        for node in group.nodes
        if node not in group.copies
        for value in node.results
    ]
    assert len(owned) == len(set(owned))
    written = [name for group in fusion.groups for name in outputs(group)]
    assert len(written) == len(set(written))


def test_a_convolution_reads_the_view_of_a_loops_result_from_memory() -> None:
    def net(x: Any, w: Any) -> Any:
        _, made = F.scan(lambda c, image: (c, F.exp(image)), (), x)
        return F.conv(F.reshape(made, (4, 8, 6, 6)), w)

    found = grouped(net, "f32[4, 1, 8, 6, 6]", "f32[8, 8, 3, 3]")
    assert found == [["scan"], ["reshape"], ["conv"]]


def test_padded_rows_that_are_cut_anew_are_read_from_memory() -> None:
    def shifted(x: Any) -> Any:
        return F.reshape(F.pad(x, [0, 1], [0, 0]), (9, 8)) + 1.0

    assert grouped(shifted, "f32[8, 8]") == [["pad"], ["reshape", "add"]]
