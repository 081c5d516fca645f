"""The transforms of Winograd's method are exact, but for rounding."""

from __future__ import annotations

import numpy as np
import pytest

from monograph.ir.types import f32
from monograph.kernel import expr as e
from monograph.kernel.winograd_transform import F2, F2_STRIDED, F4, Transform
from tests.kernel.evaluate_expr import evaluate


@pytest.mark.parametrize("transform", [F2, F4, F2_STRIDED], ids=["F2", "F4", "strided"])
def test_transformed_products_are_the_results_of_a_window(transform: Transform) -> None:
    elements = [e.variable(f"d{k}", f32) for k in range(transform.span)]
    taps = [e.variable(f"g{k}", f32) for k in range(3)]
    left, weights = transform.of_input(elements), transform.of_weights(taps)
    right = [weights[number] for number in transform.serving]
    products = [e.apply("multiply", a, b) for a, b in zip(left, right, strict=True)]
    generator = np.random.default_rng(0)
    data = {each: generator.normal(size=100).astype(np.float32) for each in (*elements, *taps)}
    for k, result in enumerate(transform.of_products(products)):
        exact = sum(
            data[elements[k * transform.stride + tap]].astype(np.float64) * data[taps[tap]]
            for tap in range(3)
        )
        np.testing.assert_allclose(evaluate(result, data), exact, atol=2e-5)


def test_multiplications_saved() -> None:
    assert [9 * each.results**2 / each.planes for each in (F2, F4)] == [2.25, 4.0]
    assert 9 * F2_STRIDED.results**2 / F2_STRIDED.planes == 1.44


def test_planes_of_weights_that_serve_several_planes_of_the_input_come_last() -> None:
    assert [(part.count, part.copies) for part in F2_STRIDED.parts()] == [(9, 1), (6, 2), (1, 4)]
    served = []
    for part in F2_STRIDED.parts():
        for k in range(part.count * part.copies):
            served.append((part.first + k, part.weight + k // part.copies))
    expected = [
        (plane, F2_STRIDED.weight_numbers[F2_STRIDED.serving[i], F2_STRIDED.serving[j]])
        for (i, j), plane in F2_STRIDED.numbers.items()
    ]
    assert served == sorted(expected)
    assert F2_STRIDED.weight_planes == 16
