"""Products, convolutions and attention by cuBLAS, cuDNN and torch's attention.

Floats of 32 bits are multiplied as such: TF32, which keeps 10 of their 23 bits, is never used
unless ``MONOGRAPH_TF32=1`` asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from monograph.config import allows_tf32
from monograph.ir.graph import Node
from monograph.ir.types import bf16, f16, f32
from monograph.ops.attention import Attention
from monograph.ops.conv import Conv, ConvTranspose, ConvWeightGradient
from monograph.targets.gpu.libraries.library import Given, LibraryTask, Tensor, has_dtypes


def dot(task: LibraryTask) -> Given:
    """One batched matrix product, written where its result is wanted."""
    import torch

    op, (lhs, rhs), (out,) = task.op, task.operands, task.results
    lhs_free, rhs_free = op.free_axes(lhs.ndim, rhs.ndim)
    images = _count(lhs.shape[axis] for axis in op.lhs_batch)
    m = _count(lhs.shape[axis] for axis in lhs_free)
    n = _count(rhs.shape[axis] for axis in rhs_free)
    k = _count(lhs.shape[axis] for axis in op.lhs_contracting)
    left = lhs.permute(*op.lhs_batch, *lhs_free, *op.lhs_contracting).reshape(images, m, k)
    right = rhs.permute(*op.rhs_batch, *op.rhs_contracting, *rhs_free).reshape(images, k, n)
    result = out.view(images, m, n)
    with _in_asked_precision():
        if images == 1:
            torch.mm(left[0], right[0], out=result[0])
        else:
            torch.bmm(left, right, out=result)
    return None


def linear_activation(task: LibraryTask) -> Given:
    """A product whose bias and activation cuBLASLt adds while sums are in registers."""
    import torch

    op, (x, weight, bias), (out,) = task.op, task.operands, task.results
    rows = x.reshape(-1, x.shape[-1])
    right = weight if op.inputs_first else weight.T
    result = out.view(-1, out.shape[-1])
    with _in_asked_precision():
        if op.activation == "none":
            torch.addmm(bias, rows, right, out=result)
        elif x.is_cuda:
            use_gelu = op.activation == "gelu_tanh"
            torch._addmm_activation(bias, rows, right, use_gelu=use_gelu, out=result)
        else:
            _on_the_host(op.activation, bias, rows, right, result)
    return None


def _on_the_host(activation: str, bias: Tensor, x: Tensor, right: Tensor, out: Tensor) -> None:
    """The same where torch's own function takes GELU to be the exact one."""
    import torch

    linear = torch.addmm(bias, x, right)
    functions = torch.nn.functional
    is_relu = activation == "relu"
    out.copy_(functions.relu(linear) if is_relu else functions.gelu(linear, approximate="tanh"))


@contextmanager
def _in_asked_precision() -> Iterator[None]:
    """Multiply f32 as such, or by tensor cores if that is asked for."""
    import torch

    precision = "high" if allows_tf32() else "highest"
    before = torch.get_float32_matmul_precision()
    if before != precision:
        torch.set_float32_matmul_precision(precision)
    yield
    if before != precision:
        torch.set_float32_matmul_precision(before)


def _count(sizes: Iterable[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


# Convolutions -------------------------------------------------------------------------------------


def convolution(task: LibraryTask) -> Given:
    """A convolution; borders that differ are added before."""
    import torch

    x, weight, *bias = task.operands
    op: Conv = task.op
    padding = [before for before, _ in op.padding]
    if any(before != after for before, after in op.padding):
        pairs = [number for pair in reversed(op.padding) for number in pair]
        x, padding = torch.nn.functional.pad(x, pairs), [0] * len(padding)
    with _exactly():
        found = torch.ops.aten.convolution(
            x, weight, bias[0] if bias else None, list(op.stride), padding, list(op.dilation),
            False, [0] * len(padding), op.groups,
        )  # fmt: skip
    return [found]


def convolve_transposed(task: LibraryTask) -> Given:
    """A transposed convolution of even borders."""
    import torch

    x, weight, *bias = task.operands
    op: ConvTranspose = task.op
    padding = [before for before, _ in op.padding]
    with _exactly():
        found = torch.ops.aten.convolution(
            x, weight, bias[0] if bias else None, list(op.stride), padding, list(op.dilation),
            True, list(op.output_padding), op.groups,
        )  # fmt: skip
    return [found]


def weight_gradient(task: LibraryTask) -> Given:
    """The gradient of a convolution by its weight."""
    import torch

    x, grad = task.operands
    op: ConvWeightGradient = task.op
    padding = [before for before, _ in op.padding]
    weight = torch.empty(task.results[0].shape, dtype=x.dtype, device=x.device)
    with _exactly():
        _, found, _ = torch.ops.aten.convolution_backward(
            grad, x, weight, None, list(op.stride), padding, list(op.dilation), False,
            [0] * len(padding), op.groups, [False, True, False],
        )  # fmt: skip
    return [found]


@contextmanager
def _exactly() -> Iterator[None]:
    """Let cuDNN give the same bits in every run, and multiply f32 as such.

    These are torch's own switches, set by hand: its context managers take as long as a layer.
    """
    import torch

    switches = torch._C
    before = switches._get_cudnn_allow_tf32(), switches._get_cudnn_deterministic()
    switches._set_cudnn_allow_tf32(allows_tf32())
    switches._set_cudnn_deterministic(True)
    yield
    switches._set_cudnn_allow_tf32(before[0])
    switches._set_cudnn_deterministic(before[1])


def is_convolution(node: Node) -> bool:
    """Whether cuDNN has it: one to three spatial axes, of floats that tensor cores know."""
    return node.operands[0].rank in (3, 4, 5) and has_dtypes(f32, f16, bf16)(node)


def is_even(node: Node) -> bool:
    """Whether, besides, its borders are as wide before as after."""
    op = node.op
    assert isinstance(op, ConvTranspose | ConvWeightGradient)
    return is_convolution(node) and all(before == after for before, after in op.padding)


# Attention ----------------------------------------------------------------------------------------


BACKENDS = {"flash": 1, "cuDNN": 3}
"""torch's numbers of what computes attention (``SDPBackend``)."""


def attention(task: LibraryTask) -> Given:
    """By cuDNN or flash attention: as the step says, or as torch chooses for the operands."""
    import torch

    op: Attention = task.op
    operands = task.operands
    query, key, value = (each.reshape(-1, *each.shape[-3:]) for each in operands)
    options = {
        "is_causal": op.causal,
        "scale": op.factor(tuple(operands[0].shape)),
        "enable_gqa": query.shape[-3] != key.shape[-3],
    }
    wanted = BACKENDS.get(task.choice) if query.is_cuda else None
    if wanted is None or torch._fused_sdp_choice(query, key, value, **options) == wanted:
        found = torch.nn.functional.scaled_dot_product_attention(query, key, value, **options)
    else:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend(wanted)):
            found = torch.nn.functional.scaled_dot_product_attention(query, key, value, **options)
    return [found.view(task.results[0].shape)]


def is_plain_attention(node: Node) -> bool:
    """Whether it is attention without a mask, of one batch, in 16 bits."""
    query, key, value, *mask = node.operands
    same_batch = all(each.shape[:-3] == query.shape[:-3] for each in (key, value))
    return same_batch and not mask and has_dtypes(f16, bf16)(node)
