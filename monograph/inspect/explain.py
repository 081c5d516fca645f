"""What compiling a model did, and why: stages, kernels with their reasons, bytes, memory.

An ``Explanation`` holds the figures; ``str()`` of it is a page for a person, ``as_json`` the same
for a program. Sizes that are symbolic are counted at one choice of them, which the page names.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.fusion.group import Group
from monograph.inspect.explain_text import explanation_text
from monograph.inspect.flops import flops
from monograph.inspect.inputs import choose_sizes
from monograph.inspect.jsonable import jsonable
from monograph.inspect.pass_steps import PassStep
from monograph.inspect.profile import Profile
from monograph.inspect.roofline import Placement, Roofline
from monograph.inspect.torch_graphs import ExplainedGraphs, explain_graphs, is_torch_compiled
from monograph.inspect.traffic import bytes_moved_by_group, bytes_moved_unfused, bytes_of_buffer
from monograph.ir.dims import Symbol, evaluate_dim
from monograph.program.arena import ArenaPlan
from monograph.program.code import Code, Interpret, Launch, LibraryCall, SlotKind, walk_steps
from monograph.program.liveness import arena_requests, copies_of, plan_arena
from monograph.runtime.compiled import Executable
from monograph.runtime.kernel_summary import KernelNote, notes_of
from monograph.targets.base import Program
from monograph.targets.names import host_record

WEIGHTS = (SlotKind.WEIGHT, SlotKind.PREPARED)


@dataclass(frozen=True)
class PassEffect:
    """A pass that changed the graph: how often, for how long, and what it did."""

    name: str
    times: int
    seconds: float
    did: Mapping[str, int]


@dataclass(frozen=True)
class KernelExplanation:
    """A kernel, the group that it computes, and why the group is what it is."""

    name: str
    kind: str
    space: str
    launches: int
    nodes: tuple[str, ...]
    schedule: str
    together: tuple[str, ...]
    apart: tuple[str, ...]
    bytes_read: int
    bytes_written: int
    bytes_weights: int = 0
    """Of those read, bytes of weights, packed or not."""
    flops: int | None = None
    """Of a launch (``inspect.flops``); None of a stored program, whose nodes are not known, and of
    kernels that only prepare what another one computes with."""
    seconds: float | None = None
    """Of a call, all launches together; None if nothing was measured."""
    share: float | None = None
    """Of a call's time."""
    place: Placement | None = None
    """Where it stands on this machine's roofline."""

    @property
    def saves_products(self) -> bool:
        """Whether it multiplies less than is counted: by Winograd's transform."""
        return "Winograd's" in self.schedule


@dataclass(frozen=True)
class LayoutConversion:
    """A value that is copied from one layout to another, and the bytes of the copy."""

    value: str
    purpose: str
    nbytes: int


@dataclass(frozen=True)
class Memory:
    """Where bytes lie while the program runs."""

    inputs: int
    outputs: int
    weights: int
    prepared: int
    """What is made of weights once, on loading: packed operands of products."""
    requested: int
    """What intermediates would take if nothing were used twice."""
    peak: int
    """What the arena takes."""
    lower_bound: int
    """What is alive in the fullest step: no plan can take less."""

    @property
    def distance(self) -> float:
        """How far the arena lies above the bound, as a fraction of it."""
        return self.peak / self.lower_bound - 1 if self.lower_bound else 0.0


