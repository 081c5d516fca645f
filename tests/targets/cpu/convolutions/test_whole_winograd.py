"""3×3 convolutions of bytes by Winograd's method, in whole numbers: exact on every shape."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import monograph
from monograph.compiler import Options, compile_graph
from monograph.ir.build import apply
from monograph.ir.graph import Graph
from monograph.ir.types import dtype_of, i32, u8
from monograph.kernel import expr as e
from monograph.kernel.evaluate import evaluate_kernel
from monograph.kernel.kernel import Store, write_kernel
from monograph.kernel.winograd_transform import WHOLE_F2, WHOLE_F2X4, Transform
from monograph.ops.conv.integer import IntegerConv
from monograph.targets.cpu import costs
from monograph.targets.cpu.convolutions import winograd as family
from monograph.targets.cpu.convolutions.winograd_loops import divide_exactly
from monograph.targets.cpu.machine import machine_named
from tests.targets.cpu.convolutions.test_winograd import reasons
from tests.targets.cpu.convolutions.test_winograd_loops import convolution

AVX2 = machine_named("x86-64-v3")
BOTH = pytest.mark.parametrize("transform", [WHOLE_F2, WHOLE_F2X4], ids=["F2", "F2X4"])
LIMITS = {"u8": (0, 255), "i8": (-128, 127)}


@pytest.fixture(autouse=True)
def _whatever_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests are about small convolutions, also on machines that multiply bytes directly."""
    always = replace(costs.GENERIC.winograd, max_share=1e9)
    monkeypatch.setattr(costs, "GENERIC", replace(costs.GENERIC, winograd=always))
    monkeypatch.setattr(family, "MIN_GROUP_CHANNELS", 1)
    monkeypatch.setattr(family, "refuse_bytes", lambda node, machine: None)


def take(monkeypatch: pytest.MonkeyPatch, transform: Transform) -> None:
    monkeypatch.setattr(family, "list_whole_transforms", lambda convolution: [transform])


def trace(types: str, weight: Any, zero: int, **how: Any) -> Graph:
    """A convolution of bytes around which ``zero`` lies."""
    op = IntegerConv((1, 1), how.get("padding", ((1, 1),) * 2), (1, 1), how.get("groups", 1))

    def model(x: Any) -> Any:
        point = x.graph.add_constant(np.asarray(zero, x.dtype.numpy))
        return apply(op, x, x.graph.add_weight("w", weight), point)

    return monograph.trace(model, types)


def check(graph: Graph, *calls: Any) -> None:
    executable = compile_graph(graph, Options(cache=False))
    assert "exactly, in whole numbers" in reasons(executable)
    for x in calls:
        (got,), (expected,) = executable.run([x]), monograph.interpret(graph, [x])
        np.testing.assert_array_equal(got, expected)


def draw(name: str, *shape: int) -> Any:
    low, high = LIMITS[name]
    made = np.random.default_rng(sum(shape)).integers(low, high + 1, shape)
    return made.astype("u1" if name == "u8" else "i1")


@BOTH
@pytest.mark.parametrize(
    ("shape", "outputs", "groups", "padding"),
    [
        ((1, 16, 8, 8), 16, 1, ((1, 1), (1, 1))),
        ((2, 18, 7, 9), 19, 1, ((0, 2), (1, 0))),
        ((2, 8, 5, 6), 12, 2, ((0, 0), (1, 1))),
        ((3, 2, 3, 3), 1, 1, ((0, 0), (0, 0))),
    ],
    ids=str,
)
def test_every_shape(
    transform: Transform, shape: Any, outputs: int, groups: int, padding: Any, monkeypatch: Any
) -> None:
    take(monkeypatch, transform)
    weight = draw("i8", outputs, shape[1] // groups, 3, 3)
    types = f"u8[{', '.join(map(str, shape))}]"
    check(trace(types, weight, 100, groups=groups, padding=padding), draw("u8", *shape))


@BOTH
@pytest.mark.parametrize(("image", "weights"), [("u8", "i8"), ("i8", "i8"), ("i8", "u8")])
def test_the_largest_sums(transform: Transform, image: str, weights: str, monkeypatch: Any) -> None:
    take(monkeypatch, transform)
    ends = [LIMITS[name] for name in (image, weights)]
    weight = draw(weights, 3, 64, 3, 3)
    weight[0], weight[1] = ends[1]
    calls = [np.full((1, 64, 5, 7), end).astype(draw(image, 1).dtype) for end in ends[0]]
    mixed = calls[0].copy()
    mixed[..., ::2, ::2] = ends[0][1]
    check(trace(f"{image}[1, 64, 5, 7]", weight, ends[0][1], groups=1), *calls, mixed)


def test_sizes_that_are_known_late() -> None:
    graph = trace("u8[n, 6, h, w]", draw("i8", 5, 6, 3, 3), 7)
    check(graph, *(draw("u8", *shape) for shape in ((1, 6, 5, 9), (3, 6, 1, 2))))


def test_an_odd_number_of_channels_is_multiplied_directly() -> None:
    graph = trace("u8[1, 5, 6, 6]", draw("i8", 4, 5, 3, 3), 0)
    assert "Winograd" not in reasons(compile_graph(graph, Options(cache=False)))


@pytest.mark.parametrize(("weights", "both", "one"), [("i8", 456, 1827), ("u8", 229, 917)])
def test_results_times_the_power_of_two_are_of_32_bits(weights: str, both: int, one: int) -> None:
    for channels, expected in (
        (both, [WHOLE_F2, WHOLE_F2X4]),
        (both + 1, [WHOLE_F2]),
        (one, [WHOLE_F2]),
        (one + 1, []),
    ):
        found = replace(
            convolution(channels=channels, features=4, size=(9, 9)),
            element=e.literal(0, u8),
            weight=e.literal(0, dtype_of(weights)),
        )
        assert family.list_whole_transforms(found) == expected


def test_bytes_that_an_instruction_multiplies_are_not_transformed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    graph = trace("u8[1, 16, 8, 8]", draw("i8", 16, 16, 3, 3), 0)
    (node,) = (node for node in graph.nodes if node.op.name == "integer_conv")
    assert family.refuse_bytes(node, AVX2) is None
    quick = replace(AVX2, features=f"{AVX2.features},+avxvnni")
    assert "four of its bytes" in (family.refuse_bytes(node, quick) or "")
    assert "no instruction" in (family.refuse_bytes(node, machine_named("riscv64")) or "")


@pytest.mark.parametrize("divisor", [1, 4, 48, 3, 10])
def test_multiples_are_divided_though_they_wrapped(divisor: int) -> None:
    axis = e.axis("_i_k", 4)
    place = (e.index(axis.symbol),)
    given, made = e.Buffer("given", i32, (4,)), e.Buffer("made", i32, (4,))
    value = divide_exactly(e.load(given, place), divisor)
    kernel = write_kernel("divide", (axis,), Store(made, place, value))
    power = divisor & -divisor
    most = (2**31 - 1) // power
    numbers = np.array([0, -1, most, -most - 1 if power > 1 else -most])
    wrapped = (numbers * divisor).astype(np.int64).astype(np.uint32).astype(np.int32)
    (got,) = evaluate_kernel(kernel, [wrapped])
    np.testing.assert_array_equal(got, numbers)
