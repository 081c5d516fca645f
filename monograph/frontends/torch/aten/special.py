"""Special functions: gamma, Bessel, normal distribution and orthogonal polynomials."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from monograph import functional as F
from monograph.frontends.torch.node import TorchNode, static
from monograph.frontends.torch.registry import converter
from monograph.ir.graph import Value

_OF_ONE: Mapping[str, Callable[[Value], Value]] = {
    "digamma": F.digamma,
    "i0": F.bessel_i0,
    "lgamma": F.lgamma,
    "special_airy_ai": F.airy_ai,
    "special_bessel_j0": F.bessel_j0,
    "special_bessel_j1": F.bessel_j1,
    "special_bessel_y0": F.bessel_y0,
    "special_bessel_y1": F.bessel_y1,
    "special_digamma": F.digamma,
    "special_entr": F.entropy_term,
    "special_erfcx": F.erfcx,
    "special_gammaln": F.lgamma,
    "special_i0": F.bessel_i0,
    "special_i0e": F.bessel_i0e,
    "special_i1": F.bessel_i1,
    "special_i1e": F.bessel_i1e,
    "special_log_ndtr": F.log_ndtr,
    "special_modified_bessel_i0": F.bessel_i0,
    "special_modified_bessel_i1": F.bessel_i1,
    "special_modified_bessel_k0": F.bessel_k0,
    "special_modified_bessel_k1": F.bessel_k1,
    "special_ndtr": F.ndtr,
    "special_ndtri": F.ndtri,
    "special_psi": F.digamma,
    "special_scaled_modified_bessel_k0": F.bessel_k0e,
    "special_scaled_modified_bessel_k1": F.bessel_k1e,
    "special_spherical_bessel_j0": F.spherical_bessel_j0,
}
"""Functions of one tensor; integers become the result's dtype first."""

_POLYNOMIALS: Mapping[str, str] = {
    "chebyshev_polynomial_t": "chebyshev_t",
    "chebyshev_polynomial_u": "chebyshev_u",
    "chebyshev_polynomial_v": "chebyshev_v",
    "chebyshev_polynomial_w": "chebyshev_w",
    "hermite_polynomial_h": "hermite_h",
    "hermite_polynomial_he": "hermite_he",
    "laguerre_polynomial_l": "laguerre_l",
    "legendre_polynomial_p": "legendre_p",
}


def _one_argument(function: Callable[[Value], Value]) -> Callable[[TorchNode], Value]:
    def convert(node: TorchNode) -> Value:
        (given,) = node.all_arguments().values()
        return function(node.value(given, node.result_dtype))

    return convert


def _two_arguments(function: Callable[[Value, Value], Value]) -> Callable[[TorchNode], Value]:
    return lambda node: function(*node.as_result(node["self"], node["other"]))


def _polynomial(family: str, shifted: bool) -> Callable[[TorchNode], Value]:
    def convert(node: TorchNode) -> Value:
        x, degree = node.as_result(node["x"], node["n"])
        return F.polynomial(family, x, degree, shifted)

    return convert


def _register() -> None:
    for name, function in _OF_ONE.items():
        converter(f"aten.{name}.default")(_one_argument(function))
    for name in ("igamma.default", "special_gammainc.default"):
        converter(f"aten.{name}")(_two_arguments(F.igamma))
    for name in ("igammac.default", "special_gammaincc.default"):
        converter(f"aten.{name}")(_two_arguments(F.igammac))
    for overload in ("default", "other_scalar", "self_scalar"):
        converter(f"aten.special_zeta.{overload}")(_two_arguments(F.zeta))
    for name, family in _POLYNOMIALS.items():
        for overload in ("default", "x_scalar", "n_scalar"):
            converter(f"aten.special_{name}.{overload}")(_polynomial(family, False))
            if family.startswith("chebyshev"):
                shifted = _polynomial(family, True)
                converter(f"aten.special_shifted_{name}.{overload}")(shifted)


_register()


@converter("aten.polygamma.default", "aten.special_polygamma.default")
def _polygamma(node: TorchNode) -> Value:
    order = static(node["n"], "the order of polygamma")
    (x,) = node.as_result(node["self"])
    return F.digamma(x) if order == 0 else F.polygamma(order, x)


@converter("aten.mvlgamma.default", "aten.special_multigammaln.default")
def _multigamma(node: TorchNode) -> Value:
    (x,) = node.as_result(node["self"])
    return F.multigamma(x, static(node["p"], "the dimensions of mvlgamma"))
