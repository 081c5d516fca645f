"""Every operation of StableHLO's specification: a small module of it, or why it is not read.

``MODULES`` has the text of a function for each, on the inputs that the text names; ``REFUSED`` has
the reason for the others. Which operations there are is told by the dialect in jaxlib.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

A, B = "tensor<3x4xf32>", "tensor<3x4xi32>"
P = "tensor<3x4xi1>"
C = "tensor<3x4xcomplex<f32>>"


def module(body: str, result: str, *inputs: str) -> str:
    """A module whose function takes %0, %1… and returns %r."""
    arguments = ", ".join(f"%{chr(97 + k)}: {each}" for k, each in enumerate(inputs))
    returned = re.split(r",\s*(?=tensor)", result)
    names = "%r" if len(returned) == 1 else ", ".join(f"%r#{k}" for k in range(len(returned)))
    return (
        f"module {{ func.func public @main({arguments}) -> ({result}) {{\n{body}\n"
        f"return {names} : {result}\n}} }}"
    )


def unary(name: str, type_: str = A, result: str | None = None) -> str:
    to = result or type_
    return module(f"%r = stablehlo.{name} %a : ({type_}) -> {to}", to, type_)


def binary(name: str, type_: str = A) -> str:
    return module(f"%r = stablehlo.{name} %a, %b : {type_}", type_, type_, type_)


REGION = (
    "({{ ^bb0(%x: tensor<f32>, %y: tensor<f32>): %z = stablehlo.{0} %x, %y : tensor<f32>\n"
    "stablehlo.return %z : tensor<f32> }})"
)


def alone(name: str, attributes: str = "", region: str = "") -> str:
    """A collective among the one device that there is."""
    groups = "replica_groups = dense<0> : tensor<1x1xi64>"
    body = f'%r = "stablehlo.{name}"(%a) {region} {{{groups}{attributes}}} : ({A}) -> {A}'
    return module(body, A, A)


ZERO = "%zero = stablehlo.constant dense<0.0> : tensor<f32>\n"
LESS = (
    "({ ^bb0(%x: tensor<f32>, %y: tensor<f32>): %z = stablehlo.compare LT, %x, %y : "
    "(tensor<f32>, tensor<f32>) -> tensor<i1>\nstablehlo.return %z : tensor<i1> })"
)
MODULES: dict[str, str] = {
    **{
        name: unary(name)
        for name in (
            "abs", "cbrt", "ceil", "cosine", "exponential", "exponential_minus_one", "floor",
            "log_plus_one", "logistic", "negate", "round_nearest_afz", "round_nearest_even",
            "sign", "sine", "tan", "tanh",
        )
    },
    **{name: unary(name, "tensor<5xf32>") for name in ("log", "rsqrt", "sqrt")},
    **{name: unary(name, B) for name in ("count_leading_zeros", "not", "popcnt")},
    **{
        name: binary(name)
        for name in (
            "add", "atan2", "divide", "maximum", "minimum", "multiply", "power", "remainder",
            "subtract",
        )
    },
    **{
        name: binary(name, B)
        for name in (
            "and", "or", "xor", "shift_left", "shift_right_arithmetic", "shift_right_logical",
        )
    },
    "is_finite": unary("is_finite", A, P),
    "real": unary("real", C, A),
    "imag": unary("imag", C, A),
    "complex": module(f"%r = stablehlo.complex %a, %b : {C}", C, A, A),
    "convert": unary("convert", A, B),
    "bitcast_convert": unary("bitcast_convert", A, B),
    "reduce_precision": module(
        f"%r = stablehlo.reduce_precision %a, format = e5m10 : {A}", A, A
    ),
    "compare": module(
        f"%r = stablehlo.compare LE, %a, %b, FLOAT : ({A}, {A}) -> {P}", P, A, A
    ),
    "select": module(f"%r = stablehlo.select %a, %b, %c : {P}, {A}", A, P, A, A),
    "clamp": module(
        f"%r = stablehlo.clamp %a, %b, %c : (tensor<f32>, {A}, tensor<f32>) -> {A}",
        A, "tensor<f32>", A, "tensor<f32>",
    ),
    "constant": module("%r = stablehlo.constant dense<[1.5, -0.0, 0x7FC00000]> : tensor<3xf32>",
                       "tensor<3xf32>"),
    "iota": module(f"%r = stablehlo.iota dim = 1 : {A}", A),
    "dynamic_iota": module(
        "%s = stablehlo.constant dense<[3, 4]> : tensor<2xi64>\n"
        f"%r = stablehlo.dynamic_iota %s, dim = 0 : (tensor<2xi64>) -> {A}", A,
    ),
    "broadcast_in_dim": module(
        f"%r = stablehlo.broadcast_in_dim %a, dims = [1] : (tensor<4xf32>) -> {A}",
        A, "tensor<4xf32>",
    ),
    "dynamic_broadcast_in_dim": module(
        "%s = stablehlo.constant dense<[3, 4]> : tensor<2xi64>\n"
        f"%r = stablehlo.dynamic_broadcast_in_dim %a, %s, dims = [1] : (tensor<4xf32>, "
        f"tensor<2xi64>) -> {A}", A, "tensor<4xf32>",
    ),
    "reshape": unary("reshape", A, "tensor<2x6xf32>"),
    "dynamic_reshape": module(
        "%s = stablehlo.constant dense<[2, 6]> : tensor<2xi64>\n"
        f"%r = stablehlo.dynamic_reshape %a, %s : ({A}, tensor<2xi64>) -> tensor<2x6xf32>",
        "tensor<2x6xf32>", A,
    ),
    "get_dimension_size": module(
        f"%r = stablehlo.get_dimension_size %a, dim = 1 : ({A}) -> tensor<i32>", "tensor<i32>", A
    ),
    "transpose": module(
        f"%r = stablehlo.transpose %a, dims = [1, 0] : ({A}) -> tensor<4x3xf32>",
        "tensor<4x3xf32>", A,
    ),
    "reverse": module(f"%r = stablehlo.reverse %a, dims = [0, 1] : {A}", A, A),
    "concatenate": module(
        f"%r = stablehlo.concatenate %a, %b, dim = 0 : ({A}, {A}) -> tensor<6x4xf32>",
        "tensor<6x4xf32>", A, A,
    ),
    "slice": module(
        f"%r = stablehlo.slice %a [1:3, 0:4:2] : ({A}) -> tensor<2x2xf32>", "tensor<2x2xf32>", A
    ),
    "pad": module(
        f"%r = stablehlo.pad %a, %b, low = [1, -1], high = [0, 2], interior = [1, 0] : "
        f"({A}, tensor<f32>) -> tensor<6x5xf32>", "tensor<6x5xf32>", A, "tensor<f32>",
    ),
    "dynamic_pad": module(
        "%l = stablehlo.constant dense<[1, 0]> : tensor<2xi64>\n"
        "%h = stablehlo.constant dense<[0, 1]> : tensor<2xi64>\n"
        "%i = stablehlo.constant dense<0> : tensor<2xi64>\n"
        f"%r = stablehlo.dynamic_pad %a, %b, %l, %h, %i : ({A}, tensor<f32>, tensor<2xi64>, "
        "tensor<2xi64>, tensor<2xi64>) -> tensor<4x5xf32>", "tensor<4x5xf32>", A, "tensor<f32>",
    ),
    "dynamic_slice": module(
        f"%r = stablehlo.dynamic_slice %a, %b, %b, sizes = [2, 2] : ({A}, tensor<i32>, "
        "tensor<i32>) -> tensor<2x2xf32>", "tensor<2x2xf32>", A, "tensor<i32>",
    ),
    "dynamic_update_slice": module(
        f"%r = stablehlo.dynamic_update_slice %a, %b, %c, %c : ({A}, tensor<2x2xf32>, "
        f"tensor<i32>, tensor<i32>) -> {A}", A, A, "tensor<2x2xf32>", "tensor<i32>",
    ),
    "gather": module(
        '%r = "stablehlo.gather"(%a, %b) <{dimension_numbers = #stablehlo.gather<offset_dims = '
        "[1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, "
        f"slice_sizes = array<i64: 1, 4>}}> : ({A}, tensor<5xi32>) -> tensor<5x4xf32>",
        "tensor<5x4xf32>", A, "tensor<5xi32>",
    ),
    "dynamic_gather": module(
        "%s = stablehlo.constant dense<[1, 4]> : tensor<2xi32>\n"
        '%r = "stablehlo.dynamic_gather"(%a, %b, %s) <{dimension_numbers = #stablehlo.gather<'
        "offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], "
        f"index_vector_dim = 1>}}> : ({A}, tensor<5xi32>, tensor<2xi32>) -> tensor<5x4xf32>",
        "tensor<5x4xf32>", A, "tensor<5xi32>",
    ),
    "scatter": module(
        '%r = "stablehlo.scatter"(%a, %b, %c) <{scatter_dimension_numbers = #stablehlo.scatter<'
        "update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]"
        f", index_vector_dim = 1>}}> {REGION.format('add')} : ({A}, tensor<5xi32>, "
        f"tensor<5x4xf32>) -> {A}", A, A, "tensor<5xi32>", "tensor<5x4xf32>",
    ),
    "reduce": module(
        f"{ZERO}%r = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = "
        f"[1] : ({A}, tensor<f32>) -> tensor<3xf32>", "tensor<3xf32>", A,
    ),
    "reduce_window": module(
        f'{ZERO}%r = "stablehlo.reduce_window"(%a, %zero) <{{window_dimensions = array<i64: 2, 2>, '
        f"window_strides = array<i64: 1, 2>}}> {REGION.format('add')} : ({A}, tensor<f32>) -> "
        "tensor<2x2xf32>", "tensor<2x2xf32>", A,
    ),
    "select_and_scatter": module(
        f'{ZERO}%r = "stablehlo.select_and_scatter"(%a, %b, %zero) '
        "({ ^bb0(%x: tensor<f32>, %y: tensor<f32>): %z = stablehlo.compare GE, %x, %y : "
        "(tensor<f32>, tensor<f32>) -> tensor<i1>\nstablehlo.return %z : tensor<i1> }, "
        f"{REGION.format('add')[1:-1]}) "
        "{window_dimensions = array<i64: 1, 2>, window_strides = array<i64: 1, 2>} : "
        f"({A}, tensor<3x2xf32>, tensor<f32>) -> {A}", A, A, "tensor<3x2xf32>",
    ),
    "sort": module(
        f'%r = "stablehlo.sort"(%a) <{{dimension = 1 : i64, is_stable = true}}> {LESS} : ({A}) '
        f"-> {A}", A, A,
    ),
    "map": module(
        f'%r = "stablehlo.map"(%a, %b) <{{dimensions = array<i64: 0, 1>}}> '
        f"{REGION.format('multiply')} : ({A}, {A}) -> {A}", A, A, A,
    ),
    "dot_general": module(
        f"%r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({A}, "
        "tensor<4x5xf32>) -> tensor<3x5xf32>", "tensor<3x5xf32>", A, "tensor<4x5xf32>",
    ),
    "convolution": module(
        "%r = stablehlo.convolution(%a, %b) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]"
        ", window = {stride = [1, 2], pad = [[1, 0], [0, 1]], reverse = [true, false]} "
        "{batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x3x5x6xf32>, "
        "tensor<4x3x2x3xf32>) -> tensor<2x4x5x3xf32>",
        "tensor<2x4x5x3xf32>", "tensor<2x3x5x6xf32>", "tensor<4x3x2x3xf32>",
    ),
    "dynamic_conv": module(
        "%p = stablehlo.constant dense<[[1, 0], [0, 1]]> : tensor<2x2xi32>\n"
        '%r = "stablehlo.dynamic_conv"(%a, %b, %p) <{dimension_numbers = #stablehlo.conv<'
        "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]>, batch_group_count = 1 : i64, "
        "feature_group_count = 1 : i64, window_strides = array<i64: 1, 2>}> : "
        "(tensor<2x3x5x6xf32>, tensor<4x3x2x3xf32>, tensor<2x2xi32>) -> tensor<2x4x5x3xf32>",
        "tensor<2x4x5x3xf32>", "tensor<2x3x5x6xf32>", "tensor<4x3x2x3xf32>",
    ),
    "fft": module(
        f"%r = stablehlo.fft %a, type = FFT, length = [4] : ({C}) -> {C}", C, C
    ),
    "cholesky": module(
        "%s = stablehlo.dot_general %a, %a, contracting_dims = [1] x [1] : (tensor<3x4xf32>, "
        "tensor<3x4xf32>) -> tensor<3x3xf32>\n%c = stablehlo.cholesky %s, lower = true : "
        "tensor<3x3xf32>\n%i = stablehlo.iota dim = 0 : tensor<3x3xi32>\n"
        "%j = stablehlo.iota dim = 1 : tensor<3x3xi32>\n%m = stablehlo.compare GE, %i, %j : "
        "(tensor<3x3xi32>, tensor<3x3xi32>) -> tensor<3x3xi1>\n"
        "%z = stablehlo.constant dense<0.0> : tensor<3x3xf32>\n"
        "%r = stablehlo.select %m, %c, %z : tensor<3x3xi1>, tensor<3x3xf32>",
        "tensor<3x3xf32>", A,
    ),
    "triangular_solve": module(
        "%i = stablehlo.constant dense<[[4.0, 0.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 4.0]]> : "
        "tensor<3x3xf32>\n%t = stablehlo.add %a, %i : tensor<3x3xf32>\n"
        '%r = "stablehlo.triangular_solve"(%t, %b) <{left_side = true, lower = true, '
        "unit_diagonal = false, transpose_a = #stablehlo<transpose TRANSPOSE>}> : "
        "(tensor<3x3xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>", A, "tensor<3x3xf32>", A,
    ),
    "batch_norm_inference": module(
        "%v = stablehlo.multiply %e, %e : tensor<3xf32>\n"
        '%r = "stablehlo.batch_norm_inference"(%a, %b, %c, %d, %v) <{epsilon = 0.01 : f32, '
        f"feature_index = 0 : i64}}> : ({A}, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, "
        f"tensor<3xf32>) -> {A}", A, A, *["tensor<3xf32>"] * 4,
    ),
    "batch_norm_training": module(
        '%r:3 = "stablehlo.batch_norm_training"(%a, %b, %c) <{epsilon = 0.01 : f32, '
        f"feature_index = 1 : i64}}> : ({A}, tensor<4xf32>, tensor<4xf32>) -> ({A}, "
        "tensor<4xf32>, tensor<4xf32>)",
        f"{A}, tensor<4xf32>, tensor<4xf32>", A, "tensor<4xf32>", "tensor<4xf32>",
    ),
    "batch_norm_grad": module(
        "%v = stablehlo.multiply %d, %d : tensor<4xf32>\n"
        '%r:3 = "stablehlo.batch_norm_grad"(%a, %b, %c, %v, %e) <{epsilon = 0.5 : f32, '
        f"feature_index = 1 : i64}}> : ({A}, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, {A}) "
        f"-> ({A}, tensor<4xf32>, tensor<4xf32>)",
        f"{A}, tensor<4xf32>, tensor<4xf32>", A, *["tensor<4xf32>"] * 3, A,
    ),
    "rng_bit_generator": module(
        "%r:2 = stablehlo.rng_bit_generator %a, algorithm = THREE_FRY : (tensor<2xui64>) -> "
        "(tensor<2xui64>, tensor<3x5xui32>)", "tensor<2xui64>, tensor<3x5xui32>", "tensor<2xui64>",
    ),
    "optimization_barrier": module(f"%r = stablehlo.optimization_barrier %a : {A}", A, A),
    "if": module(
        f'%r = "stablehlo.if"(%a) ({{ stablehlo.return %b : {A} }}, {{ %n = stablehlo.negate %b '
        f": {A}\nstablehlo.return %n : {A} }}) : (tensor<i1>) -> {A}", A, "tensor<i1>", A,
    ),
    "case": module(
        f'%r = "stablehlo.case"(%a) ({{ stablehlo.return %b : {A} }}, {{ %n = stablehlo.negate %b '
        f": {A}\nstablehlo.return %n : {A} }}) : (tensor<i32>) -> {A}", A, "tensor<i32>", A,
    ),
    "while": module(
        f"{ZERO}%two = stablehlo.constant dense<2.0> : tensor<f32>\n"
        "%r = stablehlo.while(%x = %zero) : tensor<f32> cond { %c = stablehlo.compare LT, %x, %a "
        ": (tensor<f32>, tensor<f32>) -> tensor<i1>\nstablehlo.return %c : tensor<i1> } do { "
        "%y = stablehlo.add %x, %two : tensor<f32>\nstablehlo.return %y : tensor<f32> }",
        "tensor<f32>", "tensor<f32>",
    ),
    "composite": (
        f'module {{ func.func public @main(%a: {A}) -> {A} {{ %r = stablehlo.composite "own.twice" '
        f"%a {{decomposition = @twice}} : ({A}) -> {A}\nreturn %r : {A} }}\n"
        f"func.func private @twice(%x: {A}) -> {A} {{ %y = stablehlo.add %x, %x : {A}\n"
        f"return %y : {A} }} }}"
    ),
    "custom_call": module(
        f'%r = stablehlo.custom_call @Sharding(%a) : ({A}) -> {A}', A, A
    ),
    **{name: module(f"%r = stablehlo.{name} : tensor<ui32>", "tensor<ui32>")
       for name in ("partition_id", "replica_id")},
    "all_gather": alone("all_gather", ", all_gather_dim = 1 : i64"),
    "all_reduce": alone("all_reduce", "", REGION.format("add")),
    "all_to_all": alone(
        "all_to_all", ", split_dimension = 1 : i64, concat_dimension = 0 : i64, "
        "split_count = 1 : i64",
    ),
    "reduce_scatter": alone(
        "reduce_scatter", ", scatter_dimension = 1 : i64", REGION.format("add")
    ),
    "collective_permute": module(
        '%r = "stablehlo.collective_permute"(%a) {source_target_pairs = dense<[[0, 0]]> : '
        f"tensor<1x2xi64>}} : ({A}) -> {A}", A, A,
    ),
    **dict.fromkeys(("tuple", "get_tuple_element"), module(
        f"%t = stablehlo.tuple %a, %b : tuple<{A}, {B}>\n"
        f"%u = stablehlo.tuple %t, %a : tuple<tuple<{A}, {B}>, {A}>\n"
        f"%v = stablehlo.get_tuple_element %u[0] : (tuple<tuple<{A}, {B}>, {A}>) -> "
        f"tuple<{A}, {B}>\n"
        f"%r = stablehlo.get_tuple_element %v[1] : (tuple<{A}, {B}>) -> {B}", B, A, B,
    )),
    "after_all": module(
        "%s = stablehlo.create_token : !stablehlo.token\n"
        "%t = stablehlo.after_all %s : !stablehlo.token\n"
        f"%u, %b = stablehlo.optimization_barrier %t, %a : !stablehlo.token, {A}\n"
        f"%r = stablehlo.abs %b : {A}", A, A,
    ),
    **dict.fromkeys(("async_start", "async_done"), module(
        f'%s = "stablehlo.async_start"(%a) ({{ ^bb0(%x: {A}):\n'
        '%y = "stablehlo.all_gather"(%x) {all_gather_dim = 0 : i64, '
        f"replica_groups = dense<0> : tensor<1x1xi64>}} : ({A}) -> {A}\n"
        f'"stablehlo.return"(%y) : ({A}) -> () }}) : ({A}) -> !stablehlo.future<{A}>\n'
        f'%r = "stablehlo.async_done"(%s) : (!stablehlo.future<{A}>) -> {A}', A, A,
    )),
}  # fmt: skip

EFFECTS = "it is an effect, of which a graph has none"
QUANTIZED = "jaxlib, which parses modules, does not know quantized element types"
REFUSED: dict[str, str] = {
    **dict.fromkeys(("infeed", "outfeed", "recv", "send"), EFFECTS),
    **dict.fromkeys(("uniform_dequantize", "uniform_quantize"), QUANTIZED),
    "collective_broadcast": "XLA has it on no processor, so that nothing could tell what is right",
    "rng": "its numbers are the implementation's own; rng_bit_generator has defined ones",
}
"""Operations of the specification that are not read, and why."""

DEPRECATED = frozenset(
    [
        "broadcast",
        "create_token",
        "cross-replica-sum",
        "dot",
        "einsum",
        "real_dynamic_slice",
        "return",
        "set_dimension_size",
        "torch_index_select",
        "unary_einsum",
    ]
)
"""Those that the dialect still has, and the specification has not, and the end of a block."""

_TENSOR = re.compile(r"%\w+: (tensor<[^<>]*(?:<f32>)?>)")


def inputs_of(text: str) -> list[Any]:
    """Arrays for the arguments of a module: numbers around zero, positive ones for vectors."""
    head = text[text.index("@main(") : text.index("->")]
    generator = np.random.default_rng(0)
    return [_input(each, generator) for each in _TENSOR.findall(head)]


def _input(type_: str, generator: Any) -> Any:
    found = re.fullmatch(r"tensor<((?:\d+x)*)(.*)>", type_)
    assert found is not None
    shape = tuple(map(int, found[1].split("x")[:-1]))
    element = found[2]
    if element == "complex<f32>":
        parts = generator.normal(size=(2, *shape))
        return (parts[0] + 1j * parts[1]).astype(np.complex64)
    if element == "f32":
        numbers = generator.normal(size=shape) * 2
        return np.asarray(np.abs(numbers) if len(shape) < 2 else numbers, np.float32)
    if element == "i1":
        return np.asarray(generator.integers(0, 2, shape), bool)
    low, high = (0, 3) if len(shape) < 2 else (-9, 9)
    dtype = {"i32": np.int32, "ui64": np.uint64}[element]
    return np.asarray(generator.integers(low, high, shape), dtype)
