"""Checks that every op passes on every one of its samples; ``test_samples.py`` runs them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from monograph.autodiff.vjp import grad
from monograph.errors import TypeRuleError
from monograph.frontends.trace import trace
from monograph.ir.compare import structurally_equal
from monograph.ir.dims import Symbol, substitute_shape
from monograph.ir.graph import Graph, Value, infer_types
from monograph.ir.interpret import interpret
from monograph.ir.op import Op, Sample, registry
from monograph.ir.text.parser import parse
from monograph.ir.text.printer import print_graph
from monograph.ir.types import TensorType, f64, type_of_array
from monograph.ir.verify import verify
from monograph.ops import elementwise, reduce


def all_samples() -> Iterator[tuple[str, Sample]]:
    """Every sample of every op in the package, named for test reports."""
    for name, cls in sorted(registry().items()):
        if name.startswith("test."):
            continue
        for index, sample in enumerate(cls.samples()):
            note = sample.note.replace(" ", "-")
            yield f"{name}-{index}{'-' + note if note else ''}", sample


def samples_by_op() -> dict[str, list[tuple[str, Sample]]]:
    """The samples of each op of the package."""
    found: dict[str, list[tuple[str, Sample]]] = {}
    for name, sample in all_samples():
        found.setdefault(name.split("-")[0], []).append((name, sample))
    return found


def check_each(samples: Sequence[tuple[str, Sample]], check: Callable[[Sample], None]) -> None:
    """Check samples one after the other; a failure says which it was.

    There are thousands: were each a test of its own, most of the time would go into being tests.
    """
    for name, sample in samples:
        try:
            check(sample)
        except Exception as error:
            error.add_note(f"in the sample {name}")
            raise


def sample_graph(sample: Sample, operands: Sequence[np.ndarray] | None = None) -> Graph:
    """The graph of a sample's call, with its operands as inputs."""
    given = sample.operands if operands is None else operands
    return trace(
        sample.apply, *[type_of_array(np.asarray(array)) for array in given], name="sample"
    )


def check_evaluation(sample: Sample) -> None:
    """The graph verifies, runs, and gives exactly the types that inference promised."""
    graph = sample_graph(sample)
    verify(graph)
    results = interpret(graph, list(sample.operands))
    for value, result in zip(graph.outputs, results, strict=True):
        assert isinstance(value.type, TensorType)
        assert result.dtype == value.type.dtype.numpy
        if value.type.is_static:
            assert result.shape == value.type.shape


def check_text(sample: Sample) -> None:
    """The graph prints and parses back to an equal one."""
    graph = sample_graph(sample)
    again = parse(print_graph(graph))
    assert structurally_equal(graph, again, names=True)


def check_symbolic(sample: Sample) -> None:
    """Inference with a symbol for the first dimension gives the static result once bound."""
    if not isinstance(sample.apply, Op) or sample.apply.region_names:
        return
    static = [type_of_array(np.asarray(array)) for array in sample.operands]
    if not static or not static[0].shape:
        return
    size = static[0].shape[0]
    symbol = Symbol("n", 0)
    symbolic = [
        TensorType(t.dtype, (symbol, *t.shape[1:])) if t.shape and t.shape[0] == size else t
        for t in static
    ]
    expected = infer_types(sample.apply, static, ())
    try:
        inferred = infer_types(sample.apply, symbolic, ())
    except TypeRuleError as error:
        raise AssertionError(f"a symbolic first dimension is refused: {error}") from error
    for exact, general in zip(expected, inferred, strict=True):
        assert isinstance(exact, TensorType)
        assert isinstance(general, TensorType)
        assert exact.dtype is general.dtype
        bound = substitute_shape(general.shape, {symbol: size})
        if all(isinstance(dim, int) for dim in bound):
            assert bound == exact.shape


def check_decomposition(sample: Sample) -> None:
    """A composite's decomposition computes what its evaluation does."""
    if not isinstance(sample.apply, Op) or not sample.apply.is_composite():
        return
    whole = interpret(sample_graph(sample), list(sample.operands))
    lowered = Sample(sample.apply.decompose, sample.operands)
    graph = sample_graph(lowered)
    verify(graph)
    parts = interpret(graph, list(sample.operands))
    for got, expected in zip(parts, whole, strict=True):
        assert got.dtype == expected.dtype
        assert_close(got, expected)