@dataclass(frozen=True)
class Explanation:
    """All of it. ``kernels`` are the distinct ones; ``launches`` counts them as they run."""

    model: str
    inputs: tuple[str, ...]
    """The types of what a call takes, with names: ``x: f32[batch, 8]``."""
    machine: str
    threads: int
    cache: str
    stages: Mapping[str, float]
    passes: tuple[PassEffect, ...]
    nodes_given: int
    nodes_optimised: int
    nodes_lowered: int
    groups: int
    launches: int
    kernels: tuple[KernelExplanation, ...]
    sizes: Mapping[str, int]
    bytes_apart: int
    bytes_moved: int
    bytes_between: int
    """What kernels of one group hand on: packed operands, pieces of long sums. Not in the others,
    since it has nothing to do with fusion."""
    arranged: int
    """Values in memory that are not row-major."""
    conversions: tuple[LayoutConversion, ...]
    """The copies from one layout to another that are left."""
    memory: Memory | None
    fallbacks: Mapping[str, int]
    """Ops that run in the interpreter, and how many nodes of each."""
    specialised: str | None
    """Why calls complete the program, if they do; the fallbacks are known after them."""
    variants: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Sizes that came back, and what has become of the programs for just those."""
    served_by: str | None = None
    """Which program runs at ``sizes``, and why; None if there is one for all sizes alone."""
    steps: tuple[PassStep, ...] = ()
    """What each pass bought, if that was looked at."""
    library_calls: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Calls of libraries, and how many of each."""
    choices: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)
    """For groups whose contenders were measured: microseconds of each, the fastest first."""
    seconds: float | None = None
    """A call, measured; ``overhead`` is how many times as long measuring made it."""
    overhead: float | None = None
    roofline: Roofline | None = None
    """What this machine can do at best."""

    @property
    def is_above_the_roof(self) -> bool:
        """Whether a kernel was faster than the machine can be: that was measured while busy."""
        places = (each.place for each in self.kernels if not each.saves_products)
        return any(place is not None and place.reached > 1 for place in places)

    @property
    def interpreted(self) -> int:
        """How many nodes run in the interpreter."""
        return sum(self.fallbacks.values())

    def as_json(self) -> dict[str, object]:
        """The same as plain dictionaries and lists."""
        written: dict[str, object] = jsonable(self)
        return written

    def measured(self, profile: Profile, roofline: Roofline) -> Explanation:
        """The same with times, and places on a roofline."""
        times = {each.name: each for each in profile.kernels}
        memory = self.memory
        held = 0 if memory is None else memory.weights + memory.prepared
        used = 0 if memory is None else memory.inputs + memory.outputs + memory.peak

        def timed(kernel: KernelExplanation) -> KernelExplanation:
            time = times.get(kernel.name)
            if time is None:
                return kernel
            runs = max(kernel.launches, time.launches)  # several may be one launch
            others = kernel.bytes_read + kernel.bytes_written - kernel.bytes_weights
            traffic = [(runs * kernel.bytes_weights, held), (runs * max(0, others), used)]
            place = (
                None
                if kernel.flops is None
                else roofline.place(runs * kernel.flops, traffic, time.seconds)
            )
            return dataclasses.replace(kernel, seconds=time.seconds, share=time.share, place=place)

        return dataclasses.replace(
            self,
            kernels=tuple(map(timed, self.kernels)),
            seconds=profile.undisturbed,
            overhead=profile.overhead,
            roofline=roofline,
        )

    def __str__(self) -> str:
        return explanation_text(self)


def explain(
    model: Any, *, name: str | None = None, sizes: Mapping[str, int] | None = None
) -> Explanation | ExplainedGraphs:
    """What compiling this model did. ``sizes`` are those of symbolic dimensions, by name.

    Of what ``torch.compile(model, backend="monograph")`` returned, and was called, it explains
    every graph.
    """
    executable = model if isinstance(model, Executable) else getattr(model, "executable", None)
    if isinstance(executable, Executable):
        return explain_executable(executable, name=name, sizes=sizes)
    graphs = explain_graphs(model, lambda each, label: explain_executable(each, name=label))
    if graphs is not None:
        return graphs
    if is_torch_compiled(model):
        raise InputError(
            "nothing of this was compiled by Monograph yet",
            hint='torch.compile(model, backend="monograph") compiles at the first call: make it',
        )
    raise InputError(
        "this is not a compiled model",
        expected="what monograph.compile or monograph.load returned, or torch.compile did",
        found=type(model).__name__,
    )


