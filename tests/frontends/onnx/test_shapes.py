"""Shapes that are computed by nodes become symbolic dimensions again; what cannot is deferred."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")

from monograph.errors import EvaluationError
from monograph.frontends.onnx import from_onnx
from monograph.ir.compare import structurally_equal
from monograph.ir.interpret import interpret
from monograph.ir.text.parser import parse
from monograph.specialize.nonempty import assume_nonempty
from tests.frontends.onnx.models import assert_equal, floats, graph_of, model, op_names, run
from tests.frontends.onnx.ort import compare, run_ort

SPLIT_HEADS = """m (float[batch, seq, 12] x) => (float[batch, seq, h, d] y) {
    shape = Shape(x)
    zero = Constant <value_int: int = 0> ()
    one = Constant <value_int: int = 1> ()
    batch = Gather(shape, zero)
    seq = Gather(shape, one)
    axes = Constant <value_ints: ints = [0]> ()
    batch1 = Unsqueeze(batch, axes)
    seq1 = Unsqueeze(seq, axes)
    rest = Constant <value_ints: ints = [4, 3]> ()
    target = Concat <axis = 0> (batch1, seq1, rest)
    y = Reshape(x, target)
}"""


def test_a_shape_chain_becomes_a_symbolic_shape() -> None:
    graph = graph_of(SPLIT_HEADS)
    assert op_names(graph) == ["reshape"]
    assert str(graph.outputs[0].type) == "f32[batch, seq, 4, 3]"


@pytest.mark.parametrize(
    "expression, expected",
    [
        ("t = Add(n, two)", "n+2"),
        ("t = Mul(n, two)", "2*n"),
        ("t = Sub(n, one)", "n-1"),
        ("t = Div(n, two)", "n//2"),
        ("t = Mod(n, two)", "n%2"),
        ("t = Max(n, two)", "max(n,2)"),
        ("s = Shape(x) t = Slice(s, one, two)", "3"),
        ("c = Cast <to=6> (n) t = Cast <to=7> (c)", "n"),
        ("e = Equal(n, minus) t = Where(e, one, n)", "n"),
        ("s = Shape(x) t = ReduceProd <keepdims=1> (s)", "3*n"),
        ("s = Shape <start=1> (x) t = Identity(s)", "3"),
        ("s = Size(x) t = Reshape(s, one)", "3*n"),
    ],
)
def test_arithmetic_on_shapes_is_followed(expression: str, expected: str) -> None:
    graph = graph_of(f"""m (float[n, 3] x) => (float[k] y) {{
        one = Constant <value_ints: ints = [1]> ()
        two = Constant <value_ints: ints = [2]> ()
        minus = Constant <value_ints: ints = [-1]> ()
        n = Shape <start=0, end=1> (x)
        {expression}
        y = ConstantOfShape(t)
    }}""")
    assert str(graph.outputs[0].shape[0]).replace(" ", "") == expected
    assert "onnx.deferred" not in op_names(graph)


def test_a_shape_that_is_split_into_its_sizes() -> None:
    graph = graph_of("""m (float[n, m] x) => (float[k] y, float[l] z) {
        shape = Shape(x)
        rows, columns = Split(shape)
        y = ConstantOfShape(rows)
        z = ConstantOfShape(columns)
    }""")
    assert [str(each.type) for each in graph.outputs] == ["f32[n]", "f32[m]"]
    assert "onnx.deferred" not in op_names(graph)


@pytest.mark.parametrize(
    "start, end, step",
    [(-1, -(2**63), -1), (-2, -(2**63), -2), (2**63 - 1, 0, -1), (-1, -3, -1), (3, -1000, -2)],
)
def test_slices_backwards_of_symbolic_sizes(start: int, end: int, step: int) -> None:
    proto = model(f"""m (float[n, 3] x) => (float[a, b] y) {{
        start = Constant <value_ints: ints = [{start}]> ()
        end = Constant <value_ints: ints = [{end}]> ()
        axis = Constant <value_ints: ints = [0]> ()
        step = Constant <value_ints: ints = [{step}]> ()
        y = Slice(x, start, end, axis, step)
    }}""")
    graph = from_onnx(proto)
    assert "onnx.deferred" not in op_names(graph)
    for size in (1, 2, 3, 4, 9):
        x = np.arange(3 * size, dtype=np.float32).reshape(size, 3)
        (expected,) = run_ort(proto, {"x": x})
        assert_equal(interpret(graph, [x]), expected)


def test_a_slice_that_begins_before_the_front_begins_at_it() -> None:
    """Of one element, what begins at the last but one and goes backwards: ONNX keeps it inside."""
    bounds = [np.array([each]) for each in (-2, -(2**63), 0, -1)]
    compare("Slice", [floats(5), *bounds], onnx=13, constant=(1, 2, 3, 4))


ROLLED = """m (float[n, m, 3] x) => (float[a, b, c] y) {
    zero = Constant <value_ints: ints = [0]> ()
    one = Constant <value_ints: ints = [1]> ()
    two = Constant <value_ints: ints = [2]> ()
    shift = Constant <value_ints: ints = [SHIFT]> ()
    rows = Shape <start=0, end=1> (x)
    cut = Mod(shift, rows)
    head = Slice(x, zero, cut, zero)
    tail = Slice(x, cut, rows, zero)
    rolled = Concat <axis=0> (tail, head)
    columns = Shape <start=1, end=2> (rolled)
    cut2 = Mod(shift, columns)
    head2 = Slice(rolled, zero, cut2, one)
    tail2 = Slice(rolled, cut2, columns, one)
    y = Concat <axis=1> (tail2, head2)
}"""


@pytest.mark.parametrize("shift", [2, -2, 7])
def test_a_roll_keeps_its_symbolic_sizes(shift: int) -> None:
    """Spelled with remainders, as exporters of torch do: it is settled where no size is zero."""
    proto = model(ROLLED.replace("SHIFT", str(shift)))
    assumed = assume_nonempty(from_onnx(proto))
    assert assumed is not None and assumed.places == ((0, 0), (0, 1))
    assert "onnx.deferred" not in op_names(assumed.graph)
    assert [str(dim) for dim in assumed.graph.outputs[0].shape] == ["n", "m", "3"]
    for sizes in ((4, 5), (1, 2), (3, 1)):
        x = np.arange(3 * sizes[0] * sizes[1], dtype=np.float32).reshape(*sizes, 3)
        expected = np.roll(x, (-shift, -shift), (0, 1))
        assert_equal(interpret(assumed.graph, [x]), expected)
        assert_equal(run_ort(proto, {"x": x}), expected)


@pytest.mark.parametrize("sizes", [(100, 25, 10), (25, 25, 10), (40, 25, 16), (20, 25, 10)])
def test_frames_of_a_signal_with_two_free_sizes(sizes: tuple[int, int, int]) -> None:
    """How many there are is rounded towards zero, and the window may be longer than the signal."""
    text = """m (float[t] x, float[window] w, float[hop] like) => (float[k] y, int64[1] count) {
        one = Constant <value_ints: ints = [1]> ()
        t = Shape(x)
        window = Shape(w)
        hop = Shape(like)
        less = Sub(t, window)
        whole = Div(less, hop)
        count = Add(whole, one)
        y = ConstantOfShape(count)
    }"""
    proto = model(text)
    assumed = assume_nonempty(from_onnx(proto))
    assert assumed is not None and "onnx.deferred" not in op_names(assumed.graph)
    feeds = {name: np.zeros(size, np.float32) for name, size in zip("xw", sizes, strict=False)}
    feeds["like"] = np.zeros(sizes[2], np.float32)
    assert_equal(interpret(assumed.graph, list(feeds.values())), *run_ort(proto, feeds))


@pytest.mark.parametrize("sizes", [(5, 8), (8, 5), (4, 4), (9, 1)])
def test_a_crop_to_the_size_of_another_tensor(sizes: tuple[int, int]) -> None:
    proto = model("""m (float[n] x, float[k] like) => (float[l] y) {
        size = Shape(like)
        y = CenterCropPad(x, size)
    }""")
    graph = from_onnx(proto)
    assert "onnx.deferred" not in op_names(graph)
    feeds = {"x": np.arange(1, sizes[0] + 1, dtype=np.float32), "like": floats(*[0] * sizes[1])}
    assert_equal(interpret(graph, list(feeds.values())), *run_ort(proto, feeds))


def test_minus_one_and_zero_in_a_reshape() -> None:
    graph = graph_of("""m (float[batch, seq, 12] x) => (float[a, b] y) {
        target = Constant <value_ints: ints = [0, -1]> ()
        y = Reshape(x, target)
    }""")
    assert str(graph.outputs[0].type) == "f32[batch, 12*seq]"


def test_a_shape_that_is_an_input_defers_the_node() -> None:
    text = "m (float[n] x, int64[2] s) => (float[a, b] y) { h = Reshape(x, s) y = Neg(h) }"
    graph = graph_of(text)
    assert op_names(graph) == ["onnx.deferred", "negate"]
    x = np.arange(6, dtype=np.float32)
    assert_equal(run(text, x, np.array([2, -1])), -x.reshape(2, 3))


def test_a_deferred_node_prints_and_parses() -> None:
    graph = graph_of("m (float[n] x, int64[2] s) => (float[a, b] y) { y = Reshape(x, s) }")
    assert structurally_equal(graph, parse(str(graph)), names=True)


def test_an_unknown_rank_defers_what_follows() -> None:
    text = """m (float[n] x, int64[r] s) => (float y) {
        h = Reshape(x, s)
        k = Add(h, h)
        y = Transpose(k)
    }"""
    graph = graph_of(text)
    assert op_names(graph) == ["onnx.deferred"] * 3
    x = np.arange(6, dtype=np.float32)
    assert_equal(run(text, x, np.array([3, 2])), 2 * x.reshape(3, 2).T)


def test_an_error_in_a_deferred_node_names_it() -> None:
    graph = graph_of("m (float[n] x, int64[2] s) => (float[a, b] y) { [it] y = Reshape(x, s) }")
    with pytest.raises(EvaluationError, match="the number of elements changes") as caught:
        interpret(graph, [floats(1, 2, 3), np.array([2, 2])])
    assert "Reshape 'it'" in str(caught.value)


def test_a_body_in_a_deferred_node_reads_what_is_around_it() -> None:
    # The rank of the loop's carried value is not known, so the whole loop may be deferred.
    text = """m (float[n] x, int64[r] s, int64 trips, float w) => (float y) {
        h = Reshape(x, s)
        y = Loop (trips, "", h) <body = g (int64 i, bool c, float v) => (bool d, float u) {
            d = Identity(c)
            u = Add(v, w)
        }>
    }"""
    x = np.arange(4, dtype=np.float32)
    found = run(text, x, np.array([2, 2]), np.array(3), np.float32(10))
    assert_equal(found, x.reshape(2, 2) + 30)


def test_slices_count_from_either_end() -> None:
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    text = """m (float[4, 5] x) => (float[a, b] y) {
        starts = Constant <value_ints: ints = [-1, 1]> ()
        ends = Constant <value_ints: ints = [-100, 100]> ()
        axes = Constant <value_ints: ints = [0, -1]> ()
        steps = Constant <value_ints: ints = [-2, 2]> ()
        y = Slice(x, starts, ends, axes, steps)
    }"""
    assert_equal(run(text, x), x[::-2, 1::2])


def test_a_reshape_to_sizes_of_the_operand_is_decided_whatever_their_sign() -> None:
    graph = graph_of("""m (float[batch, 6, n] x) => (float[a, b, c] y) {
        shorter = AveragePool <kernel_shape=[3]> (x)
        shape = Shape(shorter)
        apart = Constant <value_ints: ints = [0, 2, 3, -1]> ()
        split = Reshape(shorter, apart)
        y = Reshape(split, shape)
    }""")
    assert "onnx.deferred" not in op_names(graph)
    assert str(graph.outputs[0].type) == "f32[batch, 6, n-2]"
    assert interpret(graph, [np.ones((1, 6, 5), np.float32)])[0].shape == (1, 6, 3)


def test_a_reshape_to_as_many_elements_is_decided_whatever_the_signs() -> None:
    graph = graph_of("""m (float[b, 4, n] x) => (float[b, k] y) {
        four = Constant <value_ints: ints = [4]> ()
        shorter = AveragePool <kernel_shape=[3]> (x)
        b = Shape <start=0, end=1> (x)
        n = Shape <start=2, end=3> (shorter)
        rest = Mul(n, four)
        shape = Concat <axis=0> (b, rest)
        y = Reshape(shorter, shape)
    }""")
    assert "onnx.deferred" not in op_names(graph)
    assert interpret(graph, [np.ones((2, 4, 5), np.float32)])[0].shape == (2, 12)


def test_a_reshape_to_a_number_that_may_be_minus_one_is_deferred() -> None:
    graph = graph_of("""m (float[k] x, float[n] like) => (float[a, b] y) {
        one = Constant <value_ints: ints = [1]> ()
        two = Constant <value_ints: ints = [2]> ()
        n = Shape(like)
        less = Sub(n, one)
        shape = Concat <axis=0> (two, less)
        y = Reshape(x, shape)
    }""")
    assert "onnx.deferred" in op_names(graph)
    assert interpret(graph, [floats(1, 2, 3, 4), floats()])[0].shape == (2, 2)


def test_a_slice_to_its_own_size_is_decided_whatever_the_sign() -> None:
    graph = graph_of("""m (float[1, 2, n] x) => (float[1, 2, k] y) {
        zero = Constant <value_ints: ints = [0]> ()
        two = Constant <value_ints: ints = [2]> ()
        shorter = AveragePool <kernel_shape=[3]> (x)
        end = Shape <start=2, end=3> (shorter)
        y = Slice(shorter, zero, end, two)
    }""")
    assert "onnx.deferred" not in op_names(graph)
    assert interpret(graph, [np.ones((1, 2, 5), np.float32)])[0].shape == (1, 2, 3)


def test_minus_one_is_what_divides_exactly() -> None:
    graph = graph_of("""m (float[b, n, 2, 8] x) => (float[q, k, 8] y) {
        two = Constant <value_ints: ints = [2]> ()
        eight = Constant <value_ints: ints = [8]> ()
        minus = Constant <value_ints: ints = [-1]> ()
        b = Shape <start=0, end=1> (x)
        heads = Mul(b, two)
        shape = Concat <axis=0> (heads, minus, eight)
        turned = Transpose <perm=[0, 2, 1, 3]> (x)
        y = Reshape(turned, shape)
    }""")
    assert str(graph.outputs[0].type) == "f32[2*b, n, 8]"


@pytest.mark.parametrize("upper", [0, 1])
def test_a_triangle_begins_at_a_diagonal_that_sizes_give(upper: int) -> None:
    graph = graph_of(f"""m (float[n, k] x, float[p] past) => (float[n, k] y) {{
        p = Shape(past)
        zero = Constant <value_ints: ints = [0]> ()
        scalar = Squeeze(p, zero)
        y = Trilu <upper={upper}> (x, scalar)
    }}""")
    assert "onnx.deferred" not in op_names(graph)
    x = np.arange(1, 29, dtype=np.float32).reshape(4, 7)
    triangle = np.triu if upper else np.tril
    assert_equal(interpret(graph, [x, floats(1, 2)]), triangle(x, 2))
