"""Right models, small and various, for the fuzzer to damage; texts in ONNX's own syntax."""

from __future__ import annotations

import onnx.parser
from onnx import ModelProto, TensorProto, helper

from tests.frontends.onnx.hostile.case import array, model, node, value

HEADER = '<ir_version: 10, opset_import: ["" : 21, "own" : 1]>\n'

TEXTS: dict[str, str] = {
    "perceptron": """
        g (float[N, 4] x, float[4, 8] w, float[8] b) => (float[N, 8] y)
        { h = MatMul(x, w)  a = Add(h, b)  y = Relu(a) }""",
    "gemm": """
        g (float[3, 4] x, float[8, 4] w, float[8] b) => (float[3, 8] y)
        { y = Gemm <transB = 1, alpha = 0.5> (x, w, b) }""",
    "convolution": """
        g (float[1, 3, 8, 8] x, float[4, 3, 3, 3] w, float[4] b) => (float[1, 4, 4, 4] y)
        { h = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]> (x, w, b)
          y = LeakyRelu <alpha = 0.1> (h) }""",
    "transposed convolution": """
        g (float[1, 3, 5, 5] x, float[3, 2, 3, 3] w) => (float[1, 2, A, B] y)
        { y = ConvTranspose <strides = [2, 2], output_padding = [1, 1]> (x, w) }""",
    "pools": """
        g (float[1, 2, 8, 8] x) => (float[1, 2, 1, 1] y)
        { a = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
          b = AveragePool <kernel_shape = [2, 2], count_include_pad = 1, pads = [1, 1, 1, 1]> (a)
          y = GlobalAveragePool(b) }""",
    "batch norm": """
        g (float[2, 3, 4] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[2, 3, 4] y)
        { y = BatchNormalization <epsilon = 0.001> (x, s, b, m, v) }""",
    "attention": """
        g (float[1, 2, S, 4] q, float[1, 2, S, 4] k, float[1, 2, S, 4] v) => (float[1, 2, S, 4] y)
        { t = Transpose <perm = [0, 1, 3, 2]> (k)  a = MatMul(q, t)
          p = Softmax <axis = -1> (a)  y = MatMul(p, v) }""",
    "layer norm": """
        g (float[2, 5, 8] x, float[8] s, float[8] b) => (float[2, 5, 8] y)
        { y = LayerNormalization <axis = -1, epsilon = 0.00001> (x, s, b) }""",
    "gelu by its body": """
        g (float[2, 8] x) => (float[2, 8] y) { y = Gelu <approximate = "tanh"> (x) }""",
    "gather": """
        g (float[10, 4] x, int64[3] i) => (float[3, 4] y) { y = Gather <axis = 0> (x, i) }""",
    "scatter": """
        g (float[4, 4] x, int64[2, 4] i, float[2, 4] u) => (float[4, 4] y)
        { y = ScatterElements <axis = 0, reduction = "add"> (x, i, u) }""",
    "scatter nd": """
        g (float[8] x, int64[4, 1] i, float[4] u) => (float[8] y) { y = ScatterND(x, i, u) }""",
    "reshape by shapes": """
        g (float[N, 4, 6] x) => (float[A, B] y)
        { s = Shape(x)  z = Constant <value = int64[1] {0}> ()  n = Gather(s, z)
          m = Constant <value = int64[1] {-1}> ()  t = Concat <axis = 0> (n, m)
          y = Reshape(x, t) }""",
    "slices": """
        g (float[8, 8] x) => (float[A, B] y)
        { a = Constant <value = int64[2] {1, -1}> ()  b = Constant <value = int64[2] {7, -9}> ()
          c = Constant <value = int64[2] {0, 1}> ()  d = Constant <value = int64[2] {2, -1}> ()
          y = Slice(x, a, b, c, d) }""",
    "split and concat": """
        g (float[6, 2] x) => (float[6, 2] y)
        { s = Constant <value = int64[3] {1, 2, 3}> ()
          a, b, c = Split <axis = 0> (x, s)  y = Concat <axis = 0> (c, b, a) }""",
    "pad, tile, expand": """
        g (float[2, 3] x) => (float[A, B, C] y)
        { p = Constant <value = int64[4] {1, 0, 0, 2}> ()  a = Pad <mode = "reflect"> (x, p)
          r = Constant <value = int64[2] {2, 1}> ()  b = Tile(a, r)
          e = Constant <value = int64[3] {3, 1, 1}> ()  y = Expand(b, e) }""",
    "reductions": """
        g (float[2, 3, 4] x) => (float[2, 1, 1] y)
        { a = Constant <value = int64[2] {1, 2}> ()  s = ReduceSum <keepdims = 1> (x, a)
          m = ReduceMax <keepdims = 1> (x, a)  y = Mul(s, m) }""",
    "top k": """
        g (float[3, 8] x) => (float[3, 2] y, int64[3, 2] i)
        { k = Constant <value = int64[1] {2}> ()  y, i = TopK <axis = 1, largest = 0> (x, k) }""",
    "casts and where": """
        g (float[4] x, int64[4] i) => (double[4] y)
        { c = Greater(x, x)  a = Cast <to = 11> (x)  b = Cast <to = 11> (i)
          y = Where(c, a, b) }""",
    "if": """
        g (bool c, float[4] x) => (float[4] y)
        { y = If (c) <then_branch = t () => (float[4] a) { a = Relu(x) },
                      else_branch = e () => (float[4] b) { b = Neg(x) }> }""",
    "loop": """
        g (int64 m, float[4] x) => (float[4] y, float[K, 4] z)
        { t = Constant <value = bool {1}> ()
          y, z = Loop (m, t, x) <body = b (int64 i, bool c, float[4] v)
                                   => (bool d, float[4] w, float[4] s)
                                 { d = Identity(c)  w = Add(v, v)  s = Identity(w) }> }""",
    "scan": """
        g (float[2] h, float[5, 2] x) => (float[2] y, float[5, 2] z)
        { y, z = Scan <num_scan_inputs = 1,
                       body = b (float[2] a, float[2] e) => (float[2] c, float[2] d)
                       { c = Add(a, e)  d = Identity(c) }> (h, x) }""",
    "sequences": """
        g (float[4] x) => (float[A] y, int64 n)
        { s = SequenceConstruct(x, x)  i = Constant <value = int64 {0}> ()
          t = SequenceInsert(s, x, i)  n = SequenceLength(t)
          y = ConcatFromSequence <axis = 0> (t) }""",
    "range and constant of shape": """
        g (int64 n) => (float[A] y)
        { a = Constant <value = int64 {0}> ()  d = Constant <value = int64 {1}> ()
          r = Range(a, n, d)  s = Shape(r)  o = ConstantOfShape <value = float[1] {1.5}> (s)
          f = Cast <to = 1> (r)  y = Add(f, o) }""",
    "one-hot": """
        g (int64[3] x) => (float[3, 5] y)
        { d = Constant <value = int64 {5}> ()  v = Constant <value = float[2] {0.0, 1.0}> ()
          y = OneHot <axis = -1> (x, d, v) }""",
    "resize": """
        g (float[1, 1, 4, 4] x) => (float[1, 1, A, B] y)
        { s = Constant <value = float[4] {1.0, 1.0, 2.0, 1.5}> ()
          y = Resize <mode = "linear", coordinate_transformation_mode = "half_pixel"> (x, , s) }""",
    "quantized": """
        g (float[4, 4] x) => (float[4, 4] y)
        { s = Constant <value = float {0.1}> ()  z = Constant <value = uint8 {128}> ()
          q = QuantizeLinear(x, s, z)  y = DequantizeLinear(q, s, z) }""",
    "einsum": """
        g (float[2, 3, 4] x, float[4, 5] w) => (float[2, 3, 5] y)
        { y = Einsum <equation = "bij,jk->bik"> (x, w) }""",
    "recurrent": """
        g (float[5, 2, 3] x, float[1, 16, 3] w, float[1, 16, 4] r) => (float[A, B, C, D] y)
        { y = LSTM <hidden_size = 4> (x, w, r) }""",
    "integers": """
        g (int64[4] a, int64[4] b) => (int64[4] y)
        { c = Div(a, b)  d = Mod <fmod = 1> (a, b)  f = Cast <to = 13> (c)  g = Cast <to = 13> (d)
          e = BitShift <direction = "LEFT"> (f, g)  h = Cast <to = 7> (e)  y = Add(h, a) }""",
}

