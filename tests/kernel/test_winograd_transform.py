"""The transforms of Winograd's method are exact, but for rounding."""

from __future__ import annotations

import numpy as np
import pytest

from monograph.ir.types import f32
from monograph.kernel import expr as e
from monograph.kernel.winograd_transform import (
    F2,
    F2_STRIDED,
    F2X4,
    F4,
    FOUR,
    TWO,
    TWO_STRIDED,
    Lines,
)
from tests.kernel.evaluate_expr import evaluate


@pytest.mark.parametrize("lines", [TWO, FOUR, TWO_STRIDED], ids=["2", "4", "strided"])
def test_transformed_products_are_the_results_of_a_window(lines: Lines) -> None:
    elements = [e.variable(f"d{k}", f32) for k in range(lines.span)]
    taps = [e.variable(f"g{k}", f32) for k in range(3)]
    left, weights = lines.of_input(elements), lines.of_weights(taps)
    right = [weights[number] for number in lines.serving]
    products = [e.apply("multiply", a, b) for a, b in zip(left, right, strict=True)]
    generator = np.random.default_rng(0)
    data = {each: generator.normal(size=100).astype(np.float32) for each in (*elements, *taps)}
    for k, result in enumerate(lines.of_products(products)):
        exact = sum(
            data[elements[k * lines.stride + tap]].astype(np.float64) * data[taps[tap]]
            for tap in range(3)
        )
        np.testing.assert_allclose(evaluate(result, data), exact, atol=2e-5)


def test_multiplications_saved() -> None:
    assert [each.fewer for each in (F2, F2X4, F4, F2_STRIDED)] == [2.25, 3.0, 4.0, 1.44]


def test_names_tell_rows_from_columns() -> None:
    assert [each.name for each in (F2X4, F2_STRIDED)] == ["F(2×4)", "F(2×2) at stride 2"]


def test_planes_of_weights_that_serve_several_planes_of_the_input_come_last() -> None:
    assert [(part.count, part.copies) for part in F2_STRIDED.parts()] == [(9, 1), (6, 2), (1, 4)]
    served = []
    for part in F2_STRIDED.parts():
        for k in range(part.count * part.copies):
            served.append((part.first + k, part.weight + k // part.copies))
    serving = TWO_STRIDED.serving
    expected = [
        (plane, F2_STRIDED.weight_numbers[serving[i], serving[j]])
        for (i, j), plane in F2_STRIDED.numbers.items()
    ]
    assert served == sorted(expected)
    assert F2_STRIDED.weight_planes == 16
