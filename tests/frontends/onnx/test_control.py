"""If, Loop and Scan: closures, changing shapes, and which op of ours each becomes."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")

from monograph.errors import MonographError
from monograph.ir.interpret import interpret
from tests.frontends.onnx.models import assert_equal, floats, graph_of, op_names, run

IF = """m (bool p, float[n] x) => (float[k] y) {
    two = Constant <value_float: float = 2.0> ()
    y = If (p) <
        then_branch = a () => (float[k] t) { t = Mul(x, two) },
        else_branch = b () => (float[k] e) { e = Concat <axis = 0> (x, x) }
    >
}"""


def test_branches_read_what_is_around_them_and_may_differ_in_shape() -> None:
    x = floats(1, 2)
    assert_equal(run(IF, True, x), floats(2, 4))
    assert_equal(run(IF, False, x), floats(1, 2, 1, 2))
    graph = graph_of(IF)
    assert "if" in op_names(graph)
    assert graph.outputs[0].rank == 1


def test_a_branch_that_is_known_is_taken_now() -> None:
    text = IF.replace("bool p, ", "").replace(
        "two =", "p = Constant <value: tensor = bool {1}> () two ="
    )
    assert op_names(graph_of(text)) == ["constant", "multiply"]


def test_branches_of_two_dtypes_are_refused() -> None:
    with pytest.raises(MonographError, match="no type in common"):
        graph_of("""m (bool p, float[2] x) => (float[2] y) {
            y = If (p) <
                then_branch = a () => (float[2] t) { t = Neg(x) },
                else_branch = b () => (double[2] e) { e = Cast <to = 11> (x) }
            >
        }""")


SUM = """m (int64 trips, float[n] x) => (float[n] total, float[t, n] partial) {
    total, partial = Loop (trips, "", x) <body = g (int64 i, bool c, float[n] v)
                                          => (bool d, float[n] u, float[n] s) {
        d = Identity(c)
        f = CastLike(i, v)
        u = Add(v, f)
        s = Identity(u)
    }>
}"""


@pytest.mark.parametrize("trips", [0, 1, 4])
def test_a_loop_with_a_trip_count(trips: int) -> None:
    x = floats(1, 2)
    partial = [x + sum(range(k + 1)) for k in range(trips)]
    expected = np.array(partial, np.float32).reshape(trips, 2)
    total = x + sum(range(trips))
    assert_equal(run(SUM, trips, x), total, expected)


def test_a_known_trip_count_gives_a_scan() -> None:
    text = SUM.replace("int64 trips, ", "").replace(
        "total, partial =", "trips = Constant <value_int: int = 3> () total, partial ="
    )
    graph = graph_of(text)
    assert "scan" in op_names(graph)
    assert "while" not in op_names(graph)
    assert str(graph.outputs[1].type) == "f32[3, n]"
    assert_equal(interpret(graph, [floats(1)]), floats(4), [[1], [2], [4]])


def test_a_loop_may_end_by_its_condition() -> None:
    text = """m (int64 x) => (int64 y) {
        start = Constant <value: tensor = bool {1}> ()
        y = Loop ("", start, x) <body = g (int64 i, bool c, int64 v) => (bool d, int64 u) {
            limit = Constant <value_int: int = 100> ()
            u = Add(v, v)
            d = Less(u, limit)
        }>
    }"""
    assert_equal(run(text, 3), 192)


def test_a_carried_value_may_grow() -> None:
    text = """m (int64 trips, float[n] x) => (float[k] y) {
        y = Loop (trips, "", x) <body = g (int64 i, bool c, float[k] v) => (bool d, float[k] u) {
            d = Identity(c)
            u = Concat <axis = 0> (v, v)
        }>
    }"""
    assert graph_of(text).outputs[0].rank == 1
    assert_equal(run(text, 2, floats(1, 2)), np.tile(floats(1, 2), 4))


def test_a_carried_value_may_change_its_rank() -> None:
    text = """m (int64 trips, float[n] x) => (float y) {
        y = Loop (trips, "", x) <body = g (int64 i, bool c, float v) => (bool d, float u) {
            d = Identity(c)
            axes = Constant <value_ints: ints = [0]> ()
            u = Unsqueeze(v, axes)
        }>
    }"""
    (found,) = run(text, 2, floats(1, 2))
    assert found.shape == (1, 1, 2)


def test_results_that_nobody_takes_may_be_left_out() -> None:
    text = SUM.replace(", float[t, n] partial", "").replace("total, partial", "total")
    assert_equal(run(text, 3, floats(1, 2)), floats(4, 5))


def test_bodies_inside_bodies_capture_outwards() -> None:
    text = """m (int64 trips, bool p, float[2] x, float[2] w) => (float[2] y) {
        y = Loop (trips, "", x) <body = g (int64 i, bool c, float[2] v) => (bool d, float[2] u) {
            d = Identity(c)
            u = If (p) <
                then_branch = a () => (float[2] t) { t = Add(v, w) },
                else_branch = b () => (float[2] e) { e = Sub(v, w) }
            >
        }>
    }"""
    assert_equal(run(text, 3, True, floats(0, 0), floats(1, 2)), floats(3, 6))
    assert_equal(run(text, 3, False, floats(0, 0), floats(1, 2)), floats(-3, -6))


SCAN = """m (float[2] start, float[3, n] xs) => (float[2] last, float[2, n] ys) {
    last, ys = Scan (start, xs) <
        num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1],
        scan_input_directions = [1],
        body = g (float[2] s, float[3] x) => (float[2] t, float[2] z) {
            sum = ReduceSum <keepdims = 0> (x)
            t = Add(s, sum)
            z = Identity(t)
        }
    >
}"""


def test_a_scan_takes_axes_and_directions() -> None:
    xs = np.arange(12, dtype=np.float32).reshape(3, 4)
    graph = graph_of(SCAN)
    assert "scan" in op_names(graph)
    steps = np.cumsum(xs.sum(0)[::-1])
    last, ys = interpret(graph, [floats(0, 1), xs])
    assert_equal([last], floats(0, 1) + steps[-1])
    assert_equal([ys], np.stack([steps, 1 + steps]))


def test_a_sequence_is_carried_by_a_loop() -> None:
    text = """m (int64 trips, float[n] x) => (float[k] y) {
        empty = SequenceEmpty ()
        all = Loop (trips, "", empty) <body = g (int64 i, bool c, seq(float[n]) s)
                                       => (bool d, seq(float[n]) t) {
            d = Identity(c)
            f = CastLike(i, x)
            v = Add(x, f)
            t = SequenceInsert(s, v)
        }>
        y = ConcatFromSequence <axis = 0> (all)
    }"""
    assert_equal(run(text, 2, floats(1, 5)), floats(1, 5, 2, 6))
