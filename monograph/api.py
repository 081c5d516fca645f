"""The public functions: read a model, optimise it, compile it, run it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from monograph.errors import InputError
from monograph.ir.contents import reread
from monograph.ir.graph import Graph, check_graph
from monograph.passes.base import Pass, make_pass
from monograph.passes.instruments import Instrument, list_instruments
from monograph.passes.manager import Pipeline, Report, run_pipeline
from monograph.passes.pipeline import pipeline_for

if TYPE_CHECKING:
    from onnx import ModelProto

    from monograph.ir.specialize import SizeRange
    from monograph.runtime.compiled import CompiledModel


def from_torch(
    model: Any,
    *example_inputs: Any,
    dynamic_shapes: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    strict: bool = False,
    training: bool = False,
) -> Graph:
    """The graph of a PyTorch module, function, ExportedProgram or FX GraphModule.

    Examples are tensors, or types such as ``"f32[batch, 4]"``, whose names are free sizes.
    ``dynamic_shapes`` is what ``torch.export`` takes; its dimensions become symbols. Weights share
    torch's memory. With ``training``, parameters are inputs and buffers that change are updates.
    """
    if importlib.util.find_spec("torch") is None:
        raise InputError(
            "reading PyTorch models needs torch", hint="pip install 'monograph[torch]'"
        )
    from monograph.frontends import torch

    return torch.from_torch(
        model,
        *example_inputs,
        dynamic_shapes=dynamic_shapes,
        kwargs=kwargs,
        strict=strict,
        training=training,
    )


def from_onnx(source: str | Path | bytes | ModelProto) -> Graph:
    """The graph of an ONNX model: a path, the bytes of a file, or a ``ModelProto``."""
    from monograph.frontends import onnx

    return onnx.from_onnx(source)


def from_jax(
    function: Callable[..., Any],
    *examples: Any,
    kwargs: Mapping[str, Any] | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
) -> Graph:
    """The graph of a JAX function, which JAX traces on examples.

    Examples are arrays, ``jax.ShapeDtypeStruct``s (symbolic sizes of ``jax.export`` become
    symbols), types such as ``"f32[batch, 4]"``, or trees of them; static arguments (those named
    here, and those of the ``jax.jit`` around the function) are given to it as they are. Leaves, in
    JAX's order, become inputs and outputs.
    """
    from monograph.frontends import jax

    return jax.from_jax(
        function,
        *examples,
        kwargs=kwargs,
        static_argnums=static_argnums,
        static_argnames=static_argnames,
    )


def compile(
    model: Any,
    *examples: Any,
    target: str | None = None,
    level: str = "O2",
    passes: str | Sequence[Pass | str] | None = None,
    threads: int | None = None,
    strict: bool = False,
    cache: bool | None = None,
    winograd_tolerance: float | None = None,
    budget: float | None = None,
    keep_weights: bool = False,
    sizes: Mapping[str, SizeRange] | None = None,
    variants: int | None = None,
    dynamic_shapes: Any = None,
    kwargs: Mapping[str, Any] | None = None,
) -> CompiledModel:
    """Native code for a model, called as the model is.

    ``model`` is a torch module or function, a JAX function, or a function of Monograph's own ops
    (with examples: tensors, arrays, or types such as ``"f32[batch, 4]"``), a ``Graph``, or an ONNX
    model (path, bytes or ``ModelProto``). A ``PreTrainedModel`` of transformers needs no examples,
    and ``generate`` works on what becomes of it. What is compiled returns what the model returns,
    in the same nesting: torch tensors for torch, JAX's arrays for JAX, NumPy arrays for the others.
    A function is JAX's if ``jax.jit`` has wrapped it, or if an example is an array or type of
    JAX's.

    ``target`` names what to compile for: ``cpu`` is this machine's processor, ``cpu:x86-64-v3`` or
    ``cpu:aarch64`` another one (``MONOGRAPH_TARGET``, or ``cpu``, if None).
    ``level`` is O0 to O3; ``passes`` runs these instead of the level's, in order, as ``optimize``
    takes them (with passes of your own the cache is not used).
    ``threads`` is the most that a call may use; None leaves it to ``MONOGRAPH_THREADS``, then to
    torch (``torch.set_num_threads``) for models from torch, to ``OMP_NUM_THREADS``, and else to
    the number of processors. A node that has no native code runs in the interpreter and is named in
    ``executable.report``; with ``strict`` it is an error. ``cache`` says whether to look for the
    code on disk first, and to leave it there (``MONOGRAPH_CACHE`` decides if None).
    ``winograd_tolerance`` is the error, over the largest result, that 3×3 convolutions may have to
    be faster: from 6e-6 on, Winograd's F(4×4) is taken where it wins. None takes F(2×2) alone,
    which is as exact as summing directly, and 0 neither.
    ``budget`` is how many seconds to search for better schedules by measuring on this machine:
    none by default, and 20 at O3, which also bends the rules of floats (``fast_math``). The result
    of a search is kept in the cache, and is never slower than what is chosen without one.
    What is compiled is a snapshot: it has the weights and buffers that the model has now, whatever
    becomes of the model's (an optimizer's step, ``load_state_dict``, ``.half()``), and buffers that
    its calls change are its own. Compile again to take new weights. What is packed is not held a
    second time; ``keep_weights`` does, for those who look at ``executable.graph`` afterwards.
    ``sizes`` fixes symbolic dimensions, or bounds them: ``{"batch": 1, "height": (32, 640)}``.
    Those that are left free may have any size; programs of their own are compiled in the
    background for up to ``variants`` of the sizes that come back (``MONOGRAPH_VARIANTS``, or 4, if
    None; 0 for none), for which the weights are held as well.
    ``dynamic_shapes`` and ``kwargs`` are what ``torch.export`` takes.

    A call takes ``timeout=`` too: the seconds after which loops are broken off with a
    ``TimeLimitError``, unless the model has an argument of that name (see ``time_limit``).
    """
    _check_options(cache, variants, sizes)
    from monograph.bindings.models import compile_model
    from monograph.compiler import Options

    options = Options(
        level,
        threads,
        strict,
        cache=cache,
        winograd_tolerance=winograd_tolerance,
        budget=budget,
        keep_weights=keep_weights,
        passes=None if passes is None else as_pipeline(passes),
        sizes=dict(sizes or {}),
        variants=variants,
        target=target,
    )
    return compile_model(
        model, *examples, options=options, dynamic_shapes=dynamic_shapes, kwargs=kwargs
    )


def _check_options(cache: object, variants: object, sizes: object) -> None:
    """Refuse options of the wrong type, even those that this model does not use."""
    if cache is not None and not isinstance(cache, bool):
        raise InputError("cache is yes or no", expected="True, False or None", found=repr(cache))
    is_count = type(variants) is int and variants >= 0
    if variants is not None and not is_count:
        raise InputError(
            "variants is a number of programs", expected="0 or more, or None", found=repr(variants)
        )
    if sizes is not None and not isinstance(sizes, Mapping):
        raise InputError(
            "sizes are given by name",
            expected='a dict, such as {"batch": 1, "height": (32, 640)}',
            found=repr(sizes),
        )


def optimize(
    graph: Graph, level: str = "O2", passes: str | Sequence[Pass | str] | None = None
) -> Graph:
    """An optimised copy of ``graph``, which stays as it is.

    ``level`` is O0 to O3; ``passes`` runs these instead, in order: pass objects or their
    spellings, as a list or as ``monograph opt -p`` takes them (``"cse,dce"``).
    """
    return optimize_with_report(graph, level, passes)[0]


def optimize_with_report(
    graph: Graph,
    level: str = "O2",
    passes: str | Sequence[Pass | str] | None = None,
    instruments: Sequence[Instrument] = (),
) -> tuple[Graph, Report]:
    """Like ``optimize``, with a report of every step; ``instruments`` watch them."""
    check_graph(graph)
    pipeline = pipeline_for(level) if passes is None else as_pipeline(passes)
    result = reread(graph).clone()
    report = run_pipeline(result, pipeline, (*instruments, *list_instruments()))
    return result, report


def as_pipeline(passes: str | Sequence[Pass | str]) -> Pipeline:
    """Passes from objects and spellings; a string holds several, separated by commas."""
    listed = split_passes(passes) if isinstance(passes, str) else passes
    if not isinstance(listed, Sequence):
        raise InputError(
            "passes are a list", expected='passes or their names: "cse,dce"', found=repr(passes)
        )
    made: list[Any] = [make_pass(each) if isinstance(each, str) else each for each in listed]
    for each in made:
        if not isinstance(each, Pass) or not hasattr(each, "name"):
            raise InputError(
                "this is not a pass",
                expected="the name of a pass, or an object of a subclass of Pass with a name",
                found=repr(each),
            )
    return made


def split_passes(text: str) -> list[str]:
    """``"simplify{fast_math=true},dce"`` as its parts: commas inside braces do not separate."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "{") - (character == "}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]
