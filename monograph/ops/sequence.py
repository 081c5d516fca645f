"""Sequences and optionals of values, for models that carry them; only the interpreter runs these.

A sequence is a Python list when the graph runs, an absent optional is None. Elements of a sequence
have one type; where their shapes differ, only the dtype is known (``sequence<f32[*]>``), and
``declare`` leads from such a value back to one whose rank and sizes are named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np

from monograph.errors import EvaluationError, TypeRuleError
from monograph.ir.build import apply
from monograph.ir.dims import Dim, Shape, Symbol, provably_different
from monograph.ir.graph import Value
from monograph.ir.op import Family, Op, Sample, Trait, op
from monograph.ir.types import (
    Array,
    DType,
    OptionalType,
    SequenceType,
    TensorType,
    UnrankedType,
    ValueType,
    bool_,
    f32,
    i64,
)
from monograph.ops.rules import normalize_axis, require, result_symbols

COUNT = TensorType(i64, ())


@op("declare", family=Family.SHAPE, traits=Trait.SEQUENCES)
class Declare(Op):
    """The operand, said to have another type that it may have: a rank forgotten, or sizes named.

    ``f32[*]`` becomes ``f32[n, 3]``, or the other way round; the run holds it against the value.
    """

    type: ValueType

    def infer(self, x: ValueType) -> ValueType:
        require(
            may_be(x, self.type),
            "declare: the operand cannot have that type",
            expected=str(self.type),
            found=x,
        )
        return self.type

    def evaluate(self, x: Any) -> Any:
        return x

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.arange(6, dtype=np.float32).reshape(2, 3)

        def there_and_back(x: Value) -> Value:
            return declare(declare(x, UnrankedType(x.dtype)), x.tensor)

        yield Sample(there_and_back, (x,), "", False)
        yield Sample(there_and_back, (x[:0],), "empty", False)
        yield Sample(there_and_back, (np.array(3),), "scalar", False)


def declare(x: Value, type_: ValueType) -> Value:
    """``x`` under another type; itself if it already has it."""
    return x if x.type == type_ else apply(Declare(type_), x)


def may_be(a: ValueType, b: ValueType) -> bool:
    """Whether a value of type ``a`` may turn out to have type ``b``."""
    if isinstance(a, SequenceType) and isinstance(b, SequenceType):
        return may_be(a.element, b.element)
    if isinstance(a, OptionalType) and isinstance(b, OptionalType):
        return may_be(a.element, b.element)
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        same = a.dtype is b.dtype and a.rank == b.rank
        return same and not any(map(provably_different, a.shape, b.shape))
    tensors = (TensorType, UnrankedType)
    return isinstance(a, tensors) and isinstance(b, tensors) and a.dtype is b.dtype


def join(a: ValueType, b: ValueType) -> ValueType:
    """The type that elements of both types have; shapes that differ are forgotten."""
    if a == b:
        return a
    tensors = (TensorType, UnrankedType)
    if isinstance(a, tensors) and isinstance(b, tensors) and a.dtype is b.dtype:
        return UnrankedType(a.dtype)
    if isinstance(a, SequenceType) and isinstance(b, SequenceType):
        return SequenceType(join(a.element, b.element))
    if isinstance(a, OptionalType) and isinstance(b, OptionalType):
        return OptionalType(join(a.element, b.element))
    raise TypeRuleError("these values have no type in common", expected=str(a), found=str(b))


def _element(name: str, sequence: ValueType) -> ValueType:
    if isinstance(sequence, SequenceType):
        return sequence.element
    raise TypeRuleError(
        f"{name}: the operand is no sequence", expected="a sequence", found=str(sequence)
    )


def _check_position(name: str, position: ValueType | None) -> None:
    integer = isinstance(position, TensorType) and position.dtype.is_integer and not position.shape
    require(
        position is None or integer or isinstance(position, UnrankedType),
        f"{name}: the position is not one integer",
        expected="an integer scalar",
        found=position,
    )


def _position(name: str, position: Array, count: int, last: int) -> int:
    """A position that may count from the end, as one from 0 to ``last``."""
    index = int(position)
    if not -count <= index <= last:
        raise EvaluationError(
            f"{name}: the position is outside the sequence",
            expected=f"-{count} to {last}",
            found=str(index),
        )
    return index + count if index < 0 else index


@op("sequence_empty", family=Family.DATA)
class SequenceEmpty(Op):
    """A sequence with no element, for tensors of ``dtype``."""

    dtype: DType = f32

    def infer(self) -> SequenceType:
        return SequenceType(UnrankedType(self.dtype))

    def evaluate(self) -> list[Any]:
        return []

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(lambda x: apply(SequenceLength(), apply(cls(f32))), (np.zeros(1),), "", False)


@op("sequence_construct", family=Family.SHAPE, traits=Trait.SEQUENCES)
class SequenceConstruct(Op):
    """The operands, in order, as a sequence."""

    def infer(self, *elements: ValueType) -> SequenceType:
        require(
            bool(elements),
            "sequence_construct: no operands",
            expected="at least one",
            found="none",
        )
        return SequenceType(reduce(join, elements))

    def evaluate(self, *elements: Any) -> list[Any]:
        return list(elements)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        yield Sample(lambda a, b: apply(SequenceAt(), apply(cls(), a, b), 1), (x, x + 1), "", False)
        yield Sample(lambda a, b: apply(SequenceLength(), apply(cls(), a, b)), (x, x[0]), "", False)


@op("sequence_insert", family=Family.SHAPE, traits=Trait.SEQUENCES)
class SequenceInsert(Op):
    """A sequence with one more element: before ``position``, or at the end."""

    def infer(
        self, sequence: ValueType, element: ValueType, position: ValueType | None = None
    ) -> SequenceType:
        _check_position(self.name, position)
        return SequenceType(join(_element(self.name, sequence), element))

    def evaluate(self, sequence: list[Any], element: Any, position: Array | None = None) -> Any:
        count = len(sequence)
        at = count if position is None else _position(self.name, position, count, count)
        return [*sequence[:at], element, *sequence[at:]]

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.arange(3, dtype=np.float32)

        def second(x: Value, y: Value) -> Value:
            sequence = apply(cls(), apply(SequenceConstruct(), x, x), y, -1)
            return apply(SequenceAt(), sequence, 1)

        def last(x: Value, y: Value) -> Value:
            return apply(SequenceAt(), apply(cls(), apply(SequenceConstruct(), x), y), -1)

        yield Sample(second, (x, x + 1), "before the last", False)
        yield Sample(last, (x, x + 1), "at the end", False)


@op("sequence_erase", family=Family.SHAPE, traits=Trait.SEQUENCES)
class SequenceErase(Op):
    """A sequence without the element at ``position``, or without the last."""

    def infer(self, sequence: ValueType, position: ValueType | None = None) -> SequenceType:
        _check_position(self.name, position)
        return SequenceType(_element(self.name, sequence))

    def evaluate(self, sequence: list[Any], position: Array | None = None) -> list[Any]:
        given = np.asarray(-1) if position is None else position
        at = _position(self.name, given, len(sequence), len(sequence) - 1)
        return [*sequence[:at], *sequence[at + 1 :]]

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.arange(3, dtype=np.float32)

        def first_left(x: Value, y: Value) -> Value:
            return apply(SequenceAt(), apply(cls(), apply(SequenceConstruct(), x, y), 0), 0)

        yield Sample(first_left, (x, x + 1), "", False)


@op("sequence_at", family=Family.SHAPE, traits=Trait.SEQUENCES)
class SequenceAt(Op):
    """The element at a position, which counts from the end if it is negative."""

    def infer(self, sequence: ValueType, position: ValueType) -> ValueType:
        _check_position(self.name, position)
        return _element(self.name, sequence)

    def evaluate(self, sequence: list[Any], position: Array) -> Any:
        return sequence[_position(self.name, position, len(sequence), len(sequence) - 1)]

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.arange(3, dtype=np.float32)

        def at(x: Value, y: Value, position: Value) -> Value:
            return apply(cls(), apply(SequenceConstruct(), x, y), position)

        yield Sample(at, (x, x + 1, np.array(0)), "", False)
        yield Sample(at, (x, x + 1, np.array(-1, np.int32)), "from the end", False)


@op("sequence_length", family=Family.SHAPE, traits=Trait.SEQUENCES)
class SequenceLength(Op):
    """How many elements a sequence has."""

    def infer(self, sequence: ValueType) -> TensorType:
        _element(self.name, sequence)
        return COUNT

    def evaluate(self, sequence: list[Any]) -> Array:
        return np.asarray(len(sequence), np.int64)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.arange(3, dtype=np.float32)
        yield Sample(lambda x: apply(cls(), apply(SequenceConstruct(), x, x)), (x,), "", False)


@op("split_to_sequence", family=Family.SHAPE, traits=Trait.SEQUENCES)
class SplitToSequence(Op):
    """Consecutive parts of a dimension as a sequence.

    Without a second operand each part is one slice (its dimension dropped unless ``keepdims``);
    with a scalar the parts have that size, but for the last; with a vector they have those sizes.
    """

    axis: int = 0
    keepdims: bool = True

    def infer(self, x: ValueType, split: ValueType | None = None) -> SequenceType:
        if not isinstance(x, TensorType) or split is not None:
            require(
                isinstance(x, TensorType | UnrankedType),
                "split_to_sequence: the operand is no tensor",
                expected="a tensor",
                found=x,
            )
            return SequenceType(UnrankedType(x.dtype))  # type: ignore[union-attr]  # just checked
        axis = normalize_axis(self.name, self.axis, x.rank)
        one: tuple[Dim, ...] = (1,) if self.keepdims else ()
        slice_ = x.with_shape((*x.shape[:axis], *one, *x.shape[axis + 1 :]))
        return SequenceType(slice_ if slice_.is_static else UnrankedType(x.dtype))

    def evaluate(self, x: Array, split: Array | None = None) -> list[Array]:
        size = x.shape[self.axis]
        if split is None:
            parts = np.split(x, size, self.axis) if size else []
            return parts if self.keepdims else [np.squeeze(part, self.axis) for part in parts]
        sizes = self._sizes(split, size)
        return np.split(x, np.cumsum(sizes)[:-1], self.axis) if len(sizes) else []

    def _sizes(self, split: Array, size: int) -> list[int]:
        if split.ndim == 0:
            step = int(split)
            if step < 1:
                raise EvaluationError("split_to_sequence: parts of no size", found=str(step))
            return [min(step, size - start) for start in range(0, size, step)]
        sizes = [int(part) for part in split]
        if sum(sizes) != size or min(sizes, default=0) < 0:
            raise EvaluationError(
                "split_to_sequence: the parts do not add up to the whole",
                expected=f"{size} in all",
                found=str(sizes),
            )
        return sizes

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.arange(10, dtype=np.float32).reshape(5, 2)

        def rows(x: Value) -> Value:
            return apply(SequenceAt(), apply(cls(0, False), x), 2)

        def parts(x: Value, split: Value) -> Value:
            part = apply(SequenceAt(), apply(cls(0), x, split), -1)
            return declare(part, TensorType(f32, (1, 2)))

        yield Sample(rows, (x,), "slices", False)
        yield Sample(parts, (x, np.array(2)), "parts of a size", False)
        yield Sample(parts, (x, np.array([4, 1])), "sizes", False)


@op("concat_from_sequence", family=Family.SHAPE, traits=Trait.SEQUENCES)
class ConcatFromSequence(Op):
    """The elements of a sequence joined along ``axis``, or stacked along a new one.

    How long the result is along the axis is known only at run time: ``size`` names it. An empty
    sequence can be joined if ``element`` and ``dtype`` say what its elements would have been.
    """

    axis: int
    size: Dim
    new_axis: bool = False
    element: Shape | None = None
    dtype: DType = f32

    def infer(self, sequence: ValueType) -> ValueType:
        element = _element(self.name, sequence)
        if not isinstance(element, TensorType):
            require(
                isinstance(element, UnrankedType),
                "concat_from_sequence: the elements are no tensors",
                expected="a sequence of tensors",
                found=sequence,
            )
            return element
        axis = normalize_axis(self.name, self.axis, element.rank + self.new_axis)
        rest = element.shape[axis + (not self.new_axis) :]
        return element.with_shape((*element.shape[:axis], self.size, *rest))

    def evaluate(self, sequence: list[Array]) -> Array:
        if sequence:
            return (np.stack if self.new_axis else np.concatenate)(sequence, self.axis)
        if self.element is None:
            raise EvaluationError("concat_from_sequence: the sequence is empty")
        shape = [dim if isinstance(dim, int) else 0 for dim in self.element]
        if self.new_axis:
            shape.insert(self.axis % (len(shape) + 1), 0)
        else:
            shape[self.axis] = 0
        return np.empty(shape, self.dtype.numpy)

    def binds(self) -> tuple[Symbol, ...]:
        return result_symbols(self.size)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.arange(6, dtype=np.float32).reshape(2, 3)

        def join_with(operation: ConcatFromSequence) -> Any:
            return lambda a, b: apply(operation, apply(SequenceConstruct(), a, b))

        yield Sample(join_with(cls(1, 6)), (x, x + 1), "joined", False)
        yield Sample(join_with(cls(-1, 2, True)), (x, x + 1), "stacked", False)


@op("optional", family=Family.SHAPE, traits=Trait.SEQUENCES)
class Optional(Op):
    """A value that may be absent; without an operand it is. ``type`` is that of the value."""

    type: ValueType

    def infer(self, x: ValueType | None = None) -> OptionalType:
        require(
            x is None or may_be(x, self.type),
            "optional: the operand has another type",
            expected=str(self.type),
            found=x,
        )
        return OptionalType(self.type)

    def evaluate(self, x: Any = None) -> Any:
        return x

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.arange(3, dtype=np.float32)
        yield Sample(lambda x: apply(OptionalGetElement(), optional(x)), (x,), "", False)
        yield Sample(lambda x: apply(OptionalHasElement(), apply(cls(x.type))), (x,), "", False)


def optional(x: Value) -> Value:
    """A value as an optional that holds it."""
    return apply(Optional(x.type), x)


@op("optional_has_element", family=Family.SHAPE, traits=Trait.SEQUENCES)
class OptionalHasElement(Op):
    """Whether an optional holds a value; anything but an optional does."""

    def infer(self, x: ValueType | None = None) -> TensorType:
        return TensorType(bool_, ())

    def evaluate(self, x: Any = None) -> Array:
        return np.asarray(x is not None)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.arange(3, dtype=np.float32)
        yield Sample(lambda x: apply(cls(), optional(x)), (x,), "", False)


@op("optional_get_element", family=Family.SHAPE, traits=Trait.SEQUENCES)
class OptionalGetElement(Op):
    """The value that an optional holds; an error at run time if there is none."""

    def infer(self, x: ValueType) -> ValueType:
        return x.element if isinstance(x, OptionalType) else x

    def evaluate(self, x: Any) -> Any:
        if x is None:
            raise EvaluationError("optional_get_element: the optional is empty")
        return x

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.arange(3, dtype=np.float32)
        yield Sample(lambda x: apply(cls(), optional(x)), (x,), "", False)


def sequence_of(elements: Sequence[Value]) -> Value:
    """Values as a sequence."""
    return apply(SequenceConstruct(), *elements)
