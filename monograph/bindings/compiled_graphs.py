"""Records what ``torch.compile`` compiled: which graph of which model, and which calls are slow.

Dynamo cuts a program into graphs and hides what becomes of them. Each one that this backend
compiles notes where it came from, so that ``monograph.explain`` finds the graphs of a model, and
tells the logger ``monograph`` what of it does not run as native code.
"""

from __future__ import annotations

import itertools
import logging
import sys
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, FrameType, MethodType
from typing import Any, Protocol

import torch
from torch._dynamo.eval_frame import OptimizeContext
from torch._dynamo.resume_execution import ContinueExecutionCache
from torch._dynamo.symbolic_convert import tls
from torch._dynamo.utils import orig_code_map

from monograph.dataclass import dataclass
from monograph.runtime.compile_report import CompileReport
from monograph.runtime.compiled import Executable

LOGGER = logging.getLogger("monograph")
"""What runs slower than it might: nodes in the interpreter, calls of torch, graph breaks."""
_TORCH = str(Path(torch.__file__).parent)
_DYNAMO = str(Path(_TORCH, "_dynamo"))
SHOWN = 5
"""How many nodes a message names."""


@dataclass(frozen=True)
class Origin:
    """Where a graph comes from: the function that Dynamo read, and the modules that it was given.

    ``codes`` are that function and those that were calling it, up to the compiled one; ``modules``
    are those that they were given. ``end`` says why the graph ends before the function does, if it
    does; ``resumes`` whether it begins behind such an end.
    """

    name: str
    codes: tuple[CodeType, ...] = ()
    modules: tuple[weakref.ref[Any], ...] = ()
    end: str | None = None
    resumes: bool = False

    def is_of(self, model: Any) -> bool:
        """Whether the graph was compiled for what ``torch.compile`` was given."""
        code, module = _parts(model)
        if module is None and any(each is code for each in self.codes):
            return True
        if not isinstance(module, torch.nn.Module):
            return False
        own = {id(each) for each in module.modules()}
        return any(id(reference()) in own for reference in self.modules)


class Graph(Protocol):
    """A compiled graph, as it is remembered."""

    origin: Origin
    role: str
    executable: Executable

    @property
    def opaque_calls(self) -> tuple[str, ...]:
        """The ops that are left to torch."""


_GRAPHS: weakref.WeakValueDictionary[int, Graph] = weakref.WeakValueDictionary()
_NUMBERS = itertools.count()


def origin_of(module: Any) -> Origin:
    """The origin of a graph that Dynamo hands over; its class alone if Dynamo is not at work."""
    translator = getattr(tls, "current_tx", None)
    if translator is None:
        return Origin(type(module).__name__)
    code = _as_written(translator.f_code)
    callers = list(_calling_frames())
    codes = (code, *(_as_written(frame.f_code) for frame in callers))
    modules = _modules_among(translator.f_locals)
    outer = tuple(each for frame in callers for each in _modules_among(frame.f_locals))
    reason = getattr(module, "compile_subgraph_reason", None)
    broke = reason is not None and reason.graph_break
    end = _end(reason) if broke else None
    resumes = translator.f_code in ContinueExecutionCache.generated_code_metadata
    return Origin(_name(code, modules or outer), codes, modules + outer, end, resumes)


def _as_written(code: CodeType) -> CodeType:
    """The code of the user's function, of which Dynamo made this one."""
    code = orig_code_map.get(code, code)
    resumed = ContinueExecutionCache.generated_code_metadata
    while code in resumed:
        code = resumed[code].code
    return code


def _modules_among(values: Mapping[str, Any]) -> tuple[weakref.ref[Any], ...]:
    return tuple(weakref.ref(x) for x in values.values() if isinstance(x, torch.nn.Module))


def _calling_frames() -> Iterator[FrameType]:
    """The calls that led to the function that Dynamo reads, up to the one that it was asked for.

    Behind a graph break a function goes on as another, which is given only what the rest needs: no
    module if it has no use for one. And a function that breaks is compiled apart from its caller.
    """
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if isinstance(frame.f_locals.get("self"), OptimizeContext):
            return
        if not frame.f_code.co_filename.startswith(_DYNAMO):
            yield frame


def _name(code: CodeType, modules: tuple[weakref.ref[Any], ...]) -> str:
    """The function's name; the module's class, where torch itself wraps or defines the function."""
    if modules and code.co_filename.startswith(_TORCH):
        return type(modules[0]()).__name__
    return code.co_qualname


def _end(reason: Any) -> str:
    """The first line of why a graph ends, and the user's line where it does."""
    first = str(reason.reason).strip().partition("\n")[0]
    if not reason.user_stack:
        return first
    frame = reason.user_stack[-1]
    return f"{first} ({frame.filename}:{frame.lineno})"


def remember(graph: Graph) -> None:
    """Keep a graph findable as long as torch keeps it, and tell what of it may be slow."""
    _GRAPHS[next(_NUMBERS)] = graph
    report = graph.executable.report
    label = f"{graph.origin.name} ({graph.role})"
    LOGGER.info("%s: compiled, %d kernels", label, len(report.kernels))
    for message in _slow_parts(graph, report):
        LOGGER.warning("%s: %s", label, message)
    if report.specialised is not None:
        LOGGER.info("%s: its calls complete the program: %s", label, report.specialised)
    if graph.origin.end is not None and graph.role != "backward":
        LOGGER.info("%s: the graph ends here: %s", label, graph.origin.end)


def _slow_parts(graph: Graph, report: CompileReport) -> Iterator[str]:
    if graph.opaque_calls:
        yield f"left to torch: {_list_items(graph.opaque_calls)}"
    others = tuple(each for each in report.fallbacks if " = torch.call(" not in each)
    if others:
        yield f"in the interpreter: {_list_items(others)}"


def _list_items(items: tuple[str, ...]) -> str:
    more = f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return "; ".join(items[:SHOWN]) + more


def graphs_of(model: Any) -> list[Graph]:
    """The graphs that were compiled for what ``torch.compile`` returned, in that order.

    Those of a module with parts that are compiled (``module.compile()``) are those of its parts.
    """
    return [graph for _, graph in sorted(_GRAPHS.items()) if graph.origin.is_of(model)]


def _parts(model: Any) -> tuple[CodeType | None, Any]:
    """The code and the module that ``torch.compile`` was given; either may be None."""
    if isinstance(model, torch.nn.Module):
        return None, getattr(model, "_orig_mod", model)
    function = getattr(model, "_torchdynamo_orig_callable", model)
    owner = function.__self__ if isinstance(function, MethodType) else None
    return getattr(function, "__code__", None), owner
