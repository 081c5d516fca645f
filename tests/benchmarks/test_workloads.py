"""The registry of workloads."""

from __future__ import annotations

import pytest
import torch

from benchmarks import workloads
from benchmarks.trial import traffic
from benchmarks.workloads import flat, neutral_case, normal, select, workload


def test_names_and_groups_select() -> None:
    assert [each.name for each in select(["tiny-call-16"])] == ["tiny-call-16"]
    assert {each.group for each in select(["sums"])} == {"sums"}
    assert {each.name for each in select(["*-bf16"])} <= {each.name for each in select()}
    assert select(["no such thing"]) == []


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ValueError, match="tiny-call-16"):
        workload("pointwise", {"tiny-call-16": normal(2)})(workloads.tiny)


def test_a_case_is_the_same_every_time() -> None:
    first, second = (neutral_case("x", workloads.softmax, normal(2, 3)) for _ in range(2))
    assert torch.equal(first.inputs[0], second.inputs[0])


def test_the_reference_is_in_float64_from_the_same_inputs() -> None:
    case = neutral_case("x", workloads.add_layer_norm, workloads.normed(4, 8))
    (reference,), (eager,) = case.reference(), case.outputs()
    assert reference.dtype == torch.float64
    torch.testing.assert_close(reference.float(), eager)
    assert case.inputs[0].dtype == torch.float32


@pytest.mark.parametrize(
    ("function", "make", "expected"),
    [
        (workloads.add_rms_norm, workloads.normed(4, 8, constants=1), (2 * 128 + 32, 2 * 128)),
        (workloads.strided_argument, workloads.strided(4, 8), (256, 128)),
        (workloads.argmax, normal(4, 8), (128, 32)),
    ],
)
def test_traffic_counts_what_inputs_span_and_outputs_hold(
    function: object, make: object, expected: tuple[int, int]
) -> None:
    assert traffic(neutral_case("x", function, make)) == expected


def test_results_are_flattened() -> None:
    one = torch.ones(1)
    assert len(flat([one, (one, one)])) == 3
    with pytest.raises(TypeError):
        flat(1.0)


def test_views_are_views() -> None:
    assert not workloads.strided(4, 6)().inputs[0].is_contiguous()
    assert not workloads.transposed(4, 6)().inputs[0].is_contiguous()
    assert workloads.transposed(4, 6)().inputs[0].shape == (4, 6)


def test_every_family_has_workloads_that_tell_most() -> None:
    for family in workloads.families():
        found = [each for each in select() if each.group == family]
        assert 0 < sum(each.telling for each in found) <= len(found)
    with pytest.raises(ValueError, match="unknown"):
        workload("pointwise", {"known": normal(2)}, telling=("unknown",))


def test_enough_shapes_are_measured() -> None:
    products = [each for each in select() if each.group == "matmul"]
    assert len(products) >= 40
    assert {"square-64", "square-2048", "llama-1x4096x11008"} <= {each.name for each in products}
    assert len([each for each in select() if each.group == "convolution"]) >= 50


@pytest.mark.parametrize(
    ("build", "arguments"),
    [
        (workloads.bert, {"batch": 1, "tokens": 8, "layers": 1}),
        (workloads.gpt2, {"batch": 2, "decode": True, "layers": 1}),
        (workloads.llama, {"batch": 1, "decode": False, "layers": 1}),
    ],
)
def test_activations_of_language_models_keep_their_size(
    build: workloads.Builder, arguments: dict[str, object]
) -> None:
    torch.manual_seed(0)
    module, inputs = build(**arguments)
    sizes = workloads.magnitudes(module.eval(), inputs)
    assert sizes and all(1e-3 < size < 1e3 for size in sizes.values())


@pytest.mark.slow
def test_activations_of_vision_models_keep_their_size() -> None:
    torch.manual_seed(0)
    module, inputs = workloads.mobilenet(batch=1)
    sizes = workloads.magnitudes(module.eval(), inputs)
    assert all(1e-2 < size < 1e2 for size in sizes.values())


def test_a_decoder_gives_scores_and_a_longer_cache() -> None:
    module, inputs = workloads.llama(batch=2, decode=True, layers=1)
    with torch.no_grad():
        scores, keys, values = module.eval()(*inputs)
    assert scores.shape == (2, 1, 32000)
    assert keys.shape == values.shape == (2, 12, 129, 64)
    assert torch.equal(keys[:, :, :128], inputs[1])
