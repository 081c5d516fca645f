"""Reads whatever a user may compile: files by their suffix, modules, functions.

Somebody who tries a TorchScript module, a Keras model or a file of weights is told what to do
instead, before anything else has a chance to fail on it.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from monograph.errors import InputError
from monograph.runtime.compiled import Executable

KINDS = (
    "a torch module or function or a JAX function (with example inputs), a function of Monograph's "
    "ops, a Graph, an ExportedProgram or a .pt2 file of one, an ONNX path, bytes or ModelProto, "
    "or an .mlir file"
)

_WEIGHTS_ONLY = (
    "build the module in Python, load these weights into it (load_state_dict), and compile that; "
    "or save the whole program with torch.export.save, as .pt2"
)
_BY_SUFFIX = {
    ".mono": ("is compiled already", "monograph.load reads it"),
    ".ir": ("is a graph as text", "monograph.ir.text.files.load_graph reads it; compile the graph"),
    ".pt": ("holds weights or a pickled module, and no program", _WEIGHTS_ONLY),
    ".pth": ("holds weights or a pickled module, and no program", _WEIGHTS_ONLY),
    ".bin": ("holds weights, and no program", _WEIGHTS_ONLY),
    ".ckpt": ("holds weights, and no program", _WEIGHTS_ONLY),
    ".safetensors": ("holds weights, and no program", _WEIGHTS_ONLY),
    ".py": ("is Python", "import it, and compile the module or function that it defines"),
    ".tflite": ("is a TensorFlow model", "tf2onnx writes it as ONNX, which can be compiled"),
    ".pb": ("is a TensorFlow model", "tf2onnx writes it as ONNX, which can be compiled"),
    ".h5": ("is a Keras model", "tf2onnx writes it as ONNX, which can be compiled"),
    ".keras": ("is a Keras model", "tf2onnx writes it as ONNX, which can be compiled"),
}
_FOREIGN = {
    "flax": ("Flax modules", "compile a function: jax.jit(lambda v, x: model.apply(v, x)), v, x"),
    "tensorflow": ("TensorFlow", "tf2onnx writes it as ONNX, which can be compiled"),
    "keras": ("Keras", "tf2onnx writes it as ONNX, which can be compiled"),
}


def refuse_foreign(model: Any, leaves: Iterable[Any]) -> None:
    """Refuse classes, what is compiled, and models or examples of frameworks without a frontend."""
    if isinstance(getattr(model, "executable", model), Executable):
        raise InputError(
            "this is compiled already",
            expected=KINDS,
            found=type(model).__name__,
            hint="call it, or compile the model that it was compiled from",
        )
    if isinstance(model, type):
        raise InputError(
            f"{model.__name__} is a class, not a model",
            expected=KINDS,
            hint=f"compile an instance of it: {model.__name__}(…)",
        )
    for item in (model, *leaves):
        package = type(item).__module__.split(".")[0]
        if package in _FOREIGN:
            framework, hint = _FOREIGN[package]
            raise InputError(
                f"there is no frontend for {framework} yet",
                expected=KINDS,
                found=f"{type(item).__module__}.{type(item).__name__}",
                hint=hint,
            )


def refuse_other(model: Any) -> None:
    """Refuse what is no model at all."""
    if not callable(model):
        raise InputError(
            "this is not something that can be compiled",
            expected=KINDS,
            found=type(model).__name__,
        )


def is_exported(path: str | Path) -> bool:
    """Whether a path is that of a program that ``torch.export.save`` wrote."""
    return Path(path).suffix == ".pt2"


def load_exported(path: str | Path) -> Any:
    """The ``ExportedProgram`` in a ``.pt2`` file."""
    _check_exists(Path(path))
    if importlib.util.find_spec("torch") is None:
        raise InputError("reading .pt2 files needs torch", hint="pip install 'monograph[torch]'")
    import torch

    try:
        with _no_pickled_objects():
            return torch.export.load(path)
    except Exception as error:  # torch raises errors of every kind for a file that is another's
        raise InputError(
            f"{path} cannot be read by torch.export.load",
            expected="what torch.export.save wrote, by this version of torch or an older one",
            found=f"{type(error).__name__}: {error}",
        ) from error


@contextmanager
def _no_pickled_objects() -> Iterator[None]:
    """Let torch read tensors alone meanwhile: pickled objects of a file could run any code."""
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def check_onnx_path(path: str | Path) -> None:
    """Refuse files that are something else than ONNX, by their names, and say what to do."""
    given = Path(path)
    refuse_suffix(given, KINDS)
    _check_exists(given)


def refuse_suffix(path: Path, expected: str, known: tuple[str, ...] = ()) -> None:
    """Refuse a file whose name tells that it is of another kind, unless that kind is known."""
    if path.suffix in _BY_SUFFIX and path.suffix not in known:
        problem, hint = _BY_SUFFIX[path.suffix]
        raise InputError(f"{path} {problem}", expected=expected, hint=hint)


def _check_exists(path: Path) -> None:
    try:
        exists = path.exists()
    except (OSError, ValueError):  # longer than any path, or with a null character in it
        exists = False
    if not exists:
        raise InputError(
            f"there is no file {str(path)!r:.200}",
            expected=KINDS,
            hint="a string is taken for the path of an ONNX model, or of a .pt2 file",
        )
