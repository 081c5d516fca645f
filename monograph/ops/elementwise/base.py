"""What elementwise ops share: type rules by kind of number, samples, and ways to apply them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from monograph.ir.build import (
    Operand,
    Tracer,
    apply,
    as_operands,
    cast_to,
    graph_of,
    promote_operands,
)
from monograph.ir.graph import Value
from monograph.ir.op import Op, Sample, Trait
from monograph.ir.types import Array, DType, Kind, TensorType, bool_, f32, integer_limits
from monograph.ops.rules import broadcast_shapes, require, same_dtype

ELEMENTWISE = Trait.ELEMENTWISE
COMMUTATIVE = Trait.ELEMENTWISE | Trait.COMMUTATIVE | Trait.ASSOCIATIVE

FLOATS = frozenset({Kind.FLOAT})
COMPLEX = frozenset({Kind.COMPLEX})
CONTINUOUS = FLOATS | COMPLEX
INTEGERS = frozenset({Kind.SIGNED, Kind.UNSIGNED})
REALS = INTEGERS | FLOATS
NUMBERS = REALS | COMPLEX
BOOLEANS = frozenset({Kind.BOOL})
BITS = INTEGERS | BOOLEANS
ORDERED = REALS | BOOLEANS
COUNTED = NUMBERS | BOOLEANS
ANYTHING = frozenset(Kind)

SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.0], np.float32)
INTEGER_EDGES = np.array([-(2**31), -7, -1, 0, 1, 6, 2**31 - 1], np.int32)


def require_kind(name: str, kinds: frozenset[Kind], *types: TensorType) -> None:
    """Refuse operands whose dtype is of none of these kinds, and quantized ones."""
    for type_ in types:
        require(
            type_.quantization is None,
            f"{name}: a quantized operand stands for other numbers than it stores",
            expected="a plain tensor; dequantize it first",
            found=type_,
        )
        if type_.dtype.kind not in kinds:
            words = [kind.name.lower() for kind in Kind if kind in kinds]
            require(
                False,
                f"{name}: this dtype has no meaning here",
                expected=f"a dtype of the kind {' or '.join(words)}",
                found=type_,
            )


class Unary(Op):
    """An op on one operand of the ``kinds`` it knows; keeps its type. ``domain`` bounds samples."""

    kinds: ClassVar[frozenset[Kind]] = FLOATS
    domain: ClassVar[tuple[float, float]] = (-3.0, 3.0)

    def infer(self, x: TensorType) -> TensorType:
        """The operand's own type."""
        require_kind(self.name, self.kinds, x)
        return x

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """A matrix inside the domain, and the edges that every target must agree on."""
        if Kind.FLOAT in cls.kinds:
            for operand, note, gradient in unary_operands(cls.domain):
                yield Sample(cls(), (operand,), note, gradient)
        if Kind.BOOL in cls.kinds:
            yield Sample(cls(), (np.array([[False, True], [True, True]])[:, ::-1],), "bool", False)
            yield Sample(cls(), (np.zeros((0, 2), np.bool_),), "no bools", False)
        if Kind.SIGNED in cls.kinds:
            yield Sample(cls(), (INTEGER_EDGES,), "i32", False)
            yield Sample(cls(), (INTEGER_EDGES[::-2].astype(np.uint8),), "u8", False)
        if Kind.COMPLEX in cls.kinds:
            yield Sample(cls(), (complex_operand(cls.domain),), "c64", False)


def unary_operands(domain: tuple[float, float]) -> Iterator[tuple[Array, str, bool]]:
    """Operands with which every float op on one operand is tried: (array, note, differentiable)."""
    generator = np.random.default_rng(0)
    low, high = domain
    yield generator.uniform(low, high, (3, 5)).astype(np.float32), "", True
    yield generator.uniform(low, high, ()).astype(np.float32), "scalar", True
    yield np.zeros((0, 4), np.float32), "empty", False
    yield generator.uniform(low, high, (4, 6)).astype(np.float32)[::2, ::-3], "strided", True
    yield np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42], np.float32), "special", False
    yield generator.uniform(low, high, (7,)), "f64", True


def complex_operand(domain: tuple[float, float] = (-3.0, 3.0)) -> Array:
    """A few complex numbers with both parts inside the domain."""
    parts = np.random.default_rng(1).uniform(*domain, (2, 3, 2))
    return (parts[..., 0] + 1j * parts[..., 1]).astype(np.complex64)


