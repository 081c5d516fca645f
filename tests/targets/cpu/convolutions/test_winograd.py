"""3×3 convolutions by Winograd's method: right on every shape, exact as stated, and chosen well."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.errors import InputError
from monograph.ir.types import DType, bf16, f16
from monograph.kernel.winograd_transform import F2, F2_STRIDED, F2X4, F4, Transform
from monograph.runtime.compiled import Executable
from monograph.targets.cpu import costs
from monograph.targets.cpu.convolutions import winograd as family
from monograph.targets.cpu.convolutions.winograd import ERROR, choose, list_transforms, plan_for
from monograph.targets.cpu.convolutions.winograd_loops import Winograd
from monograph.targets.cpu.machine import machine_named
from tests.targets.cpu.convolutions.test_winograd_loops import EACH, convolution

MACHINE = machine_named("x86-64")
TOLERANT = 1e-5
BOTH = pytest.mark.parametrize("tolerance", [None, TOLERANT], ids=["untold", "tolerant"])
BOUND = {None: ERROR[F2X4], TOLERANT: ERROR[F4]}


@pytest.fixture(autouse=True)
def _however_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests are about small convolutions, which would not be worth it."""
    always = replace(costs.GENERIC.winograd, max_share=1e9)
    monkeypatch.setattr(costs, "GENERIC", replace(costs.GENERIC, winograd=always))
    monkeypatch.setattr(family, "MIN_GROUP_CHANNELS", 1)


def compiled(function: Any, *types: Any, tolerance: float | None = None) -> Executable:
    graph = monograph.trace(function, *types)
    return compile_graph(graph, Options(cache=False, winograd_tolerance=tolerance))


def reasons(executable: Executable) -> str:
    assert executable.program is not None
    groups = executable.program.fusions[0].groups
    return "; ".join(reason for group in groups for reason in (*group.joined, *group.apart))


