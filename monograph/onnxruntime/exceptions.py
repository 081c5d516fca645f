"""ONNX Runtime's exceptions: one class for each of its status codes.

The text begins as ONNX Runtime's does (``[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : …``), since
programs look for that; what this compiler has to say of the cause follows, and is ``__cause__``.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from monograph.errors import EvaluationError, MonographError, TimeLimitError, UnsupportedError
from monograph.frontends.onnx.order import op_type_in


class OnnxRuntimeError(Exception):
    """Base of all of them."""

    code: ClassVar[int] = 0
    status: ClassVar[str] = ""

    def __init__(self, message: str) -> None:
        super().__init__(f"[ONNXRuntimeError] : {self.code} : {self.status} : {message}")


class Fail(OnnxRuntimeError):
    """Something went wrong that has no class of its own."""

    code, status = 1, "FAIL"


class InvalidArgument(OnnxRuntimeError):
    """An input, an output's name or an option is not what the model wants."""

    code, status = 2, "INVALID_ARGUMENT"


class NoSuchFile(OnnxRuntimeError):
    """There is no such model."""

    code, status = 3, "NO_SUCHFILE"


class NoModel(OnnxRuntimeError):
    """A session without a model."""

    code, status = 4, "NO_MODEL"


class EngineError(OnnxRuntimeError):
    """An engine failed."""

    code, status = 5, "ENGINE_ERROR"


class RuntimeException(OnnxRuntimeError):
    """A run failed."""

    code, status = 6, "RUNTIME_EXCEPTION"


class InvalidProtobuf(OnnxRuntimeError):
    """A file or bytes that are no model."""

    code, status = 7, "INVALID_PROTOBUF"


class ModelLoaded(OnnxRuntimeError):
    """A session that has a model already."""

    code, status = 8, "MODEL_LOADED"


class NotImplemented(OnnxRuntimeError):
    """A model, or a call, that needs what there is not."""

    code, status = 9, "NOT_IMPLEMENTED"


class InvalidGraph(OnnxRuntimeError):
    """A model that contradicts itself, or uses an op that nobody defines."""

    code, status = 10, "INVALID_GRAPH"


class EPFail(OnnxRuntimeError):
    """A provider failed."""

    code, status = 11, "EP_FAIL"


class NotFound(OnnxRuntimeError):
    """Something that was asked for by name is not there."""

    code, status = 14, "NOT_FOUND"


def unreadable(source: str | None, cause: MonographError) -> OnnxRuntimeError:
    """The error for a model that did not load; ``source`` is its path, if it came from a file."""
    where = "" if source is None else f"Load model from {source} failed:"
    text = str(cause)
    if source is not None and not Path(source).exists():
        return NoSuchFile(f"{where}Load model {source} failed. File doesn't exist")
    if "external data of tensor" in cause.message:
        return Fail(f"{where}{text}")
    if "not an ONNX model" in cause.message or "ordinary file" in (cause.expected or ""):
        return InvalidProtobuf(f"{where}Protobuf parsing failed.\n{text}")
    if "holds no graph" in cause.message:
        return InvalidArgument(f"No graph was found in the protobuf.\n{text}")
    if isinstance(cause, UnsupportedError) and not any(
        each.reason.startswith("ONNX has no such op") for each in cause.problems
    ):
        return NotImplemented(f"{where}{text}")
    return InvalidGraph(f"{where}This is an invalid model.\n{text}")


ARGUMENT_CHECKERS = frozenset(
    {
        "BatchNormalization", "DepthToSpace", "Einsum", "Expand", "Gather", "GatherND", "Gemm",
        "LayerNormalization", "OneHot", "Scatter", "ScatterElements", "ScatterND", "Slice", "Tile",
        "Transpose",
    }
)  # fmt: skip
"""Ops whose kernels call operands that do not fit invalid arguments in ONNX Runtime.

Others say that they failed. There is no rule in it: this is what its version 1.31 does.
"""


EXCEPTION_THROWERS = frozenset({"Cast"})
"""Ops whose kernels throw an exception of C++'s library there: text that is no number."""


def run_error(cause: MonographError) -> OnnxRuntimeError:
    """The error for a run that failed: at a node, or on the inputs that it was given."""
    op_type = op_type_in(cause.source or "") or op_type_in(cause.where or "")
    if op_type in EXCEPTION_THROWERS:
        return RuntimeException(str(cause))
    if op_type is not None:
        return (InvalidArgument if op_type in ARGUMENT_CHECKERS else Fail)(str(cause))
    if isinstance(cause, EvaluationError | TimeLimitError):
        return Fail(str(cause))
    return InvalidArgument(str(cause))
