"""Graphs run by their Triton kernels, group after group: in Triton's interpreter, or on a GPU.

What has no Triton kernel is computed by the graph's interpreter, and named: a test says whether it
may be.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton

from monograph.errors import InputError, UnsupportedError
from monograph.fusion.fuse import fuse
from monograph.fusion.group import Group, GroupKind
from monograph.fusion.prologue import is_stored
from monograph.ir.dims import Symbol, evaluate_dim
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.interpret import evaluate_node
from monograph.ir.types import Array, DType, bf16, f16, f32, f64
from monograph.kernel.flatten import flatten
from monograph.kernel.lower import is_lowerable, lower_group
from monograph.ops.attention import Attention
from monograph.targets.gpu.attention import AttentionOperands, attention_candidates
from monograph.targets.gpu.families import candidates
from monograph.targets.gpu.joint_products import join_products
from monograph.targets.gpu.plan import KernelSequence
from monograph.targets.gpu.source import TritonKernel

_TORCH = {f64: torch.float64, f32: torch.float32, f16: torch.float16, bf16: torch.bfloat16}


@dataclass
class Run:
    """The results of a run, the kernels that gave them, and what was computed without one."""

    results: list[Array] = field(default_factory=list)
    kernels: list[TritonKernel] = field(default_factory=list)
    on_host: dict[str, str] = field(default_factory=dict)
    """Ops without a kernel, and why."""
    sizes: dict[Symbol, int] = field(default_factory=dict)


def load(kernel: TritonKernel, folder: Path) -> Any:
    """The kernel as a Triton function; Triton reads its source from the file."""
    path = folder / f"{kernel.name}.py"
    path.write_text(kernel.source)
    spec = importlib.util.spec_from_file_location(kernel.name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, kernel.name)


def sequence_of(
    group: Group, name: str, number: int = 0
) -> tuple[KernelSequence, tuple[Value, ...], tuple[Value, ...]]:
    """A group's kernels by one of its candidates, and the values that it reads and writes."""
    first = group.nodes[0]
    if isinstance(first.op, Attention):
        types = [operand.tensor for operand in first.operands]
        operands = AttentionOperands(*types[:3], types[3] if len(types) > 3 else None)
        found = attention_candidates(name, first.op, operands, (str(first),))
        return found[min(number, len(found) - 1)], first.operands, first.results
    outputs = {value: group.places[value] for value in group.outputs()}
    kernel, inputs = lower_group(name, group.nodes, group.space, outputs)  # type: ignore[arg-type]
    comment = tuple(str(node) for node in group.nodes)
    found = candidates(flatten(kernel), comment, most=1 + number, slowdown=math.inf)
    return found[min(number, len(found) - 1)], inputs, tuple(outputs)


def run_graph(
    graph: Graph, arrays: Sequence[Array], folder: Path, device: str = "cpu", candidate: int = 0
) -> Run:
    """Run a graph whose composites are lowered, each group by its candidate of that number."""
    run = Run()
    held = dict(zip(graph.inputs, map(_contiguous, arrays), strict=True))
    sizes = run.sizes
    for value, array in held.items():
        for dim, size in zip(value.shape, array.shape, strict=True):
            if isinstance(dim, Symbol):
                sizes[dim] = size
    lowerable = {node: is_lowerable(node) for node in graph.nodes}
    for number, group in enumerate(join_products(fuse(graph, lowerable)).groups):
        if group.kind is GroupKind.OPAQUE and not isinstance(group.nodes[0].op, Attention):
            for node in group.nodes:
                _on_host(run, node, held, "no formula gives its elements")
            continue
        try:
            sequence, inputs, outputs = sequence_of(group, f"kernel{number}", candidate)
        except UnsupportedError as error:
            for node in group.nodes:
                _on_host(run, node, held, str(error))
            continue
        for value in inputs:
            if value not in held and value.producer is not None:
                _on_host(run, value.producer, held, "")
        shapes = [tuple(evaluate_dim(dim, sizes) for dim in value.shape) for value in outputs]
        made = [
            np.empty(shape, value.dtype.numpy) for shape, value in zip(shapes, outputs, strict=True)
        ]
        given = [held[value] for value in inputs]
        _launch(sequence, given, made, sizes, folder, device)
        held.update(zip(outputs, made, strict=True))
        run.kernels += sequence.kernels
    for value in graph.outputs:
        if value not in held and value.producer is not None:
            _on_host(run, value.producer, held, "")
    run.results = [held[value] for value in graph.outputs]
    return run