def draw(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def force(monkeypatch: pytest.MonkeyPatch, transform: Transform, **changes: Any) -> None:
    """Take one transform, and change the plan."""

    def chosen(convolution: Any, machine: Any, constant: bool, tolerance: Any) -> family.Choice:
        plan = plan_for(convolution, transform, machine)
        return family.Choice(replace(plan, **changes), transform.name)

    monkeypatch.setattr(family, "choose", chosen)


def doubled(function: Any, inputs: list[Any]) -> list[Any]:
    graph = monograph.trace(function, *(x.astype(np.float64) for x in inputs))
    return monograph.interpret(graph, [x.astype(np.float64) for x in inputs])


def compare(
    function: Any, inputs: list[Any], tolerance: float | None = None, types: Any = None
) -> None:
    """Compile, run, and compare with the function in double precision."""
    compare_each(function, [inputs], tolerance, types)


def compare_each(
    function: Any, calls: list[list[Any]], tolerance: float | None = None, types: Any = None
) -> None:
    """Compile once, and compare every call with the function in double precision."""
    executable = compiled(function, *(types or calls[0]), tolerance=tolerance)
    assert "Winograd" in reasons(executable) or "F(" in reasons(executable)
    for number, inputs in enumerate(calls):
        (got,), (exact,) = executable.run(inputs), doubled(function, inputs)
        shapes = [x.shape for x in inputs]
        assert got.shape == exact.shape, f"call {number}, of {shapes}"
        error, largest = np.abs(got - exact).max(), np.abs(exact).max()
        assert error <= BOUND[tolerance] * largest, f"call {number}, of {shapes}"


# Results.

SHAPES = [
    ((1, 16, 8, 8), 16, 1),
    ((2, 17, 7, 9), 19, 1),
    ((3, 16, 5, 4), 40, 0),
    ((1, 24, 1, 1), 16, 1),
    ((2, 16, 6, 13), 33, ((0, 2), (1, 0))),
    ((1, 16, 4, 5), 16, 3),
    ((5, 20, 3, 3), 16, 0),
]


@BOTH
@pytest.mark.parametrize(("shape", "outputs", "padding"), SHAPES, ids=str)
def test_every_shape(shape: Any, outputs: int, padding: Any, tolerance: float | None) -> None:
    weight = draw(outputs, shape[1], 3, 3)
    compare(
        lambda x: F.conv(x, weight.astype(x.dtype.numpy), padding=padding),
        [draw(*shape)],
        tolerance,
    )


@pytest.mark.parametrize("whole", [False, True], ids=["fused", "whole"])
@EACH
@pytest.mark.parametrize("block", [6, 60])
def test_every_plan(
    monkeypatch: pytest.MonkeyPatch, transform: Transform, block: int, whole: bool
) -> None:
    force(monkeypatch, transform, block=block, rows=6, whole=whole, prefetch=block == 6)
    weight = draw(20, 16, 3, 3)
    x, stride = draw(2, 16, 11, 9), transform.stride

    def function(x: Any) -> Any:
        return F.conv(x, weight.astype(x.dtype.numpy), stride=stride, padding=1)

    (got,), (exact,) = compiled(function, x).run([x]), doubled(function, [x])
    assert np.abs(got - exact).max() <= ERROR[transform] * np.abs(exact).max()


@pytest.mark.parametrize(("shape", "outputs", "padding"), SHAPES, ids=str)
def test_every_shape_at_stride_two(shape: Any, outputs: int, padding: Any) -> None:
    weight, bias = draw(outputs, shape[1], 3, 3), draw(outputs)

    def function(x: Any) -> Any:
        made = [array.astype(x.dtype.numpy) for array in (weight, bias)]
        return F.relu(F.conv(x, *made, stride=2, padding=padding))

    compare(function, [draw(*shape)])


@BOTH
@pytest.mark.parametrize("dilation", [2, (1, 3), (6, 4)], ids=str)
@pytest.mark.parametrize("padding", [0, 5, ((2, 0), (1, 4))], ids=str)
def test_windows_with_gaps(dilation: Any, padding: Any, tolerance: float | None) -> None:
    weight, bias = draw(20, 16, 3, 3), draw(20)

    def function(x: Any) -> Any:
        made = [array.astype(x.dtype.numpy) for array in (weight, bias)]
        return F.relu(F.conv(x, *made, padding=padding, dilation=dilation))

    compare(function, [draw(2, 16, 15, 13)], tolerance)


def test_windows_with_gaps_over_symbolic_sizes() -> None:
    weight = draw(16, 16, 3, 3)

    def function(x: Any) -> Any:
        return F.conv(x, weight.astype(x.dtype.numpy), padding=2, dilation=2)

    calls = [[draw(2, 16, *sizes)] for sizes in ((5, 6), (1, 9))]
    compare_each(function, calls, types=["f32[n, 16, h, w]"])


@BOTH
def test_what_is_computed_of_the_result(tolerance: float | None) -> None:
    weight, bias, residual = draw(20, 16, 3, 3), draw(20), draw(2, 20, 7, 6)

    def function(x: Any) -> Any:
        made = [array.astype(x.dtype.numpy) for array in (weight, bias, residual)]
        return F.relu(F.conv(x, made[0], made[1], padding=1) * 0.5 + made[2])

    compare(function, [draw(2, 16, 7, 6)], tolerance)


def test_several_results_of_one_group() -> None:
    weight = draw(16, 16, 3, 3)

    def function(x: Any) -> Any:
        y = F.conv(x, weight.astype(x.dtype.numpy), padding=1)
        return y, F.relu(y)

    x = draw(1, 16, 6, 5)
    for got, exact in zip(compiled(function, x).run([x]), doubled(function, [x]), strict=True):
        assert np.abs(got - exact).max() <= BOUND[None] * np.abs(exact).max()


@BOTH
def test_channels_last_on_both_sides(tolerance: float | None) -> None:
    weight = draw(24, 16, 3, 3)

    def function(x: Any) -> Any:
        turned = F.transpose(x, (0, 3, 1, 2))
        y = F.conv(turned, weight.astype(x.dtype.numpy), padding=1)
        return F.transpose(F.relu(y), (0, 2, 3, 1))

    compare(function, [draw(2, 9, 6, 16)], tolerance)


@BOTH
def test_a_chain_of_convolutions(tolerance: float | None) -> None:
    weights = [draw(16, 16, 3, 3) * 0.1 for _ in range(3)]

    def function(x: Any) -> Any:
        for weight in weights:
            x = F.relu(F.conv(x, weight.astype(x.dtype.numpy), padding=1)) + x
        return x

    compare(function, [draw(2, 16, 9, 7)], tolerance)


@BOTH
def test_groups(tolerance: float | None) -> None:
    weight = draw(40, 16, 3, 3)
    compare(
        lambda x: F.conv(x, weight.astype(x.dtype.numpy), padding=1, groups=2),
        [draw(1, 32, 7, 5)],
        tolerance,
    )


@BOTH
def test_weights_that_are_given_with_each_call(tolerance: float | None) -> None:
    inputs = [draw(1, 16, 6, 7), draw(18, 16, 3, 3)]
    compare(lambda x, w: F.conv(x, w, padding=1), inputs, tolerance)


SIZES = [(1, 5, 6), (3, 8, 4), (2, 1, 1)]


@BOTH
def test_symbolic_sizes(tolerance: float | None) -> None:
    weight = draw(16, 16, 3, 3)
    compare_each(
        lambda x: F.relu(F.conv(x, weight.astype(x.dtype.numpy), padding=1)),
        [[draw(batch, 16, height, width)] for batch, height, width in SIZES],
        tolerance,
        ["f32[n, 16, h, w]"],
    )


def test_symbolic_sizes_and_groups_at_stride_two() -> None:
    weight = draw(32, 16, 3, 3)
    compare_each(
        lambda x: F.conv(x, weight.astype(x.dtype.numpy), stride=2, padding=1, groups=2),
        [[draw(batch, 32, height, width)] for batch, height, width in SIZES],
        types=["f32[n, 32, h, w]"],
    )


def test_an_empty_batch() -> None:
    weight = draw(16, 16, 3, 3)
    executable = compiled(lambda x: F.conv(x, weight, padding=1), "f32[0, 16, 4, 4]")
    (got,) = executable.run([draw(0, 16, 4, 4)])
    assert got.shape == (0, 16, 4, 4)


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
def test_narrow_floats_are_computed_in_f32(dtype: DType) -> None:
    weight = draw(16, 16, 3, 3)
    numpy_dtype = dtype.numpy
    executable = compiled(
        lambda x: F.conv(x, weight.astype(numpy_dtype), padding=1), f"{dtype}[1, 16, 6, 6]"
    )
    assert "Winograd" in reasons(executable)
    x = draw(1, 16, 6, 6).astype(numpy_dtype)
    (got,) = executable.run([x])
    (exact,) = doubled(
        lambda x: F.conv(x, weight.astype(numpy_dtype).astype(np.float64), padding=1), [x]
    )
    rounding = 2.0**-10 if dtype is f16 else 2.0**-7
    assert np.abs(got.astype(np.float64) - exact).max() <= rounding * np.abs(exact).max()


def test_threads_do_not_change_the_result() -> None:
    weight, x = draw(32, 16, 3, 3), draw(3, 16, 20, 20)
    graph = monograph.trace(lambda x: F.conv(x, weight, padding=1), x)
    one, two = (
        compile_graph(graph, Options(cache=False, threads=count)).run([x])[0] for count in (1, 2)
    )
    assert np.array_equal(one, two)


# Error.


@BOTH
@pytest.mark.parametrize(("channels", "size"), [(16, 12), (64, 9), (256, 6), (512, 7)])
def test_the_stated_error_holds(channels: int, size: int, tolerance: float | None) -> None:
    weight = draw(32, channels, 3, 3)
    compare(
        lambda x: F.conv(x, weight.astype(x.dtype.numpy), padding=1),
        [draw(2, channels, size, size)],
        tolerance,
    )


@pytest.mark.parametrize("channels", [16, 256, 1024])
def test_the_stated_error_holds_at_stride_two(channels: int) -> None:
    weight, x = draw(32, channels, 3, 3), draw(2, channels, 9, 9)

    def function(x: Any) -> Any:
        return F.conv(x, weight.astype(x.dtype.numpy), stride=2, padding=1)

    compare_each(function, [[x], [np.abs(x)], [x**3]])


def test_a_tolerance_allows_what_stays_within_it() -> None:
    assert list_transforms(None) == [F2, F2X4]
    assert list_transforms(None, 2) == list_transforms(ERROR[F4], 2) == [F2_STRIDED]
    assert list_transforms(0.0, 2) == []
    assert list_transforms(0.0) == []
    assert list_transforms(ERROR[F2]) == [F2]
    assert list_transforms(ERROR[F2X4]) == [F2, F2X4]
    assert list_transforms(ERROR[F4]) == [F2, F2X4, F4]


def test_a_tolerance_is_no_negative_number() -> None:
    with pytest.raises(InputError, match="winograd_tolerance"):
        Options(winograd_tolerance=-1.0)
    with pytest.raises(InputError, match="winograd_tolerance"):
        monograph.compile(lambda x: x, "f32[2]", winograd_tolerance=float("nan"))


@pytest.mark.usefixtures("unverified")
def test_the_cache_tells_tolerances_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONOGRAPH_CACHE_DIR", str(tmp_path))
    weight = draw(16, 16, 3, 3)
    graph = monograph.trace(lambda x: F.conv(x, weight, padding=1), "f32[1, 16, 6, 6]")
    states = [
        compile_graph(graph, Options(cache=True, winograd_tolerance=tolerance)).report.cache
        for tolerance in (None, TOLERANT, None)
    ]
    assert states == ["miss", "miss", "hit"]


# Choice.


@pytest.mark.parametrize(
    ("function", "types"),
    [
        (lambda x, w: F.conv(x, w, padding=1, stride=3), ["f32[1,16,8,8]", "f32[16,16,3,3]"]),
        (lambda x, w: F.conv(x, w, padding=1, stride=(1, 2)), ["f32[1,16,8,8]", "f32[16,16,3,3]"]),
        (
            lambda x, w: F.conv(x, w, padding=2, dilation=2, stride=2),
            ["f32[1,16,8,8]", "f32[16,16,3,3]"],
        ),
        (lambda x, w: F.conv(x, w, padding=2), ["f32[1,16,8,8]", "f32[16,16,5,5]"]),
        (lambda x, w: F.conv(x, w, padding=1), ["f32[1,16,8]", "f32[16,16,3]"]),
        (lambda x, w: F.conv(x, w, padding=1), ["f64[1,16,8,8]", "f64[16,16,3,3]"]),
        (lambda x, w: F.conv(x, w, padding=1), ["i32[1,16,8,8]", "i32[16,16,3,3]"]),
        (lambda x, w: F.conv(x, w), ["f32[1,16,2,8]", "f32[16,16,3,3]"]),
    ],
    ids=[
        "stride",
        "uneven stride",
        "dilation and stride",
        "5×5",
        "1-d",
        "f64",
        "integers",
        "no window",
    ],
)
def test_what_it_is_not_for(function: Any, types: list[str]) -> None:
    executable = compiled(function, *types)
    assert "Winograd" not in reasons(executable)
    generator = np.random.default_rng(0)
    inputs = [
        generator.integers(-9, 9, [int(str(d)) for d in v.shape]).astype(v.dtype.numpy)
        for v in executable.graph.inputs
    ]
    (got,), (exact,) = executable.run(inputs), monograph.interpret(executable.graph, inputs)
    np.testing.assert_allclose(got, exact, rtol=1e-5, atol=1e-4)


def test_few_channels_are_multiplied_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    choice = choose(convolution(1, 8, 64, (56, 56)), MACHINE, True)
    assert choice.plan is None
    assert choice.reason.startswith("multiplied directly: 8 to 64 channels")


def test_many_channels_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for channels, size, name in ((64, 56, "2×4"), (256, 14, "2×4"), (512, 7, "2×2")):
        choice = choose(convolution(1, channels, channels, (size, size), border=1), MACHINE, True)
        assert choice.plan is not None
        assert f"Winograd's F({name})" in choice.reason


def test_stride_two_is_transformed_where_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    many = convolution(1, 128, 128, (56, 56), border=1, stride=2)
    choice = choose(many, MACHINE, True)
    assert choice.plan is not None and choice.plan.transform is F2_STRIDED
    assert "F(2×2) at stride 2: 1.44 times fewer multiplications" in choice.reason
    few = convolution(1, 16, 16, (56, 56), border=1, stride=2)
    assert choose(few, MACHINE, True).plan is None


def test_the_larger_transform_needs_enough_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    chosen = {}
    for channels, size in ((64, 56), (512, 7)):
        given = convolution(1, channels, channels, (size, size), border=1)
        plan = choose(given, MACHINE, True, TOLERANT).plan
        assert plan is not None
        chosen[size] = plan.transform
    assert chosen == {56: F4, 7: F2}


def test_windows_that_mostly_see_zeros_are_rounded_as_little_as_can_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    chosen = {}
    for gap in (2, 18):
        given = convolution(1, 256, 64, (32, 32), padding=gap, border=gap, dilation=gap)
        plan = choose(given, MACHINE, True).plan
        assert plan is not None
        chosen[gap] = plan.transform
    assert chosen == {2: F2X4, 18: F2}


def test_few_blocks_share_the_channels_among_threads() -> None:
    small = plan_for(convolution(1, 256, 256, (14, 14)), F2, MACHINE)
    large = plan_for(convolution(1, 64, 64, (56, 56)), F2, MACHINE)
    assert small.whole and not large.whole


def test_weights_that_come_from_far_are_asked_for_in_time() -> None:
    small, large = convolution(1, 64, 64, (56, 56)), convolution(1, 512, 512, (7, 7))
    assert not plan_for(small, F2, MACHINE).prefetch
    plan = plan_for(large, F2, MACHINE)
    assert plan.prefetch
    text = str(Winograd(large, plan).product_nest())
    assert "prefetch" in text
    assert "prefetch" not in str(Winograd(large, replace(plan, prefetch=False)).product_nest())


def test_a_block_of_tiles_fits_in_the_cache() -> None:
    for channels in (16, 64, 128, 512, 2048):
        for transform in (F2, F2X4, F4):
            plan = plan_for(convolution(8, channels, 64, (56, 56)), transform, MACHINE)
            planes = 4 * transform.planes * plan.block * channels
            assert plan.whole or planes <= MACHINE.l2


def test_the_reason_is_explained() -> None:
    weight = draw(32, 32, 3, 3)
    model = monograph.compile(
        lambda x: F.conv(x, weight, padding=1), "f32[1, 32, 30, 30]", cache=False
    )
    assert "3×3 windows by Winograd's F(2×4)" in str(monograph.explain(model))
