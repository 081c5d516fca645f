"""Products of matrices: MatMul, Gemm, Einsum, their quantized forms, and the determinant."""

from __future__ import annotations

from monograph import functional as F
from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import apply, cast_to
from monograph.ir.graph import Value
from monograph.ir.types import DType, f32, f64, i32
from monograph.ops import linalg
from monograph.ops.quant import is_zero


@converter("MatMul")
def matmul(node: OnnxNode) -> Value:
    """The matrix product, with NumPy's rules."""
    return apply(linalg.Matmul(), node.input(0), node.input(1))


@converter("Gemm")
def gemm(node: OnnxNode) -> Value:
    """``alpha * A @ B + beta * C``, A and B perhaps transposed.

    The usual case, a layer with weights of [outputs, inputs], is a ``linear``.
    """
    a, b, c = node.input(0), node.input(1), node.optional(2)
    if a.rank != 2 or b.rank != 2:
        raise node.error("matrices are needed", found=f"{a.type} and {b.type}")
    alpha, beta = node.number("alpha", 1.0), node.number("beta", 1.0)
    a = F.transpose(a) if node.integer("transA", 0) else a
    transposed = bool(node.integer("transB", 0))
    is_bias = c is None or (c.rank == 1 and c.shape == b.shape[:1] and c.dtype is a.dtype)
    if transposed and alpha == 1.0 and beta == 1.0 and is_bias:
        return apply(linalg.Linear(), a, b, *(() if c is None else (c,)))
    product = scale(apply(linalg.Matmul(), a, F.transpose(b) if transposed else b), alpha)
    if c is None or beta == 0.0:
        return product
    if c.dtype is not product.dtype:
        raise node.error("one dtype is needed", found=f"{a.type} and {c.type}")
    return F.add(product, scale(c, beta))


def scale(x: Value, factor: float) -> Value:
    """``x`` times a number; integers are rounded towards zero afterwards."""
    if factor == 1.0:
        return x
    if x.dtype.is_float:
        return F.multiply(x, factor)
    return cast_to(F.multiply(cast_to(x, f64), factor), x.dtype)


@converter("Einsum")
def einsum(node: OnnxNode) -> Value:
    """Sums of products by an equation."""
    values = node.given()
    if len({value.dtype for value in values}) > 1:
        raise node.error("one dtype is needed", found=", ".join(str(each.type) for each in values))
    return F.einsum(node.string("equation"), *values)


@converter("Det")
def det(node: OnnxNode) -> Value:
    """The determinant of the last two axes."""
    return F.determinant(node.input(0))


@converter("MatMulInteger")
def matmul_integer(node: OnnxNode) -> Value:
    """The product of small integers, each less its zero point, in i32."""
    a = subtract_zero_point(node.input(0), rows(node.optional(2), node.input(0)), i32)
    b = subtract_zero_point(node.input(1), columns(node.optional(3)), i32)
    return F.matmul(a, b)


@converter("QLinearMatMul")
def qlinear_matmul(node: OnnxNode) -> Value:
    """The product of quantized matrices, quantized again."""
    a, b = node.input(0), node.input(3)
    product = multiply_quantized(
        a,
        (rows(node.input(1), a), rows(node.input(2), a)),
        b,
        (columns(node.input(4)), columns(node.input(5))),
    )
    y_scale, y_zero_point = node.input(6), node.input(7)
    return requantize(product, rows(y_scale, product), rows(y_zero_point, product))


def multiply_quantized(
    a: Value,
    a_parameters: tuple[Value | None, Value | None],
    b: Value,
    b_parameters: tuple[Value | None, Value | None],
) -> Value:
    """The real product of quantized matrices; the parameters are (scale, zero point)."""
    (a_scale, a_point), (b_scale, b_point) = a_parameters, b_parameters
    dtype = i32 if a.dtype.is_integer and b.dtype.is_integer else f32
    product = cast_to(
        F.matmul(subtract_zero_point(a, a_point, dtype), subtract_zero_point(b, b_point, dtype)),
        f32,
    )
    for scale in (a_scale, b_scale):
        product = product if scale is None else F.multiply(product, cast_to(scale, f32))
    return product


def requantize(x: Value, scale: Value | None, zero_point: Value | None) -> Value:
    """Real numbers quantized by parameters that broadcast, to the zero point's dtype."""
    assert scale is not None and zero_point is not None
    if scale.rank == 0 and zero_point.rank == 0:
        return F.quantize(x, cast_to(scale, f32), zero_point, zero_point.dtype)
    quotient = F.round(F.divide(x, cast_to(scale, f32)))
    moved = F.add(quotient, cast_to(zero_point, f32))
    return F.quantize(moved, 1.0, None, zero_point.dtype)


def subtract_zero_point(x: Value, zero_point: Value | None, dtype: DType) -> Value:
    """``x`` less its zero point, in a dtype that holds both."""
    wide = cast_to(x, dtype)
    if zero_point is None or is_zero(zero_point):
        return wide
    return F.subtract(wide, cast_to(zero_point, dtype))


def rows(parameter: Value | None, x: Value) -> Value | None:
    """A parameter of each row of ``x``, so that it broadcasts; one of all as a scalar."""
    plain = _scalar(parameter)
    if plain is None or plain.rank != 1 or x.rank < 2:
        return plain
    return F.unsqueeze(plain, 1)


def columns(parameter: Value | None) -> Value | None:
    """A parameter of each column, which broadcasts as it is; one of all as a scalar."""
    return _scalar(parameter)


def _scalar(parameter: Value | None) -> Value | None:
    if parameter is not None and parameter.shape == (1,):
        return F.reshape(parameter, ())
    return parameter