def _on_host(run: Run, node: Node, held: dict[Value, Array], reason: str) -> None:
    """Compute a node in NumPy; what it needs of a group that was fused is computed first."""
    for value in node.operands:
        if value not in held and value.producer is not None:
            _on_host(run, value.producer, held, "")
    results = evaluate_node(node, [held[value] for value in node.operands], run.sizes)
    held.update(zip(node.results, map(_contiguous, results), strict=True))
    if reason and not is_stored(node):
        run.on_host[node.op.name] = reason


def _launch(
    sequence: KernelSequence,
    given: Sequence[Array],
    made: Sequence[Array],
    sizes: dict[Symbol, int],
    folder: Path,
    device: str,
) -> None:
    """Run kernels on arrays; what they write is put into the last of them."""
    names = [f"b{k}" for k in range(len(given))] + [f"o{k}" for k in range(len(made))]
    arrays = dict(zip(names, [*given, *made], strict=True))
    memory: dict[str, torch.Tensor] = {}
    for buffer in sequence.scratch:
        count = math.prod(evaluate_dim(dim, sizes) for dim in buffer.shape)
        poison = np.full(count * buffer.dtype.numpy.itemsize, 0xFF, np.uint8)
        memory[buffer.name] = _tensor(poison, buffer.dtype, device)
    error = torch.zeros(1, dtype=torch.int32, device=device)
    if device != "cpu":
        triton.set_allocator(lambda size, *_: torch.empty(size, dtype=torch.int8, device=device))
    for kernel in sequence.kernels:
        for buffer in kernel.kernel.buffers:
            if buffer.name not in memory:
                memory[buffer.name] = _tensor(arrays[buffer.name], buffer.dtype, device)
        grid = tuple(evaluate_dim(dim, sizes) for dim in kernel.grid)
        if 0 in grid:
            continue
        tensors = [memory[buffer.name] for buffer in kernel.kernel.buffers]
        arguments = [*tensors, *([error] if kernel.checks else [])]
        numbers = [sizes[symbol] for symbol in kernel.sizes]
        load(kernel, folder)[grid](
            *arguments, *numbers, **kernel.blocks, num_warps=kernel.warps, num_stages=kernel.stages
        )
    if error.item():
        raise InputError("an index is out of range", expected="an index inside", found="another")
    for k, array in enumerate(made):
        if array.size and f"o{k}" in memory:
            array.reshape(-1).view(np.uint8)[:] = memory[f"o{k}"].cpu().view(torch.uint8).numpy()


def _tensor(array: Array, dtype: DType, device: str) -> torch.Tensor:
    """An array's memory as elements of a buffer's dtype; bools are bytes."""
    if dtype in _TORCH:
        kind = _TORCH[dtype]
    elif dtype.is_integer and dtype.bits >= 8:
        kind = getattr(torch, ("int" if dtype.kind.name == "SIGNED" else "uint") + str(dtype.bits))
    else:
        kind = torch.uint8
    if not array.size:
        return torch.empty(0, dtype=kind, device=device)
    return torch.from_numpy(array.reshape(-1).view(np.uint8).copy()).view(kind).to(device)


def _contiguous(array: Array) -> Array:
    """A row-major copy; of a scalar, too."""
    return np.asarray(array).copy(order="C")
