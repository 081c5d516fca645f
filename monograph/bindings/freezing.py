"""Parameters as constants under ``torch.compile``: ``options={"freeze": True}``.

Dynamo passes a module's parameters and buffers to every call of a graph, so that a program has to
arrange them in memory each time. Frozen, they are weights of the program, which are packed and
folded once, at the first call. Dynamo also runs one graph for several modules of a class, and
modules are trained, so each call is asked whether its parameters are those that were frozen: the
same tensors, at the same addresses, with the same version counters. Others are frozen in turn, and
where that happens too often, the program takes its parameters as it would without the option.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import torch

from monograph.bindings.compiled_graphs import LOGGER
from monograph.dataclass import dataclass

MOST_KEPT = 128
"""For how many sets of parameters a graph keeps programs: layers of one class share a graph."""
MOST_LOST = 4
"""How many programs may be lost to changes before parameters are passed instead."""

_version = torch.Tensor._version.__get__  # type: ignore[attr-defined]
_address = torch.Tensor.data_ptr
Program = Callable[..., list[Any]]


def static_places(module: Any) -> tuple[int, ...]:
    """The arguments of a graph of AOTAutograd's that are parameters or buffers and are not written.

    To be asked while it is compiled, since the tracing context says so.
    """
    context = torch._guards.TracingContext.try_get()
    known = None if context is None else context.fw_metadata
    if known is None:
        return ()
    frozen = set(known.static_input_indices) - set(known.mutated_inp_runtime_indices)
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    return tuple(
        place
        for place, node in enumerate(placeholders)
        if getattr(node.meta.get("desc"), "idx", None) in frozen
        and isinstance(node.meta.get("val"), torch.Tensor)
    )


@dataclass(frozen=True)
class Frozen:
    """A program, the state that its parameters had, and what notices that they are gone."""

    program: Program
    state: tuple[list[int], list[int]]
    watches: tuple[weakref.ref[Any], ...]


class FrozenGraph:
    """A graph, called with all of its arguments, whose parameters are constants of programs.

    ``make`` compiles the graph with constants in some places; in none, if there are no constants.
    """

    def __init__(
        self, name: str, places: Sequence[int], make: Callable[[Mapping[int, Any]], Program]
    ) -> None:
        self._name = name
        self._places = places
        self._make = make
        self._programs: dict[tuple[int, ...], Frozen] = {}
        self._plain: Program | None = None
        self._lost = 0
        self._lock = threading.Lock()
        one = len(places) == 1
        self._parameters: Callable[[Sequence[Any]], tuple[Any, ...]] = (
            (lambda arguments: (arguments[places[0]],)) if one else itemgetter(*places)
        )

    def __call__(self, *arguments: Any) -> list[Any]:
        """The graph's results."""
        if self._plain is not None:
            return self._plain(*arguments)
        parameters = self._parameters(arguments)
        found = self._programs.get(tuple(map(id, parameters)))
        if found is not None and found.state == _state(parameters):
            return found.program(*arguments)
        with self._lock:
            program = self._freeze(parameters)
        return program(*arguments)

    def _freeze(self, parameters: tuple[Any, ...]) -> Program:
        """The program for these parameters, or for any if there were too many."""
        if self._plain is not None:
            return self._plain
        key = tuple(map(id, parameters))
        found = self._programs.get(key)
        if found is not None and found.state == _state(parameters):
            return found.program  # another thread made it
        if found is not None:
            del self._programs[key]
            self._lost += 1
            LOGGER.info("%s: parameters have changed, and are frozen again", self._name)
        if self._lost > MOST_LOST or len(self._programs) >= MOST_KEPT:
            return self._give_up()
        state = _state(parameters)
        program = self._make(dict(zip(self._places, parameters, strict=True)))
        watches = tuple(weakref.ref(each, self._forgetter(key)) for each in parameters)
        self._programs[key] = Frozen(program, state, watches)
        return program

    def _give_up(self) -> Program:
        LOGGER.warning(
            "%s: parameters are frozen no longer, since they keep changing (%d programs were made "
            "in vain, %d are kept)",
            self._name,
            self._lost,
            len(self._programs),
        )
        self._programs.clear()
        self._plain = self._make({})
        return self._plain

    def _forgetter(self, key: tuple[int, ...]) -> Callable[[Any], None]:
        """What is done when a parameter is gone: another tensor may have its identity next."""
        graph = weakref.ref(self)

        def forget(_: Any) -> None:
            alive = graph()
            if alive is not None and alive._programs.pop(key, None) is not None:
                alive._lost += 1

        return forget


def _state(parameters: tuple[Any, ...]) -> tuple[list[int], list[int]]:
    """Where tensors lie, and how often they were written; inference tensors do not count that."""
    try:
        versions = list(map(_version, parameters))
    except RuntimeError:
        versions = [0 if each.is_inference() else each._version for each in parameters]
    return list(map(_address, parameters)), versions