def explain_executable(
    executable: Executable,
    *,
    name: str | None = None,
    sizes: Mapping[str, int] | None = None,
    steps: Sequence[PassStep] = (),
) -> Explanation:
    """What compiling one graph did; ``steps`` is what its passes bought (``pass_steps``)."""
    report = executable.report
    program = executable.program if executable.is_explicable else None
    bindings = choose_sizes(executable.graph, sizes or {})
    fusions = () if program is None else program.fusions
    groups = [group for fusion in fusions for group in fusion.groups]
    machine = executable.target or host_record()
    return Explanation(
        model=name or f"@{executable.graph.name}",
        inputs=tuple(f"{each.name}: {each.type}" for each in executable.graph.inputs),
        machine=f"{machine.triple} ({machine.cpu})",
        threads=0 if executable.native is None else executable.native.threads,
        cache=report.cache,
        stages=dict(report.seconds),
        passes=_pass_effects(executable),
        nodes_given=report.nodes_before,
        nodes_optimised=report.nodes_after,
        nodes_lowered=0 if program is None else len(executable.lowered),
        groups=len(groups),
        launches=sum(_launches(executable.code).values()),
        kernels=_explain_stored(executable, bindings)
        if program is None
        else _kernels(program, notes_of(program.kernels), bindings),
        sizes={symbol.name: size for symbol, size in bindings.items()},
        bytes_apart=sum(bytes_moved_unfused(fusion, bindings) for fusion in fusions),
        bytes_moved=sum(sum(bytes_moved_by_group(group, bindings)) for group in groups),
        bytes_between=_count_handed_on(program, bindings),
        arranged=_count_layouts_chosen(program),
        conversions=_conversions(program, bindings),
        memory=_memory(executable, bindings),
        fallbacks=_fallbacks(executable),
        specialised=report.specialised,
        variants=_variants(executable),
        served_by=_find_variant(executable, bindings),
        steps=tuple(steps),
        library_calls=_library_calls(executable.code),
        choices={} if program is None else _choices(program),
    )


def _choices(program: Program) -> dict[str, dict[str, float]]:
    """The times of contenders, by the group that they could have computed."""
    return {
        each.group: dict(sorted(each.plan.measured.items(), key=lambda time: time[1]))
        for each in program.planned
        if each.plan.measured
    }


def _library_calls(code: Code | None) -> dict[str, int]:
    """Libraries that a program calls instead of kernels of its own, the most frequent first."""
    steps = () if code is None else walk_steps(code.steps)
    called = [step for step in steps if isinstance(step, LibraryCall)]
    if code is None:
        return {}
    names = (f"{step.library}: {code.fallbacks[step.call].op.name}" for step in called)
    return dict(Counter(names).most_common())


def _find_variant(executable: Executable, sizes: Mapping[Symbol, int]) -> str | None:
    """Which of a program's variants runs at some sizes, if one does."""
    native = executable.native
    if native is None or native.static:
        return None
    if native.variants is not None:
        return native.variants.served_by(tuple(sizes[each] for each in native.program.sizes))
    if executable.is_loaded:
        return "the program for all sizes (a loaded program cannot be specialized)"
    return "the program for all sizes (it was compiled without variants)"


def _variants(executable: Executable) -> dict[str, str]:
    """The variants of a program with symbolic sizes, the least recently used first.

    Those of a program that calls complete are its parts', each with the part's name.
    """
    if executable.stage is not None:
        parts = executable.stage.parts
        return {
            f"{label} of @{part.graph.name}": state
            for part in parts
            for label, state in _variants(part).items()
        }
    native = executable.native
    if native is None or native.variants is None:
        return {}
    found = {}
    for sizes, variant in native.variants.states().items():
        named = zip(native.program.sizes, sizes, strict=True)
        said = f"{variant.state.value}: {variant.reason}" if variant.reason else variant.state.value
        label = (
            f"any {symbol.name}" if size is None else f"{symbol.name} = {size}"
            for symbol, size in named
        )
        found[", ".join(label)] = said
    return found


