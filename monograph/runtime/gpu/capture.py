"""Programs as CUDA graphs: captured once, then launched with one call of the driver.

A program whose shapes are settled is captured when it is called the second time (the first warms up
libraries). Inputs and outputs stay where the caller has them: the kernels that read or write them
are nodes of the graph, and get new addresses when these change. What a library was given cannot be
changed, so that a graph is kept for each set of addresses that libraries and copies see; where
those change all the time, the steps are launched one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from monograph.dataclass import dataclass
from monograph.program.code import SlotKind
from monograph.runtime.gpu.frame import Frame
from monograph.runtime.gpu.memory import TorchMemory
from monograph.targets.gpu.driver import Driver, KernelNode

if TYPE_CHECKING:
    from monograph.runtime.gpu.program import OnDevice

MIN_STEPS = 3
"""Steps from which launching a graph is quicker than launching each."""
MAX_GRAPHS = 4
"""Graphs of one frame, each for other addresses."""
MAX_CAPTURES = 16
"""Captures of one frame after which its addresses are taken to change all the time."""


@dataclass(eq=False)
class PatchedNode:
    """A kernel of a graph that reads or writes what calls bring."""

    node: int
    parameters: KernelNode
    slots: tuple[int, ...]


class CapturedGraph:
    """A frame's steps as a graph that can be launched."""

    def __init__(
        self, driver: Driver, graph: int, nodes: list[PatchedNode], frame: Frame, owner: Any
    ) -> None:
        self.driver = driver
        self.graph = graph
        self.owner = owner
        """Torch's graph, which holds the memory that libraries work in; None if there is none."""
        self.nodes = nodes
        self.frame = frame
        self.seen = {slot: frame.words[slot] for each in nodes for slot in each.slots}
        self.given = dict(frame.given_at)
        """Where the libraries of this graph leave their results."""
        self.executable = driver.instantiate(graph)

    def launch(self, stream: int) -> None:
        """Run it, after the kernels whose buffers have moved were told so."""
        words, seen = self.frame.words, self.seen
        moved = {slot for slot, address in seen.items() if words[slot] != address}
        if moved:
            for slot, address in self.given.items():
                words[slot] = address
            self.frame.place_begins()
            for each in self.nodes:
                if not moved.isdisjoint(each.slots):
                    self.driver.update_kernel(self.executable, each.node, each.parameters)
            for slot in moved:
                seen[slot] = words[slot]
        self.driver.check(
            self.driver.graph_launch_function(self.executable, stream), "launching a graph"
        )

    def close(self) -> None:
        """Let go of the graph; torch lets go of its own."""
        self.driver.destroy_graph(0 if self.owner is not None else self.graph, self.executable)


class Captures:
    """The graphs of one frame, by the addresses that cannot be changed in them."""

    def __init__(self, held: OnDevice, frame: Frame) -> None:
        self.held = held
        self.frame = frame
        self.fixed = sorted(
            {slot for step in frame.steps if step.parameters is None for slot in step.io}
        )
        self.graphs: dict[tuple[int, ...], CapturedGraph] = {}
        self.met: set[tuple[int, ...]] = set()
        self.captures = 0
        self.is_worth_it = held.may_capture and self._saves_launches()

    def _saves_launches(self) -> bool:
        """Whether a graph is quicker: of many steps, or of a library's that gives no output.

        A library gives an output as memory of its own, which a graph would have to copy.
        """
        steps = self.frame.steps
        slots = self.held.program.slots
        calls = [step for step in steps if step.parameters is None]
        gives = any(slots[k].kind is SlotKind.OUTPUT for step in calls for k in step.io)
        return len(steps) >= MIN_STEPS or (len(steps) > 1 and bool(calls) and not gives)

    def run(self, stream: int) -> None:
        """Run the frame's steps: as a graph if there is one for these addresses."""
        if not self.is_worth_it:
            self.frame.run(stream)
            return
        key = tuple([self.frame.words[slot] for slot in self.fixed])
        found = self.graphs.get(key)
        if found is None and key in self.met and self.captures < MAX_CAPTURES:
            found = self.keep(key)
        if found is not None:
            found.launch(stream)
            return
        if len(self.met) > MAX_CAPTURES:
            self.met.clear()
        self.met.add(key)
        self.frame.run(stream)

    def keep(self, key: tuple[int, ...]) -> CapturedGraph:
        """Capture the steps with the addresses that they have now."""
        self.captures += 1
        for oldest in list(self.graphs)[: 1 - MAX_GRAPHS]:
            self.graphs.pop(oldest).close()
        made = self.graphs[key] = self.capture()
        return made

    def close(self) -> None:
        """Let go of all graphs."""
        for each in self.graphs.values():
            each.close()
        self.graphs.clear()

    def capture(self) -> CapturedGraph:
        """The steps as a graph."""
        driver, nodes = self.held.driver, list[PatchedNode]()
        self.frame.is_captured = True
        with self.capturing() as (stream, found):
            for step in self.frame.steps:
                step.run(stream)
                if step.parameters is not None and step.io:
                    node = driver.last_captured(stream)
                    parameters = driver.kernel_node(node)
                    parameters.parameters, parameters.extra = step.parameters, None
                    nodes.append(PatchedNode(node, parameters, tuple(step.io)))
        self.frame.is_captured = False
        graph, owner = found
        return CapturedGraph(driver, graph, nodes, self.frame, owner)

    @contextmanager
    def capturing(self) -> Iterator[tuple[int, list[Any]]]:
        """Capture on a stream of its own; at the end, the graph and what holds its memory."""
        driver, memory, found = self.held.driver, self.held.memory, list[Any]()
        if not isinstance(memory, TorchMemory):
            stream = driver.new_stream()
            driver.begin_capture(stream)
            yield stream, found
            found += [driver.end_capture(stream), None]
            return
        torch = memory.torch
        owner, side = torch.cuda.CUDAGraph(keep_graph=True), torch.cuda.Stream(memory.place)
        side.wait_stream(torch.cuda.current_stream(memory.place))
        with torch.cuda.stream(side):
            owner.capture_begin(capture_error_mode="relaxed")
            try:
                yield side.cuda_stream, found
            finally:
                owner.capture_end()
        found += [owner.raw_cuda_graph(), owner]