class Binary(Op):
    """An op on two broadcast operands of one dtype, of the ``kinds`` that it knows."""

    kinds: ClassVar[frozenset[Kind]] = NUMBERS

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        """The common dtype in the broadcast shape."""
        dtype = same_dtype(self.name, a, b)
        require_kind(self.name, self.kinds, a, b)
        return TensorType(dtype, broadcast_shapes(self.name, a.shape, b.shape), device=a.device)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Equal shapes, broadcasts, scalars, empties, and the edges of each kind of number."""
        if Kind.FLOAT in cls.kinds:
            yield from _float_pairs(cls())
        if Kind.SIGNED in cls.kinds:
            small = np.array([-128, -7, 0, 3, 127], np.int8)
            yield Sample(cls(), (INTEGER_EDGES[:, None], INTEGER_EDGES), "i32", False)
            yield Sample(cls(), (small, small[:, None]), "i8", False)
            yield Sample(cls(), (small.view(np.uint8), small.view(np.uint8)[:, None]), "u8", False)
            yield Sample(cls(), (INTEGER_EDGES[::-2], INTEGER_EDGES[:0][:, None]), "no ints", False)
        if Kind.BOOL in cls.kinds:
            truths = np.array([False, True])
            yield Sample(cls(), (truths[:, None], truths), "bool", False)
        if Kind.COMPLEX in cls.kinds:
            yield Sample(cls(), (complex_operand(), complex_operand((0.5, 2.0))[:1]), "c64", False)


def _float_pairs(op_: Op) -> Iterator[Sample]:
    generator = np.random.default_rng(0)

    def floats(*shape: int) -> Array:
        return generator.uniform(0.5, 2.0, shape).astype(np.float32)

    yield Sample(op_, (floats(3, 4), floats(3, 4)))
    yield Sample(op_, (floats(3, 4), floats(4)), "broadcast a row")
    yield Sample(op_, (floats(2, 1, 4), floats(3, 1)), "broadcast both")
    yield Sample(op_, (floats(3), floats()), "broadcast a scalar")
    yield Sample(op_, (floats(), floats()), "scalars")
    yield Sample(op_, (floats(4, 6)[::2, ::-3], floats(2, 2).T), "strided")
    yield Sample(op_, (floats(0, 4), floats(1, 4)), "empty", False)
    yield Sample(op_, (SPECIAL[:, None], SPECIAL), "special", False)
    yield Sample(op_, (floats(5).astype(np.float64), floats(5).astype(np.float64)), "f64")


class Comparison(Binary):
    """A binary op whose result is bool; it has no gradient."""

    kinds: ClassVar[frozenset[Kind]] = ORDERED

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        """bool in the broadcast shape."""
        return super().infer(a, b).with_dtype(bool_)


def binary(op_: Op, a: Operand, b: Operand) -> Value:
    """Apply a binary op to promoted operands."""
    if isinstance(a, Tracer) or isinstance(b, Tracer):
        return apply(op_, a, b)
    return apply(op_, *promote_operands(a, b))


def unary_float(op_: Op, x: Operand) -> Value:
    """Apply an op on floats; integers and bools become f32 first."""
    return apply(op_, floating(x))


def binary_float(op_: Op, a: Operand, b: Operand) -> Value:
    """Apply a binary op on floats to promoted operands; integers and bools become f32 first."""
    if isinstance(a, Tracer) or isinstance(b, Tracer):
        return apply(op_, a, b)
    return apply(op_, *map(floating, promote_operands(a, b)))


def limits(dtype: DType) -> tuple[float, float]:
    """The smallest and largest numbers of a dtype; infinite where it has infinities."""
    if dtype.kind in (Kind.SIGNED, Kind.UNSIGNED):
        return integer_limits(dtype)
    if np.isinf(np.asarray(np.inf).astype(dtype.numpy).astype(np.float64)):
        return -np.inf, np.inf
    return float(float_facts(dtype).min), float(float_facts(dtype).max)


def float_facts(dtype: DType) -> Any:
    """What ``np.finfo`` says (eps, smallest and largest finite numbers), for every float dtype."""
    return ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]  # ml_dtypes has no types


def in_double(compute: Callable[..., Any], *arrays: Array) -> Any:
    """What ``compute`` gives for f32 (c64) operands, worked out in f64 (c128) and rounded once."""
    doubles = {np.dtype(np.float32): np.float64, np.dtype(np.complex64): np.complex128}
    dtype = arrays[0].dtype
    if dtype not in doubles:
        return compute(*arrays)
    return np.asarray(compute(*(array.astype(doubles[dtype]) for array in arrays))).astype(dtype)


def floating(x: Operand) -> Operand:
    """The operand with integers and bools turned into f32; floats and tracers as they are."""
    if isinstance(x, Tracer):
        return x
    if isinstance(x, bool | int):
        return float(x)
    (value,) = as_operands(graph_of([x]), [x])
    return cast_to(value, f32) if value.dtype.kind in BITS else value