def arena_plan(executable: Executable, bindings: Mapping[Symbol, int]) -> ArenaPlan:
    """The layout of a program's arena at these sizes; for one thread, where it runs elsewhere."""
    native, code = executable.native, executable.code
    if native is not None:
        return native.plan_for(tuple(bindings[symbol] for symbol in native.program.sizes))
    assert code is not None, "a program that is interpreted has no arena"
    return plan_arena(arena_requests(code), bindings, copies_of(code, bindings, threads=1))


def _pass_effects(executable: Executable) -> tuple[PassEffect, ...]:
    """Every pass once, in the order in which they first ran; those that did nothing left out."""
    passes = executable.report.passes
    steps = [] if passes is None else passes.steps
    effects = []
    for name in dict.fromkeys(step.name for step in steps):
        own = [step for step in steps if step.name == name]
        did: Counter[str] = Counter()
        for step in own:
            did.update({key: count for key, count in step.counters.items() if count})
        if any(step.changed for step in own):
            effects.append(PassEffect(name, len(own), sum(step.seconds for step in own), dict(did)))
    return tuple(effects)


def _launches(code: Code | None) -> Counter[str]:
    """How often each kernel is launched, a loop's body counted once."""
    steps = () if code is None else code.steps
    launches = [step for step in walk_steps(steps) if isinstance(step, Launch)]
    return Counter(step.kernel for step in launches for _ in range(step.times))


def _explain_stored(
    executable: Executable, sizes: Mapping[Symbol, int]
) -> tuple[KernelExplanation, ...]:
    """The kernels of a stored program: each moves what its slots hold."""
    code = executable.code
    if code is None:
        return ()
    launches = _launches(code)
    steps = {step.kernel: step for step in walk_steps(code.steps) if isinstance(step, Launch)}

    def held(slots: Sequence[int]) -> int:
        return sum(evaluate_dim(code.slots[slot].nbytes, sizes) for slot in slots)

    def explained(note: KernelNote) -> KernelExplanation:
        step = steps.get(note.name)
        if step is None:
            return _explain_kernel(note, 0, 0, 0)
        made = step.outputs // step.times
        slots = step.runs[0]
        inputs, outputs = slots[:-made], slots[-made:]
        return _explain_kernel(note, launches[note.name], held(inputs), held(outputs))

    return tuple(explained(note) for note in executable.report.kernels)


def _kernels(
    program: Program, notes: Sequence[KernelNote], sizes: Mapping[Symbol, int]
) -> tuple[KernelExplanation, ...]:
    """The kernels; where a group takes several, each moves what its own buffers hold."""
    launches = _launches(program)
    weights = _weight_bytes(program, sizes)
    parts = Counter(id(built.group) for built in program.kernels)
    found = []
    for built, note in zip(program.kernels, notes, strict=True):
        read, written = bytes_moved_by_group(built.group, sizes)
        if parts[id(built.group)] > 1 and built.kernel is not None:
            read = sum(bytes_of_buffer(each, sizes) for each in built.kernel.inputs)
            written = sum(bytes_of_buffer(each, sizes) for each in built.kernel.outputs)
        note = dataclasses.replace(note, together=_savings_at(built.group, note, sizes))
        found.append(
            dataclasses.replace(
                _explain_kernel(note, launches[built.name], read, written),
                bytes_weights=min(weights.get(built.name, 0), read),
            )
        )
    return _with_flops(program, found, sizes)


def _savings_at(group: Group, note: KernelNote, sizes: Mapping[Symbol, int]) -> tuple[str, ...]:
    """The reasons with bytes at these sizes; they were told for all sizes."""
    counted = dict(zip(group.savings(), group.savings(sizes), strict=True))
    return tuple(counted.get(reason, reason) for reason in note.together)


