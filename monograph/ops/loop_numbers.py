"""Arithmetic of loops, spelled shortly: what a long elimination or iteration is written with.

``Numbers`` wraps the builder of a node's loops and gives it little but names: ``n.product(x, y)``
is ``b.apply("multiply", x, y)``. Arithmetic on positions stays Python's operators.
"""

from __future__ import annotations

from monograph.dataclass import dataclass
from monograph.ir.lower import LoopBuilder, Scalar
from monograph.ir.types import f64


@dataclass(frozen=True)
class Numbers:
    """The builder of a node's loops, and arithmetic with it."""

    b: LoopBuilder

    def of(self, value: float) -> Scalar:
        """An f64."""
        return self.b.literal(value, f64)

    def sum(self, x: Scalar, y: Scalar) -> Scalar:
        return self.b.apply("add", x, y)

    def difference(self, x: Scalar, y: Scalar) -> Scalar:
        return self.b.apply("subtract", x, y)

    def product(self, x: Scalar, y: Scalar) -> Scalar:
        return self.b.apply("multiply", x, y)

    def quotient(self, x: Scalar, y: Scalar) -> Scalar:
        return self.b.apply("divide", x, y)

    def negative(self, x: Scalar) -> Scalar:
        return self.b.apply("negate", x)

    def plus_product(self, total: Scalar, x: Scalar, y: Scalar) -> Scalar:
        """``total + x * y``, rounded once where that is an instruction."""
        if any(each.dtype.is_complex for each in (total, x, y)):
            return self.sum(total, self.product(x, y))
        return self.b.apply("fma", x, y, total)

    def minus_product(self, total: Scalar, x: Scalar, y: Scalar) -> Scalar:
        """``total - x * y``, rounded once where that is an instruction."""
        return self.plus_product(total, self.negative(x), y)

    def magnitude(self, x: Scalar) -> Scalar:
        return self.b.apply("abs", x)

    def root(self, x: Scalar) -> Scalar:
        return self.b.apply("sqrt", x)

    def signed(self, x: Scalar, like: Scalar) -> Scalar:
        """The magnitude of ``x`` with the sign of ``like``."""
        return self.b.apply("copysign", x, like)

    def real(self, x: Scalar) -> Scalar:
        return self.b.apply("real", x) if x.dtype.is_complex else x

    def conjugate(self, x: Scalar) -> Scalar:
        return self.b.apply("conj", x) if x.dtype.is_complex else x

    def squared(self, x: Scalar) -> Scalar:
        """The square of a magnitude."""
        if not x.dtype.is_complex:
            return self.product(x, x)
        real, imaginary = self.b.apply("real", x), self.b.apply("imag", x)
        return self.sum(self.product(real, real), self.product(imaginary, imaginary))

    def less(self, x: Scalar, y: Scalar) -> Scalar:
        return self.b.apply("less", x, y)

    def at_most(self, x: Scalar, y: Scalar) -> Scalar:
        return self.b.apply("less_equal", x, y)

    def equal(self, x: Scalar, y: Scalar) -> Scalar:
        return self.b.apply("equal", x, y)

    def both(self, x: Scalar, y: Scalar) -> Scalar:
        return self.b.apply("logical_and", x, y)

    def either(self, x: Scalar, y: Scalar) -> Scalar:
        return self.b.apply("logical_or", x, y)

    def no(self, x: Scalar) -> Scalar:
        return self.b.apply("logical_not", x)

    def larger(self, x: Scalar, y: Scalar) -> Scalar:
        return self.b.apply("maximum", x, y)

    def kept(self, x: Scalar) -> Scalar:
        """The number computed here, once: what reads it is not given the formula."""
        return self.b.variable(x).get()

    def rotation(self, f: Scalar, g: Scalar) -> tuple[Scalar, Scalar, Scalar]:
        """(c, s, r) with c f + s g = r and -s f + c g = 0; r has the sign of f (LAPACK's lartg)."""
        length = self.root(self.plus_product(self.product(f, f), g, g))
        nothing = self.equal(length, self.of(0.0))
        inverse = self.quotient(self.of(1.0), self.b.select(nothing, self.of(1.0), length))
        cosine = self.b.select(nothing, self.of(1.0), self.product(self.magnitude(f), inverse))
        return cosine, self.product(self.signed(inverse, f), g), self.signed(length, f)
