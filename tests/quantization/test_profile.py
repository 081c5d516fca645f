"""Profiles: what compiled observers see, in files, merged, and refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.errors import InputError, MonographError
from monograph.ir.types import Array
from monograph.quantization.histogram import BINS, Histogram, limit_for
from monograph.quantization.profile import Profile
from tests.quantization.models import batches, draw, images, perceptron

GRAPH = perceptron()
BATCHES = batches(GRAPH, 6)


@pytest.fixture(scope="module")
def taken() -> Profile:
    return monograph.quantize.profile(GRAPH, BATCHES, per_channel=True)


def first_layer(x: Array) -> Array:
    weights = {n.op.label: n.op.data.array() for n in GRAPH.nodes if n.op.name == "weight"}
    found: Array = np.maximum(x @ weights["a"].T + weights["b"], 0)
    return found


def test_ranges_means_and_histograms_are_those_of_the_numbers(taken: Profile) -> None:
    seen = taken.activations["relu"]
    expected = np.concatenate([first_layer(x) for x in BATCHES])
    assert seen.high == pytest.approx(expected.max(), rel=1e-5) and seen.low == 0
    assert seen.mean == pytest.approx(expected.mean(), rel=1e-4)
    assert seen.count == expected.size
    limit = seen.histogram.limit
    assert limit / 2 < expected.max() <= limit
    counts, _ = np.histogram(expected, BINS, (-limit, limit))
    assert np.abs(counts - seen.histogram.counts).sum() <= 4  # rounding at the edges of bins
    assert seen.channels is not None and seen.channels.axis == 1
    np.testing.assert_allclose(seen.channels.high, expected.max(0), rtol=1e-5)
    np.testing.assert_allclose(seen.channels.mean, expected.mean(0), rtol=1e-4, atol=1e-6)


def test_a_profile_is_read_as_it_was_written(taken: Profile, tmp_path: Path) -> None:
    path = taken.save(tmp_path / "profile.json")
    assert Profile.load(path).to_json() == taken.to_json()
    described = json.loads(path.read_text())
    assert described["batches"] == 6
    assert set(described["activations"]["relu"]) >= {"min", "max", "mean", "histogram"}


def test_merged_profiles_are_the_profile_of_all_batches(taken: Profile) -> None:
    parts = [
        monograph.quantize.profile(GRAPH, part, per_channel=True)
        for part in (BATCHES[:2], BATCHES[2:])
    ]
    merged = parts[0].merge(parts[1])
    assert merged.batches == 6
    for name, seen in taken.activations.items():
        other = merged.activations[name]
        assert (other.low, other.high) == (seen.low, seen.high)
        assert other.histogram.limit == seen.histogram.limit
        np.testing.assert_array_equal(other.histogram.counts, seen.histogram.counts)
        assert other.mean == pytest.approx(seen.mean, rel=1e-5, abs=1e-7)


def test_batches_come_from_any_iterable_in_any_form() -> None:
    def generated() -> Iterator[Any]:
        yield BATCHES[0]
        yield (BATCHES[1],)
        yield {"x": BATCHES[2]}

    taken = monograph.quantize.profile(GRAPH, generated())
    same = monograph.quantize.profile(GRAPH, BATCHES[:3])
    assert taken.to_json() == same.to_json()


def test_sizes_may_change_from_batch_to_batch() -> None:
    graph = perceptron("batch")
    taken = monograph.quantize.profile(graph, [draw(3, 16), draw(7, 16, seed=1)])
    assert taken.activations["x"].count == 10 * 16


def test_the_digest_is_that_of_the_weights_too(taken: Profile) -> None:
    other = monograph.quantize.profile(perceptron(inputs=8), [draw(4, 8)])
    assert taken.model != other.model
    with pytest.raises(InputError, match="different models"):
        taken.merge(other)


def test_nan_in_a_batch_is_named() -> None:
    wrong = BATCHES[1].copy()
    wrong[2, 3] = np.nan
    with pytest.raises(InputError, match="batch 1 makes NaN of the activation %x"):
        monograph.quantize.profile(GRAPH, [BATCHES[0], wrong])


def test_a_batch_of_another_shape_is_named() -> None:
    with pytest.raises(InputError, match="batch 1"):
        monograph.quantize.profile(GRAPH, [BATCHES[0], draw(4, 7)])


def test_infinities_are_counted_apart() -> None:
    graph = monograph.trace(lambda x: F.linear(F.exp(x), draw(3, 4)), "f32[2, 4]")
    x = np.array([[0, 1, 2, 1000], [0, 0, 0, 0]], np.float32)
    seen = monograph.quantize.profile(graph, [x]).activations["exp"]
    assert seen.infinite == 1 and seen.high == pytest.approx(np.exp(2), rel=1e-6)


@pytest.mark.parametrize(
    "given, message",
    [
        ([], "no batches"),
        (iter(()), "no batches"),
        (3, "one after the other"),
        ([(BATCHES[0], BATCHES[0])], "wrong number of inputs"),
        ([{"y": BATCHES[0]}], "other inputs"),
    ],
)
def test_what_are_no_batches_is_refused(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        monograph.quantize.profile(GRAPH, given)


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(MonographError, match="outside its declared range"):
        monograph.quantize.profile(perceptron("batch"), [draw(0, 16)])


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(version=99),
        lambda d: d.update(format="other"),
        lambda d: d.update(batches="many"),
        lambda d: d["activations"]["x"].update(min="low"),
        lambda d: d["activations"]["x"].update(min=5.0, max=-5.0),
        lambda d: d["activations"]["x"]["histogram"].update(limit=3.0),
        lambda d: d["activations"]["x"]["histogram"].update(first=-1),
        lambda d: d["activations"]["x"]["histogram"].update(counts=[-1]),
        lambda d: d["activations"]["x"]["histogram"].update(limit=10**400),
        lambda d: d["activations"]["x"]["histogram"].update(limit=2.0**1000),
        lambda d: d["activations"]["x"]["histogram"].update(limit=True),
        lambda d: d["activations"]["x"].update(max=10**400),
        lambda d: d["activations"]["x"].update(max=1e300),
        lambda d: d.update(batches=-1),
        lambda d: d["activations"].update(x=7),
        lambda d: d["activations"]["x"]["channels"].update(mean=[1.0]),
    ],
)
def test_a_damaged_profile_is_refused(change: Any, taken: Profile) -> None:
    described = json.loads(taken.to_json())
    change(described)
    with pytest.raises(InputError):
        Profile.from_json(json.dumps(described))


@pytest.mark.parametrize("text", ["", "[", "3", "{}", "[" * 100_000, '{"format": NaN}'])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not a profile"):
        Profile.from_json(text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        Profile.load(tmp_path / "none.json")


def test_histograms_of_wider_ranges_hold_the_same_numbers() -> None:
    small, large = draw(1000), draw(1000, seed=1, scale=50.0)
    made = []
    for numbers in (small, large):
        limit = limit_for(float(np.abs(numbers).max()))
        made.append(Histogram(limit, np.histogram(numbers, BINS, (-limit, limit))[0]))
    limit = made[1].limit
    both, _ = np.histogram(np.concatenate([small, large]), BINS, (-limit, limit))
    np.testing.assert_array_equal(made[0].merged(made[1]).counts, both)


@pytest.mark.parametrize("largest", [2e38, 3.4e38])
def test_the_largest_numbers_are_profiled_and_saved(largest: float) -> None:
    graph = perceptron()
    x = draw(4, 16)
    x[:, :8] = largest / 16
    x[0, 0] = largest
    bias = monograph.trace(lambda x: F.linear(x, draw(3, 16, scale=1e-3)), "f32[4, 16]")
    for model in (bias, graph):
        taken = monograph.quantize.profile(model, [x], per_channel=True)
        seen = Profile.from_json(taken.to_json()).activations["x"]
        assert seen.high == pytest.approx(largest) and seen.count == x.size
        if model is bias:
            (expected,) = monograph.interpret(model, [x])
            (got,) = monograph.interpret(monograph.quantize(model, taken), [x])
            assert np.abs(got - expected).max() < np.abs(expected).max() / 32


def test_a_model_without_layers_is_refused() -> None:
    graph = monograph.trace(lambda x: F.exp(x), "f32[4]")
    with pytest.raises(InputError, match="nothing to profile"):
        monograph.quantize.profile(graph, [draw(4)])


def test_images_are_profiled_by_channel() -> None:
    graph = images()
    taken = monograph.quantize.profile(graph, batches(graph, 1), per_channel=True)
    seen = taken.activations["relu"]
    assert seen.channels is not None and seen.channels.low.shape == (8,)


def test_a_torch_module_is_read_with_its_first_batch() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU()).eval()
    batches = [torch.randn(3, 6) for _ in range(2)]
    profile = monograph.quantize.profile(module, iter(batches))
    assert profile.batches == 2
    graph = monograph.quantize(module, profile, examples=(batches[0],))
    (got,) = monograph.compile(graph).run([batches[0].numpy()])
    assert np.abs(got - module(batches[0]).detach().numpy()).max() < 0.05
    with pytest.raises(InputError, match="read with examples"):
        monograph.quantize(module, profile)
