"""Functions of complex numbers for which there are real ops only, as compositions of other ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from monograph import functional as F
from monograph.frontends.complex_functions import COMPLEX, ComplexFunction
from monograph.frontends.torch.node import TorchNode
from monograph.frontends.torch.registry import converter
from monograph.ir.graph import Value

_OF_REAL: Mapping[str, ComplexFunction] = {
    "acos": F.acos,
    "acosh": F.acosh,
    "asin": F.asin,
    "asinh": F.asinh,
    "atan": F.atan,
    "atanh": F.atanh,
    "cosh": F.cosh,
    "exp2": F.exp2,
    "expm1": F.expm1,
    "log10": F.log10,
    "log1p": F.log1p,
    "log2": F.log2,
    "rsqrt": F.rsqrt,
    "sigmoid": F.sigmoid,
    "sinh": F.sinh,
    "tan": F.tan,
}
"""Each of real numbers, by torch's name."""
_NAMES = {"sigmoid": "logistic"}


def _of_either(of_real: ComplexFunction, of_complex: ComplexFunction) -> Callable[..., Value]:
    def convert(node: TorchNode) -> Value:
        x = node.value(node["self"], node.result_dtype)
        return of_complex(x) if x.dtype.is_complex else of_real(x)

    return convert


for _name, _of_real in _OF_REAL.items():
    converter(f"aten.{_name}.default")(_of_either(_of_real, COMPLEX[_NAMES.get(_name, _name)]))
