"""Parts of the compiler are left out one by one; what does nothing is not said to do something."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options
from monograph.inspect.ablate import (
    Ablation,
    Costs,
    Effect,
    Part,
    PartKind,
    State,
    ablate,
    compile_without,
    parts_of,
)
from monograph.inspect.ablate_text import ablation_svg
from monograph.inspect.compare import RatioSpread
from monograph.ir.graph import Graph, Value

X = np.linspace(-1, 1, 128 * 128, dtype=np.float32).reshape(128, 128)


def merged(x: Value) -> Value:
    """Two equal products, of which common subexpression elimination leaves one."""
    return F.softmax((x @ F.exp(x)) * 1.0, -1) + F.softmax(x @ F.exp(x), -1)


def graph() -> Graph:
    return monograph.trace(merged, "f32[128, 128]")


@pytest.fixture(scope="module")
def ablation() -> Ablation:
    return ablate(graph(), Options(threads=1), [X], budget=60.0, rounds=3, alone=False)


def effect(ablation: Ablation, name: str) -> Effect:
    (found,) = (each for each in ablation.without if each.part.name == name)
    return found


def test_what_has_nothing_to_do_is_said_to_do_nothing(ablation: Ablation) -> None:
    for name in ("fold_conv_bn", "quantized", "tile_batch", "fold_attention_masks"):
        assert effect(ablation, name).state is State.IDLE
    assert ablation.needed is None
    for name in ("winograd", "streaming_attention", "depthwise_convolutions"):
        found = effect(ablation, name)
        assert (found.state, found.speedup) == (State.SAME, None)


def test_a_pass_that_merges_kernels_is_missed(ablation: Ablation) -> None:
    found = effect(ablation, "cse")
    assert found.state is State.MEASURED
    assert found.costs is not None and found.costs.kernels > ablation.costs.kernels
    assert found.costs.bytes_moved > ablation.costs.bytes_moved


def test_a_family_of_kernels_is_missed(ablation: Ablation) -> None:
    assert effect(ablation, "tiled_products").state is State.MEASURED
    found = effect(ablation, "vector_loops")  # five times as slow without: no noise hides that
    assert found.speedup is not None
    assert found.speedup.high > 1.5


def test_answers_stay_right(ablation: Ablation) -> None:
    for each in ablation.without:
        if each.costs is not None:
            assert each.costs.error is not None and each.costs.error < 1e-4


def test_the_page_and_the_chart_say_so(ablation: Ablation) -> None:
    lines = str(ablation).splitlines()
    assert max(map(len, lines[1:])) <= 80
    (row,) = [line for line in lines if line.strip().startswith("tiled_products")]
    found = effect(ablation, "tiled_products")
    assert found.costs is not None and f" {found.costs.compile_seconds:.3g}s " in row
    assert (str(found.speedup) if found.counts else "no measurable effect") in row
    assert "compile" in next(line for line in lines if "slower" in line).split()
    root = ElementTree.fromstring(ablation_svg(ablation))
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "tiled_products" in texts


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0"), (999, "999"), (1000, "0.98K"), (640 << 10, "640K"), (1000 << 10, "0.98M")],
)
def test_bytes_take_few_characters(nbytes: int, text: str) -> None:
    costs = Costs(1, nbytes, nbytes, 1.0, None)
    page = str(Ablation("m", 1.0, costs, None, None, (), (), remark="none"))
    assert f" {text} " in next(line for line in page.splitlines() if "  nothing" in line)


def test_rules_of_a_group_are_vetoed() -> None:
    one = monograph.trace(lambda x: F.relu(x) * 1.0, "f32[4]")
    whole, _ = compile_without(one, Options(), [])
    without, _ = compile_without(one, Options(), [Part(PartKind.RULES, "arithmetic")])
    assert len(whole.lowered) < len(without.lowered)


def test_every_part_can_be_left_out_and_all_at_once() -> None:
    options = Options(threads=1)
    parts = parts_of(options)
    assert len(parts) == len(set(parts)) > 30
    bare, _ = compile_without(graph(), options, parts)
    assert bare.report.passes is not None
    whole, _ = compile_without(graph(), options, [])
    assert len(bare.report.kernels) > len(whole.report.kernels)
    np.testing.assert_allclose(bare.run([X])[0], whole.run([X])[0], rtol=1e-4, atol=1e-5)


def test_nothing_is_begun_after_the_budget() -> None:
    found = ablate(graph(), Options(threads=1), [X], budget=1e-3, rounds=3)
    states = {each.state for each in found.without}
    assert states == {State.IDLE, State.SKIPPED}
    assert found.alone == () and "budget" in found.remark
    assert found.needed is not None and found.needed > 1
    assert "all of it takes about --budget" in str(found)
    assert found.explained(found.without) is None


def test_noise_explains_nothing() -> None:
    costs = Costs(1, 1, 1, 1.0, None)

    def part(name: str, speedup: RatioSpread) -> Effect:
        return Effect(Part(PartKind.PASS, name), State.MEASURED, speedup, costs)

    real, noise = part("cse", RatioSpread(2.0, 1.9, 2.1)), part("dce", RatioSpread(1.3, 0.9, 1.6))
    found = Ablation(
        "m", 1.0, costs, RatioSpread(4.0, 3.9, 4.1), costs, (real, noise), (), remark="none"
    )
    assert found.explained(found.without) == pytest.approx(0.5)
    assert "no measurable effect" in str(found)
