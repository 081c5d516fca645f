"""A torch module as a JAX function, so that XLA and IREE can be measured on whole models.

The module is exported, decomposed to torch's core ops, and each of those is applied as the JAX
function that a person would write for it; attention stays whole. Weights become arguments, as they
are in JAX programs. Only what the benchmarks' models use is here: any other op is refused by name.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node


class UnknownOp(Exception):
    """An op that has no JAX form here."""


def convert(
    module: nn.Module, inputs: tuple[Tensor, ...]
) -> tuple[Callable[..., Any], list[Tensor]]:
    """A function of JAX arrays (the inputs, then the weights), and those weights."""
    table: Any = torch.export.default_decompositions()
    table.pop(torch.ops.aten.scaled_dot_product_attention.default)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.export.export(module, inputs, strict=False).run_decompositions(table)
    signature = program.graph_signature
    held = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    values = {**program.state_dict, **program.constants}
    placeholders = [node.name for node in program.graph.nodes if node.op == "placeholder"]
    weights = [name for name in placeholders if name in held]
    given = [name for name in placeholders if name not in held]
    nodes = list(program.graph.nodes)
    _refuse_unknown(nodes)

    def function(*arrays: Any) -> Any:
        return _run(nodes, dict(zip([*given, *weights], arrays, strict=True)))

    return function, [values[held[name]].detach() for name in weights]


def _refuse_unknown(nodes: Sequence[Node]) -> None:
    known = _table()
    unknown = {str(node.target) for node in nodes if node.op == "call_function"} - set(known)
    if unknown:
        raise UnknownOp(f"no JAX form of {', '.join(sorted(unknown))}")


def _run(nodes: Sequence[Node], values: dict[str, Any]) -> Any:
    """Apply the ops one by one."""
    table = _table()
    results: Any = ()
    for node in nodes:
        if node.op == "call_function":
            arguments = torch.fx.map_arg(node.args, lambda used: values[used.name])
            named = torch.fx.map_arg(node.kwargs, lambda used: values[used.name])
            values[node.name] = table[str(node.target)](*arguments, **named)
        elif node.op == "output":
            results = torch.fx.map_arg(node.args[0], lambda used: values[used.name])
    return tuple(results)


@cache
def _table() -> dict[str, Callable[..., Any]]:
    """Each op's JAX form, by the name that torch gives it."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    dtypes = {
        torch.float32: jnp.float32,
        torch.float16: jnp.float16,
        torch.bfloat16: jnp.bfloat16,
        torch.int64: jnp.int32,
        torch.int32: jnp.int32,
        torch.bool: jnp.bool_,
    }

    def dtype_of(options: dict[str, Any]) -> Any:
        return dtypes[options["dtype"]] if options.get("dtype") is not None else None

    def slice_(x: Any, axis: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
        return x[(slice(None),) * (axis % x.ndim) + (slice(start, end, step),)]

    def expand(x: Any, sizes: Sequence[int], **_: Any) -> Any:
        missing = len(sizes) - x.ndim
        shape = [x.shape[axis - missing] if size == -1 else size for axis, size in enumerate(sizes)]
        return jnp.broadcast_to(x, shape)

    def layer_norm(x: Any, shape: Sequence[int], scale: Any, shift: Any, epsilon: float) -> Any:
        axes = tuple(range(x.ndim - len(shape), x.ndim))
        centred = x - jnp.mean(x, axes, keepdims=True)
        factor = lax.rsqrt(jnp.mean(centred * centred, axes, keepdims=True) + epsilon)
        return (centred * factor * scale + shift, None, None)

    def batch_norm(
        x: Any, scale: Any, shift: Any, mean: Any, variance: Any, _: float, epsilon: float
    ) -> Any:
        factor = scale * lax.rsqrt(variance + epsilon)
        shape = (1, -1) + (1,) * (x.ndim - 2)
        return (x * factor.reshape(shape) + (shift - mean * factor).reshape(shape), None, None)

    def convolution(
        x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
        transposed: bool, _: Any, groups: int,
    ) -> Any:  # fmt: skip
        if transposed:
            raise UnknownOp("no JAX form of transposed convolution")
        space = "DHW"[-(x.ndim - 2) :]
        result = lax.conv_general_dilated(
            x,
            weight,
            window_strides=stride,
            padding=[(each, each) for each in padding],
            rhs_dilation=dilation,
            dimension_numbers=(f"NC{space}", f"OI{space}", f"NC{space}"),
            feature_group_count=groups,
        )
        return result if bias is None else result + bias.reshape(1, -1, *(1 for _ in space))

    def max_pool(x: Any, window: Any, stride: Any, padding: Any = (0, 0), *_: Any) -> Any:
        pads = [(0, 0), (0, 0), *((each, each) for each in padding)]
        return (
            lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, *window), (1, 1, *stride), pads),
            None,
        )

    def attention(
        q: Any, k: Any, v: Any, mask: Any = None, _: float = 0.0, causal: bool = False,
        scale: float | None = None, enable_gqa: bool = False,
    ) -> Any:  # fmt: skip
        if enable_gqa:
            k, v = (jnp.repeat(each, q.shape[-3] // each.shape[-3], axis=-3) for each in (k, v))
        scores = (q @ jnp.swapaxes(k, -1, -2)) * (scale or 1 / math.sqrt(q.shape[-1]))
        if causal:
            mask = jnp.tril(jnp.ones(scores.shape[-2:], jnp.bool_))
        if mask is not None:
            masked = mask.dtype == jnp.bool_
            scores = jnp.where(mask, scores, -jnp.inf) if masked else scores + mask
        return jax.nn.softmax(scores, axis=-1) @ v

    def pad(x: Any, sizes: Sequence[int], value: float = 0.0) -> Any:
        pairs = list(zip(sizes[::2], sizes[1::2], strict=True))[::-1]
        widths = [(0, 0, 0)] * (x.ndim - len(pairs)) + [
            (before, after, 0) for before, after in pairs
        ]
        return lax.pad(x, jnp.asarray(value, x.dtype), widths)

    def index(x: Any, indices: Sequence[Any]) -> Any:
        return x[tuple(slice(None) if each is None else each for each in indices)]

    def arange(start: int, end: int, step: int = 1, **options: Any) -> Any:
        return jnp.arange(start, end, step, dtype_of(options))

    def full(shape: Sequence[int], value: Any, **options: Any) -> Any:
        return jnp.full(shape, value, dtype_of(options))

    def split(x: Any, sizes: Sequence[int], axis: int = 0) -> Any:
        ends = [sum(sizes[: count + 1]) for count in range(len(sizes) - 1)]
        return jnp.split(x, ends, axis)

    def cat(arrays: Sequence[Any], axis: int = 0) -> Any:
        # In PyTorch an empty vector joins anything: a cache before its first token.
        return jnp.concatenate([x for x in arrays if x.ndim != 1 or x.size or axis == 0], axis)

    def same(x: Any, *_: Any, **__: Any) -> Any:
        return x

    aten = {
        "_assert_tensor_metadata.default": lambda *_, **__: None,
        "_native_batch_norm_legit_no_training.default": batch_norm,
        "_softmax.default": lambda x, axis, _: jax.nn.softmax(x, axis),
        "_to_copy.default": lambda x, **options: x.astype(dtype_of(options) or x.dtype),
        "add.Tensor": jnp.add,
        "addmm.default": lambda bias, x, y: x @ y + bias,
        "alias.default": same,
        "any.dim": lambda x, axis, keep=False: jnp.any(x, axis, keepdims=keep),
        "arange.start_step": arange,
        "bitwise_and.Tensor": jnp.bitwise_and,
        "bmm.default": jnp.matmul,
        "cat.default": cat,
        "clone.default": same,
        "constant_pad_nd.default": pad,
        "convolution.default": convolution,
        "cos.default": jnp.cos,
        "cumsum.default": jnp.cumsum,
        "div.Tensor": jnp.divide,
        "embedding.default": lambda weight, rows, *_: jnp.take(weight, rows, axis=0),
        "eq.Scalar": jnp.equal,
        "eq.Tensor": jnp.equal,
        "expand.default": expand,
        "full.default": full,
        "full_like.default": lambda x, value, **_: jnp.full_like(x, value),
        "gather.default": lambda x, axis, rows: jnp.take_along_axis(x, rows, axis),
        "ge.Scalar": jnp.greater_equal,
        "gelu.default": lambda x, approximate="none": jax.nn.gelu(
            x, approximate=approximate == "tanh"
        ),
        "hardtanh.default": lambda x, low=-1.0, high=1.0: jnp.clip(x, low, high),
        "index.Tensor": index,
        "le.Tensor": jnp.less_equal,
        "logical_not.default": jnp.logical_not,
        "max_pool2d_with_indices.default": max_pool,
        "mean.dim": lambda x, axes, keep=False: jnp.mean(x, tuple(axes), keepdims=keep),
        "mm.default": jnp.matmul,
        "mul.Scalar": jnp.multiply,
        "mul.Tensor": jnp.multiply,
        "native_layer_norm.default": layer_norm,
        "ne.Scalar": jnp.not_equal,
        "neg.default": jnp.negative,
        "permute.default": jnp.transpose,
        "pow.Tensor_Scalar": jnp.power,
        "relu.default": jax.nn.relu,
        "rsqrt.default": lax.rsqrt,
        "scalar_tensor.default": lambda value, **options: jnp.asarray(value, dtype_of(options)),
        "scaled_dot_product_attention.default": attention,
        "select.int": lambda x, axis, at: jnp.take(x, at, axis=axis),
        "sigmoid.default": jax.nn.sigmoid,
        "silu.default": jax.nn.silu,
        "sin.default": jnp.sin,
        "slice.Tensor": slice_,
        "split_with_sizes.default": split,
        "squeeze.dims": lambda x, axes: jnp.squeeze(x, tuple(axes)),
        "sub.Tensor": jnp.subtract,
        "tanh.default": jnp.tanh,
        "unsqueeze.default": jnp.expand_dims,
        "view.default": jnp.reshape,
        "where.self": jnp.where,
    }
    return {f"aten.{name}": form for name, form in aten.items()} | {
        str(operator.getitem): operator.getitem
    }
