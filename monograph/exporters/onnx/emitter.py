"""``Emitter``: how converters write nodes, constants, casts, sizes and shapes.

It knows the dtype of everything that it writes, and carries dtypes that ONNX Runtime has no kernel
for in others (see ``kernels``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from monograph.exporters.onnx.kernels import carrier
from monograph.exporters.onnx.protos import CODES
from monograph.exporters.onnx.scope import Scope, Term
from monograph.exporters.onnx.sizes import SizeWriter
from monograph.ir.dims import Dim, Shape, provably_at_least
from monograph.ir.types import DType, Kind, bool_, f32, i8, i64, string, u8

_LEADS: Mapping[str, int] = {"Where": 1, "OneHot": 2}
"""Which input has the dtype that an op's kernels go by; the first, if nothing is said."""


class NoKernelError(Exception):
    """ONNX Runtime cannot compute an op in this dtype, and no other dtype can stand in for it."""

    def __init__(self, op_type: str, dtype: DType) -> None:
        super().__init__(
            f"ONNX Runtime has no {op_type} for {dtype}, nor for a dtype that holds it"
        )


class Emitter:
    """Writes nodes into a scope."""

    def __init__(self, scope: Scope, opset: int) -> None:
        self.scope = scope
        self.opset = opset

    # Nodes.

    def emit(
        self, op_type: str, *inputs: Term | None, dtype: DType | None = None, **attributes: Any
    ) -> Term:
        """Write a node with one result, of the operands' dtype unless another is given."""
        return self.emit_many(op_type, *inputs, dtypes=(dtype,), **attributes)[0]

    def emit_many(
        self,
        op_type: str,
        *inputs: Term | None,
        dtypes: Sequence[DType | None],
        **attributes: Any,
    ) -> tuple[Term, ...]:
        """Write a node with a result for each of ``dtypes``; None is the operands' dtype."""
        lead = _LEADS.get(op_type, 0)
        own = next(term for term in inputs[lead:] if term is not None).element
        computed = carrier(op_type, own)
        if computed is None:
            raise NoKernelError(op_type, own)
        given = list(inputs)
        for position, term in enumerate(inputs):
            if position >= lead and term is not None and term.dtype is own:
                given[position] = self.cast(term, computed)
        made = self.write(op_type, given, [dtype or computed for dtype in dtypes], attributes)
        return tuple(
            self.cast(term, own) if dtype is None else term
            for term, dtype in zip(made, dtypes, strict=True)
        )

    def write(
        self,
        op_type: str,
        inputs: Sequence[Term | None],
        dtypes: Sequence[DType | None],
        attributes: dict[str, Any] | None = None,
        domain: str = "",
    ) -> list[Term]:
        """Write a node as it is, carrying nothing; its results have these dtypes."""
        names = ["" if term is None else term.name for term in inputs]
        while names and not names[-1]:
            names.pop()
        made = self.scope.write(op_type, names, len(dtypes), domain=domain, attributes=attributes)
        return [Term(name, dtype) for name, dtype in zip(made, dtypes, strict=True)]

    def runs(self, op_type: str, dtype: DType) -> bool:
        """Whether ONNX Runtime can compute the op on this dtype, itself or carried."""
        return carrier(op_type, dtype) is not None

    def cast(self, term: Term, dtype: DType) -> Term:
        """A plain ``Cast``: exact or rounding; integers wrap. Not for floats to integers."""
        own = term.element
        if own is dtype:
            return term
        if dtype.is_packed and dtype.is_integer:
            return self._cast_packed(term, dtype)
        if dtype is bool_ and own.is_float and own.bits <= 8:
            return self.cast(self._cast(term, f32), bool_)  # -0.0 would be true
        if own.is_packed and own.is_integer and dtype is not i8 and dtype is not u8:
            through = i8 if own.kind is Kind.SIGNED else u8
            return self.cast(self._cast(term, through), dtype)
        return self._cast(term, dtype)

    def _cast(self, term: Term, dtype: DType) -> Term:
        attributes: dict[str, Any] = {"to": CODES[dtype]}
        if dtype.is_float and dtype.bits <= 8:
            attributes["saturate"] = 0
        if dtype.name == "f8e8m0fnu" and self.opset >= 24:
            attributes["round_mode"] = "nearest"
        return self.write("Cast", [term], [dtype], attributes)[0]

    def _cast_packed(self, term: Term, dtype: DType) -> Term:
        """Keep the low bits of wider integers, and their sign."""
        own = term.element
        if own is bool_ or (own.is_packed and own.kind is dtype.kind and own.bits < dtype.bits):
            return self._cast(self.cast(term, i8), dtype)
        low = self.emit("BitwiseAnd", self.cast(term, u8), self.number(2**dtype.bits - 1, u8))
        if dtype.kind is Kind.UNSIGNED:
            return self._cast(low, dtype)
        sign = self.number(2 ** (dtype.bits - 1), i8)
        flipped = self.emit("BitwiseXor", self.cast(low, i8), sign)
        return self._cast(self.emit("Sub", flipped, sign), dtype)

    # Constants and sizes.

    def constant(self, value: npt.ArrayLike, dtype: DType) -> Term:
        """An array that is known now."""
        return self.scope.constant(np.asarray(value).astype(dtype.numpy), dtype)

    def number(self, value: float, dtype: DType) -> Term:
        """A scalar that is known now."""
        return self.constant(value, dtype)

    def integers(self, values: Sequence[int]) -> Term:
        """A vector of ``i64``, for axes and the like."""
        return self.constant(np.array(values, np.int64), i64)

    def size(self, dim: Dim) -> Term:
        """A dimension as ``i64[1]``."""
        return SizeWriter(self).vector(dim)

    def sizes(self, shape: Shape) -> Term:
        """Dimensions as a vector of ``i64``."""
        return SizeWriter(self).shape(shape)

    def scalar_size(self, dim: Dim) -> Term:
        """A dimension as a scalar of ``i64``."""
        if isinstance(dim, int):
            return self.number(dim, i64)
        return self.write("Squeeze", [self.size(dim)], [i64])[0]

    # Shapes and small arithmetic that many converters need.

    def reshape(self, term: Term, old: Shape, new: Shape) -> Term:
        """The elements in another shape: with constants for as long as those can say it."""
        if old == new:
            return term
        wanted = _reshape_constant(old, new)
        if wanted is not None:
            zeros: dict[str, Any] = {"allowzero": 1} if 0 in new else {}  # 0 is then a size
            return self.emit("Reshape", term, self.integers(wanted), **zeros)
        return self.emit("Reshape", term, self.sizes(new), allowzero=1)

    def expand(self, term: Term, old: Shape, new: Shape) -> Term:
        """Broadcast; sizes that stay are written as 1, which keeps them."""
        if old == new:
            return term
        if 0 in new and term.dtype is not string:
            return self.filled(new, 0, term.element)
        kept = (*[None] * (len(new) - len(old)), *old)
        asked = tuple(
            1 if before == after else after for before, after in zip(kept, new, strict=True)
        )
        return self.emit("Expand", term, self.sizes(asked))

    def transpose(self, term: Term, permutation: Sequence[int]) -> Term:
        """Reorder dimensions; nothing if they stay as they are."""
        if list(permutation) == sorted(permutation):
            return term
        return self.emit("Transpose", term, perm=list(permutation))

    def filled(self, shape: Shape, value: bool | int | float, dtype: DType) -> Term:
        """One number in a whole tensor."""
        own = carrier("ConstantOfShape", dtype)
        if own is None:
            return self.expand(self.number(value, dtype), (), shape)
        if own is not dtype:
            return self.cast(self.filled(shape, value, own), dtype)
        from monograph.exporters.onnx.protos import tensor_proto

        element = np.asarray([value]).astype(dtype.numpy)
        attributes = {"value": tensor_proto(element, dtype)}
        return self.write("ConstantOfShape", [self.sizes(shape)], [dtype], attributes)[0]

    def counted(self, size: Dim, dtype: DType = i64) -> Term:
        """0, 1, 2… up to ``size``."""
        if isinstance(size, int) and size <= 16:
            return self.constant(np.arange(size), dtype)
        zero, one = self.number(0, i64), self.number(1, i64)
        return self.cast(self.emit("Range", zero, self.scalar_size(size), one), dtype)

    def is_nan(self, term: Term) -> Term:
        """Where a float is NaN."""
        return self.emit("IsNaN", term, dtype=bool_)

    def where(self, condition: Term, a: Term, b: Term) -> Term:
        """``a`` where the condition holds, ``b`` elsewhere."""
        return self.emit("Where", condition, a, b)

    def either(self, a: Term, b: Term) -> Term:
        """Whether one of two bools is true."""
        return self.emit("Or", a, b)

    def equals(self, a: Term, number: float) -> Term:
        """Where a tensor holds this number."""
        return self.emit("Equal", a, self.number(number, a.element), dtype=bool_)

    def nan(self, dtype: DType) -> Term:
        """A scalar NaN."""
        return self.constant(np.nan, dtype)


def _reshape_constant(old: Shape, new: Shape) -> list[int] | None:
    """``new`` as ONNX's Reshape takes it: 0 keeps a size, one -1 is worked out; None if it can't.

    -1 cannot be worked out where another size is 0.
    """
    if all(isinstance(dim, int) for dim in new):
        return [dim for dim in new if isinstance(dim, int)]
    if 0 in new:
        return None
    wanted: list[int] = []
    for axis, dim in enumerate(new):
        if isinstance(dim, int):
            wanted.append(dim)
        else:
            wanted.append(0 if axis < len(old) and old[axis] == dim else -1)
    holes = wanted.count(-1)
    others = (dim for dim, entry in zip(new, wanted, strict=True) if entry != -1)
    if holes > 1 or (holes and not all(provably_at_least(dim, 1) for dim in others)):
        return None
    return wanted


def computing(dtype: DType) -> DType:
    """f32 for the floats below it, themselves for the others."""
    return f32 if dtype.is_float and dtype.bits < 32 else dtype
