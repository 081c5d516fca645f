"""Shipped models in their small forms: compiled with free sizes, against ONNX Runtime.

Two sizes each, so that what is compiled has to be right at more than the first one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")
pytest.importorskip("transformers")

import monograph
from benchmarks import measure
from benchmarks.shipped import Shipped, images, select
from benchmarks.shipped.contenders import open_onnxruntime, sizes_of
from benchmarks.shipped.stream import STREAMS, markdown, requests_of, run_stream
from benchmarks.shipped.table import markdown as table
from benchmarks.shipped.trial import _errors, run_model

QUICK = ("bert-int8", "decoder", "mobilenet-tf")
"""Those that take a few seconds to compile; bert is tried below."""
OTHER_SIZES = {"width": 96, "frames": 44, "samples": 2400, "sequence_length": 12, "past": 9}
"""What a second call changes, of the sizes that a model has."""


def _params() -> list[Any]:
    return [
        pytest.param(each, id=each.name, marks=[] if each.name in QUICK else [pytest.mark.slow])
        for each in select()
    ]


@pytest.mark.parametrize("shipped", _params())
def test_a_shipped_model_is_compiled_and_right_at_two_sizes(
    shipped: Shipped, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(shipped.build(small=True))
    compiled: Any = monograph.compile(path, threads=1, variants=0)
    assert not compiled.report.fallbacks
    for feed in _feeds(shipped):
        expected = open_onnxruntime(path, feed, 1).call(feed)
        found = compiled(**feed)
        assert [each.shape for each in found] == [each.shape for each in expected]
        for got, want in zip(found, expected, strict=True):
            limit = shipped.tolerance * max(1.0, float(np.abs(want).max(initial=0)))
            np.testing.assert_allclose(got, want, rtol=0, atol=limit)
    assert not compiled.report.fallbacks


def _feeds(shipped: Shipped) -> list[Any]:
    changed = {name: size for name, size in OTHER_SIZES.items() if name in shipped.small_sizes}
    if shipped.name == "vad":  # a chunk has one length
        changed = {}
    return [shipped.inputs(small=True), shipped.inputs(changed, small=True, seed=1)]


def test_makers_give_the_same_file_every_time() -> None:
    (shipped,) = select(["bert"])
    assert shipped.build(small=True) == shipped.build(small=True)


def test_sizes_are_those_that_a_call_binds(tmp_path: Path) -> None:
    (shipped,) = select(["mobilenet-tf"])
    path = tmp_path / "model.onnx"
    path.write_bytes(shipped.build(small=True))
    sizes = sizes_of(path, shipped.inputs(small=True))
    assert sizes == {"unk__1": 2, "unk__2": 32, "unk__3": 32}


def test_a_trial_times_all_contenders_and_fills_the_table() -> None:
    (shipped,) = select(["bert"])
    names = ["shipped", "onnxruntime"]
    plan = measure.Plan(least_rounds=1, most_rounds=1, seconds=0.0, quiet_seconds=0.0)
    row = run_model(shipped, names, plan, threads=1, small=True)
    assert all(row.outcomes[name].counts for name in names)
    assert row.against == "double precision" and row.best_peer() == "onnxruntime"
    text = table([row], "wall", 1)
    assert "| bert | torchscript 14 |" in text and "Slower than the better peer" in text


def test_boxes_that_are_kept_are_judged_by_the_scores_that_were_found() -> None:
    boxes = np.float32([[[0, 0, 4, 4], [0, 1, 4, 5], [4, 4, 0, 9], [9, 9, 9, 9]]])
    scores = np.float32([[[0.5, 0.6, 0.7, 0.1]]])
    _, _, kept = images.suppress([boxes, scores, np.zeros((0, 3), np.int64)])
    assert kept.tolist() == [[0, 0, 2], [0, 0, 1]]
    first, second = [boxes, scores, kept], [boxes, scores, kept[::-1] - [0, 0, 1]]
    _, errors = _errors([boxes, scores, kept], {"right": first, "wrong": second}, images.suppress)
    assert errors["right"] == 0 and errors["wrong"] > 0.5


@pytest.mark.slow
def test_a_stream_answers_every_request() -> None:
    (shipped,) = select(["bert"])
    found = run_stream(shipped, ["shipped", "onnxruntime"], 6, small=True)
    assert found.requests == 6 and found.sizes > 1 and not found.failed
    assert all(each.worst >= each.p99 >= each.median for each in found.latencies.values())
    assert "bert: 6" in markdown([found])


def test_streams_draw_the_same_sizes_every_time() -> None:
    for name in STREAMS:
        (shipped,) = select([name])
        first, second = (requests_of(shipped, 5, small=True) for _ in range(2))
        shapes = [[x.shape for x in feed.values()] for feed in first]
        assert shapes == [[x.shape for x in feed.values()] for feed in second]
