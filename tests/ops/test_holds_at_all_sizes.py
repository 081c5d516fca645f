"""Type rules that are said to hold at all sizes do: none refuses one, or gives another type."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from monograph.errors import MonographError
from monograph.frontends.trace import trace
from monograph.ir.dims import Dim, Symbol, evaluate_dim
from monograph.ir.graph import infer_types
from monograph.ir.op import Op
from monograph.ir.types import TensorType, f32, symbols_of, type_of_array
from monograph.ops import data, elementwise, joining, linalg, reduce, shape, slicing
from monograph.runtime.sizes import guards_of
from tests.ops.harness import all_samples

SIZES = (0, 1, 2, 3, 5, 8)
M, N = Symbol("m", 0), Symbol("n", 0)
OPERANDS = TensorType(f32, (M, 4)), TensorType(f32, (N, 4))


def _symbolic(shapes: list[tuple[int, ...]], keep: frozenset[int]) -> list[tuple[Dim, ...]]:
    """The shapes with a symbol for each number but those that are kept."""
    return [tuple(d if d in keep else Symbol(f"s{d}", 0) for d in shape) for shape in shapes]


def _claims() -> list[tuple[str, Op, list[TensorType]]]:
    """Ops of samples that say so of operands with symbols in place of some of their numbers."""
    found = []
    for name, sample in all_samples():
        if not isinstance(sample.apply, Op):
            continue
        shapes = [operand.shape for operand in sample.operands]
        numbers = sorted({dim for shape in shapes for dim in shape})[:4]
        for count in range(1, len(numbers) + 1):
            for freed in itertools.combinations(numbers, count):
                keep = frozenset(set(numbers) - set(freed)) | {1}
                types = [
                    type_of_array(operand).with_shape(dims)
                    for operand, dims in zip(sample.operands, _symbolic(shapes, keep), strict=True)
                ]
                if any(not each.is_static for each in types) and _claims_it(sample.apply, types):
                    found.append((name, sample.apply, types))
    x = TensorType(f32, (M, 2 * N))
    found += [
        ("halves", shape.Reshape((M, N, 2)), [x]),
        ("rows", shape.Expand((3, M, 2 * N)), [x]),
        ("counts", data.Iota((M, N)), []),
        ("filled", data.Full((N,), 1.0, f32), []),
        ("part", slicing.Slice((1, N), (M, N + 3), (1, 2)), [x]),
    ]
    assert all(_claims_it(op, types) for _, op, types in found)
    return found


def _claims_it(op: Op, types: list[TensorType]) -> bool:
    try:
        infer_types(op, types, ())
    except MonographError:
        return False
    return op.holds_at_all_sizes(*types)


def test_what_is_said_to_hold_at_all_sizes_does() -> None:
    claims = _claims()
    assert {"reshape", "concat", "matmul", "slice", "sum", "softmax"} <= {c[1].name for c in claims}
    for name, op, types in claims:
        expected = infer_types(op, types, ())
        named = {symbol for each in types for symbol in symbols_of(each)} | set(op.symbols())
        symbols = sorted(named, key=lambda symbol: symbol.name)
        for sizes in itertools.islice(itertools.product(SIZES, repeat=len(symbols)), 40):
            bindings: dict[Symbol, Any] = dict(zip(symbols, sizes, strict=True))
            given = [_at(each, bindings) for each in types]
            got = infer_types(op.substitute(bindings), given, ())
            assert list(got) == [_at(each, bindings) for each in expected], (name, bindings)


def _at(type_: Any, bindings: dict[Symbol, int]) -> TensorType:
    return type_.with_shape(tuple(evaluate_dim(dim, bindings) for dim in type_.shape))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: linalg.matmul(x, shape.transpose(y, (1, 0))),
        lambda x, y: joining.concat([x, y], 0),
        lambda x, y: elementwise.add(x[:, None], shape.reshape(y, (1, N, 4))),
        lambda x, y: [reduce.sum(slicing.slice(x, (0, 1), (2, 4)), 1), shape.expand(y, (3, N, 4))],
    ],
    ids=["product", "concat", "broadcast", "slice"],
)
def test_rules_that_hold_at_all_sizes_are_not_asked_again(function: Any) -> None:
    assert not guards_of(trace(function, *OPERANDS))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x + y,
        lambda x, y: joining.concat([x, y], 1),
        lambda x, y: reduce.max(x, 0),
        lambda x, y: linalg.matmul(shape.transpose(x, (1, 0)), y),
    ],
    ids=["two symbols", "concat", "no maximum of nothing", "two inner sizes"],
)
def test_rules_that_may_refuse_a_size_are(function: Any) -> None:
    assert guards_of(trace(function, *OPERANDS))
