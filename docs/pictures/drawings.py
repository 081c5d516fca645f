"""Every picture, by the name of its chapter's file."""

from __future__ import annotations

from collections.abc import Callable

from docs.pictures import graphs, kernels, memory, tables, targets

PICTURES: dict[str, Callable[[], str]] = {
    "1-the-graph": graphs.the_graph,
    "2-frontends": graphs.frontends,
    "3-ops": tables.ops,
    "4-passes": tables.passes,
    "5-gradients": graphs.gradients,
    "6-fusion": kernels.fusion,
    "7-kernels-and-schedules": kernels.schedules,
    "8-products-and-convolutions": kernels.products,
    "9-memory-and-threads": memory.memory_and_threads,
    "10-dynamic-shapes": memory.dynamic_shapes,
    "11-cache-and-artifacts": memory.cache_and_artifacts,
    "12-accuracy-and-testing": tables.accuracy,
    "13-quantization": graphs.quantization,
    "14-measuring": tables.roofline,
    "15-gpu": targets.gpu,
    "16-add-a-target": targets.add_a_target,
}