def check_gradient(sample: Sample) -> None:
    """Gradients agree with central differences in float64 along random directions."""
    if not sample.gradient:
        return
    operands = [_as_f64(np.asarray(array)) for array in sample.operands]
    wrt = [i for i, array in enumerate(operands) if array.dtype == np.float64 and array.size]
    if not wrt or (isinstance(sample.apply, Op) and not _has_gradient(sample.apply)):
        return
    graph = trace(_projected_loss(sample.apply), *operands)
    if not graph.outputs:
        return
    gradients = interpret(grad(graph, wrt), operands)
    generator = np.random.default_rng(7)
    for position, gradient in zip(wrt, gradients, strict=True):
        direction = generator.normal(size=operands[position].shape)
        step = 1e-6 / max(1.0, float(np.abs(direction).max(initial=0.0)))
        ends = []
        for sign in (1.0, -1.0):
            moved = list(operands)
            moved[position] = operands[position] + sign * step * direction
            ends.append(float(interpret(graph, moved)[0]))
        numeric = (ends[0] - ends[1]) / (2 * step)
        analytic = float(np.sum(gradient * direction))
        scale = max(1.0, abs(numeric), float(np.abs(gradient).max(initial=0.0)))
        assert abs(numeric - analytic) <= 2e-5 * scale, (position, numeric, analytic)


def check_against_torch(sample: Sample, reference: Callable[..., Any]) -> None:
    """Values, and gradients where the sample allows them, agree with torch's."""
    import torch

    op = sample.apply
    tensors = [torch.tensor(np.array(array)) for array in sample.operands]
    expected = _as_list(reference(op, *tensors))
    results = interpret(sample_graph(sample), list(sample.operands))
    for got, want in zip(results, expected, strict=False):
        assert_close(got, want.numpy(), special=True)
    if not sample.gradient or not isinstance(op, Op) or not _has_gradient(op):
        return
    operands = [_as_f64(np.asarray(array)) for array in sample.operands]
    wrt = [i for i, array in enumerate(operands) if array.dtype == np.float64]
    graph = trace(_projected_loss(op), *operands)
    if not wrt or not graph.outputs:
        return
    leaves = [torch.tensor(array, requires_grad=i in wrt) for i, array in enumerate(operands)]
    outputs = _as_list(reference(op, *leaves))
    loss = sum(
        (output * torch.tensor(_weights(tuple(output.shape)))).sum()
        for output in outputs
        if output.is_floating_point()
    )
    theirs = torch.autograd.grad(loss, [leaves[i] for i in wrt], allow_unused=True)
    for ours, their in zip(interpret(grad(graph, wrt), operands), theirs, strict=True):
        assert_close(ours, np.zeros_like(ours) if their is None else their.numpy(), relative=1e-6)


def assert_close(
    got: np.ndarray, expected: np.ndarray, *, relative: float = 1e-5, special: bool = False
) -> None:
    """Equal within rounding; NaN and infinities must stand in the same places."""
    assert got.shape == expected.shape, (got.shape, expected.shape)
    if got.dtype.kind in "fc" or (got.dtype.itemsize <= 2 and got.dtype.kind == "V"):
        wide = np.complex128 if got.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(
            got.astype(wide), expected.astype(wide), rtol=relative, atol=relative * 1e-1
        )
    else:
        np.testing.assert_array_equal(got, expected)


def _projected_loss(apply: Callable[..., Any]) -> Callable[..., Any]:
    """Sum of every float result times fixed weights: one number that depends on all of them."""

    def loss(*operands: Value) -> Any:
        results = _as_list(apply(*operands))
        total = None
        for result in results:
            if result.dtype is not f64:
                continue
            term = reduce.sum(elementwise.multiply(result, _weights(result.shape)))
            total = term if total is None else total + term
        return [] if total is None else [total]

    return loss


def _weights(shape: tuple[Any, ...]) -> np.ndarray:
    return np.random.default_rng(3).normal(size=shape)


def _has_gradient(op: Op) -> bool:
    return op.is_differentiable() or op.is_composite()


def _as_f64(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def _as_list(results: Any) -> list[Any]:
    return list(results) if isinstance(results, tuple | list) else [results]