def _with_flops(
    program: Program, kernels: Sequence[KernelExplanation], sizes: Mapping[Symbol, int]
) -> tuple[KernelExplanation, ...]:
    """The arithmetic of each group at the kernel that reads the most: the others prepare for it."""
    most: dict[int, int] = {}
    for number, (built, kernel) in enumerate(zip(program.kernels, kernels, strict=True)):
        best = most.setdefault(id(built.group), number)
        if (kernel.launches > 0, kernel.bytes_read) >= (
            kernels[best].launches > 0,
            kernels[best].bytes_read,
        ):
            most[id(built.group)] = number
    groups = {number: program.kernels[number].group for number in most.values()}
    return tuple(
        dataclasses.replace(kernel, flops=flops(groups[number].nodes, sizes))
        if number in groups
        else kernel
        for number, kernel in enumerate(kernels)
    )


def _weight_bytes(code: Code, sizes: Mapping[Symbol, int]) -> dict[str, int]:
    """For each kernel the bytes of weights that a launch reads, the most if launches differ."""
    found: dict[str, int] = {}
    for step in walk_steps(code.steps):
        if isinstance(step, Launch):
            read = {slot for slot in step.slots if code.slots[slot].kind in WEIGHTS}
            nbytes = sum(evaluate_dim(code.slots[slot].nbytes, sizes) for slot in read)
            found[step.kernel] = max(found.get(step.kernel, 0), nbytes // step.times)
    return found


def _explain_kernel(note: KernelNote, launches: int, read: int, written: int) -> KernelExplanation:
    return KernelExplanation(
        note.name,
        note.kind,
        note.space,
        launches,
        note.nodes,
        note.how,
        note.together,
        note.apart,
        read,
        written,
    )


def _count_layouts_chosen(program: Program | None) -> int:
    """How many values lie otherwise than row-major, by choice."""
    if program is None:
        return 0
    chosen = {slot for slot in program.slot_of.values() if program.slots[slot].span is not None}
    return sum(program.slots[slot].kind is SlotKind.ARENA for slot in chosen)


def _conversions(
    program: Program | None, sizes: Mapping[Symbol, int]
) -> tuple[LayoutConversion, ...]:
    found = () if program is None else program.conversions
    return tuple(
        LayoutConversion(each.value, each.purpose, evaluate_dim(each.nbytes, sizes))
        for each in found
    )


def _count_handed_on(program: Program | None, sizes: Mapping[Symbol, int]) -> int:
    """What kernels of one group write for each other, and read."""
    if program is None:
        return 0
    values = set(program.slot_of.values())
    scratch = [
        slot
        for number, slot in enumerate(program.slots)
        if slot.kind is SlotKind.ARENA and number not in values
    ]
    return 2 * sum(evaluate_dim(slot.nbytes, sizes) for slot in scratch)


def _memory(executable: Executable, bindings: Mapping[Symbol, int]) -> Memory | None:
    code = executable.code
    if code is None:
        return None
    plan = arena_plan(executable, bindings)

    def total(kind: SlotKind) -> int:
        return sum(evaluate_dim(slot.nbytes, bindings) for slot in code.slots if slot.kind is kind)

    return Memory(
        inputs=total(SlotKind.INPUT),
        outputs=total(SlotKind.OUTPUT),
        weights=total(SlotKind.WEIGHT),
        prepared=total(SlotKind.PREPARED),
        requested=plan.requested,
        peak=plan.peak,
        lower_bound=plan.lower_bound,
    )


def _fallbacks(executable: Executable) -> dict[str, int]:
    """Ops of the nodes that run in the interpreter, the most frequent first."""
    code = executable.code
    if code is None:
        nodes = (text.partition(" = ")[2] or text for text in executable.report.fallbacks)
        names = [text.partition("(")[0] for text in nodes]
    else:
        calls = [step.call for step in walk_steps(code.steps) if isinstance(step, Interpret)]
        names = [code.fallbacks[call].op.name for call in calls]
    return dict(Counter(names).most_common())
