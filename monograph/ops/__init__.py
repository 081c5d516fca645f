"""Every op that the compiler knows, one block each, one file a family.

A family is loaded when something of it is first used: most programs use few of them, and reading
all would take longer than compiling a small program does. ``load_all`` fills the registry.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from monograph.ops import (
        activation,
        adaptive_pool,
        attention,
        batch_norm,
        bessel,
        bitcast,
        blocked_linear,
        bounded_nonzero,
        bounded_suppression,
        collective,
        control,
        conv,
        cumulative,
        data,
        detection,
        distance,
        distributions,
        einsum,
        elementwise,
        embedding_bag,
        erf_inv,
        factorize,
        fft,
        gamma,
        grouped,
        image,
        index,
        joining,
        ldl,
        linalg,
        linear_activation,
        log_cumulative,
        loss,
        math,
        memory,
        norm,
        patches,
        polynomials,
        pool,
        quant,
        quantiles,
        random,
        rectifier,
        recurrent,
        reduce,
        resize,
        sequence,
        shape,
        slicing,
        softmax,
        solve,
        sorting,
        special_functions,
        spectral,
        statistics,
        strings,
        table_lookup,
        triangle,
        trigonometry,
        vision,
    )

__all__ = [
    "activation",
    "adaptive_pool",
    "attention",
    "batch_norm",
    "bessel",
    "bitcast",
    "blocked_linear",
    "bounded_nonzero",
    "bounded_suppression",
    "collective",
    "control",
    "conv",
    "cumulative",
    "data",
    "detection",
    "distance",
    "distributions",
    "einsum",
    "elementwise",
    "embedding_bag",
    "erf_inv",
    "factorize",
    "fft",
    "gamma",
    "grouped",
    "image",
    "index",
    "joining",
    "ldl",
    "linalg",
    "linear_activation",
    "log_cumulative",
    "loss",
    "math",
    "memory",
    "norm",
    "patches",
    "polynomials",
    "pool",
    "quant",
    "quantiles",
    "random",
    "rectifier",
    "recurrent",
    "reduce",
    "resize",
    "sequence",
    "shape",
    "slicing",
    "softmax",
    "solve",
    "sorting",
    "special_functions",
    "spectral",
    "statistics",
    "strings",
    "table_lookup",
    "triangle",
    "trigonometry",
    "vision",
]


@cache
def load_all() -> None:
    """Import every family, so that each op and function is registered."""
    for family in __all__:
        importlib.import_module(f"{__name__}.{family}")


def load_operators() -> None:
    """Import the families that define Python's operators on values."""
    for family in ("elementwise", "linalg", "index"):
        importlib.import_module(f"{__name__}.{family}")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
