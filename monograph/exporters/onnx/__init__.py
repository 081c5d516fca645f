"""Graphs as ONNX models: ``to_onnx``.

The graph is walked in order (``writer``) and each node is handed to the converter of its op
(``converters/``, one file a family as in ``monograph.ops``). Where ONNX has the op, one node is
written; where it has not, the op becomes a *local function* of the model (``functions``), made from
its decomposition or from the expansion that ``converters`` give it, so that the structure of the
graph is still there to be read. Sizes that are symbols are worked out by the model (``sizes``).

What is promised: ``onnx.checker`` accepts the model, and ONNX Runtime computes with it what the
interpreter computes with the graph, within rounding, with every NaN and infinity in its place. The
sign of a zero is kept by arithmetic; of two zeros, ``Max``, ``Min``, ``Relu`` and the pools may
return either. A NaN's own sign and payload are lost where numbers are converted.

``onnx`` itself is imported by the modules of this package, never by the package's ``__init__``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from monograph.errors import InputError
from monograph.ir.graph import Graph

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["NEWEST_OPSET", "OLDEST_OPSET", "to_onnx"]

OLDEST_OPSET = 18
NEWEST_OPSET = 26
"""The newest opset that ONNX Runtime 1.31 loads."""


def to_onnx(
    graph: Graph,
    path: str | Path | None = None,
    *,
    opset: int = NEWEST_OPSET,
    external_data: bool | None = None,
    special_values: bool = True,
) -> ModelProto:
    """The ONNX model of a graph, written to ``path`` if one is given.

    Weights are initializers. ``external_data`` puts them in a file of their own beside the model,
    ``<path>.data``; None does so above 1.5 GiB, which one protobuf file cannot hold for long.

    Inputs and outputs keep their names, symbolic sizes are ``dim_param`` (``batch``,
    ``2*seq+1``), and each node's source line is in its ``metadata_props``. An output that the model
    has already (the same value twice, an input, a weight) is copied under a name of its own. A
    complex tensor is a real one with a last dimension of 2, as ONNX's own ``DFT`` has it. State
    (``graph.updates``, ``graph.donated``) and the ranges of symbols are in the model's metadata.

    ``special_values=False`` leaves out the nodes that are there only for NaN and infinities, which
    ONNX Runtime's ``Gelu``, ``MaxPool``, ``ReduceMax``, ``QuantizeLinear`` and some others treat in
    ways of their own; patterns that a runtime looks for are then undisturbed.

    Everything that ONNX cannot express is reported at once, in an ``UnsupportedError``.
    """
    _need_onnx()
    from monograph.exporters.onnx.model import export

    if not OLDEST_OPSET <= opset <= NEWEST_OPSET:
        raise InputError(
            "to_onnx: this opset cannot be written",
            expected=f"{OLDEST_OPSET} to {NEWEST_OPSET}",
            found=str(opset),
        )
    where = None if path is None else Path(path)
    return export(graph, where, opset, external_data, special_values)


def _need_onnx() -> None:
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise InputError(
            "writing ONNX models needs the onnx package",
            hint="pip install 'monograph[onnx]'",
        ) from None
