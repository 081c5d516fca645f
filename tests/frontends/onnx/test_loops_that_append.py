"""Loops whose carried values only grow, and loops that end early: native, and as ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph.frontends.onnx import from_onnx
from tests.frontends.onnx.models import model, op_names
from tests.frontends.onnx.ort import run_ort

SUPPRESS = """m (float[n, 2] spans, float[n] scores) => (int64[k] kept, float[l, 2] chosen) {
    axis = Constant <value_ints: ints = [0]> ()
    none = Constant <value_ints: ints = [0]> ()
    yes = Constant <value: tensor = bool {1}> ()
    sizes = Shape(scores)
    most = Squeeze(sizes, axis)
    empty = ConstantOfShape <value: tensor = int64[1] {0}> (none)
    kept, left = Loop(most, yes, empty, scores) <body = step
        (int64 i, bool c, int64[a] found, float[m] now) =>
        (bool goes_on, int64[b] more, float[m2] rest) {
            worst = Constant <value_float: float = -1.0> ()
            enough = Constant <value_float: float = 0.2> ()
            best = ArgMax <axis=0, keepdims=1> (now)
            more = Concat <axis=0> (found, best)
            span = Gather <axis=0> (spans, best)
            apart = Sub(spans, span)
            distance = ReduceMax <axes=[1], keepdims=0> (apart)
            near = Less(distance, enough)
            rest = Where(near, worst, now)
            highest = ReduceMax <keepdims=0> (rest)
            goes_on = Greater(highest, enough)
        }>
    chosen = Gather <axis=0> (spans, kept)
}"""


def feeds_of(size: int) -> dict[str, Any]:
    random = np.random.default_rng(size)
    spans, scores = random.random((size, 2)), random.random(size)
    return {"spans": spans.astype(np.float32), "scores": scores.astype(np.float32)}


def assert_as_onnx_runtime(proto: Any, executable: Any, feeds: dict[str, Any]) -> None:
    expected = run_ort(proto, feeds)
    for found, wanted in zip(executable(*feeds.values()), expected, strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_a_list_of_what_was_found_until_enough_is() -> None:
    proto = model(SUPPRESS, opset=13)
    executable = monograph.compile(proto, cache=False, variants=0, strict=True)
    made = executable.report.variants
    for size in (30, 7, 100, 12):
        assert_as_onnx_runtime(proto, executable, feeds_of(size))
    assert executable.report.variants == made, "what a call brings is compiled for all sizes"
    assert_as_onnx_runtime(proto, executable, feeds_of(1))


COUNTED = """m (float[b, width] x, float[t, width] rows) =>
        (float[b, e, width] y, float[width] last) {
    axis = Constant <value_ints: ints = [1]> ()
    zero = Constant <value_ints: ints = [0]> ()
    yes = Constant <value: tensor = bool {1}> ()
    sizes = Shape <start=0, end=1> (rows)
    steps = Squeeze(sizes, zero)
    first = Unsqueeze(x, axis)
    none = ReduceSum <keepdims=0> (rows, zero)
    y, last = Loop(steps, yes, first, none) <body = step
        (int64 i, bool c, float[b1, t1, d1] seen, float[d2] h) =>
        (bool goes_on, float[b2, t2, d3] more, float[d4] out) {
            row = Gather <axis=0> (rows, i)
            sum = Add(h, row)
            out = Tanh(sum)
            here = Mul(x, out)
            once = Unsqueeze(here, axis)
            twice = Neg(once)
            more = Concat <axis=-2> (seen, once, twice)
            goes_on = Identity(c)
        }>
}"""


@pytest.mark.parametrize("steps", [3, 1, 0, 8])
def test_a_counted_loop_that_appends_is_a_scan(steps: int) -> None:
    proto = model(COUNTED)
    graph = from_onnx(proto)
    assert "scan" in op_names(graph) and "while" not in op_names(graph)
    assert str(graph.outputs[0].type) == "f32[b, 2*t+1, width]"
    executable = monograph.compile(proto, cache=False, variants=0, strict=True)
    random = np.random.default_rng(steps)
    feeds = {"x": random.normal(size=(2, 3)), "rows": random.normal(size=(steps, 3))}
    found = {name: each.astype(np.float32) for name, each in feeds.items()}
    assert_as_onnx_runtime(proto, executable, found)


STACKED = """m (float[n] x, float limit) => (float last, float[k] each, float[l, 2] pairs) {
    yes = Constant <value: tensor = bool {1}> ()
    most = Constant <value_int: int = 20> ()
    zero = Constant <value_float: float = 0.0> ()
    last, each, pairs = Loop(most, yes, zero) <body = step
        (int64 i, bool c, float sum) => (bool goes_on, float out, float s, float[2] pair) {
            axis = Constant <value_ints: ints = [0]> ()
            places = Shape(x)
            size = Squeeze(places, axis)
            place = Mod(i, size)
            one = Gather <axis=0> (x, place)
            out = Add(sum, one)
            s = Mul(out, out)
            a = Unsqueeze(out, axis)
            b = Neg(a)
            pair = Concat <axis=0> (a, b)
            goes_on = Less(out, limit)
        }>
}"""


@pytest.mark.parametrize("limit", [0.0, 1.5, 4.0, 1e9])
def test_results_of_each_step_of_a_loop_that_ends_early(limit: float) -> None:
    proto = model(STACKED)
    executable = monograph.compile(proto, cache=False, variants=0, strict=True)
    feeds = {"x": np.array([0.5, 1.0, 0.25], np.float32), "limit": np.array(limit, np.float32)}
    assert_as_onnx_runtime(proto, executable, feeds)


READ = """m (float[n] x, int64 count) => (float[k] y) {
    yes = Constant <value: tensor = bool {1}> ()
    y = Loop(count, yes, x) <body = step
        (int64 i, bool c, float[a] seen) => (bool goes_on, float[b] more) {
            zero = Constant <value_ints: ints = [0]> ()
            goes_on = Identity(c)
            BODY
        }>
}"""
BODIES = {
    "what is carried is read": """
        sum = ReduceSum <keepdims=1> (seen)
        more = Concat <axis=0> (seen, sum)""",
    "it is put behind": "m = Constant <value_floats=[7.0]> () more = Concat <axis=0> (m, seen)",
    "it is appended to itself": "more = Concat <axis=0> (seen, seen)",
    "each step appends another size": """
        one = Constant <value_ints: ints = [1]> ()
        i1 = Unsqueeze(i, zero)
        size = Add(i1, one)
        piece = ConstantOfShape(size)
        more = Concat <axis=0> (seen, piece)""",
}


@pytest.mark.parametrize("name", BODIES)
def test_other_ways_to_grow(name: str) -> None:
    proto = model(READ.replace("BODY", BODIES[name]))
    executable = monograph.compile(proto, cache=False, variants=0)
    for count in (2, 3, 0):
        feeds = {"x": np.array([1, 2], np.float32), "count": np.array(count)}
        assert_as_onnx_runtime(proto, executable, feeds)
