"""Models in Python files: ``file.py:name``, as the command line spells them.

A file is run as its own program would run it, its folder first on the path. What goes wrong in it
is told as an error of ours that names its line, with the user's own error as the cause. Example
inputs are types on the command line, or ``example_inputs`` in the file.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import logging
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from monograph.errors import InputError, MonographError
from monograph.frontends.jax.static_arguments import is_jitted
from monograph.logs import STAGES, stage_logger


def split_name(model: str) -> tuple[Path, str] | None:
    """``net.py:model`` as its file and its name; None if it is not spelled so."""
    path, colon, name = model.rpartition(":")
    if colon and path.endswith(".py"):
        return Path(path), name
    return (Path(model), "") if model.endswith(".py") else None


def other_file(model: str, types: Sequence[str], expected: str, hint: str | None = None) -> Path:
    """The file of a model that is no Python file, and so takes no example inputs."""
    path = Path(model)
    if not model:
        raise InputError("no model is named", expected=expected)
    if not path.is_file():
        what = f"{model!r} is a folder" if path.is_dir() else f"there is no file {model!r}"
        raise InputError(what, expected=expected)
    if types:
        raise InputError(
            "example inputs are for Python models only",
            found=f"{model}, which says of itself what it takes",
            hint=hint,
        )
    return path


def check_named(path: Path, name: str) -> None:
    """Refuse a file that is not there, and one without the name of something in it."""
    if not path.is_file():
        raise InputError(f"there is no file {str(path)!r}", expected="a Python file")
    if not name:
        raise InputError(
            f"{str(path)!r} holds many things", hint=f"say which: {path}:name_of_the_model"
        )


def load_file(path: Path) -> ModuleType:
    """The user's file, imported under a name of its own."""
    spec = importlib.util.spec_from_file_location(f"checked_{path.stem}", path)
    assert spec is not None and spec.loader is not None  # a .py file always has a loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        with blaming(path, f"{path} cannot be imported"):
            spec.loader.exec_module(module)
    except InputError:
        del sys.modules[spec.name]
        raise
    return module


def find_target(namespace: ModuleType, path: Path, name: str) -> Any:
    """What the file calls so; an error lists what it has instead."""
    if not hasattr(namespace, name):
        own = [key for key, value in vars(namespace).items() if _may_be_meant(value, namespace)]
        raise InputError(
            f"{path} has nothing called {name!r}",
            expected=f"one of {', '.join(own)}" if own else "the name of a module or function",
        )
    return getattr(namespace, name)


def _may_be_meant(value: Any, namespace: ModuleType) -> bool:
    """Whether something in a file is a model or a function that the file itself defines."""
    torch = sys.modules.get("torch")
    defined_here = getattr(value, "__module__", None) == namespace.__name__
    is_module = torch is not None and isinstance(value, torch.nn.Module)
    return is_module or (callable(value) and defined_here)


def make_model(target: Any, path: Path, name: str) -> tuple[Any, str]:
    """The model, and how to spell it: a class stands for an object made with no arguments."""
    if not isinstance(target, type):
        return target, name
    with blaming(path, f"{name}() cannot be made", "name an object or a function instead"):
        return target(), f"{name}()"


def uses_torch(namespace: ModuleType, target: Any, examples: Sequence[Any]) -> bool:
    """Whether a file's model is one of torch's, and not a function of Monograph's own ops."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    if isinstance(target, torch.nn.Module | torch.export.ExportedProgram):
        return True
    if examples:
        return any(isinstance(example, torch.Tensor) for example in examples)
    named = _packages_named(target)
    if named & {"torch", "jax", "monograph"}:
        return "torch" in named
    return any(_package_of(value) == "torch" for value in vars(namespace).values())


def as_jax(target: Any) -> Any:
    """A function that names JAX and not torch, in ``jax.jit``, by which it is known as JAX's."""
    named = _packages_named(target)
    if "jax" not in named or "torch" in named:
        return target
    import jax

    return target if is_jitted(target) else jax.jit(target)


