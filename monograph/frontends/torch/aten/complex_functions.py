"""Functions of complex numbers for which there are real ops only, as compositions of other ops."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

from monograph import functional as F
from monograph.frontends.torch.node import TorchNode
from monograph.frontends.torch.registry import converter
from monograph.ir.graph import Value

_Function: TypeAlias = Callable[[Value], Value]


def _multiply_by_sine(size: Value, sine: Value) -> Value:
    """A product that is zero where the sine is, though the size be infinite."""
    return F.where(F.equal(sine, 0.0), sine, F.multiply(size, sine))


def _cosh(z: Value) -> Value:
    a, b = F.real(z), F.imag(z)
    return F.complex(F.multiply(F.cosh(a), F.cos(b)), _multiply_by_sine(F.sinh(a), F.sin(b)))


def _sinh(z: Value) -> Value:
    a, b = F.real(z), F.imag(z)
    return F.complex(F.multiply(F.sinh(a), F.cos(b)), _multiply_by_sine(F.cosh(a), F.sin(b)))


def _tan(z: Value) -> Value:
    """``-i * tanh(i * z)``."""
    turned = F.tanh(F.complex(F.negate(F.imag(z)), F.real(z)))
    return F.complex(F.imag(turned), F.negate(F.real(turned)))


def _expm1(z: Value) -> Value:
    """The real part is ``expm1(a) * cos(b)`` and ``cos(b) - 1``, which do not cancel near 0."""
    a, b = F.real(z), F.imag(z)
    short = F.multiply(F.square(F.sin(F.multiply(b, 0.5))), 2.0)
    real = F.subtract(F.multiply(F.expm1(a), F.cos(b)), short)
    return F.complex(real, _multiply_by_sine(F.exp(a), F.sin(b)))


def _log_to_base(base: float) -> _Function:
    def log(z: Value) -> Value:
        natural, scale = F.log(z), 1 / math.log(base)
        parts = (F.real(natural), F.imag(natural))
        return F.complex(*(F.multiply(part, scale) for part in parts))

    return log


def _rsqrt(z: Value) -> Value:
    return F.reciprocal(F.sqrt(z))


def _sigmoid(z: Value) -> Value:
    return F.reciprocal(F.add(F.exp(F.negate(z)), 1.0))


_FUNCTIONS: Mapping[str, tuple[_Function, _Function]] = {
    "cosh": (F.cosh, _cosh),
    "expm1": (F.expm1, _expm1),
    "log10": (F.log10, _log_to_base(10)),
    "log2": (F.log2, _log_to_base(2)),
    "rsqrt": (F.rsqrt, _rsqrt),
    "sigmoid": (F.sigmoid, _sigmoid),
    "sinh": (F.sinh, _sinh),
    "tan": (F.tan, _tan),
}
"""Each of real numbers, and of complex ones."""


def _of_either(of_real: _Function, of_complex: _Function) -> Callable[[TorchNode], Value]:
    def convert(node: TorchNode) -> Value:
        x = node.value(node["self"], node.result_dtype)
        return of_complex(x) if x.dtype.is_complex else of_real(x)

    return convert


for _name, (_of_real, _of_complex) in _FUNCTIONS.items():
    converter(f"aten.{_name}.default")(_of_either(_of_real, _of_complex))
