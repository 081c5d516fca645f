"""The inverse of the error function, on which normal random numbers are built."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from monograph.ir.build import Operand, apply, cast_to
from monograph.ir.graph import Node, Value
from monograph.ir.op import Gradients, Op, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType, f64, wide
from monograph.ops import data, elementwise
from monograph.ops import math as math_ops
from monograph.ops.rules import require, require_float


@op("erf_inv", traits=Trait.ELEMENTWISE, torch="erfinv")
class ErfInv(Op):
    """The inverse of erf, by Giles' polynomials; infinite at ±1 and NaN beyond."""

    def infer(self, x: TensorType) -> TensorType:
        require_float(self.name, x)
        require(
            not x.dtype.is_complex,
            "erf_inv: a real operand is needed",
            expected="a float dtype",
            found=x,
        )
        return x

    def evaluate(self, x: Array) -> Array:
        kind = x.dtype.type
        depth = -np.log((1 - x) * (1 + x))
        pieces = ERF_INV_F64 if x.dtype == np.float64 else ERF_INV_F32
        result = np.zeros_like(x)
        for limit, is_root, center, coefficients in reversed(pieces):
            argument = (np.sqrt(depth) if is_root else depth) - kind(center)
            polynomial = np.full_like(x, coefficients[0])
            for coefficient in coefficients[1:]:
                polynomial = polynomial * argument + kind(coefficient)
            result = np.where(depth >= limit, result, polynomial)
        return np.where(np.abs(x) == 1, x * kind(np.inf), result * x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        slope = math_ops.exp(math_ops.square(node.result)) * (math.sqrt(math.pi) / 2)
        return (grad * slope,)

    def decompose(self, x: Value) -> Value:
        given = cast_to(x, wide(x.dtype))
        depth = -math_ops.log((1.0 - given) * (1.0 + given))
        root = math_ops.sqrt(depth)
        pieces = ERF_INV_F64 if x.dtype is f64 else ERF_INV_F32
        result = data.zeros_like(given)
        for limit, is_root, center, coefficients in reversed(pieces):
            argument = (root if is_root else depth) - center
            polynomial = data.full_like(given, coefficients[0])
            for coefficient in coefficients[1:]:
                polynomial = polynomial * argument + coefficient
            result = elementwise.where(depth >= limit, result, polynomial)
        at_end = elementwise.equal(elementwise.abs(given), 1.0)
        return cast_to(elementwise.where(at_end, given * math.inf, result * given), x.dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.array([-0.999999, -0.99, -0.5, -1e-6, 0.0, 0.25, 0.7, 0.9999], np.float32)
        yield Sample(cls(), (x[1:7],))
        yield Sample(cls(), (x[[0, 7]],), "near the ends", False)
        yield Sample(cls(), (np.array([1, -1, 2, np.nan, -0.0], np.float32),), "special", False)
        yield Sample(cls(), (np.zeros((0, 2), np.float32),), "empty", False)
        yield Sample(cls(), (np.full((), 0.3, np.float32),), "scalar")
        yield Sample(cls(), (x.reshape(2, 4).T[1:3].astype(np.float64),), "f64, strided")


# Pieces of the inverse error function: while -log(1-x²) is below the limit, a polynomial (highest
# power first) in that (or in its square root) less the center. From M. Giles, "Approximating the
# erfinv function", GPU Computing Gems Jade Edition, 2011.
ERF_INV_F32 = (
    (5.0, False, 2.5, (
        2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
        -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
    )),
    (math.inf, True, 3.0, (
        -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
        -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
    )),
)  # fmt: skip
ERF_INV_F64 = (
    (6.25, False, 3.125, (
        -3.6444120640178196996e-21, -1.685059138182016589e-19, 1.2858480715256400167e-18,
        1.115787767802518096e-17, -1.333171662854620906e-16, 2.0972767875968561637e-17,
        6.6376381343583238325e-15, -4.0545662729752068639e-14, -8.1519341976054721522e-14,
        2.6335093153082322977e-12, -1.2975133253453532498e-11, -5.4154120542946279317e-11,
        1.051212273321532285e-09, -4.1126339803469836976e-09, -2.9070369957882005086e-08,
        4.2347877827932403518e-07, -1.3654692000834678645e-06, -1.3882523362786468719e-05,
        0.0001867342080340571352, -0.00074070253416626697512, -0.0060336708714301490533,
        0.24015818242558961693, 1.6536545626831027356,
    )),
    (16.0, True, 3.25, (
        2.2137376921775787049e-09, 9.0756561938885390979e-08, -2.7517406297064545428e-07,
        1.8239629214389227755e-08, 1.5027403968909827627e-06, -4.013867526981545969e-06,
        2.9234449089955446044e-06, 1.2475304481671778723e-05, -4.7318229009055733981e-05,
        6.8284851459573175448e-05, 2.4031110387097893999e-05, -0.0003550375203628474796,
        0.00095328937973738049703, -0.0016882755560235047313, 0.0024914420961078508066,
        -0.0037512085075692412107, 0.005370914553590063617, 1.0052589676941592334,
        3.0838856104922207635,
    )),
    (math.inf, True, 5.0, (
        -2.7109920616438573243e-11, -2.5556418169965252055e-10, 1.5076572693500548083e-09,
        -3.7894654401267369937e-09, 7.6157012080783393804e-09, -1.4960026627149240478e-08,
        2.9147953450901080826e-08, -6.7711997758452339498e-08, 2.2900482228026654717e-07,
        -9.9298272942317002539e-07, 4.5260625972231537039e-06, -1.9681778105531670567e-05,
        7.5995277030017761139e-05, -0.00021503011930044477347, -0.00013871931833623122026,
        1.0103004648645343977, 4.8499064014085844221,
    )),
)  # fmt: skip


@function
def erf_inv(x: Operand) -> Value:
    """The inverse of erf."""
    return apply(ErfInv(), x)