def _packages_named(target: Any) -> set[str]:
    """The packages that a function's code names, itself or in a function of its file."""
    found: set[str] = set()
    pending, seen = [inspect.unwrap(target)], set()
    while pending:
        function = pending.pop()
        if not isinstance(function, FunctionType) or function in seen:
            continue
        seen.add(function)
        for name in _names_in(function.__code__):
            value = function.__globals__.get(name)
            found.add(_package_of(value))
            if isinstance(value, FunctionType) and value.__module__ == function.__module__:
                pending.append(value)
    return found


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _package_of(value: Any) -> str:
    """The package that a module is, or that something was defined in."""
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "")
    return home.partition(".")[0] if isinstance(home, str) else ""


def read_examples(namespace: ModuleType, path: Path, model: str, target: Any) -> Sequence[Any]:
    """What the file says of its inputs, under ``example_inputs``: a tuple, or a function of it.

    If it says nothing, a model of transformers has dummy inputs of its own.
    """
    declared = getattr(namespace, "example_inputs", None)
    if declared is None:
        dummies = _dummy_examples(target)
        if dummies is not None:
            return dummies
        raise InputError(
            "a Python model needs example inputs",
            hint=f"{model} --input 'f32[1, 4]', or define example_inputs in the file",
        )
    if not callable(declared):
        given = declared
    else:
        with blaming(path, "example_inputs() cannot be called"):
            given = declared()
    return given if isinstance(given, tuple | list) else (given,)


def _dummy_examples(target: Any) -> tuple[Any, ...] | None:
    if "transformers" not in sys.modules:
        return None
    from monograph.bindings.transformers_models import dummy_examples

    return dummy_examples(target)


def torch_example(text: str) -> Any:
    """A tensor of the type that was named, random floats or zeros; a type with free sizes stays."""
    (example,), free = torch_examples((text,))
    return text if free is not None else example


def torch_examples(types: Sequence[str]) -> tuple[tuple[Any, ...], Any]:
    """Tensors of the types that were named, and what is free of their sizes, as torch says it."""
    from monograph.frontends.torch.typed_examples import example_tensors

    return example_tensors(tuple(types))


def check_types(types: Sequence[str]) -> None:
    """Refuse values where types are meant: a compiled model serves every value."""
    for text in types:
        if "=" in text or text.endswith((".npy", ".npz")):
            raise InputError(
                f"{text!r} is not the type of an example input",
                expected="a type, such as 'f32[1, 4]'",
                hint="monograph run takes values, beside the types of a Python model",
            )


@contextlib.contextmanager
def folder_on_path(path: Path) -> Iterator[None]:
    """Let the file import its neighbours, as it could if it were run."""
    before = list(sys.path)
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        yield
    finally:
        sys.path[:] = before


@contextlib.contextmanager
def no_notices() -> Iterator[None]:
    """Keep torch from logging the tracebacks of errors that are reported anyway.

    Monograph's own messages, which ``MONOGRAPH_LOG`` asks for, are let through.
    """
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    own = logging.Manager(logging.root)
    own.disable = before
    loggers = [stage_logger(stage) for stage in STAGES]
    for logger in loggers:
        logger.manager = own
    try:
        yield
    finally:
        for logger in loggers:
            logger.manager = logging.root.manager
        logging.disable(before)


@contextlib.contextmanager
def blaming(
    path: Path, what: str, hint: str | None = None, *, only_own: bool = False
) -> Iterator[None]:
    """Tell what the user's code raises as an error that names the user's line.

    With ``only_own``, an error that does not come through the user's file is not told so: it is
    ours, and keeps its traceback.
    """
    try:
        yield
    except MonographError:
        raise
    except (Exception, SystemExit) as error:
        if only_own and line_in(path, error) is None:
            raise
        raise InputError(
            what,
            found=f"{type(error).__name__}: {error}".strip(": "),
            source=line_in(path, error),
            hint=hint,
        ) from error


def line_in(path: Path, error: BaseException | None) -> str | None:
    """The innermost line of the user's file in an error's traceback."""
    if error is None:
        return None
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename) in (path, path.resolve())]
    return f"{path}:{own[-1].lineno} in {own[-1].name}" if own else None