FUNCTION = """
<domain: "own", opset_import: ["" : 21, "own" : 1]>
scaled <alpha> (x) => (y) { h = LeakyRelu <alpha : float = @alpha> (x)  y = Add(h, x) }
"""


def seeds() -> dict[str, ModelProto]:
    """Every seed by its name."""
    made = {name: onnx.parser.parse_model(HEADER + text) for name, text in TEXTS.items()}
    caller = onnx.parser.parse_model(
        HEADER + "g (float[4] x) => (float[4] y) { y = own.scaled <alpha = 0.5> (x) }" + FUNCTION
    )
    return {**made, "function": caller, "weights": _weights(), "strings": _strings()}


def _weights() -> ModelProto:
    """Initializers stored in every field that there is."""
    tensors = [
        helper.make_tensor("f", TensorProto.FLOAT, [2], [1.0, 2.0]),
        helper.make_tensor("h", TensorProto.FLOAT16, [2], [1.0, 2.0]),
        helper.make_tensor("i", TensorProto.INT32, [2], [1, 2]),
        array("r", [3.0, 4.0], "float32"),
    ]
    nodes = [
        node("Cast", "h", "h1", to=1), node("Cast", "i", "i1", to=1), node("Add", "f r", "a"),
        node("Add", "h1 i1", "b"), node("Add", "a b", "c"), node("Add", "c x", "y"),
    ]  # fmt: skip
    return model(
        *nodes, inputs=[value("x", (2,))], outputs=[value("y", (2,))], initializers=tensors
    )


def _strings() -> ModelProto:
    """Words, which only the interpreter knows."""
    words = helper.make_tensor("w", TensorProto.STRING, [2], [b"a", b"b"])  # type: ignore[list-item]
    return model(
        node("StringConcat", "x w", "h"), node("Identity", "h", "y"),
        inputs=[value("x", (2,), TensorProto.STRING)],
        outputs=[value("y", (2,), TensorProto.STRING)],
        initializers=[words],
    )  # fmt: skip
